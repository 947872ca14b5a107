import numpy as np
import pytest
import torch
from scipy import ndimage, sparse
from scipy.sparse.linalg import spsolve
from skimage.restoration import denoise_tv_chambolle
from torch.autograd import gradcheck

from tests.conftest import SHAPES
from vrnet import fields
from vrnet.variational.denoisers import TV, Gaussian, Quadratic, cosine_transform
from vrnet.variational.energy import bending, diffusion, total_variation
from vrnet.variational.linearize import linearize


def lin(u, h=None):
    """A linearisation for denoisers that look at no image, only at the edges of a voxel."""
    return linearize(u[:, :1], u[:, :1], u, h)


def laplacian(shape, h):
    """−Δ with reflecting border on voxels with edges h, as a sparse matrix built from one-dimensional differences."""

    def along(axis):
        factors = [sparse.identity(n) for n in shape]
        n = shape[axis]
        step = sparse.diags([-1, 1], [0, 1], shape=(n - 1, n))
        factors[axis] = step.T @ step / h[axis] ** 2
        out = factors[0]
        for factor in factors[1:]:
            out = sparse.kron(out, factor)
        return out

    return sum(along(axis) for axis in range(len(shape))).tocsc()


@pytest.mark.parametrize("weight", [0.1, 0.5])
def test_tv_agrees_with_chambolle_in_scikit_image(d, random, weight):
    """scikit-image couples channels as we couple components; its image is our one-component field."""
    u = random(1, 1, *SHAPES[d])
    field = torch.cat([u] + [torch.zeros_like(u)] * (d - 1), dim=1)
    v = TV(weight, iterations=3000)(field, lin(field))
    reference = denoise_tv_chambolle(u[0, 0].numpy(), weight=weight, eps=1e-12, max_num_iter=20000)
    np.testing.assert_allclose(v[0, 0], reference, atol=2e-3)
    assert v[:, 1:].abs().max() < 1e-12


def test_tv_is_coupled_over_components_as_vector_chambolle(d, random):
    u = random(1, d, *SHAPES[d])
    v = TV(0.5, iterations=3000)(u, lin(u))
    reference = denoise_tv_chambolle(u[0].numpy(), weight=0.5, eps=1e-12, max_num_iter=20000, channel_axis=0)

    def objective(x):
        return 0.5 * total_variation(x, (1.0,) * d).sum() + (x - u).square().sum() / 2

    assert objective(v) <= objective(torch.from_numpy(reference)[None]) + 1e-4


def test_tv_minimises_its_own_energy_on_any_voxels(d, h, random):
    """No small step away from the prox, in any direction, lowers w TV(v) + 1/2 Σ (h_i (v_i − u_i))²."""
    u = random(1, d, *SHAPES[d])
    v = TV(0.5, iterations=3000)(u, lin(u, h))

    def objective(x):
        return 0.5 * total_variation(x, h).sum() + fields.scale(x - u, h).square().sum() / 2

    directions = [u - v, -v, *(random(*u.shape) for _ in range(20))]
    assert all(objective(v) <= objective(v + t * w) + 1e-6 for w in directions for t in (1e-1, -1e-2, 1e-3))


def test_tv_dual_taken_up_again_goes_on_where_it_stopped(d, h, random):
    u = random(1, d, *SHAPES[d])
    with torch.no_grad():
        _, p = TV(0.5, 20).resume(u, None, h)
        torch.testing.assert_close(TV(0.5, 30).resume(u, p, h), TV(0.5, 50).resume(u, None, h))


@pytest.mark.parametrize("order", [1, 2], ids=["diffusion", "bending"])
def test_quadratic_agrees_with_a_sparse_linear_solve(d, h, random, order):
    u, weight = random(1, d, *SHAPES[d]), 0.7
    K = laplacian(SHAPES[d], h) ** order
    system = sparse.identity(K.shape[0]) + weight * K
    expected = spsolve(system.tocsc(), u[0].flatten(1).numpy().T).T.reshape(u[0].shape)
    np.testing.assert_allclose(Quadratic(weight, order)(u, lin(u, h))[0], expected, atol=1e-10)


@pytest.mark.parametrize(("order", "R"), [(1, diffusion), (2, bending)])
def test_quadratic_minimises_its_own_energy(d, h, random, order, R):
    """The gradient of w R(v) + 1/2 Σ (h_i (v_i − u_i))² vanishes at the prox."""
    u, weight = random(1, d, *SHAPES[d]), 0.7
    v = Quadratic(weight, order)(u, lin(u, h)).requires_grad_()
    (weight * R(v, h).sum() + fields.scale(v - u, h).square().sum() / 2).backward()
    assert v.grad.abs().max() < 1e-10


def test_cosine_transform_is_orthonormal(d, random):
    u = random(2, d, *SHAPES[d])
    torch.testing.assert_close(cosine_transform(cosine_transform(u), inverse=True), u)
    torch.testing.assert_close(cosine_transform(u).norm(), u.norm())


def test_gaussian_is_gaussian(d, h, random):
    u, sigma = random(1, d, *SHAPES[d]), [1.2 / edge for edge in h]
    radius = [int(np.ceil(3 * s)) for s in sigma]
    expected = [ndimage.gaussian_filter(c.numpy(), sigma, mode="nearest", radius=radius) for c in u[0]]
    np.testing.assert_allclose(Gaussian(1.2)(u, lin(u, h))[0], expected, atol=1e-12)


@pytest.mark.parametrize("denoise", [TV(0.5, 50), Quadratic(0.5, 1), Quadratic(0.5, 2), Gaussian(1.0)])
def test_a_constant_field_is_left_alone(d, h, denoise):
    u = torch.full((1, d, *SHAPES[d]), 2.5, dtype=torch.float64)
    torch.testing.assert_close(denoise(u, lin(u, h)), u)


def test_gradients_flow_through_tv(random):
    assert gradcheck(lambda u: TV(0.3, 3)(u, lin(u, (1.0, 2.0))), (random(1, 2, 4, 3).requires_grad_(),))
