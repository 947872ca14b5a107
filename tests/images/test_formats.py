"""Files made to crash, to block, to fill the memory or to copy another file: each is refused in one line, quickly."""

import gzip
import os
import shutil
import signal
import warnings
import zlib

import nibabel
import numpy as np
import pytest
import SimpleITK as sitk
from numpy.testing import assert_allclose, assert_array_equal
from PIL import Image as Picture
from scipy.spatial.transform import Rotation

from tests.images.conftest import POSES, make_grid, picture
from tests.images.test_io import GRID, RAMP, nifti, refusal, same_place, series
from vrnet import devices
from vrnet.cohort.results import files_of
from vrnet.errors import BadInput, InputWarning
from vrnet.images.grid import Grid
from vrnet.images.image import Image
from vrnet.images.io import IMAGE_SUFFIXES, read_grid, read_image, to_sitk, write_image
from vrnet.images.transforms import Transform, read_point_map

CANARY = b"The canary sings: nobody may read this." * 200
NRRD = {
    "type": "float",
    "dimension": "3",
    "space": "left-posterior-superior",
    "sizes": "12 10 8",
    "space directions": "(1,0,0) (0,1.5,0) (0,0,2)",
    "kinds": "domain domain domain",
    "endian": "little",
    "encoding": "raw",
    "space origin": "(0,0,0)",
}
MHA = {
    "ObjectType": "Image",
    "NDims": "3",
    "BinaryData": "True",
    "BinaryDataByteOrderMSB": "False",
    "CompressedData": "False",
    "TransformMatrix": "1 0 0 0 1 0 0 0 1",
    "Offset": "0 0 0",
    "ElementSpacing": "1 1.5 2",
    "DimSize": "12 10 8",
    "ElementType": "MET_FLOAT",
    "ElementDataFile": "LOCAL",
}
AFFINE = "#Insight Transform File V1.0\nTransform: AffineTransform_double_3_3\n"
BODY = RAMP.T.astype("<f4").tobytes()


def nrrd(path, body=BODY, **fields):
    """An NRRD file with some fields of its header replaced; None removes one."""
    header = {**NRRD, **{key.replace("_", " "): value for key, value in fields.items()}}
    lines = [f"{key}: {value}" for key, value in header.items() if value is not None]
    path.write_bytes("\n".join(["NRRD0004", *lines, "", ""]).encode("latin-1") + body)
    return path


def mha(path, body=BODY, **fields):
    """A MetaImage with some fields of its header replaced; None removes one."""
    header = {**{k: v for k, v in MHA.items() if k != "ElementDataFile"}, **fields}
    header["ElementDataFile"] = header.pop("ElementDataFile", "LOCAL")
    lines = [f"{key} = {value}" for key, value in header.items() if value is not None]
    path.write_bytes("\n".join([*lines, ""]).encode("latin-1") + body)
    return path


def transform_refusal(path, reference=GRID):
    """The message with which a transform is refused: one line that names it."""
    with pytest.raises(BadInput) as raised:
        Transform.load(path, reference)
    message = str(raised.value)
    assert len(message.splitlines()) == 1
    assert str(path) in message
    with pytest.raises(BadInput):
        read_point_map(path)
    return message


@pytest.fixture(autouse=True)
def quickly():
    """No attack takes long; one that blocks ends here."""

    def stop(*_):
        raise TimeoutError("it took more than 10 s")

    signal.signal(signal.SIGALRM, stop)
    signal.alarm(10)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)


# What is read without ITK is what ITK reads


@pytest.mark.parametrize(("components", "compress"), [(1, False), (1, True), (3, True)])
@pytest.mark.parametrize("suffix", [".mha", ".mhd", ".nrrd", ".nhdr"])
def test_an_image_reads_to_the_bit_as_simpleitk_reads_it(d, tmp_path, suffix, components, compress):
    shape, path = (5, 4, 3)[:d], tmp_path / f"x{suffix}"
    grid = make_grid(shape, (1.3, 0.7, 1 / 3)[:d], (10.1, -20.2, 5.3)[:d], POSES["oblique and flipped"](d))
    array = np.random.default_rng(0).standard_normal((components, *shape) if components > 1 else shape)
    sitk.WriteImage(to_sitk(array, grid, components > 1), str(path), useCompression=compress)
    theirs = sitk.ReadImage(str(path))
    expected = Grid(theirs.GetSize(), theirs.GetSpacing(), theirs.GetOrigin(), theirs.GetDirection())
    if components == 1:
        ours = read_image(path)
        assert_array_equal(ours.array, sitk.GetArrayFromImage(theirs).T)
        assert ours.grid == expected
        assert read_grid(path) == expected
    elif d == 3:
        field = Transform.load(path)
        assert_array_equal(field.displacement, sitk.GetArrayFromImage(theirs).T)
        assert field.grid == expected


