"""A transform does here what it does in SimpleITK, in ANTs and by its equation; so do chains of them, and inverses."""

import warnings
from dataclasses import replace

import nibabel
import numpy as np
import pytest
import SimpleITK as sitk
from numpy.testing import assert_allclose, assert_array_equal
from scipy import ndimage

import vrnet
from tests.conftest import SHAPES
from tests.images.conftest import (
    POSES,
    blobs,
    indices,
    make_grid,
    motion,
    overlapping_grid,
    picture,
    refine,
    smooth_transform,
    turn,
)
from vrnet import compose
from vrnet.errors import BadInput, InputWarning
from vrnet.images.grid import Affine, Grid
from vrnet.images.image import Image
from vrnet.images.io import read_image, to_sitk, write_image
from vrnet.images.transforms import TRANSFORM_SUFFIXES, Transform, grid_of_range, load_chain, sample_transform, turned
from vrnet.registration.images import register_images


@pytest.fixture(scope="session")
def ants():
    return pytest.importorskip("ants", reason="ANTs is not installed: pip install antspyx")


def as_simpleitk_reads(path):
    """A transform from a file, as a user of SimpleITK would have it: no pixel type is forced."""
    if path.suffix in (".h5", ".tfm"):
        return sitk.ReadTransform(str(path))
    return sitk.DisplacementFieldTransform(sitk.ReadImage(str(path)))


def sitk_resample(moving, grid, transform, method=sitk.sitkLinear):
    """moving(transform(x)) on a grid by SimpleITK, 0 outside."""
    source = to_sitk(moving.array, moving.grid)
    return sitk.GetArrayFromImage(sitk.Resample(source, to_sitk(np.zeros(grid.shape), grid), transform, method)).T


def inner(array, margin=2):
    return array[(slice(margin, -margin),) * array.ndim]


def inside(grid, margin=2.0, n=40):
    """Points between the voxels of a grid."""
    shape = np.array(grid.shape)
    return grid.points(margin + np.random.default_rng(5).random((n, len(shape))) * (shape - 1 - 2 * margin))


def everywhere(grid):
    return grid.points(indices(grid.shape))


def of_affine(A, grid):
    """x ↦ c + A (x − c) in the world, about the centre of a grid."""
    x = everywhere(grid)
    v = (x - x.mean(0)) @ (A - np.eye(len(A))).T
    return Transform(v.T.reshape(-1, *grid.shape), grid)


# What a transform means


def test_apply_takes_moving_at_x_plus_u_by_the_equation(grid):
    """Computed by hand: voxel x of fixed, displaced by u voxels, in the world, in voxels of moving, by SciPy."""
    moving, u = picture(overlapping_grid(grid)), motion(grid.shape)
    index = moving.grid.index(grid.points(indices(grid.shape) + u.reshape(len(u), -1).T))
    hand = ndimage.map_coordinates(moving.array, index.T, order=1, cval=np.nan).reshape(grid.shape)
    warped = Transform.from_voxels(u, grid).apply(moving)
    known = np.isfinite(hand)
    assert known.mean() > 0.3
    assert_allclose(warped.array[known], hand[known], atol=1e-5)
    assert np.abs(warped.array - sitk_resample(moving, grid, sitk.Transform()))[known].max() > 0.1  # it did move
    assert warped.grid == grid
    assert warped.array.dtype == np.float32


def test_cubic_splines_are_those_of_scipy(grid):
    moving, transform = picture(overlapping_grid(grid), 1.0), smooth_transform(grid)
    index = moving.grid.index(transform.points(everywhere(grid)))
    hand = ndimage.map_coordinates(moving.array, index.T, order=3, mode="mirror").reshape(grid.shape)
    known = ((index > 3) & (index < np.array(moving.array.shape) - 4)).all(1).reshape(grid.shape)
    assert known.sum() > 50
    assert_allclose(transform.apply(moving, interpolation="bspline").array[known], hand[known], atol=1e-4)


def test_outside_moving_is_its_least_value(grid):
    moving = picture(grid)
    moving = moving.with_array(moving.array - 3)
    wide = replace(grid, shape=tuple(n + 5 for n in grid.shape))
    assert_allclose(smooth_transform(grid).apply(moving, wide).array[(-1,) * moving.array.ndim], moving.array.min())


