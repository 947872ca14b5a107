import pytest
import torch
from torch import nn

from tests.conftest import SHAPES
from vrnet.fields import zeros
from vrnet.variational.cascade import Cascade, DualStep, Step
from vrnet.variational.data_steps import DataStep, l1_step, l2_step
from vrnet.variational.denoisers import TV, Quadratic
from vrnet.variational.linearize import linearize


def from_zero(I0, I1, spacing):
    return zeros(I0)


def make_step(theta=0.1):
    return Step(DataStep(l2_step, theta), Quadratic(0.5, 1)).double()


def test_the_empty_cascade_is_its_initialiser(d, random):
    I0, I1, u = random(1, 1, *SHAPES[d]), random(1, 1, *SHAPES[d]), random(1, d, *SHAPES[d])
    assert torch.equal(Cascade(lambda I0, I1, spacing: u, [])(I0, I1), u)


def test_forward_is_algorithm_1_written_out(d, random):
    I0, I1, v = random(2, 1, *SHAPES[d]), random(2, 1, *SHAPES[d]), random(2, d, *SHAPES[d])
    step = make_step()
    result = Cascade(lambda I0, I1, spacing: v, [[step] * 2] * 3)(I0, I1)
    for _ in range(3):
        lin = linearize(I0, I1, v)
        for _ in range(2):
            u = l2_step(v, lin, step.data.log_theta.exp())
            v = Quadratic(0.5, 1)(u, lin)
    torch.testing.assert_close(result, v)


def test_iterate_yields_each_linearisation_and_each_step(random):
    I0, I1 = random(1, 1, 8, 8), random(1, 1, 8, 8)
    states = list(Cascade(from_zero, [[make_step()] * 2] * 3).iterate(I0, I1))
    assert [state.is_fresh for state in states] == [True, False, False] * 3
    assert torch.equal(states[-1].v, Cascade(from_zero, [[make_step()] * 2] * 3)(I0, I1))


def test_sharing_is_identity():
    step = make_step()
    shared, fresh = [[step] * 2] * 3, [[make_step() for _ in range(2)] for _ in range(3)]
    assert sum(p.numel() for p in Cascade(from_zero, shared).parameters()) == 1
    assert sum(p.numel() for p in Cascade(from_zero, fresh).parameters()) == 6
    assert len(Cascade(from_zero, shared).state_dict()) == 1


def test_every_theta_gets_gradient(random):
    cascade = Cascade(from_zero, [[make_step() for _ in range(2)] for _ in range(2)])
    cascade(random(1, 1, 8, 8), random(1, 1, 8, 8)).square().sum().backward()
    assert all(p.grad is not None and p.grad != 0 for p in cascade.parameters())


def test_a_warm_dual_brings_the_step_closer_to_the_exact_prox(random):
    """Steps that keep the dual, two iterations each, against steps with the exact TV prox."""
    I0, I1 = random(1, 1, 16, 16), random(1, 1, 16, 16)
    data, weight = DataStep(l1_step, 1.0).double(), 0.5
    with torch.no_grad():
        exact = Cascade(from_zero, [[Step(data, TV(weight, 200))] * 30])(I0, I1)
        warm = Cascade(from_zero, [[DualStep(data, TV(weight, 2))] * 30])(I0, I1)
        cold = Cascade(from_zero, [[Step(data, TV(weight, 2))] * 30])(I0, I1)
    assert (warm - exact).abs().mean() < (cold - exact).abs().mean() / 5


@pytest.mark.parametrize("denoise", [TV(0.5, 4), Quadratic(0.5, 2)])
def test_any_half_steps_fit_together(d, random, denoise):
    class Nothing(nn.Module):
        def forward(self, v, lin):
            return v

    cascade = Cascade(from_zero, [[Step(Nothing(), denoise)]])
    u = cascade(random(1, 1, *SHAPES[d]), random(1, 1, *SHAPES[d]))
    assert u.shape == (1, d, *SHAPES[d])
    assert not u.any()
