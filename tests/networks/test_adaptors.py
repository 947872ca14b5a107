from dataclasses import replace

import pytest
import torch
from torch import nn

from vrnet.fields.calculus import compose, warp
from vrnet.networks.denoisers import Plain, Predict, Recurse, Residual, apply_padded
from vrnet.variational.cascade import State
from vrnet.variational.linearize import Masks, linearize


class Copy(nn.Module):
    """The first k channels, and a note of the size it was given."""

    multiple = 16

    def __init__(self, k):
        super().__init__()
        self.k = k

    def forward(self, x):
        self.shape = tuple(x.shape[2:])
        assert all(n % self.multiple == 0 for n in self.shape)
        return x[:, : self.k]


@pytest.mark.parametrize("size", [16, 17, 31, 5, 1])
def test_any_size_is_padded_to_the_multiple_and_cropped_back(d, size, random):
    x = random(1, 2, *(size + 3 * i for i in range(d)))
    assert torch.equal(apply_padded(Copy(2), x), x)


def test_fields_are_scaled_into_a_network_and_out_of_it(d, random):
    u, I = random(1, d, *(16,) * d), random(1, 1, *(16,) * d)
    state = State(u, linearize(I, I, u, (1.0,) * d))
    torch.testing.assert_close(Plain(Copy(d))(state).v, u)
    torch.testing.assert_close(Residual(Copy(d))(state).v, 2 * u)


def test_images_go_in_as_they_are_and_fields_come_out_scaled(d, random):
    I0, I1 = random(1, 1, *(16,) * d), random(1, 1, *(16,) * d)
    torch.testing.assert_close(Predict(Copy(1))(I0, I1), 10 * I0)


def test_the_image_aware_denoiser_sees_moving_warped_by_the_field_it_is_given(d, random):
    """Whether that is the field of the linearisation or another."""
    I0, I1, at, u = random(1, 1, *(16,) * d), random(1, 1, *(16,) * d), *(random(1, d, *(16,) * d) for _ in range(2))
    seen = []

    class Look(Copy):
        def forward(self, x):
            seen.append(x)
            return 0.1 * x[:, :1].expand(-1, d, *x.shape[2:])

    fresh = State(at, linearize(I0, I1, at, (1.0,) * d))
    for state in (fresh, fresh.move_to(u)):
        field, v = state.v, Recurse(Look(2))(state).v
        torch.testing.assert_close(seen[-1], torch.cat([I0, warp(I1, field)], dim=1))
        torch.testing.assert_close(v, compose(field, I0.expand(-1, d, *I0.shape[2:])))


def test_networks_see_equal_images_where_they_are_not_compared(d, random):
    """At the start outside either mask, later where the weight is zero."""
    I0, I1, u, seen = random(1, 1, *(16,) * d), random(1, 1, *(16,) * d), random(1, d, *(16,) * d), []
    masks = Masks(torch.ones_like(I0), torch.ones_like(I0))
    masks.fixed[..., :5], masks.moving[..., 8:] = 0, 0

    class Look(Copy):
        def forward(self, x):
            seen.append(x)
            return x[:, :1].expand(-1, d, *x.shape[2:])

    Predict(Look(2))(I0, I1, None, masks)
    F0, F1 = seen[-1].split(1, dim=1)
    torch.testing.assert_close((F0 - F1)[..., 5:8], (I0 - I1)[..., 5:8])
    assert (F0 - F1)[..., :5].abs().max() < 1e-4
    assert (F0 - F1)[..., 8:].abs().max() < 1e-4
    lin = replace(linearize(I0, I1, u, (1.0,) * d), weight=masks.weight(u))
    Recurse(Look(2))(State(u, lin))
    torch.testing.assert_close(seen[-1], torch.cat([I0, I0 + lin.weight * (lin.I1w - I0)], dim=1))
