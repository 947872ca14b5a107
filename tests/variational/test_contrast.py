"""Each of two images as the other would show it: curves, where they are learned, and how far they are trusted."""

import numpy as np
import pytest
import torch
from scipy import stats

from tests.conftest import SHAPES
from vrnet.variational.contrast import (
    BINS,
    FLAT_SLOPE,
    LEAST_PART,
    Curve,
    Curves,
    conditional_mean,
    joint_histogram,
    learn_curves,
    normalised_mutual_information,
    smooth_joint_histogram,
    trust,
)


def squared_slope(I, h):
    """|∇I|² relative to its mean, by NumPy's differences between repeated borders."""
    inner = (slice(1, -1),) * I.ndim
    parts = np.gradient(np.pad(I, 1, mode="edge"), *h)
    slope = sum(part[inner] ** 2 for part in (parts if I.ndim > 1 else [parts]))
    return slope / slope.mean()


@pytest.mark.parametrize(("masked", "d"), [(False, 2), (True, 3)])
def test_curves_are_the_means_of_groups_of_voxels_that_count_by_their_flatness(d, h, masked):
    """Σ wy / Σ w over the voxels with one x, and one more voxel of the line of least squares; w is 1 on average."""
    generator = torch.Generator().manual_seed(0)
    values = torch.randint(0, BINS, (2, 2, 1, *SHAPES[d]), generator=generator).double() / (BINS - 1)
    mask = torch.randint(0, 2, values[0].shape, generator=generator).double() if masked else None
    curves = learn_curves(*values, h, mask)
    for k in range(2):
        I0, I1 = values[:, k, 0].numpy()
        inside = np.ones_like(I0) if mask is None else mask[k, 0].numpy()
        w = 1 / (squared_slope(I0, h) + squared_slope(I1, h) + FLAT_SLOPE)
        w = inside * w / np.average(w, weights=inside)
        for curve, x, y in ((curves.forward, I0, I1), (curves.backward, I1, I0)):
            slope, offset = np.polyfit(x.ravel(), y.ravel(), 1, w=np.sqrt(w).ravel())
            for n in range(BINS):
                group, line = np.isclose(x, n / (BINS - 1)), slope * n / (BINS - 1) + offset
                expected = ((w * y)[group].sum() + line) / (w[group].sum() + 1)
                found = curve.slope[k] * n / (BINS - 1) + curve.offset[k] + curve.bend[k, n]
                assert found.item() == pytest.approx(expected)


def test_an_image_and_itself_are_shown_as_they_are_to_the_bit(d, h, smooth_image):
    I = smooth_image(SHAPES[d], 1.5, dtype=torch.float32)
    for shown in learn_curves(I, I.clone(), h).apply(I, I):
        assert torch.equal(shown, torch.cat([I, I], dim=1))


def test_a_direction_is_trusted_by_the_square_of_r_squared_over_one_less_it(d, random):
    A0, A1, weight = random(2, 2, *SHAPES[d]), random(2, 2, *SHAPES[d]), random(2, 1, *SHAPES[d]).abs()
    A1 = A0 + 0.4 * A1
    found = trust(A0, A1, weight)
    for k in range(2):
        w = weight[k, 0].numpy()
        for c, (target, guess) in enumerate(((A1[k, 0], A0[k, 0]), (A0[k, 1], A1[k, 1]))):
            y, p = target.numpy(), guess.numpy()
            left = np.average((y - p) ** 2, weights=w) / np.average((y - np.average(y, weights=w)) ** 2, weights=w)
            assert found[k, c].item() == pytest.approx(((1 - left) / left) ** 2)


def test_trust_has_limits(d, random):
    """Of a perfect prediction, one that says nothing, and one of nothing at all."""
    I, other = random(1, 2, *SHAPES[d]), random(1, 2, *SHAPES[d])
    most = ((1 - LEAST_PART) / LEAST_PART) ** 2
    torch.testing.assert_close(trust(I, I), torch.full((1, 2), most).double())
    torch.testing.assert_close(trust(I, 5 * other), torch.full((1, 2), 1 / most).double())
    assert trust(torch.zeros_like(I), torch.zeros_like(I)).isfinite().all()


def test_of_a_curve_without_an_inverse_the_direction_that_has_a_value_is_trusted(d, smooth_image):
    image = smooth_image((96, 96) if d == 2 else (24,) * 3, 2.5)
    rank = image.flatten().argsort().argsort().to(image)
    I0 = (rank / rank.max()).view(image.shape)  # every intensity is as frequent
    I1 = 1 - (2 * I0 - 1).square()  # two tissues become one
    A0, A1 = learn_curves(I0, I1, (1.0,) * d).apply(I0, I1)
    assert (A0[:, 0] - I1[:, 0]).abs().mean() < 0.02
    assert torch.equal(A0[:, 1:], I0)
    assert torch.equal(A1[:, :1], I1)
    forward, backward = trust(A0, A1)[0]
    assert forward > 20 * backward


