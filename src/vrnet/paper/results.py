"""Results on disk, what was measured of each method on one data set, and the study that trains and measures the rest.

OUT/DATA/rows.csv has one row per run and subject, and OUT/DATA/configs.jsonl one line per run: what its numbers depend
on. A run that is measured now has a folder first, OUT/DATA/iterative/METHOD or OUT/DATA/BUDGET/METHOD_alphaA_seedS,
with metrics.csv (one row per subject), summary.json, config.json and, in `run`, its training. benchmarks/collect.py
puts such folders into the two files. OUT/DATA/subjects.json says how many subjects there are to train on.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np

from vrnet.cohort.results import CohortFolder
from vrnet.data.prepared import PreparedSplit
from vrnet.data.protocols import Purpose
from vrnet.devices import describe_device, find_device
from vrnet.errors import BadInput, Stage
from vrnet.evaluation.split import evaluate_split
from vrnet.files import Row, exists, json_ready, read_json, read_rows, write_json, write_rows
from vrnet.methods.method import AVERAGED, Method, Trainable, without_flips
from vrnet.methods.names import MethodSpec, missing_package, parse_method, without_average
from vrnet.methods.parameters import value_in
from vrnet.paper.specs import DIMENSIONS, Budget
from vrnet.provenance import how_to_install, versions
from vrnet.training.fit import check_lightning
from vrnet.training.run import CHECKPOINT, CONFIG, METRICS, WEIGHTS, best_row
from vrnet.training.run import Row as Validation
from vrnet.training.settings import Training, fill_settings

RUN = "run"
ROWS, CONFIGS, SCORES = "rows.csv", "configs.jsonl", "alphas.csv"
RUN_COLUMNS = "protocol", "run", "method", "alpha", "seed"
"""What rows.csv has of the run, before what was measured of the subject. A protocol is a budget, `iterative`, or
`shipped` for the models that come with vrnet."""


@dataclass(frozen=True)
class Entry:
    """A method, measured once; a learned one after this training."""

    method: Method
    training: Training | None = None
    subjects: int | None = None  # how many of the subjects of the split it is trained on; all, if not given
    is_averaged: bool = False
    """Whether it is averaged over flips and quarter turns in use; its training is that of the entry which is not."""

    @property
    def name(self) -> str:
        return f"{self.method}{AVERAGED if self.is_averaged else ''}"

    @property
    def folder_name(self) -> str:
        """METHOD, or METHOD_alphaA_seedS of a learned one, with _labels or _Nsubjects where it was trained so."""
        if self.training is None:
            return file_name(self.name)
        labels = "_labels" if self.training.uses_labels else ""
        fewer = "" if self.subjects is None else f"_{self.subjects}subjects"
        return f"{file_name(self.name)}_alpha{self.training.alpha:g}_seed{self.training.seed}{labels}{fewer}"


def file_name(method: Method | str) -> str:
    """The name of a method as files and folders have it: ASCII, without what some file system forbids."""
    return re.sub(r'[<>:"/\\|?*]', "-", str(method).replace("Θ", "T"))


class Run(NamedTuple):
    """All that the numbers of a run depend on, and the cells of one row per subject."""

    config: dict[str, Any]
    cells: list[dict[str, str]]


@lru_cache(maxsize=8)
def read_runs(folder: Path) -> dict[tuple[str, str], Run]:
    """{(protocol, name): run} of all runs that the files of a data set have; none where there are no such files."""
    path = folder / ROWS
    if not exists(path):
        return {}
    cells: dict[tuple[str, str], list[dict[str, str]]] = {}
    for row in read_rows(path, "one row per run and subject"):
        key, own = (row["protocol"], row["run"]), {name: row[name] for name in row if name not in RUN_COLUMNS}
        cells.setdefault(key, []).append(own)
    runs = {}
    for line in (folder / CONFIGS).read_text(encoding="utf-8").splitlines():
        config = json.loads(line)  # config.json, summary.json, and of the training config.json and what was validated
        key = config["protocol"], config["run"]
        if key in cells:
            runs[key] = Run(config | {"subjects": [row["subject"] for row in cells[key]]}, cells[key])
    return runs


@dataclass(frozen=True)
class Results:
    """The results of a data set within a budget, in the folder `out`."""

    out: Path
    data: str
    budget: Budget

    @property
    def d(self) -> int:
        return DIMENSIONS[self.data]

    def entry(self, name: str, alpha: float | None = None, seed: int = 0, subjects: int | None = None) -> Entry:
        """The method of a name, trained as this budget says but for α and seed, on all subjects or on so many."""
        alone = without_average(name)
        method = self.budget.method(alone, self.d)
        if not method.is_trainable:
            return Entry(method, is_averaged=alone != name)
        training = self.budget.settings(cast(Trainable, method), self.data, alpha, seed)
        return Entry(method, training, subjects, alone != name)

    def seeds(
        self, name: str, alpha: float | None = None, at_least: int = 1, subjects: int | None = None
    ) -> list[Entry]:
        """The method with seeds 0, 1, ...: as many as are measured, and at least as many as asked for."""
        entries = [self.entry(name, alpha, subjects=subjects)]
        while entries[0].training is not None:
            entry = self.entry(name, alpha, len(entries), subjects)
            if len(entries) >= at_least and not self.has(entry):
                break
            entries.append(entry)
        return entries

    def protocol(self, entry: Entry) -> str:
        """The budget of an entry; iterative methods depend on none, unless it has images of its own."""
        is_shared = entry.training is None and self.budget.phantoms is None
        return "iterative" if is_shared else self.budget.name

    def folder(self, entry: Entry) -> Path:
        """Where an entry is measured, if the files of the data set do not have it."""
        return self.out / self.data / self.protocol(entry) / entry.folder_name

    def run_folder(self, entry: Entry) -> Path:
        return self.folder(replace(entry, is_averaged=False)) / RUN

    def has(self, entry: Entry) -> bool:
        collected = read_runs(self.out / self.data)
        return (self.folder(entry) / CONFIG).is_file() or (self.protocol(entry), entry.folder_name) in collected

    def run(self, entry: Entry) -> Run:
        """What was measured of an entry: in its own folder, or else in the files of the data set."""
        folder, collected = self.folder(entry), read_runs(self.out / self.data)
        if not exists(folder / CONFIG) and (found := collected.get((self.protocol(entry), entry.folder_name))):
            return found
        with self._reading(entry):
            config = read_json(folder / CONFIG)
            if not {"method", "subjects", "hardware", "versions", "settings"} <= set(config):
                raise ValueError("it says too little")
            return Run(config, read_rows(folder / METRICS, "one row per subject"))

    def rows(self, entry: Entry) -> list[Row]:
        """What was measured, one row per subject; a subject may lack measures, but never that of the last column."""
        config, cells = self.run(entry)
        with self._reading(entry):
            rows = [
                {key: cell if key == "subject" else float(cell or "nan") for key, cell in row.items()} for row in cells
            ]
            is_cut_off = np.isnan([list(row.values())[-1] for row in rows]).any()
            if is_cut_off or [row["subject"] for row in rows] != config["subjects"]:
                raise ValueError("other subjects than it says, or a row is cut off")
            return rows

    def mean_rows(self, entries: Sequence[Entry]) -> list[Row]:
        """One row per subject: the mean over entries, such as the seeds of a method."""
        found = [self.rows(entry) for entry in entries]
        return [
            {"subject": rows[0]["subject"]}
            | {key: float(np.mean([row[key] for row in rows])) for key in rows[0] if key != "subject"}
            for rows in zip(*found, strict=True)
        ]

    def validations(self, entry: Entry) -> list[Validation]:
        """What was measured while the entry was trained, one row per validation."""
        with self._reading(entry):
            rows = read_rows(self.run_folder(entry) / METRICS, "one row per validation")
            if not rows or "step" not in rows[0]:
                raise ValueError("there are no steps")
            return [{key: float(value) for key, value in row.items()} for row in rows]

    def is_trained(self, entry: Entry) -> bool:
        folder = self.run_folder(entry)
        if entry.training is None or not ((folder / WEIGHTS).is_file() and (folder / METRICS).is_file()):
            return False
        return self.validations(entry)[-1]["step"] == entry.training.steps

    def check_settings(self, entry: Entry) -> None:
        """BadInput where what is on disk, measured or only trained, was made with other settings than the entry's."""
        path, advice = self.run_folder(entry) / CONFIG, "remove it, or choose another `out`"
        with self._reading(entry):
            known = [self.run(entry).config] if self.has(entry) else []
            trained = [read_json(path)] if entry.training and exists(path) else []
            every = [fill_settings(config["training"]) for config in known + trained if entry.training]
        for config in known:
            in_name = {*entry.method.fixed_parameters, "window", "exchange"}  # which were parameters in version 0.5
            settings = method_settings(entry.method, self.d), config.get("settings") or {}
            asked, kept = ({name: one[name] for name in one if name not in in_name} for one in settings)
            if (config["method"], kept) != (entry.name, asked):
                raise BadInput(f"{self.folder(entry)} is of another {entry.name}: {advice}")
        for kept in every:
            wanted = json_ready(asdict(cast(Training, entry.training)))
            if differ := [f"{key} {kept[key]}, not {value}" for key, value in wanted.items() if kept[key] != value]:
                raise BadInput(f"{self.folder(entry)} was trained with {'; '.join(differ)}: {advice}")

    @contextmanager
    def _reading(self, entry: Entry) -> Iterator[None]:
        try:
            yield
        except (ValueError, TypeError, KeyError) as error:
            raise BadInput(f"{self.folder(entry)} is damaged: remove it, and it is measured again") from error


