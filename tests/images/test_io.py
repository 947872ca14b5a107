import locale
import warnings
from contextlib import contextmanager

import nibabel
import numpy as np
import pytest
import SimpleITK as sitk
from numpy.testing import assert_allclose, assert_array_equal
from PIL import Image as Picture

from tests.images.conftest import POSES, make_grid, picture
from tests.skips import DATA
from vrnet.errors import BadInput, InputWarning
from vrnet.images.grid import Grid
from vrnet.images.image import Image
from vrnet.images.io import IMAGE_SUFFIXES, MAX_CHANGE, given_cine, grid_of, read_cine, read_image, to_sitk, write_image

GRID = Grid.plain((12, 10, 8), (1.0, 1.5, 2.0))
RAMP = np.arange(GRID.shape[0] * 80, dtype=np.float32).reshape(GRID.shape)


def refusal(path):
    """The message with which a file is refused: one line that names it."""
    with pytest.raises(BadInput) as raised:
        read_image(path)
    message = str(raised.value)
    assert len(message.splitlines()) == 1
    assert str(path) in message
    return message


def same_place(grid, other, atol=1e-5):
    assert grid.shape == other.shape
    for part in ("spacing", "origin", "direction"):
        assert_allclose(getattr(grid, part), getattr(other, part), atol=atol)


def nifti(path, array=RAMP, affine=None, **fields):
    """A NIfTI file with some fields of its header overwritten, however wrong."""
    image = nibabel.Nifti1Image(array, np.diag([1.0, 1.5, 2.0, 1.0]) if affine is None else affine)
    nibabel.save(image, path)
    raw = bytearray(path.read_bytes())
    header = image.header_class(bytes(raw[:348]), check=False)
    for name, value in fields.items():
        header[name] = value
    path.write_bytes(header.binaryblock + raw[348:])
    return path


@pytest.mark.parametrize("suffix", IMAGE_SUFFIXES)
def test_an_image_keeps_its_place_and_its_values_in_simpleitk(grid, random, tmp_path, suffix):
    array = random(*grid.shape).numpy()
    write_image(Image(array, grid), tmp_path / f"x{suffix}")
    image = sitk.ReadImage(str(tmp_path / f"x{suffix}"))
    same_place(grid, Grid(image.GetSize(), image.GetSpacing(), image.GetOrigin(), image.GetDirection()))
    for index in [(0,) * len(grid.shape), (5, 2, 7)[: len(grid.shape)]]:
        assert image[index] == array[index]
    read = read_image(tmp_path / f"x{suffix}")
    same_place(read.grid, grid)
    assert_array_equal(read.array, array)
    assert read.name == str(tmp_path / f"x{suffix}")


def test_an_image_keeps_its_place_and_its_values_in_nibabel(grid, random, tmp_path):
    """NIfTI counts from right to left and from back to front where ITK does the opposite: x and y change sign."""
    array, d, path = random(*grid.shape).numpy(), len(grid.shape), tmp_path / "x.nii.gz"
    write_image(Image(array, grid), path)
    image = nibabel.load(path)
    assert_array_equal(np.asarray(image.dataobj).reshape(grid.shape), array)
    to_ras = np.diag([-1.0, -1.0, 1.0])[:d, :d]
    assert_allclose(image.affine[:d, :d], to_ras @ grid.to_world, atol=1e-6)
    assert_allclose(image.affine[:d, 3], to_ras @ grid.origin, atol=1e-5)


@pytest.mark.parametrize("kind", ["int16", "scaled", "big-endian"])
def test_an_image_by_nibabel_reads_as_nibabel_reads_it(grid, tmp_path, kind):
    affine = np.eye(4)
    d, path = len(grid.shape), tmp_path / "x.nii.gz"
    affine[:d, :d], affine[:d, 3] = grid.to_world, grid.origin
    array = (1000 * picture(grid).array).astype(np.int16)
    header = nibabel.Nifti1Header(endianness=">" if kind == "big-endian" else "<")
    image = nibabel.Nifti1Image(array, affine, header)
    if kind == "scaled":
        image.header.set_slope_inter(0.5, -3.0)
    nibabel.save(image, path)
    read, theirs = read_image(path), nibabel.load(path)
    assert_allclose(read.array, theirs.get_fdata(), rtol=1e-6)
    to_lps = np.diag([-1.0, -1.0, 1.0])[:d, :d]
    assert_allclose(read.grid.to_world, to_lps @ theirs.affine[:d, :d], atol=1e-5)
    assert_allclose(read.grid.origin, to_lps @ theirs.affine[:d, 3], atol=1e-5)


