"""A method on the subjects of a split, by the engine of cohorts: one row per subject in metrics.csv, and summary.json.

What is measured of a subject is kept in FOLDER/subjects/NAME/done.json as soon as it is done. Started again, a run goes
on from there; a subject is measured again where the method, its parameters, the code or the images are others."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vrnet.choices import Folds
from vrnet.cohort.engine import run_tasks
from vrnet.cohort.executors import check_jobs, open_executor
from vrnet.cohort.plan import Plan, make_plan
from vrnet.cohort.records import CohortFolder, Recipe
from vrnet.cohort.runs import open_folder
from vrnet.cohort.state import Survey
from vrnet.cohort.table import Subject, is_folder_name
from vrnet.cohort.task import Task
from vrnet.data.prepared import PreparedSplit
from vrnet.data.sample import Sample
from vrnet.data.store import safe_name
from vrnet.devices import find_device, threads_for
from vrnet.errors import BadInput
from vrnet.evaluation.cohort import build_for_shape, measure_subject, measure_unregistered, summarise
from vrnet.file_sets import check_set, replace_set
from vrnet.files import Row, json_ready, write_json, write_rows
from vrnet.methods.choice import MethodChoice
from vrnet.methods.method import Method
from vrnet.methods.trained import warn_if_far
from vrnet.progress import Stage
from vrnet.provenance import __version__, commit, provenance
from vrnet.variational.cascade import Initializer
from vrnet.wording import counted

METRICS, SUMMARY = "metrics.csv", "summary.json"


def evaluate_split(
    stage: Stage,
    method: MethodChoice,
    pairs: PreparedSplit,
    folder: Path,
    device: str = "cpu",
    folds: Folds = "keep",
    *,
    jobs: int = 1,
    say: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Measure a method on every subject of a split; write metrics.csv and summary.json, and return the latter.

    Where folds are repaired, the time that takes counts too. `jobs` processes share the subjects, with one thread each.
    Subjects that cannot be measured are in the summary, with the reason; `say` is told what an earlier run left."""
    check_jobs(jobs)
    check_set(folder, (METRICS, SUMMARY))
    first = pairs.samples[0]
    ready = method.load().resolve(len(first.spacing), first.spacing)
    place = find_device(device, ready.devices)
    ready.build(len(first.spacing))  # which fails at once if it is for another dimension
    warn_if_far(ready, first.spacing)
    work = MeasureSubject(method, pairs.read, dict(pairs.structures), place.type, folds)
    task = Task(CohortFolder(folder.absolute()), work, recipe_of(work, ready, pairs.data))
    plan = make_plan(task.folder, subjects := subjects_of(pairs), task.recipe)
    tell(plan, say)
    run_plan(task, plan, jobs, stage(f"{ready} on {counted(len(subjects), 'subject')}"))
    rows, before, failed = read_results(task, subjects)
    summary: dict[str, Any] = {
        "method": str(ready),
        "weights": ready.weights,
        "data": pairs.data,
        "split": pairs.split,
        "folds": folds,
        "subjects": len(rows),
        "metrics": summarise(rows),
        "before": summarise(before),
        "provenance": provenance(place),
    }
    return write_files(rows, summary | ({"failed": failed} if failed else {}), folder)


