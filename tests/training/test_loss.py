import pytest
import torch

from tests.conftest import SHAPES
from vrnet.fields import warp
from vrnet.training.loss import SIAMESE, Loss, diffusion, huber


def test_the_loss_is_the_paper_s(d, random):
    """mean |I1(x + u) − I0| + α · the mean over axes of the mean squared forward difference."""
    I0, I1, u = (random(2, n, *SHAPES[d]).float() for n in (1, 1, d))
    differences = [(u.narrow(i, 1, u.shape[i] - 1) - u.narrow(i, 0, u.shape[i] - 1)) ** 2 for i in range(2, 2 + d)]
    expected = (warp(I1, u) - I0).abs().mean() + 0.3 * sum(part.mean() for part in differences) / d
    torch.testing.assert_close(Loss(0.3)(I0, I1, u), expected)


def test_the_siamese_loss_is_squares_and_huber(d, random):
    I0, I1, u = (random(2, n, *SHAPES[d]).float() for n in (1, 1, d))
    expected = (warp(I1, u) - I0).square().mean() + 1e-4 * huber(u)
    torch.testing.assert_close(SIAMESE(I0, I1, u), expected)
    assert huber(0 * u) == pytest.approx(0.1)
    slope = torch.arange(8.0).view(1, 1, 8, 1).expand(1, 2, 8, 8)
    assert huber(slope * 100) == pytest.approx(100 * 2**0.5 * 7 / 8 + 0.1 / 8, rel=1e-3)


def test_smoothness_sees_a_checkerboard(d):
    x = torch.stack(torch.meshgrid(*(torch.arange(6) for _ in range(d)), indexing="ij")).sum(0) % 2
    board = (2.0 * x - 1).expand(1, d, *x.shape)
    assert diffusion(board) == pytest.approx(4.0)
    assert diffusion(0 * board + 3) == 0


def test_no_motion_between_equal_images_costs_nothing(d, random):
    I = random(1, 1, *SHAPES[d]).float()
    assert Loss(0.1)(I, I, torch.zeros(1, d, *SHAPES[d])) == 0


def test_half_precision_fields_are_measured_in_single(random):
    I0, I1, u = (random(1, n, 24, 20).float() for n in (1, 1, 2))
    loss = Loss(0.1)(I0, I1, (30 * u).bfloat16())
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, Loss(0.1)(I0, I1, (30 * u).bfloat16().float()))
