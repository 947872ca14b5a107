import csv

import numpy as np
import pytest
from numpy.testing import assert_allclose

from tests.app.outputs import OVERLAPS, read_json
from tests.models import saved
from vrnet import BadInput, Grid, Image, Transform, read_image, write_image
from vrnet.evaluation.split import measure_subject


@pytest.mark.release
def test_evaluate_measures_what_register_measured(register, vrnet, files, tmp_path):
    labels = "--fixed-labels", files / "fixed_labels.nii.gz", "--moving-labels", files / "moving_labels.nii.gz"
    folder, _ = register(*labels)
    pair = "--fixed", files / "fixed.nii.gz", "--moving", files / "moving.nii.gz"
    ours = read_json(folder / "metrics.json")
    for what in (folder / "transform.nii.gz", "default"):
        assert vrnet("evaluate", what, *pair, *labels, "--out", tmp_path / "m.json")[0] == 0
        theirs = read_json(tmp_path / "m.json")
        for key in OVERLAPS | {"similarity"}:
            flat = [part if isinstance(part, dict) else {"": part} for part in ours[key].values()]
            other = [part if isinstance(part, dict) else {"": part} for part in theirs[key].values()]
            for a, b in zip(flat, other, strict=True):
                assert a == pytest.approx(b, abs=1e-3)
    assert vrnet("evaluate", "identity", *pair, *labels, "--out", tmp_path / "m.json")[0] == 0
    nothing = read_json(tmp_path / "m.json")
    assert nothing["dice"]["before"] == nothing["dice"]["after"] == pytest.approx(ours["dice"]["before"])


def test_evaluate_measures_landmarks(vrnet, files, tmp_path):
    """The true motion takes landmarks to their targets; no motion leaves them as far as they were."""
    true, x = Transform.load(files / "true.nii.gz"), np.argwhere(read_image(files / "fixed_labels.nii.gz").array == 2)
    x = true.grid.points(x[::20].astype(float))
    for name, values in (("fixed", x), ("moving", true.points(x))):
        rows = [["name", "X", "Y"], *([f"p{i}", *row] for i, row in enumerate(-values))]
        with (tmp_path / f"{name}.csv").open("w", newline="") as file:
            csv.writer(file).writerows(rows)
    pair = "--fixed", files / "fixed.nii.gz", "--moving", files / "moving.nii.gz"
    points = "--fixed-points", tmp_path / "fixed.csv", "--moving-points", tmp_path / "moving.csv", "--space", "RAS"
    status, out, err = vrnet("evaluate", files / "true.nii.gz", *pair, *points, "--out", tmp_path / "m.json")
    assert status == 0, err
    error = read_json(tmp_path / "m.json")["target_registration_error_mm"]
    assert_allclose(error["before"], np.linalg.norm(true.points(x) - x, axis=1).mean(), rtol=1e-5)
    assert error["after"] < 1e-3 < 1 < error["before"]
    assert "Target registration error" in out
    assert "outside" not in out + err
    assert f"Wrote {tmp_path / 'm.json'}." in out.splitlines()
    status, out, err = vrnet("evaluate", files / "true.nii.gz", *pair, *points[:-1], "LPS")
    for name in ("fixed", "moving"):
        assert f"{len(x)} of {len(x)} landmarks of {name}.nii.gz lie outside it: check --space" in (out + err)


def test_identity_changes_nothing_on_any_grids(vrnet, files, tmp_path):
    """Moving on a coarser, shifted grid: before and after are measured alike."""
    moving = read_image(files / "moving.nii.gz")
    write_image(Image(moving.array[4:50:2, :40:2], Grid((23, 20), (8.0, 8.0), (-30.0, 25.0), moving.grid.direction)),
                tmp_path / "other.nii.gz")  # fmt: skip
    pair = "--fixed", files / "fixed.nii.gz", "--moving", tmp_path / "other.nii.gz"
    status, out, _ = vrnet("evaluate", "identity", *pair, "--out", tmp_path / "m.json")
    assert status == 0
    alike = read_json(tmp_path / "m.json")["similarity"]
    assert alike["mae_before"] == pytest.approx(alike["mae_after"], rel=1e-3)
    assert alike["ncc_before"] == pytest.approx(alike["ncc_after"], abs=1e-3)
    assert "covers" in out


def test_a_result_less_alike_and_labels_of_one_image_are_mentioned(vrnet, files, tmp_path):
    pair = "--fixed", files / "fixed.nii.gz", "--moving", files / "moving.nii.gz"
    back = Transform.load(files / "true.nii.gz")
    Transform(-3 * back.displacement, back.grid).save(tmp_path / "wrong.nii.gz")
    _, out, _ = vrnet("evaluate", tmp_path / "wrong.nii.gz", *pair, "--fixed-labels", files / "fixed_labels.nii.gz")
    assert "less alike after than before" in out
    assert "Labels of one image alone" in out


@pytest.fixture
def three_hearts(hearts, tmp_path):
    """The words that measure a quick method on three hearts."""
    quick = "Gaussian-L2", "--set", "levels=1", "--set", "warps=1"
    return "evaluate", *quick, "--data", "manifest", "--root", hearts, "--split", "train", "--out", tmp_path / "out"


