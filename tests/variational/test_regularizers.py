import numpy as np
import pytest
import torch
from scipy import ndimage, sparse
from scipy.sparse.linalg import spsolve
from skimage.restoration import denoise_tv_chambolle
from torch.autograd import gradcheck

from vrnet.fields import calculus as fields
from vrnet.fields.folds import smallest_determinant
from vrnet.variational.regularizers import (
    REGULARIZERS,
    TV,
    Bending,
    CentralDiffusion,
    Diffusion,
    Folding,
    Gaussian,
    Huber,
    cosine_transform,
)

SMALL = {2: (14, 12), 3: (8, 7, 6)}


def prox(regularizer, u, weight, h=None):
    """Without a memory, and without what is to be remembered."""
    return regularizer.prox(u, weight, h or (1.0,) * u.shape[1], None)[0]


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


@pytest.mark.parametrize(("weight", "d"), [(0.1, 3), (0.5, 2)])
def test_tv_agrees_with_chambolle_in_scikit_image(d, random, weight):
    """scikit-image couples channels as we couple components; its image is our one-component field."""
    u = random(1, 1, *SMALL[d])
    field = torch.cat([u] + [torch.zeros_like(u)] * (d - 1), dim=1)
    v = prox(TV(1000), field, weight)
    reference = denoise_tv_chambolle(u[0, 0].numpy(), weight=weight, eps=1e-12, max_num_iter=1500)
    np.testing.assert_allclose(v[0, 0], reference, atol=2e-3)
    assert v[:, 1:].abs().max() < 1e-12


def test_tv_is_coupled_over_components_as_vector_chambolle(d, random):
    u = random(1, d, *SMALL[d])
    v = prox(TV(1000), u, 0.5)
    reference = denoise_tv_chambolle(u[0].numpy(), weight=0.5, eps=1e-12, max_num_iter=1500, channel_axis=0)

    def objective(x):
        return 0.5 * TV().value(x, (1.0,) * d).sum() + (x - u).square().sum() / 2

    assert objective(v) <= objective(torch.from_numpy(reference)[None]) + 1e-4


def test_tv_minimises_its_own_energy_on_any_voxels(d, h, random):
    """No small step away from the prox, in any direction, lowers w TV(v) + 1/2 Σ (h_i (v_i − u_i))²."""
    u = random(1, d, *SMALL[d])
    v = prox(TV(1000), u, 0.5, h)

    def objective(x):
        return 0.5 * TV().value(x, h).sum() + fields.scale(x - u, h).square().sum() / 2

    directions = [u - v, -v, *(random(*u.shape) for _ in range(20))]
    assert all(objective(v) <= objective(v + t * w) + 1e-6 for w in directions for t in (1e-1, -1e-2, 1e-3))


def test_tv_dual_taken_up_again_goes_on_where_it_stopped(d, h, random):
    u = random(1, d, *SMALL[d])
    with torch.no_grad():
        _, p = TV(20).prox(u, 0.5, h, None)
        torch.testing.assert_close(TV(30).prox(u, 0.5, h, p), TV(50).prox(u, 0.5, h, None))


@pytest.mark.parametrize(("regularizer", "order", "d"), [(Diffusion(), 1, 2), (Diffusion(), 1, 3), (Bending(), 2, 3)])
def test_a_quadratic_prox_agrees_with_a_sparse_linear_solve(d, h, random, regularizer, order):
    u, weight = random(1, d, *SMALL[d]), 0.7
    K = laplacian(SMALL[d], h) ** order
    system = sparse.identity(K.shape[0]) + weight * K
    expected = spsolve(system.tocsc(), u[0].flatten(1).numpy().T).T.reshape(u[0].shape)
    np.testing.assert_allclose(prox(regularizer, u, weight, h)[0], expected, atol=1e-10)


@pytest.mark.parametrize(("regularizer", "d"), [(Diffusion(), 3), (Bending(), 2)])
def test_a_quadratic_prox_minimises_its_own_energy(d, h, random, regularizer):
    """The gradient of w R(v) + 1/2 Σ (h_i (v_i − u_i))² vanishes at the prox."""
    u, weight = random(1, d, *SMALL[d]), 0.7
    v = prox(regularizer, u, weight, h).requires_grad_()
    (weight * regularizer.value(v, h).sum() + fields.scale(v - u, h).square().sum() / 2).backward()
    assert v.grad.abs().max() < 1e-10


def test_cosine_transform_is_orthonormal(d, random):
    u = random(2, d, *SMALL[d])
    torch.testing.assert_close(cosine_transform(cosine_transform(u), inverse=True), u)
    torch.testing.assert_close(cosine_transform(u).norm(), u.norm())


def test_gaussian_is_gaussian(d, h, random):
    u, sigma = random(1, d, *SMALL[d]), [1.2 / edge for edge in h]
    radius = [int(np.ceil(3 * s)) for s in sigma]
    expected = [ndimage.gaussian_filter(c.numpy(), sigma, mode="nearest", radius=radius) for c in u[0]]
    np.testing.assert_allclose(prox(Gaussian(), u, 1.2, h)[0], expected, atol=1e-12)


def test_a_constant_field_is_left_alone(d, h):
    u = torch.full((1, d, *SMALL[d]), 2.5, dtype=torch.float64)
    for regularizer in REGULARIZERS.values():
        torch.testing.assert_close(prox(regularizer, u, 0.5, h), u)
        assert not regularizer.value(u, h).any()


def test_gradients_flow_through_tv(random):
    assert gradcheck(lambda u: prox(TV(3), u, 0.3, (1.0, 2.0)), (random(1, 2, 4, 3).requires_grad_(),))