@pytest.mark.parametrize("suffix", IMAGE_SUFFIXES)
def test_the_number_type_and_every_value_are_kept(suffix, tmp_path):
    for dtype in ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "q", "Q", ">i2", ">u8", "f4", "f8", ">f8"):
        extremes = np.finfo(dtype) if "f" in dtype else np.iinfo(dtype)
        array = np.zeros(GRID.shape, dtype)
        array.flat[:4] = [extremes.min, extremes.max, 1, 3]
        write_image(Image(array, GRID), tmp_path / f"x{suffix}")
        read = read_image(tmp_path / f"x{suffix}").array
        assert read.dtype == array.dtype.newbyteorder("=")
        assert_array_equal(read, array)


@pytest.mark.parametrize("suffix", IMAGE_SUFFIXES)
def test_the_same_image_is_written_as_the_same_bytes(grid, tmp_path, suffix, monkeypatch):
    files = [tmp_path / part / f"x{suffix}" for part in "ab"]
    for year, file in enumerate(files, start=30):
        monkeypatch.setattr("time.time", lambda year=year: year * 3.2e7)
        write_image(picture(grid), file)
    assert files[0].read_bytes() == files[1].read_bytes()


def test_a_stack_of_one_slice_stays_where_it_is_in_space(tmp_path):
    """A long-axis view is one oblique slice: no 2D image, or it would lose its pose."""
    grid = make_grid((12, 10, 1), (1.2, 1.4, 8.0), (3.0, 4.0, 5.0), POSES["oblique"](3))
    for suffix in IMAGE_SUFFIXES:
        path = tmp_path / suffix / f"x{suffix}"
        write_image(picture(grid, (2, 2, 0)), path)
        same_place(read_image(path).grid, grid)


@contextmanager
def keep_locale():
    """Restore the locale afterwards: ITK's DICOM writer sets it to C."""
    kept = locale.setlocale(locale.LC_ALL)
    try:
        yield
    finally:
        locale.setlocale(locale.LC_ALL, kept)


def series(folder, grid, array, uid="1.2.3"):
    """Write a DICOM series with one file per slice, whose names say nothing of their order."""
    folder.mkdir(exist_ok=True)
    image, writer = to_sitk(array, grid), sitk.ImageFileWriter()
    writer.KeepOriginalImageUIDOn()
    orientation = "\\".join(f"{x:.10f}" for x in grid.axes[:, :2].T.ravel())
    for k in range(grid.shape[2]):
        part = image[:, :, k : k + 1]
        position = "\\".join(f"{x:.8f}" for x in image.TransformIndexToPhysicalPoint((0, 0, k)))
        tags = {"0008|0060": "MR", "0020|000d": "1.2", "0020|000e": uid, "0020|0052": "1.2.9", "0020|0013": str(k)}
        tags |= {"0008|0018": f"{uid}.{k + 1}", "0020|0032": position, "0020|0037": orientation}
        tags |= {"0018|0050": str(grid.spacing[2]), "0018|0088": str(grid.spacing[2])}
        for tag, value in tags.items():
            part.SetMetaData(tag, value)
        writer.SetFileName(str(folder / f"{(7 * k) % 11:02d}-{uid}.dcm"))
        with keep_locale():  # or every test after this one reads text as ASCII
            writer.Execute(part)
    return folder


def test_a_dicom_series_reads_like_the_volume(tmp_path):
    grid = make_grid((12, 10, 6), (1.3, 0.7, 2.5), (10.0, -20.0, 5.0), POSES["oblique"](3))
    array = np.arange(720, dtype=np.int16).reshape(grid.shape)
    folder = series(tmp_path / "scan", grid, array)
    (folder / "notes.txt").write_text("not DICOM")
    encoding = locale.getencoding()
    read = read_image(folder)
    assert locale.getencoding() == encoding, "the locale is as it was"
    assert_array_equal(read.array, array)
    same_place(read.grid, grid, atol=1e-4)
    one = read_image(folder / "07-1.2.3.dcm")
    assert_array_equal(one.array, array[:, :, 1:2])


