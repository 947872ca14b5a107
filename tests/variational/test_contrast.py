"""Each of two images as the other would show it: curves, where they are learned, and how far they are trusted."""

import numpy as np
import pytest
import torch

from tests.conftest import SHAPES
from vrnet.variational.contrast import BINS, FLAT_SLOPE, LEAST_PART, Curve, Curves, learn_curves, trust


def squared_slope(I, h):
    """|∇I|² relative to its mean, by NumPy's differences between repeated borders."""
    inner = (slice(1, -1),) * I.ndim
    parts = np.gradient(np.pad(I, 1, mode="edge"), *h)
    slope = sum(part[inner] ** 2 for part in (parts if I.ndim > 1 else [parts]))
    return slope / slope.mean()


@pytest.mark.parametrize("masked", [False, True])
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
    line = torch.tensor([1.0]), torch.tensor([2.0])
    curves = Curves(Curve(*line, torch.tensor([[0.0, 1.0, 0.5]])), Curve(*line, torch.tensor([[1.0, 0.0, 0.0]])))
    I = torch.tensor([0.0, 0.25, 0.5, 0.75, 1.0]).view(1, 1, 1, 5)
    A0, A1 = curves.apply(I, I)
    torch.testing.assert_close(A0[0, 0, 0], torch.tensor([2.0, 2.75, 3.5, 3.5, 3.5]))
    torch.testing.assert_close(A1[0, 1, 0], torch.tensor([3.0, 2.75, 2.5, 2.75, 3.0]))
