from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy import ndimage

import vrnet
from tests.registration.test_images import reorient
from tests.tetrahedra import relative_volumes
from vrnet import Grid, Image, parse
from vrnet.fields import calculus as fields
from vrnet.fields.folds import Repair
from vrnet.images.image import rescale_jointly

SIZES = {2: (40, 36), 3: (20, 18, 16)}
SPACING = (1.0, 1.5, 2.0)
METHOD = "TV-L1(lam=0.02)"


@cache
def unlike(d):
    """Two images that have nothing to do with each other: hardly smoothed, a motion between them folds."""
    rng = np.random.default_rng(d)
    return tuple(ndimage.gaussian_filter(rng.standard_normal(SIZES[d]), 1.5).astype(np.float32) for _ in range(2))


@cache
def registered(d, folds="repair", slice_axis=None):
    return vrnet.register(*unlike(d), METHOD, spacing=SPACING[:d], folds=folds, slice_axis=slice_axis)


def folded(field):
    return (relative_volumes(field) <= 0).any()


def test_a_registration_does_not_fold_unless_folds_are_kept(d):
    kept, repaired = registered(d, "keep"), registered(d)
    assert folded(kept.field)
    assert kept.repair is None
    assert not folded(repaired.field)
    x = np.indices(SIZES[d]) + repaired.field
    expected = ndimage.map_coordinates(unlike(d)[1].astype(float), x, order=1, mode="nearest")
    assert_allclose(repaired.warped, expected, atol=1e-5)


def test_folds_that_are_kept_are_those_of_the_method(d):
    """Bit by bit what its solver finds."""
    I0, I1 = (I[None, None] for I in rescale_jointly(*map(torch.from_numpy, unlike(d))))
    with torch.inference_mode():
        u = parse(METHOD).build(d)(I0, I1, SPACING[:d])
    assert np.array_equal(registered(d, "keep").field, u[0].numpy())


def test_the_repair_says_how_much_it_moved(d):
    kept, repaired = registered(d, "keep"), registered(d)
    move = (repaired.field - kept.field).astype(float)
    changed = (move != 0).any(0)
    voxels = np.linalg.norm(move[:, changed], axis=0)
    mm = np.linalg.norm(move[:, changed] * np.array(SPACING[:d])[:, None], axis=0)
    told = repaired.repair
    assert_allclose(told.changed_percent, 100 * changed.mean())
    assert_allclose((told.mean_move_voxels, told.max_move_voxels), (voxels.mean(), voxels.max()))
    assert_allclose((told.mean_move_mm, told.max_move_mm), (mm.mean(), mm.max()))
    assert 0 < told.folded_percent < 100
    assert told.farthest_voxel == tuple(np.argwhere(changed)[mm.argmax()])
    place = ", ".join(map(str, told.farthest_voxel))
    assert "% of the voxels were folded" in str(told)
    assert "less than 0.001 % of the voxels were moved" in str(replace(told, changed_percent=2.9e-5))
    assert f"{mm.mean():.2g} mm on average and {mm.max():.2g} mm at most, at voxel ({place})" in str(told)


def test_the_voxel_that_was_moved_most_is_one_of_the_image_as_it_is_stored():
    images = [
        reorient(Image(array, Grid.plain(SIZES[3], SPACING)), [2, 0, 1], (True, False, True)) for array in unlike(3)
    ]
    kept, found = (vrnet.register_images(*images, METHOD, folds=folds) for folds in ("keep", "repair"))
    move = np.linalg.norm(found.transform.displacement - kept.transform.displacement, axis=0)
    assert found.repair.farthest_voxel == np.unravel_index(move.argmax(), move.shape)


def test_what_was_squeezed_alone_is_not_called_folded():
    told = Repair(0.0, 1.3, 0.4, 2.0, 0.55, 2.2, (3, 4, 5))
    assert str(told).startswith("No voxel was folded, but some were squeezed to less than 2 % of their size: 1.3 % of")


