import numpy as np
import pytest
import torch

import vrnet
from vrnet import parse
from vrnet.fields import smooth, warp
from vrnet.images.intensity import rescale_each, rescale_jointly
from vrnet.registration.arrays import solve
from vrnet.registration.content import MARGIN, carry_on, content_box, cut
from vrnet.registration.masks import Inside
from vrnet.variational.masks import Masks
from vrnet.variational.solver import fewest_voxels


def whole(*shape):
    return tuple(slice(0, n) for n in shape)


def volume(content, shape=(60, 60, 60)):
    """One value everywhere but in a box, in which there is noise."""
    I = torch.full((1, 1, *shape), 0.25)
    I[(..., *content)] = torch.rand(1, 1, *shape, generator=torch.Generator().manual_seed(0))[(..., *content)]
    return I


def test_the_box_holds_the_content_of_both_and_a_margin():
    first, second = slice(3, 40), slice(20, 55)
    box = content_box(volume((first, first, slice(1, 59))), volume((second, first, slice(20, 21))), 16)
    assert box == (slice(3 - MARGIN, 55 + MARGIN), slice(3 - MARGIN, 40 + MARGIN), slice(0, 60))


@pytest.mark.parametrize("fewest", [16, 33, 60, 64])
@pytest.mark.parametrize("content", [slice(30, 31), slice(1, 2), slice(58, 59), slice(3, 29)])
def test_an_axis_keeps_the_fewest_voxels_it_is_said_to_and_the_content(content, fewest):
    box = content_box(*[volume((content,) * 3)] * 2, fewest)
    assert all(part.stop - part.start >= min(fewest, 60) for part in box)
    assert all(part.start <= content.start and content.stop <= part.stop for part in box)


@pytest.mark.parametrize("fewest", [16, 33])
def test_a_mirrored_pair_has_the_mirrored_box(fewest):
    I = volume((slice(3, 20), slice(30, 31), slice(40, 58)))
    box, mirrored = content_box(I, I, fewest), content_box(*[I.flip(2, 3, 4)] * 2, fewest)
    assert mirrored == tuple(slice(60 - part.stop, 60 - part.start) for part in box)


@pytest.mark.parametrize("image", [torch.zeros(1, 1, 40, 40, 40), torch.rand(1, 1, 40, 40, 40)], ids=["flat", "noise"])
def test_where_there_is_no_background_or_nothing_else_all_is_kept(image):
    assert content_box(image, image, 16) == whole(40, 40, 40)


def test_a_background_of_noise_is_content():
    noisy = volume((slice(20, 40),) * 3)
    noisy[..., 58, 58, 58] += 1e-3
    assert [part.stop for part in content_box(noisy, noisy, 16)] == [60, 60, 60]


@pytest.mark.parametrize("method", ["Gaussian-LNCC", "TV-L1"])
def test_a_small_thing_far_from_where_it_was_is_found_as_well_as_in_the_whole_volume(method, monkeypatch):
    """The box keeps enough voxels for every level, or what moves far would be lost."""
    rng, x = torch.Generator().manual_seed(0), torch.stack(torch.meshgrid(*[torch.arange(80.0)] * 3, indexing="ij"))
    texture = 0.5 + 0.5 * smooth(torch.randn(1, 1, 80, 80, 80, generator=rng), 2.0)
    inside = ((x - 40).square().sum(0).sqrt() < 9)[None, None]
    fixed = (texture * inside)[0, 0].clamp(min=0).numpy()
    moving = np.roll(fixed, 8, 0)
    errors = []
    for keep in (content_box, lambda I0, I1, fewest: whole(80, 80, 80)):
        monkeypatch.setattr("vrnet.registration.arrays.content_box", keep)
        field = vrnet.register(fixed, moving, method, spacing=(1.0, 1.0, 1.0)).field
        off = field - np.array([8.0, 0, 0], np.float32).reshape(3, 1, 1, 1)
        errors.append(np.linalg.norm(off, axis=0)[inside[0, 0].numpy()].mean())
    assert errors[0] <= 1.1 * errors[1] < 5


def test_outside_the_box_a_field_is_that_of_the_nearest_voxel():
    box, u = (slice(2, 5), slice(0, 4), slice(1, 6)), torch.randn(1, 3, 6, 4, 7)
    carried = carry_on(cut(u, box), box, (6, 4, 7))
    nearest = np.pad(u[0, :, 2:5, :, 1:6].numpy(), [(0, 0), (2, 1), (0, 0), (1, 1)], mode="edge")
    np.testing.assert_array_equal(carried[0], nearest)


@pytest.mark.parametrize("method", ["Gaussian-LNCC(warps=5,finest_warps=5)", "TV-L1(warps=5)"])
@pytest.mark.parametrize("masked", [False, True])
def test_a_volume_in_a_wide_background_is_registered_without_it(method, masked):
    """What is found is what the solver finds in the box."""
    inner = torch.nn.functional.pad(smooth(torch.rand(1, 1, 40, 36, 32), 2.0), [1] * 6)
    I0 = (inner - inner.min()) / (inner.max() - inner.min())
    I0, I1 = (torch.nn.functional.pad(I, [24] * 6) for I in (I0, warp(I0, torch.full((1, 3, 42, 38, 34), 0.7))))
    mask = torch.ones_like(I0[0, 0])
    mask[:, :, 45:] = 0
    inside = Inside(mask > 0, None) if masked else Inside(None, None)
    chosen, shape = parse(method), tuple(I0.shape[2:])
    box = content_box(I0, I1, fewest_voxels(chosen.build(3)))
    assert box != whole(*shape)
    found, _ = solve(I0[0, 0], I1[0, 0], inside, chosen, (1.0, 1.0, 1.5), None, None)
    rescale = rescale_each if chosen.scaling == "each" else rescale_jointly
    seen = [cut(I[None, None], box) for I in rescale(I0[0, 0], I1[0, 0], inside=inside.of_each)]
    masks = Masks(cut(mask[None, None], box), torch.ones_like(seen[0])) if masked else None
    with torch.inference_mode():
        expected = chosen.build(3).descend(*seen, (1.0, 1.0, 1.5), masks).v
    assert expected.abs().max() > 0.1
    assert torch.equal(found, carry_on(expected, box, shape)[0])


def test_an_image_in_a_background_does_not_move_to_itself():
    image = np.zeros((40, 40, 40), np.float32)
    image[10:30, 10:30, 10:30] = np.random.default_rng(0).random((20, 20, 20))
    assert not vrnet.register(image, image, "TV-L1", spacing=(1.0, 1.0, 1.0)).field.any()
