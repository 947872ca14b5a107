"""Both grids are told, and what to do about each way in which they can differ."""

from dataclasses import replace
from itertools import permutations, product

import nibabel
import numpy as np
import pytest
import SimpleITK as sitk
from numpy.testing import assert_allclose
from scipy.optimize import linear_sum_assignment
from scipy.spatial.transform import Rotation

from tests.conftest import SHAPES
from tests.images.conftest import indices, make_grid, picture, smooth_transform, turn
from vrnet.errors import BadInput
from vrnet.images.grid import Affine, Grid, check_same_grid
from vrnet.images.io import read_image, to_sitk
from vrnet.images.resample import coverage, resample_image
from vrnet.images.transforms import Transform


def test_a_voxel_is_where_simpleitk_says_it_is(grid):
    image = to_sitk(np.zeros(grid.shape), grid)
    index = np.vstack([indices(grid.shape)[::17], indices(grid.shape)[::23] + 0.3])
    world = [image.TransformContinuousIndexToPhysicalPoint(x) for x in index.tolist()]
    assert_allclose(grid.points(index), world, atol=1e-9)
    assert_allclose(grid.index(np.array(world)), index, atol=1e-9)


def test_the_centre_is_where_simpleitk_finds_the_middle_index_and_the_mean_of_all_voxels(grid):
    image = to_sitk(np.zeros(grid.shape), grid)
    middle = [(n - 1) / 2 for n in grid.shape]
    assert_allclose(grid.centre, image.TransformContinuousIndexToPhysicalPoint(middle))
    assert_allclose(
        grid.centre, grid.points(np.indices(grid.shape).reshape(len(grid.shape), -1).T.astype(float)).mean(0)
    )


def test_to_world_takes_a_displacement_in_voxels_to_one_in_millimetres(grid):
    step = np.array([[1.0, -2.0, 0.5][: len(grid.shape)]])
    start = np.full_like(step, 3)
    assert_allclose(grid.points(start + step) - grid.points(start), step @ grid.to_world.T, atol=1e-9)
    assert_allclose(np.linalg.norm(grid.to_world, axis=0), grid.spacing)


def test_a_header_that_is_the_identity_does_not_say_how_the_image_lies(d, tmp_path):
    """As SimpleITK writes an image without a header, in LPS, and nibabel one whose matrix only scales, in RAS."""
    plain = Grid.plain((3, 4, 5)[:d], (1.5, 1.5, 8.0)[:d])
    assert not plain.is_placed
    assert replace(plain, origin=(0.0, 1.0, 0.0)[:d]).is_placed
    assert replace(plain, origin=(0.0, 1.5, 0.0)[:d]).is_placed
    for sign in (1, -1):
        assert not replace(plain, origin=tuple(sign * h for h in plain.spacing)).is_placed
        assert replace(plain, origin=tuple(2 * sign * h for h in plain.spacing)).is_placed
    assert plain.flipped([0]).is_placed
    nibabel.save(nibabel.Nifti1Image(np.zeros((3, 4, 5)), np.diag([1.5, 1.5, 8.0, 1.0])), tmp_path / "a.nii")
    assert not read_image(tmp_path / "a.nii").grid.is_placed
    nibabel.save(nibabel.Nifti1Image(np.zeros((3, 4, 5)), np.diag([-1.5, 1.5, 8.0, 1.0])), tmp_path / "b.nii")
    assert read_image(tmp_path / "b.nii").grid.is_placed


def test_the_backward_axes_are_those_nibabel_would_flip(grid):
    d, affine = len(grid.shape), np.eye(4)
    for signs in product([1.0, -1.0], repeat=d):
        posed = make_grid(grid.shape, grid.spacing, grid.origin, grid.axes * signs)
        affine[:d, :d] = posed.to_world
        flips = nibabel.io_orientation(affine)[:d, 1]
        assert posed.backward == tuple(np.flatnonzero(flips < 0).tolist())


TIED = {
    "a square turned by 45 degrees": turn(2, np.pi / 4),
    "a cube turned by 45 degrees": turn(3, np.pi / 4, 0, 0),
    "a cube turned by 45 degrees about another axis": turn(3, 0, 0, np.pi / 4),
    "a cube turned about its diagonal": 2 / 3 - np.eye(3),
    "plain": np.eye(3),
}


def test_the_order_is_the_assignment_to_the_axes_of_the_world_that_scipy_finds(d):
    for seed in range(50):
        pose = Rotation.random(random_state=seed).as_matrix() if d == 3 else turn(2, seed)
        grid = make_grid(SHAPES[d], (1.0,) * d, (0.0,) * d, pose)
        assert grid.order == tuple(linear_sum_assignment(np.abs(pose), maximize=True)[1].tolist())


def test_the_order_of_a_grid_along_the_world_is_the_one_nibabel_finds():
    for order in permutations(range(3)):
        affine = np.eye(4)
        affine[:3, :3] = turn(3, 0.2, 0.1, -0.2)[:, order]
        found = make_grid((4, 5, 6), (1.0,) * 3, (0.0,) * 3, affine[:3, :3]).order
        assert found == tuple(nibabel.io_orientation(affine)[:, 0].argsort().tolist())


