import numpy as np
import pytest
import torch

import vrnet
from vrnet import parse
from vrnet.fields.calculus import smooth, warp
from vrnet.fields.folds import smallest_determinant
from vrnet.images.image import rescale_each, rescale_jointly
from vrnet.registration.arrays import Plan, solve
from vrnet.registration.masks import MARGIN, Inside, carry_on, compared_box, content_box, cut, fade_out
from vrnet.variational.linearize import Masks
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


@pytest.mark.parametrize(
    ("fewest", "content"), [(16, slice(30, 31)), (33, slice(1, 2)), (60, slice(58, 59)), (64, slice(3, 29))]
)
def test_an_axis_keeps_the_fewest_voxels_it_is_said_to_and_the_content(content, fewest):
    box = content_box(*[volume((content,) * 3)] * 2, fewest)
    assert all(part.stop - part.start >= min(fewest, 60) for part in box)
    assert all(part.start <= content.start and content.stop <= part.stop for part in box)


@pytest.mark.parametrize("fewest", [33])
def test_a_mirrored_pair_has_the_mirrored_box(fewest):
    I = volume((slice(3, 20), slice(30, 31), slice(40, 58)))
    box, mirrored = content_box(I, I, fewest), content_box(*[I.flip(2, 3, 4)] * 2, fewest)
    assert mirrored == tuple(slice(60 - part.stop, 60 - part.start) for part in box)


@pytest.mark.parametrize("image", [torch.zeros(1, 1, 40, 40, 40), torch.rand(1, 1, 40, 40, 40)], ids=["flat", "noise"])
def test_where_there_is_no_background_or_nothing_else_all_is_kept(image):
    assert content_box(image, image, 16) == whole(40, 40, 40)


@pytest.mark.parametrize("method", ["Gaussian-LNCC", "TV-L1"])
def test_a_small_thing_far_from_where_it_was_is_found_as_well_as_in_the_whole_volume(method, monkeypatch):
    """The box keeps enough voxels for every level, or what moves far would be lost."""
    rng, x = torch.Generator().manual_seed(0), torch.stack(torch.meshgrid(*[torch.arange(64.0)] * 3, indexing="ij"))
    texture = 0.5 + 0.5 * smooth(torch.randn(1, 1, 64, 64, 64, generator=rng), 2.0)
    inside = ((x - 32).square().sum(0).sqrt() < 9)[None, None]
    fixed = (texture * inside)[0, 0].clamp(min=0).numpy()
    moving = np.roll(fixed, 8, 0)
    errors = []
    for keep in (content_box, lambda I0, I1, fewest: whole(64, 64, 64)):
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


@pytest.mark.parametrize(
    ("method", "masked"), [("Gaussian-LNCC(warps=5,finest_warps=5)", False), ("TV-L1(warps=5)", True)]
)
def test_a_volume_in_a_wide_background_is_registered_without_it(method, masked):
    """What is found is what the solver finds in the box."""
    inner = torch.nn.functional.pad(smooth(torch.rand(1, 1, 32, 30, 28), 2.0), [1] * 6)
    I0 = (inner - inner.min()) / (inner.max() - inner.min())
    I0, I1 = (torch.nn.functional.pad(I, [24] * 6) for I in (I0, warp(I0, torch.full((1, 3, 34, 32, 30), 0.7))))
    mask = torch.ones_like(I0[0, 0])
    mask[:, :, 42:] = 0
    inside = Inside(mask > 0, None) if masked else Inside(None, None)
    chosen, shape = parse(method), tuple(I0.shape[2:])
    fewest = fewest_voxels(chosen.build(3))
    box = content_box(I0, I1, fewest)
    if masked:
        box = compared_box(box, Masks(mask[None, None], torch.ones_like(I0)), (1.0, 1.0, 1.5), fewest)
    assert box != whole(*shape)
    plan = Plan.of(chosen, shape, (1.0, 1.0, 1.5), None, "cpu", "keep", "keep")
    found, _ = solve(I0[0, 0], I1[0, 0], inside, plan)
    rescale = rescale_each if chosen.scaling == "each" else rescale_jointly
    seen = [cut(I[None, None], box) for I in rescale(I0[0, 0], I1[0, 0], inside=inside.of_each)]
    masks = Masks(cut(mask[None, None], box), torch.ones_like(seen[0])) if masked else None
    with torch.inference_mode():
        expected = chosen.build(3).descend(*seen, (1.0, 1.0, 1.5), masks).v
    assert expected.abs().max() > 0.1
    end = fade_out(expected, box, shape, (1.0, 1.0, 1.5)) if masked else carry_on(expected, box, shape)
    assert torch.equal(found, end[0])