def test_a_repair_says_what_motion_it_cost(monkeypatch):
    """Of two images that have nothing to do with each other, when no round is spent to open folds."""
    assert "lost" not in str(registered(2).repair)
    assert registered(2).repair.drawn_percent == 0
    monkeypatch.setattr("vrnet.fields.folds.MAX_ROUNDS", 0)
    told = vrnet.register(*unlike(2), METHOD, spacing=SPACING[:2]).repair
    assert 0 < told.drawn_percent <= 100
    assert "about folds that did not open, " in str(told)
    assert f"{told.drawn_percent:.2g} % of them lost much of their motion" in str(told)


def test_without_a_spacing_moves_are_told_in_voxels_alone():
    told = vrnet.register(*unlike(2), METHOD).repair
    assert told.mean_move_mm is told.max_move_mm is None
    assert "voxels on average" in str(told)


@pytest.mark.parametrize("axis", [0, pytest.param(2, marks=pytest.mark.release)])
def test_slices_are_repaired_within_themselves(axis):
    kept, repaired = (registered(3, folds, axis) for folds in ("keep", "repair"))
    within = [i for i in range(3) if i != axis]
    slices = [np.moveaxis(result.field[within], 1 + axis, 0) for result in (kept, repaired)]
    assert any(folded(field) for field in slices[0])
    assert not any(folded(field) for field in slices[1])
    assert not repaired.field[axis].any()
    assert kept.metrics()["folding_strict_percent"] > 0
    assert repaired.metrics()["folding_strict_percent"] == 0


def test_a_registration_without_folds_is_not_repaired(d):
    fixed, noise = unlike(d)
    found, kept = (vrnet.register(fixed, fixed + 0.01 * noise, "Gaussian-L2", folds=f) for f in ("repair", "keep"))
    assert found.repair is None
    assert np.array_equal(found.field, kept.field)


@pytest.mark.parametrize("d", [2, pytest.param(3, marks=pytest.mark.release)])
def test_folds_are_counted_alike_before_and_after_they_are_mended(d):
    """Also of images whose axes run against the world's, or are stored in another order."""
    images = [Image(array, Grid.plain(SIZES[d], SPACING[:d])) for array in unlike(d)]
    stored = [image.reordered(range(d)[::-1]) for image in images]
    stored = [replace(one, array=np.flip(one.array, 1), grid=one.grid.flipped([1])) for one in stored]
    kept, mended = (vrnet.register_images(*stored, METHOD, slices="together", folds=f) for f in ("keep", "repair"))
    assert kept.metrics()["folding_strict_percent"] == pytest.approx(mended.repair.folded_percent, rel=1e-6)
    assert mended.repair.folded_percent > 1


def test_the_inverse_leads_back(d):
    repaired = registered(d)
    back = repaired.inverse()
    u, w = (torch.from_numpy(field)[None] for field in (repaired.field, back.field))
    there_and_back = fields.compose(u, w)[0].numpy()
    assert_allclose(np.linalg.norm(there_and_back, axis=0), back.residual, atol=1e-4)
    assert np.median(back.residual) < 2e-3
    field, residual = back
    assert field is back.field
    assert residual is back.residual
    assert len(repr(back)) < 200
    tensors = vrnet.register(*map(torch.from_numpy, unlike(d)), "identity").inverse()
    assert torch.equal(tensors.field, torch.zeros(d, *SIZES[d]))
    assert torch.equal(tensors.residual, torch.zeros(SIZES[d]))


def test_the_saved_transform_of_a_repaired_registration_does_not_fold(d, tmp_path):
    turn = np.linalg.qr(np.random.default_rng(2).standard_normal((d, d)))[0]
    grid = Grid(SIZES[d], SPACING[:d], (10.0, -20.0, 5.0)[:d], tuple(turn.ravel()))
    images = [Image(array, grid) for array in unlike(d)]
    kept, found = (vrnet.register_images(*images, METHOD, folds=folds) for folds in ("keep", "repair"))
    assert folded(kept.transform.in_voxels())
    assert kept.repair is None
    assert found.repair.max_move_mm > 0
    found.transform.save(tmp_path / "transform.nii.gz")
    assert not folded(vrnet.Transform.load(tmp_path / "transform.nii.gz").in_voxels())
    back = found.inverse()
    assert_allclose(back.transform.displacement, found.transform.inverse().transform.displacement)
    transform, residual = back
    assert residual.shape == transform.grid.shape == images[1].grid.shape
    assert len(repr(back)) < 200
