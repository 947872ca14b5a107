import nibabel
import numpy as np
import pytest
import SimpleITK as sitk
from numpy.testing import assert_allclose, assert_array_equal

from tests.images.conftest import POSES, make_grid
from tests.images.test_io import same_place
from tests.skips import DATA
from vrnet.errors import BadInput, InputWarning
from vrnet.images.io import MAX_CHANGE, change_over_time, given_cine, grid_of, read_cine, read_image, to_sitk

GRID = make_grid((12, 10, 3), (1.3, 0.7, 8.0), (10.0, -20.0, 5.0), POSES["oblique"](3))
CINE = np.random.default_rng(0).random((4, *GRID.shape)).astype(np.float32)
STILL = CINE[:1, ..., 0] + 0.1 * CINE[..., 1]
"""Frames that differ as little as those of a cine."""


def write_joined(path):
    """A cine as SimpleITK joins and writes it."""
    sitk.WriteImage(sitk.JoinSeries([to_sitk(frame, GRID) for frame in CINE]), str(path))
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
    rows = " ".join(f"({','.join(map(str, row))})" for row in (GRID.axes * GRID.spacing).T)
    lines = [
        "NRRD0005", "type: float", "dimension: 4", "space: left-posterior-superior", "sizes: 4 12 10 3",
        f"space directions: none {rows}", f"kinds: {kind} domain domain domain", "endian: little", "encoding: raw",
        f"space origin: ({','.join(map(str, GRID.origin))})",
    ]  # fmt: skip
    path.write_bytes("\n".join([*lines, "", ""]).encode() + CINE.T.tobytes("C"))
    return path


@pytest.mark.parametrize("suffix", [".nii", ".nii.gz", ".mha", ".nrrd"])
@pytest.mark.filterwarnings("ignore::vrnet.errors.InputWarning")
def test_a_cine_of_four_axes_has_its_frames_along_the_last(tmp_path, suffix):
    cine = read_cine(write_joined(tmp_path / f"cine{suffix}"))
    assert_array_equal(cine.frames, CINE)
    same_place(cine.grid, GRID)


def test_a_sequence_of_slicer_has_its_frames_along_the_first(tmp_path):
    cine = read_cine(write_sequence(tmp_path / "cine.seq.nrrd"))
    assert_array_equal(cine.frames, CINE)
    same_place(cine.grid, GRID)
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
    sitk.WriteImage(to_sitk(CINE[0], GRID), str(tmp_path / "stack.nii.gz"))
    with pytest.raises(BadInput, match="one frame only"):
        read_cine(tmp_path / "stack.nii.gz")


@pytest.mark.parametrize("spacing", [(1.0, 1.0, 1.0), (1.4, 1.4, 1.4), (0.9, 0.9, 1.2)])
def test_a_volume_is_no_cine_and_a_cine_with_the_steps_of_one_is_doubted(tmp_path, spacing):
    write_flat(tmp_path / "volume.nii.gz", CINE[..., 0], spacing)
    with pytest.raises(BadInput, match=r"one frame only, a volume with steps of .* saved as \(x, y, 1, t\)"):
        read_cine(tmp_path / "volume.nii.gz")
    write_flat(tmp_path / "cine.nii.gz", STILL, spacing)
    with pytest.warns(InputWarning, match="BEWARE: the file has steps of"):
        doubt = read_cine(tmp_path / "cine.nii.gz").doubt
    assert doubt.startswith("BEWARE")
    with pytest.warns(InputWarning, match="BEWARE"):
        assert given_cine(sitk.ReadImage(str(tmp_path / "cine.nii.gz"))).doubt == doubt


@pytest.mark.parametrize("step", [1.0, 0.03])
def test_frames_that_differ_as_slices_do_are_doubted_whatever_their_steps(tmp_path, step):
    write_flat(tmp_path / "cine.nii.gz", CINE[..., 0], (1.4, 1.4, step))
    with pytest.warns(InputWarning, match="BEWARE: the file has frames that differ as slices of a volume do"):
        assert read_cine(tmp_path / "cine.nii.gz").doubt
    write_flat(tmp_path / "still.nii.gz", STILL, (1.4, 1.4, step))
    with pytest.warns(InputWarning, match="taken for time"):
        assert not read_cine(tmp_path / "still.nii.gz").doubt


def test_the_change_over_time_is_its_part_of_the_variance():
    """Of a picture of variance 1 with noise of variance v it is v / (1 + v)."""
    random = np.random.default_rng(0)
    picture, noise = random.standard_normal((1, 200, 200)), random.standard_normal((40, 200, 200))
    assert change_over_time(picture + 0.5 * noise) == pytest.approx(0.25 / 1.25, rel=0.05)
    assert change_over_time(np.zeros((4, 3, 3))) == 0


@pytest.mark.skipif(not DATA.is_dir(), reason=f"no real images at {DATA}")
def test_brains_are_no_cines_and_every_slice_of_a_cine_is_one():
    with pytest.raises(BadInput, match="a volume with steps of 1 x 1 x 1 mm"):
        read_cine(DATA / "brain_pair" / "a_t1.nii.gz")
    frames = read_cine(DATA / "cine" / "cine.nii.gz").frames
    assert max(change_over_time(frames[..., k]) for k in range(frames.shape[3])) < MAX_CHANGE / 2


def test_one_image_of_a_cine_is_not_guessed(tmp_path):
    with pytest.raises(BadInput, match="vrnet track"):
        read_image(write_nifti(tmp_path / "cine.nii"))


@pytest.mark.skipif(not (DATA / "cine").is_dir(), reason=f"no real images at {DATA / 'cine'}")
def test_the_cine_of_a_volunteer_is_read():
    cine = read_cine(DATA / "cine" / "cine.nii.gz")
    assert (len(cine), cine.grid.shape, cine.times_ms) == (30, (128, 128, 14), None)
    assert cine.grid.matches(read_image(DATA / "cine" / "frame00_myocardium.nii.gz").grid)
