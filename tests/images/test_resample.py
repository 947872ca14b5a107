from dataclasses import replace

import numpy as np
import pytest
import SimpleITK as sitk
from numpy.testing import assert_allclose, assert_array_equal
from scipy import ndimage

from tests.conftest import SHAPES
from tests.images.conftest import blobs, indices, make_grid, overlapping_grid, picture, refine, turn
from vrnet.images.grid import Grid
from vrnet.images.image import Image
from vrnet.images.io import to_sitk
from vrnet.images.resample import place_labels, resample_image, resample_labels


def sitk_resample(image, grid, method=sitk.sitkLinear):
    """On the grid by SimpleITK, NaN outside."""
    reference = to_sitk(np.zeros(grid.shape), grid)
    source = to_sitk(image.array.astype(np.float64), image.grid)
    return sitk.GetArrayFromImage(sitk.Resample(source, reference, sitk.Transform(), method, float("nan"))).T


def within(grid, other):
    """(*s): which voxels of a grid lie between voxels of the other, and their indices there, (n, d)."""
    index = other.index(grid.points(indices(grid.shape)))
    inside = ((index >= 0) & (index <= np.array(other.shape) - 1)).all(1)
    return inside.reshape(grid.shape), index


def test_on_its_own_grid_an_image_is_itself(grid):
    image = picture(grid)
    shifted = replace(grid, origin=tuple(x + 1e-4 for x in grid.origin))
    for target in (grid, shifted):
        found = resample_image(image, target)
        assert_array_equal(found.array, image.array)
        assert found.grid == target
        assert_array_equal(place_labels(blobs(grid), target).array, blobs(grid).array)


def test_by_its_header_an_image_goes_where_simpleitk_and_scipy_take_it(grid):
    """To a grid of finer voxels, so that nothing is smoothed."""
    target = refine(grid, 4)
    image = picture(overlapping_grid(grid))
    found, theirs = resample_image(image, target).array, sitk_resample(image, target)
    inside, index = within(target, image.grid)
    assert found.dtype == np.float32
    assert 0.3 < inside.mean() < 1
    assert_allclose(found[inside], theirs[inside], atol=1e-6)
    scipy = ndimage.map_coordinates(image.array, index.T, order=1, mode="nearest").reshape(target.shape)
    assert_allclose(found[inside], scipy[inside], atol=1e-5)


def test_outside_an_image_its_border_is_repeated(grid):
    image = picture(grid)
    d, margin = len(grid.shape), 4
    shape = tuple(n + 2 * margin for n in grid.shape)
    wide = replace(grid, shape=shape, origin=tuple(grid.points(np.full((1, d), -float(margin)))[0].tolist()))
    assert_allclose(resample_image(image, wide).array, np.pad(image.array, margin, mode="edge"), atol=1e-6)