def method_settings(method: Method, d: int) -> dict[str, Any]:
    """The parameters of a method in d dimensions, as config.json has them."""
    return json_ready({field.name: value_in(getattr(method, field.name), d) for field in fields(cast(Any, method))})


# The study of many methods on one data set: those that have no results yet are trained and measured.

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
    jobs: int = 1  # how many subjects are measured at the same time

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
        for entry in (entry for entry in entries if entry not in missing):
            if self.results.run(entry).config["subjects"] != self.test.names:
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

    def train(self, entries: Sequence[Entry]) -> Iterator[Entry]:
        """Train the learned ones of the entries that have no weights; give each as soon as it is trained."""
        from vrnet.training.fit import fit

        for entry in entries:
            self.results.check_settings(entry)
        untrained = self._untrained(entries)
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

    def choose(self, entry: Entry) -> MethodSpec:
        """The method by its name, or by the weights of its training."""
        if entry.training is None:
            return parse_method(str(entry.method), average=entry.is_averaged).pin()
        return parse_method("default", self.results.run_folder(entry) / WEIGHTS, average=entry.is_averaged).pin()

    def _measure(self, entry: Entry) -> None:
        """Measure the method on every test subject, and write what the numbers depend on last: then it is measured."""
        folder, device = self.results.folder(entry), "cpu" if entry.training is None else self.device
        choice = self.choose(entry)
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
    tried = {
        name: [results.entry(without_average(name), alpha=alpha) for alpha in alphas]
        for name in names
        if has_choice(results.entry(name))
    }
    known = own_scores(results)
    missing = dict.fromkeys(e for group in tried.values() for e in group if e.folder_name not in known)
    if missing:
        waiting = ", ".join(entry.folder_name for entry in missing)
        study.say(f"α is chosen by training on {study.data}; not trained yet: {waiting}.")
    for entry in replace(study, results=results).train(list(missing)):
        best = best_row(results.validations(entry))
        if "val_dice" not in best:
            raise BadInput(f"the validation subjects of {results.data} have no labels, by which α could be chosen")
        row: Row = {"protocol": results.budget.name, "entry": entry.folder_name, "method": str(entry.method)}
        row |= {"alpha": cast(Training, entry.training).alpha, "val_dice": round(best["val_dice"], 5)}
        scores = read_scores(results) | {(row["protocol"], row["entry"]): row}  # others may have written meanwhile
        write_rows([scores[key] for key in sorted(scores)], results.out / results.data / SCORES)
    known = own_scores(results)
    return {name: best_alpha([known[entry.folder_name] for entry in group]) for name, group in tried.items()}


