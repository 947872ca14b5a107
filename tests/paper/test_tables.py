import csv
import re
from dataclasses import replace
from io import StringIO

import numpy as np
import pytest
import torch
from benchmarks import runtime
from scipy.stats import wilcoxon

from tests.paper.fake_results import write_result
from tests.phantoms import phantom
from vrnet.errors import BadInput, InputWarning
from vrnet.files import read_rows, write_rows
from vrnet.methods.names import parse
from vrnet.paper import tables
from vrnet.paper.specs import BUDGETS, TABLES, Value, published_values
from vrnet.paper.tables import (
    Column,
    Table,
    build_runtime_table,
    build_table,
    difference_columns,
    measure_columns,
    seconds_per_pair,
)
from vrnet.provenance import versions

NAMES = TABLES["initialisation"].methods
SCORES = {
    "R-L2-6x1": [(0.7, 9.0), (0.8, 8.0), (0.9, 7.0)],
    "R-L2-6x1-noise": [(0.6, 5.0), (0.7, 6.0), (0.8, 4.0)],
    "R-L2-6x1-zeros": [(0.5, 9.5), (0.6, 9.5), (0.7, 8.0)],
}


@pytest.fixture
def known(study):
    """A study with the scores of SCORES."""
    made = study()
    for name, scores in SCORES.items():
        write_result(made.results, made.results.entry(name), scores)
    return made


def printed(table, title):
    """The cells of a column as a page has them, from top to bottom."""
    head, *rows = table.lines()
    return [row[head.index(title)].strip("*") for row in rows]


def test_a_table_is_the_means_over_subjects_with_the_best_in_bold_beside_the_published(known):
    table = build_table("initialisation", known)
    assert tuple(table.methods) == NAMES
    assert [column.title for column in table.columns] == [
        "Dice Avg", "HD Avg", "J<0 %", "Dice Avg, published on ukbb", "HD Avg, published on ukbb",
    ]  # fmt: skip
    assert printed(table, "Dice Avg") == [".800(.082)", ".700(.082)", ".600(.082)"]
    assert [value.mean for value in table.columns[1].cells.values()] == pytest.approx([8.0, 5.0, 9.0])
    assert [column.best for column in table.columns] == [NAMES[0], NAMES[1], None, None, None]
    assert "| R-L2-6x1 | **.800(.082)** | 8.00(.82) |" in table.markdown()
    assert printed(table, "Dice Avg, published on ukbb") == [".804(.043)", ".740(.048)", ".744(.051)"]


def test_a_table_has_the_mean_over_the_seeds_that_all_methods_have_and_says_so(known):
    write_result(known.results, known.results.entry(NAMES[0], seed=1), [(0.5, 9.0), (0.6, 8.0), (0.7, 7.0)])
    with pytest.warns(
        InputWarning, match=f"of 1 seed, which all .*; of {NAMES[0]} there are up to 2. `seeds=2` trains"
    ):
        table = build_table("initialisation", known)
    assert table.columns[0].cells[NAMES[0]].mean == pytest.approx(0.8)
    assert "1 seed (mean over seeds)" in table.notes[1]
    for name in NAMES[1:]:
        write_result(known.results, known.results.entry(name, seed=1), SCORES[name])
    table = build_table("initialisation", known)
    assert [value.mean for value in table.columns[0].cells.values()] == pytest.approx([0.7, 0.7, 0.6])
    assert "2 seeds (mean over seeds)" in table.notes[1]


def test_a_table_of_what_is_measured_names_the_other_rows_and_measures_nothing(study, monkeypatch):
    monkeypatch.setattr("vrnet.paper.results.Study._measure", None)
    monkeypatch.setitem(TABLES, "initialisation", replace(TABLES["initialisation"], methods=("identity", *NAMES)))
    made = study()
    for name in NAMES[1:]:
        write_result(made.results, made.results.entry(name), SCORES[name])
    write_result(made.results, made.results.entry(NAMES[1], seed=1), SCORES[NAMES[1]])
    with pytest.warns(InputWarning, match="up to 2"):
        table = build_table("initialisation", made, measured_only=True)
    assert tuple(table.methods) == NAMES[1:]
    assert table.notes[-1] == 'Not measured yet, budget "quick": identity, R-L2-6x1.'
    table = build_table("initialisation", made, seeds=2, measured_only=True)
    assert tuple(table.methods) == NAMES[1:2]
    assert "2 seeds (mean over seeds)" in table.notes[1]


