import csv
import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from vrnet import BadInput, parse
from vrnet.data.phantoms import Phantoms
from vrnet.devices import describe_device
from vrnet.evaluation.cohort import evaluate_split, measure_subject, summarise
from vrnet.evaluation.metrics import contour_hausdorff, dice
from vrnet.files import write_rows
from vrnet.provenance import versions

COLUMNS = (
    "dice_LV dice_Myo dice_RV dice_mean hd_LV hd_Myo hd_RV hd_mean folding_percent folding_strict_percent "
    "jacobian_gradient seconds"
)


def silent(stage):
    """A stage whose progress nobody watches."""
    return lambda part: None


def test_a_subject_s_score_is_the_mean_of_its_slices(split):
    (sample,) = split.samples
    row = measure_subject(sample, parse("identity").build(2), split.structures)
    pairs = list(zip(sample.fixed_labels[:, 0].numpy(), sample.moving_labels[:, 0].numpy(), strict=True))
    assert row["dice_Myo"] == pytest.approx(np.mean([dice(a == 2, b == 2) for a, b in pairs]))
    distances = [contour_hausdorff(a == 3, b == 3, (1.8, 1.8)) for a, b in pairs]
    assert row["hd_LV"] == pytest.approx(np.mean(distances))
    assert row["dice_mean"] == pytest.approx(np.mean([row[f"dice_{name}"] for name in split.structures]))
    assert " ".join(key for key in row if key != "subject") == COLUMNS


def test_methods_get_one_pair_at_a_time_with_its_spacing(split):
    seen = []

    def find(I0, I1, spacing):
        seen.append((tuple(I0.shape), spacing))
        return torch.zeros(1, 2, 160, 160)

    measure_subject(split.samples[0], find, split.structures)
    assert seen == [((1, 1, 160, 160), (1.8, 1.8))] * 3


def test_folds_are_kept_unless_they_are_to_be_repaired(split, tmp_path):
    """The table says how much a method folds."""

    def find(I0, I1, spacing):
        return 3 * torch.randn(1, 2, 160, 160, generator=torch.Generator().manual_seed(0))

    sample = split.samples[0]
    kept, repaired = (measure_subject(sample, find, split.structures, folds=folds) for folds in ("keep", "repair"))
    assert kept["folding_strict_percent"] > 50
    assert repaired["folding_strict_percent"] == 0
    assert measure_subject(sample, find, split.structures).keys() == repaired.keys()
    summary = evaluate_split(silent, parse("identity"), split, tmp_path, folds="repair")
    assert summary["folds"] == "repair"


def test_the_summary_is_mean_and_deviation_over_those_that_have_a_value():
    found = [{"subject": "a", "x": 1.0, "y": np.nan}, {"subject": "b", "x": 3.0, "y": np.nan}]
    summary = summarise(found)
    assert summary["x"] == {"mean": 2.0, "std": 1.0}
    assert np.isnan(summary["y"]["mean"])


def test_a_cohort_is_a_table_and_a_summary(split, tmp_path):
    ticks = []
    summary = evaluate_split(lambda name: ticks.append, parse("TV-L1"), split, tmp_path / "out")
    with (tmp_path / "out" / "metrics.csv").open() as file:
        (row,) = csv.DictReader(file)
    assert row["subject"] == "patient001"
    assert json.loads((tmp_path / "out" / "summary.json").read_text()) == summary
    assert {key: summary[key] for key in ("method", "data", "split", "subjects")} == {
        "method": "TV-L1", "data": "acdc", "split": "test", "subjects": 1,
    }  # fmt: skip
    assert summary["metrics"]["dice_mean"]["mean"] == pytest.approx(float(row["dice_mean"]))
    assert summary["metrics"]["dice_mean"]["mean"] > 0.9
    assert ticks == [1.0]


def test_a_summary_says_what_there_was_before(split, tmp_path):
    """The overlaps of no registration, whatever the method does, and nothing that only a field has."""
    after, before = (evaluate_split(silent, parse(name), split, tmp_path / name) for name in ("TV-L1", "identity"))
    overlaps = {name: value for name, value in before["metrics"].items() if name.startswith(("dice", "hd"))}
    assert after["before"] == before["before"] == overlaps
    assert after["metrics"]["dice_mean"]["mean"] > after["before"]["dice_mean"]["mean"] + 0.1


def test_a_cohort_names_what_the_default_came_to(split, tmp_path):
    whole, told = replace(split, samples=(volume(),)), []
    for pairs, name, weights in ((split, "short-axis", "short_axis.safetensors"), (whole, "Gaussian-LNCC", None)):
        summary = evaluate_split(lambda name: told.append(name) or silent(name), parse("default"), pairs, tmp_path)
        assert (summary["method"], summary["weights"], told[-1]) == (name, weights, f"{name} on 1 subjects")
        assert json.loads((tmp_path / "summary.json").read_text()) == summary


def volume():
    """A phantom subject in 3D."""
    return Phantoms(shape=(32, 32, 24), spacing=5.0).prepare("phantom-0001", "evaluation")


def test_a_summary_says_what_made_it(split, tmp_path):
    """The version and the commit of vrnet, the version of torch, and the device; beside the keys that others read."""
    summary = evaluate_split(silent, parse("identity"), split, tmp_path)
    assert summary["provenance"] == {**versions(), "device": describe_device(torch.device("cpu"))}
    assert summary["provenance"].keys() >= {"vrnet", "commit", "torch", "device"}
    assert summary.keys() >= {"method", "data", "split", "subjects", "metrics"}
    assert set(COLUMNS.split()) <= summary["metrics"].keys()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_cohort_is_measured_on_the_device_that_is_named(split, tmp_path):
    with pytest.raises(BadInput, match="no CUDA"):
        evaluate_split(silent, parse("TV-L1"), split, tmp_path / "out", "cuda")
    assert not list(tmp_path.iterdir())


def test_where_the_motion_is_known_its_error_is_measured_inside_the_labels_in_mm():
    """A field that is 3 voxels off along the first axis, where they are 1.8 mm apart, and right outside the heart."""
    sample = Phantoms(shape=(64, 64), spacing=1.8).prepare("phantom-0001", "evaluation")
    off = sample.field.clone()
    off[:, 0] += 3 * (sample.fixed_labels[:, 0] > 0)
    found = measure_subject(sample, lambda I0, I1, h: off, {"LV": 3})
    assert found["end_point_error_mm"] == pytest.approx(5.4)
    share = (sample.fixed_labels > 0).float().mean().item()
    found = measure_subject(replace(sample, fixed_labels=None), lambda I0, I1, h: off, {"LV": 3})
    assert found["end_point_error_mm"] == pytest.approx(5.4 * share, rel=1e-4)


def test_without_labels_only_regularity_and_time_are_measured(split, tmp_path):
    (labelled,) = split.samples
    unlabelled = replace(labelled, fixed_labels=None, moving_labels=None)
    find = lambda I0, I1, h: torch.zeros(1, 2, 160, 160)  # noqa: E731
    rows = [measure_subject(sample, find, split.structures) for sample in (unlabelled, labelled)]
    regular = {"folding_percent", "folding_strict_percent", "jacobian_gradient"}
    assert rows[0].keys() == {"subject", *regular, "seconds"}
    assert summarise(rows)["dice_LV"]["mean"] == rows[1]["dice_LV"]
    write_rows(rows, tmp_path / "metrics.csv")
    with (tmp_path / "metrics.csv").open() as file:
        first, second = csv.DictReader(file)
    assert (first["dice_LV"], second["dice_LV"]) == ("", str(rows[1]["dice_LV"]))
