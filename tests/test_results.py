"""The tables of results/README.md are what the files beside it say; outside tools have the best parameters of them."""

import csv
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from benchmarks.tune import described, rows_in, score

from vrnet.methods.names import parse

RESULTS = Path(__file__).parents[1] / "results"
COLUMNS = "dice_mean", "hd_mean", "folding_percent", "folding_strict_percent", "end_point_error_mm"
TABLES = "acdc", "hippocampus", "phantom3d"


def printed():
    """{data: {(method, alpha): numbers}}, as the page has them."""
    parts = (RESULTS / "README.md").read_text(encoding="utf-8").split("\n## ")[1:]
    found = {}
    for name, part in zip(TABLES, parts, strict=False):
        rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in part.splitlines() if line[:1] == "|"]
        found[name] = {(row[0], float(row[1])): [float(cell) for cell in row[2:]] for row in rows[2:]}
    return found


@pytest.mark.parametrize("name", TABLES)
def test_the_tables_are_made_of_the_files(name):
    groups = defaultdict(list)
    with (RESULTS / f"{name}.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            groups[row["method"], float(row["alpha"])].append(row)
    assert printed()[name].keys() == groups.keys()
    for key, rows in groups.items():
        seeds, *numbers = printed()[name][key]
        assert seeds == len({row["seed"] for row in rows})
        for column, number, digits in zip(COLUMNS, numbers, (3, 2, 2, 2, 2), strict=False):
            assert number == pytest.approx(np.mean([float(row[column]) for row in rows]), abs=0.51 * 10**-digits)


def measured_settings(data, name):
    """The rows of tuning.csv, by setting."""
    rows = [row for row in rows_in(RESULTS / "tuning.csv") if (row["data"], row["method"]) == (data, name)]
    return {row["setting"]: row for row in rows}


@pytest.mark.parametrize("name", ["FFD", "Demons", "SyN"])
def test_the_parameters_of_outside_tools_are_the_best_of_those_tried_on_hearts(name):
    tried = measured_settings("acdc", name)
    assert max(tried, key=lambda setting: score(tried[setting])) == described(parse(name), 2)


@pytest.mark.parametrize("data", ["hippocampus", "phantom3d"])
@pytest.mark.parametrize("name", ["FFD", "Demons", "SyN"])
def test_the_parameters_of_outside_tools_were_measured_in_3d(name, data):
    assert described(parse(name), 3) in measured_settings(data, name)
