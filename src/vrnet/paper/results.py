"""Results on disk: what was measured of each method on one data set.

OUT/DATA/iterative/METHOD or, of a learned method, OUT/DATA/BUDGET/METHOD_alphaA_seedS (and _labels if it was trained
with them, and _Nsubjects if it was trained on N subjects only) holds metrics.csv (one row per subject), summary.json
and config.json (what the numbers depend on); the training itself is in the folder `run` there. OUT/DATA/subjects.json
says how many subjects there are to train on.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from itertools import count, takewhile
from math import isfinite
from pathlib import Path
from typing import Any, cast

import msgspec
import numpy as np

from vrnet.errors import BadInput
from vrnet.files import Row, convert_record, exists, json_ready, read_json, read_rows, write_json
from vrnet.methods.averaged import AVERAGED
from vrnet.methods.method import Method, Trainable
from vrnet.methods.names import without_average
from vrnet.methods.parameters import value_in
from vrnet.paper.budget import DIMENSIONS, Budget
from vrnet.training.run import CONFIG, METRICS, WEIGHTS, Setting, ValidationRow
from vrnet.training.run import Row as Validation
from vrnet.training.settings import Training, fill_settings

RUN = "run"
COUNTS = "subjects.json"
"""In the folder of a data set: how many subjects networks are trained on, where none of them is left out."""


@dataclass(frozen=True)
class Entry:
    """A method, measured once; a learned one after this training."""

    method: Method
    training: Training | None = None
    subjects: int | None = None
    """How many of the subjects of the split it is trained on; all, if not given."""
    is_averaged: bool = False
    """Whether it is averaged over flips and quarter turns in use; its training is that of the entry which is not."""

    @property
    def name(self) -> str:
        """The full name of the method."""
        return f"{self.method}{AVERAGED if self.is_averaged else ''}"

    @property
    def folder_name(self) -> str:
        """The full name of the method; of a learned one also α, seed, and whether it was trained with labels, or on
        fewer subjects than there are."""
        if self.training is None:
            return file_name(self.name)
        labels = "_labels" if self.training.uses_labels else ""
        fewer = "" if self.subjects is None else f"_{self.subjects}subjects"
        return f"{file_name(self.name)}_alpha{self.training.alpha:g}_seed{self.training.seed}{labels}{fewer}"


def file_name(method: Method | str) -> str:
    """The name of a method as files and folders have it: ASCII, without what some file system forbids."""
    return re.sub(r'[<>:"/\\|?*]', "-", str(method).replace("Θ", "T"))


@dataclass(frozen=True)
class Measured:
    """What config.json says of a result: all that its numbers depend on."""

    method: str
    subjects: tuple[str, ...]
    hardware: str
    versions: dict[str, str | None]
    settings: dict[str, Any]
    data: str = ""
    split: str = ""
    parameters: int = 0
    weights_sha256: str | None = None
    training: dict[str, Setting] | None = None
    training_subjects: int | None = None
    validation: dict[str, float] | None = None

    def __post_init__(self) -> None:
        if "torch" not in self.versions:
            raise BadInput("torch is missing in versions")


@dataclass(frozen=True)
class Results:
    """The results of a data set within a budget, in the folder `out`."""

    out: Path
    data: str
    budget: Budget

    @property
    def d(self) -> int:
        """The dimension of the images."""
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
        first = self.entry(name, alpha, subjects=subjects)
        if first.training is None:
            return [first]
        entries = (self.entry(name, alpha, seed, subjects) for seed in count())
        wanted = takewhile(lambda item: item[0] < at_least or self.has(item[1]), enumerate(entries))
        return [entry for _, entry in wanted]

    def folder(self, entry: Entry) -> Path:
        """Where the results of an entry are; iterative methods depend on no budget, unless it has images of its own."""
        is_shared = entry.training is None and self.budget.phantoms is None
        return self.out / self.data / ("iterative" if is_shared else self.budget.name) / entry.folder_name

    def run_folder(self, entry: Entry) -> Path:
        """Where the training of an entry is."""
        return self.folder(replace(entry, is_averaged=False)) / RUN

    @property
    def training_count(self) -> int | None:
        """How many subjects there are to train on, if that was kept; BadInput if the file is damaged."""
        path = self.out / self.data / COUNTS
        try:
            return msgspec.convert(read_json(path)["train"], int) if exists(path) else None
        except (ValueError, TypeError, KeyError) as error:
            raise BadInput(f"{path} is damaged: restore it, or remove it and give the images") from error

    def keep_training_count(self, count: int) -> None:
        """Keep how many subjects there are to train on."""
        write_json({"train": count}, self.out / self.data / COUNTS)

    def has(self, entry: Entry) -> bool:
        """Whether the entry is measured."""
        return (self.folder(entry) / CONFIG).is_file()

    def config(self, entry: Entry) -> dict[str, Any]:
        """What the numbers of an entry depend on."""
        with self._reading(entry):
            config = read_json(self.folder(entry) / CONFIG)
            convert_record(config, Measured)
        return config

    def rows(self, entry: Entry) -> list[Row]:
        """What was measured, one row per subject; BadInput where a subject, or the end of a row, is missing.

        A subject may lack some measures, but never that of the last column."""
        subjects = self.config(entry)["subjects"]
        with self._reading(entry):
            rows = [
                {key: cell if key == "subject" else number_or_nan(cell) for key, cell in row.items()}
                for row in read_rows(self.folder(entry) / METRICS, "one row per subject")
            ]
            is_cut_off = np.isnan([list(row.values())[-1] for row in rows]).any()
            is_whole = not is_cut_off and [row["subject"] for row in rows] == subjects
        if not is_whole:
            raise self._damaged(entry)
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
            found = [{key: float(value) for key, value in row.items()} for row in rows]
            for row in found:
                convert_record(row | {"step": int(row["step"])}, ValidationRow)
        if not found:
            raise self._damaged(entry)
        return found

    def is_trained(self, entry: Entry) -> bool:
        """Whether the training is over: its last step was validated, and its weights are there."""
        folder = self.run_folder(entry)
        if entry.training is None or not ((folder / WEIGHTS).is_file() and (folder / METRICS).is_file()):
            return False
        return self.validations(entry)[-1]["step"] == entry.training.steps

    def check_subjects(self, entry: Entry, names: list[str]) -> None:
        """BadInput where the entry was measured on other subjects than these."""
        if self.has(entry) and self.config(entry)["subjects"] != names:
            raise BadInput(f"{self.folder(entry)} was measured on other subjects: remove it, or choose another `out`")

    def check_settings(self, entry: Entry) -> None:
        """BadInput where what is on disk, measured or only trained, was made with other settings than the entry's."""
        if self.has(entry) and not is_of(self.config(entry), entry, self.d):
            raise BadInput(f"{self.folder(entry)} is of another {entry.name}: remove it, or choose another `out`")
        if entry.training is None:
            return
        asked = json_ready(asdict(entry.training))
        for folder in (self.folder(entry), self.run_folder(entry)):
            with self._reading(entry):
                kept = msgspec.convert(read_json(folder / CONFIG)["training"], dict) if exists(folder / CONFIG) else asked
                kept = fill_settings(kept)
            differ = [f"{key} {kept.get(key)}, not {value}" for key, value in asked.items() if kept.get(key) != value]
            if differ:
                raise BadInput(
                    f"{self.folder(entry)} was trained with {'; '.join(differ)}: remove it, or choose another `out`"
                )

    @contextmanager
    def _reading(self, entry: Entry) -> Iterator[None]:
        try:
            yield
        except (ValueError, TypeError, KeyError, OverflowError) as error:
            raise self._damaged(entry) from error

    def _damaged(self, entry: Entry) -> BadInput:
        return BadInput(f"{self.folder(entry)} is damaged: remove it, and it is measured again")


def number_or_nan(cell: str) -> float:
    """The number of a cell, which is finite; NaN where nothing was measured."""
    if cell and not isfinite(float(cell)):
        raise ValueError(f"{cell} is no measure")
    return float(cell or "nan")


def is_of(config: Mapping[str, Any], entry: Entry, d: int) -> bool:
    """Whether results are of a method as it is set: its name says some of its parameters, the settings the others."""
    asked, kept = method_settings(entry.method, d), config.get("settings")
    if config.get("method") != entry.name or not isinstance(kept, dict):
        return False
    others = (asked.keys() | kept.keys()) - set(entry.method.fixed_parameters)
    return all(name in kept and name in asked and kept[name] == asked[name] for name in others)


def method_settings(method: Method, d: int) -> dict[str, Any]:
    """The parameters of a method in d dimensions, as config.json has them."""
    return json_ready({field.name: value_in(getattr(method, field.name), d) for field in fields(cast(Any, method))})
