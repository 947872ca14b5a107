"""A table recomputed from the files of its subjects, with nothing but csv, json and NumPy."""

import csv
import json
import re
from pathlib import Path

import numpy as np

from vrnet.paper.budget import BUDGETS, SHAPES
from vrnet.paper.columns import NAMES
from vrnet.paper.study import Study
from vrnet.paper.tables import TABLES

COLUMNS = {"Dice Avg": "dice_mean", "HD Avg": "hd_mean"} | {title: kind for kind, title in NAMES.items()}
LABELS = {"unregistered": "identity"}


def rows_of(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def told(table: Path):
    """The table that a file is named after, its data and its budget."""
    budget = re.search(r'budget "(\w+)"', table.with_suffix(".md").read_text(encoding="utf-8"))[1]
    name, _, data = table.stem.removesuffix("_quick").partition("_")
    return name, data or TABLES[name].data, budget


def places(results: Path, name: str, data: str, budget: str):
    """{method: the metrics.csv of each seed that all learned methods have}"""
    study = Study(results, data, BUDGETS[budget], print, print, print)
    found = {method: study.seeds(method) for method in TABLES[name].methods}
    count = min(len(entries) for entries in found.values() if entries[0].training)
    return {
        method: [study.folder(entry) / "metrics.csv" for entry in entries[:count]] for method, entries in found.items()
    }


def recomputed(paths, kind):
    """Mean and standard deviation over subjects of the mean over seeds."""
    seeds = [{row["subject"]: float(row[kind] or "nan") for row in rows_of(path)} for path in paths]
    means = [np.mean([seed[subject] for seed in seeds]) for subject in seeds[0]]
    return np.nanmean(means), np.nanstd(means)


def compare(table: Path, results: Path) -> int:
    """Hold a table against the files of its subjects; how many numbers were."""
    files, rows, held = places(results, *told(table)), rows_of(table), 0
    assert [LABELS.get(row["method"], row["method"]) for row in rows] == list(files)
    for row, paths in zip(rows, files.values(), strict=True):
        for title, kind in COLUMNS.items():
            if title in row:
                found = float(row[title]), float(row[f"{title} std"])
                np.testing.assert_allclose(found, recomputed(paths, kind), rtol=1e-5, atol=1e-9, err_msg=str(paths))
                held += 1
    return held


def compare_times(table: Path, results: Path, shapes=SHAPES) -> int:
    """Hold the table of times against the files they were measured into; how many were."""
    held = 0
    for row in rows_of(table):
        for d, shape in shapes.items():
            for label, device in (("CPU", "cpu"), ("GPU", "cuda")):
                places = list((results / "runtime" / device).glob(f"{row['method']}*_{'x'.join(map(str, shape))}.json"))
                if row[f"{d}D {label}"]:
                    found = [json.loads(place.read_text())["seconds"] for place in places]
                    assert row[f"{d}D {label}"] in [f"{seconds:.3g}" for seconds in found]
                    held += 1
    return held
