from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.ndimage import gaussian_filter, map_coordinates
from torch import nn

from vrnet.fields.calculus import compose, exp, smooth, warp
from vrnet.fields.folds import smallest_determinant
from vrnet.methods.names import parse_trainable
from vrnet.networks.denoisers import FlowDataStep, Plain, Predict, Recurse, Residual, apply_padded, flow
from vrnet.variational.cascade import DataStep, State
from vrnet.variational.data_terms import L1, L2
from vrnet.variational.linearize import Masks, linearize


class Answer(nn.Module):
    """A network that answers by a function of what it is shown, the same as it is without one, and keeps that."""

    multiple = 16

    def __init__(self, answer=lambda x: x):
        super().__init__()
        self.answer = answer

    def forward(self, x):
        assert all(n % self.multiple == 0 for n in x.shape[2:])
        self.seen = x
        return self.answer(x)


@pytest.mark.parametrize(("d", "size"), [(2, 16), (3, 17), (2, 31), (3, 1)])
def test_any_size_is_padded_to_the_multiple_and_cropped_back(d, size, random):
    x = random(1, 2, *(size + 3 * i for i in range(d)))
    assert torch.equal(apply_padded(Answer(), x), x)


def test_fields_are_scaled_into_a_network_and_out_of_it(d, random):
    u, I = random(1, d, *(16,) * d), random(1, 1, *(16,) * d)
    state = State(u, linearize(I, I, u, (1.0,) * d))
    torch.testing.assert_close(Plain(Answer())(state).v, u)
    torch.testing.assert_close(Residual(Answer())(state).v, 2 * u)


def test_images_go_in_as_they_are_and_fields_come_out_scaled(d, random):
    I0, I1 = random(1, 1, *(16,) * d), random(1, 1, *(16,) * d)
    torch.testing.assert_close(Predict(Answer(lambda x: x[:, :1]))(I0, I1), 10 * I0)


def test_the_image_aware_denoiser_sees_moving_warped_by_the_field_it_is_given(d, random):
    """Whether that is the field of the linearisation or another."""
    I0, I1, at, u = random(1, 1, *(16,) * d), random(1, 1, *(16,) * d), *(random(1, d, *(16,) * d) for _ in range(2))
    net = Answer(lambda x: 0.1 * x[:, :1].expand(-1, d, *x.shape[2:]))
    fresh = State(at, linearize(I0, I1, at, (1.0,) * d))
    for state in (fresh, fresh.move_to(u)):
        field, v = state.v, Recurse(net)(state).v
        torch.testing.assert_close(net.seen, torch.cat([I0, warp(I1, field)], dim=1))
        torch.testing.assert_close(v, compose(field, I0.expand(-1, d, *I0.shape[2:])))


def test_networks_see_equal_images_where_they_are_not_compared(d, random):
    """At the start outside either mask, later where the weight is zero."""
    I0, I1, u = random(1, 1, *(16,) * d), random(1, 1, *(16,) * d), random(1, d, *(16,) * d)
    masks = Masks(torch.ones_like(I0), torch.ones_like(I0))
    masks.fixed[..., :5], masks.moving[..., 8:] = 0, 0
    net = Answer(lambda x: x[:, :1].expand(-1, d, *x.shape[2:]))
    Predict(net)(I0, I1, None, masks)
    F0, F1 = net.seen.split(1, dim=1)
    torch.testing.assert_close((F0 - F1)[..., 5:8], (I0 - I1)[..., 5:8])
    assert (F0 - F1)[..., :5].abs().max() < 1e-4
    assert (F0 - F1)[..., 8:].abs().max() < 1e-4
    lin = replace(linearize(I0, I1, u, (1.0,) * d), weight=masks.weight(u))
    Recurse(net)(State(u, lin))
    torch.testing.assert_close(net.seen, torch.cat([I0, I0 + lin.weight * (lin.I1w - I0)], dim=1))


SIZE = {2: (24, 20), 3: (14, 12, 13)}


def followed(velocity, steps=400):
    """Where a velocity, smoothed by SciPy, carries each voxel of one field in many short steps of Euler's."""
    v = np.stack([gaussian_filter(component, 1, mode="nearest", truncate=3) for component in velocity.numpy()])
    x = np.stack(np.meshgrid(*map(np.arange, v.shape[1:]), indexing="ij")).astype(float)
    place = x.copy()
    for _ in range(steps):
        place += np.stack([map_coordinates(component, place, order=1, mode="nearest") for component in v]) / steps
    return torch.from_numpy(place - x)


def folded(u):
    """The part of voxels at which a field folds, strictly."""
    return (smallest_determinant(u) <= 0).double().mean().item()


def some_velocity(d, smooth_image, size=4):
    return size * torch.cat([smooth_image(SIZE[d], 3, seed) - 0.5 for seed in range(d)], dim=1)


def test_a_flow_follows_the_smoothed_velocity(d, smooth_image):
    velocity = some_velocity(d, smooth_image, 6)
    expected = followed(velocity[0])
    error = (flow(velocity)[0] - expected).abs()
    assert expected.abs().max() > 1.5
    assert error.max() < 0.1
    assert error.mean() < 0.02


