"""A plain change of brightness of one image does not matter, and both phases of one scan keep their one scaling."""

from functools import cache

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

import vrnet
from tests.phantoms import phantom
from vrnet import BadInput, Grid, Image, register_images
from vrnet.registration.intensity import Remap, find_remap, fit_line
from vrnet.registration.masks import PairMasks
from vrnet.vocabulary import HEART

CHANGES = [(1.2, 0.0), (0.5, 0.0), (5.0, 1.5)]
EVERYWHERE = PairMasks()


@cache
def hearts(d):
    """Both phases of a phantom heart (*s)."""
    patient = phantom(5, (64, 64) if d == 2 else (36, 32, 28), 2.0 if d == 2 else 4.0)
    return patient.fixed[0, 0], patient.moving[0, 0]


@cache
def plain(d, method):
    return vrnet.register(*hearts(d), method)


@pytest.mark.parametrize("seed", range(3))
def test_two_phases_of_one_scan_have_one_scaling(seed):
    patient = phantom(seed, (64, 64), 2.0)
    assert find_remap(patient.fixed[0, 0], patient.moving[0, 0], EVERYWHERE) is None


@pytest.mark.parametrize(("gain", "offset"), CHANGES)
def test_the_line_back_is_found_though_the_heart_moved(d, gain, offset):
    fixed, moving = hearts(d)
    found = find_remap(fixed, gain * moving + offset, EVERYWHERE)
    assert_allclose(found.gain * gain, 1, atol=0.03)
    assert_allclose(found.match(gain * moving + offset), moving, atol=0.05)


@pytest.mark.parametrize("change", ["inverted", "noise", "artefact"])
def test_what_is_no_change_of_brightness_is_left_alone(d, change):
    fixed, moving = hearts(d)
    bright = moving.clone()
    bright[:8, :8] = 30.0
    others = {"inverted": 1 - moving, "noise": 5 * torch.rand(moving.shape), "artefact": bright}
    assert find_remap(fixed, others[change], EVERYWHERE) is None


@pytest.mark.parametrize(("d", "gain", "image"), [(2, 2.0, "fixed"), (3, 0.5, "moving")])
def test_the_line_back_is_found_though_one_image_has_an_artefact(d, gain, image):
    """By which its range is the wider one, though it is the darker image."""
    pair = dict(zip(("fixed", "moving"), (part.clone() for part in hearts(d)), strict=True))
    pair[image][:9, :9] = 2.0
    assert_allclose(find_remap(pair["fixed"], gain * pair["moving"], EVERYWHERE).gain * gain, 1, atol=0.05)


def test_what_lies_outside_a_mask_has_no_influence():
    fixed, moving = hearts(2)
    inside = torch.ones_like(fixed, dtype=torch.bool)
    inside[:, 40:] = False
    other = torch.where(inside, 2 * moving, 40 * torch.rand(moving.shape))
    assert_allclose(find_remap(fixed, other, PairMasks(inside, inside)).gain, 0.5, atol=0.03)
    assert_allclose(find_remap(fixed, other, PairMasks(None, inside)).gain, 0.5, atol=0.03)


def test_something_dark_outside_a_mask_has_no_influence():
    """Also on what is taken for ground inside it."""
    fixed, moving = (torch.nn.functional.pad(image, (0, 0, 0, 60)) for image in hearts(2))
    inside = torch.ones_like(fixed, dtype=torch.bool)
    inside[:4] = False
    dark = torch.where(inside, fixed, -9.0), torch.where(inside, 2 * moving, -9.0)
    assert find_remap(*dark, PairMasks(inside, inside)) == find_remap(fixed, 2 * moving, PairMasks(inside, inside))


@pytest.mark.parametrize("seed", [5, 10, 15])
def test_two_phases_have_one_scaling_inside_a_mask_of_the_cavity_alone(seed):
    """There most of what was blood is muscle at the other phase, and a line would take one for the other."""
    patient = phantom(seed, (64, 64), 2.0)
    inside = PairMasks(patient.fixed_labels[0, 0] == HEART["LV"])
    assert find_remap(patient.fixed[0, 0], patient.moving[0, 0], inside) is None


