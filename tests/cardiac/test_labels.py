"""What the labels of a reference mean, and what is said before a minute is spent on tracking."""

from types import SimpleNamespace

import nibabel
import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy import ndimage

from tests.phantoms import cycle
from vrnet import BadInput, Cine, Grid, Image, InputWarning
from vrnet.cardiac.labels import OF_MOTION, heart_of, interpret_labels, open_slices, read_labels, reconcile
from vrnet.cardiac.wall import HeartLabels
from vrnet.data.labels import read_label_names
from vrnet.images.io import read_cine

GRID = Grid.plain((96, 96, 3), (1.8, 1.8, 10.0))
FRAMES = np.random.default_rng(0).random((2, *GRID.shape)).astype(np.float32)


@pytest.fixture(scope="module")
def labels():
    """1 RV, 2 wall, 3 cavity."""
    return cycle(2, GRID.shape, GRID.spacing, frames=2).labels.numpy()


def prepare(labels, grid=GRID, heart=None, label_names=None):
    names = read_label_names(label_names) if label_names else {}
    found = read_labels(Image(labels, grid), Cine(FRAMES, GRID), heart, names)
    return SimpleNamespace(**dict(zip(("labels", "heart", "label_names"), found, strict=True)))


def test_a_lone_label_is_the_wall_and_what_it_encloses_the_cavity(labels):
    """A voxel that is missing in the wall is no cavity."""
    inner = ndimage.binary_erosion(labels == 2, np.ones((3, 3, 1)))
    pit = np.zeros_like(inner)
    pit[tuple(np.argwhere(inner)[0])] = True
    wall = (labels == 2) & ~pit
    with pytest.warns(InputWarning, match="taken for the wall"):
        found, heart = interpret_labels(Image(wall.astype(np.uint8), GRID))
    assert (heart.wall, heart.lv) == (1, 3)
    assert_array_equal(found.array == heart.wall, wall)
    assert_array_equal(found.array == heart.lv, labels == 3)


def test_a_lone_3_is_the_cavity_unless_it_encloses_one(labels):
    """A papillary muscle that is left out makes no wall of it."""
    with pytest.warns(InputWarning, match="taken for the cavity"):
        found, heart = interpret_labels(Image(np.where(labels == 3, 3, 0), GRID))
    assert heart == HeartLabels(rv=None, wall=None, lv=3)
    assert_array_equal(found.array == 3, labels == 3)
    with pytest.warns(InputWarning, match="taken for the wall, and what it encloses is labelled 4"):
        assert interpret_labels(Image(np.where(labels == 2, 3, 0), GRID))[1] == HeartLabels(rv=None, wall=3, lv=4)
    cavity = labels == 3
    x, y = np.argwhere(cavity[..., 1]).mean(0).astype(int)
    cavity[x - 2 : x + 3, y - 2 : y + 3] = False
    with pytest.warns(InputWarning, match="taken for the cavity"):
        assert interpret_labels(Image(np.where(cavity, 3, 0), GRID))[1].wall is None
    with pytest.warns(InputWarning, match='encloses next to nothing; if it is the cavity, give `label_names="1=LV"`'):
        assert (interpret_labels(Image((labels == 3).astype(np.uint8), GRID))[0].array != 3).all()


def test_a_pit_beside_the_middle_of_an_open_wall_is_no_cavity_and_a_small_one_in_the_middle_of_a_ring_is(labels):
    wall = (labels == 2).astype(np.uint8)
    x, y = (int(middle) for middle in np.argwhere(wall[..., 0]).mean(0))
    open_, ring = np.zeros_like(wall[..., 0]), np.zeros_like(wall[..., 0])
    open_[x - 9 : x + 10, y - 9 : y + 10], open_[x - 5 : x + 6, y - 5 :] = 1, 0
    open_[x - 7, y] = 0
    ring[x - 5 : x + 6, y - 5 : y + 6], ring[x, y] = 1, 0
    with pytest.warns(InputWarning, match="taken for the wall"):
        found, heart = interpret_labels(Image(np.stack([open_, ring, wall[..., 2]], -1), GRID))
    assert not (found.array[..., 0] == heart.lv).any()
    assert np.argwhere(found.array[..., 1] == heart.lv).tolist() == [[x, y]]
    assert open_slices(found, heart) == (0,)
    assert_array_equal(found.array[..., 2] == heart.lv, labels[..., 2] == 3)


