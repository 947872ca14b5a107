"""The inverse of a field: it undoes the field, and says how well."""

import torch

from vrnet.fields import calculus as fields
from vrnet.fields.inverse import invert


def test_invert_undoes_and_says_how_well(d, smooth_image):
    shape = (32,) * d
    u = 6 * torch.cat([smooth_image(shape, 5, seed) - 0.5 for seed in range(d)], 1)
    w, residual = invert(u, tolerance=1e-4)
    assert residual.max() <= 1e-4
    assert fields.compose(u, w).abs().max() <= 1e-4
    inside = (slice(None), slice(None), *[slice(6, -6)] * d)
    assert fields.compose(w, u)[inside].abs().max() < 0.1


def test_invert_brings_back_a_strong_expansion():
    """x ↦ x + u with ∂u = 1.6: the plain fixed point diverges there, the map has an inverse all the same."""
    x = torch.arange(64, dtype=torch.float64)
    u = 4 * torch.sin((x - 32) / 2.5).expand(64, 64).T * torch.exp(-(((x - 32) / 6) ** 2)).view(64, 1)
    field = torch.stack([torch.zeros_like(u), u.clamp(min=-3).T.contiguous()])[None]
    field = fields.smooth(field, 1.0)
    assert torch.gradient(field[0, 1], dim=1)[0].max() > 1.1
    assert fields.determinant(fields.jacobian(field)).min() > 0
    assert invert(field, max_iterations=300).residual.max() < 1e-2


def test_invert_of_a_fold_names_one_origin_but_cannot_undo():
    x = torch.arange(32, dtype=torch.float64) - 16
    u = torch.zeros(1, 2, 32, 32, dtype=torch.float64)
    u[:, 1] = -6 * x * torch.exp(-x.square() / 8)
    w, residual = invert(u)
    assert residual.max() < 1e-2
    assert fields.compose(w, u).abs().max() > 0.5


def test_a_swirl_by_most_of_a_turn_is_inverted():
    """Turned by θ(r) about the middle; its inverse turns back by as much. |∇u| reaches 3, and nothing folds."""
    n, middle = 64, 31.5
    x = torch.stack(torch.meshgrid(torch.arange(n), torch.arange(n), indexing="ij")).double() - middle
    angle = 2.2 * torch.exp(-x.square().sum(0) / (2 * 9.0**2))

    def turn(theta):
        return torch.stack([theta.cos() * x[0] - theta.sin() * x[1], theta.sin() * x[0] + theta.cos() * x[1]]) - x

    found, residual = invert(turn(angle)[None])
    assert residual.max() < 0.2
    assert (found[0] - turn(-angle)).square().sum(0).sqrt().quantile(0.99) < 0.2
