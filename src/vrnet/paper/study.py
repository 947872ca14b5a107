"""A study of many methods on one data set: those that have no results yet are trained and measured."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, cast

from vrnet.cohort.results import CohortFolder
from vrnet.data.prepared import PreparedSplit
from vrnet.data.protocols import Purpose
from vrnet.devices import describe_device, find_device
from vrnet.errors import BadInput, Stage
from vrnet.evaluation.split import evaluate_split
from vrnet.files import Row, exists, read_rows, write_json, write_rows
from vrnet.methods.method import Method, Trainable, without_flips
from vrnet.methods.names import MethodSpec, missing_package, parse_method, without_average
from vrnet.paper.results import RUN, SCORES, Entry, Results, method_settings
from vrnet.provenance import how_to_install, versions
from vrnet.training.fit import check_lightning
from vrnet.training.run import CHECKPOINT, CONFIG, WEIGHTS, best_row
from vrnet.training.settings import Training

PrepareSplit = Callable[[str, Purpose], PreparedSplit]
Say = Callable[[str], None]


@dataclass(frozen=True)
class Study:
    """Results, the images that they are measured on, and where missing ones are computed."""

    results: Results
    split: PrepareSplit
    stage: Stage
    say: Say
    device: str = "auto"
    jobs: int = 1
    """How many subjects are measured at the same time."""

    @property
    def data(self) -> str:
        return self.results.data

    @property
    def d(self) -> int:
        return self.results.d

    @cached_property
    def test(self) -> PreparedSplit:
        return self.split("test", "evaluation")

    @cached_property
    def training_splits(self) -> tuple[PreparedSplit, PreparedSplit]:
        """The subjects to train on, and those to validate on."""
        purpose = self.results.budget.trained_as.get(self.data, "training")
        return self.split("train", purpose), self.split("val", "evaluation")

    def complete(self, entries: Sequence[Entry]) -> None:
        """Measure the entries that have no results; learned ones are trained first, and come last.

        BadInput at once, not after hours, where results are of other subjects or settings, a package is missing, or
        there is nothing to train on."""
        entries = list(dict.fromkeys(entries))
        for entry in entries:
            self.results.check_settings(entry)
        missing = [entry for entry in entries if not self.results.has(entry)]
        if not missing:
            return
        done, others = len(entries) - len(missing), ", ".join(entry.folder_name for entry in missing)
        self.say(f"{done} of {len(entries)} on {self.data} are measured already; not yet: {others}.")
        for entry in entries:
            if self.results.has(entry) and self.results.run(entry).config["subjects"] != self.test.names:
                folder = self.results.folder(entry)
                raise BadInput(f"{folder} was measured on other subjects: remove it, or choose another `out`")
        for entry in missing:
            if entry.is_averaged and entry.training is not None and not entry.training.mirrors:
                raise without_flips(entry.method)
            if package := missing_package(entry.method):
                install = how_to_install("baselines")
                raise BadInput(f"{entry.method} needs {package}, which is not installed: {install}")
        if self._untrained(missing):
            check_lightning()
            _ = self.training_splits
        for entry in missing:
            if entry.training is None:
                self._measure(entry)
        for entry in self.train(missing):
            self._measure(entry)

    def methods(self, entries: Sequence[Entry]) -> list[Method]:
        """The methods, ready to register; learned ones are trained if their weights are not there."""
        list(self.train(entries))
        return [self._choose(entry).load() for entry in entries]

    def train(self, entries: Sequence[Entry]) -> Iterator[Entry]:
        """Train the learned ones of the entries that have no weights; give each as soon as it is trained."""
        from vrnet.training.fit import fit

        for entry in entries:
            self.results.check_settings(entry)
        untrained = self._untrained(entries)
        if lost := [entry.folder_name for entry in untrained if self.results.has(entry)]:
            self.say(
                f"Measured, but without the weights ({RUN}/{WEIGHTS}) that are needed now: {', '.join(lost)}. They are "
                "trained again; what was measured stays."
            )
        done = 0
        for entry in (entry for entry in entries if entry.training is not None):
            plain = replace(entry, is_averaged=False)
            if plain in untrained and not self.results.is_trained(plain):
                (train, val), folder = self.training_splits, self.results.run_folder(entry)
                tick = self.stage(f"training on {self.data} ({done} of {len(untrained)} done): {entry.method}")
                result = fit(
                    cast(Trainable, entry.method), train if entry.subjects is None else train.spread(entry.subjects),
                    val, cast(Training, entry.training), folder, device=self.device, resume=True,
                    watch=lambda status, tick=tick: tick(status.step / status.steps),  # type: ignore[misc]
                )  # fmt: skip
                if not result.is_finished:
                    raise KeyboardInterrupt
                (folder / CHECKPOINT).unlink()
                done += 1
            yield entry

    def _untrained(self, entries: Sequence[Entry]) -> list[Entry]:
        """What is to be trained for the entries, each once: an averaged one needs the weights of that which is not."""
        learned = dict.fromkeys(replace(entry, is_averaged=False) for entry in entries if entry.training is not None)
        return [entry for entry in learned if not self.results.is_trained(entry)]

    def _choose(self, entry: Entry) -> MethodSpec:
        """The method by its name, or by the weights of its training."""
        if entry.training is None:
            return parse_method(str(entry.method), average=entry.is_averaged).pin()
        return parse_method("default", self.results.run_folder(entry) / WEIGHTS, average=entry.is_averaged).pin()

    def _measure(self, entry: Entry) -> None:
        """Measure the method on every test subject, and write what the numbers depend on last: then it is measured."""
        folder, device = self.results.folder(entry), "cpu" if entry.training is None else self.device
        choice = self._choose(entry)
        summary = evaluate_split(self.stage, choice, self.test, folder, device, jobs=self.jobs, say=self.say)
        if "failed" in summary:
            reasons = "; ".join(f"{name}: {reason}" for name, reason in summary["failed"].items())
            raise BadInput(f"{entry.name} cannot do some subjects ({reasons}): mend that, then start again")
        model = choice.load().model
        config: dict[str, Any] = {
            "method": entry.name, "data": self.data, "split": self.test.split, "subjects": self.test.names,
            "settings": method_settings(entry.method, self.d),
            "hardware": describe_device(find_device(device)), "versions": versions(),
        }  # fmt: skip
        if entry.training is not None and model is not None:
            config |= {
                "parameters": sum(parameter.numel() for parameter in model.parameters()),
                "weights_sha256": choice.weights_sha256,
                "training": asdict(entry.training),
                "training_subjects": entry.subjects,
                "validation": best_row(self.results.validations(entry)),
            }
        write_json(config, folder / CONFIG)
        CohortFolder(folder).remove()
        dice, hd = (summary["metrics"][name]["mean"] for name in ("dice_mean", "hd_mean"))
        self.say(f"{entry.folder_name}: Dice {dice:.3f}, Hausdorff {hd:.2f} mm")


# α of each learned method, chosen on validation subjects alone, from values that all methods try.
#
# OUT/DATA/alphas.csv keeps what was found: one row per budget, method and α. What it has is not trained again.


def choose_alphas(study: Study, names: Sequence[str], alphas: Sequence[float]) -> dict[str, float]:
    """{method: the α of highest Dice on validation}, of those that are trained and have no α of their own."""
    results = deciding(study.results)
    budget, scores = results.budget.name, read_scores(results)
    tried = {
        name: [results.entry(without_average(name), alpha=alpha) for alpha in alphas]
        for name in names
        if has_choice(results.entry(name))
    }
    missing = dict.fromkeys(e for group in tried.values() for e in group if (budget, e.folder_name) not in scores)
    if missing:
        waiting = ", ".join(entry.folder_name for entry in missing)
        study.say(f"α is chosen by training on {study.data}; not trained yet: {waiting}.")
    for entry in replace(study, results=results).train(list(missing)):
        best = best_row(results.validations(entry))
        if "val_dice" not in best:
            raise BadInput(f"the validation subjects of {results.data} have no labels, by which α could be chosen")
        row: Row = {"protocol": budget, "entry": entry.folder_name, "method": str(entry.method)}
        row |= {"alpha": cast(Training, entry.training).alpha, "val_dice": round(best["val_dice"], 5)}
        scores = read_scores(results) | {(budget, entry.folder_name): row}  # others may have written meanwhile
        write_rows([scores[key] for key in sorted(scores)], results.out / results.data / SCORES)
    return {name: best_alpha(scores[budget, entry.folder_name] for entry in group) for name, group in tried.items()}


def deciding(results: Results) -> Results:
    """The results whose trainings decide on α: those of the budget itself, or of the one that it names."""
    return replace(results, budget=results.budget.alphas_of or results.budget)


def has_choice(entry: Entry) -> bool:
    """Whether the method is trained with the α that it is given."""
    return entry.training is not None and cast(Trainable, entry.method).loss.alpha is None


def best_alpha(scores: Iterable[Row]) -> float:
    """The α of highest Dice; the smallest where several have it."""
    return min(scores, key=lambda score: (-score["val_dice"], score["alpha"]))["alpha"]


def tried_by_all(results: Results, names: Sequence[str]) -> tuple[float, ...]:
    """The α, rising, that scores are kept of for each method that has a choice; none where they leave no choice."""
    results = deciding(results)
    scores = {score["entry"]: score["alpha"] for score in own_scores(results)}
    choosing = [without_average(name) for name in names if has_choice(results.entry(name))]
    found = [
        alpha
        for alpha in sorted(set(scores.values()))
        if all(results.entry(name, alpha=alpha).folder_name in scores for name in choosing)
    ]
    return tuple(found) if choosing and len(found) > 1 else ()


def best_alphas(results: Results) -> dict[str, float]:
    """{full name of a method: the α of highest Dice}, of those whose scores are kept."""
    scores = own_scores(deciding(results))
    names = {score["method"] for score in scores}
    return {name: best_alpha(score for score in scores if score["method"] == name) for name in names}


def own_scores(results: Results) -> list[Row]:
    """The rows of alphas.csv that are of this budget."""
    return [score for score in read_scores(results).values() if score["protocol"] == results.budget.name]


def read_scores(results: Results) -> dict[tuple[str, str], Row]:
    """{(budget, folder name of an entry): its row of alphas.csv}; empty where nothing is kept."""
    path = results.out / results.data / SCORES
    rows = read_rows(path, "columns protocol, entry, method, alpha and val_dice") if exists(path) else []
    try:
        return {
            (row["protocol"], row["entry"]): row | {key: float(row[key]) for key in ("alpha", "val_dice")}
            for row in rows
        }
    except (KeyError, ValueError) as error:
        raise BadInput(f"{path} is damaged: restore it, or remove it, and α is chosen again") from error
