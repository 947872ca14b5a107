"""Advice can be followed: what it names parses, and was not done already."""

import ast
import re

import numpy as np
import pytest

from vrnet import Grid, Image, Transform, judge_images, parse
from vrnet.methods.names import all_methods
from vrnet.phantom import phantom
from vrnet.verdict import advice
from vrnet.verdict.advice import Run
from vrnet.verdict.cine import FINDINGS as CINE_FINDINGS
from vrnet.verdict.rules import CAUSES, FINDINGS, MAX_ADVICE

EVERY = {each for rule in (*FINDINGS, *CAUSES) for each in rule.to_try}


def named_methods(words):
    """The methods that an advice names."""
    return [name.strip('"') for name in re.findall("`method=([^`]*)`", words)]


@pytest.mark.parametrize("d", [2, 3])
def test_every_method_that_is_advised_is_one_and_another_than_was_run(d):
    for method in [*map(str, all_methods()), "short-axis", "short-axis-cine", "TV-MIND(lam=0.3)", "Gaussian-NMI"]:
        for each in EVERY | {each for rule in CINE_FINDINGS for each in rule.to_try}:
            for name in named_methods(each(Run(method, d)) or ""):
                assert str(parse(name)) == name != method


@pytest.mark.parametrize("d", [2, 3])
def test_what_to_try_after_a_cine_never_leads_back(d):
    """From method to method, whatever is found: λ grows, and no name comes twice."""
    every = {each for rule in CINE_FINDINGS for each in rule.to_try}

    def follow(method, before):
        for each in every:
            for name in named_methods(each(Run(method, d)) or ""):
                if name.partition("(")[0] != method.partition("(")[0]:
                    assert name not in before
                    follow(name, {*before, name})

    for method in ("short-axis-cine", "short-axis", "TV-L1", "Gaussian-LNCC", "TV-MIND(lam=0.3)", ""):
        follow(method, {method})


def test_the_model_of_hearts_is_not_advised_after_itself():
    for method in ("short-axis-cine", "short-axis-cine+average"):
        assert advice.other_tracker(Run(method, 2)) is None
    assert "short-axis-cine" in advice.other_tracker(Run("short-axis", 2))


def test_of_one_slice_nothing_is_said_of_a_stack():
    every = {each for rule in CINE_FINDINGS for each in rule.to_try} - {advice.without_slice}
    assert not any("slices" in (each(Run("TV-L1", 2)) or "") for each in every)
    assert any("slices" in (each(Run("TV-L1", 2, is_stack=True)) or "") for each in every)


def test_a_smoother_field_has_twice_the_weight_and_a_freer_one_half_of_it():
    run = Run("TV-L1(lam=0.2)")
    assert named_methods(advice.smoother(run)) == ["TV-L1(lam=0.4)"]
    assert named_methods(advice.freer(run)) == ["TV-L1(lam=0.1)"]
    assert named_methods(advice.smoother(Run("short-axis", 2))) == ["Gaussian-LNCC"]


def test_of_a_field_by_any_tool_no_parameter_of_ours_is_advised():
    words = [each(Run()) or "" for each in EVERY]
    assert not any("lam" in word.split() or "lam=" in word for word in words)
    assert 'more smoothing by the tool that found it, or `method="Gaussian-LNCC"`' in advice.smoother(Run())


@pytest.mark.parametrize(("used", "other"), [("MIND", "Remap"), ("Remap", "MIND")])
def test_after_a_method_that_compares_structure_the_other_is_advised(used, other):
    words = advice.other_contrast(Run(f"TV-{used}"))
    assert (f"Gaussian-{other}" in words, used in words) == (True, False)


@pytest.mark.parametrize("method", ["", "short-axis", "TV-L1(lam=0.2)"])
def test_arguments_that_are_advised_are_valid_python(method):
    """Each could be written in a call of register_images; only masks are named without a value."""
    every = EVERY | {each for rule in CINE_FINDINGS for each in rule.to_try}
    for words in (each(Run(method, d)) or "" for each in every for d in (2, 3)):
        for argument in re.findall("`([^`]*)`", words):
            assert argument in ("fixed_mask", "moving_mask", "frame") or ast.literal_eval(argument.partition("=")[2])


@pytest.mark.parametrize("method", ["Gaussian-LNCC(lam=1.0)", "Bending-NMI+average"])
def test_another_brightness_is_no_reason_to_leave_a_method_that_does_not_mind(method):
    assert (advice.other_brightness(Run(method)), advice.match(Run(method))) == (None, None)


