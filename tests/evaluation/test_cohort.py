import csv
from dataclasses import replace

import numpy as np
import pytest
import torch

from vrnet import parse
from vrnet.data.phantoms import Phantoms
from vrnet.evaluation.metrics import contour_hausdorff, dice
from vrnet.evaluation.split import measure_subject, summarise
from vrnet.files import write_rows

COLUMNS = (
    "dice_LV dice_Myo dice_RV dice_mean hd_LV hd_Myo hd_RV hd_mean folding_percent folding_strict_percent "
    "jacobian_gradient seconds"
)


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
