"""α of each learned method, chosen on validation subjects alone, from values that all methods try.

OUT/DATA/BUDGET/alphas.csv keeps what was found: one row per method and α. What it has is not trained again."""

from collections.abc import Sequence
from pathlib import Path
from typing import cast

from vrnet.errors import BadInput
from vrnet.files import exists, read_rows, write_rows
from vrnet.methods.method import Trainable
from vrnet.methods.names import without_average
from vrnet.paper.results import Entry, Results
from vrnet.paper.study import NAMED_AT_MOST, Study
from vrnet.training.run import best_row
from vrnet.wording import first_of

FORM = "columns entry, method, alpha and val_dice"


def choose_alphas(study: Study, names: Sequence[str], alphas: Sequence[float]) -> dict[str, float]:
    """{method: the α of highest Dice on validation}, of those that are trained and have no α of their own."""
    tried = {
        name: [study.results.entry(without_average(name), alpha=alpha) for alpha in alphas]
        for name in names
        if has_choice(study.results.entry(name))
    }
    found = read_scores(study.results)
    missing = [entry for group in tried.values() for entry in group if entry.folder_name not in found]
    if missing:
        others = first_of([entry.folder_name for entry in missing], NAMED_AT_MOST)
        study.say(f"α is chosen by training on {study.data}; not trained yet: {others}.")
    for group in study.train(missing):
        found |= {entry.folder_name: score(study.results, entry) for entry in group}
        write_scores(study.results, found)
    return {
        name: alphas[max(range(len(group)), key=lambda k: float(found[group[k].folder_name]["val_dice"]))]
        for name, group in tried.items()
    }


def has_choice(entry: Entry) -> bool:
    """Whether the method is trained with the α that it is given."""
    return entry.training is not None and cast(Trainable, entry.method).loss.alpha is None


def score(results: Results, entry: Entry) -> dict[str, str]:
    """The row of an entry that is trained."""
    row = best_row(results.validations(entry))
    if "val_dice" not in row:
        raise BadInput(f"the validation subjects of {results.data} have no labels, by which α could be chosen")
    alpha = entry.training.alpha if entry.training else 0.0
    return {
        "entry": entry.folder_name,
        "method": str(entry.method),
        "alpha": f"{alpha:g}",
        "val_dice": f"{row['val_dice']:.5f}",
    }


def file_of(results: Results) -> Path:
    """Where the scores are kept."""
    return results.out / results.data / results.budget.name / "alphas.csv"


def read_scores(results: Results) -> dict[str, dict[str, str]]:
    """{folder name of an entry: its row}; empty where nothing is kept."""
    path = file_of(results)
    return {row["entry"]: row for row in read_rows(path, FORM)} if exists(path) else {}


def best_alphas(results: Results) -> dict[str, float]:
    """{full name of a method: the α of highest Dice}, of those whose scores are kept."""
    ascending = sorted(read_scores(results).values(), key=lambda row: float(row["val_dice"]))
    return {row["method"]: float(row["alpha"]) for row in ascending}


def write_scores(results: Results, found: dict[str, dict[str, str]]) -> None:
    """Keep the rows, in the order of their names."""
    write_rows([found[name] for name in sorted(found)], file_of(results))
