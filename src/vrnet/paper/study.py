"""What was measured of many methods on one data set, in a folder; what is missing is trained and measured.

OUT/DATA/iterative/METHOD or, of a learned one, OUT/DATA/BUDGET/METHOD_alphaA_seedS hold metrics.csv (a row a subject),
summary.json and config.json (what it depends on); the training itself is in the folder `run` below."""

import csv
import json
import platform
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from itertools import count, takewhile
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from vrnet.data.prepared import PreparedSplit
from vrnet.data.sample import Purpose
from vrnet.devices import describe_device, find_device
from vrnet.errors import BadInput
from vrnet.evaluation.cohort import evaluate_split
from vrnet.files import Row, json_ready, write_json
from vrnet.methods.method import Method, Trainable
from vrnet.methods.names import missing, parse
from vrnet.methods.parameters import value_in
from vrnet.methods.trained import Trained, load_method
from vrnet.paper.budget import DIMENSIONS, Budget
from vrnet.progress import Stage
from vrnet.provenance import __version__
from vrnet.training.run import CHECKPOINT, CONFIG, METRICS, WEIGHTS, Run, best_row
from vrnet.training.run import Row as Validation
from vrnet.training.settings import Training

RUN = "run"
Split = Callable[[str, Purpose], PreparedSplit]
"""A split of the data set, prepared for a purpose."""


@dataclass(frozen=True)
class Entry:
    """A method, measured once; a learned one after this training."""

    method: Method
    training: Training | None = None

    @property
    def place(self) -> str:
        """The name of its folder."""
        if self.training is None:
            return str(self.method)
        return f"{self.method}_alpha{self.training.alpha:g}_seed{self.training.seed}".replace("Θ", "T")