def test_a_folder_with_no_series_or_several_is_refused_without_a_word_from_itk(tmp_path, capfd):
    (tmp_path / "empty").mkdir()
    assert "holds no DICOM series" in refusal(tmp_path / "empty")
    assert not capfd.readouterr().err
    for uid in ("1.2.3", "1.2.4"):
        series(tmp_path / "two", GRID, RAMP.astype(np.int16), uid)
    assert "holds 2 DICOM series" in refusal(tmp_path / "two")


@pytest.mark.parametrize(("mode", "suffix"), [("L", ".png"), ("RGBA", ".png"), ("P", ".png"), ("RGB", ".jpg")])
def test_a_grey_picture_is_an_image_also_if_saved_in_colour(tmp_path, mode, suffix):
    """A picture's rows are the image's second axis, as in ITK."""
    rows = (255 * picture(Grid.plain((24, 20), (1.0, 1.0)), 4).array).astype(np.uint8)
    Picture.fromarray(rows).convert(mode).save(tmp_path / f"x{suffix}")
    with warnings.catch_warnings(record=True) as noted:
        warnings.simplefilter("always", InputWarning)
        read = read_image(tmp_path / f"x{suffix}")
    assert ["saved in colour" in str(note.message) for note in noted] == [True] * (mode != "L")
    assert read.grid == Grid.plain((20, 24), (1.0, 1.0))
    assert_allclose(read.array.T.astype(int), rows, atol=0 if suffix == ".png" else 4)


@pytest.mark.parametrize("name", ["x.nii.gz", "x.mha", "x.nrrd"])
def test_a_volume_of_colours_or_of_vectors_is_refused(tmp_path, name):
    image = to_sitk(np.zeros((3, *GRID.shape), np.uint8), GRID, is_vector=True)
    sitk.WriteImage(image, str(tmp_path / name))
    assert "3 values per voxel" in refusal(tmp_path / name)


@pytest.mark.parametrize("suffix", IMAGE_SUFFIXES)
def test_a_sequence_is_refused_and_one_frame_of_it_is_a_volume(tmp_path, suffix):
    path = tmp_path / f"x{suffix}"
    for frames in (1, 3):
        frame = sitk.Image((5, 4, 3, frames), sitk.sitkInt16)
        frame.SetSpacing((1.0, 2.0, 3.0, 1.0))
        sitk.WriteImage(frame, str(path))
        if frames == 1:
            assert read_image(path).grid == Grid.plain((5, 4, 3), (1.0, 2.0, 3.0))
        else:
            assert "4 dimensions: give one 2D or 3D image" in refusal(path)


@pytest.mark.parametrize("suffix", [*IMAGE_SUFFIXES, ".raw.mha", ".png"])
def test_a_file_cut_short_is_refused(tmp_path, suffix, random):
    path = tmp_path / f"x{suffix}"
    if suffix in IMAGE_SUFFIXES:
        write_image(Image(random(*GRID.shape).numpy(), GRID), path)
    else:
        part = RAMP if suffix == ".raw.mha" else (50 * random(12, 10).abs()).numpy().astype(np.uint8)
        sitk.WriteImage(sitk.GetImageFromArray(part), str(path), useCompression=False)
    whole = path.read_bytes()
    for share in (0.0, 0.02, 0.6, 0.9):
        path.write_bytes(whole[: int(share * len(whole))])
        assert "cannot read" in refusal(path)


@pytest.mark.parametrize(("value", "name"), [(np.nan, "x.nii"), (np.inf, "x.nii.gz")])
def test_nan_in_a_nifti_image_is_refused_where_itk_reads_0(tmp_path, name, value):
    array = np.where(RAMP == 7, value, RAMP)
    with pytest.raises(BadInput, match=r"NaN or infinite: .* is not written"):
        write_image(Image(array, GRID), tmp_path / name)
    assert not list(tmp_path.iterdir())
    sitk.WriteImage(to_sitk(array, GRID), str(tmp_path / name))
    assert sitk.GetArrayFromImage(sitk.ReadImage(str(tmp_path / name))).T[RAMP == 7] == 0
    assert "contains NaN or infinite values" in refusal(tmp_path / name)


