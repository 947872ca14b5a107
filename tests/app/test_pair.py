import json
from dataclasses import replace

import numpy as np
import pytest
import SimpleITK as sitk
from numpy.testing import assert_allclose
from scipy import ndimage

from tests.app.outputs import read_json
from tests.models import saved
from tests.registration.test_images import reorient
from vrnet import BadInput, Grid, Image, Transform, judge_images, load_method, parse, register_images
from vrnet.app import register as demo
from vrnet.app.pair import (
    ImagePair,
    find_transform,
    landmark_error,
    measure_transform,
    register_pair,
    write_pair,
    write_report_files,
)
from vrnet.files import write_json
from vrnet.images.grid import Affine
from vrnet.images.points import Points
from vrnet.phantom import phantom
from vrnet.registration.options import RegistrationOptions

CPU = RegistrationOptions(device="cpu")


def quiet(name):
    """A stage that shows nothing."""
    return lambda part: None


@pytest.fixture(scope="module")
def pair():
    return demo.phantom_pair(phantom(3))


@pytest.fixture(scope="module")
def done(pair, tmp_path_factory):
    """(result, folder, stages): a phantom registered, with a report."""
    folder, stages = tmp_path_factory.mktemp("run") / "out", []

    def stage(name):
        stages.append(name)
        return lambda part: None

    result, written = register_pair(stage, pair, parse("TV-L1"), folder, report=True)
    assert all(path.exists() for path in written)
    return result, folder, stages


def test_metrics_json_is_what_simpleitk_measures_on_the_files(pair, done, tmp_path):
    result, folder, _ = done
    write_pair(pair, tmp_path)
    fixed, warped = (sitk.ReadImage(str(path)) for path in (tmp_path / "fixed.nii.gz", folder / "warped.nii.gz"))
    labels = [tmp_path / "fixed_labels.nii.gz", folder / "warped_labels.nii.gz"]
    metrics = read_json(folder / "metrics.json")
    overlap = sitk.LabelOverlapMeasuresImageFilter()
    overlap.Execute(*(sitk.ReadImage(str(path)) for path in labels))
    dice = [overlap.GetDiceCoefficient(label) for label in (1, 2, 3)]
    assert_allclose([metrics["dice"]["after"][str(label)] for label in (1, 2, 3)], dice)
    assert_allclose(metrics["dice"]["after"]["mean"], np.mean(dice))
    difference = np.abs(sitk.GetArrayFromImage(warped) - sitk.GetArrayFromImage(fixed)).mean()
    assert_allclose(metrics["similarity"]["mae_after"], difference, rtol=1e-5)
    before = np.abs(pair.moving.array - pair.fixed.array).mean()
    assert_allclose(metrics["similarity"]["mae_before"], before, rtol=1e-5)
    assert before > 1.5 * difference
    assert metrics == json.loads(json.dumps(result.metrics))


def test_where_a_motion_leads_out_of_moving_nothing_is_compared():
    """An image whose background is bright, shifted: the rim that it lacks would count as black."""
    far = np.random.default_rng(0).uniform(900, 1000, (44, 30)).astype(np.float32)
    fixed, moving = (Image(part, Grid.plain((40, 30), (1.0, 1.0))) for part in (1000 - far[4:], far[:40]))
    shift = Transform.from_voxels(np.stack([np.full((40, 30), 4.0), np.zeros((40, 30))]), fixed.grid)
    found = measure_transform(ImagePair(fixed, moving), shift).metrics["similarity"]
    assert found["ncc_after"] == pytest.approx(-1, abs=1e-4)
    assert found["mae_before"] == pytest.approx(np.abs(fixed.array - moving.array).mean(), rel=1e-5)


def test_the_page_says_what_was_run_and_how_well(done):
    result, folder, stages = done
    page = (folder / "report.html").read_text()
    assert "TV-L1" in page
    assert "lam 0.075" in page
    assert f"{result.metrics['dice']['after']['mean']:.3f}" in page
    assert stages == ["registering with TV-L1", "measuring", "writing"]


