"""Results on disk: what was measured of each method on one data set.

OUT/DATA/rows.csv has one row per run and subject, and OUT/DATA/configs.jsonl one line per run: what its numbers depend
on. A run that is measured now has a folder first: OUT/DATA/iterative/METHOD or, of a learned method,
OUT/DATA/BUDGET/METHOD_alphaA_seedS (and _labels if it was trained with them, and _Nsubjects if it was trained on N
subjects only), with metrics.csv (one row per subject), summary.json and config.json; the training itself is in the
folder `run` there. benchmarks/collect.py puts such folders into the two files. OUT/DATA/subjects.json says how many
subjects there are to train on.
"""

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np

from vrnet.errors import BadInput
from vrnet.files import Row, exists, json_ready, read_json, read_rows
from vrnet.methods.method import AVERAGED, Method, Trainable
from vrnet.methods.names import without_average
from vrnet.methods.parameters import value_in
from vrnet.paper.budget import DIMENSIONS, Budget
from vrnet.training.run import CONFIG, METRICS, WEIGHTS
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
    subjects: int | None = None
    """How many of the subjects of the split it is trained on; all, if not given."""
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

    def _collected(self, entry: Entry) -> Run | None:
        return read_runs(self.out / self.data).get((self.protocol(entry), entry.folder_name))

    def has(self, entry: Entry) -> bool:
        return (self.folder(entry) / CONFIG).is_file() or self._collected(entry) is not None

    def run(self, entry: Entry) -> Run:
        """What was measured of an entry: in its own folder, or else in the files of the data set."""
        folder = self.folder(entry)
        found = None if exists(folder / CONFIG) else self._collected(entry)
        if found is not None:
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
            if [row["subject"] for row in rows] != config["subjects"]:
                raise ValueError("other subjects than it says")
            if np.isnan([list(row.values())[-1] for row in rows]).any():
                raise ValueError("a row is cut off")
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
        """Whether the training is over: its last step was validated, and its weights are there."""
        folder = self.run_folder(entry)
        if entry.training is None or not ((folder / WEIGHTS).is_file() and (folder / METRICS).is_file()):
            return False
        return self.validations(entry)[-1]["step"] == entry.training.steps

    def check_settings(self, entry: Entry) -> None:
        """BadInput where what is on disk, measured or only trained, was made with other settings than the entry's."""
        if self.has(entry):
            in_name = {*entry.method.fixed_parameters, "window"}  # which was a parameter in version 0.5, never used
            config = self.run(entry).config
            asked, kept = (
                {name: value for name, value in found.items() if name not in in_name}
                for found in (method_settings(entry.method, self.d), config.get("settings") or {})
            )
            if (config["method"], kept) != (entry.name, asked):
                raise BadInput(f"{self.folder(entry)} is of another {entry.name}: remove it, or choose another `out`")
        if entry.training is None:
            return
        path, settings = self.run_folder(entry) / CONFIG, json_ready(asdict(entry.training))
        with self._reading(entry):
            measured = [self.run(entry).config["training"]] if self.has(entry) else []
            trained = [read_json(path)["training"]] if exists(path) else []
            every = [fill_settings(kept) for kept in measured + trained]
        for kept in every:
            differ = [f"{key} {kept[key]}, not {value}" for key, value in settings.items() if kept[key] != value]
            if differ:
                raise BadInput(
                    f"{self.folder(entry)} was trained with {'; '.join(differ)}: remove it, or choose another `out`"
                )

    @contextmanager
    def _reading(self, entry: Entry) -> Iterator[None]:
        try:
            yield
        except (ValueError, TypeError, KeyError) as error:
            raise BadInput(f"{self.folder(entry)} is damaged: remove it, and it is measured again") from error


def method_settings(method: Method, d: int) -> dict[str, Any]:
    """The parameters of a method in d dimensions, as config.json has them."""
    return json_ready({field.name: value_in(getattr(method, field.name), d) for field in fields(cast(Any, method))})