def test_an_image_in_a_background_does_not_move_to_itself():
    image = np.zeros((40, 40, 40), np.float32)
    image[10:30, 10:30, 10:30] = np.random.default_rng(0).random((20, 20, 20))
    assert not vrnet.register(image, image, "TV-L1", spacing=(1.0, 1.0, 1.0)).field.any()


def ball_mask(shape, centre, radius):
    """1 inside a ball, 0 outside, as a batch of one."""
    x = torch.stack(torch.meshgrid(*(torch.arange(float(n)) for n in shape), indexing="ij"))
    return ((x - torch.tensor(centre).view(3, 1, 1, 1)).square().sum(0).sqrt() <= radius).float()[None, None]


@pytest.mark.parametrize("is_mirrored", [False, True])
def test_the_box_holds_what_both_masks_have_and_a_margin_for_the_motion(is_mirrored):
    """Of the margin there are as many voxels as make its length, whatever their edges."""
    shape, h = (100, 100, 100), (1.0, 1.0, 2.0)
    masks = Masks(torch.ones(1, 1, *shape), ball_mask(shape, (40.0, 50.0, 60.0), 4))
    if is_mirrored:
        masks = masks.map(lambda w: w.flip(2, 3, 4))
    first, last = (40 - 4 - 16, 50 - 4 - 16, 60 - 4 - 8), (40 + 4 + 16, 50 + 4 + 16, 60 + 4 + 8)
    expected = tuple(slice(a, b + 1) for a, b in zip(first, last, strict=True))
    if is_mirrored:
        expected = tuple(slice(100 - part.stop, 100 - part.start) for part in expected)
    assert compared_box(whole(*shape), masks, h, 16) == expected
    assert compared_box(whole(*shape), Masks(masks.moving, masks.fixed), h, 16) == expected
    assert all(part.stop - part.start >= 64 for part in compared_box(whole(*shape), masks, h, 64))


@pytest.mark.parametrize("length", [0.5, 12.0])
def test_outside_the_box_a_field_ends_smoothly_without_folds(length):
    """That of the box in it; none far away; and nowhere between a step of more than 3/8 of a voxel."""
    box, shape, h = (slice(90, 110), slice(80, 100), slice(40, 50)), (200, 180, 80), (1.0, 1.0, 2.0)
    u = torch.full((1, 3, 20, 20, 10), length / 3)
    u[:, 2] /= 2
    found = fade_out(u, box, shape, h)
    assert torch.equal(cut(found, box), u)
    assert not found[..., 0, :, :].any()
    assert not found[..., -1, :, :].any()
    steps = [torch.diff(found * torch.tensor(h).view(3, 1, 1, 1), dim=axis) for axis in (2, 3, 4)]
    lengths = [torch.linalg.vector_norm(step, dim=1).max() / edge for step, edge in zip(steps, h, strict=True)]
    assert max(lengths) <= 3 / 8 + 1e-5
    bends = [torch.diff(step, dim=axis).abs().max() / h[axis - 2] ** 2 for axis, step in enumerate(steps, start=2)]
    assert max(bends) < 0.1
    assert smallest_determinant(found).min() > 0.5


@pytest.mark.parametrize(
    ("method", "given"),
    [("Gaussian-LNCC(warps=5,finest_warps=5)", "fixed_mask"), ("Gaussian-L2(warps=5)", "moving_mask")],
)
def test_far_from_a_small_mask_nothing_is_computed_and_nothing_moves(method, given):
    """Whatever is there: noise in either image, where it has no mask, too."""
    rng = torch.Generator().manual_seed(0)
    fixed = smooth(torch.randn(1, 1, 120, 40, 40, generator=rng), 2.0)
    moving = warp(fixed, torch.full((1, 3, 120, 40, 40), 0.7))[0, 0].numpy()
    mask = ball_mask((120, 40, 40), (24.0, 20.0, 20.0), 8)[0, 0].numpy()
    other = moving.copy()
    other[80:] = torch.randn(40, 40, 40, generator=rng).numpy()
    found, unlike = (vrnet.register(fixed[0, 0].numpy(), I1, method, **{given: mask}).field for I1 in (moving, other))
    assert np.array_equal(found, unlike)
    assert not found[:, 100:].any()
    assert np.abs(found[:, mask > 0]).max() > 0.3