def test_an_evaluation_that_is_interrupted_goes_on(vrnet, three_hearts, tmp_path, monkeypatch):
    found = []

    def measure(sample, *rest):
        found.append(sample.name)
        if len(found) == 3:
            raise KeyboardInterrupt
        return measure_subject(sample, *rest)

    monkeypatch.setattr("vrnet.evaluation.split.measure_subject", measure)
    assert vrnet(*three_hearts)[0] == 130
    status, said, err = vrnet(*three_hearts)
    assert (status, "2 subjects measured already, 1 to do" in said) == (0, True), err
    assert len(found) == 4


def test_subjects_that_cannot_be_measured_are_named_and_the_status_says_so(vrnet, three_hearts, tmp_path, monkeypatch):
    def measure(sample, *rest):
        if sample.name == "heart1":
            raise BadInput("it is damaged")
        return measure_subject(sample, *rest)

    monkeypatch.setattr("vrnet.evaluation.split.measure_subject", measure)
    status, said, _ = vrnet(*three_hearts)
    assert (status, "Could not be measured, left out: heart1: it is damaged" in said) == (3, True)
    assert read_json(tmp_path / "out" / "summary.json")["subjects"] == 2
    assert len((tmp_path / "out" / "metrics.csv").read_text().splitlines()) == 3


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        ((), "give --fixed and --moving, or --data"),
        (("--data", "acdc", "--fixed", "a.nii"), "cannot be evaluated at once"),
        (("--data", "phantom", "--out", "out", "--weights", "runs"), "runs is a folder: if it is that of a run, give"),
    ],
)
def test_evaluate_says_what_it_misses(vrnet, words, answer, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    status, _, err = vrnet("evaluate", *words)
    assert status == 2
    assert answer in err


def test_weights_are_measured_on_a_data_set(vrnet, tmp_path, acdc):
    words = "--data", "acdc", "--root", acdc, "--out", tmp_path / "out"
    status, out, err = vrnet("evaluate", *words, "--weights", saved(tmp_path))
    assert status == 0, err
    assert "C-L2-2x1-w2 (m.safetensors) on 1 subject (acdc, test)" in " ".join(out.split())
    assert read_json(tmp_path / "out" / "summary.json")["weights"] == "m.safetensors"


def test_a_model_for_volumes_is_not_measured_on_slices(vrnet, acdc, tmp_path):
    words = "--weights", saved(tmp_path, d=3), "--data", "acdc", "--root", acdc, "--out", tmp_path / "out"
    status, _, err = vrnet("evaluate", *words)
    assert (status, "3D model" in err) == (2, True)
    assert not (tmp_path / "out").exists()


def test_a_name_with_parameters_is_no_transform_and_a_transform_has_none(vrnet, files):
    pair = "--fixed", files / "fixed.nii.gz", "--moving", files / "moving.nii.gz"
    status, out, err = vrnet("evaluate", "TV-L1(lam=0.15,warps=1)", *pair)
    assert (status, "TV-L1(lam=0.15,warps=1)" in out) == (0, True), err
    status, _, err = vrnet("evaluate", files / "true.nii.gz", *pair, "--set", "lam=0.15")
    assert (status, "--set would have no effect on" in err) == (2, True)


@pytest.mark.release
def test_a_pair_is_measured_as_register_leaves_it_unless_folds_are_kept(vrnet, files, tmp_path):
    """A picture against a label map, at a weight so low that the field folds."""
    pair = "--fixed", files / "fixed.nii.gz", "--moving", files / "moving_labels.nii.gz", "--out", tmp_path / "m.json"
    found = {}
    for folds in ("auto", "keep"):
        assert vrnet("evaluate", "TV-L1(lam=0.001)", *pair, "--folds", folds)[0] == 3  # a picture is no label map
        found[folds] = read_json(tmp_path / "m.json")["folding_strict_percent"]
    assert found["auto"] == 0 < found["keep"]


def test_what_to_try_names_options_that_the_command_has(vrnet, files, tmp_path):
    """A heart upside down, and a transform that moves nothing."""
    moving, true = read_image(files / "moving.nii.gz"), Transform.load(files / "true.nii.gz")
    write_image(moving.with_array(np.ascontiguousarray(1 - moving.array[:, ::-1])), tmp_path / "wrong.nii.gz")
    Transform(0 * true.displacement, true.grid).save(tmp_path / "t.nii.gz")
    pair = "--fixed", files / "fixed.nii.gz", "--moving", tmp_path / "wrong.nii.gz", "--out", tmp_path / "m.json"
    vrnet("evaluate", tmp_path / "t.nii.gz", *pair)
    advice = read_json(tmp_path / "m.json")["verdict"]["try"]
    assert any("vrnet register --method" in each for each in advice), advice
    options = [word for each in advice if "vrnet register" not in each for word in each.split() if word[:2] == "--"]
    _, out, _ = vrnet("evaluate", "--help")
    assert all(option.rstrip(",") in out for option in options)


def test_structures_of_a_manifest_get_names_and_those_of_acdc_have_them(vrnet, hearts, acdc, tmp_path):
    split = "--split", "test", "--out", tmp_path / "out", "--cache", tmp_path / "cache"
    words = "evaluate", "identity", "--data", "manifest", "--root", hearts, *split, "--label-names", "acdc"
    status, out, err = vrnet(*words)
    assert status == 0, err
    assert "dice_LV" in out
    assert {"dice_LV", "dice_Myo", "dice_RV"} <= set(read_json(tmp_path / "out" / "summary.json")["metrics"])
    words = "evaluate", "identity", "--data", "acdc", "--root", acdc, *split, "--label-names", "acdc"
    status, _, err = vrnet(*words)
    assert (status, "leave out --label-names" in err) == (2, True)