def test_what_is_written_and_said_names_what_the_default_came_to(pair, tmp_path):
    stages = []

    def stage(name):
        stages.append(name)
        return lambda part: None

    result, _ = register_pair(stage, pair, parse("default"), tmp_path, report=True)
    metrics, page = read_json(tmp_path / "metrics.json"), (tmp_path / "report.html").read_text("utf-8")
    assert (metrics["method"], metrics["weights"]) == ("short-axis", "short_axis.safetensors")
    assert stages[0] == "registering with short-axis"
    assert (
        "on acdc, train: 40 subjects, 20000 steps, averaged with acdc, train: 40 subjects, 1685 steps, at 1.8 x 1.8 mm"
        in page
    )
    assert find_transform(stage, pair, "DEFAULT", options=CPU)[1].method == "short-axis"
    assert stages[-1] == "registering with short-axis"
    assert result.metrics["dice"]["after"]["mean"] > 0.9


def test_a_structure_that_gets_worse_is_called_by_its_name(pair):
    """The RV of moving lies as that of fixed, so that the motion, which is right, takes it away."""
    rest = np.where(pair.moving_labels.array == 1, 0, pair.moving_labels.array)
    still = replace(pair, moving_labels=pair.moving_labels.with_array(np.where(pair.fixed_labels.array == 1, 1, rest)))
    motion = Transform.from_voxels(pair.true_motion, pair.fixed.grid)
    assert measure_transform(pair, motion).metrics["verdict"]["level"] == "good"
    verdict = measure_transform(still, motion).metrics["verdict"]
    assert (verdict["level"], "less than before: RV, Dice " in verdict["reasons"][0]) == ("look", True)


def test_the_page_says_whether_intensities_were_matched(pair, tmp_path):
    options = RegistrationOptions(match_intensities=True)
    register_pair(quiet, pair, parse("TV-L1"), tmp_path, options, report=True)
    assert "moving matched to the histogram of fixed" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_what_to_try_depends_on_whether_brightness_was_kept(pair):
    bright = replace(pair, moving=pair.moving.with_array(2 * pair.moving.array + 100))
    run = register_images(bright.fixed, bright.moving, "TV-L1", brightness="keep")
    verdict = measure_transform(bright, run.transform, run).metrics["verdict"]
    assert (verdict["level"], "--brightness match" in verdict["try"]) == ("look", True)


@pytest.fixture(scope="module")
def masked(pair, tmp_path_factory):
    """(pair, result, folder): a phantom with masks around its heart, registered, with a report."""
    around = [
        labels.with_array((labels.array > 0).astype(np.uint8)) for labels in (pair.fixed_labels, pair.moving_labels)
    ]
    masks = [ndimage.binary_dilation(mask.array, iterations=8).astype(np.uint8) for mask in around]
    names = ImagePair(
        pair.fixed,
        pair.moving,
        fixed_mask=Image(masks[0], pair.fixed.grid, "inner.nii.gz"),
        moving_mask=Image(masks[1], pair.moving.grid, "outer.nii.gz"),
    )
    folder = tmp_path_factory.mktemp("masked") / "out"
    return names, register_pair(quiet, names, parse("TV-L1"), folder, report=True)[0], folder


def test_similarity_is_that_of_the_voxels_inside_both_masks_before_and_after(masked):
    pair, result, folder = masked
    metrics, outer = read_json(folder / "metrics.json"), sitk.GetImageFromArray(pair.moving_mask.array.T)
    outer.SetSpacing(pair.moving.grid.spacing)
    moved = sitk.GetArrayFromImage(sitk.Resample(outer, result.transform.itk, sitk.sitkNearestNeighbor)).T
    inside = (pair.fixed_mask.array > 0) & (pair.moving_mask.array > 0) & (moved > 0)
    assert 0.01 < inside.mean() < 0.5
    for when, image in (("before", pair.moving), ("after", result.warped)):
        x, y = pair.fixed.array[inside], image.array[inside]
        assert metrics["similarity"][f"mae_{when}"] == pytest.approx(np.abs(x - y).mean(), rel=1e-5)
        assert metrics["similarity"][f"ncc_{when}"] == pytest.approx(np.corrcoef(x, y)[0, 1], rel=1e-4)