def test_regularisers_of_a_ramp_are_its_slope(d, h):
    """u = a·x along axis 0: |∇u| = a, whatever the edge, but for the far border; no second derivative inside."""
    x = torch.arange(10, dtype=torch.float64).view(-1, *[1] * (d - 1)).expand([10] * d)
    u = torch.stack([0.5 * x] + [torch.zeros_like(x)] * (d - 1))[None]
    np.testing.assert_allclose(TV().value(u, h)[:, :9], 0.5)
    np.testing.assert_allclose(Diffusion().value(u, h)[:, :9], 0.125)
    np.testing.assert_allclose(Bending().value(u, h)[:, 1:9], 0, atol=1e-12)
    np.testing.assert_allclose(TV().value(u, h)[:, 9], 0)


def test_motion_in_space_costs_the_same_on_any_voxels(d):
    """v = (x² + 3 x y, 0, ...) in shortest edges, with x along axis 0 sampled finely and half as finely."""
    fine, coarse = (1.0,) * d, (2.0, *[1.0] * (d - 1))
    densities = []
    for h in (fine, coarse):
        x, y, *_ = torch.meshgrid(*(edge * torch.arange(0, 40, dtype=torch.float64) for edge in h), indexing="ij")
        v = torch.stack([(x.square() + 3 * x * y) / h[0]] + [torch.zeros_like(x)] * (d - 1))[None]
        densities.append([R.value(v, h) for R in (TV(), Diffusion(), Bending())])
    for on_fine, on_coarse in zip(*densities, strict=True):
        a, b = on_fine[0, 20, 10].mean(), on_coarse[0, 10, 10].mean()
        np.testing.assert_allclose(a, b, rtol=0.03)


def test_training_weighs_the_mean_squared_forward_difference(d, random):
    """The mean over axes of the mean over differences, as the paper's α does; it sees a checkerboard."""
    u = random(2, d, *SMALL[d])
    expected = sum(np.square(np.diff(u.numpy(), axis=axis)).mean() for axis in range(2, 2 + d)) / d
    assert Diffusion().loss(u).item() == pytest.approx(expected)
    board = torch.stack(torch.meshgrid(*(torch.arange(6) for _ in range(d)), indexing="ij")).sum(0) % 2
    assert Diffusion().loss((2.0 * board - 1).expand(1, d, *board.shape)).item() == pytest.approx(4.0)


def test_central_differences_are_those_of_numpy_inside_and_do_not_see_a_checkerboard(d, random):
    u, inside = random(2, d, *SMALL[d]), (slice(None), slice(None), *[slice(1, -1)] * d)
    gradients = np.stack([np.gradient(u.numpy(), axis=axis) for axis in range(2, 2 + d)])
    expected = np.square(gradients).sum((0, 2)) / 2
    found = CentralDiffusion().value(u, (1.0,) * d).numpy()
    np.testing.assert_allclose(found[inside[1:]], expected[inside[1:]], rtol=1e-4)
    board = torch.stack(torch.meshgrid(*(torch.arange(6) for _ in range(d)), indexing="ij")).sum(0) % 2
    checkered = (2.0 * board - 1).expand(1, d, *board.shape)
    assert CentralDiffusion().value(checkered, (1.0,) * d).numpy()[inside[1:]].max() == 0
    slope = torch.arange(6.0).view(1, 1, -1, *[1] * (d - 1)).expand(1, d, *[6] * d)
    assert CentralDiffusion().loss(slope).item() == pytest.approx((4 + 2 / 4) / 6 / d)


def test_huber_is_a_tenth_where_nothing_changes_and_the_slope_where_much_does():
    slope = torch.arange(8.0).view(1, 1, 8, 1).expand(1, 2, 8, 8)
    assert Huber().loss(0 * slope).item() == pytest.approx(0.1)
    assert Huber().loss(slope * 100).item() == pytest.approx(100 * 2**0.5 * 7 / 8 + 0.1 / 8, rel=1e-3)


def test_the_weight_of_the_prox_is_lambda_over_theta_and_a_width_for_gaussian():
    strengths = {name: regularizer.strength(0.3, 0.1) for name, regularizer in REGULARIZERS.items()}
    assert strengths == {"TV": 0.3 / 0.1, "Diffusion": 0.3 / 0.1, "Bending": 0.3 / 0.1, "Gaussian": 0.3}


def test_folding_counts_what_is_below_its_margin_and_nothing_else(d, random):
    """A stretch along one axis has one determinant everywhere."""
    for determinant, expected in ((0.5, 0.0), (0.11, 0.0), (-0.4, 0.25)):
        u = fields.zeros(random(1, 1, *SMALL[d]))
        u[:, 0] = ((determinant - 1) * torch.arange(SMALL[d][0]).double()).view(-1, *[1] * (d - 1))
        value = Folding(margin=0.1).value(u, (1.0,) * d)
        cells = value[(slice(None), *(slice(n - 1) for n in SMALL[d]))]
        torch.testing.assert_close(cells, torch.full_like(cells, expected))
        torch.testing.assert_close(value.sum(), cells.sum())  # no cell begins at the far border


@pytest.mark.release
def test_a_field_descends_on_folding_until_it_does_not_fold(d, random):
    u = (0.3 * random(1, d, *SMALL[d])).requires_grad_()
    assert (smallest_determinant(u.detach()) <= 0).any()
    descent = torch.optim.Adam([u], lr=0.02)
    for _ in range(100):
        descent.zero_grad()
        Folding().value(u, (1.0,) * d).sum().backward()
        descent.step()
    assert (smallest_determinant(u.detach()) > 0).all()
