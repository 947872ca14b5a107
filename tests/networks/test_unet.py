from itertools import product

import pytest
import torch
from torch.nn.functional import pixel_unshuffle

from vrnet.networks.denoisers import FIELD_SCALE
from vrnet.networks.unet import Siamese, blocks_as_channels, half_unet, unet, unet_2d, unet_3d


def size(net):
    return sum(parameter.numel() for parameter in net.parameters())


def test_networks_have_the_sizes_of_the_paper():
    assert size(unet_2d(2, 2, 64)) == pytest.approx(31.03e6, rel=1e-3)
    assert size(unet_3d(2, 3, 8)) == pytest.approx(1.12e6, rel=5e-3)
    assert size(unet_3d(2, 3, 16)) == pytest.approx(4.46e6, rel=5e-3)


NETWORKS = {
    "U-Net": lambda d: unet(d, 2, 4),
    "at half resolution": lambda d: half_unet(d, 2, 4),
    "Siamese": lambda d: Siamese(d, 4),
}


@pytest.mark.parametrize("make", NETWORKS.values(), ids=NETWORKS)
def test_an_untrained_network_gives_a_field_near_zero(d, make):
    x = torch.rand(2, 2, *(32,) * d)
    u = make(d)(x)
    assert u.shape == (2, d, *(32,) * d)
    assert 0 < u.abs().max() < 1e-3


def test_at_half_resolution_and_twice_the_width_a_2d_network_is_as_large_and_wants_the_same_sizes():
    half, full = half_unet(2, 2, 32), unet_2d(2, 2, 16)
    assert size(half) == pytest.approx(size(full), rel=0.01)
    assert half.multiple == full.multiple == 16


def test_the_voxels_of_a_block_become_channels_in_their_order(d):
    x = torch.rand(2, 3, *(4, 6, 8)[:d])
    found = blocks_as_channels(x)
    assert found.shape == (2, 3 * 2**d, *(2, 3, 4)[:d])
    for place, offset in enumerate(product((0, 1), repeat=d)):
        torch.testing.assert_close(found[:, place :: 2**d], x[(..., *(slice(k, None, 2) for k in offset))])
    if d == 2:
        torch.testing.assert_close(found, pixel_unshuffle(x, 2))


def test_every_voxel_of_a_unet_sees_far(d):
    """The gradient of the middle voxel reaches at least a dozen voxels away: the levels are joined."""
    torch.manual_seed(0)  # of random weights, some see nothing: all their rectifiers are shut
    net, x = unet(d, 1, 4), torch.rand(1, 1, *(32,) * d, requires_grad=True)
    net(x)[(0, 0, *(16,) * d)].backward()
    reach = (x.grad[0, 0].abs() > 0).nonzero()
    assert (reach - 16).abs().max() >= 12


def test_the_siamese_encoders_share_their_weights():
    net, x = Siamese(2, 4).eval(), torch.rand(1, 2, 32, 32)
    first, second = (net.encode(image) for image in x.split(1, dim=1))
    swapped = [net.encode(image) for image in x.flip(1).split(1, dim=1)]
    for a, b in zip(first, swapped[1], strict=True):
        torch.testing.assert_close(a, b)
    assert [f.shape[1] for f in second] == [4, 8, 16, 32, 32]
    assert [f.shape[2] for f in second] == [32, 16, 8, 4, 2]


def test_siamese_moves_nothing_further_than_half_of_the_image_along_each_axis():
    net, x = Siamese(2, 4).eval(), torch.rand(1, 2, 64, 32)
    torch.nn.init.constant_(net.head.bias, 1e4)
    u = FIELD_SCALE * net(x)
    torch.testing.assert_close(u[0].amax(dim=(1, 2)), torch.tensor([32.0, 16.0]))
