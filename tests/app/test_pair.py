import json

import numpy as np
import pytest
import SimpleITK as sitk
from numpy.testing import assert_allclose

from tests.data.test_acdc import root  # noqa: F401
from tests.evaluation.test_cohort import pairs_of
from tests.models import card, saved, trained
from vrnet import BadInput, Image, Trained, demo, load_method, parse, write_image
from vrnet.app.pair import Case, outcome, point_error, read_case, run, transform_of
from vrnet.evaluation.cohort import evaluate_split
from vrnet.files import write_json
from vrnet.images.points import Points
from vrnet.methods.learned import learned
from vrnet.phantom import phantom


@pytest.fixture(scope="module")
def case():
    return demo.phantom_case(phantom(3))


@pytest.fixture(scope="module")
def done(case, tmp_path_factory):
    """(outcome, folder, stages): a phantom registered, with a report."""
    folder, stages = tmp_path_factory.mktemp("run") / "out", []

    def stage(name):
        stages.append(name)
        return lambda part: None

    result, written = run(stage, case, parse("TV-L1"), folder, report=True)
    assert all(path.exists() for path in written)
    return result, folder, stages


def test_metrics_json_is_what_simpleitk_measures_on_the_files(case, done, tmp_path):
    result, folder, _ = done
    demo.write_case(case, tmp_path)
    fixed, warped = (sitk.ReadImage(str(path)) for path in (tmp_path / "fixed.nii.gz", folder / "warped.nii.gz"))
    labels = [tmp_path / "fixed_labels.nii.gz", folder / "warped_labels.nii.gz"]
    metrics = json.loads((folder / "metrics.json").read_text())
    overlap = sitk.LabelOverlapMeasuresImageFilter()
    overlap.Execute(*(sitk.ReadImage(str(path)) for path in labels))
    dice = [overlap.GetDiceCoefficient(label) for label in (1, 2, 3)]
    assert_allclose([metrics["dice"]["after"][str(label)] for label in (1, 2, 3)], dice)
    assert_allclose(metrics["dice"]["after"]["mean"], np.mean(dice))
    difference = np.abs(sitk.GetArrayFromImage(warped) - sitk.GetArrayFromImage(fixed)).mean()
    assert_allclose(metrics["similarity"]["mae_after"], difference, rtol=1e-5)
    before = np.abs(case.moving.array - case.fixed.array).mean()
    assert_allclose(metrics["similarity"]["mae_before"], before, rtol=1e-5)
    assert before > 1.5 * difference
    assert metrics == json.loads(json.dumps(result.metrics))


def test_the_page_says_what_was_run_and_how_well(done):
    result, folder, stages = done
    page = (folder / "report.html").read_text()
    assert "TV-L1" in page
    assert "lam 0.075" in page
    assert f"{result.metrics['dice']['after']['mean']:.3f}" in page
    assert stages == ["registering with TV-L1", "measuring", "writing"]


def test_what_is_written_and_said_names_what_the_default_came_to(case, tmp_path):
    stages = []

    def stage(name):
        stages.append(name)
        return lambda part: None

    result, _ = run(stage, case, parse("default"), tmp_path, report=True)
    metrics, page = json.loads((tmp_path / "metrics.json").read_text()), (tmp_path / "report.html").read_text("utf-8")
    assert (metrics["method"], metrics["weights"]) == ("C-L2-3x1-w12", "short_axis.safetensors")
    assert stages[0] == "registering with C-L2-3x1-w12"
    assert "on acdc, train: 40 subjects, 5000 steps, at 1.8 x 1.8 mm" in page
    assert transform_of(stage, "DEFAULT", case, "auto", "cpu")[1].method == "C-L2-3x1-w12"
    assert stages[-1] == "registering with C-L2-3x1-w12"
    assert result.metrics["dice"]["after"]["mean"] > 0.9


def test_the_page_says_whether_intensities_were_matched(case, tmp_path):
    run(lambda name: lambda part: None, case, parse("TV-L1"), tmp_path, match_intensities=True, report=True)
    assert "moving matched to the histogram of fixed" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_labels_must_match_their_image(case):
    with pytest.raises(BadInput, match="not on the grid of"):
        Case(case.fixed, case.moving, fixed_labels=demo.phantom_case(phantom(3, (64, 64))).fixed_labels)