def write_files(rows: list[Row], summary: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Write metrics.csv and summary.json, both at once, and return the latter."""
    with replace_set(folder, (METRICS, SUMMARY)) as staged:
        write_rows(rows, staged / METRICS)
        write_json(summary, staged / SUMMARY)
    return summary


@dataclass(frozen=True)
class MeasureSubject:
    """Measure a method on one subject. There are no files: the row is the result."""

    method: MethodChoice
    read: Callable[[str], Sample]
    """The sample of a name."""
    structures: dict[str, int]
    device: str
    folds: Folds

    def __call__(self, subject: Subject, folder: Path) -> Row:
        sample = self.read(sample_name(subject))
        method, find = build_once(self.method, self.device, tuple(sample.fixed.shape[1:]), sample.spacing)
        with threads_for(method.is_network, sample.fixed[0].numel()):
            after = measure_subject(sample, find, self.structures, torch.device(self.device), self.folds)
            return {"after": after, "before": measure_unregistered(sample, self.structures)}


@lru_cache(maxsize=1)
def build_once(
    choice: MethodChoice, device: str, shape: tuple[int, ...], spacing: tuple[float, ...]
) -> tuple[Method, Initializer]:
    """The method, and what finds the field of a pair of this shape and spacing: built once for subjects that are alike.

    What a CUDA graph is recorded on does not matter, but for its shape."""
    ready, blank = choice.load().resolve(len(spacing), spacing), torch.zeros(1, *shape)
    return ready, build_for_shape(ready, Sample("blank", blank, blank, spacing), torch.device(device))


def recipe_of(work: MeasureSubject, ready: Method, data: str) -> Recipe:
    """What scores depend on beside the images; the device is part of it, since seconds are among them."""
    weights = None if ready.weights is None else work.method.weights_sha256  # `default` may come to a solver
    asked = {"method": str(ready), "weights": weights, "folds": work.folds, "device": work.device}
    return json_ready({**asked, "data": data, "structures": work.structures, "vrnet": __version__, "commit": commit()})


def subjects_of(pairs: PreparedSplit) -> list[Subject]:
    """The subjects of a split as those of a cohort: a name that cannot be a folder's is changed, and numbered."""
    return [
        Subject(
            name if is_folder_name(name) else f"{number:06d}_{safe_name(name)}",
            {},
            carried=(name,),
            values={"sample": pairs.identity(name)},
        )
        for number, name in enumerate(pairs.names, start=1)
    ]


def sample_name(subject: Subject) -> str:
    """What a subject is called in its data set."""
    return subject.carried[0]


def tell(plan: Plan, say: Callable[[str], None]) -> None:
    """Say what an earlier run has done, and what of it does not count."""
    if plan.done:
        say(f"{counted(len(plan.done), 'subject')} measured already, {len(plan.to_do(retry=True)):,} to do.")
    for change, number in plan.changes.items():
        say(f"{counted(number, 'subject')} to measure again: {change}.")


def run_plan(task: Task, plan: Plan, jobs: int, tick: Callable[[float], None]) -> None:
    """Measure the subjects that are to do."""
    subjects, done = plan.to_do(retry=True), len(plan.done)
    try:
        with open_folder(task.folder, task.recipe), open_executor(len(subjects), jobs) as executor:
            run_tasks(task, subjects, executor, lambda tally: tick(1 - tally.left / max(done + len(subjects), 1)))
    finally:
        build_once.cache_clear()


def read_results(task: Task, subjects: list[Subject]) -> tuple[list[Row], list[Row], dict[str, str]]:
    """The rows of subjects that are done, after and before registration, in their order, and {name: reason} of those
    that could not be measured; BadInput if none is done, or another run is at some."""
    survey = Survey(task.folder, task.recipe)
    found = [(one, survey.state(one)) for one in subjects]
    done = [state.record["row"] for _, state in found if state.kind == "done"]
    failed = {sample_name(one): state.why for one, state in found if state.kind == "failed"}
    if left := len(subjects) - len(done) - len(failed):
        raise BadInput(
            f"another run is at {counted(left, 'subject')} of {task.folder.path}: start again when it has ended"
        )
    if not done:
        name, reason = next(iter(failed.items()))
        raise BadInput(f"no subject of {len(failed):,} could be measured, such as {name}: {reason}")
    after, before = ([restore(row[part]) for row in done] for part in ("after", "before"))
    return after, before, failed


def restore(row: Mapping[str, Any]) -> Row:
    """A row as it was before it was written, when what is None now was NaN."""
    return {name: np.nan if value is None else value for name, value in row.items()}
