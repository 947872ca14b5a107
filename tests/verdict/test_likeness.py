import numpy as np
import torch
from numpy.testing import assert_allclose
from scipy import ndimage, stats

from tests.conftest import SHAPES
from vrnet.verdict.placement import (
    BINS,
    NOISE,
    LocalCorrelation,
    best_of_shifts,
    intensity_range,
    mutual_information,
    window_sum,
)


def everywhere(image):
    return torch.ones_like(image, dtype=torch.bool)


def test_a_window_sums_what_scipy_does_inside_the_image(d, random):
    image, radius = random(1, 1, *SHAPES[d]).float(), (2, 1, 0)[:d]
    kernel = np.ones([2 * r + 1 for r in radius])
    expected = ndimage.convolve(image[0, 0].numpy(), kernel, mode="constant")
    assert_allclose(window_sum(image, radius)[0, 0].numpy(), expected, atol=1e-5)


def test_local_correlation_is_that_of_the_window(d, smooth_image):
    """NumPy's correlation coefficient over one window, noise added to both variances."""
    a, b = (smooth_image(SHAPES[d], 1.5, seed, torch.float32) for seed in (0, 1))
    measure, middle = LocalCorrelation(SHAPES[d], (2,) * d), tuple(n // 2 for n in SHAPES[d])
    box = tuple(slice(m - 2, m + 3) for m in middle)
    x, y = (image[0, 0].numpy()[box].ravel() for image in (a, b))
    expected = np.cov(x, y, ddof=0)[0, 1] ** 2 / ((x.var() + NOISE) * (y.var() + NOISE))
    found = measure.squared(measure.windows(a), measure.windows(b))
    assert_allclose(found[0, 0][middle].item(), expected, rtol=1e-3)


def test_local_correlation_does_not_mind_the_contrast(d, smooth_image):
    image = smooth_image(SHAPES[d], 1.0, 0, torch.float32)
    measure = LocalCorrelation(SHAPES[d], (2,) * d)
    a, inverted = measure.windows(image), measure.windows(1 - image)
    assert_allclose(measure.squared(a, inverted).numpy(), measure.squared(a, a).numpy(), atol=1e-3)


def test_a_shift_is_found_by_trying_shifts(d, smooth_image):
    """Moved by two voxels along an axis, the image fits again once it is moved back, but for a margin at the border."""
    image = smooth_image([3 * n for n in SHAPES[d]], 1.0, 0, torch.float32)
    measure = LocalCorrelation(tuple(image.shape[2:]), (2,) * d)
    a, b = measure.windows(image), measure.windows(image.roll(2, -1))
    inner = (..., *(slice(8, -8) for _ in range(d)))
    same = measure.squared(a, a)[inner]
    assert_allclose(best_of_shifts(measure, a, b, reach=3)[inner].numpy(), same.numpy(), atol=0.02)
    assert best_of_shifts(measure, a, b, reach=1)[inner].mean() < 0.9 * same.mean()


def test_mutual_information_is_that_of_numpys_histogram(random):
    a = random(1, 1, 200, 200).float().sigmoid()
    b = (a + 0.1 * random(1, 1, 200, 200).float()).clamp(0, 1)
    joint = np.histogram2d(a.numpy().ravel(), b.numpy().ravel(), BINS, [(0, 1), (0, 1)])[0]
    first, second, both = (stats.entropy(part) for part in (joint.sum(1), joint.sum(0), joint.ravel()))
    expected = (first + second - both) / np.sqrt(first * second)
    assert_allclose(mutual_information(a, b, everywhere(a)), expected, rtol=0.02)


def test_mutual_information_is_none_of_independent_images_and_all_of_a_renamed_one(random):
    noise, other = (random(1, 1, 64, 64).float().sigmoid() for _ in range(2))
    steps = (noise * BINS).floor() / BINS + 0.5 / BINS
    assert mutual_information(noise, other, everywhere(noise)) < 0.02
    assert mutual_information(steps, 1 - steps, everywhere(noise)) > 0.97
    assert mutual_information(noise, other, ~everywhere(noise)) == 0


def test_the_range_leaves_out_outliers_but_not_all():
    image = torch.linspace(0, 1, 1000).view(1, 1, 25, 40).clone()
    image[..., 0, 0] = -1e6
    found = intensity_range(image)
    assert 0 <= found.low < found.high <= 1
    spots = torch.zeros(1, 1, 30, 30)
    spots[..., 3, 4] = 7
    assert intensity_range(spots) == (0, 7)
