import numpy as np
import torch
from scipy import linalg, ndimage
from torch.autograd import gradcheck
from torch.nn import functional

from tests.conftest import SHAPES
from vrnet import devices as parts
from vrnet.devices import use_threads
from vrnet.fields import calculus as fields


def grid(shape):
    return torch.stack(torch.meshgrid(*[torch.arange(n, dtype=torch.float64) for n in shape], indexing="ij"))[None]


def inner(a, b):
    return (a * b).sum()


def test_identity_warp_is_exact(d):
    I = torch.rand(2, 3, *SHAPES[d])
    assert torch.equal(fields.warp(I, torch.zeros(2, d, *SHAPES[d])), I)


def test_half_precision_fields_still_count_voxels():
    I = torch.rand(1, 1, 4, 700)
    assert torch.equal(fields.warp(I, torch.zeros(1, 2, 4, 700, dtype=torch.float16)), I)


def test_linear_images_warp_exactly(d, random):
    shape, slope = SHAPES[d], torch.arange(1.0, d + 1, dtype=torch.float64).view(1, d, *[1] * d)
    x = grid(shape)
    u = random(1, d, *shape)
    inside = torch.stack([(x + u)[:, i].clamp(0, n - 1) for i, n in enumerate(shape)], dim=1)
    expected = (slope * inside).sum(1, keepdim=True) + 5
    warped = fields.warp((slope * x).sum(1, keepdim=True) + 5, u)
    torch.testing.assert_close(warped, expected, atol=1e-12, rtol=0)


def test_warp_agrees_with_scipy_and_grid_sample(d, random):
    shape = SHAPES[d]
    I, u = random(1, 1, *shape), 2 * random(1, d, *shape)
    warped = fields.warp(I, u)
    scipy_warped = ndimage.map_coordinates(I[0, 0].numpy(), (grid(shape) + u)[0].numpy(), order=1, mode="nearest")
    np.testing.assert_allclose(warped[0, 0], scipy_warped, atol=1e-12)
    scale = torch.tensor([2 / (n - 1) for n in shape], dtype=torch.float64).view(1, d, *[1] * d)
    xyz = ((grid(shape) + u) * scale - 1).movedim(1, -1).flip(-1)
    sampled = functional.grid_sample(I, xyz, align_corners=True, padding_mode="border")
    torch.testing.assert_close(warped, sampled, atol=1e-10, rtol=0)


def test_a_warp_in_parts_is_the_whole_one_to_the_bit(d, random, monkeypatch):
    I, u = random(2, 3, *SHAPES[d]).float(), 3 * random(2, d, *SHAPES[d]).float()
    u[0, 0, 0] = torch.nan
    whole = fields.warp(I, u)
    for voxels in (1, 60):
        monkeypatch.setattr(parts, "VOXELS_AT_ONCE", voxels)
        with torch.inference_mode(), use_threads(2):
            torch.testing.assert_close(fields.warp(I, u), whole, atol=0, rtol=0, equal_nan=True)


def test_an_image_smoothed_in_parts_is_the_whole_one_to_the_bit(d, random, monkeypatch):
    """Also where a Gaussian is wider than the image."""
    I = random(2, 3, *SHAPES[d]).float()
    for sigma, voxels in ((1.0, 1), (4.0, 40)):
        sigmas = (sigma, *[0.7] * (d - 1))
        whole = fields.smooth(I, sigmas)  # of so few voxels, in one part
        with monkeypatch.context() as patch, torch.inference_mode(), use_threads(2):
            patch.setattr(parts, "VOXELS_AT_ONCE", voxels)
            assert torch.equal(fields.smooth(I, sigmas), whole)


def test_component_i_moves_axis_i(d, random):
    for axis, n in enumerate(SHAPES[d]):
        I, u = random(1, 1, *SHAPES[d]), torch.zeros(1, d, *SHAPES[d], dtype=torch.float64)
        u[:, axis] = 1
        assert torch.equal(fields.warp(I, u).narrow(2 + axis, 0, n - 1), I.narrow(2 + axis, 1, n - 1))


def test_warp_of_a_flat_axis_is_the_warp_without_it(random):
    I, u = random(1, 1, 8, 1, 7), random(1, 3, 8, 1, 7)
    expected = fields.warp(I.squeeze(3), u[:, [0, 2]].squeeze(3))
    torch.testing.assert_close(fields.warp(I, u).squeeze(3), expected)