@pytest.mark.parametrize(
    "space", ["left-posterior-superior", "right-anterior-superior", "left-anterior-superior", "RAS"]
)
def test_an_nrrd_lies_where_simpleitk_puts_it_in_every_space(tmp_path, space):
    path = nrrd(tmp_path / "x.nrrd", space=space, space_directions="(0,1,0) (1.5,0,0) (0,0,2)", space_origin="(3,4,5)")
    theirs = sitk.ReadImage(str(path))
    ours = read_image(path)
    same_place(ours.grid, Grid(theirs.GetSize(), theirs.GetSpacing(), theirs.GetOrigin(), theirs.GetDirection()), 0)
    assert_array_equal(ours.array, sitk.GetArrayFromImage(theirs).T)


def test_voxels_in_the_same_folder_are_read(tmp_path):
    (tmp_path / "parts").mkdir()
    for place in ("x.raw", "parts/x.raw"):
        (tmp_path / place).write_bytes(b"head" + BODY)
        for path in (mha(tmp_path / "x.mhd", b"", ElementDataFile=place, HeaderSize="4"),
                     mha(tmp_path / "y.mhd", b"", ElementDataFile=place, HeaderSize="-1"),
                     nrrd(tmp_path / "x.nhdr", b"", data_file=place, byte_skip="4")):  # fmt: skip
            assert_array_equal(read_image(path).array, RAMP)


def test_a_metaimage_of_windows_with_empty_lines_is_read(tmp_path):
    path = mha(tmp_path / "x.mha", b"")
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n").replace(b"NDims", b"\r\n\r\nNDims") + BODY)
    assert_array_equal(read_image(path).array, RAMP)


# Another file


ELSEWHERE = ["{canary}", "../canary.txt", "parts/../../canary.txt", "link.raw", "linked/canary.txt", "/etc/hostname",
             "LIST", "c%d.raw 1 2 1", "//etc/hostname", ".", "fifo", "no.raw", "\0", "x" * 300]  # fmt: skip


@pytest.mark.parametrize("kind", ["mha", "nrrd"])
def test_a_header_cannot_name_a_file_elsewhere(tmp_path, kind):
    folder, canary = tmp_path / "images", tmp_path / "canary.txt"
    folder.mkdir()
    canary.write_bytes(CANARY)
    (folder / "link.raw").symlink_to(canary)
    (folder / "linked").symlink_to(tmp_path)
    os.mkfifo(folder / "fifo")
    for name in [name.format(canary=canary) for name in ELSEWHERE]:
        if kind == "mha":
            path = mha(folder / "x.mhd", b"", ElementDataFile=name)
        else:
            path = nrrd(folder / "x.nhdr", b"", data_file=name)
        assert "canary sings" not in refusal(path)
        assert "canary sings" not in transform_refusal(path)


# Headers


