import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from tests.conftest import SHAPES
from vrnet.images.grid import Grid
from vrnet.images.image import Image, rescale_each, rescale_images_jointly, rescale_jointly


def test_both_images_go_through_one_line_that_ends_at_their_joint_percentiles(d, random):
    """Equal values stay equal, or brightness constancy would be lost; outliers are clipped."""
    I0, I1 = 300 * random(1, 1, *SHAPES[d]) + 1000, 500 * random(1, 1, *SHAPES[d]) + 900
    low, high = np.percentile(np.stack([I0, I1]), (1, 99))
    for given, rescaled in zip((I0, I1), rescale_jointly(I0, I1), strict=True):
        assert_allclose(rescaled, np.clip((given.numpy() - low) / (high - low), 0, 1), atol=1e-6)
        assert rescaled.dtype == torch.float32


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_few_bright_voxels_on_an_even_ground_go_by_least_and_greatest(dtype):
    I0, I1 = torch.full((2, 1, 1, 32, 32), 5.0, dtype=dtype)
    I0[..., 3, 4], I1[..., 5, 6] = 9.0, 7.0
    J0, J1 = rescale_jointly(I0, I1)
    assert (J0[..., 3, 4], J1[..., 5, 6]) == (1.0, 0.5)
    assert J0.sum() == 1
    assert J1.sum() == 0.5


def test_the_images_may_differ_in_shape(random):
    J0, J1 = rescale_jointly(random(8, 8), random(5, 6, 7))
    assert J0.shape == (8, 8)
    assert J1.shape == (5, 6, 7)


def test_each_alone_ends_at_its_own_percentiles(random):
    I0, I1 = random(16, 12), 1000 * random(9, 8, 7) - 50
    for given, rescaled in zip((I0, I1), rescale_each(I0, I1), strict=True):
        low, high = np.percentile(given, (1, 99))
        assert_allclose(rescaled, np.clip((given.numpy() - low) / (high - low), 0, 1), atol=1e-6)


@pytest.mark.parametrize("dtype", ["u2", "i4", "f4", ">f8"])
def test_images_of_any_type_and_shape_are_scaled_jointly_where_they_are(dtype):
    rng = np.random.default_rng(0)
    images = [Image((900 * rng.random(s)).astype(dtype), Grid.plain(s, (1.5, 2.0)), str(s)) for s in ((8, 9), (5, 7))]
    low, high = np.percentile(np.concatenate([image.array.ravel() for image in images]), (1, 99))
    for image, rescaled in zip(images, rescale_images_jointly(*images), strict=True):
        expected = np.clip((image.array.astype(float) - low) / (high - low), 0, 1)
        assert_allclose(rescaled.array, expected, atol=1e-6)
        assert rescaled.array.dtype == np.float32
        assert (rescaled.grid, rescaled.name) == (image.grid, image.name)


@pytest.mark.parametrize("rescale", [rescale_jointly, rescale_each])
def test_only_what_is_inside_counts(random, rescale):
    """An outlier outside the mask of its image changes nothing inside."""
    I0, I1 = random(40, 40), random(30, 30)
    masks = [torch.ones(40, 40, dtype=torch.bool), None]
    masks[0][:5] = False
    bright = torch.where(masks[0], I0, 1e4)
    for a, b in zip(rescale(I0, I1, inside=masks), rescale(bright, I1, inside=masks), strict=True):
        assert torch.equal(a[5:], b[5:])
    low, high = np.percentile(
        I0[5:] if rescale is rescale_each else torch.cat([I0[5:].flatten(), I1.flatten()]), (1, 99)
    )
    expected = ((I0 - low) / (high - low)).clamp(0, 1).float()
    torch.testing.assert_close(rescale(I0, I1, inside=masks)[0], expected)