def test_a_nan_displacement_gives_a_nan_and_no_crash(d, random):
    u = torch.zeros(1, d, *SHAPES[d], dtype=torch.float64)
    u.view(-1)[0] = torch.nan
    warped = fields.warp(random(1, 1, *SHAPES[d]), u)
    assert warped.isnan().sum() == 1


def test_label_warp_keeps_values_and_types_and_agrees_with_scipy(d, random):
    shape = SHAPES[d]
    for dtype in (torch.uint8, torch.int64):
        L, u = (50 + 20 * random(1, 1, *shape)).to(dtype), 2 * random(1, d, *shape)
        warped = fields.warp_labels(L, u)
        assert warped.dtype == dtype
        nearest = ndimage.map_coordinates(L[0, 0].numpy(), (grid(shape) + u)[0].numpy(), order=0, mode="nearest")
        np.testing.assert_array_equal(warped[0, 0], nearest)


def test_gradient_is_central_and_repeats_the_border(d, random):
    I = random(1, 1, *SHAPES[d])
    padded = np.pad(I[0, 0].numpy(), 1, mode="edge")
    expected = np.stack(np.gradient(padded))[(slice(None), *[slice(1, -1)] * d)]
    np.testing.assert_allclose(fields.gradient(I)[0, 0], expected, atol=1e-12)


def test_divergence_is_minus_the_adjoint_of_the_gradient(d, random):
    u, p = random(2, d, *SHAPES[d]), random(2, d, d, *SHAPES[d])
    torch.testing.assert_close(inner(fields.forward_gradient(u), p), -inner(u, fields.divergence(p)))


def test_squared_norm_and_squared_gradient_are_what_they_say(d, random):
    p = random(2, 3, *SHAPES[d])
    torch.testing.assert_close(fields.squared_norm(p), p.square().sum(1))


def test_the_squared_gradient_is_taken_per_edge(d, h, random):
    p = random(2, 3, *SHAPES[d])
    per_edge = fields.forward_gradient(p) / torch.tensor(h).view(1, 1, -1, *[1] * d)
    torch.testing.assert_close(fields.squared_gradient(p, h), per_edge.square().sum((1, 2)))


def test_edges_are_relative_to_the_shortest():
    assert fields.relative_spacing((2.0, 1.0, 10.0), 3) == (2.0, 1.0, 10.0)
    assert fields.relative_spacing((3.0, 3.0), 2) == fields.relative_spacing(None, 2) == (1.0, 1.0)


def test_scaling_by_ones_costs_nothing(d, random):
    u = random(1, d, *SHAPES[d])
    assert fields.scale(u, (1.0,) * d) is u
    factors = (2.0, 3.0, 0.5)[:d]
    torch.testing.assert_close(fields.scale(u, factors), u * torch.tensor(factors).view(1, d, *[1] * d))


def test_a_single_slice_does_not_vary_across_itself(random):
    """A 3D field on one slice, with motion within it, has the determinants of the 2D field."""
    u = random(1, 2, 12, 10)
    slab = torch.cat([u, torch.zeros(1, 1, 12, 10)], dim=1)[..., None]
    torch.testing.assert_close(
        fields.determinant(fields.jacobian(slab))[..., 0], fields.determinant(fields.jacobian(u))
    )


def test_jacobian_of_an_affine_map_is_its_matrix(d, random):
    A = random(d, d)
    u = torch.einsum("ij,bj...->bi...", A, grid(SHAPES[d]))
    J = fields.jacobian(u)
    expected = A + torch.eye(d, dtype=torch.float64)
    torch.testing.assert_close(J, expected.view(1, d, d, *[1] * d).expand_as(J))
    torch.testing.assert_close(fields.determinant(J), torch.linalg.det(expected).expand(1, *SHAPES[d]))


def test_determinant_agrees_with_linalg(d, random):
    J = random(2, d, d, *SHAPES[d])
    torch.testing.assert_close(fields.determinant(J), torch.linalg.det(J.movedim((1, 2), (-2, -1))))


def test_compose_is_warping_twice(d, smooth_image):
    shape = (32,) * d
    I = smooth_image(shape, sigma=5)
    u, w = (4 * torch.cat([smooth_image(shape, 5, seed + i) - 0.5 for i in range(d)], 1) for seed in (1, 4))
    inside = (slice(None), slice(None), *[slice(4, -4)] * d)
    once = fields.warp(I, fields.compose(u, w))[inside]
    twice = fields.warp(fields.warp(I, u), w)[inside]
    assert (once - twice).abs().max() < 0.02 * (fields.warp(I, u) - I).abs().max()


