import pytest
import torch

from vrnet.methods.baselines import RCNet, VoxelMorph
from vrnet.networks.denoisers import Predict
from vrnet.networks.unet import HalfResolution

NARROW_WIDTH = {2: 2, 3: 2}
SIZE = {2: (20, 18), 3: (18, 16, 17)}


def pair(d, smooth_image):
    return smooth_image(SIZE[d], 2, 0, torch.float32), smooth_image(SIZE[d], 2, 1, torch.float32)


def test_voxelmorph_is_the_empty_cascade(d, smooth_image):
    I0, I1 = pair(d, smooth_image)
    torch.manual_seed(0)
    model = VoxelMorph(NARROW_WIDTH[d]).build(d)
    assert model.steps == []
    assert torch.equal(model(I0, I1), model.init(I0, I1))
    assert isinstance(model.init, Predict)


def test_one_recursive_cascade_is_voxelmorph(d, smooth_image):
    I0, I1 = pair(d, smooth_image)
    recursive, single = RCNet(1, NARROW_WIDTH[d]).build(d), VoxelMorph(NARROW_WIDTH[d]).build(d)
    single.init.net.load_state_dict(recursive.parts[0].second.net.state_dict())
    torch.testing.assert_close(recursive(I0, I1), single(I0, I1))


@pytest.mark.parametrize(("resolution", "is_half"), [("full", False), ("half", True)])
def test_recursive_cascades_see_the_resolution_that_they_are_asked_to(d, resolution, is_half):
    model = RCNet(2, NARROW_WIDTH[d], resolution).build(d)
    assert [isinstance(part.second.net, HalfResolution) for part in model.parts] == [is_half] * 2
