"""An image is where nibabel puts it; where its header has another place for it, the user is told, or it is refused."""

import warnings

import nibabel
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.spatial.transform import Rotation

from vrnet import BadInput, InputWarning, Transform, read_image
from vrnet.images.io import read_grid

SHAPE, EDGES = (12, 10, 8), (1.5, 1.2, 4.0)
CODES = [(sform, qform) for sform in range(5) for qform in range(3)]


def pose(degrees=0.0, shift=0.0, scale=1.0, hand=1.0):
    """An affine: oblique, turned further and shifted, and perhaps left-handed."""
    affine = np.eye(4)
    turn = Rotation.from_euler("zyx", [30 + degrees, 10, -20], degrees=True).as_matrix()
    affine[:3, :3] = turn * np.multiply(EDGES, [scale, scale, scale * hand])
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


@pytest.mark.parametrize(("unit", "mm"), [("meter", 1e3), ("mm", 1.0), ("micron", 1e-3)])
def test_units_are_minded_in_both_forms(unit, mm, tmp_path):
    for codes in ((2, 0), (2, 1), (0, 1)):
        path = write(tmp_path / "x.nii", pose(), pose(), codes, unit)
        image, notes = told(path)
        assert distance_to_nibabel(image, path, mm) < 1e-4 * mm
        assert not notes


@pytest.mark.parametrize(
    ("difference", "is_told"),
    [({"shift": 0.1}, False), ({"shift": -1.1}, True), ({"degrees": 1.0}, True), ({"scale": 1.02}, True)],
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


@pytest.mark.parametrize(("scale", "outcome"), [(1.0001, "silent"), (1.02, "told"), (1.2, "refused")])
def test_voxels_that_have_another_size_in_the_sform_are_told_or_refused(scale, outcome, tmp_path):
    """Of an sform alone ITK takes the directions, and the sizes from another field."""
    path = write(tmp_path / "x.nii", pose(scale=scale), pose(), (2, 0))
    if outcome == "refused":
        with pytest.raises(BadInput, match=r"the sform and the voxel size .* mm apart"):
            read_image(path)
        return
    image, notes = told(path)
    assert distance_to_nibabel(image, path) < 0.01 * min(EDGES)
    assert len(notes) == (outcome == "told")


def test_a_header_without_a_place_is_told(tmp_path):
    image, notes = told(write(tmp_path / "x.nii", pose(), pose(), (0, 0)))
    assert_allclose(image.grid.origin, 0)
    assert len(notes) == 1
    assert "does not say where it lies" in notes[0]


@pytest.mark.parametrize("codes", [(2, 1), (2, 0)])
def test_the_repair_that_is_named_repairs_the_header(codes, tmp_path):
    path = write(tmp_path / "x.nii", pose(degrees=10.0, scale=1.2), pose(), codes)
    with pytest.raises(BadInput, match=r"image.set_qform\(image.affine\)"):
        read_image(path)
    image = nibabel.load(path)
    image.set_qform(image.affine)
    nibabel.save(image, tmp_path / "mended.nii")
    mended, notes = told(tmp_path / "mended.nii")
    assert distance_to_nibabel(mended, path) < 1e-3
    assert not notes


def test_the_frames_of_a_series_are_where_nibabel_puts_them(tmp_path):
    from vrnet.data.protocols import read_frames

    image = nibabel.Nifti1Image(np.arange(1920, dtype=np.float32).reshape(*SHAPE, 2), None)
    image.header.set_qform(pose(), 1)
    image.header.set_sform(pose(shift=0.5), 2)
    nibabel.save(image, tmp_path / "x.nii")
    with pytest.warns(InputWarning, match="mm apart"):
        first, _ = read_frames(tmp_path / "x.nii")
    corners = np.array(np.meshgrid(*([0.0, n - 1.0] for n in first.grid.shape))).reshape(3, -1).T
    expected = nibabel.affines.apply_affine(pose(shift=0.5), (0, 0, 0)) * [-1, -1, 1]
    assert np.linalg.norm(first.grid.points(corners) - expected, axis=1).min() < 1e-4