def test_the_exponential_of_a_constant_is_a_shift(d):
    shift = torch.tensor([3.25, -1.5, 0.75], dtype=torch.float64)[:d].view(1, d, *[1] * d)
    v = shift.expand(1, d, *SHAPES[d])
    torch.testing.assert_close(fields.exp(v), v)
    assert torch.equal(fields.exp(torch.zeros(1, d, *SHAPES[d])), torch.zeros(1, d, *SHAPES[d]))


def test_the_exponential_of_a_linear_field_is_that_of_its_matrix(d, random):
    """φ' = A φ has the solution exp(A t) x; compared where it does not leave the grid."""
    A, x = 0.1 * random(d, d), grid((33,) * d) - 16
    u = fields.exp(torch.einsum("ij,bj...->bi...", A, x))
    expected = torch.einsum("ij,bj...->bi...", torch.from_numpy(linalg.expm(A.numpy())), x) - x
    inside = (slice(None), slice(None), *[slice(8, -8)] * d)
    assert expected[inside].abs().max() > 1
    assert (u - expected)[inside].abs().max() < 2e-3


def test_the_exponential_of_minus_v_is_the_inverse(d, smooth_image):
    shape = (32,) * d
    v = 12 * torch.cat([smooth_image(shape, 5, seed) - 0.5 for seed in range(d)], 1)
    forth, back = fields.exp(v), fields.exp(-v)
    inside = (slice(None), slice(None), *[slice(8, -8)] * d)
    assert forth[inside].abs().max() > 1.5
    assert fields.compose(forth, back)[inside].abs().max() < 0.03
    assert fields.determinant(fields.jacobian(forth))[:, *[slice(4, -4)] * d].min() > 0


def test_gradients_flow_through_the_exponential(d, random):
    shape = (3, 4) if d == 2 else (3, 2, 2)
    v = (0.6 * random(1, d, *shape)).requires_grad_()
    assert gradcheck(fields.exp, (v,))


def test_smooth_agrees_with_scipy(d, random):
    I = random(1, 2, *SHAPES[d])
    expected = [ndimage.gaussian_filter(c.numpy(), 1.5, mode="nearest", radius=5) for c in I[0]]
    np.testing.assert_allclose(fields.smooth(I, 1.5)[0], expected, atol=1e-12)


def test_resize_keeps_linear_images_and_the_motion_they_show(d):
    """Off the border, where the low pass repeats values, a ramp stays a ramp over the same extent."""
    fine, coarse = (33,) * d, (17,) * d
    ramp = grid(fine)[:, :1] / 32
    small = fields.resize(ramp, coarse)
    inside = (slice(None), slice(None), *[slice(4, -4)] * d)
    torch.testing.assert_close(small[inside], (grid(coarse)[:, :1] / 16)[inside], atol=1e-10, rtol=0)
    u = grid(fine) * 0.1 + 2
    torch.testing.assert_close(fields.resize_field(u, coarse), grid(coarse) * 0.1 + 1)
    torch.testing.assert_close(fields.resize_field(fields.resize_field(u, coarse), fine), u)


def test_resize_removes_what_the_coarse_grid_cannot_show(d):
    checkerboard = grid((33,) * d).sum(1, keepdim=True) % 2
    small = fields.resize(checkerboard, (17,) * d)
    assert (small - 0.5).abs()[(slice(None), slice(None), *[slice(3, -3)] * d)].max() < 0.03


def test_gradients_flow_through_warp(d, random):
    shape = (4, 5) if d == 2 else (3, 4, 3)
    I, u = random(1, 2, *shape).requires_grad_(), (0.3 * random(1, d, *shape)).requires_grad_()
    assert gradcheck(fields.warp, (I, u))
    assert gradcheck(fields.compose, (u, u.detach().flip(2).requires_grad_()))
    assert gradcheck(lambda v: fields.determinant(fields.jacobian(v)), (u,))


def test_nothing_is_copied_from_the_host_while_fields_are_scaled(d, random, monkeypatch):
    """Or they could not be recorded on a GPU."""
    u = random(1, d, *SHAPES[d])
    monkeypatch.setattr(torch.Tensor, "new_tensor", None)
    factors = (2.0, 3.0, 0.5)[:d]
    assert torch.equal(fields.scale(u, factors)[:, 1], 3 * u[:, 1])
    assert fields.resize_field(u, tuple(2 * n for n in SHAPES[d])).shape[1] == d
