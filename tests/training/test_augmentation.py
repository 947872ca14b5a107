from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import ndimage

from vrnet.training.augmentation import ELASTIC_POINTS, RandomTransform, augment, draw_transform
from vrnet.training.settings import Augmentation

NONE = Augmentation(flip=False, rotation=0.0, tilt=0.0, scale=0.0, translation=0.0, gamma=0.0, swap=0.0)
JITTERED = Augmentation(tilt=20.0, swap=0.3, contrast=0.2, brightness=0.1, noise=0.05, elastic=2.0, twins=0.5)
SHAPES = {2: (21, 17), 3: (15, 13, 11)}


def pair(d, smooth_image):
    return tuple(smooth_image(SHAPES[d], 2, seed, torch.float32).repeat(3, *[1] * (d + 1)) for seed in (0, 1))


def test_the_affine_map_is_scipy_s(d, smooth_image):
    I0, I1 = pair(d, smooth_image)
    spacing = (1.0, 2.0, 3.0)[:d]
    transform = draw_transform(
        replace(NONE, rotation=40.0, tilt=20.0, scale=0.2, translation=0.1, flip=True), 3, SHAPES[d], spacing
    )
    J0, _ = augment(I0, I1, transform)
    half = (np.array(SHAPES[d]) - 1) / 2
    for k in range(3):
        A, t = transform.affine[k, :, :-1].double().numpy(), transform.affine[k, :, -1].double().numpy()
        in_voxels = np.diag(half) @ A @ np.diag(1 / half)
        offset = half - in_voxels @ half + half * t
        expected = ndimage.affine_transform(I0[k, 0].double().numpy(), in_voxels, offset, order=1, mode="nearest")
        np.testing.assert_allclose(J0[k, 0].numpy(), expected.clip(1e-6), atol=1e-4)


def test_a_turn_is_a_turn_in_space_whatever_the_voxels(d):
    spacing = (1.0, 2.0, 3.0)[:d]
    transform = draw_transform(replace(NONE, rotation=90.0, tilt=30.0, flip=True), 8, SHAPES[d], spacing)
    extent = torch.tensor([h * (n - 1) for h, n in zip(spacing, SHAPES[d], strict=True)])
    in_mm = transform.affine[..., :-1] * extent[:, None] / extent
    identity = torch.eye(d).expand(8, d, d)
    torch.testing.assert_close(in_mm @ in_mm.mT, identity, rtol=0, atol=1e-5)
    assert len({round(float(det)) for det in torch.linalg.det(in_mm)}) == 2  # some are mirrored, some are not


def test_exchanged_images_are_the_other_way_round(d, smooth_image):
    I0, I1 = pair(d, smooth_image)
    affine = draw_transform(NONE, 3, SHAPES[d], (1.0,) * d).affine
    J0, J1 = augment(I0, I1, RandomTransform(affine, torch.ones(3), torch.tensor([True, False, True])))
    assert torch.allclose(J0[0], I1[0], atol=1e-5)
    assert torch.allclose(J0[1], I0[1], atol=1e-5)
    assert torch.allclose(J1[2], I0[2], atol=1e-5)


def test_gamma_is_a_power_of_the_intensities(smooth_image):
    I0, I1 = pair(2, smooth_image)
    affine = draw_transform(NONE, 3, SHAPES[2], (1.0, 1.0)).affine
    J0, _ = augment(I0, I1, RandomTransform(affine, torch.tensor([0.5, 1.0, 2.0]), torch.zeros(3, dtype=torch.bool)))
    torch.testing.assert_close(J0[0], I0[0].clamp(min=1e-6).sqrt(), rtol=0, atol=1e-4)
    torch.testing.assert_close(J0[2], I0[2].square(), rtol=0, atol=1e-4)


@pytest.mark.parametrize(("allowed", "rows"), [(Augmentation(), slice(0, None, 2)), (JITTERED, slice(1, None, 2))])
def test_parts_of_a_draw_make_the_whole(rows, allowed, smooth_image):
    I0, I1 = pair(2, smooth_image)
    transform = draw_transform(allowed, 3, SHAPES[2], (1.0, 1.0))
    whole = augment(I0, I1, transform)
    part = augment(I0[rows], I1[rows], transform.select(rows, torch.device("cpu")))
    assert torch.equal(part[0], whole[0][rows])
    assert torch.equal(part[1], whole[1][rows])


