"""Whatever the width of a terminal, no number of a table is cut."""

import re

import pytest
from rich.console import Console

from vrnet.app.console import FittingTable, metrics_table, summary_table

NUMBERS = [f"{k}.{k}{k}{k}" for k in range(1, 9)]
METRICS = {
    "method": "Gaussian-LNCC",
    "seconds": 12.3,
    "slice_by_slice": True,
    "similarity": {"mae_before": 1234.0, "mae_after": 56.7, "ncc_before": 0.912, "ncc_after": 0.987},
    "folding_percent": 0.123,
    "folding_strict_percent": 0.00012,
    "dice": {when: {"17": x, "4035": x, "mean": x} for when, x in (("before", 0.511), ("after", 0.877))},
    "surface_hausdorff_mm": {"before": {"17": 23.4, "mean": 23.4}, "after": {"17": 5.67, "mean": 5.67}},
}


def printed(table, width):
    console = Console(width=width, record=True, file=open("/dev/null", "w"))  # noqa: SIM115, PTH123
    console.print(table)
    return console.export_text()


def numbers(text):
    return re.findall(r"(?<![\w.])-?\d+\.?\d*(?:e-?\d+)?(?![\w.])", text)


@pytest.mark.parametrize("width", [20, 30, 40, 60, 80, 200])
@pytest.mark.parametrize("columns", [1, 2, 4, 8])
def test_every_number_and_every_name_is_whole_at_any_width(width, columns):
    table = FittingTable.of("a title of several words", "", *(f"c{k}" for k in range(columns)))
    table.add_row("a_name_without_any_blank_in_it", *NUMBERS[:columns])
    text = printed(table, width)
    assert all(number in text for number in NUMBERS[:columns])
    assert "…" not in text
    letters = re.sub(r"[^a-z_]", "", "".join(line.split("│")[1] if "│" in line else line for line in text.splitlines()))
    assert "a_name_without_any_blank_in_it" in letters
    assert max(map(len, text.splitlines())) <= width


@pytest.mark.parametrize("width", [44, 80])
def test_a_value_of_several_words_stays_in_one_line(width):
    table = FittingTable.of("", "", "value")
    table.add_row("Peak strain, radial", "-19.1 % (frame 4, 308 ms)")
    assert "-19.1 % (frame 4, 308 ms)" in printed(table, width)


@pytest.mark.parametrize("width", [40, 80])
def test_the_table_of_a_pair_shows_what_a_wide_one_shows(width):
    narrow, wide = (numbers(printed(metrics_table(METRICS), columns)) for columns in (width, 200))
    assert sorted(narrow) == sorted(wide)


@pytest.mark.parametrize("width", [40, 80])
def test_the_table_of_a_data_set_shows_what_a_wide_one_shows(width):
    names = ["dice_LV", "dice_mean", "folding_strict_percent", "jacobian_gradient", "seconds"]
    summary = {
        "method": "short-axis", "subjects": 20, "data": "acdc", "split": "test",
        "before": {name: {"mean": 0.123, "std": 0.456} for name in names[:2]},
        "metrics": {name: {"mean": 123.0, "std": 0.00012} for name in names},
    }  # fmt: skip
    text = printed(summary_table(summary), width)
    assert sorted(numbers(text)) == sorted(numbers(printed(summary_table(summary), 200)))
    assert "…" not in text


def test_the_model_in_the_box_is_called_by_its_name_with_what_it_is_in_brackets():
    from vrnet.methods.bundled import SHORT_AXIS, load_bundled

    text = printed(metrics_table(METRICS | {"method": "short-axis", "weights": "short_axis.safetensors"}), 100)
    assert f"short-axis ({load_bundled(SHORT_AXIS).card.method})" in text
    mine = printed(metrics_table(METRICS | {"method": "R-L1-3x2", "weights": "mine.safetensors"}), 100)
    assert "R-L1-3x2 (mine.safetensors)" in mine
