"""α of each learned method, chosen on validation subjects alone, from values that all methods try.

OUT/DATA/BUDGET/alphas.csv keeps what was found: one row per method and α. What it has is not trained again."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import cast

from vrnet.errors import BadInput
from vrnet.files import exists, read_rows, write_rows
from vrnet.methods.method import Trainable
from vrnet.methods.names import without_average
from vrnet.paper.results import Entry, Results
from vrnet.paper.study import Study
from vrnet.schema import convert_record
from vrnet.training.run import best_row
from vrnet.training.settings import Training, check_weights

FORM = "columns entry, method, alpha and val_dice"


@dataclass(frozen=True)
class Score:
    """What training with an α came to."""

    entry: str
    """The name of its folder."""
    method: str
    """Its full name."""
    alpha: float
    val_dice: float
    """Dice on validation subjects."""

    def __post_init__(self) -> None:
        check_weights({"alpha": self.alpha})


def choose_alphas(study: Study, names: Sequence[str], alphas: Sequence[float]) -> dict[str, float]:
    """{method: the α of highest Dice on validation}, of those that are trained and have no α of their own."""
    study = replace(study, results=deciding(study.results))
    tried = {
        name: [study.results.entry(without_average(name), alpha=alpha) for alpha in alphas]
        for name in names
        if has_choice(study.results.entry(name))
    }
    found = read_scores(study.results)
    missing = dict.fromkeys(each for group in tried.values() for each in group if each.folder_name not in found)
    if missing:
        others = ", ".join(entry.folder_name for entry in missing)
        study.say(f"α is chosen by training on {study.data}; not trained yet: {others}.")
    for group in study.train(list(missing)):
        found |= {entry.folder_name: score(study.results, entry) for entry in group}
        write_scores(study.results, found)
    return {name: best_alpha(found[entry.folder_name] for entry in group) for name, group in tried.items()}


def deciding(results: Results) -> Results:
    """The results whose trainings decide on α: those of the budget itself, or of the one that it names."""
    return replace(results, budget=results.budget.alphas_of or results.budget)


def tried_by_all(results: Results, names: Sequence[str]) -> tuple[float, ...]:
    """The α, rising, that scores are kept of for each method that has a choice; none where they leave no choice."""
    results = deciding(results)
    scores, choosing = read_scores(results), [name for name in names if has_choice(results.entry(name))]
    found = [
        alpha
        for alpha in sorted({score.alpha for score in scores.values()})
        if all(results.entry(without_average(name), alpha=alpha).folder_name in scores for name in choosing)
    ]
    return tuple(found) if choosing and len(found) > 1 else ()


def best_alpha(scores: Iterable[Score]) -> float:
    """The α of highest Dice; the smallest where several have it."""
    return min(scores, key=lambda score: (-score.val_dice, score.alpha)).alpha


def has_choice(entry: Entry) -> bool:
    """Whether the method is trained with the α that it is given."""
    return entry.training is not None and cast(Trainable, entry.method).loss.alpha is None


def score(results: Results, entry: Entry) -> Score:
    """The score of an entry that is trained."""
    row = best_row(results.validations(entry))
    if "val_dice" not in row:
        raise BadInput(f"the validation subjects of {results.data} have no labels, by which α could be chosen")
    return Score(entry.folder_name, str(entry.method), cast(Training, entry.training).alpha, round(row["val_dice"], 5))


def file_of(results: Results) -> Path:
    """Where the scores are kept."""
    return results.out / results.data / results.budget.name / "alphas.csv"


def read_scores(results: Results) -> dict[str, Score]:
    """{folder name of an entry: its score}; empty where nothing is kept."""
    path = file_of(results)
    rows = read_rows(path, FORM) if exists(path) else []
    try:
        numbers = [{key: float(row[key]) for key in ("alpha", "val_dice")} for row in rows]
        scores = [convert_record(row | both, Score) for row, both in zip(rows, numbers, strict=True)]
    except (KeyError, ValueError) as error:
        raise BadInput(f"{path} is damaged: restore it, or remove it, and α is chosen again") from error
    return {score.entry: score for score in scores}


def best_alphas(results: Results) -> dict[str, float]:
    """{full name of a method: the α of highest Dice}, of those whose scores are kept."""
    scores = read_scores(deciding(results)).values()
    return {name: best_alpha(each for each in scores if each.method == name) for name in {s.method for s in scores}}


def write_scores(results: Results, found: dict[str, Score]) -> None:
    """Keep the scores, in the order of their names."""
    write_rows([asdict(found[name]) for name in sorted(found)], file_of(results))