def deciding(results: Results) -> Results:
    """The results whose trainings decide on α: those of the budget itself, or of the one that it names."""
    return replace(results, budget=results.budget.alphas_of or results.budget)


def has_choice(entry: Entry) -> bool:
    """Whether the method is trained with the α that it is given."""
    return entry.training is not None and cast(Trainable, entry.method).loss.alpha is None


def best_alpha(scores: Sequence[Row]) -> float:
    """The α of highest Dice; the smallest where several have it."""
    return min(scores, key=lambda score: (-score["val_dice"], score["alpha"]))["alpha"]


def best_alphas(results: Results) -> dict[str, float]:
    """{full name of a method: the α of highest Dice}, of those whose scores are kept."""
    scores = [*own_scores(deciding(results)).values()]
    return {
        name: best_alpha([one for one in scores if one["method"] == name]) for name in {s["method"] for s in scores}
    }


def tried_by_all(results: Results, names: Sequence[str]) -> tuple[float, ...]:
    """The α, rising, that scores are kept of for each method that has a choice; none where they leave no choice."""
    results = deciding(results)
    scores = own_scores(results)
    choosing = [without_average(name) for name in names if has_choice(results.entry(name))]
    is_tried = lambda alpha: all(results.entry(name, alpha=alpha).folder_name in scores for name in choosing)  # noqa: E731
    found = tuple(filter(is_tried, sorted({score["alpha"] for score in scores.values()})))
    return found if choosing and len(found) > 1 else ()


def own_scores(results: Results) -> dict[str, Row]:
    """{folder name of an entry: its row of alphas.csv}, of this budget."""
    return {entry: row for (protocol, entry), row in read_scores(results).items() if protocol == results.budget.name}


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
