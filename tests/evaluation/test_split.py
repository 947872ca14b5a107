"""A method on a split, by the engine of cohorts: the tables are those of a plain loop, however it was stopped."""

import csv
import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.models import saved
from vrnet import BadInput, parse
from vrnet.data.dataset import Phantoms
from vrnet.data.prepared import StoredSamples, load_pack, prepare_split, save_pack
from vrnet.devices import describe_device, use_threads
from vrnet.errors import InputWarning
from vrnet.evaluation import split as module
from vrnet.evaluation.metrics import contour_hausdorff, dice
from vrnet.evaluation.split import evaluate_split, measure_subject, subject_overlaps, summarise
from vrnet.fields.calculus import zeros
from vrnet.files import json_ready, write_rows
from vrnet.methods.names import MethodSpec, parse_method
from vrnet.provenance import versions

COLUMNS = (
    "dice_LV dice_Myo dice_RV dice_mean hd_LV hd_Myo hd_RV hd_mean folding_percent folding_strict_percent "
    "jacobian_gradient seconds"
)
QUICK = parse_method("Gaussian-L2", None, ("levels=1", "warps=2")).pin()
HEARTS = Phantoms(shape=(32, 32), spacing=8.0, counts={"test": 4})


def silent(stage):
    """A stage whose progress nobody watches."""
    return lambda part: None


@pytest.fixture
def hearts(tmp_path):
    """Four small phantoms, the second without a right ventricle, so that some of its scores are NaN."""
    four = prepare_split(HEARTS, "test", "evaluation", tmp_path / "cache").load()
    first, second, *others = four.samples
    gone = {
        part: torch.where(getattr(second, part) == 1, 0, getattr(second, part))
        for part in ("fixed_labels", "moving_labels")
    }
    return replace(four, samples=(first, replace(second, **gone), *others))


def test_labels_that_were_matched_are_said_to_be_no_test(hearts, tmp_path):
    found = {kind: evaluate_split(silent, QUICK, hearts, tmp_path / kind, channels=kind) for kind in ("none", "labels")}
    assert [summary["channels"] for summary in found.values()] == ["none", "labels"]
    assert "no evidence" in json.loads((tmp_path / "labels" / "summary.json").read_text())["labels"]
    assert "labels" not in found["none"]
    dice_none, dice_labels = (summary["metrics"]["dice_mean"]["mean"] for summary in found.values())
    assert dice_labels > dice_none


def without_seconds(folder):
    """metrics.csv and summary.json, but for what time says, and which machine."""
    with (folder / "metrics.csv").open(newline="") as file:
        header, *lines = csv.reader(file)
    place = header.index("seconds")
    summary = json.loads((folder / "summary.json").read_text())
    seconds = summary["metrics"].pop("seconds")
    assert seconds["mean"] > 0
    assert all(float(line[place]) > 0 for line in lines)
    return header, [[cell for k, cell in enumerate(line) if k != place] for line in lines], summary


def count_calls(monkeypatch, stop_at=None):
    """The names of subjects that are measured from now on; Ctrl-C comes before the one of a number."""
    measured = []

    def measure(sample, *rest):
        if len(measured) == stop_at:
            raise KeyboardInterrupt
        measured.append(sample.name)
        return measure_subject(sample, *rest)

    monkeypatch.setattr(module, "measure_subject", measure)
    return measured


def test_a_cohort_is_a_table_and_a_summary_with_what_there_was_before_and_what_made_it(split, tmp_path):
    ticks = []
    summary = evaluate_split(lambda name: ticks.append, MethodSpec("TV-L1"), split, tmp_path / "out")
    with (tmp_path / "out" / "metrics.csv").open() as file:
        (row,) = csv.DictReader(file)
    assert row["subject"] == "patient001"
    assert json.loads((tmp_path / "out" / "summary.json").read_text()) == summary
    assert {key: summary[key] for key in ("method", "data", "split", "subjects")} == {
        "method": "TV-L1", "data": "acdc", "split": "test", "subjects": 1,
    }  # fmt: skip
    assert set(COLUMNS.split()) <= summary["metrics"].keys()
    assert 0.9 < summary["metrics"]["dice_mean"]["mean"] == pytest.approx(float(row["dice_mean"]))
    assert ticks[-1] == 1.0
    unregistered = evaluate_split(silent, MethodSpec("identity"), split, tmp_path / "identity")
    overlaps = {name: value for name, value in unregistered["metrics"].items() if name.startswith(("dice", "hd"))}
    assert summary["before"] == unregistered["before"] == overlaps
    assert summary["provenance"] == {**versions(), "device": describe_device(torch.device("cpu"))}


