"""The pyramid of features, and its names."""

from itertools import product

import numpy as np
import pytest
import torch
from scipy import ndimage

from tests.conftest import SHAPES
from vrnet import BadInput
from vrnet.fields.calculus import smooth, warp
from vrnet.fields.folds import smallest_determinant
from vrnet.methods.names import parse
from vrnet.methods.vrnet import Pyramid
from vrnet.networks.pyramid import PyramidNet, correlate
from vrnet.variational.data_terms import L1, L2

PARTS = [
    Pyramid("L1", width=4), Pyramid("L2", channels=2, width=4),
    Pyramid("none", width=4, without=frozenset({"correlation"})),
    Pyramid("L2", 1, 4, without=frozenset({"features", "flows"})),
]  # fmt: skip


@pytest.fixture
def images(d, smooth_image):
    """A pair with two further channels, of sides that are no multiples of 16."""
    shape = {2: (37, 50), 3: (20, 17, 33)}[d]
    return tuple(torch.cat([smooth_image(shape, 3, 3 * k + j, torch.float32) for j in range(3)], 1) for k in range(2))


@pytest.mark.parametrize("method", PARTS, ids=str)
def test_every_pyramid_parses_prints_and_trains_all_its_parameters(d, method, images):
    assert parse(str(method)) == method
    model, (I0, I1) = method.build(d), (I[:, : 1 + method.channels] for I in images)
    u = model(I0, I1)
    assert u.shape == (1, d, *I0.shape[2:])
    (warp(I1, u) - I0).square().mean().backward()
    assert all(p.grad is not None and p.grad.any() for p in model.parameters() if p.numel())


@pytest.mark.parametrize("name", ["P-L3", "P-L2-image-image", "P-L2-added-image", "P-L2-c-w8", "P-L2-w16-c3"])
def test_other_names_are_no_pyramids(name):
    with pytest.raises(BadInput, match=name):
        parse(name)


def test_a_pyramid_without_data_steps_compares_no_features():
    with pytest.raises(BadInput, match="leave out image"):
        parse("P-none-image")


def test_equal_images_do_not_move_by_the_data_steps(d, images):
    """What moves an untrained pyramid is its last layers alone, which start near zero."""
    model = Pyramid("L2", width=4, channels=2).build(d)
    with torch.no_grad():
        assert model(images[0], images[0]).abs().max() < 1e-2
        assert model(*images).abs().max() > 0.1


def test_an_untrained_pyramid_already_finds_a_smooth_motion(d, smooth_image):
    """By its data steps on the images alone, coarse to fine: Algorithm 1."""
    shape = {2: (64, 64), 3: (32, 32, 32)}[d]
    I1 = smooth_image(shape, 3, dtype=torch.float32)
    I0 = warp(I1, torch.full((1, d, *shape), 1.5))
    model = Pyramid("L2", width=2, theta=0.001).build(d)
    with torch.no_grad():
        for level in model.init.net.levels:
            level.compared.weight.zero_()
            level.compared.bias.zero_()
        u = model(I0, I1)
    before, after = ((warp(I1, v) - I0)[(..., *[slice(4, -4)] * d)].abs().mean() for v in (torch.zeros_like(u), u))
    assert after < before / 2


def test_flows_hardly_fold_where_added_moves_do(d, images):
    nets = {}
    for without in ((), ("flows",)):
        torch.manual_seed(0)
        nets[without] = Pyramid("L1", 2, 2, 0.01, frozenset(without)).build(d)
    with torch.no_grad():
        flows, added = ((smallest_determinant(net(*images)) <= 0).float().mean() for net in nets.values())
    assert flows < added / 4


def test_features_correlate_as_scipy_says(d, random):
    """⟨F0(x), F1(x + k)⟩ of unit vectors, the border repeated; offsets in the order of their axes."""
    F0, F1 = random(1, 3, *SHAPES[d]), random(1, 3, *SHAPES[d])
    a, b = ((F / F.norm(dim=1, keepdim=True))[0].numpy() for F in (F0, F1))
    x = np.indices(SHAPES[d])
    expected = [
        sum(
            a[c] * ndimage.map_coordinates(b[c], x + np.reshape(k, (-1, *[1] * d)), order=0, mode="nearest")
            for c in range(3)
        )
        for k in product((-1, 0, 1), repeat=d)
    ]
    np.testing.assert_allclose(correlate(F0, F1)[0].numpy(), expected, atol=1e-12)


def test_further_channels_count_by_their_weights(d, images):
    """β multiplies a channel: at β = 0 it says nothing in the data steps."""
    nets = [PyramidNet(d, 2, 2, term, 0.1) for term in (L1(), L2())]
    I0, I1 = (I[(..., *[slice(0, 16)] * d)] for I in images)
    other = torch.cat([I1[:, :1], smooth(I1[:, 1:].flip(1), 1.0)], 1)
    for net in nets:
        with torch.no_grad():
            assert not torch.equal(net(torch.cat([I0, I1], 1)), net(torch.cat([I0, other], 1)))
            net.log_beta.fill_(-torch.inf)
            assert torch.equal(net(torch.cat([I0, I1], 1)), net(torch.cat([I0, other], 1)))
