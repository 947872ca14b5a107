import numpy as np
import pytest
from scipy.stats import wilcoxon

from vrnet.paper.budget import BUDGETS
from vrnet.paper.specs import published_values
from vrnet.paper.tables import (
    find_measures,
    holm,
    measure_columns,
    measure_title,
    p_value,
    published_columns,
    significance_columns,
    timed_images,
)

DICE = {"a": [0.7, 0.8, 0.9, 0.75, 0.6, 0.85], "b": [0.72, 0.83, 0.91, 0.74, 0.66, 0.9], "c": [0.1] * 6}
HD = {"a": [9.0, 7.0, 8.0, 5.0, 6.5, 7.0], "b": [8.0, 7.5, 6.0, 4.0, 6.0, 5.5], "c": [1.0, 2.0, np.nan, 3.0, 4.0, 5.5]}
ROWS = {
    name: [{"subject": str(k), "dice_mean": x, "hd_mean": y, "folding_percent": 0.5, "seconds": 1.0}
           for k, (x, y) in enumerate(zip(DICE[name], HD[name], strict=True))]
    for name in DICE
}  # fmt: skip


def test_p_is_that_of_wilcoxons_signed_rank_test_against_the_highest_dice():
    dice, hd = significance_columns(ROWS)
    assert (dice.title, hd.title) == ("p Dice", "p HD")
    assert "b" not in dice.cells
    p = {name: wilcoxon(DICE[name], DICE["b"]).pvalue for name in ("a", "c")}
    assert p["c"] < p["a"]
    assert dice.cells == {"a": f"{p['a']:.1g}", "c": f"{2 * p['c']:.1g}"}  # two tests: Holm's correction
    assert list(hd.cells) == ["a", "c"]


def test_subjects_without_a_value_and_ties_do_not_count_in_p():
    some, others = ([x for k, x in enumerate(HD[name]) if k not in (2, 5)] for name in "cb")
    assert p_value(ROWS["c"], ROWS["b"], "hd_mean") == pytest.approx(wilcoxon(some, others).pvalue)
    assert p_value(ROWS["a"], ROWS["a"], "hd_mean") is None


def test_a_subject_whose_images_come_again_counts_once_in_p():
    some, others = (DICE[name][:-1] for name in "ab")
    assert p_value(ROWS["a"], ROWS["b"], "dice_mean", ("5",)) == pytest.approx(wilcoxon(some, others).pvalue)
    (dice, _), (alone, _) = (
        significance_columns(ROWS, ("5",)),
        significance_columns({name: rows[:-1] for name, rows in ROWS.items()}),
    )
    assert dice.cells == alone.cells != significance_columns(ROWS)[0].cells


def test_holm_rejects_what_its_procedure_rejects():
    """Of n tests the k-th smallest p is compared with level / (n - k + 1), until one fails: for every level."""
    p = {"a": 0.01, "b": 0.04, "c": 0.03, "d": 0.005, "e": 0.5}
    for level in (0.005, 0.01, 0.03, 0.045, 0.06, 0.1, 0.2, 0.6):
        rejected = set()
        for k, name in enumerate(sorted(p, key=p.get)):
            if p[name] > level / (len(p) - k):
                break
            rejected.add(name)
        assert {name for name, corrected in holm(p).items() if corrected <= level} == rejected
    assert list(holm(p)) == list(p)
    assert max(holm(p).values()) <= 1


def test_the_best_is_the_highest_dice_and_the_lowest_distance_and_folds_are_not_ranked():
    dice, hd, folds = measure_columns(ROWS, ("dice_mean", "hd_mean", "folding_percent"))
    assert (dice.best, hd.best, folds.best) == ("b", "c", None)
    assert dice.cells["a"].mean == pytest.approx(np.mean(DICE["a"]))
    assert hd.cells["c"].mean == pytest.approx(15.5 / 5)


def test_all_that_was_measured_is_a_column_but_the_subject_and_its_time():
    assert find_measures(ROWS) == ("dice_mean", "hd_mean", "folding_percent")


@pytest.mark.parametrize(
    ("measure", "title"),
    [("dice_LV", "Dice LV"), ("hd_mean", "HD Avg"), ("folding_percent", "J<0 %"), ("jacobian_gradient", "|∇J|")],
)
def test_measures_are_called_as_in_the_paper(measure, title):
    assert measure_title(measure) == title


def test_a_page_has_four_of_the_published_columns_and_the_file_all():
    known = published_values("acdc")
    measures = (
        "dice_LV",
        "dice_mean",
        "hd_LV",
        "hd_mean",
        "folding_percent",
        "folding_strict_percent",
        "jacobian_gradient",
    )
    columns = published_columns({"acdc": known}, measures)
    shown = [column.title for column in columns if not column.is_csv_only]
    assert shown == [f"{name}, published" for name in ("Dice Avg", "HD Avg", "J<0 %", "|∇J|")]
    assert [column.title for column in columns if column.is_csv_only] == ["Dice LV, published", "HD LV, published"]
    assert columns[1].cells["FFD"] == known["FFD"]["dice_mean"]


def test_what_was_published_on_two_data_sets_says_on_which():
    known = {data: published_values(f"ablation_{data}") for data in ("acdc", "ukbb")}
    columns = published_columns(known, ("dice_mean", "folding_percent"))
    assert [column.title for column in columns] == ["Dice Avg, published on acdc", "Dice Avg, published on ukbb"]


def test_images_that_are_timed_have_the_papers_size_but_quickly():
    assert timed_images(BUDGETS["short"], 2) == ((160, 160), 1.8)
    assert timed_images(BUDGETS["paper"], 3) == ((128, 128, 96), 1.2)
    assert np.prod(timed_images(BUDGETS["quick"], 3)[0]) < 5000