NRRD_HEADERS = [
    {"encoding": "r" * 5000},
    {"type": "f" * 900},
    {"dimension": "1e308"},
    {"dimension": "-3"},
    {"dimension": "1", "sizes": "960", "kinds": "domain", "space_directions": None},
    {"sizes": "12 10 0"},
    {"sizes": "999999999999999999999 1 1"},
    {"sizes": "12 10"},
    {"space_directions": "(1e308,0,0) (0,1e308,0) (0,0,1)"},
    {"space_directions": "(1,0,0) (1,0,0) (0,0,1)"},
    {"space_directions": "(1e-200,0,0) (0,1,0) (0,0,1)"},
    {"space_directions": "(nan,0,0) (0,1,0) (0,0,1)"},
    {"space_origin": "(1e300,0,0)"},
    {"space_origin": "(" * 1000},
    {"kinds": "domain " * 500},
    {"endian": None},
    {"axis_mins": "0 0 0"},
]  # fmt: skip
MHA_HEADERS = [
    {"NDims": "1e308"},
    {"NDims": "-1"},
    {"NDims": "0" * 3000},
    {"DimSize": "100000 100000 100000"},
    {"DimSize": "1 2 3 4"},
    {"ElementNumberOfChannels": "2000000000"},
    {"ElementType": "MET_NONE"},
    {"TransformMatrix": "0 0 0 0 0 0 0 0 0"},
    {"TransformMatrix": "nan 0 0 0 1 0 0 0 1"},
    {"ElementSpacing": "1e-30 1 1"},
    {"ElementSpacing": "1 -1 1"},
    {"Offset": "1e308 0 0"},
    {"ElementToIntensityFunctionSlope": "2"},
    {"DistanceUnits": "um"},
]  # fmt: skip
NIFTI_HEADERS = [
    {"dim": [7, 32767, 32767, 32767, 32767, 32767, 32767, 32767]},
    {"dim": [3, -12, 10, 8, 1, 1, 1, 1]},
    {"dim": [0, 12, 10, 8, 1, 1, 1, 1]},
    {"vox_offset": np.nan},
    {"vox_offset": -352},
    {"datatype": 12345},
    {"datatype": 128},
    {"pixdim": [1, 1e-30, 1, 1, 0, 0, 0, 0], "sform_code": 0, "qform_code": 1},
    {"pixdim": [1, 1, -1.5, 2, 0, 0, 0, 0]},
    {"srow_x": [0, 0, 0, 0]},
    {"srow_x": [1, 0.7, 0, 0]},
    {"srow_x": [1, 0, 0, np.nan]},
    {"srow_x": [1, 0, 0, 1e30]},
    {"sform_code": 0, "qform_code": 1, "quatern_b": np.nan},
    {"sform_code": 0, "qform_code": 1, "qoffset_x": np.inf},
    {"magic": b"abc"},
    {"magic": b"ni1"},
]  # fmt: skip


@pytest.mark.parametrize(("make", "headers"), [(nrrd, NRRD_HEADERS), (mha, MHA_HEADERS), (nifti, NIFTI_HEADERS)])
def test_an_absurd_header_is_refused_whatever_the_name(tmp_path, capfd, make, headers):
    for fields in headers:
        whole = make(tmp_path / "whole.nii", **fields).read_bytes()
        for name in ("x.nii", "x.img", "x.mha", "x.nrrd", "x"):
            (tmp_path / name).write_bytes(whole)
            assert "cannot read" in refusal(tmp_path / name)
    assert capfd.readouterr() == ("", "")


# Content decides, not the ending


@pytest.mark.parametrize("written", IMAGE_SUFFIXES)
def test_an_image_is_read_by_its_content(tmp_path, written):
    source = tmp_path / f"source{written}"
    write_image(picture(GRID), source)
    for path in [tmp_path / name for name in ("x.nii", "x.NII.GZ", "x.mha", "x.png", "x")]:
        shutil.copy(source, path)
        assert_array_equal(read_image(path).array, picture(GRID).array)


