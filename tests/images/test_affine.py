import numpy as np
import pytest
import SimpleITK as sitk
from numpy.testing import assert_allclose
from scipy.spatial.transform import Rotation

from tests.images.conftest import indices, picture, smooth_transform, turn
from vrnet.images.grid import Affine, fit_affine, rotation_angle
from vrnet.images.resample import coverage, resample_image
from vrnet.images.transforms import Transform


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
    assert_allclose(rotation_angle(R), degrees, atol=1e-6)


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
    found = fit_affine(still.followed_by(affine).displacement, grid)
    x = grid.points(grid.lattice())
    assert_allclose(found.points(x), affine.points(x))