def test_a_cohort_names_what_the_default_came_to(split, hearts, tmp_path):
    volume = Phantoms(shape=(24, 24, 16), spacing=7.0).prepare("phantom-0001", "evaluation")
    near = replace(hearts.samples[0], spacing=(3.0, 3.0))
    told = []
    for sample, name, weights in ((near, "short-axis", "short_axis.safetensors"), (volume, "Gaussian-LNCC", None)):
        pairs = replace(split, samples=(sample,))
        summary = evaluate_split(lambda name: told.append(name) or silent(name), MethodSpec("default"), pairs, tmp_path)
        assert (summary["method"], summary["weights"], told[-1]) == (name, weights, f"{name} on 1 subject")


def test_a_split_of_voxels_far_from_those_of_training_is_told_of(hearts, tmp_path):
    with pytest.warns(InputWarning, match=r"short-axis was trained on voxels of 1.8 x 1.8 mm; these are of 8 x 8 mm"):
        evaluate_split(silent, MethodSpec("short-axis"), hearts, tmp_path)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_cohort_is_measured_on_the_device_that_is_named(split, tmp_path):
    with pytest.raises(BadInput, match="no CUDA"):
        evaluate_split(silent, MethodSpec("TV-L1"), split, tmp_path / "out", "cuda")
    assert not list(tmp_path.iterdir())


def test_the_tables_are_to_the_bit_those_of_a_plain_loop(hearts, tmp_path):
    """One subject after the other, the rows in a list, and nothing kept in between."""
    evaluate_split(silent, QUICK, hearts, tmp_path / "engine")
    find = QUICK.load().resolve(2, (8.0, 8.0)).build(2)
    with use_threads(1):
        rows = [measure_subject(sample, find, hearts.structures) for sample in hearts.samples]
        before = [subject_overlaps(sample, zeros(sample.fixed), hearts.structures) for sample in hearts.samples]
    assert np.isnan(rows[1]["dice_RV"])
    (tmp_path / "loop").mkdir()
    write_rows(rows, tmp_path / "loop" / "metrics.csv")
    header, lines, summary = without_seconds(tmp_path / "engine")
    metrics, unregistered = json_ready(summarise(rows)), json_ready(summarise(before))
    kept = {"method": str(QUICK.load()), "weights": None, "data": "phantom", "split": "test", "folds": "keep",
            "channels": "none", "subjects": 4, "metrics": metrics, "before": unregistered,
            "provenance": summary["provenance"]}  # fmt: skip
    (tmp_path / "loop" / "summary.json").write_text(json.dumps(kept))
    assert (header, lines, summary) == without_seconds(tmp_path / "loop")
    assert list(json.loads((tmp_path / "engine" / "summary.json").read_text())) == list(kept)


def test_a_run_that_is_stopped_goes_on_where_it_was(hearts, tmp_path, monkeypatch):
    evaluate_split(silent, QUICK, hearts, tmp_path / "whole")
    first, said, ticks = count_calls(monkeypatch, stop_at=2), [], []
    with pytest.raises(KeyboardInterrupt):
        evaluate_split(silent, QUICK, hearts, tmp_path / "out")
    assert len(first) == 2
    assert not (tmp_path / "out" / "metrics.csv").exists()
    rest = count_calls(monkeypatch)
    evaluate_split(lambda name: ticks.append, QUICK, hearts, tmp_path / "out", say=said.append)
    assert rest == hearts.names[2:]
    assert (said, ticks[:2]) == (["2 subjects measured already, 2 to do."], [0.5, 0.75])
    assert without_seconds(tmp_path / "out") == without_seconds(tmp_path / "whole")


def test_another_parameter_image_or_kind_of_folds_is_measured_again_and_nothing_else(hearts, tmp_path, monkeypatch):
    evaluate_split(silent, QUICK, hearts, tmp_path)
    measured, said = count_calls(monkeypatch), []
    evaluate_split(silent, QUICK, hearts, tmp_path, say=said.append)
    assert (measured, said) == ([], ["4 subjects measured already, 0 to do."])
    brighter = replace(hearts.samples[2], fixed=hearts.samples[2].fixed * 0.9)
    evaluate_split(silent, QUICK, replace(hearts, samples=(*hearts.samples[:2], brighter)), tmp_path, say=said.append)
    assert (measured, "1 subject to measure again: newer or other inputs." in said) == ([brighter.name], True)
    evaluate_split(silent, replace(QUICK, settings=("levels=1", "warps=3")), hearts, tmp_path, say=said.append)
    assert (len(measured), "warps=2" in said[-1], "warps=3" in said[-1]) == (5, True, True)
    evaluate_split(silent, QUICK, hearts, tmp_path, folds="repair", say=said.append)
    assert (len(measured), "folds keep → repair" in said[-1]) == (9, True)


