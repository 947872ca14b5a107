import torch

from vrnet.methods.rivals import RCNet, Siamese, VoxelMorph
from vrnet.networks.adaptors import Predict

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


def test_siamese_moves_nothing_farther_than_half_a_side(d, smooth_image):
    I0, I1 = pair(d, smooth_image)
    model = Siamese(NARROW_WIDTH[d]).build(d).eval()
    assert model.steps == []
    with torch.no_grad():
        model.init.net.head[-1].bias.fill_(10.0)
        u = model(I0, I1)
    for component, n in zip(u[0], SIZE[d], strict=True):
        torch.testing.assert_close(component, torch.full_like(component, n / 2), rtol=1e-3, atol=0)