def test_a_wall_that_does_not_close_is_named(labels):
    """An arc, as at the outflow; and not a disc, as at the apex, nor a ring with a voxel far away."""
    wall = (labels == 2).astype(np.uint8)
    wall[0, 0, 0] = 1
    wall[: wall.shape[0] // 2, :, 1] = 0
    wall[..., 2] = ndimage.binary_fill_holes(wall[..., 2])
    with pytest.warns(InputWarning) as said:
        prepare(wall)
    assert [str(each.message) for each in said if "does not close" in str(each.message)] == [
        "labels: in slice 2 the wall does not close: volumes and the ejection fraction lack the cavity there; "
        "to count it, label the cavity too"
    ]


def test_a_ring_whose_inside_is_not_labelled_is_not_open(labels):
    heart, rings = HeartLabels(), np.where(labels == 3, 0, labels)
    assert open_slices(Image(rings, GRID), heart) == ()
    rings[..., 0] = labels[..., 0]
    assert open_slices(Image(rings, GRID), heart) == ()


@pytest.mark.parametrize(("inner", "gap"), [(12, 10), (24, 90)])
def test_a_gap_in_a_thick_or_a_thin_wall_is_found(gap, inner):
    x, y = np.meshgrid(np.arange(64) - 31.5, np.arange(64) - 31.5, indexing="ij")
    ring = (np.hypot(x, y) < 28) & (np.hypot(x, y) >= inner)
    arc = ring & (np.degrees(np.abs(np.arctan2(y, x))) > gap / 2)
    cavity_elsewhere = np.pad([[3]], (0, 63))
    labels = Image(np.stack([2 * arc, 2 * ring, cavity_elsewhere], -1), Grid.plain((64, 64, 3), (1.8, 1.8, 10.0)))
    assert open_slices(labels, HeartLabels()) == (0,)


def test_labels_of_other_numbers_are_refused(labels):
    labels = labels * 10
    with pytest.raises(BadInput, match=r"has the labels 10, 20, 30, and none of 1=RV,2=Myo,3=LV: say which is which"):
        prepare(labels)
    with pytest.warns(InputWarning, match="has no label 40=LV"):
        assert prepare(labels, label_names="20=wall,40=LV").heart == HeartLabels(None, 20, 40)
    assert prepare(labels, label_names="20=Myocardium,30=Cavity").heart == HeartLabels(None, 20, 30)
    with pytest.raises(BadInput, match="named twice"):
        prepare(labels, label_names="10=LV,20=Myo,30=lv")


def test_a_wall_that_encloses_the_rv_is_told_of(labels, recwarn):
    """As in files that count the LV as 1: its ejection fraction would be told as that of the RV."""
    prepare(labels)
    assert not [each for each in recwarn if "encloses" in str(each.message)]
    exchanged = np.array([0, 3, 2, 1])[labels]
    with pytest.warns(InputWarning, match=r'encloses label 1, taken for the RV.*`label_names="3=RV,2=Myo,1=LV"`'):
        prepare(exchanged)
    assert prepare(exchanged, label_names="3=RV,2=Myo,1=LV").heart == HeartLabels(3, 2, 1)


def test_labels_that_lie_elsewhere_are_refused_with_both_sizes(labels):
    other = Grid.plain(GRID.shape, (1.8, 1.8, 9.0))
    sizes = r"it has 96 x 96 x 3 voxels of 1\.8 x 1\.8 x 9 mm at 0, 0, 0, and that grid has .* x 10 mm"
    with pytest.raises(BadInput, match=f"is not on the grid of the frames of the cine: {sizes}"):
        prepare(labels, other)


def test_a_slice_saved_as_a_stack_of_one_is_the_label_map_of_a_cine_of_one_slice(labels, tmp_path):
    """As NIfTI files have them: axes that run against those of the world, and an origin elsewhere."""
    affine, flat = np.diag([-1.8, 1.8, 1.0, 1.0]), labels[..., 1]
    affine[:2, 3] = 30.0, -40.0
    nibabel.save(nibabel.Nifti1Image(np.moveaxis(FRAMES[..., 1], 0, -1), affine), tmp_path / "cine.nii.gz")
    nibabel.save(nibabel.Nifti1Image(flat[..., None], affine), tmp_path / "labels.nii.gz")
    with pytest.warns(InputWarning, match="third is taken for time"):
        cine = read_cine(tmp_path / "cine.nii.gz")
    assert_array_equal(read_labels(tmp_path / "labels.nii.gz", cine, None, {})[0].array, flat)
    affine[0, 3] = 31.0
    nibabel.save(nibabel.Nifti1Image(flat[..., None], affine), tmp_path / "labels.nii.gz")
    with pytest.raises(BadInput, match="not on the grid"):
        read_labels(tmp_path / "labels.nii.gz", cine, None, {})


@pytest.mark.parametrize("across", [0, 2])
def test_labels_reconciled_lie_between_both_outlines(across):
    """Discs of other radii: their signed distances have the mean radius between them; a slice that one lacks stays."""
    y, x = np.mgrid[:61, :61] - 30.0
    radius = np.hypot(1.5 * x, 1.5 * y)

    def heart(inner, outer):
        rv = (np.hypot(1.5 * x, 1.5 * (y + 25)) < 6) * 1
        return np.where(radius < inner, 3, np.where(radius < outer, 2, rv)).astype(np.uint8)

    def stack(*slices):
        return np.stack(slices, axis=across)[None]

    own = HeartLabels(rv=7, wall=5, lv=9)
    value = np.array([0, 7, 5, 9], np.uint8)
    spacing = [1.5, 1.5, 1.5]
    spacing[across] = 8.0
    carried, seen = stack(heart(12, 24), heart(10, 20)), stack(heart(18, 30), np.zeros_like(heart(1, 2)))
    found = reconcile(value[carried], seen, own, tuple(spacing), across)
    between, left = np.moveaxis(found[0], across, 0)
    for labels, expected in (((9,), 12 + 6 * (1 - OF_MOTION)), ((5, 9), 24 + 6 * (1 - OF_MOTION))):
        size = np.isin(between, labels).sum() * 1.5**2
        assert np.sqrt(size / np.pi) == pytest.approx(expected, abs=0.75)  # half a pixel
    assert_array_equal(left, value[heart(10, 20)])
    assert (between == 7).any()
    assert_array_equal(reconcile(value[carried], carried, own, tuple(spacing), across), value[carried])


@pytest.mark.parametrize(("names", "of_seen"), [("5=Myo", (2,)), ("9=LV", (3,)), ("7=RV", (1,))])
def test_a_map_of_one_part_is_reconciled_in_that_part_alone(labels, names, of_seen):
    heart = heart_of(read_label_names(names))
    (value,) = read_label_names(names)
    seen = labels[None].astype(np.uint8)
    carried = np.where(np.isin(seen, of_seen), value, 0).astype(np.uint8)
    assert_array_equal(reconcile(carried, seen, heart, GRID.spacing, 2), carried)
