import json

import numpy as np
import pytest
import SimpleITK as sitk
from numpy.testing import assert_allclose

from vrnet import demo
from vrnet.data.phantom import phantom
from vrnet.methods.names import parse

SEED = 3
NAMES = {"LV": 3, "Myo": 2, "RV": 1}


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    return demo.run(phantom(SEED), tmp_path_factory.mktemp("demo") / "out", parse("TV-L1"))


@pytest.fixture(scope="module")
def read(result):
    """A file of the folder, as SimpleITK reads it."""
    return lambda name: sitk.ReadImage(str(result.folder / f"{name}.nii.gz"))


def test_the_files_hold_the_phantom(read):
    patient = phantom(SEED)
    for name in ("fixed", "moving", "fixed_labels", "moving_labels"):
        assert np.array_equal(sitk.GetArrayFromImage(read(name)).T, getattr(patient, name)[0, 0])
        assert_allclose(read(name).GetSpacing(), patient.spacing, rtol=1e-6)


def test_the_structures_have_the_labels_of_the_phantom():
    assert {name: int(label) for label, name in demo.STRUCTURES.items()} == NAMES


def test_simpleitk_gets_the_same_warped_files_from_the_transform(read):
    """Off the border, where the two differ on what lies outside."""
    transform = sitk.DisplacementFieldTransform(sitk.Cast(read("transform"), sitk.sitkVectorFloat64))
    inside = (slice(12, -12),) * 2
    for name, how in (("", sitk.sitkLinear), ("_labels", sitk.sitkNearestNeighbor)):
        moving, warped = read(f"moving{name}"), sitk.GetArrayFromImage(read(f"warped{name}"))[inside]
        resampled = sitk.GetArrayFromImage(sitk.Resample(moving, moving, transform, how))[inside]
        if name:
            assert (resampled != warped).mean() < 1e-3  # ties may be broken either way
        else:
            assert_allclose(resampled, warped, atol=1e-3)


def test_metrics_json_is_what_simpleitk_measures_on_the_files(read, result):
    metrics = json.loads((result.folder / "metrics.json").read_text())
    assert metrics == json.loads(json.dumps(result.metrics))
    for when, name in (("before", "moving"), ("after", "warped")):
        overlap = sitk.LabelOverlapMeasuresImageFilter()
        overlap.Execute(read("fixed_labels"), read(f"{name}_labels"))
        dice = [overlap.GetDiceCoefficient(label) for label in NAMES.values()]
        assert_allclose([metrics["dice"][when][str(label)] for label in NAMES.values()], dice)
        assert_allclose(metrics["dice"][when]["mean"], np.mean(dice))
        difference = sitk.GetArrayFromImage(read(name)) - sitk.GetArrayFromImage(read("fixed"))
        assert_allclose(metrics["similarity"][f"mae_{when}"], np.abs(difference).mean(), rtol=1e-5)


def test_the_registration_brings_the_heart_together(result):
    dice, distance = result.metrics["dice"], result.metrics["hausdorff_mm"]
    assert dice["before"]["mean"] < 0.8
    assert dice["after"]["mean"] > 0.9
    assert distance["after"]["mean"] < distance["before"]["mean"] / 2
    assert result.metrics["similarity"]["mae_after"] < result.metrics["similarity"]["mae_before"]
    assert result.metrics["folding_percent"] < 1


def test_the_error_before_is_the_length_of_the_true_motion(result):
    patient = phantom(SEED)
    heart = patient.fixed_labels[0, 0].numpy() > 0
    true = patient.field[0].numpy()[:, heart] * np.reshape(patient.spacing, (2, 1))
    found = result.pair.field[:, heart] * np.reshape(patient.spacing, (2, 1))
    assert_allclose(result.end_point_error["before"], np.sqrt((true**2).sum(0)).mean(), rtol=1e-5)
    assert_allclose(result.end_point_error["after"], np.sqrt(((found - true) ** 2).sum(0)).mean(), rtol=1e-5)
    assert result.end_point_error["after"] < result.end_point_error["before"] / 3
