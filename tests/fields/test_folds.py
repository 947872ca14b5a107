import numpy as np
import pytest
import torch
from scipy import ndimage

from tests.conftest import SHAPES
from tests.tetrahedra import checkerboard, relative_volumes, times_covered
from vrnet.fields.calculus import determinant, jacobian
from vrnet.fields.folds import CELLS_AT_ONCE, smallest_determinant


def smooth_noise(shape, sigma=1.0, seed=0):
    """A random field (1, d, *s) of standard deviation 1 that is zero at the border."""
    rng = np.random.default_rng(seed)
    u = np.stack([ndimage.gaussian_filter(rng.standard_normal(shape), sigma) for _ in shape])
    inner = np.pad(np.ones([n - 4 for n in shape]), 2)
    return torch.from_numpy(u / u.std() * ndimage.uniform_filter(inner, 3))[None]


def barely_unfolded(shape, seed=0):
    """A field, zero at the border, and the same a little larger, of which the second folds."""
    u, scale = smooth_noise(shape, seed=seed), 4.0
    while smallest_determinant(scale * u).min() <= 0:
        scale *= 0.9
    return scale * u, scale / 0.9 * u


def test_the_determinants_are_the_volumes_of_both_cuts(d, random):
    u = 0.4 * random(1, d, *SHAPES[d])
    least, volumes = smallest_determinant(u), relative_volumes(u[0].numpy())
    np.testing.assert_allclose(least.min(), volumes.min())
    assert (least <= 0).any()
    assert volumes.shape == ({2: 4, 3: 10}[d], np.prod(np.array(SHAPES[d]) - 1))


@pytest.mark.parametrize("axis", range(3))
def test_every_cell_is_counted_also_at_the_far_border(d, axis):
    """A voxel that jumps over its neighbour, anywhere on the border, is a fold."""
    for at in np.ndindex(*[2] * d):
        u = torch.zeros(1, d, *[5] * d)
        place = tuple(4 * k for k in at)
        u[(0, axis % d, *place)] = -1.5 if at[axis % d] else 1.5
        folded = smallest_determinant(u) <= 0
        assert folded[(0, *place)]
        assert folded.any() == (relative_volumes(u[0].numpy()) <= 0).any()


def test_a_twist_folds_the_middle_tetrahedra_alone():
    """Two faces of a cube turned by 60° against each other, to and fro: at each corner the edges of the face span 1 and
    the third leads to the other face, so these 8 are 1; the diagonals of both faces, at 90° before, span cos 120°."""
    u = torch.zeros(1, 3, 2, 2, 2, dtype=torch.float64)
    corners = torch.tensor([[x, y] for x in (-0.5, 0.5) for y in (-0.5, 0.5)], dtype=torch.float64)
    for z, angle in ((0, -np.pi / 3), (1, np.pi / 3)):
        turn = torch.tensor([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        u[0, :2, :, :, z] = (corners @ turn.T - corners).T.view(2, 2, 2)
    least = smallest_determinant(u)[0]
    np.testing.assert_allclose(least[0, 0, 0], np.cos(2 * np.pi / 3))
    assert least.flatten()[1:].min() > 0.999
    volumes = relative_volumes(u[0].numpy())[:, 0]
    np.testing.assert_allclose(sorted(volumes), [-0.5] * 2 + [1] * 8)


@pytest.mark.parametrize("first", [0, 1])
def test_where_all_are_positive_the_piecewise_linear_map_is_injective(d, first):
    """Nothing moves at the border, so that the grid is mapped onto itself: then each point is covered once. Of the
    larger field, which folds, some points are covered three times."""
    shape = (9,) * 2 if d == 2 else (7,) * 3
    points = 1 + np.random.default_rng(0).random((600, d)) * (np.array(shape) - 3)
    one_to_one, folded = barely_unfolded(shape)
    assert (times_covered(checkerboard(one_to_one[0].numpy(), first), points) == 1).all()
    larger = times_covered(checkerboard(2 * folded[0].numpy(), first), points)
    assert larger.max() >= 3


def test_in_2d_the_bilinear_map_is_as_positive_as_its_corners(random):
    """Its determinant is linear inside a cell, so that the least of it is at a corner."""
    u, f = 0.5 * random(1, 2, 2, 2), np.linspace(0, 1, 11)
    a, b = np.meshgrid(f, f, indexing="ij")
    p = u[0].numpy() + np.indices((2, 2))
    along0 = (p[:, 1, 0] - p[:, 0, 0])[:, None, None] * (1 - b) + (p[:, 1, 1] - p[:, 0, 1])[:, None, None] * b
    along1 = (p[:, 0, 1] - p[:, 0, 0])[:, None, None] * (1 - a) + (p[:, 1, 1] - p[:, 1, 0])[:, None, None] * a
    sampled = along0[0] * along1[1] - along0[1] * along1[0]
    np.testing.assert_allclose(sampled.min(), smallest_determinant(u).min())


def test_an_affine_map_has_one_determinant(d, random):
    A = 0.3 * random(d, d)
    x = torch.from_numpy(np.indices(SHAPES[d]).astype(float))
    least = smallest_determinant(torch.einsum("ij,j...->i...", A, x)[None])
    torch.testing.assert_close(least, torch.linalg.det(A + torch.eye(d)).expand_as(least))


def test_a_single_slice_does_not_vary_across_itself(random):
    u = random(1, 2, 12, 10)
    for axis in range(3):
        slab = torch.cat([u[:, :axis], random(1, 1, 12, 10), u[:, axis:]], dim=1).unsqueeze(2 + axis)
        assert torch.equal(smallest_determinant(slab).squeeze(1 + axis), smallest_determinant(u))
    assert torch.equal(smallest_determinant(random(1, 2, 1, 1)), torch.ones(1, 1, 1))


def test_it_does_not_matter_how_many_cells_are_computed_together(d, random, monkeypatch):
    u = random(2, d, *SHAPES[d])
    assert u[0, 0].numel() < CELLS_AT_ONCE
    whole = smallest_determinant(u)
    monkeypatch.setattr("vrnet.fields.folds.CELLS_AT_ONCE", 1)
    assert torch.equal(smallest_determinant(u), whole)


def test_a_fold_one_voxel_wide_is_seen():
    u = torch.zeros(1, 2, 9, 9)
    u[0, 0, 4, 4] = 1.5  # this voxel jumps over its neighbour; central differences there look past it
    assert determinant(jacobian(u))[0, 4, 4] == 1
    assert smallest_determinant(u)[0, 4, 4] < 0


@pytest.mark.parametrize("first", [0, 1, 3])
def test_what_is_at_rest_about_a_motion_is_counted_as_if_it_were_looked_at(d, first, random, monkeypatch):
    """A field that moves in a box alone, at the border or within: the voxels about it belong to its simplices."""
    u = torch.zeros(2, d, *[12] * d)
    u[(1, slice(None), *[slice(first, first + 4)] * d)] = random(d, *[4] * d)
    found = smallest_determinant(u)
    monkeypatch.setattr("vrnet.fields.folds.REST", 12)
    assert torch.equal(found, smallest_determinant(u))
    assert (found <= 0).any()
    assert torch.equal(smallest_determinant(0 * u), torch.ones(2, *[12] * d))