def test_a_flow_is_the_exponential_of_the_smoothed_velocity(d, random):
    velocity = random(2, d, *SIZE[d])
    torch.testing.assert_close(flow(velocity), exp(smooth(velocity, 1.0)))


def test_a_flow_of_one_field_does_not_depend_on_the_rest_of_its_batch(d, random):
    small, large = random(1, d, *SIZE[d]), 30 * random(1, d, *SIZE[d])
    torch.testing.assert_close(flow(torch.cat([small, large]))[:1], flow(small), rtol=0, atol=1e-12)


@pytest.mark.parametrize(("d", "seed"), [(2, 0), (3, 1)])
def test_the_flow_of_a_random_velocity_has_no_fold(d, seed):
    """Independent displacements of a voxel and a half, which fold everywhere as they are."""
    torch.manual_seed(seed)
    velocity = 1.5 * torch.randn(1, d, *SIZE[d])
    assert folded(velocity) > 0.2
    assert folded(flow(velocity)) == 0


@pytest.mark.parametrize(("d", "seed"), [(2, 0), (2, 1), (3, 2)])
def test_random_networks_do_not_fold_where_those_that_add_displacements_do(d, seed):
    """C is the same cascade without flows."""
    torch.manual_seed(seed)
    I0, I1 = torch.rand(2, 1, 1, *SIZE[d]).unbind(0)
    model, straight = (parse_trainable(f"{letter}-L2-3x1-w4").build(d) for letter in "DC")
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "head" in name:
                weight.normal_(std=0.2)
        straight.load_state_dict(dict(zip(straight.state_dict(), model.state_dict().values(), strict=True)))
        u, w = model(I0, I1), straight(I0, I1)
    assert u.abs().max() > 1
    assert folded(w) > 0.01
    assert folded(u) == 0


@pytest.mark.parametrize(("d", "name"), [(2, "D-L2-1x1-w2"), (3, "D-L1-1x1-w2"), (2, "D-L2-1x1-released-w2")])
def test_with_networks_that_say_nothing_it_is_the_smoothed_data_step(d, name, smooth_image):
    I0, I1 = (smooth_image(SIZE[d], 2, k) for k in (0, 1))
    model = parse_trainable(name).build(d).double()
    for parameter_name, weight in model.named_parameters():
        if "head" in parameter_name:
            nn.init.zeros_(weight)
    start = torch.zeros(1, d, *SIZE[d], dtype=torch.float64)
    term = L1() if "L1" in name else L2()
    move = term.prox(start, linearize(I0, I1, start, (1.0,) * d), torch.tensor(0.1, dtype=torch.float64))
    with torch.no_grad():
        found = model(I0, I1)
    error = (found[0] - followed(move[0])).abs()
    assert found.abs().max() > 0.3
    assert error.max() < 0.05
    assert error.mean() < 5e-3


def test_the_denoiser_is_composed_after_the_field_it_is_given(d, smooth_image):
    """Warping by the result is warping by the field, then by the flow."""
    shape = (16,) * d
    I0, I1 = (smooth_image(shape, 2, k) for k in (0, 1))
    u, velocity = (3 * torch.cat([smooth_image(shape, 4, k + i) - 0.5 for i in range(d)], 1) for k in (2, 7))
    net = Answer(lambda x: velocity / 10)
    v = Recurse(net, along_flow=True)(State(u, linearize(I0, I1, u, (1.0,) * d))).v
    torch.testing.assert_close(v, compose(u, flow(velocity)))
    torch.testing.assert_close(net.seen, torch.cat([I0, warp(I1, u)], dim=1))


def test_the_data_step_is_composed_after_the_field_it_is_given(d, smooth_image):
    I0, I1 = (smooth_image(SIZE[d], 2, k) for k in (0, 1))
    u = some_velocity(d, smooth_image)
    lin = linearize(I0, I1, u, (1.0,) * d)
    move = L2().prox(u, lin, torch.tensor(0.1, dtype=torch.float64)) - u
    found = FlowDataStep(DataStep(L2(), 0.1).double())(State(u, lin)).v
    torch.testing.assert_close(found, compose(u, flow(move)))
    assert (found - u - flow(move)).abs().max() > 0.01


def test_nothing_moves_by_the_data_where_the_images_are_not_compared(d, smooth_image):
    """Farther from the weight than the Gaussian reaches."""
    I0, I1 = (smooth_image(SIZE[d], 2, k) for k in (0, 1))
    u = some_velocity(d, smooth_image, 1)
    masks = Masks(torch.ones_like(I0), torch.ones_like(I0))
    masks.fixed[..., :9] = 0
    lin = replace(linearize(I0, I1, u, (1.0,) * d), weight=masks.weight(u))
    moved = (FlowDataStep(DataStep(L2()))(State(u, lin)).v - u).abs()
    assert moved[..., :4].max() < 1e-12
    assert moved[..., 9:].max() > 0.01


def test_fields_stay_in_single_precision_where_networks_compute_in_half(d, smooth_image):
    I0, I1 = (smooth_image((16,) * d, 2, k, torch.float32) for k in (0, 1))
    model = parse_trainable("D-L2-2x1-w4").build(d)
    with torch.autocast("cpu", torch.bfloat16):
        u = model(I0, I1)
        whole = flow(u)
    assert u.dtype == torch.float32
    assert torch.equal(whole, flow(u))
