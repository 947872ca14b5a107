import torch

from vrnet.fields import zeros
from vrnet.variational.pyramid import CoarseToFine, coarser


def test_coarser_halves_only_axes_with_enough_voxels():
    assert coarser((160, 161, 9)) == (80, 81, 9)
    assert coarser((31, 32)) == (31, 16)


def test_a_level_brings_the_coarse_field_back_in_fine_voxels(d, random):
    shape = (33,) * d
    level = CoarseToFine(lambda I0, I1: zeros(I0) + 1.5)
    u = level(random(1, 1, *shape), random(1, 1, *shape))
    torch.testing.assert_close(u, torch.full((1, d, *shape), 3.0, dtype=torch.float64))


def test_below_the_coarsest_level_there_is_no_motion(d, random):
    def never(I0, I1):
        raise AssertionError("no coarser level exists")

    I = random(1, 1, *(16,) * d)
    assert not CoarseToFine(never)(I, I).any()
