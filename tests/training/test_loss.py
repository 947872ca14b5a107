import pytest
import torch

from tests.conftest import SHAPES
from vrnet.errors import BadInput
from vrnet.fields import warp
from vrnet.methods.names import parse_trainable
from vrnet.training.loss import Loss, make_loss
from vrnet.variational.data_terms import L1, L2
from vrnet.variational.regularizers import Bending, Diffusion, Huber


def test_the_loss_is_the_paper_s(d, random):
    """mean |I1(x + u) − I0| + α · the mean over axes of the mean squared forward difference."""
    I0, I1, u = (random(2, n, *SHAPES[d]).float() for n in (1, 1, d))
    differences = [(u.narrow(i, 1, u.shape[i] - 1) - u.narrow(i, 0, u.shape[i] - 1)) ** 2 for i in range(2, 2 + d)]
    expected = (warp(I1, u) - I0).abs().mean() + 0.3 * sum(part.mean() for part in differences) / d
    torch.testing.assert_close(Loss(0.3)(I0, I1, u), expected)


def test_the_siamese_loss_is_squares_and_huber(d, random):
    I0, I1, u = (random(2, n, *SHAPES[d]).float() for n in (1, 1, d))
    terms = parse_trainable("Siamese").loss
    expected = (warp(I1, u) - I0).square().mean() + 1.5 * Huber().loss(u)
    torch.testing.assert_close(make_loss(terms, terms.alpha)(I0, I1, u), expected)


def test_a_method_brings_its_terms_and_others_may_be_asked_for():
    own = parse_trainable("R-L2-2x1").loss
    assert make_loss(own, 0.1) == Loss(0.1, L1(), Diffusion())
    assert make_loss(own, 0.1, "L2", "Bending") == Loss(0.1, L2(), Bending())
    for wrong in ({"similarity": "L3"}, {"smoothness": "L1"}, {"smoothness": "Gaussian"}):
        with pytest.raises(BadInput, match="choose one of"):
            make_loss(own, 0.1, **wrong)


def test_no_motion_between_equal_images_costs_nothing(d, random):
    I = random(1, 1, *SHAPES[d]).float()
    assert Loss(0.1)(I, I, torch.zeros(1, d, *SHAPES[d])) == 0


def test_half_precision_fields_are_measured_in_single(random):
    I0, I1, u = (random(1, n, 24, 20).float() for n in (1, 1, 2))
    loss = Loss(0.1)(I0, I1, (30 * u).bfloat16())
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, Loss(0.1)(I0, I1, (30 * u).bfloat16().float()))


@pytest.mark.parametrize("smoothness", ["TV", "Diffusion", "Bending", "Huber"])
def test_every_penalty_has_a_gradient_where_nothing_moves(d, random, smoothness):
    """And smooths: a step against its gradient lowers it."""
    loss = make_loss(parse_trainable("VoxelMorph").loss, 1.0, smoothness=smoothness).smoothness.loss
    still = torch.zeros(1, d, *SHAPES[d], requires_grad=True)
    loss(still).backward()
    assert still.grad.isfinite().all()
    u = random(1, d, *SHAPES[d]).requires_grad_()
    before = loss(u)
    before.backward()
    assert loss(u.detach() - 1e-2 * u.grad) < before
