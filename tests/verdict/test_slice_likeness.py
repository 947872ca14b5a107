"""What of each slice is not found again: as of a pair, where slices show as much."""

import numpy as np
import pytest

from vrnet.phantom.cycle import cycle
from vrnet.verdict.cine import unmatched_by_slice
from vrnet.verdict.evidence import gather


@pytest.fixture(scope="module")
def heart():
    return cycle(3, shape=(64, 64), spacing=(2.8, 2.8), frames=3).frames.numpy()[0]


@pytest.fixture(scope="module")
def other(heart):
    """One heart in four slices: as it is, shifted, noise, and dark with another contrast."""
    noise = np.random.default_rng(0).random(heart.shape, np.float32)
    return np.stack([heart, np.roll(heart, 9, 0), noise, 0.5 - 0.4 * heart], -1)


def test_noise_is_unmatched_and_another_contrast_is_not(heart, other):
    fixed = np.stack([heart] * 4, -1)
    same, shifted, noise, inverted = unmatched_by_slice(fixed, other, other, (2.8, 2.8, 10.0), 2)
    assert same == 0
    assert 0.2 < shifted < noise
    assert noise > 0.8
    assert inverted < 0.05


def test_the_mean_of_slices_that_show_as_much_is_that_of_the_whole(heart, other):
    fixed, spacing = np.stack([heart] * 4, -1), (2.8, 2.8, 10.0)
    whole = gather(fixed, other, other, np.zeros((3, *fixed.shape), np.float32), spacing, 0.0)
    assert unmatched_by_slice(fixed, other, other, spacing, 2).mean() == pytest.approx(whole.unmatched, abs=1e-5)


def test_slices_may_lie_across_any_axis_and_an_empty_one_has_nothing_to_match(heart, other):
    fixed = np.stack([heart, heart, 0 * heart, heart], -1)
    turned = (np.moveaxis(each, -1, 0) for each in (fixed, other, other))
    found = unmatched_by_slice(*turned, (10.0, 2.8, 2.8), 0)
    assert found == pytest.approx(unmatched_by_slice(fixed, other, other, (2.8, 2.8, 10.0), 2))
    assert found[2] == 0


@pytest.mark.parametrize("across", range(3))
def test_large_slices_are_judged_as_blocks_but_never_put_together(heart, across):
    """Twice as many voxels along each side are averaged in pairs; slices that lie close stay apart."""
    fixed = np.repeat(np.repeat(np.stack([heart] * 12, -1), 2, 0), 2, 1)
    noisy = fixed.copy()
    noisy[..., 5] = np.random.default_rng(0).random(fixed.shape[:2])
    turned = (np.moveaxis(each, -1, across) for each in (fixed, noisy, noisy))
    found = unmatched_by_slice(*turned, (1.4, 1.4, 1.4), across)
    assert found.shape == (12,)
    assert found[5] > 0.5
    assert not np.delete(found, 5).any()
