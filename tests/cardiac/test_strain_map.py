import numpy as np
import pytest
from numpy.testing import assert_allclose

from vrnet.cardiac.strain import strain, strain_map

SHAPE, SPACING = (64, 60, 3), (1.5, 1.25, 8.0)


@pytest.fixture
def labels():
    """A ring of wall in the first two slices, a full disc in the third."""
    x, y = (h * (np.arange(n) - n / 2) for n, h in zip(SHAPE[:2], SPACING[:2], strict=True))
    radius = np.hypot(x[:, None], y)
    disc = np.where(radius < 25, 2, 0)
    ring = np.where(radius < 16, 3, disc)
    return np.stack([ring, ring, disc], -1)


def test_the_strain_of_a_linear_motion_is_that_of_its_matrix(labels):
    """½(|Fe|² − 1) for F = I + A, e away from the centre and around it."""
    A = np.array([[-0.1, 0.05], [0.02, 0.08]])
    x = np.stack(np.meshgrid(*(np.arange(n) for n in SHAPE), indexing="ij")).astype(float)
    middle = np.array([SHAPE[0] / 2, SHAPE[1] / 2])
    offset = np.moveaxis(x[:2], 0, -1) - middle
    mm = offset * SPACING[:2]
    u = np.zeros((1, 3, *SHAPE))
    u[0, :2] = np.moveaxis(mm @ A.T / SPACING[:2], -1, 0)
    found = strain_map(u, labels, SPACING, across=2)
    at = (found.index[:2].T - middle) * SPACING[:2]
    away = at / np.linalg.norm(at, axis=1, keepdims=True)
    around = np.stack([-away[:, 1], away[:, 0]], 1)
    for values, e in ((found.radial, away), (found.circumferential, around)):
        expected = 50 * (np.square(e @ (np.eye(2) + A).T).sum(1) - 1)
        assert_allclose(values[0], expected, atol=0.6)  # the centre is that of the cavity's voxels


def test_it_holds_every_voxel_of_the_rings_and_no_other(labels):
    found = strain_map(np.zeros((2, 3, *SHAPE)), labels, SPACING, across=2)
    inside = np.zeros(SHAPE, bool)
    inside[tuple(found.index)] = True
    expected = labels == 2
    expected[..., 2] = False
    assert (inside == expected).all()
    assert found.radial.shape == (2, expected.sum())
    assert_allclose(found.radial, 0, atol=1e-10)


def test_its_mean_is_the_global_strain(labels):
    u = np.random.default_rng(0).normal(0, 0.3, (2, 3, *SHAPE))
    u[:, 2] = 0
    found, whole = strain_map(u, labels, SPACING), strain(u, labels, SPACING)
    assert_allclose(found.circumferential.mean(1), whole.curve("green_circumferential"), rtol=1e-6)
    assert_allclose(found.radial.mean(1), whole.curve("green_radial"), rtol=1e-6)


def test_without_a_ring_there_is_none(labels):
    assert strain_map(np.zeros((1, 3, *SHAPE)), np.minimum(labels, 1), SPACING) is None