def test_intensities_are_matched_as_they_were_registered_whatever_lies_outside_the_masks(masked):
    """An artefact outside the masks changes neither the matching, nor the similarity, nor the verdict."""
    pair = masked[0]
    options = {"fixed_mask": pair.fixed_mask, "moving_mask": pair.moving_mask, "match_intensities": True}
    run = register_images(pair.fixed, pair.moving, "TV-L1", **options)
    spoilt = [
        image.with_array(np.where(mask.array > 0, image.array, 50).astype(np.float32))
        for image, mask in ((pair.fixed, pair.fixed_mask), (pair.moving, pair.moving_mask))
    ]
    pairs = pair, replace(pair, fixed=spoilt[0], moving=spoilt[1])
    found = [measure_transform(each, run.transform, run).metrics for each in pairs]
    assert found[0]["similarity"] == found[1]["similarity"]
    assert found[0]["verdict"] == found[1]["verdict"]
    assert found[0]["verdict"]["level"] == "good"


def test_python_judges_a_stack_with_masks_and_an_affine_start_as_metrics_json_does():
    heart, grid = phantom(5, (24, 22, 20), 5.0), Grid.plain((24, 22, 20), (5.0, 5.0, 15.0))
    parts = heart.fixed, heart.moving, heart.fixed_labels, heart.moving_labels
    fixed, moving, *labels = (Image(part[0, 0].numpy(), grid) for part in parts)
    masks = [image.with_array((image.array > 0.05).astype(np.uint8)) for image in (fixed, moving)]
    affine = Affine("rigid", np.eye(3), np.array([0.0, 0.0, 2.0]), np.zeros(3))
    run = register_images(fixed, moving, "TV-L1", affine=affine, fixed_mask=masks[0], moving_mask=masks[1])
    metrics = measure_transform(ImagePair(fixed, moving, *labels, *masks), run.transform, run).metrics
    options = {"fixed_mask": masks[0], "moving_mask": masks[1], "affine": affine}
    verdict = judge_images(fixed, moving, run.transform, *labels, **options)
    assert metrics["folding_strict_percent"] == 0
    assert (verdict.level, [*verdict.reasons]) == (metrics["verdict"]["level"], metrics["verdict"]["reasons"])


def test_after_a_far_affine_start_what_is_shown_is_the_deformation_beyond_it(pair, tmp_path):
    """Moving put 300 mm away: by SciPy, moving as it is shown becomes warped through the motion that is shown."""
    away = replace(pair.moving.grid, origin=tuple(x + 300.0 for x in pair.moving.grid.origin))
    labels, moving = Image(pair.moving_labels.array, away), Image(pair.moving.array, away)
    affine = Affine("rigid", np.eye(2), np.full(2, 300.0), np.zeros(2))
    run = register_images(pair.fixed, moving, "TV-L1", affine=affine)
    placed = ImagePair(pair.fixed, moving, pair.fixed_labels, labels)
    result = measure_transform(placed, run.transform, run)
    shown = result.on_fixed_grid
    assert np.abs(run.transform.in_voxels()).min() > 100 > 20 > np.abs(shown.field).max() > 1
    assert_allclose(shown.moving, pair.moving.array, atol=1e-4)
    assert_allclose(shown.moving_labels, pair.moving_labels.array)
    ends = np.indices(shown.grid.shape) + shown.field
    expected = ndimage.map_coordinates(shown.moving, ends, order=1, mode="nearest")
    inside = (slice(20, -20),) * 2
    assert_allclose(shown.warped[inside], expected[inside], atol=1e-3)
    assert result.metrics["dice"]["before"]["mean"] == 0  # as the headers place them
    write_report_files(result, tmp_path, [], {})
    assert "beyond the affine start" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_what_is_written_says_that_there_were_masks(masked):
    _, result, folder = masked
    assert result.metrics["masks"] == {"fixed": "inner.nii.gz", "moving": "outer.nii.gz"}
    page = (folder / "report.html").read_text(encoding="utf-8")
    for words in ("fixed mask", "inner.nii.gz", "moving mask", "outer.nii.gz", "inside the masks"):
        assert words in page