def test_real_hearts_in_3d_stand_beside_what_was_published_of_private_ones(study):
    made = study(d=3)
    for name in TABLES["acdc3d"].methods:
        write_result(made.results, made.results.entry(name), SCORES["R-L2-6x1"])
    table = build_table("acdc3d", made)
    cells = printed(table, "Dice Avg, published on cmr3d")
    published = {name: cell for name, cell in zip(table.methods, cells, strict=True) if cell != "–"}
    assert (published["FFD"], published["U-L1-2x1"]) == (".739(.047)", ".728(.031)")
    assert len(published) == 11


def test_notes_tell_steps_seeds_hardware_and_versions(known):
    for name in NAMES:
        write_result(known.results, known.results.entry(name, seed=1), SCORES[name], hardware="arm CPU, 1 thread")
    subjects, trained, computed = build_table("initialisation", known).notes
    assert subjects == "3 test subjects of phantom; mean (standard deviation over subjects)."
    steps = BUDGETS["quick"].training["phantom"].steps
    assert trained.startswith(f'Learned methods, budget "quick": {steps} steps of 1 pair, rate 0.001, α 0.05, width 2')
    assert computed == "Computed on a machine (torch 2.11); arm CPU, 1 thread (torch 2.11); vrnet 0.1.0."


@pytest.mark.parametrize("weight", ["labels_weight", "batch_dice"])
def test_notes_tell_of_labels_in_training_and_of_a_loss_that_is_not_the_methods_own(weight, study, steps):
    quick, changes = steps(2), {weight: 1.0, "smoothness": "Bending", "consistency": 0.03}
    made = study(replace(quick, training={name: replace(how, **changes) for name, how in quick.training.items()}))
    for name in NAMES:
        write_result(made.results, made.results.entry(name), SCORES[name])
    notes = build_table("initialisation", made).notes
    assert notes[1].endswith("1 seed (mean over seeds); labels in training.")
    assert notes[2] == "Loss: the method's own + α Bending + 0.03 inverse consistency."


def test_a_whole_table_has_every_measure_p_times_and_what_was_published(study, monkeypatch):
    made = study()
    monkeypatch.setattr(tables, "seconds_per_pair", lambda *words: {"cpu": "0.123", "cuda": None}[words[4]])
    methods = TABLES["acdc"].methods
    for k, name in enumerate(methods):
        write_result(made.results, made.results.entry(name), [(0.7 + 0.01 * k, 9.0), (0.8, 8.0 - 0.1 * k)])
    table = build_table("acdc", made)
    titles = [column.title for column in table.columns]
    assert titles[:17] == [
        "Dice LV", "Dice Myo", "Dice RV", "Dice Avg", "HD LV", "HD Myo", "HD RV", "HD Avg", "J<0 %", "|∇J|",
        "Δ Dice", "p Dice", "Δ HD", "p HD", "M params", "s CPU", "s GPU",
    ]  # fmt: skip
    assert [column.best for column in table.columns[:17]] == [methods[-1]] * 8 + [None] * 9
    assert printed(table, "method")[0] == "unregistered"
    assert printed(table, "s CPU") == ["–", *["0.123"] * (len(methods) - 1)]
    assert set(printed(table, "s GPU")) == {"–"}
    shown = [column.title for column in table.columns if "published" in column.title and not column.is_csv_only]
    assert shown == [f"{kind}, published" for kind in ("Dice Avg", "HD Avg", "J<0 %")]
    assert sum("published" in title for title in titles) == 9
    assert (
        table.columns[titles.index("Dice Avg, published")].cells["FFD"] == published_values("acdc")["FFD"]["dice_mean"]
    )
    assert "Wilcoxon" in table.notes[-1]
    assert "α 0.02, 0.05" in table.notes[1]
    changed = "FFD(spacing=40.0,levels=1,iterations=5), Demons(iterations=(5,)), SyN(iterations=(5,))"
    assert table.notes[2] == f"Parameters other than the tuned ones: {changed}."