@pytest.mark.parametrize("suffix", [".mha", ".nrrd", ".nii.gz"])
def test_a_flipped_bit_in_compressed_voxels_is_refused(tmp_path, suffix):
    """Every flip that is accepted must leave every voxel as it was (such as one in gzip's time stamp)."""
    path, rng = tmp_path / f"x{suffix}", np.random.default_rng(0)
    array = rng.integers(0, 50, GRID.shape).astype(np.int16)
    write_image(Image(array, GRID), path)
    whole, refused = path.read_bytes(), 0
    start = 0 if suffix == ".nii.gz" else len(whole) // 2
    for place in rng.integers(start, len(whole), 80):
        flipped = bytearray(whole)
        flipped[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(flipped)
        try:
            assert_array_equal(read_image(path).array, array)
        except BadInput:
            refused += 1
    assert refused >= 78


# Memory


def test_a_small_file_cannot_ask_for_much_memory(tmp_path):
    body = gzip.compress(bytes(9_000_000))
    assert "damaged or incomplete" in refusal(nrrd(tmp_path / "x.nrrd", body, encoding="gzip", sizes="2500 2500 620"))
    body = zlib.compress(bytes(9_000_000))
    path = mha(tmp_path / "x.mha", body, CompressedData="True", DimSize="2500 2500 620")
    assert "damaged or incomplete" in refusal(path)
    whole = nifti(tmp_path / "y.nii", dim=[3, 2500, 2500, 620, 1, 1, 1, 1]).read_bytes()
    (tmp_path / "x.nii.gz").write_bytes(gzip.compress(whole + bytes(5_000_000)))
    assert "damaged or incomplete" in refusal(tmp_path / "x.nii.gz")


def test_voxels_beyond_what_the_header_says_are_refused_before_they_fill_the_memory(tmp_path):
    for encoding, compress in (("gzip", gzip.compress), ("gzip", zlib.compress)):
        path = nrrd(tmp_path / "x.nrrd", compress(BODY + bytes(30_000_000)), encoding=encoding)
        assert "more voxels than its header says" in refusal(path)


@pytest.mark.parametrize("suffix", IMAGE_SUFFIXES)
def test_an_image_that_does_not_fit_in_memory_is_refused_in_words(tmp_path, suffix, monkeypatch):
    write_image(picture(GRID), tmp_path / f"x{suffix}")
    monkeypatch.setattr(devices, "available_memory", lambda: 1000.0)
    assert "GB of memory" in refusal(tmp_path / f"x{suffix}")


def test_a_picture_that_asks_for_too_much_memory_is_refused(tmp_path):
    Picture.new("L", (8, 8)).save(tmp_path / "x.png")
    whole = bytearray((tmp_path / "x.png").read_bytes())
    whole[16:24] = (60_000).to_bytes(4, "big") * 2
    whole[29:33] = zlib.crc32(whole[12:29]).to_bytes(4, "big")
    (tmp_path / "x.png").write_bytes(whole)
    assert "more memory than a file of its size" in refusal(tmp_path / "x.png")


# Pipes, devices, folders


@pytest.mark.parametrize("name", ["x.nii.gz", "x.h5", "x"])
def test_a_pipe_a_device_and_a_folder_are_refused_at_once(tmp_path, name):
    os.mkfifo(tmp_path / name)
    assert "no ordinary file" in refusal(tmp_path / name)
    assert "no ordinary file" in transform_refusal(tmp_path / name)
    (tmp_path / name).unlink()
    (tmp_path / name).symlink_to("/dev/zero")
    assert "no ordinary file" in refusal(tmp_path / name)
    (tmp_path / name).unlink()
    (tmp_path / name).mkdir()
    assert "no DICOM series" in refusal(tmp_path / name)
    assert "no ordinary file" in transform_refusal(tmp_path / name)
    (tmp_path / name / "transform.nii.gz").touch()
    assert f"give its transform, {tmp_path / name / 'transform.nii.gz'}" in transform_refusal(tmp_path / name)


def test_a_pipe_among_the_slices_of_a_series_is_refused(tmp_path):
    folder = series(tmp_path / "scan", GRID, RAMP.astype(np.int16))
    os.mkfifo(folder / "slice.dcm")
    assert "no ordinary file" in refusal(folder)


# Transforms


TEXT_TRANSFORMS = [
    AFFINE + "Parameters: 1e308 0 0 0 1 0 0 0 1 0 0 0\nFixedParameters: 0 0 0\n",
    AFFINE + "Parameters: 1 0 0 0 1 0 0 0 0 0 0 0\nFixedParameters: 0 0 0\n",
    AFFINE + "Parameters: nan 0 0 0 1 0 0 0 1 0 0 0\nFixedParameters: 0 0 0\n",
    AFFINE + "Parameters: 1 0 0\nFixedParameters: 0 0 0\n",
    AFFINE + "Parameters: one\nFixedParameters: 0 0 0\n",
    AFFINE,
    AFFINE.replace("Affine", "Unheard"),
    AFFINE.replace("Affine", "x" * 5000),
    AFFINE.replace("3_3", "9_9"),
    "#Insight Transform File V1.0\nTransform: CompositeTransform_double_3_3\n",
    AFFINE.replace("Affine", "DisplacementField") + "Parameters: 0\n"
    "FixedParameters: 90000 90000 90000 0 0 0 1 1 1 1 0 0 0 1 0 0 0 1\n",
    AFFINE.replace("Affine", "BSpline") + "Parameters: 0 0 0\n"
    "FixedParameters: 1 1 1 0 0 0 1e-30 1 1 1 0 0 0 1 0 0 0 1\n",
]  # fmt: skip


def test_an_absurd_text_transform_is_refused(tmp_path, capfd):
    for text in TEXT_TRANSFORMS:
        for name in ("x.tfm", "x.txt", "x.TFM", "x.h5"):
            (tmp_path / name).write_text(text)
            transform_refusal(tmp_path / name)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("name", ["x.tfm", "x.h5", "x.nii.gz"])
def test_bytes_that_are_no_text_are_refused_as_a_transform(tmp_path, name):
    for data in (b"\xff\xfe\xfa" * 100, AFFINE.encode() + b"Parameters: \xff\xff\n",
                 b"\x89HDF\r\n\x1a\n" + b"\xff" * 500, b""):  # fmt: skip
        (tmp_path / name).write_bytes(data)
        transform_refusal(tmp_path / name)


@pytest.mark.parametrize("suffix", [".nii.gz", ".mha", ".nrrd"])
def test_absurd_displacements_are_refused(tmp_path, suffix, recwarn):
    field = to_sitk(np.full((3, *GRID.shape), 1e300), GRID, is_vector=True)
    sitk.WriteImage(field, str(tmp_path / f"x{suffix}"))
    assert "infinite numbers, or above" in transform_refusal(tmp_path / f"x{suffix}")


KINDS = ["Euler2D", "Similarity2D", "Euler3D", "Similarity3D", "Versor", "VersorRigid3D", "ScaleVersor3D",
         "ScaleSkewVersor3D"]  # fmt: skip


def test_an_affine_transform_by_ants_moves_points_as_in_simpleitk(tmp_path):
    text = "Parameters: 1.1 0.1 0 0 0.9 0 0.2 0 1 3 4 5\nFixedParameters: 1 2 3\n"
    (tmp_path / "x.txt").write_text(AFFINE.replace("AffineTransform", "MatrixOffsetTransformBase") + text)
    theirs = sitk.ReadTransform(str(tmp_path / "x.txt")).TransformPoint((1.0, 5.0, -7.0))
    assert_array_equal(read_point_map(tmp_path / "x.txt").TransformPoint((1.0, 5.0, -7.0)), theirs)


EVERY_KIND = [*KINDS, "Translation", "Scale", "Affine", "Identity", "Composite"]
IN_HDF5 = "Similarity2D", "ScaleSkewVersor3D", "Identity", "Composite"
"""Each file of HDF5 is read by a process: the other kinds are tried in it before a release."""


@pytest.mark.parametrize(
    ("kind", "suffix"),
    [
        *((kind, ".tfm") for kind in EVERY_KIND),
        *((kind, ".mat") for kind in EVERY_KIND if kind != "Composite"),  # of which ITK writes none
        ("Composite", ".txt"),
        *((kind, ".h5") for kind in IN_HDF5),
        *(pytest.param(kind, ".h5", marks=pytest.mark.release) for kind in EVERY_KIND if kind not in IN_HDF5),
    ],
)
def test_every_kind_of_transform_moves_points_as_in_simpleitk(tmp_path, kind, suffix):
    if kind == "Identity":
        transform = sitk.Transform(3, sitk.sitkIdentity)
    elif kind == "Composite":
        transform = sitk.CompositeTransform(
            [sitk.Euler3DTransform((0, 0, 0), 0.1, 0.2, 0.3), sitk.TranslationTransform(3, (1, 2, 3))]
        )
    else:
        made = getattr(sitk, f"{kind}Transform")
        transform = made() if kind in KINDS else made(3)
        start, rng = np.array(transform.GetParameters()), np.random.default_rng(0)
        transform.SetParameters((start + 0.1 * rng.random(len(start))).tolist())
    point = (1.0, 5.0, -7.0)[: transform.GetDimension()]
    sitk.WriteTransform(transform, str(tmp_path / f"x{suffix}"))
    theirs = sitk.ReadTransform(str(tmp_path / f"x{suffix}")).TransformPoint(point)
    assert_array_equal(read_point_map(tmp_path / f"x{suffix}").TransformPoint(point), theirs)


# The forms of a NIfTI header


SHAPE, EDGES = (12, 10, 8), (1.5, 1.2, 4.0)
CODES = [(sform, qform) for sform in range(5) for qform in range(3)]


def pose(degrees=0.0, shift=0.0, hand=1.0):
    """An affine: oblique, turned further and shifted, and perhaps left-handed."""
    affine = np.eye(4)
    turn = Rotation.from_euler("zyx", [30 + degrees, 10, -20], degrees=True).as_matrix()
    affine[:3, :3] = turn * np.multiply(EDGES, [1, 1, hand])
    affine[:3, 3] = -30 + shift, 20, 15
    return affine


def write(path, sform, qform, codes, unit="mm"):
    """A NIfTI file with these two forms, by nibabel."""
    image = nibabel.Nifti1Image(np.arange(960, dtype=np.float32).reshape(SHAPE), None)
    image.header.set_qform(qform, codes[1])
    image.header.set_sform(sform, codes[0])
    image.header.set_xyzt_units(unit)
    nibabel.save(image, path)
    return path


def told(path):
    """(image, what was warned of) of a file."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", InputWarning)
        image = read_image(path)
    return image, [str(one.message) for one in caught if one.category is InputWarning]


def distance_to_nibabel(image, path, unit_mm=1.0):
    """How far the corners of an image are from where nibabel has them, in mm."""
    corners = np.array(np.meshgrid(*([0.0, n - 1.0] for n in SHAPE))).reshape(3, -1).T
    ras = unit_mm * nibabel.affines.apply_affine(nibabel.load(path).affine, corners)
    return np.abs(image.grid.points(corners) - ras * [-1, -1, 1]).max()


@pytest.mark.parametrize("hand", [1.0, -1.0])
def test_an_image_is_where_nibabel_puts_it_whatever_the_codes(hand, tmp_path):
    """The forms are a third of a millimetre apart: the sform is taken if it has a code."""
    for codes in CODES[1:]:
        path = write(tmp_path / "x.nii", pose(shift=0.3, hand=hand), pose(hand=hand), codes)
        image, notes = told(path)
        assert distance_to_nibabel(image, path) < 1e-4
        assert read_grid(path) == image.grid
        assert len(notes) == (min(codes) > 0)


def test_a_nifti_in_colour_is_refused_as_such(tmp_path):
    voxels = np.zeros((4, 5, 6), [("R", "u1"), ("G", "u1"), ("B", "u1")])
    nibabel.save(nibabel.Nifti1Image(voxels, np.eye(4)), tmp_path / "x.nii.gz")
    with pytest.raises(BadInput, match="it is in colour"):
        read_image(tmp_path / "x.nii.gz")


@pytest.mark.parametrize(("unit", "mm"), [("meter", 1e3), ("mm", 1.0), ("micron", 1e-3)])
def test_units_are_minded_in_both_forms(unit, mm, tmp_path):
    for codes in ((2, 0), (2, 1), (0, 1)):
        path = write(tmp_path / "x.nii", pose(), pose(), codes, unit)
        image, notes = told(path)
        assert distance_to_nibabel(image, path, mm) < 1e-4 * mm
        assert not notes


@pytest.mark.parametrize(
    ("difference", "is_told"), [({"shift": 0.1}, False), ({"shift": -1.1}, True), ({"degrees": 1.0}, True)]
)
def test_a_tenth_of_a_voxel_between_the_forms_is_told(difference, is_told, tmp_path):
    for codes in ((1, 1), (2, 1)):
        path = write(tmp_path / "x.nii.gz", pose(**difference), pose(), codes)
        image, notes = told(path)
        assert distance_to_nibabel(image, path) < 1e-4 + 0.01 * min(EDGES)
        assert bool(notes) is is_told
        if is_told:
            assert all(words in notes[0] for words in (str(path), "sform", "qform", "mm apart", "set_qform"))


@pytest.mark.parametrize("difference", [{"shift": 1.3}, {"hand": -1.0}])
def test_more_than_a_voxel_between_the_forms_is_refused_in_one_line(difference, tmp_path):
    path = write(tmp_path / "x.nii.gz", pose(**difference), pose(), (2, 1))
    for read in (read_image, read_grid, Transform.load):
        with pytest.raises(BadInput, match=r"x.nii.gz: the sform and the qform of its header .* mm apart") as raised:
            read(path)
        assert len(str(raised.value).splitlines()) == 1


def test_a_header_without_a_place_is_told(tmp_path):
    image, notes = told(write(tmp_path / "x.nii", pose(), pose(), (0, 0)))
    assert_allclose(image.grid.origin, 0)
    assert len(notes) == 1
    assert "does not say where it lies" in notes[0]


# Images in two files


@pytest.mark.parametrize("name", ["x.nii.gz", "x.mhd", "x.nhdr"])
def test_the_files_of_an_image_are_all_that_is_written_of_it(tmp_path, name):
    sitk.WriteImage(sitk.GetImageFromArray(np.zeros((4, 5, 6), np.float32)), str(tmp_path / name))
    assert sorted(files_of(str(tmp_path / name))) == sorted(map(str, tmp_path.iterdir()))