def test_a_displacement_is_in_millimetres_of_the_world(d):
    """A motion of one voxel, 2.5 mm, along an axis that runs against the world's."""
    grid = make_grid(SHAPES[d], (2.5,) * d, (0.0,) * d, -np.eye(d))
    u = np.zeros((d, *SHAPES[d]))
    u[0] = 1
    assert_allclose(Transform.from_voxels(u, grid).displacement[(slice(None), *(3,) * d)], [-2.5] + [0.0] * (d - 1))


def test_points_at_voxels_go_where_the_field_says(grid):
    u = motion(grid.shape)
    x = indices(grid.shape)
    expected = grid.points(x + u.reshape(len(u), -1).T)
    assert_allclose(Transform.from_voxels(u, grid).points(grid.points(x)), expected, atol=1e-4)


def test_points_outside_the_grid_do_not_move_and_none_are_none(grid):
    d = len(grid.shape)
    x = grid.points(np.vstack([np.full(d, -1.0), np.array(grid.shape) + 0.0, np.full(d, 1e4)]))
    transform = Transform(np.full((d, *grid.shape), 3.0), grid)
    assert_allclose(transform.points(x), x)
    assert transform.points(np.zeros((0, d))).shape == (0, d)


def test_what_has_another_dimension_is_refused(d):
    transform, other = smooth_transform(Grid.plain(SHAPES[d], (1.0,) * d)), Grid.plain(SHAPES[5 - d], (1.0,) * (5 - d))
    for use in (
        lambda: transform.points(np.zeros((4, 5 - d))),
        lambda: transform.apply(picture(other)),
        lambda: transform.apply_labels(blobs(other)),
        lambda: transform.on(other),
        lambda: transform.inverse(other),
    ):
        with pytest.raises(BadInput, match=f"the transform is {d}D and .* {5 - d}D: they do not belong together"):
            use()


# Told by outsiders


@pytest.mark.parametrize("suffix", TRANSFORM_SUFFIXES)
def test_a_saved_transform_does_in_simpleitk_what_it_does_here_and_is_the_same_again(grid, tmp_path, suffix):
    """In double and in single precision. Moving has a size, spacing and pose of its own."""
    moving, transform = picture(overlapping_grid(grid)), smooth_transform(grid)
    for name, dtype in (("double", np.float64), ("single", np.float32)):
        path, x = tmp_path / name / f"x{suffix}", inside(grid)
        Transform(transform.displacement.astype(dtype), grid).save(path)
        theirs, again = as_simpleitk_reads(path), Transform.load(path)
        warped = inner(transform.apply(moving, grid).array)
        assert_allclose(warped, inner(sitk_resample(moving, grid, theirs)), atol=1e-3)
        assert_allclose(transform.points(x), [theirs.TransformPoint(point) for point in x.tolist()], atol=1e-3)
        assert np.abs(transform.points(x) - x).max() > 0.5  # they did move
        assert again.grid.matches(grid)
        assert np.abs(again.displacement - transform.displacement).max() < 1e-4
        assert [file.name for file in path.parent.iterdir()] == [path.name]
    if suffix == ".nii.gz":  # a vector at each voxel, on a fifth axis: what ANTs and Slicer look for
        header = nibabel.load(path).header
        assert (header["intent_code"], header["dim"][5]) == (1007, len(grid.shape))


@pytest.mark.parametrize("suffix", [".nii.gz", ".mha", ".h5"])
def test_ants_resamples_and_moves_points_with_a_saved_transform_as_we_do(ants, grid, tmp_path, suffix):
    pandas = pytest.importorskip("pandas")
    moving, transform, d = picture(overlapping_grid(grid)), smooth_transform(grid), len(grid.shape)
    files = [str(tmp_path / name) for name in ("fixed.nii.gz", "moving.nii.gz", f"x{suffix}")]
    write_image(picture(grid), tmp_path / "fixed.nii.gz")
    write_image(moving, tmp_path / "moving.nii.gz")
    transform.save(files[2])
    warped = ants.apply_transforms(*map(ants.image_read, files[:2]), transformlist=[files[2]]).numpy()
    assert_allclose(inner(transform.apply(moving, grid).array), inner(warped), atol=1e-3)
    x = inside(grid)
    table = pandas.DataFrame(x, columns=list("xyz")[:d])
    theirs = ants.apply_transforms_to_points(d, table, [files[2]]).to_numpy()[:, :d]
    assert_allclose(transform.points(x), theirs, atol=1e-3)