def test_labels_of_one_image_alone_are_carried_but_not_measured(case):
    alone = Case(case.fixed, case.moving, moving_labels=case.moving_labels)
    transform, found = transform_of(lambda name: lambda part: None, "identity", alone, "auto", "cpu")
    result = outcome(alone, transform, found)
    assert "dice" not in result.metrics
    assert np.array_equal(result.warped_labels.array, case.moving_labels.array)


def test_points_must_come_in_pairs(case, done):
    two, three = (Points(np.zeros((n, 2)), ["x", "y"], [["0", "0"]] * n, [0, 1]) for n in (2, 3))
    with pytest.raises(BadInput, match="give pairs"):
        point_error(done[0].transform, two, three)


def test_a_case_is_read_with_labels_in_any_number_type(case, tmp_path):
    demo.write_case(case, tmp_path)
    floats = Image(case.fixed_labels.array.astype(np.float32), case.fixed.grid, "floats.nii.gz")
    write_image(floats, tmp_path / "floats.nii.gz")
    read = read_case(tmp_path / "fixed.nii.gz", tmp_path / "moving.nii.gz", tmp_path / "floats.nii.gz")
    assert read.fixed_labels.array.dtype.kind == "i"
    assert np.array_equal(read.fixed_labels.array, case.fixed_labels.array)


def test_what_has_no_value_is_null(tmp_path):
    write_json({"dice": {"1": float("nan"), "2": np.float32(0.5)}}, tmp_path / "m.json")
    assert json.loads((tmp_path / "m.json").read_text()) == {"dice": {"1": None, "2": 0.5}}


def quiet(name):
    return lambda part: None


def test_a_run_of_a_trained_model_says_which_weights_it_had(case, tmp_path):
    model = load_method(saved(tmp_path))
    result, _ = run(quiet, case, model, tmp_path / "out", report=True)
    metrics = json.loads((tmp_path / "out" / "metrics.json").read_text())
    assert (metrics["method"], metrics["weights"]) == ("C-L2-2x1-w2", "m.safetensors")
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "m.safetensors" in page
    assert "on phantoms, at 1.8 x 1.8 mm, by vrnet 0.1.0" in page
    assert "Conv2d" not in page
    assert result.metrics["slice_by_slice"] is False


def test_a_run_without_weights_has_none(done):
    assert done[0].metrics["weights"] is None
    assert "weights" in done[0].metrics


def test_a_pair_is_evaluated_as_it_is_registered(case, tmp_path):
    path = saved(tmp_path)
    transform, found = transform_of(quiet, "c-l2-2x1-w2", case, "auto", "cpu", path)
    expected, _ = run(quiet, case, load_method(path), tmp_path / "out")
    assert_allclose(transform.displacement, expected.transform.displacement, atol=1e-6)
    assert found.weights == "m.safetensors"


def test_a_transform_has_no_weights(case, tmp_path):
    with pytest.raises(BadInput, match="leave out --weights"):
        transform_of(quiet, "t.nii.gz", case, "auto", "cpu", saved(tmp_path))


def test_a_trained_model_is_measured_on_a_cohort(root, tmp_path):  # noqa: F811
    """An untrained residual network is nearly no registration, and is measured as that."""
    model = learned("R-L2-1x1-zeros-w2").build(2)
    for name, parameter in model.named_parameters():
        if "log_theta" in name:
            parameter.data.fill_(20.0)
    near = Trained(card("R-L2-1x1-zeros-w2"), model, "near.safetensors")
    found, nothing = (
        evaluate_split(quiet, method, pairs_of(root), tmp_path / str(method)) for method in (near, parse("identity"))
    )
    assert (found["method"], found["weights"]) == ("R-L2-1x1-zeros-w2", "near.safetensors")
    assert nothing["weights"] is None
    for column in ("dice_mean", "hd_mean"):
        assert found["metrics"][column]["mean"] == pytest.approx(nothing["metrics"][column]["mean"], rel=1e-2)
    with pytest.raises(BadInput, match="3D model"):
        evaluate_split(quiet, trained(d=3), pairs_of(root), tmp_path / "out")
    assert not (tmp_path / "out").exists()