@pytest.mark.parametrize("lines", TIED.values(), ids=TIED)
def test_axes_come_in_one_order_and_direction_however_they_are_stored(lines):
    """Also where two orders are equally good, and headers are rounded to single precision."""
    d, rounding, found = len(lines), np.random.default_rng(0), []
    for order, signs in product(permutations(range(d)), product([1.0, -1.0], repeat=d)):
        stored = lines[:, order] * signs + 1e-7 * rounding.standard_normal((d, d))
        grid = make_grid(SHAPES[d], (1.0,) * d, (0.0,) * d, stored)
        found.append(grid.reordered(grid.order).forward_axes)
    assert_allclose(found, [found[0]] * len(found), atol=1e-6)


@pytest.mark.parametrize("order", [(1, 0, 2), (2, 0, 1), (0, 2, 1)])
def test_a_reordered_grid_has_the_same_voxels_at_permuted_indices(d, grid, order):
    order = [axis for axis in order if axis < d]
    index = indices(grid.shape)[::7]
    assert_allclose(grid.reordered(order).points(index[:, order]), grid.points(index), atol=1e-9)
    assert grid.reordered(order).reordered(np.argsort(order).tolist()) == grid


def test_slices_lie_across_the_same_line_however_a_cube_is_stored():
    """A cube turned by 45 degrees has two axes that are as close to head-foot."""
    lines, across = turn(3, 0, 0, np.pi / 4), []
    for order, signs in product(permutations(range(3)), product([1.0, -1.0], repeat=3)):
        grid = make_grid((5, 5, 5), (1.0,) * 3, (0.0,) * 3, lines[:, order] * signs)
        across.append(grid.forward_axes[:, grid.across])
    assert_allclose(across, [across[0]] * 48)


def test_a_grid_matches_itself_and_what_differs_by_rounding(grid):
    rounded = Grid(
        grid.shape, *(tuple(np.float32(part).tolist()) for part in (grid.spacing, grid.origin)), grid.direction
    )
    assert grid.matches(grid)
    assert grid.matches(rounded)
    assert rounded.matches(grid)


def test_a_grid_does_not_match_one_that_differs_anywhere(grid):
    d = len(grid.shape)
    other = {
        "shape": (grid.shape[0] + 1, *grid.shape[1:]),
        "spacing": (*grid.spacing[:-1], grid.spacing[-1] * 1.01),
        "origin": (grid.origin[0] + 0.05, *grid.origin[1:]),
        "direction": tuple((turn(d, 0.02, 0, 0) @ grid.axes).ravel().tolist()),
    }
    for part, value in other.items():
        assert not grid.matches(replace(grid, **{part: value}))


@pytest.mark.parametrize(("shift", "does"), [(0.0, True), (0.9, True), (1.2, False)])
def test_grids_overlap_while_they_are_less_than_their_extent_apart(grid, shift, does):
    """Apart along any of the grid's own axes, counted in its extent."""
    for axis in range(len(grid.shape)):
        step = np.zeros((1, len(grid.shape)))
        step[0, axis] = shift * grid.shape[axis]
        other = replace(grid, origin=tuple(grid.points(step)[0].tolist()))
        assert grid.overlaps(other) is does
        assert other.overlaps(grid) is does


def test_a_small_grid_anywhere_inside_a_large_one_overlaps_it(d):
    large = Grid.plain((256,) * d, (1.0,) * d)
    for place in (10.0, 40.0, 113.0):
        small = make_grid((6,) * d, (1.0,) * d, (place,) * d, turn(d, 0.3, 0.2, 0.1))
        assert large.overlaps(small)
        assert small.overlaps(large)


@pytest.mark.parametrize(
    ("spacing", "axis"),
    [((1.0, 1.0, 8.0), 2), ((8.0, 1.0, 1.0), 0), ((1.0, 3.0, 1.0), 1), ((1.0, 1.0, 1.0), 2), ((2.0, 1.0), 0)],
)
def test_across_is_the_axis_of_widest_spacing_the_last_of_several(spacing, axis):
    assert Grid.plain((4,) * len(spacing), spacing).across == axis


# Affine maps


@pytest.fixture
def affine(d):
    """A turn, a stretch, a shear and a shift about a centre of its own."""
    matrix = turn(d, 0.4, -0.2, 0.3) @ (np.diag([1.1, 0.9, 1.05][:d]) + 0.05 * np.eye(d, k=1))
    return Affine("affine", matrix, np.array([3.0, -2.0, 1.0][:d]), np.array([8.0, -15.0, 9.0][:d]))


def test_points_go_where_simpleitk_takes_them(affine, d):
    x = 20 * np.random.default_rng(0).standard_normal((10, d))
    assert_allclose(affine.points(x), [affine.itk.TransformPoint(point) for point in x.tolist()])


def test_about_another_centre_a_map_is_the_same(affine, d):
    other, x = affine.about(np.full(d, 5.0)), 20 * np.random.default_rng(0).standard_normal((10, d))
    assert_allclose(other.points(x), affine.points(x))
    assert other.centre.tolist() == [5.0] * d


