"""The tables of results/README.md are what the CSV files beside it say."""

import csv
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

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
