from dataclasses import replace

import pytest
import torch
from torch import nn

from tests.conftest import SHAPES
from vrnet.fields.calculus import compose, smooth
from vrnet.variational.cascade import LONGEST_MOVE, Cascade, ComposedDataStep, DataStep, Denoise, State, Step, no_motion
from vrnet.variational.data_terms import L1, L2
from vrnet.variational.linearize import linearize
from vrnet.variational.regularizers import TV, Bending, Diffusion, Gaussian


def make_step(theta=0.1):
    return Step(DataStep(L2(), theta), Denoise(Diffusion(), 0.5)).double()


def test_the_empty_cascade_is_its_initialiser(d, random):
    I0, I1, u = random(1, 1, *SHAPES[d]), random(1, 1, *SHAPES[d]), random(1, d, *SHAPES[d])
    assert torch.equal(Cascade(lambda I0, I1, spacing, masks: u, [])(I0, I1), u)


def test_forward_is_algorithm_1_written_out(d, random):
    I0, I1, v = random(2, 1, *SHAPES[d]), random(2, 1, *SHAPES[d]), random(2, d, *SHAPES[d])
    step = make_step()
    result = Cascade(lambda I0, I1, spacing, masks: v, [[step] * 2] * 3)(I0, I1)
    for _ in range(3):
        lin = linearize(I0, I1, v, (1.0,) * d)
        for _ in range(2):
            u = L2().prox(v, lin, step.first.log_theta.exp())
            v, _ = Diffusion().prox(u, 0.5, (1.0,) * d, None)
    torch.testing.assert_close(result, v)


def test_refine_yields_each_linearisation_and_each_step(random):
    I0, I1 = random(1, 1, 8, 8), random(1, 1, 8, 8)
    states = list(Cascade(no_motion, [[make_step()] * 2] * 3).refine(no_motion(I0, I1), I0, I1))
    assert [state.is_fresh for state in states] == [True, False, False] * 3
    assert torch.equal(states[-1].v, Cascade(no_motion, [[make_step()] * 2] * 3)(I0, I1))


def test_sharing_is_identity():
    step = make_step()
    shared, fresh = [[step] * 2] * 3, [[make_step() for _ in range(2)] for _ in range(3)]
    assert sum(p.numel() for p in Cascade(no_motion, shared).parameters()) == 1
    assert sum(p.numel() for p in Cascade(no_motion, fresh).parameters()) == 6
    assert len(Cascade(no_motion, shared).state_dict()) == 1


def test_every_theta_gets_gradient(random):
    cascade = Cascade(no_motion, [[make_step() for _ in range(2)] for _ in range(2)])
    cascade(random(1, 1, 8, 8), random(1, 1, 8, 8)).square().sum().backward()
    assert all(p.grad is not None and p.grad != 0 for p in cascade.parameters())


class Forget(Denoise):
    """A denoiser whose memory is lost at each step."""

    def forward(self, state):
        return replace(super().forward(state), memory=None)


def test_a_remembered_dual_brings_the_step_closer_to_the_exact_prox(random):
    """Steps that keep the dual, two iterations each, against steps with the exact TV prox."""
    I0, I1 = random(1, 1, 16, 16), random(1, 1, 16, 16)
    data, weight = DataStep(L1(), 1.0).double(), 0.5
    with torch.no_grad():
        exact = Cascade(no_motion, [[Step(data, Forget(TV(100), weight))] * 20])(I0, I1)
        warm = Cascade(no_motion, [[Step(data, Denoise(TV(2), weight))] * 20])(I0, I1)
        cold = Cascade(no_motion, [[Step(data, Forget(TV(2), weight))] * 20])(I0, I1)
    assert (warm - exact).abs().mean() < (cold - exact).abs().mean() / 5