def test_labels_of_one_image_alone_are_carried_but_not_measured(pair):
    alone = ImagePair(pair.fixed, pair.moving, moving_labels=pair.moving_labels)
    transform, found = find_transform(quiet, alone, "identity", options=CPU)
    result = measure_transform(alone, transform, found)
    assert "dice" not in result.metrics
    assert np.array_equal(result.warped_labels.array, pair.moving_labels.array)


def test_points_must_come_in_pairs(pair, done):
    two, three = (Points(np.zeros((n, 2)), ["x", "y"], [["0", "0"]] * n, [0, 1]) for n in (2, 3))
    with pytest.raises(BadInput, match="give pairs"):
        landmark_error(pair, done[0].transform, two, three)


def test_what_has_no_value_is_null(tmp_path):
    write_json({"dice": {"1": float("nan"), "2": np.float32(0.5)}}, tmp_path / "m.json")
    assert read_json(tmp_path / "m.json") == {"dice": {"1": None, "2": 0.5}}


def test_a_run_of_a_trained_model_says_which_weights_it_had(pair, tmp_path):
    model = load_method(saved(tmp_path))
    result, _ = register_pair(quiet, pair, model, tmp_path / "out", report=True)
    metrics = read_json(tmp_path / "out" / "metrics.json")
    assert (metrics["method"], metrics["weights"]) == ("C-L2-2x1-w2", "m.safetensors")
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "m.safetensors" in page
    assert "on phantoms, at 1.8 x 1.8 mm, by vrnet 0.1.0" in page
    assert "Conv2d" not in page
    assert result.metrics["slice_by_slice"] is False


def test_a_run_without_weights_has_none(done):
    assert done[0].metrics["weights"] is None
    assert "weights" in done[0].metrics


def test_a_pair_is_evaluated_as_it_is_registered(pair, tmp_path):
    path = saved(tmp_path)
    transform, found = find_transform(quiet, pair, "c-l2-2x1-w2", path, options=CPU)
    expected, _ = register_pair(quiet, pair, load_method(path), tmp_path / "out")
    assert_allclose(transform.displacement, expected.transform.displacement, atol=1e-6)
    assert found.weights == "m.safetensors"


def test_a_transform_has_no_weights(pair, tmp_path):
    with pytest.raises(BadInput, match="leave out --weights"):
        find_transform(quiet, pair, "t.nii.gz", saved(tmp_path))


@pytest.mark.parametrize(("order", "flips"), [([1, 0, 2], (False,) * 3), ([2, 0, 1], (True, False, True))])
def test_measures_do_not_depend_on_how_the_images_are_stored(order, flips):
    heart, grid = phantom(5, (24, 22, 20), 5.0), Grid.plain((24, 22, 20), (5.0, 5.0, 15.0))
    parts = heart.fixed, heart.moving, heart.fixed_labels, heart.moving_labels
    images = [Image(part[0, 0].numpy(), grid) for part in parts]
    found = []
    for stored in (images, [reorient(image, order, flips) for image in images]):
        pair = ImagePair(*stored)
        result = register_images(pair.fixed, pair.moving, "Gaussian-L2(lam=0.5)", folds="keep")
        metrics = measure_transform(pair, result.transform, result).metrics
        measured = ("similarity", "dice", "hausdorff_mm", "surface_hausdorff_mm", "folding_strict_percent")
        found.append({name: metrics[name] for name in measured})
    assert found[0]["folding_strict_percent"] > 1
    assert flatten(found[1]) == pytest.approx(flatten(found[0]), rel=1e-5)


def flatten(metrics, above=""):
    """{"dice.before.1": 0.5, ...}"""
    parts = [
        flatten(value, f"{above}{key}.") if isinstance(value, dict) else {f"{above}{key}": value}
        for key, value in metrics.items()
    ]
    return {key: value for part in parts for key, value in part.items()}