DICE = {"a": [0.7, 0.8, 0.9, 0.75, 0.6, 0.85], "b": [0.72, 0.83, 0.91, 0.74, 0.66, 0.9], "c": [0.1] * 6}
HD = {"a": [9.0, 7.0, 8.0, 5.0, 6.5, 7.0], "b": [8.0, 7.5, 6.0, 4.0, 6.0, 5.5], "c": [1.0, 2.0, np.nan, 3.0, 4.0, 5.5]}
ROWS = {
    name: [{"subject": str(k), "dice_mean": x, "hd_mean": y, "folding_percent": 0.5, "seconds": 1.0}
           for k, (x, y) in enumerate(zip(DICE[name], HD[name], strict=True))]
    for name in DICE
}  # fmt: skip


def test_each_method_is_compared_with_the_reference_and_p_is_corrected():
    dice, p_dice, hd, p_hd = difference_columns(ROWS, "b", "phantom")
    assert [column.title for column in (dice, p_dice, hd, p_hd)] == ["Δ Dice", "p Dice", "Δ HD", "p HD"]
    p = {name: wilcoxon(DICE[name], DICE["b"]).pvalue for name in ("a", "c")}
    assert p_dice.cells == {"a": f"{p['a']:.1g}", "c": f"{2 * p['c']:.1g}"}  # two tests: Holm's correction
    mean, low, high = map(float, re.findall(r"[+-]\d?\.\d+", dice.cells["a"]))
    assert mean == pytest.approx(np.mean(np.subtract(DICE["a"], DICE["b"])), abs=5e-4)
    assert low < mean < high < 0
    assert set(hd.cells) == set(p_hd.cells) == {"a", "c"}


def test_methods_within_the_margins_are_marked_as_equivalent():
    close = [row | {"dice_mean": row["dice_mean"] + 0.001} for row in ROWS["a"]]
    dice, _, hd, _ = difference_columns({"a": ROWS["a"], "close": close}, "a", "phantom")
    assert dice.cells == {"close": "+.001 [+.001, +.001] ="}
    assert hd.cells["close"].endswith(" =")


def test_without_its_reference_a_table_compares_nothing():
    assert difference_columns(ROWS, "another", "phantom") == []


def test_the_best_is_the_highest_dice_and_the_lowest_distance_and_folds_are_not_ranked():
    dice, hd, folds = measure_columns(ROWS, ("dice_mean", "hd_mean", "folding_percent"))
    assert (dice.best, hd.best, folds.best) == ("b", "c", None)
    assert dice.cells["a"].mean == pytest.approx(np.mean(DICE["a"]))
    assert hd.cells["c"].mean == pytest.approx(15.5 / 5)


FIRST, SECOND = "a_b", "A|B"
COLUMNS = {
    "Dice Avg": (Value(0.8734567, 0.05, 3), Value(0.9, 0.1, 3)),
    "J<0 %": (Value(0.0, 0.0, 2), Value(12.5, 1.0, 2)),
    "|∇J|": (Value(0.1, 0.02, 3), Value(0.2, 0.03, 3)),
    "s CPU": ("0.25", None),
    "HD LV, published": (Value(5.0, None, 2), None),
}
TABLE = Table(
    "Small",
    [FIRST, SECOND],
    [
        Column(
            title,
            {FIRST: first, SECOND: second},
            best=SECOND if title == "Dice Avg" else None,
            is_csv_only=title == "HD LV, published",
        )
        for title, (first, second) in COLUMNS.items()
    ],
    ["Computed on 100 % of it."],
)


def test_markdown_is_a_table_with_the_best_in_bold_and_a_note_below():
    assert TABLE.markdown() == (
        "**Small**\n\n"
        "| method | Dice Avg | J<0 % | \\|∇J\\| | s CPU |\n"
        "| --- | ---: | ---: | ---: | ---: |\n"
        "| a_b | .873(.050) | .00(.00) | .100(.020) | 0.25 |\n"
        "| A\\|B | **.900(.100)** | 12.50(1.00) | .200(.030) | – |\n\n"
        "Computed on 100 % of it.\n"
    )