def test_the_released_order_is_the_step_with_its_parts_exchanged(d, random):
    I0, I1, v = random(1, 1, *SHAPES[d]), random(1, 1, *SHAPES[d]), random(1, d, *SHAPES[d])
    data, denoise = DataStep(L2()).double(), Denoise(Diffusion(), 0.5)
    released = Cascade(lambda I0, I1, spacing, masks: v, [[Step(denoise, data)]])(I0, I1)
    lin = linearize(I0, I1, v, (1.0,) * d)
    smooth, _ = Diffusion().prox(v, 0.5, (1.0,) * d, None)
    torch.testing.assert_close(released, L2().prox(smooth, lin, data.log_theta.exp()))


def test_replacing_a_part_replaces_it_wherever_it_is_used(d, random):
    I0, I1 = random(1, 1, *SHAPES[d]), random(1, 1, *SHAPES[d])
    cascade = Cascade(no_motion, [[make_step()] * 2] * 3)
    cascade.parts[0] = other = Step(nn.Identity(), Denoise(Diffusion(), 0.5))
    assert all(step is other for inner in cascade.steps for step in inner)
    assert not cascade(I0, I1).any()


@pytest.mark.parametrize(("regularizer", "d"), [(TV(4), 2), (Bending(), 3)])
def test_any_half_steps_fit_together(d, random, regularizer):
    cascade = Cascade(no_motion, [[Step(nn.Identity(), Denoise(regularizer, 0.5))]])
    u = cascade(random(1, 1, *SHAPES[d]), random(1, 1, *SHAPES[d]))
    assert u.shape == (1, d, *SHAPES[d])
    assert not u.any()


def test_a_composed_step_is_the_smoothed_move_after_the_field(d, random):
    I0, I1, v = random(1, 1, *SHAPES[d]), random(1, 1, *SHAPES[d]), random(1, d, *SHAPES[d])
    state, data = State(v, linearize(I0, I1, v, (1.0,) * d)), DataStep(L2(), theta=1e3)  # which moves little
    move = smooth(data(state).v - v, 1.5)
    assert move.square().sum(1).max() < LONGEST_MOVE**2
    torch.testing.assert_close(ComposedDataStep(data, fluid=1.5)(state).v, compose(v, move))


def test_momentum_adds_a_part_of_the_last_move(d, random):
    """Also after the next linearisation, and of the move as it was before it was cut short."""
    I0, I1, v = random(1, 1, *SHAPES[d]), random(1, 1, *SHAPES[d]), random(1, d, *SHAPES[d])
    data, h, total = DataStep(L2(), theta=1.0), (1.0,) * d, 0
    step = Step(ComposedDataStep(data, 1.5, momentum=0.7), Denoise(Gaussian(), 0.5))
    with torch.no_grad():
        result = Cascade(lambda I0, I1, spacing, masks: v, [[step] * 2] * 2)(I0, I1)
        for _ in range(2):
            lin = linearize(I0, I1, v, h)
            for _ in range(2):
                total = 0.7 * total + smooth(data(State(v, lin)).v - v, 1.5)
                cut = total / (total.square().sum(1, keepdim=True).sqrt() / LONGEST_MOVE).clamp(min=1)
                v = smooth(compose(v, cut), 0.5)
    torch.testing.assert_close(result, v)


def test_a_composed_step_moves_no_point_farther_than_half_a_voxel(d, random):
    I0, I1, v = random(1, 1, *SHAPES[d]), random(1, 1, *SHAPES[d]), torch.zeros(1, d, *SHAPES[d]).double()
    state, data = State(v, linearize(I0, I1, v, (1.0,) * d)), DataStep(L2(), theta=1e-6)
    move, free = ComposedDataStep(data, fluid=0.5)(state).v, smooth(data(state).v, 0.5)
    length, wanted = (w.square().sum(1).sqrt() for w in (move, free))
    assert wanted.max() > 0.5
    torch.testing.assert_close(length, wanted.clamp(max=0.5))
    torch.testing.assert_close(move * wanted[:, None], free * length[:, None], msg="the direction is kept")
