import torch

from vrnet.fields.calculus import warp, zeros
from vrnet.variational.contrast import learn_curves
from vrnet.variational.linearize import Masks
from vrnet.variational.pyramid import CoarseToFine, RelearnContrast, coarser_shape, coarser_spacing


def test_coarser_halves_only_axes_with_enough_voxels():
    assert coarser_shape((160, 161, 9)) == (80, 81, 9)
    assert coarser_shape((31, 32)) == (31, 16)


def test_coarser_leaves_thick_slices_alone_until_voxels_are_as_wide():
    assert coarser_shape((128, 128, 40), (1.0, 1.0, 3.0)) == (64, 64, 40)
    assert coarser_shape((64, 64, 40), (2.0, 2.0, 3.0)) == (32, 32, 20)
    assert coarser_shape((64, 64, 20), (2.0, 2.0, 1.0)) == (32, 32, 20), "a short axis cannot be halved, however fine"


def test_the_unit_of_the_spacing_does_not_matter():
    assert (
        coarser_shape((64, 64, 64), (1.0, 2.0, 1.2)) == coarser_shape((64, 64, 64), (10.0, 20.0, 12.0)) == (32, 64, 32)
    )


def test_a_coarser_grid_keeps_the_extent():
    assert coarser_spacing((1.0, 2.0), (41, 9), (21, 9)) == (2.0, 2.0)
    assert coarser_spacing(None, (41, 9), (21, 9)) == (2.0, 1.0)


def test_a_level_brings_the_coarse_field_back_in_fine_voxels(d, random):
    shape = (33,) * d
    level = CoarseToFine(lambda I0, I1, spacing: zeros(I0) + 1.5)
    u = level(random(1, 1, *shape), random(1, 1, *shape))
    torch.testing.assert_close(u, torch.full((1, d, *shape), 3.0, dtype=torch.float64))


def test_below_the_coarsest_level_there_is_no_motion(d, random):
    def never(I0, I1, spacing):
        raise AssertionError("no coarser level exists")

    I = random(1, 1, *(16,) * d)
    assert not CoarseToFine(never)(I, I).any()


def test_each_round_shows_both_contrasts_as_the_field_of_the_last_teaches_them(d, h, smooth_image):
    I0, I1, inside = (smooth_image((12,) * d, 1.0, seed) for seed in range(3))
    masks, seen = Masks(inside, inside), []

    def solve(A0, A1, spacing, given):
        assert spacing == h
        assert given is masks
        seen.append((A0, A1))
        return zeros(I0) + len(seen)

    u = RelearnContrast(solve, rounds=3)(I0, I1, h, masks)
    assert torch.equal(u, zeros(I0) + 3)
    for k, shown in enumerate(seen):
        v = zeros(I0) + k
        expected = learn_curves(I0, warp(I1, v), h, masks.weight(v)).apply(I0, I1)
        torch.testing.assert_close(shown, expected)
    assert len(seen) == 3