def test_csv_has_all_columns_as_numbers_and_deviations_in_columns_of_their_own():
    rows = list(csv.DictReader(StringIO(TABLE.comma_separated())))
    assert list(rows[0]) == [
        "method", "Dice Avg", "Dice Avg std", "J<0 %", "J<0 % std", "|∇J|", "|∇J| std", "s CPU", "HD LV, published",
    ]  # fmt: skip
    assert float(rows[0]["Dice Avg"]) == pytest.approx(0.8734567, abs=1e-6)
    assert float(rows[0]["Dice Avg std"]) == 0.05
    assert [row["s CPU"] for row in rows] == ["0.25", ""]
    assert [row["HD LV, published"] for row in rows] == ["5", ""]
    assert [row["method"] for row in rows] == ["a_b", "A|B"]


QUICK = BUDGETS["quick"]
"""Its phantoms of 48x48 pixels are timed once."""


def test_a_time_is_measured_once_then_read(tmp_path, monkeypatch):
    timed = []
    monkeypatch.setattr(runtime, "measure_seconds", lambda *words: timed.append(words) or 2 / 3)
    for _ in range(2):
        runtime.measure_all(tmp_path, QUICK, "cpu", 0.0)
    rows = read_rows(tmp_path / "runtime" / "cpu.csv", "times")
    assert len({(row["method"], row["shape"]) for row in rows}) == len(rows) == len(timed)
    assert rows[0]["torch"] == versions()["torch"]
    assert seconds_per_pair(tmp_path, QUICK, QUICK.method("VoxelMorph", 2), 2, "cpu") == "0.667"
    assert seconds_per_pair(tmp_path, QUICK, parse("TV-L1"), 2, "cuda") is None

    table = build_runtime_table(tmp_path, QUICK)
    rows = {row[0]: row[1:] for row in table.lines()}
    assert rows["FFD"] == ["0.667", "–", "0.667", "–", "5.15", "–", "141.38", "–"]
    assert rows["7xRC-Net"][2] == "–"  # left out in 3D, as in the paper
    assert table.notes[0] == "One pair at a time: 48x48 and 16x16x16."
    assert table.notes[1].startswith("Parameters other than the tuned ones: FFD(spacing=40.0,levels=1,iterations=5), ")


def test_times_that_are_damaged_or_absent_are_told_with_the_benchmark_that_measures(tmp_path):
    with pytest.raises(BadInput, match=r"nothing is timed in .*: run benchmarks/runtime\.py"):
        build_runtime_table(tmp_path, QUICK)
    write_rows([{"method": "TV-L1", "shape": "48x48", "seconds": "x"}], tmp_path / "runtime" / "cpu.csv")
    with pytest.raises(BadInput, match=r"cpu\.csv is not as benchmarks/runtime\.py writes it"):
        seconds_per_pair(tmp_path, QUICK, parse("TV-L1"), 2, "cpu")


@pytest.mark.parametrize(("timing_seconds", "pairs"), [(0.0, 1), (2.5, 3), (1e9, runtime.MAX_TIMED_PAIRS)])
def test_a_time_is_the_mean_over_pairs_after_one_to_warm_up(timing_seconds, pairs, monkeypatch):
    clock, calls = [0.0], []

    def find(*given):
        calls.append(given)
        clock[0] += 100.0 if len(calls) == 1 else 1.0

    method = parse("TV-L1")
    monkeypatch.setattr(type(method), "build", lambda *words: find)
    monkeypatch.setattr(runtime, "perf_counter", lambda: clock[0])
    pair = phantom(7, (16, 16), 9.0)
    assert runtime.measure_seconds(method, pair, torch.device("cpu"), timing_seconds) == pytest.approx(1.0)
    assert len(calls) == 1 + pairs
    fixed, moving, spacing = calls[-1]
    assert (fixed is pair.fixed, moving is pair.moving, spacing) == (True, True, (9.0, 9.0))


def test_a_network_is_timed_in_use():
    assert 0 < runtime.measure_seconds(parse("VoxelMorph-w2"), phantom(7, (16, 16), 9.0), torch.device("cpu"), 0.0) < 60
