from itertools import product

import numpy as np
import pytest
import torch
from scipy import ndimage

from vrnet.variational.data_terms import LNCC, MIND, local_mean

SHAPE = {2: (9, 7), 3: (6, 7, 5)}


def locally_normalised(I, radius, epsilon, h):
    return LNCC((radius,), epsilon).channels(I, h)


def self_similarity(I, distance, radius, h):
    return MIND(distance, radius).channels(I, h)


@pytest.fixture
def image(d):
    generator = torch.Generator().manual_seed(d)
    return torch.rand(2, 1, *SHAPE[d], dtype=torch.float64, generator=generator)


def neighbour(I, x, offset):
    """I at x + offset, the border repeated."""
    place = tuple(min(max(a + b, 0), n - 1) for a, b, n in zip(x, offset, I.shape, strict=True))
    return I[place]


def direct_self_similarity(I, distance, radius):
    """MIND-SSC by its definition, voxel by voxel: the channels in the order of pairs of neighbours."""
    d = I.ndim
    around = [tuple(sign * distance if axis == i else 0 for i in range(d)) for axis in range(d) for sign in (-1, 1)]
    pairs = [(a, b) for k, a in enumerate(around) for b in around[k + 1 :] if np.dot(a, b) == 0]
    patch = list(product(range(-radius, radius + 1), repeat=d))
    squares = np.zeros((len(pairs), *I.shape))
    for channel, (a, b) in enumerate(pairs):
        difference = np.zeros(I.shape)
        for x in np.ndindex(*I.shape):
            difference[x] = (neighbour(I, x, a) - neighbour(I, x, b)) ** 2
        for x in np.ndindex(*I.shape):
            squares[(channel, *x)] = np.mean([neighbour(difference, x, step) for step in patch])
    squares -= squares.min(0)
    variance = squares.mean(0)
    return np.exp(-squares / np.clip(variance, 1e-3 * variance.mean(), 1e3 * variance.mean()))


def test_local_mean_is_scipys_uniform_filter(image, d):
    for radius in (1, 3, 13):  # the last reaches beyond the image
        ours = local_mean(image, (radius,) * d)[0, 0].numpy()
        np.testing.assert_allclose(ours, ndimage.uniform_filter(image[0, 0].numpy(), 2 * radius + 1, mode="nearest"))


def test_local_normalisation_has_mean_0_and_variance_1_where_its_box_is_the_image(d):
    """In a box that holds the whole of a periodic pattern, the normalised pattern is standardised."""
    pattern = torch.tensor([0.0, 1.0, 5.0], dtype=torch.float64).repeat(9)
    I = pattern.view(1, 1, *[1] * (d - 1), -1).expand(1, 1, *[5] * (d - 1), -1)
    inner = locally_normalised(I, radius=4.0, epsilon=0.0, h=(1.0,) * d)[..., 12:15]
    assert inner.mean().abs() < 1e-12
    assert (inner.square().mean() - 1).abs() < 1e-12


def test_local_normalisation_forgets_brightness_and_contrast(image, d):
    h = (1.0,) * d
    torch.testing.assert_close(
        locally_normalised(5 * image + 3, 2.0, 0.0, h), locally_normalised(image, 2.0, 0.0, h), rtol=1e-6, atol=1e-6
    )


def test_a_box_has_one_size_in_space_whatever_the_voxels(d):
    """A slice as thick as the box is as wide has no neighbours in it."""
    slices = torch.rand(1, 1, *SHAPE[d], dtype=torch.float64)
    h = (1.0,) * (d - 1) + (9.0,)
    alone = torch.stack(
        [locally_normalised(part[..., None], 2.0, 0.1, h)[..., 0] for part in slices.unbind(-1)], dim=-1
    )
    torch.testing.assert_close(locally_normalised(slices, 2.0, 0.1, h), alone)


@pytest.mark.parametrize(("distance", "radius", "d"), [(1, 1, 3), (2, 1, 2)])
def test_self_similarity_is_mind_ssc_by_its_definition(image, d, distance, radius):
    ours = self_similarity(image, float(distance), float(radius), (1.0,) * d)
    assert ours.shape[1] == {2: 4, 3: 12}[d]
    for mine, I in zip(ours, image, strict=True):
        np.testing.assert_allclose(mine.numpy(), direct_self_similarity(I[0].numpy(), distance, radius))


def test_self_similarity_does_not_know_which_tissue_is_bright(image, d):
    torch.testing.assert_close(
        self_similarity(1 - 3 * image, 2.0, 1.0, (1.0,) * d), self_similarity(image, 2.0, 1.0, (1.0,) * d)
    )


def test_the_variance_of_self_similarity_is_held_within_limits_of_its_mean(d):
    """Noise of a millionth beside an edge: as good as flat, it is like itself in all directions."""
    noise = torch.rand(1, 1, *[8] * (d - 1), 20, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    I = 1e-6 * noise
    I[..., 14:] += 1
    flat = self_similarity(I, 1.0, 1.0, (1.0,) * d)[..., 4:8]
    assert flat.min() > 0.999
    assert self_similarity(0 * I + 0.5, 2.0, 1.0, (1.0,) * d).isfinite().all()