def test_a_flat_nifti_slice_with_an_oblique_pose_is_refused(tmp_path):
    """Seen from above its axes are sheared: as a 2D image it has no true lengths."""
    affine = np.eye(4)
    affine[:3, :3] = POSES["oblique"](3)
    assert "axes are sheared" in refusal(nifti(tmp_path / "x.nii", RAMP[..., 0], affine))
    assert read_image(nifti(tmp_path / "y.nii", RAMP[..., :1], affine)).grid.shape == (12, 10, 1)


# Cines on disk


STACK = make_grid((12, 10, 3), (1.3, 0.7, 8.0), (10.0, -20.0, 5.0), POSES["oblique"](3))
CINE = np.random.default_rng(0).random((4, *STACK.shape)).astype(np.float32)
STILL = CINE[:1, ..., 0] + 0.1 * CINE[..., 1]
"""Frames that differ as little as those of a cine."""


def write_joined(path):
    """A cine as SimpleITK joins and writes it."""
    sitk.WriteImage(sitk.JoinSeries([to_sitk(frame, STACK) for frame in CINE]), str(path))
    return path


def write_nifti(path, frames=CINE, step=30.0, units="msec"):
    """A cine as nibabel writes it, the frames along the last axis."""
    image = nibabel.Nifti1Image(np.moveaxis(frames, 0, -1), np.diag([1.3, 0.7, 8.0, 1.0]))
    image.header.set_xyzt_units("mm", units)
    image.header["pixdim"][4] = step
    nibabel.save(image, path)
    return path


def write_sequence(path, kind="list"):
    """A cine as 3D Slicer writes its sequences: the first axis counts frames."""
    rows = " ".join(f"({','.join(map(str, row))})" for row in (STACK.axes * STACK.spacing).T)
    lines = [
        "NRRD0005", "type: float", "dimension: 4", "space: left-posterior-superior", "sizes: 4 12 10 3",
        f"space directions: none {rows}", f"kinds: {kind} domain domain domain", "endian: little", "encoding: raw",
        f"space origin: ({','.join(map(str, STACK.origin))})",
    ]  # fmt: skip
    path.write_bytes("\n".join([*lines, "", ""]).encode() + CINE.T.tobytes("C"))
    return path


@pytest.mark.parametrize("suffix", [".nii", ".nii.gz", ".mha", ".nrrd"])
@pytest.mark.filterwarnings("ignore::vrnet.errors.InputWarning")
def test_a_cine_of_four_axes_has_its_frames_along_the_last(tmp_path, suffix):
    cine = read_cine(write_joined(tmp_path / f"cine{suffix}"))
    assert_array_equal(cine.frames, CINE)
    same_place(cine.grid, STACK)


def test_a_sequence_of_slicer_has_its_frames_along_the_first(tmp_path):
    cine = read_cine(write_sequence(tmp_path / "cine.seq.nrrd"))
    assert_array_equal(cine.frames, CINE)
    same_place(cine.grid, STACK)
    with pytest.raises(BadInput, match="several values per voxel"):
        read_cine(write_sequence(tmp_path / "colours.nrrd", kind="vector"))


@pytest.mark.parametrize(("step", "units"), [(30.0, "msec"), (0.03, "sec"), (30000.0, "usec")])
def test_times_are_those_of_the_header(tmp_path, step, units):
    assert_allclose(read_cine(write_nifti(tmp_path / "cine.nii", np.tile(CINE, (3, 1, 1, 1)), step, units)).times_ms,
                    30.0 * np.arange(12), rtol=1e-6)  # fmt: skip


def test_times_that_no_heart_has_are_not_used(tmp_path):
    with pytest.warns(InputWarning, match="no heart beat"):
        assert read_cine(write_nifti(tmp_path / "cine.nii", step=33.0, units="sec")).times_ms is None
    assert read_cine(write_nifti(tmp_path / "unknown.nii", step=1.0, units="unknown")).times_ms is None
    with pytest.raises(BadInput, match="time runs forward"):
        read_cine(write_nifti(tmp_path / "back.nii", step=-30.0))