@pytest.mark.parametrize("method", ["TV-L1", "", "trained-with-LNCC.safetensors"])
def test_a_name_that_holds_that_of_a_term_is_no_method_of_it(method):
    assert "Gaussian-LNCC" in advice.other_brightness(Run(method))
    assert "match_intensities" in advice.match(Run(method))


def test_who_kept_the_brightness_is_told_to_match_it():
    assert advice.match(Run("TV-L1", is_brightness_kept=True)) == '`brightness="match"`'
    assert advice.match(Run("TV-L1", is_brightness_kept=True, is_matched=True)) is None


def test_an_affine_start_is_advised_where_images_may_lie_apart_or_turned_alone():
    """Not where one image is five times as bright."""
    rules = {
        rule.name for rule in (*FINDINGS, *CAUSES) for each in rule.to_try if "`affine" in (each(Run("TV-L1")) or "")
    }
    assert rules == {
        "lies turned", "structure unmatched", "large motion", "motion beyond the border", "little overlap",
        "blank places",
    }  # fmt: skip


def test_where_much_of_fixed_has_no_counterpart_a_rigid_start_is_advised_unless_there_was_one():
    (rule,) = (rule for rule in FINDINGS if rule.name == "structure unmatched")
    runs = Run("TV-L1"), Run("TV-L1", has_start=True), Run("TV-L1", has_affine=True)
    said = [[words for each in rule.to_try[:MAX_ADVICE] if (words := each(run))] for run in runs]
    assert ['`affine="rigid"`' in " ".join(words) for words in said] == [True, False, False]


def test_nothing_is_advised_that_was_done():
    done = Run("TV-L1", 3, has_start=True, has_affine=True, is_matched=True, has_masks=True, is_repaired=True)
    said = " ".join(each(done) or "" for each in EVERY)
    assert set(re.findall("`([a-z_]+)", said)) == {"method"}
    said = " ".join(each(Run()) or "" for each in EVERY)
    assert set(re.findall("`([a-z_]+)", said)) == {
        "affine", "fixed_mask", "folds", "match_intensities", "method", "moving_mask",
    }  # fmt: skip


@pytest.fixture(scope="module")
def slices():
    """Two images of a phantom on a grid, and the labels of the second."""
    pair = phantom(7)
    grid = Grid.plain(tuple(pair.fixed.shape[2:]), pair.spacing)
    return [Image(part[0, 0].numpy(), grid) for part in (pair.fixed, pair.moving, pair.moving_labels)]


def turned(grid, radians, bend=0.0):
    """The field, in voxels, that turns a slice about its middle, and bends it by so many voxels."""
    places = np.indices(grid.shape) - np.reshape(grid.shape, (-1, 1, 1)) / 2
    across = np.stack([-places[1], places[0]]) * radians
    return Transform.from_voxels((across + bend * np.sin(places[::-1] / 8)).astype(np.float32), grid)


def test_of_an_affine_map_from_a_file_the_way_it_goes_is_to_be_checked_first_not_its_smoothness(slices):
    fixed, moving, _ = slices
    first = [judge_images(fixed, moving, turned(fixed.grid, 0.5, bend)).try_[0] for bend in (0.0, 2.0)]
    assert first == [advice.smoother(Run(is_affine=True)), advice.smoother(Run())]
    assert "points of fixed to moving" in first[0]
    assert "smoother" in advice.smoother(Run("TV-L1", is_affine=True)), "vrnet's own goes the right way"


def test_of_a_label_map_given_as_an_image_the_image_is_advised_first(slices):
    fixed, moving, labels = slices
    still = turned(fixed.grid, 0.0)
    words = "give as {} the image that the labels were drawn on: it looks like the labels themselves"
    assert judge_images(fixed, labels, still).try_[0] == words.format("moving")
    assert judge_images(labels, moving, still).try_[0] == words.format("fixed")
    both = judge_images(labels, labels, turned(fixed.grid, 0.5))
    assert both.level != "good"
    assert not any("drawn on" in each for each in both.try_), "who gives two label maps means them"


def test_labels_in_place_of_images_are_a_reason_to_look_however_well_they_fit(slices):
    fixed, _, labels = slices
    still = turned(fixed.grid, 0.0)
    assert judge_images(fixed, fixed, still).level == "good"
    both = judge_images(labels, labels, still)
    assert (both.level, both.try_) == ("look", ())
    assert both.reasons == ("Both images look like labels: how tissue moves between outlines, labels do not show.",)
    lone = judge_images(labels, fixed, still)
    assert lone.level != "good"
    assert lone.reasons[0].startswith("Fixed looks like labels, not like an image: ")