@pytest.mark.parametrize("kind", ["SyNOnly", "Affine"])
def test_what_ants_finds_does_here_what_it_does_there(ants, grid, tmp_path, kind):
    """ANTs gives a list of transforms, the last one first: composed, they warp as ANTs does."""
    moving = picture(grid)
    fixed = smooth_transform(grid).apply(moving)
    for name, image in (("fixed", fixed), ("moving", moving)):
        write_image(image, tmp_path / f"{name}.nii.gz")
    pair = [ants.image_read(str(tmp_path / f"{name}.nii.gz")) for name in ("fixed", "moving")]
    options = {"outprefix": str(tmp_path / "x"), "reg_iterations": (10, 10), "random_seed": 1}
    found = ants.registration(*pair, type_of_transform=kind, **options)
    *rest, total = (Transform.load(path, grid) for path in found["fwdtransforms"])
    for transform in rest:
        total = total.compose(transform)
    theirs = found["warpedmovout"].numpy()
    assert np.abs(inner(theirs - moving.array)).max() > 0.01  # it did move
    assert_allclose(inner(total.apply(moving).array, 3), inner(theirs, 3), atol=2e-3)


def spline(grid):
    """A B-spline transform over a grid."""
    found = sitk.BSplineTransformInitializer(to_sitk(np.zeros(grid.shape), grid), [3] * len(grid.shape))
    rng = np.random.default_rng(0)
    found.SetParameters((2 * rng.standard_normal(len(found.GetParameters()))).tolist())
    return found


def affine(grid):
    d = len(grid.shape)
    A = turn(d, 0.1, 0.05, -0.08) @ np.diag([1.1, 0.95, 1.0][:d])
    centre = everywhere(grid).mean(0).tolist()
    return sitk.AffineTransform(A.ravel().tolist(), [1.0, -0.5, 0.3][:d], centre)


@pytest.mark.parametrize(("suffix", "bits"), [(".nii.gz", 32), (".mha", 64), (".nrrd", 32), (".h5", 64), (".tfm", 64)])
def test_a_field_by_simpleitk_does_here_what_it_does_there(grid, tmp_path, suffix, bits):
    pixel = sitk.sitkVectorFloat32 if bits == 32 else sitk.sitkVectorFloat64
    theirs, reference, path = spline(grid), to_sitk(np.zeros(grid.shape), grid), tmp_path / f"x{suffix}"
    place = grid.shape, grid.origin, grid.spacing, grid.direction
    field = sitk.TransformToDisplacementField(theirs, pixel, *place)
    if suffix in (".h5", ".tfm"):
        sitk.WriteTransform(sitk.DisplacementFieldTransform(sitk.Cast(field, sitk.sitkVectorFloat64)), str(path))
    else:
        sitk.WriteImage(field, str(path))
    found, moving = Transform.load(path), picture(overlapping_grid(grid))
    assert found.grid.matches(grid)
    expected = sitk.GetArrayFromImage(sitk.Resample(to_sitk(moving.array, moving.grid), reference, theirs)).T
    assert_allclose(inner(found.apply(moving).array), inner(expected), atol=1e-3)


@pytest.mark.release
@pytest.mark.parametrize(("kind", "suffix"), [(spline, ".tfm"), (affine, ".txt"), (affine, ".mat"), (spline, ".h5")])
def test_any_itk_transform_is_sampled_on_a_reference(grid, tmp_path, kind, suffix):
    theirs, path = kind(grid), tmp_path / f"x{suffix}"
    sitk.WriteTransform(theirs, str(path))
    found, x = Transform.load(path, grid), everywhere(grid)
    assert_allclose(found.points(x), [theirs.TransformPoint(point) for point in x.tolist()], atol=1e-3)
    with pytest.raises(BadInput, match="has no grid of its own: give a reference"):
        Transform.load(path)
    with pytest.raises(BadInput, match="give a reference of its kind"):
        Transform.load(path, Grid.plain((4,) * (5 - len(grid.shape)), (1.0,) * (5 - len(grid.shape))))