def test_what_is_drawn_keeps_within_what_is_allowed_and_reaches_it(d):
    allowed = Augmentation(rotation=0.0, scale=0.0, translation=0.2, gamma=0.5, flip=True, swap=0.5)
    transform = draw_transform(allowed, 2000, SHAPES[d], (1.0,) * d)
    t, g = transform.affine[..., -1], transform.gamma.log()
    for found, largest in ((t, 0.2), (g, 0.5)):
        assert 0.98 * largest < found.abs().max() <= largest
        assert found.mean().abs() < 0.05 * largest
    assert 0.45 < transform.swap.float().mean() < 0.55
    mirrored = transform.affine[..., :-1].diagonal(dim1=1, dim2=2) < 0
    assert ((0.45 < mirrored.float().mean(0)) & (mirrored.float().mean(0) < 0.55)).all()


def test_what_is_allowed_besides_changes_nothing_else_that_is_drawn(d):
    torch.manual_seed(3)
    plain = draw_transform(Augmentation(tilt=20.0, swap=0.3), 5, SHAPES[d], (1.0,) * d)
    torch.manual_seed(3)
    jittered = draw_transform(JITTERED, 5, SHAPES[d], (1.0,) * d)
    assert all(torch.equal(a, b) for a, b in zip(plain[:3], jittered[:3], strict=True))
    assert plain[3:] == (None,) * len(plain[3:])


def b_spline(points, shape):
    """Cubic B-splines of control points by SciPy: the first lies one cell before the grid, the last one after it."""
    places = [1 + np.linspace(0, ELASTIC_POINTS - 3, n) for n in shape]
    at = np.stack(np.meshgrid(*places, indexing="ij"))
    return np.stack([ndimage.map_coordinates(part, at, order=3, prefilter=False) for part in points])


def test_the_elastic_map_is_scipy_s_b_spline_and_labels_follow_it(d, smooth_image):
    I0, I1 = pair(d, smooth_image)
    L0, L1 = ((10 * I).clamp(0, 9).to(torch.uint8) for I in (I0, I1))
    transform = draw_transform(replace(NONE, elastic=3.0, translation=0.1), 3, SHAPES[d], (1.0,) * d)
    J0, J1, M0, M1 = augment(I0, I1, transform, (L0, L1))
    half = (np.array(SHAPES[d]) - 1) / 2
    for k in range(3):
        moved = b_spline(transform.elastic[k].double().numpy(), SHAPES[d])
        assert 0.5 < np.abs(moved).max() < 3.0
        shift = half * transform.affine[k, :, -1].double().numpy()
        at = np.indices(SHAPES[d]) + moved + shift.reshape(-1, *[1] * d)
        for image, found in ((I0, J0), (I1, J1)):
            expected = ndimage.map_coordinates(image[k, 0].double().numpy(), at, order=1, mode="nearest")
            np.testing.assert_allclose(found[k, 0].numpy(), expected.clip(1e-6), atol=1e-4)
        for labels, found in ((L0, M0), (L1, M1)):
            expected = ndimage.map_coordinates(labels[k, 0].numpy(), at, order=0, mode="nearest")
            assert (found[k, 0].numpy() == expected).mean() > 0.995  # but for points half-way between two voxels


def test_labels_are_exchanged_with_their_images():
    L0, L1 = (torch.full((3, 1, 9, 9), value, dtype=torch.uint8) for value in (1, 2))
    affine = draw_transform(NONE, 3, (9, 9), (1.0, 1.0)).affine
    transform = RandomTransform(affine, torch.ones(3), torch.tensor([True, False, True]))
    maps = augment(L0.float(), L1.float(), transform, (L0, L1))[2:]
    for found, expected in zip(maps, ([2, 1, 2], [1, 2, 1]), strict=True):
        assert found[:, 0, 4, 4].tolist() == expected
        assert found.dtype == torch.uint8


def test_contrast_and_brightness_are_those_of_the_formula_and_alike_in_both_images(smooth_image):
    I0, I1 = pair(2, smooth_image)
    bright, sharp = torch.tensor([0.1, -0.05, 0.0]), torch.tensor([1.0, 1.2, 0.8])
    transform = draw_transform(NONE, 3, SHAPES[2], (1.0, 1.0))._replace(contrast=sharp, brightness=bright)
    for image, found in zip((I0, I1), augment(I0, I1, transform), strict=True):
        expected = 0.5 + sharp.view(3, 1, 1, 1) * (image.clamp(min=1e-6) - 0.5) + bright.view(3, 1, 1, 1)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-4)


def test_noise_is_another_in_each_image_and_as_strong_as_is_said():
    flat = torch.full((2, 1, 100, 100), 0.5)
    transform = draw_transform(replace(NONE, noise=0.1), 2, (100, 100), (1.0, 1.0))
    transform = transform._replace(noise=torch.tensor([0.05, 0.1]))
    J0, J1 = (J - 0.5 for J in augment(flat, flat, transform))
    for noise in (J0, J1):
        assert noise.flatten(1).std(1).tolist() == pytest.approx([0.05, 0.1], rel=0.05)
    pairs = torch.stack([J0[0], J1[0], J0[1], J1[1]]).flatten(1)
    assert (torch.corrcoef(pairs) - torch.eye(4)).abs().max() < 0.05


