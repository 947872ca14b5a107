import pytest
import torch
from torch import nn

from vrnet.networks.convolution import Conv3d, ConvTranspose3d, convolve_slices, expand_blocks, slices_at_once


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
def test_a_transposed_convolution_makes_a_block_of_each_voxel(bias, random):
    conv = ConvTranspose3d(3, 4, 2, stride=2, bias=bias).double()
    x = random(2, 3, 4, 5, 6)
    expected = nn.ConvTranspose3d.forward(conv, x)
    torch.testing.assert_close(expand_blocks(conv, x), expected)
    torch.testing.assert_close(conv(x), expected)


@pytest.mark.parametrize(
    ("outputs", "kernel", "stride", "together"), [(16, 3, 1, 1), (64, 3, 2, 1), (8, 3, 1, 2), (3, 5, 1, 5)]
)
def test_narrow_convolutions_make_several_slices_at_once(outputs, kernel, stride, together):
    """Eight channels of two slices fill the processor, and see 4 slices instead of twice 3."""
    assert slices_at_once(Conv3d(5, outputs, kernel, stride=stride)) == together