@pytest.mark.parametrize(("intent", "signs"), [(1007, [1, 1, 1]), (1006, [-1, -1, 1])], ids=["vector", "displacement"])
def test_a_nifti_vector_is_lps_and_a_nifti_displacement_ras_as_in_itk(d, tmp_path, intent, signs):
    vectors = np.zeros((*SHAPES[d], *[1] * (4 - d), d), np.float32)
    vectors[...] = [1.0, 2.0, 3.0][:d]
    image = nibabel.Nifti1Image(vectors, np.diag([2.0, 2.0, 2.0, 1.0]))
    image.header.set_intent(intent)
    nibabel.save(image, tmp_path / "x.nii.gz")
    found = Transform.load(tmp_path / "x.nii.gz").displacement[(slice(None), *(3,) * d)]
    assert_allclose(found, np.multiply([1, 2, 3], signs)[:d])
    assert_allclose(found, sitk.ReadImage(str(tmp_path / "x.nii.gz"))[(3,) * d])


# On disk


@pytest.mark.parametrize("suffix", [".nii.gz", ".nrrd", ".h5"])
def test_a_transform_of_one_slice_keeps_its_place_in_space(tmp_path, suffix):
    """ITK takes a NIfTI field of one slice for a 2D one."""
    grid = make_grid((24, 20, 1), (1.3, 0.7, 8.0), (10.0, -20.0, 5.0), POSES["oblique and flipped"](3))
    u = np.concatenate([motion(grid.shape[:2])[..., None], np.zeros((1, *grid.shape))])
    transform, moving, path = Transform.from_voxels(u, grid), picture(grid, (2, 2, 0)), tmp_path / f"x{suffix}"
    transform.save(path)
    warped = transform.apply(moving)
    assert_allclose(Transform.load(path).apply(moving, grid).array, warped.array, atol=1e-3)
    theirs = sitk_resample(moving, grid, as_simpleitk_reads(path))
    assert_allclose(theirs[2:-2, 2:-2], warped.array[2:-2, 2:-2], atol=1e-3)


@pytest.mark.parametrize("suffix", [".nii.gz", ".h5"])
def test_a_damaged_or_missing_transform_is_refused_in_one_line(tmp_path, suffix):
    path = tmp_path / f"x{suffix}"
    with pytest.raises(BadInput, match="there is no"):
        Transform.load(path)
    path.write_text("not a transform\n" * 50)
    with pytest.raises(BadInput, match="cannot read") as raised:
        Transform.load(path)
    assert len(str(raised.value).splitlines()) == 1
    nibabel.save(nibabel.Nifti1Image(np.zeros((6, 5, 4, 1, 3), np.float32), np.eye(4)), tmp_path / "x.nii.gz")
    with pytest.raises(BadInput, match=r"is not a transform: it has 1 value per voxel"):
        Transform.load(tmp_path / "x.nii.gz")


@pytest.mark.parametrize(("suffix", "value"), [(".nii.gz", np.nan), (".mha", np.inf), (".h5", np.nan)])
def test_a_transform_with_nan_or_infinity_is_refused(d, tmp_path, suffix, value):
    displacement = np.zeros((d, *SHAPES[d]))
    displacement.flat[7] = value
    transform, path = Transform(displacement, Grid.plain(SHAPES[d], (1.0,) * d)), tmp_path / f"x{suffix}"
    with pytest.raises(BadInput, match=r"NaN or infinite: .* is not written"):
        transform.save(path)
    if suffix == ".h5":
        sitk.WriteTransform(transform.itk, str(path))
    else:
        sitk.WriteImage(to_sitk(displacement, transform.grid, is_vector=True), str(path))
    with pytest.raises(BadInput, match="contains NaN or infinite"):
        Transform.load(path)


