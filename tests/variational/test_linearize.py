from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.ndimage import gaussian_filter
from torch.nn import functional

from tests.conftest import SHAPES
from vrnet import devices as parts
from vrnet.devices import use_threads
from vrnet.fields import calculus as fields
from vrnet.fields.calculus import gradient, warp
from vrnet.variational.data_terms import LNCC
from vrnet.variational.linearize import NormalEquations, linearize


def test_rho_at_the_expansion_point_is_the_difference_of_the_images(d, random):
    I0, I1, u = random(2, 3, *SHAPES[d]), random(2, 3, *SHAPES[d]), random(2, d, *SHAPES[d])
    torch.testing.assert_close(linearize(I0, I1, u, (1.0,) * d).rho(u), warp(I1, u) - I0)


def test_J_is_the_gradient_of_the_warped_image(d, random):
    I0, I1, u = random(1, 2, *SHAPES[d]), random(1, 2, *SHAPES[d]), random(1, d, *SHAPES[d])
    assert torch.equal(linearize(I0, I1, u, (1.0,) * d).J, gradient(warp(I1, u)))


def test_the_linearisation_error_is_second_order(d):
    """On a quadratic image, whose central differences are exact, halving the step quarters the error."""
    axes = torch.meshgrid(*[torch.arange(12, dtype=torch.float64)] * d, indexing="ij")
    I = sum((i + 1) * (x - 5) ** 2 for i, x in enumerate(axes))[None, None]
    u = torch.full((1, d, *[12] * d), 3.0, dtype=torch.float64)  # integer, so that interpolation adds no error
    lin = linearize(torch.zeros_like(I), I, u, (1.0,) * d)
    inside = (slice(None), slice(None), *[slice(1, 7)] * d)
    errors = [(warp(I, u + h) - lin.rho(u + h))[inside].abs().max().item() for h in (2.0, 1.0)]
    assert abs(errors[0] / errors[1] - 4) < 1e-6


@pytest.mark.parametrize("away", [0.0, 1.0], ids=["at", "away"])
def test_normal_equations_solved_in_parts_are_solved_to_the_bit(d, away, random, monkeypatch):
    """Also under a penalty of each voxel, and away from where they were expanded."""
    at, (I0, I1) = random(2, d, *SHAPES[d]), (random(2, 1, *SHAPES[d]) for _ in range(2))
    lin = LNCC().linearize(I0, I1, at, (1.0, *[2.0] * (d - 1)))
    v, theta = at + away * random(2, d, *SHAPES[d]) if away else at, 0.1 + random(2, 1, *SHAPES[d]).square()
    whole = lin.minimize(v, theta)
    residual = lin.A.movedim((1, 2), (-2, -1)) @ (whole - at).movedim(1, -1)[..., None]
    pull = theta * fields.scale(whole - v, (1.0, *[4.0] * (d - 1)))
    torch.testing.assert_close(residual[..., 0].movedim(-1, 1) + lin.b + pull, torch.zeros_like(v), atol=1e-9, rtol=0)
    monkeypatch.setattr(parts, "VOXELS_AT_ONCE", 40)
    with torch.inference_mode(), use_threads(2):
        assert torch.equal(lin.minimize(v, theta), whole)


def test_equations_averaged_over_a_window_find_a_shift_that_no_voxel_alone_tells(d):
    """Stripes of each direction, side by side: a voxel sees the shift across its own stripe, the window all of it."""
    n, shift = 12, torch.arange(1.0, d + 1, dtype=torch.float64) / 20
    x = torch.stack(torch.meshgrid(*[torch.arange(n, dtype=torch.float64)] * d, indexing="ij"))
    direction = x.sum(0).remainder(d).long()
    J = functional.one_hot(direction, d).movedim(-1, 0)[None].double()
    A, b = J[:, :, None] * J[:, None], -J * (J * shift.view(1, d, *[1] * d)).sum(1, keepdim=True)
    zero, v = torch.zeros(1, 1, *[n] * d, dtype=torch.float64), torch.zeros(1, d, *[n] * d, dtype=torch.float64)
    lin = NormalEquations(zero, zero, zero, v, (1.0,) * d, A=A, b=b, D=zero[:, 0])
    theta = torch.tensor(1e-9, dtype=torch.float64)
    alone, together = (found.minimize(v, theta)[0].flatten(1) for found in (lin, lin.averaged(1.0)))
    assert ((alone - shift[:, None]).norm(dim=0) > 0.04).all()
    torch.testing.assert_close(together, shift[:, None].expand_as(together), atol=1e-6, rtol=0)


def test_averaged_equations_are_means_in_space(d, random):
    """By SciPy; an axis of longer edges is averaged over fewer voxels."""
    I0, I1 = random(1, 1, *SHAPES[d]), random(1, 1, *SHAPES[d])
    lin = LNCC().linearize(I0, I1, fields.zeros(I0), (1.0, *[2.0] * (d - 1)))
    found, sigmas = lin.averaged(1.0), (1.0, *[0.5] * (d - 1))
    for mean, given in ((found.b, lin.b), (found.A.flatten(1, 2), lin.A.flatten(1, 2))):
        expected = [gaussian_filter(x, sigmas, mode="nearest", truncate=3.0) for x in given[0].numpy()]
        torch.testing.assert_close(mean[0].numpy(), np.stack(expected), atol=1e-9, rtol=0)
    assert found.D is lin.D


def test_what_is_outside_a_mask_has_no_say_in_the_window(d, random):
    I0, I1 = random(1, 1, *SHAPES[d]), random(1, 1, *SHAPES[d])
    weight = torch.ones_like(I0)
    weight[..., :4] = 0
    lin = LNCC().linearize(I0, I1, fields.zeros(I0), (1.0,) * d, weight)
    other = replace(lin, A=lin.A + 5 * (1 - weight[:, None]), b=lin.b - 7 * (1 - weight))
    inside = weight[0, 0] > 0
    for found, expected in zip(vars(other.averaged(1.0)).values(), vars(lin.averaged(1.0)).values(), strict=True):
        if isinstance(found, torch.Tensor):
            torch.testing.assert_close(found[..., inside], expected[..., inside])
    everywhere, unweighted = (replace(lin, weight=w).averaged(1.0) for w in (torch.full_like(I0, 0.5), None))
    torch.testing.assert_close(everywhere.b, unweighted.b)
    even = replace(lin, b=torch.ones_like(lin.b)).averaged(1.0)
    torch.testing.assert_close(even.b[..., inside], torch.ones_like(even.b[..., inside]))  # at the rim of the mask, too
