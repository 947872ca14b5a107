import torch

from vrnet.phantom.anatomy import LV, MYO, Heart, RandomSource, norm
from vrnet.phantom.cycle import voxel_positions


def draw_heart(seed):
    return Heart.draw(RandomSource(torch.Generator().manual_seed(seed)))


def test_the_frame_of_the_heart_is_that_of_the_picture_turned_and_shifted():
    p, q = voxel_positions((12, 10, 8), (9.0,) * 3, level=0.0), torch.randn(3, 12, 10, 8)
    for seed in range(3):
        heart = draw_heart(seed)
        torch.testing.assert_close(heart.to_picture(heart.to_heart(p)), p, atol=1e-4, rtol=0)
        moved = [norm(*(heart.to_heart(x) - heart.to_heart(p))) for x in (p + q, p - q)]
        torch.testing.assert_close(moved[0], norm(*q), atol=1e-4, rtol=0)
        torch.testing.assert_close(moved[0], moved[1], atol=1e-4, rtol=0)


def test_the_wall_encloses_the_cavity_and_is_as_thick_as_drawn():
    """Along the direction across the septum at the belly, where neither shape nor asymmetry counts."""
    for seed in range(3):
        heart = draw_heart(seed)
        b = torch.arange(0, 60, 0.05)
        line = torch.stack([torch.zeros_like(b), b, torch.full_like(b, heart.belly)])
        labels = heart.labels(line)
        cavity, wall = ((labels == value).sum().item() * 0.05 for value in (LV, MYO))
        assert abs(cavity - heart.endo * (1 - heart.oval)) < 0.1
        assert abs(wall - heart.wall) < 0.1
