from itertools import product

import pytest
import torch
from torch import nn
from torch.nn.functional import pixel_unshuffle

from tests.phantoms import phantom
from vrnet.methods.names import load_bundled
from vrnet.networks import unet as convolution
from vrnet.networks.denoisers import FIELD_SCALE
from vrnet.networks.unet import (
    Conv2d,
    Conv3d,
    ConvTranspose2d,
    ConvTranspose3d,
    Siamese,
    convolve_slices,
    expand_blocks,
    segmenter,
    unet,
    unet_2d,
    unet_3d,
)


@pytest.mark.parametrize(
    ("kernel", "stride", "outputs", "bias"), [(3, 1, 3, True), (3, 2, 4, False), (5, 1, 8, True), (3, 1, 20, True)]
)
def test_a_3d_convolution_is_a_2d_one_of_stacked_slices(kernel, stride, outputs, bias, random):
    """However many slices are made at once, and whether or not they divide those that there are."""
    conv = Conv3d(3, outputs, kernel, stride=stride, padding=kernel // 2, bias=bias).double()
    x = random(2, 3, 9, 10, 12).requires_grad_()
    expected = nn.Conv3d.forward(conv, x)
    found = convolve_slices(conv, x)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(*(torch.autograd.grad(y.square().sum(), conv.weight)[0] for y in (found, expected)))
    torch.testing.assert_close(conv(x), expected)


@pytest.mark.parametrize(("kind", "bias"), [(ConvTranspose2d, True), (ConvTranspose3d, False)])
def test_a_transposed_convolution_makes_a_block_of_each_voxel(kind, bias, random):
    conv = kind(3, 4, 2, stride=2, bias=bias).double()
    x = random(2, 3, 4, 5, 6)[..., 0] if kind is ConvTranspose2d else random(2, 3, 4, 5, 6)
    expected = kind.__base__.forward(conv, x)
    torch.testing.assert_close(expand_blocks(conv, x), expected)
    torch.testing.assert_close(conv(x), expected)


@pytest.fixture
def half_precision(monkeypatch):
    """As on a processor that is quicker with 16 bits, whichever this one is."""
    monkeypatch.setattr(convolution, "IS_ARM", True)
    monkeypatch.setattr(convolution, "HAS_HALF_PRECISION", True)


def test_in_use_a_wide_convolution_computes_in_half_precision_and_a_narrow_one_returns(half_precision, random):
    wide, narrow = Conv2d(16, 32, 3), Conv2d(32, 16, 3, bias=False)
    x = random(1, 16, 8, 8).float()
    with torch.no_grad():
        between = wide(x)
        found, expected = narrow(between), nn.Conv2d.forward(narrow, nn.Conv2d.forward(wide, x))
    assert (between.dtype, found.dtype) == (torch.float16, torch.float32)
    assert 0 < (found - expected).abs().max() < 0.01


@pytest.mark.parametrize(
    ("inputs", "outputs", "dtype", "is_trained"),
    [(2, 64, torch.float32, False), (32, 32, torch.float64, False), (32, 32, torch.float32, True)],
)
def test_what_is_narrow_trained_or_precise_is_not_rounded(half_precision, random, inputs, outputs, dtype, is_trained):
    conv, x = Conv2d(inputs, outputs, 3).to(dtype), random(1, inputs, 8, 8).to(dtype)
    with torch.set_grad_enabled(is_trained):
        found = conv(x)
    assert found.dtype == dtype
    assert torch.equal(found, nn.Conv2d.forward(conv, x))


@pytest.mark.parametrize("width", [1, 16, 32])
def test_a_network_of_any_width_gives_its_field_in_single_precision(half_precision, width):
    pair = torch.rand(1, 2, 16, 16, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        assert unet_2d(2, 2, width)(pair).dtype == torch.float32


@pytest.mark.release
def test_a_model_finds_the_same_to_a_hundredth_of_a_voxel_in_half_precision(monkeypatch):
    heart, found = phantom(0, (128, 128), 1.8), []
    monkeypatch.setattr(convolution, "IS_ARM", True)
    for has_half in (True, False):
        monkeypatch.setattr(convolution, "HAS_HALF_PRECISION", has_half)
        with torch.no_grad():
            found.append(load_bundled("short-axis").model(heart.fixed, heart.moving))
    assert 0 < (found[0] - found[1]).abs().max() < 0.01


def size(net):
    return sum(parameter.numel() for parameter in net.parameters())


def test_networks_have_the_sizes_of_the_paper():
    assert size(unet_2d(2, 2, 64)) == pytest.approx(31.03e6, rel=1e-3)
    assert size(unet_3d(2, 3, 8)) == pytest.approx(1.12e6, rel=5e-3)
    assert size(unet_3d(2, 3, 16)) == pytest.approx(4.46e6, rel=5e-3)


NETWORKS = {
    "U-Net": lambda d: unet(d, 2, 4),
    "at half resolution": lambda d: unet(d, 2, 4, half=True),
    "Siamese": lambda d: Siamese(d, 4),
}


@pytest.mark.parametrize("make", NETWORKS.values(), ids=NETWORKS)
def test_an_untrained_network_gives_a_field_near_zero(d, make):
    x = torch.rand(2, 2, *(32,) * d)
    u = make(d)(x)
    assert u.shape == (2, d, *(32,) * d)
    assert 0 < u.abs().max() < 1e-3


def test_at_half_resolution_and_twice_the_width_a_2d_network_is_as_large_and_wants_the_same_sizes():
    half, full = unet(2, 2, 32, half=True), unet_2d(2, 2, 16)
    assert size(half) == pytest.approx(size(full), rel=0.01)
    assert half.multiple == full.multiple == 16


def test_the_voxels_of_a_block_become_channels_in_their_order(d):
    half, seen = unet(d, 3, 1, half=True), []
    half.net.register_forward_pre_hook(lambda net, given: seen.extend(given))
    x = torch.rand(2, 3, *(2 * half.net.multiple * k for k in (1, 2, 1)[:d]))
    half(x)
    (found,) = seen
    assert found.shape == (2, 3 * 2**d, *(n // 2 for n in x.shape[2:]))
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


@pytest.mark.parametrize("d", [2, 3])
def test_a_window_is_what_a_unet_finds_there_of_the_whole(d, random):
    """Wherever it begins and ends, and at the border."""
    net = segmenter(d, 1, 3, 4).eval().double()
    x, window = random(2, 1, *(64, 96, 32)[:d]), (slice(17, 38), slice(0, 51), slice(9, 32))[:d]
    with torch.inference_mode():
        torch.testing.assert_close(net(x, window), net(x)[:, :, *window])
