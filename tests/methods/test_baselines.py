import torch

from vrnet.methods.names import Identity
from vrnet.methods.vrnet import RCNet, VoxelMorph
from vrnet.networks.denoisers import Predict
from vrnet.networks.unet import HalfResolution

WIDTH = 2
SIZE = {2: (20, 18), 3: (18, 16, 17)}


def pair(d, smooth_image):
    return smooth_image(SIZE[d], 2, 0, torch.float32), smooth_image(SIZE[d], 2, 1, torch.float32)


def test_no_registration_is_no_motion(d, smooth_image):
    u = Identity().build(d)(*pair(d, smooth_image), None)
    assert u.shape == (1, d, *SIZE[d])
    assert not u.any()


def test_voxelmorph_is_the_empty_cascade(d, smooth_image):
    I0, I1 = pair(d, smooth_image)
    model = VoxelMorph(WIDTH).build(d)
    assert model.steps == []
    assert torch.equal(model(I0, I1), model.init(I0, I1))
    assert isinstance(model.init, Predict)


def test_one_recursive_cascade_is_voxelmorph(d, smooth_image):
    I0, I1 = pair(d, smooth_image)
    recursive, single = RCNet(1, WIDTH).build(d), VoxelMorph(WIDTH).build(d)
    single.init.net.load_state_dict(recursive.parts[0].second.net.state_dict())
    torch.testing.assert_close(recursive(I0, I1), single(I0, I1))


def test_recursive_cascades_see_the_resolution_that_they_are_asked_to(d):
    for resolution in ("full", "half"):
        parts = RCNet(2, WIDTH, resolution).build(d).parts
        assert [isinstance(part.second.net, HalfResolution) for part in parts] == [resolution == "half"] * 2
