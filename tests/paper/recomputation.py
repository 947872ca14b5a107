"""A table recomputed from the files of its subjects, with nothing but csv, json and NumPy."""

import csv
import re
from pathlib import Path

import numpy as np

from vrnet.paper.results import Results
from vrnet.paper.specs import BUDGETS, TABLES, TIMED_PHANTOMS
from vrnet.paper.tables import TITLES

COLUMNS = {"Dice Avg": "dice_mean", "HD Avg": "hd_mean"} | {title: measure for measure, title in TITLES.items()}
LABELS = {"unregistered": "identity"}


def read_csv(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def identify(table: Path):
    """The name of the table in a file, its data set and its budget."""
    budget = read_note(table, r'budget "([\w-]+)"')
    stem = table.stem.removesuffix(f"_{budget}")
    name = max((known for known in TABLES if f"{stem}_".startswith(f"{known}_")), key=len)
    return name, stem[len(name) + 1 :] or TABLES[name].data, budget


def read_note(table: Path, form: str):
    """The list that a note of this form ends in; empty where there is no such note."""
    said = re.search(form, table.with_suffix(".md").read_text(encoding="utf-8"), flags=re.M)
    return said[1] if said else ""


def find_files(folder: Path, name: str, data: str, budget: str, alphas, left_out):
    """{method: the rows of each seed that all learned methods have}"""
    results = Results(folder, data, BUDGETS[budget])
    methods = [method for method in TABLES[name].methods if method not in left_out]
    found = {method: results.seeds(method, alphas.get(method)) for method in methods}
    count = min((len(entries) for entries in found.values() if entries[0].training), default=1)
    runs = {}
    for row in read_csv(folder / data / "rows.csv"):
        runs.setdefault((row["protocol"], row["run"]), []).append(row)
    return {
        method: [runs[results.protocol(entry), entry.folder_name] for entry in entries[:count]]
        for method, entries in found.items()
    }


def recompute(seeds, measure):
    """Mean and standard deviation over subjects of the mean over seeds."""
    seeds = [{row["subject"]: float(row[measure] or "nan") for row in rows} for rows in seeds]
    means = [np.mean([seed[subject] for seed in seeds]) for subject in seeds[0]]
    return np.nanmean(means), np.nanstd(means)


def compare_table(table: Path, folder: Path) -> int:
    """Hold a table against the files of its subjects; return how many numbers were compared."""
    chosen = [part.split(" for ") for part in read_note(table, r"^α was chosen .*?: (.*)\.$").split("; ") if part]
    alphas = {method: float(alpha) for alpha, methods in chosen for method in methods.split(", ")}
    left_out = read_note(table, r"^Not measured yet, .*?: (.*)\.$").split(", ")
    files = find_files(folder, *identify(table), alphas, left_out)
    rows, compared = read_csv(table), 0
    assert [LABELS.get(row["method"], row["method"]) for row in rows] == list(files)
    for row, seeds in zip(rows, files.values(), strict=True):
        for title, measure in COLUMNS.items():
            if title in row:
                found = float(row[title]), float(row[f"{title} std"])
                np.testing.assert_allclose(found, recompute(seeds, measure), rtol=1e-5, atol=1e-9)
                compared += 1
    return compared + compare_beside(rows, identify(table), folder)


def compare_beside(rows, identified, folder: Path) -> int:
    """Hold the columns of another budget against its files; return how many numbers were compared."""
    _, data, budget = identified
    if BUDGETS[budget].beside is None:
        return 0
    label, other = BUDGETS[budget].beside
    kept = [row for row in read_csv(folder / data / "rows.csv") if (row["protocol"], row["seed"]) == (other.name, "0")]
    compared = 0
    for row in rows:
        for title, measure in COLUMNS.items():
            if row.get(f"{title}, {label}"):
                own = [one for one in kept if one["method"] == row["method"]]
                found = float(row[f"{title}, {label}"]), float(row[f"{title}, {label} std"])
                np.testing.assert_allclose(found, recompute([own], measure), rtol=1e-5, atol=1e-9)
                compared += 1
    return compared


def compare_times(table: Path, folder: Path, phantoms=TIMED_PHANTOMS) -> int:
    """Hold the table of times against the files they were measured into; return how many times were compared."""
    compared = 0
    for row in read_csv(table):
        for d, images in phantoms.items():
            for label, device in (("CPU", "cpu"), ("GPU", "cuda")):
                if row[f"{d}D {label}"]:
                    size = "x".join(map(str, images.shape))
                    times = [time for time in read_csv(folder / "runtime" / f"{device}.csv") if time["shape"] == size]
                    found = [time["seconds"] for time in times if time["method"].startswith(row["method"])]
                    assert row[f"{d}D {label}"] in [f"{float(seconds):.3g}" for seconds in found]
                    compared += 1
    return compared