def write_flat(path, frames, spacing):
    """Three axes, the last of them that of the frames, and no place in space."""
    flat = sitk.GetImageFromArray(frames.transpose(0, 2, 1))
    flat.SetSpacing(spacing)
    sitk.WriteImage(flat, str(path))
    return flat


def test_three_axes_are_a_slice_over_time_unless_they_are_a_stack(tmp_path):
    flat = write_flat(tmp_path / "flat.mha", STILL, (1.3, 0.7, 1.0))
    with pytest.warns(InputWarning, match="taken for time") as said:
        cine = read_cine(tmp_path / "flat.mha")
    assert_array_equal(cine.frames, STILL)
    assert cine.grid == grid_of(flat[..., 0])
    assert (cine.doubt, str(said[0].message).endswith("a frame is one slice")) == ("", True)
    sitk.WriteImage(to_sitk(CINE[0], STACK), str(tmp_path / "stack.nii.gz"))
    with pytest.raises(BadInput, match="one frame only"):
        read_cine(tmp_path / "stack.nii.gz")


@pytest.mark.parametrize("spacing", [(1.0, 1.0, 1.0), (1.4, 1.4, 1.4), (0.9, 0.9, 1.2)])
def test_a_volume_is_no_cine_and_a_cine_with_the_steps_of_one_is_doubted(tmp_path, spacing):
    write_flat(tmp_path / "volume.nii.gz", CINE[..., 0], spacing)
    with pytest.raises(BadInput, match=r"one frame only, a volume with .* that of one slice is \(x, y, 1, t\)"):
        read_cine(tmp_path / "volume.nii.gz")
    write_flat(tmp_path / "cine.nii.gz", STILL, spacing)
    with pytest.warns(InputWarning, match="BEWARE: it has steps of"):
        doubt = read_cine(tmp_path / "cine.nii.gz").doubt
    assert doubt.startswith("BEWARE")
    with pytest.warns(InputWarning, match="BEWARE"):
        assert given_cine(sitk.ReadImage(str(tmp_path / "cine.nii.gz"))).doubt == doubt


@pytest.mark.parametrize("step", [1.0, 0.03])
def test_frames_that_differ_as_slices_do_are_doubted_whatever_their_steps(tmp_path, step):
    write_flat(tmp_path / "cine.nii.gz", CINE[..., 0], (1.4, 1.4, step))
    with pytest.warns(InputWarning, match="BEWARE: it has frames that differ as slices of a volume do"):
        assert read_cine(tmp_path / "cine.nii.gz").doubt
    write_flat(tmp_path / "still.nii.gz", STILL, (1.4, 1.4, step))
    with pytest.warns(InputWarning, match="taken for time"):
        assert not read_cine(tmp_path / "still.nii.gz").doubt


@pytest.mark.skipif(not DATA.is_dir(), reason=f"no real images at {DATA}")
def test_brains_are_no_cines_and_every_slice_of_a_cine_is_one():
    with pytest.raises(BadInput, match="a volume with steps of 1 x 1 x 1 mm"):
        read_cine(DATA / "brain_pair" / "a_t1.nii.gz")
    frames = read_cine(DATA / "cine" / "cine.nii.gz").frames
    slices = frames.astype(float).transpose(3, 0, 1, 2)
    assert max(part.var(0).mean() / part.var() for part in slices) < MAX_CHANGE / 2


def test_one_image_of_a_cine_is_not_guessed(tmp_path):
    with pytest.raises(BadInput, match="vrnet track"):
        read_image(write_nifti(tmp_path / "cine.nii"))


@pytest.mark.skipif(not (DATA / "cine").is_dir(), reason=f"no real images at {DATA / 'cine'}")
def test_the_cine_of_a_volunteer_is_read():
    cine = read_cine(DATA / "cine" / "cine.nii.gz")
    assert (len(cine), cine.grid.shape, cine.times_ms) == (30, (128, 128, 14), None)
    assert cine.grid.matches(read_image(DATA / "cine" / "frame00_myocardium.nii.gz").grid)
