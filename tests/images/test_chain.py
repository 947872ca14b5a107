import numpy as np
import pytest
import SimpleITK as sitk
from numpy.testing import assert_allclose

from vrnet import Affine, BadInput, Grid, Image, Transform, compose
from vrnet.images.transforms import load_chain

SHAPES = {2: (20, 16), 3: (12, 10, 8)}


def grid(d, shift=0.0):
    return Grid(SHAPES[d], (1.5, 2.0, 4.0)[:d], (shift,) * d, tuple(np.eye(d).ravel().tolist()))


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
    index = np.stack([np.random.default_rng(k).integers(1, n - 1, 50) for k, n in enumerate(SHAPES[d])], axis=1)
    x = found.grid.points(index.astype(float))
    assert_allclose(found.points(x), [theirs.TransformPoint(point) for point in x.tolist()], atol=1e-9)
    one_by_one = parts[2].points(parts[1].points(parts[0].points(x)))
    assert_allclose(found.points(x), one_by_one, atol=1e-9)


def test_the_order_matters(d):
    a, b = wave(d, 2.0), wave(d, -1.0, shift=4.0)
    assert np.abs(compose(a, b).displacement - compose(b, a).displacement).max() > 0.05


def test_one_transform_is_itself(d):
    assert_allclose(compose(wave(d, 1.0)).displacement, wave(d, 1.0).displacement, atol=1e-12)


def test_an_affine_map_may_be_among_them(d):
    turn = Affine("affine", np.eye(d) * 1.1, np.ones(d), np.zeros(d))
    deform = wave(d, 1.0)
    assert_allclose(compose(deform, turn).displacement, deform.followed_by(turn).displacement, atol=1e-9)
    first = compose(turn, deform, grid=grid(d))
    x = grid(d).points(np.ones((1, d)))
    assert_allclose(first.points(x), deform.points(turn.points(x)), atol=1e-9)


def test_an_affine_map_comes_first_only_with_a_grid():
    with pytest.raises(BadInput, match="has no grid"):
        compose(Affine("rigid", np.eye(2), np.zeros(2), np.zeros(2)), wave(2, 1.0))


def test_what_is_no_transform_is_refused_in_words(as_users_run):
    with pytest.raises(BadInput, match="a Image is no transform"):
        compose(wave(2, 1.0), Image(np.eye(3), Grid.plain((3, 3), (1.0, 1.0))))


def test_transforms_have_one_dimension():
    with pytest.raises(BadInput, match="one dimension"):
        compose(wave(2, 1.0), wave(3, 1.0))


def test_files_one_after_another_are_their_composition(d, tmp_path):
    parts = [wave(d, 1.0), wave(d, -0.5)]
    for k, part in enumerate(parts):
        part.save(tmp_path / f"{k}.nii.gz")
    chained = load_chain([tmp_path / "0.nii.gz", tmp_path / "1.nii.gz"], grid(d))
    assert_allclose(chained.displacement, compose(*parts).displacement, atol=1e-3)


def test_a_transform_is_applied_to_images_of_other_libraries(d, tmp_path):
    """Given as SimpleITK, as nibabel or as a path, it is the same image."""
    image = Image(np.random.default_rng(0).random(SHAPES[d]).astype(np.float32), grid(d))
    sitk.WriteImage(image.to_sitk(), str(tmp_path / "image.nii.gz"))
    expected = wave(d, 1.0).apply(image).array
    for given in (image.to_sitk(), image.to_nibabel(), tmp_path / "image.nii.gz", str(tmp_path / "image.nii.gz")):
        assert_allclose(wave(d, 1.0).apply(given).array, expected, atol=1e-6)