# Labels


def test_labels_are_those_of_the_nearest_voxel_as_in_simpleitk(grid):
    labels, transform = blobs(overlapping_grid(grid), np.int16), smooth_transform(grid)
    found = transform.apply_labels(labels, grid)
    assert_array_equal(found.array, sitk_resample(labels, grid, transform.itk, sitk.sitkNearestNeighbor))
    assert found.array.dtype == np.int16
    assert len(np.unique(found.array)) > 1


def test_smooth_labels_are_those_of_greatest_weight_after_the_motion(grid):
    labels, transform = blobs(overlapping_grid(grid)), smooth_transform(grid)
    indicators = [labels.with_array((labels.array == label).astype(np.float64)) for label in range(4)]
    weights = np.stack([sitk_resample(indicator, grid, transform.itk) for indicator in indicators])
    first, second = np.sort(weights, axis=0)[:-3:-1]
    clear = first > second + 1e-6
    assert clear.mean() > 0.5
    assert_array_equal(transform.apply_labels(labels, smooth=True).array[clear], weights.argmax(0)[clear])


# Calculus


def test_on_another_grid_a_transform_moves_its_voxels_alike(grid):
    """Voxels outside the transform's own grid do not move."""
    transform, other = smooth_transform(grid), overlapping_grid(grid)
    x = everywhere(other)
    found = transform.on(other)
    assert found.grid == other
    assert_allclose(found.displacement.reshape(len(grid.shape), -1).T, transform.points(x) - x, atol=1e-6)
    assert transform.on(grid) is transform


def test_composing_is_moving_twice(grid):
    first = smooth_transform(overlapping_grid(grid))
    second = smooth_transform(grid, amplitude=-4.0, sigma=3.0)
    x = everywhere(first.grid)
    assert_allclose(second.compose(first).points(x), second.points(first.points(x)), atol=1e-4)
    assert np.abs(second.compose(first).points(x) - first.compose(second).points(x)).max() > 0.5  # order matters


def test_the_jacobian_of_an_affine_motion_is_its_determinant(grid):
    d = len(grid.shape)
    A = np.array([[1.1, 0.2, 0.0], [-0.1, 0.9, 0.1], [0.05, 0.0, 1.2]])[:d, :d]
    assert_allclose(of_affine(A, grid).jacobian(), np.linalg.det(A), atol=1e-4)


