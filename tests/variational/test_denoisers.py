import numpy as np
import pytest
import torch
from scipy import ndimage, sparse
from scipy.sparse.linalg import spsolve
from skimage.restoration import denoise_tv_chambolle
from torch.autograd import gradcheck

from tests.conftest import SHAPES
from vrnet.variational.denoisers import TV, Gaussian, Quadratic, cosine_transform
from vrnet.variational.energy import bending, diffusion, total_variation


def laplacian(shape):
    """−Δ with reflecting border, as a sparse matrix built from one-dimensional differences."""

    def along(axis):
        factors = [sparse.identity(n) for n in shape]
        n = shape[axis]
        step = sparse.diags([-1, 1], [0, 1], shape=(n - 1, n))
        factors[axis] = step.T @ step
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
    v = TV(weight, iterations=3000)(field)
    reference = denoise_tv_chambolle(u[0, 0].numpy(), weight=weight, eps=1e-12, max_num_iter=20000)
    np.testing.assert_allclose(v[0, 0], reference, atol=2e-3)
    assert v[:, 1:].abs().max() < 1e-12


def test_tv_is_coupled_over_components_as_vector_chambolle(d, random):
    u = random(1, d, *SHAPES[d])
    v = TV(0.5, iterations=3000)(u)
    reference = denoise_tv_chambolle(u[0].numpy(), weight=0.5, eps=1e-12, max_num_iter=20000, channel_axis=0)

    def objective(x):
        return 0.5 * total_variation(x).sum() + (x - u).square().sum() / 2

    assert objective(v) <= objective(torch.from_numpy(reference)[None]) + 1e-4


def test_tv_dual_taken_up_again_goes_on_where_it_stopped(d, random):
    u = random(1, d, *SHAPES[d])
    with torch.no_grad():
        _, p = TV(0.5, 20).resume(u, None)
        torch.testing.assert_close(TV(0.5, 30).resume(u, p), TV(0.5, 50).resume(u, None))


@pytest.mark.parametrize("order", [1, 2], ids=["diffusion", "bending"])
def test_quadratic_agrees_with_a_sparse_linear_solve(d, random, order):
    u, weight = random(1, d, *SHAPES[d]), 0.7
    K = laplacian(SHAPES[d]) ** order
    system = sparse.identity(K.shape[0]) + weight * K
    expected = spsolve(system.tocsc(), u[0].flatten(1).numpy().T).T.reshape(u[0].shape)
    np.testing.assert_allclose(Quadratic(weight, order)(u)[0], expected, atol=1e-10)


@pytest.mark.parametrize(("order", "R"), [(1, diffusion), (2, bending)])
def test_quadratic_minimises_its_own_energy(d, random, order, R):
    """The gradient of w R(v) + 1/2 |v − u|² vanishes at the prox."""
    u, weight = random(1, d, *SHAPES[d]), 0.7
    v = Quadratic(weight, order)(u).requires_grad_()
    (weight * R(v).sum() + (v - u).square().sum() / 2).backward()
    assert v.grad.abs().max() < 1e-10


def test_cosine_transform_is_orthonormal(d, random):
    u = random(2, d, *SHAPES[d])
    torch.testing.assert_close(cosine_transform(cosine_transform(u), inverse=True), u)
    torch.testing.assert_close(cosine_transform(u).norm(), u.norm())


def test_gaussian_is_gaussian(d, random):
    u = random(1, d, *SHAPES[d])
    expected = [ndimage.gaussian_filter(c.numpy(), 1.2, mode="nearest", radius=4) for c in u[0]]
    np.testing.assert_allclose(Gaussian(1.2)(u)[0], expected, atol=1e-12)


@pytest.mark.parametrize("denoise", [TV(0.5, 50), Quadratic(0.5, 1), Quadratic(0.5, 2), Gaussian(1.0)])
def test_a_constant_field_is_left_alone(d, denoise):
    u = torch.full((1, d, *SHAPES[d]), 2.5, dtype=torch.float64)
    torch.testing.assert_close(denoise(u), u)


def test_gradients_flow_through_tv(random):
    assert gradcheck(TV(0.3, 3), (random(1, 2, 4, 3).requires_grad_(),))