def test_a_subject_that_fails_is_named_and_left_out_and_tried_again(hearts, tmp_path):
    """One that cannot be read when its turn comes; the others are measured."""
    broken = hearts.names[1]

    def read(name):
        if name == broken:
            raise BadInput("its file is damaged")
        return hearts.read(name)

    spoilt = replace(hearts, samples=StoredSamples(hearts.names, read))
    summary = evaluate_split(silent, QUICK, spoilt, tmp_path)
    assert (summary["subjects"], summary["failed"]) == (3, {broken: "its file is damaged"})
    assert "Traceback" in (tmp_path / "failures" / f"{broken}.txt").read_text()
    assert "failed" not in evaluate_split(silent, QUICK, hearts, tmp_path)
    assert list((tmp_path / "failures").iterdir()) == []


def test_names_that_are_no_names_of_folders_are_kept_in_the_table(hearts, tmp_path):
    odd = replace(hearts.samples[0], name="a/b: c")
    evaluate_split(silent, MethodSpec("identity"), replace(hearts, samples=(odd,)), tmp_path)
    assert without_seconds(tmp_path)[1][0][0] == "a/b: c"
    assert [path.name for path in (tmp_path / "subjects").iterdir()] == ["000001_a_b__c"]


@pytest.mark.release
def test_two_processes_measure_a_pack_by_a_learned_method_as_one_does(tmp_path):
    """To the bit, where the one computes with one thread, too."""
    save_pack({("test", "evaluation"): prepare_split(HEARTS, "test", "evaluation", tmp_path)}, tmp_path / "pack.npz")
    pack = load_pack(tmp_path / "pack.npz")["test", "evaluation"]
    method = parse_method("default", saved(tmp_path)).pin()
    evaluate_split(silent, method, pack, tmp_path / "two", jobs=2)
    with use_threads(1):
        evaluate_split(silent, method, pack, tmp_path / "one")
    assert without_seconds(tmp_path / "one") == without_seconds(tmp_path / "two")
    (tmp_path / "pack.npz").rename(tmp_path / "moved.npz")
    moved, said = load_pack(tmp_path / "moved.npz")["test", "evaluation"], []
    evaluate_split(silent, method, moved, tmp_path / "one", say=said.append)
    assert said == ["4 subjects measured already, 0 to do."]


def test_a_subject_s_score_is_the_mean_of_its_slices(split):
    (sample,) = split.samples
    row = measure_subject(sample, parse("identity").build(2), split.structures)
    pairs = list(zip(sample.fixed_labels[:, 0].numpy(), sample.moving_labels[:, 0].numpy(), strict=True))
    assert row["dice_Myo"] == pytest.approx(np.mean([dice(a == 2, b == 2) for a, b in pairs]))
    distances = [contour_hausdorff(a == 3, b == 3, (1.8, 1.8)) for a, b in pairs]
    assert row["hd_LV"] == pytest.approx(np.mean(distances))
    assert row["dice_mean"] == pytest.approx(np.mean([row[f"dice_{name}"] for name in split.structures]))
    assert " ".join(key for key in row if key != "subject") == COLUMNS


def test_folds_are_kept_unless_they_are_to_be_repaired(split):
    """The table says how much a method folds."""

    def find(I0, I1, spacing):
        return 3 * torch.randn(1, 2, 160, 160, generator=torch.Generator().manual_seed(0))

    sample = split.samples[0]
    kept, repaired = (measure_subject(sample, find, split.structures, folds=folds) for folds in ("keep", "repair"))
    assert kept["folding_strict_percent"] > 50
    assert repaired["folding_strict_percent"] == 0
    assert measure_subject(sample, find, split.structures).keys() == repaired.keys()


def test_the_summary_is_mean_and_deviation_over_those_that_have_a_value():
    found = [{"subject": "a", "x": 1.0, "y": np.nan}, {"subject": "b", "x": 3.0, "y": np.nan}]
    summary = summarise(found)
    assert summary["x"] == {"mean": 2.0, "std": 1.0}
    assert np.isnan(summary["y"]["mean"])


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