def test_the_inverse_of_an_affine_motion_is_the_affine_inverse(grid):
    """Contracting, so that the inverse needs nothing from outside the grid near its middle."""
    d = len(grid.shape)
    A = turn(d, 0.1, 0.05, -0.03) * 1.05
    back = of_affine(A, grid).inverse().transform
    expected = of_affine(np.linalg.inv(A), grid).displacement
    middle = (slice(None), *(slice(n // 3, n - n // 3) for n in grid.shape))
    assert_allclose(back.displacement[middle], expected[middle], atol=5e-3)


@pytest.mark.parametrize("where", ["its own grid", "that of moving", "a finer grid"])
def test_there_and_back_is_home_on_any_grid(grid, where):
    """Both ways round, for points of the middle, in millimetres."""
    transform = smooth_transform(grid, amplitude=2.0)
    other = refine(overlapping_grid(grid))
    target = {"its own grid": None, "that of moving": other, "a finer grid": refine(grid)}[where]
    back, residual = transform.inverse(target)
    assert back.grid == (target or grid)
    x = inside(grid, 3.0)
    x = x[((y := back.grid.index(x)) > 2).all(1) & (y < np.array(back.grid.shape) - 3).all(1)]
    assert len(x) > 8
    assert np.linalg.norm(transform.points(x) - x, axis=1).mean() > 0.2
    tolerance = 0.02 if where == "its own grid" else 0.1
    assert np.linalg.norm(transform.points(back.points(x)) - x, axis=1).max() < tolerance
    assert np.linalg.norm(back.points(transform.points(x)) - x, axis=1).max() < tolerance
    assert np.median(residual) < 0.02


@pytest.mark.parametrize("amplitude", [2.0, 25.0], ids=["smooth", "folding"])
def test_the_residual_is_how_far_from_home_each_voxel_ends(grid, amplitude):
    """The residual is that of the inverse that is returned, also where the field folds, as far as it leads into fixed:
    beyond its grid the transform is taken to go on, and ITK says that nothing moves there."""
    transform = smooth_transform(grid, amplitude=amplitude, sigma=3.0)
    back, residual = transform.inverse()
    y = everywhere(grid)
    x = back.points(y)
    index = grid.index(x)
    inside = ((index >= 0) & (index <= np.array(grid.shape) - 1)).all(1)
    assert 0.2 < inside.mean() < 1
    left = np.linalg.norm(transform.points(x) - y, axis=1)
    assert_allclose(residual.ravel()[inside], left[inside], atol=1e-4)
    folds = (transform.jacobian() < 0).any()
    assert folds == (amplitude > 5)
    assert inner(residual, 3).max() > 1 if folds else inner(residual, 3).max() < 0.02


# Real images


@pytest.mark.release
def test_on_real_hearts_there_and_back_is_home(data_root, tmp_path):
    folder = next(path for path in sorted((data_root / "acdc").iterdir()) if path.is_dir())
    fixed, moving = (read_image(folder / f"{folder.name}_frame0{k}.nii.gz") for k in (1, 2))
    transform = register_images(fixed, moving).transform
    transform.save(tmp_path / "x.nii.gz")
    back = transform.inverse(moving.grid).transform
    heart = read_image(folder / f"{folder.name}_frame01_gt.nii.gz").array > 0
    x = fixed.grid.points(np.argwhere(heart)[::50].astype(float))
    y = transform.points(x)
    assert np.linalg.norm(y - x, axis=1).mean() > 1
    assert np.median(np.linalg.norm(back.points(y) - x, axis=1)) < 0.1
    theirs = as_simpleitk_reads(tmp_path / "x.nii.gz")
    assert_allclose(y, [theirs.TransformPoint(point) for point in x.tolist()], atol=1e-3)


# Transforms one after another


CHAIN_SHAPES = {2: (20, 16), 3: (12, 10, 8)}


def grid(d, shift=0.0):
    return Grid(CHAIN_SHAPES[d], (1.5, 2.0, 4.0)[:d], (shift,) * d, tuple(np.eye(d).ravel().tolist()))


def wave(d, size, shift=0.0):
    """A smooth transform, another one for every size, that does not move the border."""
    place = grid(d, shift)
    bump = np.prod([np.sin(np.pi * x / (n - 1)) for n, x in zip(place.shape, np.indices(place.shape), strict=True)], 0)
    return Transform(np.stack([size * (i + 1) * bump for i in range(d)]), place)


def test_points_go_through_transforms_in_the_order_given(d):
    """As in SimpleITK's CompositeTransform, which lists them the other way round and applies the last one first."""
    parts = [wave(d, 1.0), wave(d, -0.7, shift=0.5), wave(d, 0.4)]
    theirs = sitk.CompositeTransform([part.itk for part in reversed(parts)])
    found = compose(*parts)
    assert found.grid == parts[0].grid
    index = np.stack([np.random.default_rng(k).integers(1, n - 1, 50) for k, n in enumerate(CHAIN_SHAPES[d])], axis=1)
    x = found.grid.points(index.astype(float))
    assert_allclose(found.points(x), [theirs.TransformPoint(point) for point in x.tolist()], atol=1e-9)
    one_by_one = parts[2].points(parts[1].points(parts[0].points(x)))
    assert_allclose(found.points(x), one_by_one, atol=1e-9)


def test_an_affine_map_may_be_among_them(d):
    turn = Affine("affine", np.eye(d) * 1.1, np.ones(d), np.zeros(d))
    deform = wave(d, 1.0)
    assert_allclose(compose(deform, turn).displacement, deform.followed_by(turn).displacement, atol=1e-9)
    first = compose(turn, deform, grid=grid(d))
    x = grid(d).points(np.ones((1, d)))
    assert_allclose(first.points(x), deform.points(turn.points(x)), atol=1e-9)


def test_what_cannot_be_composed_is_refused_in_words(as_users_run):
    with pytest.raises(BadInput, match="has no grid"):
        compose(Affine("rigid", np.eye(2), np.zeros(2), np.zeros(2)), wave(2, 1.0))
    with pytest.raises(BadInput, match="a Image is no transform"):
        compose(wave(2, 1.0), Image(np.eye(3), Grid.plain((3, 3), (1.0, 1.0))))


def test_files_one_after_another_are_their_composition(d, tmp_path):
    parts = [wave(d, 1.0), wave(d, -0.5)]
    for k, part in enumerate(parts):
        part.save(tmp_path / f"{k}.nii.gz")
    chained = load_chain([tmp_path / "0.nii.gz", tmp_path / "1.nii.gz"], grid(d))
    assert_allclose(chained.displacement, compose(*parts).displacement, atol=1e-3)


def test_a_transform_is_applied_to_images_of_other_libraries(d, tmp_path):
    """Given as SimpleITK, as nibabel or as a path, it is the same image."""
    image = Image(np.random.default_rng(0).random(CHAIN_SHAPES[d]).astype(np.float32), grid(d))
    sitk.WriteImage(image.to_sitk(), str(tmp_path / "image.nii.gz"))
    expected = wave(d, 1.0).apply(image).array
    for given in (image.to_sitk(), image.to_nibabel(), tmp_path / "image.nii.gz", str(tmp_path / "image.nii.gz")):
        assert_allclose(wave(d, 1.0).apply(given).array, expected, atol=1e-6)


# Whether things meet in space


def grid_at(d, place, side=20, spacing=2.0):
    """A cube whose first voxel is at (place, place, …)."""
    return replace(Grid.plain((side,) * d, (spacing,) * d), origin=(float(place),) * d)


def ramp(grid):
    """An image whose value is the index along its first axis."""
    return Image(np.indices(grid.shape)[0].astype(np.int16), grid, "seg.nii.gz")


def shift(grid, by):
    return Transform(np.full((len(grid.shape), *grid.shape), float(by)), grid)


def told(function):
    """What a call warns of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        function()
    return [str(one.message) for one in caught if issubclass(one.category, InputWarning)]


@pytest.mark.parametrize("method", ["apply", "apply_labels"])
def test_an_image_that_lies_elsewhere_is_told_of(d, method):
    transform = shift(grid_at(d, 0), 3.0)
    (message,) = told(lambda: getattr(transform, method)(ramp(grid_at(d, 500))))
    assert "no place in seg.nii.gz" in message
    assert "empty" in message
    assert not told(lambda: getattr(shift(grid_at(d, 0), 500.0), method)(ramp(grid_at(d, 500))))


def test_a_crop_that_falls_between_the_points_that_are_tried_is_found(d):
    transform = shift(grid_at(d, 0, 64, 1.0), 0.0)
    assert not told(lambda: transform.apply(ramp(grid_at(d, 3.6, 2, 0.5))))


@pytest.fixture
def chain(d, tmp_path):
    """From a to b and from b to c, each on its grid, as files."""
    a, b = grid_at(d, 0, 20), grid_at(d, 0, 22)
    for name, grid in (("ab", a), ("bc", b)):
        shift(grid, 1.0).save(tmp_path / f"{name}.mha")
    return tmp_path / "ab.mha", tmp_path / "bc.mha", a


def test_a_chain_in_the_wrong_order_is_told_of(chain):
    ab, bc, a = chain
    assert not told(lambda: load_chain([ab, bc], a))
    (message,) = told(lambda: load_chain([bc, ab], a))
    assert "ab.mha is on the grid of the reference" in message
    first, second = Transform.load(bc), Transform.load(ab)
    assert any("transform 2 is on the grid" in said for said in told(lambda: vrnet.compose(first, second, grid=a)))
    assert not told(lambda: vrnet.compose(second, first))


def test_a_chain_whose_grids_do_not_meet_is_told_of(d, chain, tmp_path):
    ab, _, a = chain
    shift(grid_at(d, 900), 1.0).save(tmp_path / "far.mha")
    (message,) = told(lambda: load_chain([ab, tmp_path / "far.mha"], a))
    assert "no point comes to lie in the grid of" in message
    assert "far.mha" in message
    (message,) = told(lambda: load_chain([tmp_path / "far.mha"], a))
    assert "nothing moves" in message


# Inverses


@pytest.mark.parametrize("degrees", [30, 150])
def test_a_deformation_with_a_large_affine_part_has_an_inverse_on_the_grid_of_moving(d, degrees):
    """Iteration alone does not find the way back from so far."""
    grid = Grid.plain((40, 36, 30)[:d], (2.0,) * d)
    centre = grid.points((np.array([grid.shape]) - 1) / 2)[0]
    affine = Affine("affine", 1.1 * turn(d, np.radians(degrees), 0.1, 0.2), np.full(d, 500.0), centre)
    whole = smooth_transform(grid, amplitude=2.0, sigma=6.0).followed_by(affine)
    moving = Grid(
        tuple(2 * n for n in grid.shape),
        grid.spacing,
        tuple((centre + 500 - np.multiply(grid.shape, 2.0)).tolist()),
        grid.direction,
    )
    back = whole.inverse(moving).transform
    x = grid.points(np.random.default_rng(0).uniform(6, np.array(grid.shape) - 7, (200, d)))
    assert np.percentile(np.linalg.norm(back.points(whole.points(x)) - x, axis=1), 95) < 0.2


def rigid(grid, degrees, shift):
    """A rotation about the centre of a grid, and a shift."""
    d, centre = len(grid.shape), grid.points((np.array([grid.shape]) - 1) / 2)[0]
    return Affine("rigid", turn(d, np.radians(degrees), 0.0, 0.0), np.full(d, shift), centre)


@pytest.mark.parametrize("shift", [0.0, 300.0])
def test_the_inverse_of_a_rigid_motion_is_that_of_simpleitk_up_to_the_edges_and_beyond(d, shift):
    """Nothing of the transform says what lies beyond its grid, but for the affine map that it is."""
    grid = Grid.plain((20, 24, 18)[:d], (1.5, 1.0, 2.0)[:d])
    affine = rigid(grid, 10.7, shift)
    back, residual = sample_transform(affine.itk, grid).inverse(turned(affine, grid))
    expected = sample_transform(affine.itk.GetInverse(), back.grid)
    assert_allclose(back.displacement, expected.displacement, atol=1e-4)
    assert residual.max() < 1e-3
    y = Grid(grid.shape, grid.spacing, tuple(o + shift + 6 for o in grid.origin), grid.direction)
    beyond, residual = sample_transform(affine.itk, grid).inverse(y)
    assert not grid.holds(affine.inverse().points(y.voxels())).all()
    assert_allclose(beyond.displacement, sample_transform(affine.itk.GetInverse(), y).displacement, atol=1e-4)
    assert residual.max() < 1e-3


def test_along_the_edges_of_fixed_a_deformation_with_an_affine_part_comes_back(d):
    """The motion beyond the affine part does not end at the border, and so must not the way back."""
    grid = Grid.plain((40, 36, 30)[:d], (2.0,) * d)
    deformation = smooth_transform(grid, amplitude=4.0, sigma=6.0)
    whole = deformation.followed_by(rigid(grid, 10.7, 5.0))
    back, residual = whole.inverse(grid_of_range(whole))
    assert residual.max() < 0.01
    x = grid.voxels()
    edge = (np.array(grid.shape) - 1 - (i := grid.index(x)) < 0.5).any(1) | (i < 0.5).any(1)
    assert np.linalg.norm(deformation.points(x[edge]) - x[edge], axis=1).mean() > 0.5
    assert np.percentile(np.linalg.norm(back.points(whole.points(x[edge])) - x[edge], axis=1), 95) < 0.3


def test_no_grid_is_made_for_a_voxel_that_leads_far_away(d, as_users_run):
    u = np.zeros((d, *[12] * d))
    u[(0, *[6] * d)] = 1e5
    with pytest.raises(BadInput, match="far apart"):
        grid_of_range(Transform(u, Grid.plain((12,) * d, (1.0,) * d)))
