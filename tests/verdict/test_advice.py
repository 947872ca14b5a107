"""Advice can be followed: what it names parses, and was not done already."""

import ast
import re

import numpy as np
import pytest

from tests.phantoms import phantom
from vrnet import Grid, Image, Transform, judge_images, parse
from vrnet.methods.names import all_methods
from vrnet.verdict import advice
from vrnet.verdict.advice import Run, advice_after
from vrnet.verdict.cine import FINDINGS as CINE_FINDINGS
from vrnet.verdict.rules import CAUSES, FINDINGS

OF_PAIRS = {each for rule in (*FINDINGS, *CAUSES) for each in rule.to_try}
OF_CINES = {each for rule in CINE_FINDINGS for each in rule.to_try}


def said(run, given=OF_PAIRS):
    """All that is advised after a run."""
    return " ".join(advice_after(run, given))


def named_methods(words):
    """The methods that an advice names."""
    return [name.strip('"') for name in re.findall("`method=([^`]*)`", words)]


def named_arguments(words):
    return set(re.findall("`([a-z_]+)", words))


def test_every_method_that_is_advised_is_one_and_another_than_was_run(d):
    """Another brightness is a cause of methods that compare intensities alone, so LNCC is advised after these."""
    given = (OF_PAIRS | OF_CINES) - {advice.OTHER_BRIGHTNESS}
    for method in [*map(str, all_methods()), "short-axis", "short-axis-cine", "TV-MIND(lam=0.3)", "Gaussian-NMI"]:
        for name in named_methods(said(Run(method, d), given)):
            assert str(parse(name)) == name != method


def test_what_to_try_after_a_cine_never_leads_back(d):
    """From method to method, whatever is found: λ grows, and no name comes twice."""

    def follow(method, before):
        for name in named_methods(said(Run(method, d), OF_CINES)):
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
    every = OF_CINES - {advice.WITHOUT_SLICE}
    assert "slices" not in said(Run("TV-L1", 2), every)
    assert "slices" in said(Run("TV-L1", 2, is_stack=True), every)


def test_a_smoother_field_has_twice_the_weight_and_a_freer_one_half_of_it():
    run = Run("TV-L1(lam=0.2)")
    assert named_methods(advice.smoother(run)) == ["TV-L1(lam=0.4)"]
    assert named_methods(advice.freer(run)) == ["TV-L1(lam=0.1)"]
    assert named_methods(advice.smoother(Run("short-axis", 2))) == ["Gaussian-LNCC"]


def test_of_a_field_by_any_tool_no_parameter_of_ours_is_advised():
    assert not re.search(r"\blam\b", said(Run()))
    assert 'more smoothing by the tool that found it, or `method="Gaussian-LNCC"`' in advice.smoother(Run())


def test_after_a_method_that_compares_structure_the_other_is_advised():
    for used, other in (("MIND", "Remap"), ("Remap", "MIND")):
        words = advice.other_contrast(Run(f"TV-{used}"))
        assert (f"Gaussian-{other}" in words, used in words) == (True, False)


def test_arguments_that_are_advised_are_valid_python(d):
    """Each could be written in a call of register_images; only masks are named without a value."""
    for method in ("", "short-axis", "TV-L1(lam=0.2)"):
        for argument in re.findall("`([^`]*)`", said(Run(method, d), OF_PAIRS | OF_CINES)):
            assert argument in ("fixed_mask", "moving_mask", "frame") or ast.literal_eval(argument.partition("=")[2])


def test_who_kept_the_brightness_is_told_to_match_it():
    assert advice.match(Run("TV-L1", is_brightness_kept=True)) == '`brightness="match"`'
    assert advice.match(Run("TV-L1", is_brightness_kept=True, is_matched=True)) is None


def test_an_affine_start_is_advised_where_images_may_lie_apart_or_turned_alone():
    """Not where one image is five times as bright; a rigid one, where much of fixed has no counterpart."""
    rules = {rule.name for rule in (*FINDINGS, *CAUSES) if "`affine" in said(Run("TV-L1"), rule.to_try)}
    assert rules == {
        "lies turned", "structure unmatched", "large motion", "motion beyond the border", "little overlap",
        "blank places",
    }  # fmt: skip
    (unmatched,) = (rule.to_try for rule in FINDINGS if rule.name == "structure unmatched")
    for start in ("none", "rigid", "affine"):
        assert ('`affine="rigid"`' in said(Run("TV-L1", affine=start), unmatched)) == (start == "none")


def test_nothing_is_advised_that_was_done():
    done = Run("TV-L1", 3, affine="affine", is_matched=True, has_masks=True, is_repaired=True)
    assert named_arguments(said(done)) == {"method"}
    everything = {"affine", "fixed_mask", "folds", "match_intensities", "method", "moving_mask"}
    assert named_arguments(said(Run())) == everything


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
    assert both.reasons == ("Both images look like labels: labels do not show how tissue moves between outlines.",)
    lone = judge_images(labels, fixed, still)
    assert lone.level != "good"
    assert lone.reasons[0].startswith("Fixed looks like labels, not like an image: ")