@dataclass(frozen=True)
class Study:
    """A data set, what is spent on a method, and where results are kept."""

    out: Path
    data: str
    budget: Budget
    split: Split
    stage: Stage
    say: Callable[[str], None]
    device: str = "auto"
    at_once: int = 4
    """Networks trained at the same time."""

    @property
    def d(self) -> int:
        return DIMENSIONS[self.data]

    def entry(self, name: str, alpha: float | None = None, seed: int = 0) -> Entry:
        """The method of a name within this budget."""
        method = self.budget.method(name, self.d)
        if not method.is_trainable:
            return Entry(method)
        return Entry(method, self.budget.settings(cast(Trainable, method), self.data, alpha, seed))

    def seeds(self, name: str, alpha: float | None = None, least: int = 1) -> list[Entry]:
        """The method with seeds 0, 1, ...: as many as there are, and as many as asked for."""
        first = self.entry(name, alpha)
        if first.training is None:
            return [first]
        every = (self.entry(name, alpha, seed) for seed in count())
        return [entry for _, entry in takewhile(lambda x: x[0] < least or self.has(x[1]), enumerate(every))]

    def folder(self, entry: Entry) -> Path:
        if entry.training is None:
            return self.out / self.data / self.kind / entry.place
        return self.out / self.data / self.budget.name / entry.place

    @property
    def kind(self) -> str:
        """Iterative methods depend on no budget, unless it has images of its own."""
        return "iterative" if self.budget.phantoms is None else self.budget.name

    def has(self, entry: Entry) -> bool:
        return (self.folder(entry) / CONFIG).is_file()

    def rows(self, entry: Entry) -> list[Row]:
        """What was measured, a row a subject; BadInput unless they are those that were."""
        subjects = self.config(entry)["subjects"]
        with self._reading(entry), (self.folder(entry) / METRICS).open(newline="", encoding="utf-8") as file:
            rows = [
                {key: cell if key == "subject" or cell is None else float(cell or "nan") for key, cell in row.items()}
                for row in csv.DictReader(file)
            ]
        if [row.get("subject") for row in rows] != subjects or any(None in row.values() for row in rows):
            raise self._damaged(entry)
        return rows

    def config(self, entry: Entry) -> dict[str, Any]:
        """What it depends on."""
        with self._reading(entry):
            found = dict(json.loads((self.folder(entry) / CONFIG).read_text(encoding="utf-8")))
        if not {"method", "subjects", "hardware", "versions"} <= found.keys():
            raise self._damaged(entry)
        return found

    @contextmanager
    def _reading(self, entry: Entry) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError, TypeError, KeyError, BadInput) as error:
            raise self._damaged(entry) from error

    def _damaged(self, entry: Entry) -> BadInput:
        return BadInput(f"{self.folder(entry)} is damaged: remove it, and it is measured again")

    def mean_rows(self, entries: Sequence[Entry]) -> list[Row]:
        """A row a subject: the mean over entries, such as the seeds of a method."""
        found = [self.rows(entry) for entry in entries]
        return [
            {"subject": rows[0]["subject"]}
            | {key: float(np.mean([row[key] for row in rows])) for key in rows[0] if key != "subject"}
            for rows in zip(*found, strict=True)
        ]

    def complete(self, entries: Sequence[Entry]) -> None:
        """Measure those that are not there; learned ones are trained first, several at once."""
        for entry in entries:
            self._check_same(entry)
        wanted = [entry for entry in dict.fromkeys(entries) if not self.has(entry)]
        if not wanted:
            return
        self._check_subjects(entries)
        known = len(dict.fromkeys(entries))
        self.say(f"{known - len(wanted)} of {known} on {self.data} are measured already; now the others.")
        for entry in wanted:
            self._check(entry)
        for entry in wanted:
            if not entry.method.is_trainable:
                self._measure(entry, entry.method)
        learned = [entry for entry in wanted if entry.training is not None]
        for first in range(0, len(learned), self.at_once):
            some = learned[first : first + self.at_once]
            self._train(some, f"{first} of {len(learned)} done")
            for entry in some:
                self._measure(entry, self._trained(entry))

    def methods(self, entries: Sequence[Entry]) -> list[Method]:
        """Method to register; learned ones are trained if their weights are not there."""
        for entry in entries:
            self._check_same(entry)
        learned = [entry for entry in entries if entry.training is not None]
        for first in range(0, len(learned), self.at_once):
            self._train(learned[first : first + self.at_once], f"{first} of {len(learned)} done")
        return [self._trained(e) if e.method.is_trainable else e.method for e in entries]

    def can_run(self, name: str) -> bool:
        """Whether all that the method needs is installed."""
        return missing(parse(name)) is None

    @cached_property
    def test(self) -> PreparedSplit:
        return self.split("test", "evaluation")

    def _check_subjects(self, entries: Sequence[Entry]) -> None:
        """BadInput where what is there was measured on others than those at hand."""
        names = self.test.names
        for entry in entries:
            if self.has(entry) and self.config(entry)["subjects"] != names:
                raise BadInput(f"{self.folder(entry)} was measured on other subjects: remove it, or choose --out")

    def _check_same(self, entry: Entry) -> None:
        """BadInput where what is there was made otherwise than now asked for, measured or not."""
        if self.has(entry) and self.config(entry).get("settings") != settings_of(entry.method, self.d):
            raise BadInput(f"{self.folder(entry)} is of another {entry.method}: remove it, or choose --out")
        if entry.training is None:
            return
        asked = json_ready(asdict(entry.training))
        for folder in (self.folder(entry), self.folder(entry) / RUN):
            with self._reading(entry):
                kept = Run(folder).config()["training"] if (folder / CONFIG).is_file() else asked
            differ = [f"{key} {kept.get(key)}, not {value}" for key, value in asked.items() if kept.get(key) != value]
            if differ:
                raise BadInput(f"{self.folder(entry)} was trained with {'; '.join(differ)}: remove it, or choose --out")

    def _check(self, entry: Entry) -> None:
        """BadInput at once, not after hours, where a package is missing."""
        package = None if entry.training else missing(entry.method)
        if package:
            raise BadInput(f"{entry.method} needs {package}, which is not installed: pip install 'vrnet[baselines]'")

    def _train(self, entries: Sequence[Entry], done: str) -> None:
        from vrnet.training.concurrent import TrainingJob, fit_concurrently

        jobs = [
            TrainingJob(cast(Trainable, entry.method), entry.training, self.folder(entry) / RUN)
            for entry in entries
            if entry.training is not None and not self._is_trained(entry)
        ]
        if not jobs:
            return
        train, val = self.split("train", "training"), self.split("val", "evaluation")
        names = ", ".join(str(job.method) for job in jobs)
        tick = self.stage(f"training on {self.data} ({done}): {names}")
        fit_concurrently(jobs, train, val, device=self.device, watch=tick)
        for job in jobs:
            (job.folder / CHECKPOINT).unlink()

    def _is_trained(self, entry: Entry) -> bool:
        """Whether its run is over: the last of its steps was validated, and its weights are there."""
        run = self.folder(entry) / RUN
        if entry.training is None or not ((run / WEIGHTS).is_file() and (run / METRICS).is_file()):
            return False
        return self._validations(entry)[-1]["step"] == entry.training.steps

    def _trained(self, entry: Entry) -> Trained:
        return load_method(self.folder(entry) / RUN / WEIGHTS)

    def _measure(self, entry: Entry, method: Method) -> None:
        device = self.device if entry.training is not None else "cpu"
        summary = evaluate_split(self.stage, method, self.test, self.folder(entry), device)
        config: dict[str, Any] = {"method": str(entry.method), "data": self.data, "split": self.test.split}
        config["subjects"] = self.test.names
        config["settings"] = settings_of(entry.method, self.d)
        if entry.training is not None and method.model is not None:
            config["parameters"] = sum(parameter.numel() for parameter in method.model.parameters())
            config["training"] = asdict(entry.training)
            config["validation"] = best_row(self._validations(entry))
        config |= {"hardware": hardware(device), "versions": versions()}
        write_json(config, self.folder(entry) / CONFIG)
        shown = {key: value["mean"] for key, value in summary["metrics"].items()}
        self.say(f"{entry.place}: Dice {shown['dice_mean']:.3f}, Hausdorff {shown['hd_mean']:.2f} mm")

    def _validations(self, entry: Entry) -> list[Validation]:
        """The training's own metrics.csv."""
        with (self.folder(entry) / RUN / METRICS).open(newline="", encoding="utf-8") as file:
            return [{key: float(value) for key, value in row.items()} for row in csv.DictReader(file)]


def settings_of(method: Method, d: int) -> dict[str, Any]:
    """Its parameters in d dimensions, as config.json has them."""
    return json_ready({field.name: value_in(getattr(method, field.name), d) for field in fields(cast(Any, method))})


def hardware(device: str) -> str:
    """What it was computed on."""
    return describe_device(find_device(device))


def versions() -> dict[str, str]:
    return {"vrnet": __version__, "torch": str(torch.__version__), "python": platform.python_version()}
