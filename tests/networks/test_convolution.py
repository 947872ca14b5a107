import pytest
import torch
from torch import nn

from vrnet.methods.bundled import load_bundled
from vrnet.networks import unet as convolution
from vrnet.networks.unet import (
    Conv2d,
    Conv3d,
    ConvTranspose2d,
    ConvTranspose3d,
    convolve_slices,
    expand_blocks,
    has_half_precision,
    slices_at_once,
    unet_2d,
)
from vrnet.phantom.cycle import phantom


@pytest.mark.parametrize(("kernel", "stride"), [(3, 1), (3, 2), (5, 1)])
@pytest.mark.parametrize(("outputs", "bias"), [(3, True), (4, False), (8, True), (20, True)])
def test_a_3d_convolution_is_a_2d_one_of_stacked_slices(kernel, stride, outputs, bias, random):
    """However many slices are made at once, and whether or not they divide those that there are."""
    conv = Conv3d(3, outputs, kernel, stride=stride, padding=kernel // 2, bias=bias).double()
    x = random(2, 3, 9, 10, 12).requires_grad_()
    expected = nn.Conv3d.forward(conv, x)
    found = convolve_slices(conv, x)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(*(torch.autograd.grad(y.square().sum(), conv.weight)[0] for y in (found, expected)))
    torch.testing.assert_close(conv(x), expected)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", [ConvTranspose2d, ConvTranspose3d])
def test_a_transposed_convolution_makes_a_block_of_each_voxel(kind, bias, random):
    conv = kind(3, 4, 2, stride=2, bias=bias).double()
    x = random(2, 3, 4, 5, 6)[..., 0] if kind is ConvTranspose2d else random(2, 3, 4, 5, 6)
    expected = kind.__base__.forward(conv, x)
    torch.testing.assert_close(expand_blocks(conv, x), expected)
    torch.testing.assert_close(conv(x), expected)


@pytest.mark.parametrize(
    ("outputs", "kernel", "stride", "together"), [(16, 3, 1, 1), (64, 3, 2, 1), (8, 3, 1, 2), (3, 5, 1, 5)]
)
def test_narrow_convolutions_make_several_slices_at_once(outputs, kernel, stride, together):
    """Eight channels of two slices fill the processor, and see 4 slices instead of twice 3."""
    assert slices_at_once(Conv3d(5, outputs, kernel, stride=stride)) == together


@pytest.fixture
def half_precision(monkeypatch):
    """As on a processor that is quicker with 16 bits, whichever this one is."""
    monkeypatch.setattr(convolution, "IS_ARM", True)
    monkeypatch.setattr(convolution, "HAS_HALF_PRECISION", True)


@pytest.mark.parametrize("bias", [True, False])
def test_in_use_a_wide_convolution_computes_in_half_precision_and_a_narrow_one_returns(half_precision, random, bias):
    wide, narrow = Conv2d(16, 32, 3, bias=bias), Conv2d(32, 16, 3, bias=bias)
    x = random(1, 16, 8, 8).float()
    with torch.no_grad():
        between = wide(x)
        found, expected = narrow(between), nn.Conv2d.forward(narrow, nn.Conv2d.forward(wide, x))
    assert (between.dtype, found.dtype) == (torch.float16, torch.float32)
    assert 0 < (found - expected).abs().max() < 0.01


@pytest.mark.parametrize(
    ("inputs", "outputs", "dtype", "is_trained"),
    [
        (16, 16, torch.float32, False),
        (2, 64, torch.float32, False),
        (32, 32, torch.float64, False),
        (32, 32, torch.float32, True),
    ],
)
def test_what_is_narrow_trained_or_precise_is_not_rounded(half_precision, random, inputs, outputs, dtype, is_trained):
    conv, x = Conv2d(inputs, outputs, 3).to(dtype), random(1, inputs, 8, 8).to(dtype)
    with torch.set_grad_enabled(is_trained):
        found = conv(x)
    assert found.dtype == dtype
    assert torch.equal(found, nn.Conv2d.forward(conv, x))


@pytest.mark.parametrize("width", [1, 8, 16, 32])
def test_a_network_of_any_width_gives_its_field_in_single_precision(half_precision, width):
    pair = torch.rand(1, 2, 16, 16, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        assert unet_2d(2, 2, width)(pair).dtype == torch.float32


def test_a_model_finds_the_same_to_a_hundredth_of_a_voxel_in_half_precision(monkeypatch):
    heart, found = phantom(0, (128, 128), 1.8), []
    monkeypatch.setattr(convolution, "IS_ARM", True)
    for has_half in (True, False):
        monkeypatch.setattr(convolution, "HAS_HALF_PRECISION", has_half)
        with torch.no_grad():
            found.append(load_bundled("short-axis").model(heart.fixed, heart.moving))
    assert 0 < (found[0] - found[1]).abs().max() < 0.01


@pytest.mark.parametrize(
    ("text", "is_there"), [("Features : fp asimd asimdhp", True), ("Features : fp asimd", False), (None, False)]
)
def test_half_precision_is_for_processors_that_say_they_have_it(tmp_path, monkeypatch, text, is_there):
    monkeypatch.setattr(convolution, "IS_ARM", True)
    if text is not None:
        (tmp_path / "cpuinfo").write_text(text)
    assert has_half_precision(tmp_path / "cpuinfo") == is_there
