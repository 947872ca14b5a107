"""Images that are matched by further channels: the labels of both, or the probabilities of structures."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

from tests.models import trained
from tests.registration.test_images import reorient
from vrnet import BadInput, Grid, Image, Trained, load_method, parse, register, register_images
from vrnet.evaluation.metrics import dice, folding_strict_percent
from vrnet.fields.calculus import relative_spacing
from vrnet.images.grid import Affine
from vrnet.images.image import Cine
from vrnet.methods.weights import save_weights
from vrnet.phantom import phantom
from vrnet.registration import arrays, channels
from vrnet.registration.channels import LABEL_WEIGHT, Anatomy, ImageChannels, label_channels
from vrnet.registration.cine import plan_tracking, track_motion
from vrnet.variational.data_terms import DATA_TERMS

SIZES, EDGE = {2: (48, 44), 3: (24, 22, 20)}, {2: 3.6, 3: 7.2}
BRIEF = "TV-L1(warps=5)"
SOLVERS = [BRIEF, "Gaussian-LNCC(warps=10,finest_warps=5)"]
LABELS = {"channels": "labels"}
ANATOMY = {"channels": "anatomy"}


@cache
def heart(d):
    """(fixed, moving, labels of fixed, labels of moving) of a phantom."""
    patient = phantom(5, SIZES[d], EDGE[d])
    return tuple(getattr(patient, part)[0, 0].numpy() for part in ("fixed", "moving", "fixed_labels", "moving_labels"))


def with_labels(fixed, moving, fixed_labels, moving_labels, method=BRIEF, **options):
    return register(fixed, moving, method, fixed_labels=fixed_labels, moving_labels=moving_labels, **LABELS, **options)


@pytest.fixture
def segmenter(monkeypatch):
    """A segmenter of random weights, as if it were in the box, which has seen enough to find something."""
    made = trained("Segmenter-w4", spacing=(3.6, 3.6))
    with torch.inference_mode():
        for _ in range(30):
            made.model.train()(*(torch.from_numpy(image)[None, None] for image in heart(2)[:2]))
    monkeypatch.setattr(channels, "load_bundled", lambda name: made)
    return made


# Labels.


@pytest.mark.parametrize("method", SOLVERS)
def test_the_numbers_of_labels_do_not_matter(method):
    fixed, moving, L0, L1 = heart(2)
    other = np.array([0, 700, 2, 41])
    found = with_labels(fixed, moving, other[L0], other[L1], method).field
    assert_allclose(found, with_labels(fixed, moving, L0, L1, method).field, atol=2e-3)


def test_a_label_has_a_channel_that_is_soft_and_as_high_as_its_weight(d):
    L0, L1 = (torch.from_numpy(labels)[None, None] for labels in heart(d)[2:])
    found, _ = label_channels(L0, L1, relative_spacing(None, d))
    assert found.shape[1] == 3
    deep = (found > 0.99 * LABEL_WEIGHT).sum()
    assert 0 < deep < (L0 > 0).sum()
    assert_allclose(found.sum(1).amax(), LABEL_WEIGHT, rtol=1e-5)


def test_labels_that_one_image_lacks_are_background():
    fixed, moving, L0, L1 = heart(2)
    more = np.where(L0 == 1, 9, L0)  # 9 is nowhere in moving
    less = np.where(L0 == 1, 0, L0)
    assert_array_equal(*(with_labels(fixed, moving, labels, L1).field for labels in (more, less)))


@pytest.mark.parametrize("name", DATA_TERMS)
def test_channels_alike_in_both_images_change_nothing_at_no_motion(name, d):
    fixed, moving, L0, _ = heart(d)
    images = [torch.from_numpy(image)[None, None] for image in (fixed, moving)]
    L, h, term = torch.from_numpy(L0)[None, None], (1.0,) * d, DATA_TERMS[name]
    both = [torch.cat([I, C], 1) for I, C in zip(images, label_channels(L, L, h), strict=True)]
    torch.testing.assert_close(term.value(both[1], both[0], h), term.value(images[1], images[0], h))
    still = torch.zeros(1, d, *L.shape[2:])
    plain, beside = (term.linearize(*pair, still, h) for pair in (images, both))
    assert_allclose(term.value_at(beside), term.value_at(plain), atol=1e-6)
    if hasattr(plain, "b"):
        assert_array_equal(beside.b, plain.b)
    else:
        assert beside.others.b.abs().max() == 0


def mean_dice(result, L0, L1):
    warped = result.warp_labels(L1)
    return np.mean([dice(L0 == label, warped == label) for label in (1, 2, 3)])


@pytest.mark.parametrize("method", SOLVERS)
def test_labels_that_are_matched_meet_better_and_nothing_folds(method):
    fixed, moving, L0, L1 = heart(2)
    fixed, moving = (np.where(np.indices(L0.shape)[0] % 3, image, 0.4) for image in (fixed, moving))  # little to see
    plain = register(fixed, moving, method)
    folds = "keep" if method.startswith("Gaussian") else "repair"
    found = with_labels(fixed, moving, L0, L1, method, folds=folds)
    assert mean_dice(found, L0, L1) > mean_dice(plain, L0, L1) + 0.05
    assert folding_strict_percent(torch.from_numpy(found.field)[None]) == 0


def test_slices_are_matched_each_by_its_own_labels():
    stack = [np.stack([part, part], axis=1) for part in heart(2)]
    found = with_labels(*stack, slice_axis=1, folds="keep").field
    alone = with_labels(*heart(2), folds="keep").field
    assert_allclose(found[[0, 2]], np.stack([alone, alone], axis=2), atol=2e-3)


def test_labels_outside_the_mask_have_no_influence():
    fixed, moving, L0, L1 = heart(2)
    inside = np.zeros(L0.shape, bool)
    inside[6:-6, 6:-6] = True
    masks = {"fixed_mask": inside, "moving_mask": inside}
    edge = np.where(np.indices(L0.shape)[0] < 3, 3, 0).astype(L0.dtype)
    one, other = (with_labels(fixed, moving, np.maximum(L0, more), L1, **masks).field for more in (0 * edge, edge))
    assert_allclose(one[:, inside], other[:, inside], atol=1e-3)


def images_of(d):
    """The heart on a grid of its own in the world."""
    grid = Grid.plain(SIZES[d], (EDGE[d],) * d)
    return [Image(part, grid, name) for part, name in zip(heart(d), ("a", "b", "c", "d"), strict=True)]


def register_labelled(fixed, moving, fixed_labels, moving_labels, **options):
    maps = {"fixed_labels": fixed_labels, "moving_labels": moving_labels}
    return register_images(fixed, moving, BRIEF, **maps, **LABELS, **options)


def test_how_axes_are_stored_does_not_matter(d):
    fixed, moving, L0, L1 = images_of(d)
    order, flips = [1, 0, 2][:d], (True, False, True)[:d]
    found = register_labelled(*(reorient(each, order, flips) for each in (fixed, moving, L0, L1)))
    expected = register_labelled(fixed, moving, L0, L1)
    x = fixed.grid.points(np.argwhere(L0.array > 0).astype(float)[::7])
    assert_allclose(found.transform.points(x), expected.transform.points(x), atol=0.05 * EDGE[d])


def test_labels_of_moving_are_seen_through_the_affine_start():
    fixed, moving, L0, L1 = images_of(2)
    away = Grid(moving.grid.shape, moving.grid.spacing, (1000.0, -500.0), moving.grid.direction)
    there = [Image(each.array, away, each.name) for each in (moving, L1)]
    start = Affine("rigid", np.eye(2), np.array([1000.0, -500.0]), fixed.grid.centre)
    found = register_labelled(fixed, there[0], L0, there[1], affine=start)
    expected = register_labelled(fixed, moving, L0, L1)
    assert_allclose(found.deformation, expected.field, atol=1e-3)


def test_what_is_matched_is_recorded_and_measured():
    found = register_labelled(*images_of(2))
    assert (found.channels, found.options.channels) == ("labels", "labels")
    metrics = found.metrics()
    assert metrics["channels"] == "labels"
    assert metrics["dice"]["after"]["mean"] > metrics["dice"]["before"]["mean"]
    assert with_labels(*heart(2)).metrics()["dice"]["after"] == pytest.approx(metrics["dice"]["after"], abs=0.02)


# Anatomy.


def images_and_probabilities(segmenter, weight=1.0, field_mm=0.0):
    images, anatomy = [torch.from_numpy(part)[None, None] for part in heart(2)[:2]], Anatomy(segmenter, field_mm)
    with torch.inference_mode():
        return [torch.cat([I, weight * anatomy.probabilities(I, None)[:, 1:]], 1) for I in images]


@pytest.mark.parametrize("spacing", [(3.6, 3.6), (2.4, 3.6)])
def test_an_image_cut_to_the_heart_is_seen_in_a_black_margin(segmenter, spacing):
    """Its probabilities are those of the whole field, black outside; a whole image is seen as it is."""
    I = torch.from_numpy(heart(2)[0])[None, None]
    before = [round((288 / h - n) / 2) for n, h in zip(SIZES[2], spacing, strict=True)]
    whole = torch.nn.functional.pad(I, [b for b in reversed(before) for _ in range(2)])
    inside = tuple(slice(b, b + n) for b, n in zip(before, SIZES[2], strict=True))
    with torch.inference_mode():
        bare, margin = Anatomy(segmenter), Anatomy(segmenter, 288.0)
        assert torch.equal(margin.probabilities(I, spacing), bare.probabilities(whole, spacing)[:, :, *inside])
        assert torch.equal(margin.probabilities(whole, spacing), bare.probabilities(whole, spacing))


def test_a_solver_is_shown_the_probabilities_of_structures_by_their_weight(segmenter):
    I0, I1, *_ = heart(2)
    I0, I1 = ((I - min(I0.min(), I1.min())).clip(0) for I in (I0, I1))
    found = ImageChannels.of(parse("TV-L1"), "anatomy", 2, None)
    assert found.weight == channels.ANATOMY_WEIGHT
    first, _ = images_and_probabilities(segmenter, channels.ANATOMY_WEIGHT, channels.FIELD_MM)
    with torch.inference_mode():
        seen = found.beside(torch.from_numpy(heart(2)[0])[None, None], None)
    assert_allclose(seen, first, atol=1e-6)
    assert seen.shape[1] == 1 + found.count == 4
    plain, with_anatomy = (register(I0, I1, BRIEF, channels=kind).field for kind in ("none", "anatomy"))
    assert np.abs(plain - with_anatomy).max() > 0.01


@pytest.fixture
def of_anatomy(tmp_path, segmenter):
    """The file of a network trained with probabilities, its segmenter in a file beside it."""
    save_weights(segmenter.model, segmenter.card, tmp_path / "s.safetensors")
    made = trained("P-L2-c3-w2", spacing=(3.6, 3.6))
    told = replace(made.card, channels="anatomy", segmenter="s.safetensors")
    save_weights(made.model, told, tmp_path / "m.safetensors")
    return tmp_path / "m.safetensors"


@pytest.mark.parametrize("average", [False, True])
def test_a_network_is_shown_what_it_was_trained_with(of_anatomy, segmenter, average):
    method = load_method(of_anatomy)
    found = register(*heart(2)[:2], method, average=average, folds="keep")
    assert found.channels == "anatomy"
    seen = ImageChannels.of(method, "auto", 2, None)
    assert seen.weight == 1
    images = [torch.from_numpy(part)[None, None] for part in heart(2)[:2]]
    with torch.inference_mode():
        assert_allclose(seen.beside(images[0], None), images_and_probabilities(segmenter)[0], atol=1e-6)
    assert np.isfinite(found.field).all()


def test_a_network_registers_the_box_of_the_heart_and_motion_ends_beyond(of_anatomy, monkeypatch):
    seen, find_each = [], arrays.find_each
    monkeypatch.setattr(arrays, "heart_box", lambda heart, spacing: (slice(10, 26), slice(8, 40)))
    monkeypatch.setattr(arrays, "find_each", lambda plan, *I: seen.append(I[0].shape) or 5 + find_each(plan, *I))
    found = register(*heart(2)[:2], load_method(of_anatomy), folds="keep").field
    assert seen == [(1, 4, 16, 32)]
    assert found.shape[1:] == heart(2)[0].shape
    assert (found[:, 10:26, 8:40] > 1).all()
    assert abs(found[:, -1, -1]).max() < 0.8 * abs(found[:, 25, 39]).max()


def test_the_anatomy_of_each_frame_is_found_once(segmenter, monkeypatch):
    calls = []
    find = Anatomy.probabilities
    monkeypatch.setattr(Anatomy, "probabilities", lambda self, I, h: calls.append(len(I)) or find(self, I, h))
    frames = np.stack([np.stack([part, part], axis=2) for part in heart(2)[:2]] * 2)
    cine = Cine(frames, Grid.plain(frames.shape[1:], (3.6, 3.6, 10.0)), name="cine")
    plan = plan_tracking(cine, "TV-L1(warps=1,levels=1)", "auto", "cpu", "anatomy")
    found = track_motion(cine, plan)
    assert calls == [2] * 4
    assert np.isfinite(found.fields).all()


# What cannot be.


@pytest.mark.parametrize(
    ("method", "options", "words"),
    [
        (BRIEF, LABELS, "both images have them: give `fixed_labels` and `moving_labels`"),
        (BRIEF, LABELS | {"fixed_labels": heart(2)[2]}, "both images have them: give"),
        (BRIEF, LABELS | {"fixed_labels": heart(2)[2], "moving_labels": 5 + 0 * heart(2)[2]}, "no label in common"),
        (BRIEF, LABELS | {"fixed_labels": heart(2)[2][1:], "moving_labels": heart(2)[3]}, "give label maps on their"),
        ("short-axis", LABELS, 'compares intensities alone: name a solver, such as `method="Gaussian-LNCC"`'),
        ("Demons", ANATOMY, "name a solver"),
        ("short-axis", ANATOMY, "name a solver"),
    ],
)
def test_what_cannot_be_matched_is_bad_input(method, options, words, segmenter):
    with pytest.raises(BadInput, match=words):
        register(*heart(2)[:2], method, **options)


def test_volumes_have_no_anatomy_unless_their_slices_are_registered_each(segmenter):
    with pytest.raises(BadInput, match="images of 2 dimensions, not 3: register slices one by one"):
        register(*heart(3)[:2], BRIEF, **ANATOMY)


def test_a_network_that_needs_anatomy_is_not_left_without(of_anatomy):
    for kind in ("none", "labels"):
        with pytest.raises(BadInput, match="was trained with probabilities of structures, and needs them: leave out"):
            register(*heart(2)[:2], load_method(of_anatomy), channels=kind)


def test_a_network_whose_segmenter_is_gone_names_the_file(of_anatomy):
    (of_anatomy.parent / "s.safetensors").unlink()
    with pytest.raises(BadInput, match=r"there is no .*s\.safetensors"):
        register(*heart(2)[:2], load_method(of_anatomy))


def test_a_network_cannot_be_its_own_segmenter(of_anatomy):
    made = load_method(of_anatomy)
    wrong = Trained.of(replace(made.card, segmenter="m.safetensors"), made.model, made.file, folder=made.folder)
    with pytest.raises(BadInput, match="which holds P-L2-c3-w2: give it its segmenter"):
        register(*heart(2)[:2], wrong)


def test_the_labels_of_a_cine_cannot_be_matched():
    frames = np.stack(heart(2)[:2])
    cine = Cine(frames, Grid.plain(SIZES[2], (3.6, 3.6)), name="cine")
    with pytest.raises(BadInput, match='labels of one frame alone: give `channels="anatomy"`'):
        plan_tracking(cine, BRIEF, "auto", "cpu", "labels")
