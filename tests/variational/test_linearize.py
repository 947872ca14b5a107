import pytest
import torch

from tests.conftest import SHAPES
from vrnet import fields, parts
from vrnet.fields import gradient, warp
from vrnet.threads import use_threads
from vrnet.variational.data_terms import LNCC
from vrnet.variational.linearize import linearize


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