def test_the_bend_runs_straight_between_the_centres_of_their_bins():
    line = torch.ones(1, 1, 1, 1), torch.full((1, 1, 1, 1), 2.0)
    curves = Curves(Curve(*line, torch.tensor([[0.0, 1.0, 0.5]])), Curve(*line, torch.tensor([[1.0, 0.0, 0.0]])))
    I = torch.tensor([0.0, 0.25, 0.5, 0.75, 1.0]).view(1, 1, 1, 5)
    A0, A1 = curves.apply(I, I)
    torch.testing.assert_close(A0[0, 0, 0], torch.tensor([2.0, 2.75, 3.5, 3.5, 3.5]))
    torch.testing.assert_close(A1[0, 1, 0], torch.tensor([3.0, 2.75, 2.5, 2.75, 3.0]))


FEW_BINS = 8


@pytest.fixture
def pair():
    """Two images whose values are centres of bins."""
    generator = torch.Generator().manual_seed(0)
    values = torch.randint(0, FEW_BINS, (2, 2, 1, 12, 9), generator=generator)
    return (values.double() / (FEW_BINS - 1)).unbind()


def test_the_joint_histogram_is_numpys():
    a, b = torch.rand(2, 3, 1, 20, 30, dtype=torch.float64).unbind()
    for counts, x, y in zip(joint_histogram(a, b, FEW_BINS), a, b, strict=True):
        theirs, _, _ = np.histogram2d(x.ravel().numpy(), y.ravel().numpy(), bins=FEW_BINS, range=[(0, 1), (0, 1)])
        np.testing.assert_array_equal(counts.numpy(), theirs)


def test_the_smooth_histogram_is_numpys_where_values_are_centres_of_bins(pair):
    a, b = pair
    edges = (np.arange(FEW_BINS + 1) - 0.5) / (FEW_BINS - 1)
    for counts, x, y in zip(smooth_joint_histogram(a, b, FEW_BINS), a, b, strict=True):
        theirs, _, _ = np.histogram2d(x.ravel().numpy(), y.ravel().numpy(), bins=(edges, edges))
        np.testing.assert_allclose(counts.numpy(), theirs, atol=1e-9)


def test_a_voxel_between_centres_is_shared_linearly():
    a, b = torch.full((1, 1, 1, 1), 0.25), torch.full((1, 1, 1, 1), 1.0)
    expected = torch.tensor([[0, 0, 0.5], [0, 0, 0.5], [0, 0, 0]])
    torch.testing.assert_close(smooth_joint_histogram(a, b, 3)[0], expected)


def test_the_weighted_histogram_is_numpys():
    a, b, w = torch.rand(3, 2, 1, 20, 30, dtype=torch.float64).unbind()
    for counts, *parts in zip(joint_histogram(a, b, FEW_BINS, w), a, b, w, strict=True):
        x, y, weights = (part.ravel().numpy() for part in parts)
        theirs, _, _ = np.histogram2d(x, y, bins=FEW_BINS, range=[(0, 1), (0, 1)], weights=weights)
        np.testing.assert_allclose(counts.numpy(), theirs)


def test_entropies_are_scipys(pair):
    a, b = pair
    counts = joint_histogram(a, b, FEW_BINS)
    nmi, joint = normalised_mutual_information(counts)
    for found, whole, table in zip(nmi, joint, counts.numpy(), strict=True):
        expected = stats.entropy(table.ravel())
        assert whole.item() == pytest.approx(expected)
        assert found.item() == pytest.approx((stats.entropy(table.sum(0)) + stats.entropy(table.sum(1))) / expected)


def test_an_image_says_all_of_itself_and_of_its_negative(pair):
    a, _ = pair
    for b in (a, 1 - a):
        torch.testing.assert_close(
            normalised_mutual_information(joint_histogram(a, b, FEW_BINS))[0], a.new_full((2,), 2.0)
        )
    constant = torch.full((1, 1, 4, 4), 0.3)
    assert normalised_mutual_information(joint_histogram(constant, constant, FEW_BINS))[0].item() == 2


def test_independent_images_say_next_to_nothing_of_each_other():
    a, b = torch.rand(2, 1, 1, 200, 200).unbind()
    assert 1 <= normalised_mutual_information(joint_histogram(a, b, FEW_BINS))[0].item() < 1.001


def test_the_conditional_mean_is_that_of_each_group(pair):
    """E[y | x] is the mean of y over the voxels with that x, and one more voxel of the mean of y."""
    x, y = pair
    found = conditional_mean(y, x, FEW_BINS)
    for mean, a, b in zip(found, x, y, strict=True):
        for value in a.unique():
            expected = (b[a == value].sum() + b.mean()) / ((a == value).sum() + 1)
            torch.testing.assert_close(mean[a == value], expected.expand(int((a == value).sum())))


def test_the_conditional_mean_takes_a_voxel_of_weight_two_for_two_voxels(pair):
    """And one of weight zero for none: beside NumPy's mean over each group of voxels so repeated."""
    x, y = pair
    weight = torch.randint(0, 3, x.shape).to(x)
    found = conditional_mean(y, x, FEW_BINS, weight)
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