def test_a_twin_is_fixed_moved_on_its_own_and_labels_follow_it(d, smooth_image):
    I0, I1 = pair(d, smooth_image)
    L0, L1 = ((4 * I.clamp(0, 1)).byte() for I in (I0, I1))
    transform = draw_transform(replace(NONE, twins=1.0, twin_motion=2.0), 3, SHAPES[d], (1.0,) * d)
    J0, J1, M0, M1 = augment(I0, I1, transform, (L0, L1))
    torch.testing.assert_close(J0, I0.clamp(min=1e-6), rtol=0, atol=1e-5)
    assert torch.equal(M0, L0)
    for k, points in enumerate(transform.twin_motion.double().numpy()):
        at = np.indices(SHAPES[d]) + b_spline(points, SHAPES[d])
        expected = ndimage.map_coordinates(I0[k, 0].double().numpy(), at, order=1, mode="nearest")
        np.testing.assert_allclose(J1[k, 0].numpy(), expected.clip(1e-6), atol=1e-4)
        expected = ndimage.map_coordinates(L0[k, 0].numpy(), at, order=0, mode="nearest")
        assert (M1[k, 0].numpy() != expected).mean() < 0.01  # a point half way between voxels may go to either


EVERYTHING = replace(JITTERED, swap=0.5, bias=0.2, blur=0.5, gamma=0.3)
MOVING_ONLY = replace(EVERYTHING, gamma=0.0, contrast=0.0, brightness=0.0, noise=0.0, bias=0.0, blur=0.0)


def test_channels_move_as_the_image_does_and_keep_their_values(d, smooth_image):
    """An image as its own channel: exchanged, made a twin and moved alike; its intensities alone change otherwise."""
    I0, I1 = pair(d, smooth_image)
    torch.manual_seed(2)
    still = draw_transform(MOVING_ONLY, 3, SHAPES[d], (1.0,) * d)._replace(swap=torch.tensor([True, False, True]))
    jittered = draw_transform(EVERYTHING, 3, SHAPES[d], (1.0,) * d)._replace(
        **{name: getattr(still, name) for name in ("affine", "swap", "elastic", "twin", "twin_motion")}
    )
    assert still.twin.sum() == 1
    double = tuple(torch.cat([I, I.clamp(min=1e-6)], dim=1) for I in (I0, I1))
    for J, alone, moved in zip(
        augment(*double, jittered), augment(I0, I1, jittered), augment(I0, I1, still), strict=True
    ):
        assert torch.equal(J[:, :1], alone)
        torch.testing.assert_close(J[:, 1:], moved, rtol=0, atol=2e-6)
        assert (J[:, :1] - J[:, 1:]).abs().amax(tuple(range(1, d + 2))).min() > 1e-3


def test_a_pair_that_is_cut_is_black_outside_a_box_about_its_labels(d, smooth_image):
    """The box is as large as was drawn, about the mean place of the labels; without any, all is kept."""
    I0, I1 = (I.abs() + 0.1 for I in pair(d, smooth_image))
    labels = torch.zeros(3, 1, *SHAPES[d], dtype=torch.uint8)
    labels[:2, 0, 4:7, 5:8] = 2
    allowed = replace(NONE, cut=1.0)
    transform = draw_transform(allowed, 3, SHAPES[d], (1.0,) * d)
    J0, J1, M0, M1 = augment(I0, I1, transform, (labels, labels))
    middle = ndimage.center_of_mass(labels[0, 0].numpy())
    far = np.abs(np.indices(SHAPES[d]) - np.reshape(middle, (-1, *[1] * d)))
    for k in range(2):
        reach = transform.cut[k].numpy() * SHAPES[d]
        box = torch.from_numpy((far <= np.reshape(reach, (-1, *[1] * d))).all(0))
        for J, I, M in ((J0, I0, M0), (J1, I1, M1)):
            assert not J[k, 0, ~box].any()
            assert torch.equal(M[k, 0], labels[k, 0] * box)
            torch.testing.assert_close(J[k, 0, box], I[k, 0, box], rtol=0, atol=1e-5)
    torch.testing.assert_close(J0[2], I0[2], rtol=0, atol=1e-5)
    assert draw_transform(replace(allowed, cut=1e-9), 3, SHAPES[d], (1.0,) * d).cut.isinf().all()
