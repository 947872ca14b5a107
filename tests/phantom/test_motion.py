import torch

from vrnet.phantom.anatomy import Heart, RandomSource
from vrnet.phantom.cycle import voxel_positions
from vrnet.phantom.motion import Motion


def test_the_motion_is_undone_to_a_ten_thousandth_of_a_voxel():
    y = voxel_positions((64, 64, 48), (2.4,) * 3, level=0.0)
    for seed in range(4):
        random = RandomSource(torch.Generator().manual_seed(seed))
        motion = Motion.draw(Heart.draw(random), random)
        assert (motion.forward(motion.inverse(y)) - y).abs().max() < 2.4e-4
