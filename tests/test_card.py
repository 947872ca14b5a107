"""The card of the model in the box, the front page and the comparison with other tools say what results/ holds."""

import csv
import json
import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from vrnet.methods.names import FOLDER, SHORT_AXIS, load_bundled

pytestmark = pytest.mark.release
ROOT = Path(__file__).parents[1]
NOTES = (ROOT / "results" / "notes" / "volumes.md").read_text(encoding="utf-8")
CARD = (FOLDER / "README.md").read_text(encoding="utf-8")


@cache
def summary(data, run):
    """What configs.jsonl says of a run, and mean and standard deviation of its rows."""
    folder = ROOT / "results" / data
    lines = [json.loads(line) for line in (folder / "configs.jsonl").read_text(encoding="utf-8").splitlines()]
    (line,) = (line for line in lines if line["run"] == run)
    with (folder / "rows.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if (row["protocol"], row["run"]) == (line["protocol"], run)]
    measures = [name for name in rows[0] if name not in ("protocol", "run", "method", "alpha", "seed", "subject")]
    columns = {name: [float(row[name]) for row in rows] for name in measures}
    metrics = {name: {"mean": np.mean(values), "std": np.std(values)} for name, values in columns.items()}
    return line["evaluation"] | {"method": line["method"], "metrics": metrics}


SUMMARY = summary("acdc", "short-axis")
METRICS = SUMMARY["metrics"]


def cells(text, name):
    """The cells of the row of that name."""
    row = re.search(rf"^\| {re.escape(name)} \|(.*)\|$", text, flags=re.M)
    return [cell.strip() for cell in row[1].split("|")]


def mean_and_deviation(column, digits):
    value = METRICS[column]
    text = f"{value['mean']:.{digits}f} ({value['std']:.{digits}f})"
    return text.replace("0.", ".") if column.startswith("dice") else text


@pytest.mark.parametrize("name", ["LV", "Myo", "RV", "mean"])
def test_the_card_has_the_figures_that_were_measured(name):
    assert cells(CARD, name) == [mean_and_deviation(f"dice_{name}", 3), mean_and_deviation(f"hd_{name}", 2)]


def test_the_card_tells_of_folding_and_seconds():
    folding, strictly = (METRICS[f"folding{kind}_percent"]["mean"] for kind in ("", "_strict"))
    assert f"Folding: {folding:.2f} % of the voxels by central differences, {strictly:.3f} %" in CARD
    assert f"{METRICS['seconds']['mean']:.2f} s with two threads" in CARD


def whole_stacks(method, column, digits=3):
    """Mean and standard deviation over the stacks."""
    value = summary("stacks", method)["metrics"][column]
    return re.sub(r"\b0\.", ".", f"{value['mean']:.{digits}f}({value['std']:.{digits}f})")


@pytest.mark.parametrize(
    ("method", "name"),
    [("identity", "unregistered"), *((name,) * 2 for name in ("TV-L1", "short-axis", "short-axis+average"))],
)
def test_the_table_of_whole_stacks_is_what_the_rows_say(method, name):
    text = (ROOT / "results" / "notes" / "acdc.md").read_text(encoding="utf-8").split("## Whole stacks")[1]
    dice = [whole_stacks(method, f"dice_{part}") for part in ("LV", "Myo", "RV", "mean")]
    others = [whole_stacks(method, column, digits=2) for column in ("hd_mean", "folding_strict_percent")]
    assert cells(text, name) == [*dice, *others]


def test_the_figures_are_those_of_the_model():
    assert (SUMMARY["method"], SUMMARY["weights"]) == (SHORT_AXIS, load_bundled(SHORT_AXIS).file)
    assert (SUMMARY["data"], SUMMARY["split"], SUMMARY["subjects"]) == ("acdc", "test", 20)
    assert f"{load_bundled(SHORT_AXIS).card.method}: VR-Net" in CARD


def test_the_card_of_hippocampi_has_the_figures_that_were_measured():
    card = (FOLDER / "HIPPOCAMPUS.md").read_text(encoding="utf-8")
    found = summary("hippocampus", "hippocampus")
    assert (found["method"], found["weights"]) == ("hippocampus", load_bundled("hippocampus").file)
    assert (found["data"], found["split"], found["subjects"]) == ("hippocampus", "test", 40)
    assert found["metrics"]["folding_strict_percent"]["mean"] == 0
    for name in ("anterior", "posterior", "mean"):
        dice, distance = (found["metrics"][f"{kind}_{name}"] for kind in ("dice", "hd"))
        expected = [
            f"{dice['mean']:.3f} ({dice['std']:.3f})".replace("0.", "."),
            f"{distance['mean']:.2f} ({distance['std']:.2f})",
        ]
        assert cells(card, name) == expected
    assert cells(card, "mean")[0].replace(" ", " ") in NOTES


def test_the_card_of_the_template_has_the_figures_that_were_measured():
    card = (FOLDER / "HIPPOCAMPUS_TEMPLATE.md").read_text(encoding="utf-8")
    kept, repaired = (summary("hippocampus", f"hippocampus-template{end}") for end in ("", "-repaired"))
    assert (kept["method"], kept["weights"]) == ("hippocampus-template", load_bundled("hippocampus-template").file)
    assert (kept["data"], kept["split"], kept["subjects"]) == ("hippocampus", "test", 40)
    assert repaired["metrics"]["folding_strict_percent"]["mean"] == 0
    assert f"in {kept['metrics']['folding_strict_percent']['mean']:.3f} %" in card
    for name in ("anterior", "posterior", "mean"):
        dice, distance = (kept["metrics"][f"{kind}_{name}"] for kind in ("dice", "hd"))
        expected = [f"{dice['mean']:.3f} ({dice['std']:.3f})".replace("0.", "."),
                    f"{distance['mean']:.2f} ({distance['std']:.2f})"]  # fmt: skip
        assert cells(card, name) == expected
        assert f"{dice['mean']:.3f}" == f"{repaired['metrics'][f'dice_{name}']['mean']:.3f}"
    assert ".782 (.074) and 3.83 (1.18) mm" in NOTES
