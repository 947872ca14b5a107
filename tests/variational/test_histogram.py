import numpy as np
import pytest
import torch
from scipy import stats

from vrnet.variational.contrast import (
    conditional_mean,
    joint_histogram,
    normalised_mutual_information,
    smooth_joint_histogram,
)

BINS = 8


@pytest.fixture
def pair():
    """Two images whose values are centres of bins."""
    generator = torch.Generator().manual_seed(0)
    values = torch.randint(0, BINS, (2, 2, 1, 12, 9), generator=generator)
    return (values.double() / (BINS - 1)).unbind()


def test_the_joint_histogram_is_numpys():
    a, b = torch.rand(2, 3, 1, 20, 30, dtype=torch.float64).unbind()
    for counts, x, y in zip(joint_histogram(a, b, BINS), a, b, strict=True):
        theirs, _, _ = np.histogram2d(x.ravel().numpy(), y.ravel().numpy(), bins=BINS, range=[(0, 1), (0, 1)])
        np.testing.assert_array_equal(counts.numpy(), theirs)


def test_the_smooth_histogram_is_numpys_where_values_are_centres_of_bins(pair):
    a, b = pair
    edges = (np.arange(BINS + 1) - 0.5) / (BINS - 1)
    for counts, x, y in zip(smooth_joint_histogram(a, b, BINS), a, b, strict=True):
        theirs, _, _ = np.histogram2d(x.ravel().numpy(), y.ravel().numpy(), bins=(edges, edges))
        np.testing.assert_allclose(counts.numpy(), theirs, atol=1e-9)


def test_a_voxel_between_centres_is_shared_linearly():
    a, b = torch.full((1, 1, 1, 1), 0.25), torch.full((1, 1, 1, 1), 1.0)
    expected = torch.tensor([[0, 0, 0.5], [0, 0, 0.5], [0, 0, 0]])
    torch.testing.assert_close(smooth_joint_histogram(a, b, 3)[0], expected)


def test_the_weighted_histogram_is_numpys():
    a, b, w = torch.rand(3, 2, 1, 20, 30, dtype=torch.float64).unbind()
    for counts, *parts in zip(joint_histogram(a, b, BINS, w), a, b, w, strict=True):
        x, y, weights = (part.ravel().numpy() for part in parts)
        theirs, _, _ = np.histogram2d(x, y, bins=BINS, range=[(0, 1), (0, 1)], weights=weights)
        np.testing.assert_allclose(counts.numpy(), theirs)


@pytest.mark.parametrize("histogram", [joint_histogram, smooth_joint_histogram])
def test_every_voxel_counts_once(histogram):
    a, b = torch.rand(2, 3, 1, 5, 6, 7, dtype=torch.float64).unbind()
    torch.testing.assert_close(histogram(a, b, 32).sum((1, 2)), torch.full((3,), 210.0, dtype=torch.float64))


def test_entropies_are_scipys(pair):
    a, b = pair
    counts = joint_histogram(a, b, BINS)
    nmi, joint = normalised_mutual_information(counts)
    for found, whole, table in zip(nmi, joint, counts.numpy(), strict=True):
        expected = stats.entropy(table.ravel())
        assert whole.item() == pytest.approx(expected)
        assert found.item() == pytest.approx((stats.entropy(table.sum(0)) + stats.entropy(table.sum(1))) / expected)


def test_an_image_says_all_of_itself_and_of_its_negative(pair):
    a, _ = pair
    for b in (a, 1 - a):
        torch.testing.assert_close(normalised_mutual_information(joint_histogram(a, b, BINS))[0], a.new_full((2,), 2.0))


def test_independent_images_say_next_to_nothing_of_each_other():
    a, b = torch.rand(2, 1, 1, 200, 200).unbind()
    assert 1 <= normalised_mutual_information(joint_histogram(a, b, BINS))[0].item() < 1.001


def test_the_conditional_mean_is_that_of_each_group(pair):
    """E[y | x] is the mean of y over the voxels with that x, and one more voxel of the mean of y."""
    x, y = pair
    found = conditional_mean(y, x, BINS)
    for mean, a, b in zip(found, x, y, strict=True):
        for value in a.unique():
            expected = (b[a == value].sum() + b.mean()) / ((a == value).sum() + 1)
            torch.testing.assert_close(mean[a == value], expected.expand(int((a == value).sum())))


def test_the_conditional_mean_takes_a_voxel_of_weight_two_for_two_voxels(pair):
    """And one of weight zero for none: beside NumPy's mean over each group of voxels so repeated."""
    x, y = pair
    weight = torch.randint(0, 3, x.shape).to(x)
    found = conditional_mean(y, x, BINS, weight)
    for parts in zip(found, x, y, weight, strict=True):
        seen, a, b, w = (part.ravel().numpy() for part in parts)
        for value in np.unique(a):
            group = np.repeat(b[a == value], w[a == value].astype(int))
            expected = (group.sum() + np.average(b, weights=w)) / (group.size + 1)
            np.testing.assert_allclose(seen[a == value], expected)


def test_a_function_of_an_image_is_predicted_from_it():
    x = torch.linspace(0, 1, 4096, dtype=torch.float64).view(1, 1, 64, 64)
    y = (3 * x).sin()
    assert (conditional_mean(y, x, 64) - y).abs().max() < 0.04


def test_constant_images_say_all_of_each_other():
    a = torch.full((1, 1, 4, 4), 0.3)
    assert normalised_mutual_information(joint_histogram(a, a, BINS))[0].item() == 2


def test_a_million_voxels_are_counted_in_single_precision_too():
    x = torch.zeros(1, 1, 4096, 4096)
    y = torch.full_like(x, 0.022)
    torch.testing.assert_close(conditional_mean(y, x, 32), y)