def test_composition_is_one_map_after_the_other(affine, d):
    other = Affine("rigid", turn(d, -0.9, 0.1, 0.2), np.full(d, 2.0), np.full(d, -4.0))
    x = 20 * np.random.default_rng(0).standard_normal((10, d))
    assert_allclose(affine.compose(other).points(x), affine.points(other.points(x)))


@pytest.mark.parametrize("degrees", [1e-4, 30.0, 180.0])
def test_the_angle_of_a_rotation_is_that_of_scipy(degrees, d):
    axis = np.array([0.0, 0.0, 1.0]) if d == 2 else np.array([0.6, 0.0, 0.8])
    R = Rotation.from_rotvec(np.radians(degrees) * axis).as_matrix()[:d, :d]
    assert_allclose(Affine("rigid", R, np.zeros(d), np.zeros(d)).summary()["rotation_deg"], degrees, atol=1e-6)


def test_the_summary_tells_rotation_and_scale_apart(d):
    R = turn(d, 0.4, 0.0, 0.0)
    made = Affine("affine", R @ np.diag([1.2, 1 / 1.2, 1.0][:d]) * 1.5, np.array([3.0, 4.0, 0.0][:d]), np.zeros(d))
    expected = {"rotation_deg": np.degrees(0.4), "translation_mm": 5.0, "scale": 1.5}
    assert {name: made.summary()[name] for name in expected} == pytest.approx(expected)


def test_a_deformation_followed_by_an_affine_map_is_what_simpleitk_composes(grid, affine):
    deformation = smooth_transform(grid)
    both = sitk.CompositeTransform([affine.itk, deformation.itk])  # the last is applied first
    x = grid.points(indices(grid.shape))
    expected = np.array([both.TransformPoint(point) for point in x.tolist()])
    assert_allclose(deformation.followed_by(affine).points(x)[::7], expected[::7], atol=1e-6)


def test_an_image_is_seen_through_an_affine_map_as_simpleitk_sees_it(grid, affine):
    """As far as the image reaches, and where no axis gets coarser, so that nothing is smoothed."""
    image, matrix = picture(grid), 0.9 * turn(len(grid.shape), 0.2, 0.1, -0.1)
    close = Affine("affine", matrix, np.full(len(matrix), 0.3), grid.points((np.array([grid.shape]) - 1) / 2)[0])
    source = sitk.GetImageFromArray(image.array.T.astype(np.float32))
    source.SetOrigin(grid.origin), source.SetSpacing(grid.spacing), source.SetDirection(grid.direction)
    expected = sitk.GetArrayFromImage(sitk.Resample(source, close.itk, sitk.sitkLinear, -99.0)).T
    seen, covered = resample_image(image, grid, close).array, coverage(grid, grid, close)
    assert 0.3 < covered.mean() < 1
    assert_allclose(seen[covered & (expected > -99)], expected[covered & (expected > -99)], atol=1e-4)


def test_the_inverse_takes_points_back(affine, d):
    x = 20 * np.random.default_rng(0).standard_normal((10, d))
    assert_allclose(affine.inverse().points(affine.points(x)), x)


def test_the_affine_map_nearest_to_an_affine_motion_is_that_motion(grid, affine):
    still = Transform(np.zeros((len(grid.shape), *grid.shape)), grid)
    found = still.followed_by(affine).affine_part()
    x = grid.points(grid.lattice())
    assert_allclose(found.points(x), affine.points(x))


# Whether labels lie on the grid of their image


GRID = Grid.plain((96, 90, 3), (1.8, 1.8, 10.0))
SMALLER = Grid.plain((48, 45, 3), (3.6, 3.6, 10.0))
PLACE = "96 x 90 x 3 voxels of 1.8 x 1.8 x 10 mm at 0, 0, 0"
WAYS = {
    "smaller": (
        SMALLER,
        f"it has 48 x 45 x 3 voxels of 3.6 x 3.6 x 10 mm at 0, 0, 0, and that grid has {PLACE}; ",
        "give the one that was drawn on this image, or resample it",
    ),
    "turned": (
        replace(GRID, direction=(-1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0)),
        f"both have {PLACE}, but turned or placed otherwise, up to 342 mm apart; ",  # 2 · 95 · 1.8
        "if its header alone is wrong, give it that of the image; "
        "else give the one that was drawn on this image, or resample it",
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_both_grids_are_told_and_what_to_do(way):
    own, said, advice = WAYS[way]
    with pytest.raises(BadInput) as error:
        check_same_grid("seg.nii", own, "ed.nii", GRID)
    words = f"seg.nii is not on the grid of ed.nii: {said}{advice} to that grid, to the nearest voxel"
    assert str(error.value) == words


def test_the_other_image_is_named_where_it_lies_on_that_one():
    with pytest.raises(BadInput, match=r"; it lies on that of es\.nii: give each to its own image$"):
        check_same_grid("seg.nii", SMALLER, "ed.nii", GRID, {"es.nii": SMALLER})


def test_grids_that_match_pass():
    check_same_grid("seg.nii", GRID, "ed.nii", replace(GRID, origin=(0.001, 0.0, 0.0)))