def test_the_ground_on_which_both_show_nothing_does_not_count():
    """Most of a skull-stripped volume is one value, through which every line runs."""
    fixed, moving = (torch.zeros(200, 200) for _ in range(2))
    fixed[:64, :64], moving[:64, :64] = (image + 0.1 for image in hearts(2))
    assert_allclose(find_remap(fixed, 3 * moving + 7, EVERYWHERE).gain, 1 / 3, atol=0.02)


def test_the_line_is_that_of_most_voxels_though_four_tenths_are_elsewhere():
    rng = np.random.default_rng(0)
    x = rng.random(2000)
    y = 3 * x + 2 + 0.02 * rng.standard_normal(2000)
    y[:800] = 12 * rng.random(800)
    assert_allclose(fit_line(x, y)[:2], (3, 2), atol=0.02)


def noisy_pair(noise, gain):
    """One texture with noise of its own in each of two images, the second times a gain."""
    rng = np.random.default_rng(0)
    texture = rng.random((64, 64))
    fixed, moving = (texture + noise * rng.standard_normal(texture.shape) for _ in range(2))
    return torch.from_numpy(fixed).float(), torch.from_numpy(gain * moving).float()


@pytest.mark.parametrize(
    ("noise", "gain", "is_matched"),
    [(0.02, 1.1, False), (0.02, 1.2, True), (0.12, 1.6, False), (0.12, 2.2, True), (0.7, 4.0, False)],
)
def test_images_that_are_less_alike_must_be_farther_apart_to_be_matched(noise, gain, is_matched):
    """Of 0.1 and 0.2 of the wider range, close to a line; of a third and of a half, less close; the last two hardly
    tell which intensities belong together, and the very last do not."""
    assert (find_remap(*noisy_pair(noise, gain), EVERYWHERE) is not None) == is_matched


@pytest.mark.parametrize(("method", "change"), [("TV-L1", 0), ("short-axis", 1), ("TV-L1", 2), ("short-axis", 2)])
def test_a_brighter_image_is_registered_as_well(method, change):
    (fixed, moving), (gain, offset) = hearts(2), CHANGES[change]
    found = vrnet.register(fixed, gain * moving + offset, method)
    kept = vrnet.register(fixed, gain * moving + offset, method, brightness="keep")
    off = [float((result.field - plain(2, method).field).norm(dim=0).mean()) for result in (found, kept)]
    assert off[0] < 0.15
    assert off[0] < 0.5 * off[1]
    assert (found.remap is None, kept.remap is None) == (False, True)
    assert_array_equal(found.warped, found.warp(gain * moving + offset))  # in its own intensities


@pytest.mark.parametrize("method", ["TV-L1", "short-axis"])
def test_ordinary_pairs_stay_as_they_were_to_the_last_bit(method):
    assert_array_equal(plain(2, method).field, vrnet.register(*hearts(2), method, brightness="keep").field)


def test_a_method_that_scales_each_image_needs_no_line():
    fixed, moving = hearts(2)
    assert vrnet.register(fixed, 3 * moving, "Gaussian-LNCC").remap is None


def as_images(gain=1.0):
    grid = Grid((64, 64), (2.0, 2.0), (3.0, 4.0), (0.0, 1.0, -1.0, 0.0))
    fixed, moving = (image.numpy() for image in hearts(2))
    return Image(fixed, grid), Image(gain * moving, grid)


def test_of_images_differences_are_those_of_matched_intensities():
    dark, bright = (register_images(*as_images(gain), "TV-L1").metrics() for gain in (1.0, 4.0))
    assert (dark["intensities_matched"], dark["brightness"]) == (False, None)
    assert bright["intensities_matched"]
    assert_allclose(bright["brightness"]["gain"], 0.25, atol=0.01)
    for when in ("mae_before", "mae_after"):
        assert_allclose(bright["similarity"][when], dark["similarity"][when], rtol=0.1)
    assert bright["verdict"]["level"] == dark["verdict"]["level"] == "good"


@pytest.mark.parametrize("numbers", [(0.0, 0.0), (float("nan"), 0.0), (1.0, float("inf"))])
def test_a_line_keeps_what_is_brighter_brighter(numbers):
    with pytest.raises(BadInput, match="no gain and offset"):
        Remap(*numbers)