def coarsen(grid, factors):
    """A grid of the same extent with fewer voxels along some axes."""
    shape = tuple(int((n - 1) // f) + 1 for n, f in zip(grid.shape, factors, strict=True))
    return replace(grid, shape=shape, spacing=tuple(h * f for h, f in zip(grid.spacing, factors, strict=True)))


def test_what_a_coarser_grid_cannot_hold_is_suppressed_not_aliased(d):
    """A checkerboard of single voxels is grey from afar; every third voxel of it is a checkerboard again."""
    grid = make_grid((37,) * d, (2.5, 3.0, 4.0)[:d], (3.0, 2.0, 1.0)[:d], turn(d, 0.3, 0.2, 0.1))
    board = Image((indices(grid.shape).sum(1) % 2).reshape(grid.shape).astype(np.float32), grid)
    target = coarsen(grid, (3.0,) * d)
    assert np.nanstd(sitk_resample(board, target)) > 0.4
    middle = resample_image(board, target).array[(slice(2, -2),) * d]
    assert_allclose(middle, 0.5, atol=0.02)


def test_an_image_is_smoothed_along_the_axes_that_get_coarser_alone(d):
    """Fine stripes survive along the other axes, also where the grids number their axes differently."""
    grid = Grid.plain((33, 30, 27)[:d], (1.0,) * d)
    for axis in range(d):
        stripes = Image((indices(grid.shape)[:, axis] % 2).reshape(grid.shape).astype(np.float32), grid)
        exchanged = np.roll(np.eye(d), 1, axis=0)  # axis j of the target runs along axis (j + 1) % d of the image
        for coarse in range(d):
            factors = np.where((np.arange(d) + 1) % d == coarse, 4.0, 1.0)
            shape = tuple(int(grid.shape[(j + 1) % d] // factors[j]) for j in range(d))
            found = resample_image(stripes, make_grid(shape, factors.tolist(), (0.0,) * d, exchanged)).array
            middle = found[(slice(2, -2),) * d]
            assert np.ptp(middle) < 0.1 if coarse == axis else np.ptp(middle) == 1


def test_smoothing_keeps_constants_and_what_is_smooth_already(grid):
    target = coarsen(grid, (2.0,) * len(grid.shape))
    assert_allclose(resample_image(Image(np.full(grid.shape, 7.5), grid), target).array, 7.5, atol=1e-4)
    ramp = Image(indices(grid.shape).sum(1).reshape(grid.shape), grid)
    inner = (slice(2, -2),) * len(grid.shape)
    assert_allclose(resample_image(ramp, target).array[inner], sitk_resample(ramp, target)[inner], atol=0.15)


def test_an_image_of_few_slices_is_brought_to_a_coarser_grid(d):
    thin = Grid.plain((3,) * d, (1.0,) * d)
    assert np.isfinite(resample_image(picture(thin, 0), Grid.plain((2,) * d, (2.0,) * d)).array).all()


def test_labels_go_to_the_voxels_where_simpleitk_takes_them(grid):
    labels, target = blobs(overlapping_grid(grid)), refine(grid)
    theirs = sitk_resample(labels, target, sitk.sitkNearestNeighbor)
    assert_array_equal(place_labels(labels, target).array, np.nan_to_num(theirs).astype(np.uint8))


@pytest.mark.parametrize("smooth", [False, True], ids=["nearest", "smooth"])
def test_every_integer_type_and_value_is_kept(d, smooth):
    """Among them neighbours beyond 2^53, which no float can tell apart."""
    for dtype in ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", ">i2", ">i8", ">u8"):
        grid, largest = Grid.plain(SHAPES[d], (1.0,) * d), np.iinfo(dtype).max
        labels = Image(np.array([0, 1, largest - 1, largest], dtype)[blobs(grid).array], grid)
        found = resample_labels(labels, grid, sitk.Transform(d, sitk.sitkIdentity), smooth).array
        assert found.dtype == labels.array.dtype.newbyteorder("=")
        assert_array_equal(found, labels.array)


@pytest.mark.parametrize(("values", "smooth"), [([7, 9], False), ([-5, -3], True)], ids=str)
def test_outside_a_label_map_it_is_0_even_if_the_map_holds_none(d, values, smooth):
    grid = Grid.plain(SHAPES[d], (1.0,) * d)
    labels = Image(np.array(values, np.int16)[blobs(grid).array % 2], grid)
    wide = replace(grid, shape=tuple(n + 3 for n in grid.shape))
    found = resample_labels(labels, wide, sitk.Transform(d, sitk.sitkIdentity), smooth).array
    padded = np.pad(labels.array, [(0, 3)] * d)
    assert_array_equal(found, padded)


def test_smooth_labels_are_those_of_greatest_weight_by_linear_interpolation(grid):
    """The weights of each label are its indicator, brought by SimpleITK."""
    labels, target = blobs(overlapping_grid(grid)), refine(grid)
    weights = np.stack([sitk_resample(labels.with_array(labels.array == label), target) for label in range(4)])
    inside = np.isfinite(weights[0])
    first, second = np.sort(weights, axis=0)[:-3:-1]
    clear = inside & (first > second + 1e-6)
    identity = sitk.Transform(len(grid.shape), sitk.sitkIdentity)
    found = resample_labels(labels, target, identity, smooth=True).array
    assert clear[inside].mean() > 0.95
    assert_array_equal(found[clear], weights.argmax(0)[clear])
    assert not found[~inside].any()


def test_smooth_outlines_are_nearer_to_the_truth_than_the_nearest_voxel_s():
    """A disc drawn on coarse voxels and brought to fine ones."""
    grid = Grid.plain((24, 24), (1.0, 1.0))
    fine = refine(grid, 8)

    def disc(on):
        return (np.linalg.norm(on.points(indices(on.shape)) - [11.3, 11.8], axis=1) < 7).reshape(on.shape)

    labels, identity = Image(disc(grid).astype(np.uint8), grid), sitk.Transform(2, sitk.sitkIdentity)
    wrong, rough = (
        (found != disc(fine)).sum()
        for found in (resample_labels(labels, fine, identity, smooth).array for smooth in (True, False))
    )
    assert wrong < 0.8 * rough
