"""Suspicion ranks failures, then verdicts, then what is unlike the rest."""

import numpy as np
import pytest
from scipy import stats

from vrnet.cohort.results import add_suspicion, robust_z


def test_robust_z_is_the_distance_from_the_median_in_normal_deviations():
    x = np.random.default_rng(0).normal(5, 2, 500)
    expected = (x - np.median(x)) / stats.median_abs_deviation(x, scale="normal")
    assert robust_z(x.tolist()) == pytest.approx(expected, rel=1e-4)


def test_values_that_are_missing_or_all_alike_say_nothing():
    assert robust_z([1.0] * 40).tolist() == [0.0] * 40
    assert robust_z([1.0, None, 5.0]).tolist() == [0.0] * 3
    assert robust_z([*map(float, range(40)), None, "x"])[-2:].tolist() == [0.0, 0.0]


def test_errors_come_before_verdicts_and_these_before_outliers():
    rows = [{"status": "done", "verdict": "good", "dice": 0.8 + 0.001 * k} for k in range(40)]
    rows += [
        {"status": "failed"},
        {"status": "done", "verdict": "failed", "dice": 0.81},
        {"status": "done", "verdict": "look", "dice": 0.81},
        {"status": "done", "verdict": "good", "dice": 0.1},
        {"status": "to do"},
    ]
    add_suspicion(rows, ["dice"])
    order = sorted(range(44), key=lambda k: -rows[k]["suspicion"])
    assert order[:4] == [40, 41, 42, 43]
    assert rows[43]["outlier"] == "dice"
    assert "suspicion" not in rows[44]
    assert not any("outlier" in row for row in rows[:40])


def test_few_subjects_are_ranked_by_a_measure_that_is_told_but_is_no_outlier():
    rows = [{"status": "done", "verdict": "good", "dice": dice} for dice in (0.90, 0.88, 0.60, 0.91)]
    add_suspicion(rows, ["dice"])
    assert max(range(4), key=lambda k: rows[k]["suspicion"]) == 2
    assert [row.get("suspicion_by") for row in rows] == [None, None, "dice", None]
    assert not any("outlier" in row for row in rows)


@pytest.mark.parametrize(
    ("measure", "values", "first"),
    [
        ("dice_after", [0.80, 0.99, 0.79, 0.70, 0.81], 3),  # and not the best, which lies as far out
        ("hausdorff_mm_after", [6.0, 1.0, 6.1, 9.0, 5.9], 3),
        ("mass_g", [100.0, 101.0, 30.0, 99.0, 102.0], 2),  # neither side is worse
    ],
)
def test_of_a_measure_with_a_worse_side_only_that_side_counts(measure, values, first):
    rows = [{"status": "done", "verdict": "good", measure: value} for value in values]
    add_suspicion(rows, [measure])
    assert max(range(5), key=lambda k: rows[k]["suspicion"]) == first


def test_a_measure_in_the_units_of_the_images_ranks_nobody():
    """A scanner whose numbers are a thousand times as large is no worse than the others."""
    rows = [{"status": "done", "verdict": "good", "mae_after": value} for value in (1.0, 1.1, 0.9, 1.0, 1000.0)]
    add_suspicion(rows, ["mae_after"])
    assert {row["suspicion"] for row in rows} == {0.0}


def test_the_only_subject_with_folds_is_the_first():
    rows = [{"status": "done", "verdict": "good", "folding_percent": 0.0} for _ in range(29)]
    rows.append({"status": "done", "verdict": "good", "folding_percent": 40.0})
    add_suspicion(rows, ["folding_percent"])
    assert rows[-1]["outlier"] == "folding_percent"
    assert {row["suspicion"] for row in rows[:-1]} == {0.0}
