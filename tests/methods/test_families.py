import pytest
import torch

from vrnet.errors import BadInput
from vrnet.methods.baselines import RCNet, Siamese, VoxelMorph
from vrnet.methods.names import parse_trainable
from vrnet.methods.vrnet import VRNet
from vrnet.methods.weights import parse_learned

SIZE = {2: (20, 18), 3: (18, 16, 17)}


def pair(d, smooth_image):
    return smooth_image(SIZE[d], 2, 0, torch.float32), smooth_image(SIZE[d], 2, 1, torch.float32)


@pytest.mark.parametrize("name", ["R-L3-1x1", "R-L1-3", "X-L1-1x1", "R-L1-3x2-unknown", "TV-L1", ""])
def test_other_names_are_not_configurations(name):
    assert parse_learned(name) is None


def test_a_cascade_without_steps_is_refused():
    for wrong in (
        lambda: VRNet(warps=0),
        lambda: parse_learned("R-L1-0x1"),
        lambda: RCNet(0),
        lambda: VRNet(theta=0.0),
    ):
        with pytest.raises(BadInput):
            wrong()


@pytest.mark.parametrize("name", ["R-L1-3x2-w0", "VoxelMorph-w0", "Siamese-w0", "2xRC-Net-w0"])
def test_a_network_without_channels_is_refused(name):
    with pytest.raises(BadInput, match="no channels"):
        parse_trainable(name)


@pytest.mark.parametrize(
    "method",
    [
        VRNet(width=2),
        VRNet("C", "L1", 2, 1, "noise", width=2),
        VRNet("D", "L1", 2, 1, "noise", width=2),
        VoxelMorph(2),
        Siamese(4),
        RCNet(2, 2),
    ],
    ids=str,
)
def test_every_learned_method_gives_a_field_for_any_size(d, method, smooth_image):
    I0, I1 = pair(d, smooth_image)
    model = method.build(d).eval()
    with torch.no_grad():
        u = model(I0, I1)
    assert u.shape == (1, d, *SIZE[d])
    assert u.isfinite().all()
    assert method.summary


@pytest.mark.parametrize(
    "name",
    [
        "R-L1-3x2",
        "VoxelMorph",
        "VoxelMorph-w8",
        "Siamese",
        "Siamese-w16",
        "4xRC-Net",
        "2xRC-Net-w8",
        "2xRC-Net-half-w8",
    ],
)
def test_every_learned_method_has_a_name(name):
    assert str(parse_trainable(name)) == name
    assert parse_trainable(name.lower()) == parse_trainable(name)


def test_an_unknown_learned_method_is_refused():
    with pytest.raises(BadInput, match="did you mean"):
        parse_trainable("RC-Net")
