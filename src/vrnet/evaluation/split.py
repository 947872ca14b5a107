"""Measure a method on the subjects of a split: metrics.csv has one row per subject, summary.json their means.
FOLDER/subjects/NAME/done.json keeps each as soon as it is done; a run goes on from there, and measures a subject again
where the method, its parameters, the code or the images are others."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from vrnet.cohort.results import CohortFolder, Recipe, Survey, make_plan
from vrnet.cohort.run import Task, check_jobs, open_executor, run_tasks
from vrnet.cohort.table import Subject, is_folder_name
from vrnet.data.prepared import PreparedSplit, safe_name
from vrnet.data.protocols import Sample
from vrnet.devices import CPU, capture_graph, find_device, threads_for
from vrnet.errors import BadInput, Stage, counted
from vrnet.evaluation.metrics import batch_regularity, contour_hausdorff, dice, nan_mean
from vrnet.evaluation.pair import motion_error
from vrnet.fields.calculus import check_finite, warp_labels, zeros
from vrnet.fields.folds import unfold
from vrnet.files import Row, check_set, columns_of, json_ready, replace_set, write_json, write_rows
from vrnet.methods.method import Method
from vrnet.methods.names import MethodSpec
from vrnet.methods.weights import warn_if_far
from vrnet.networks.denoisers import Noise
from vrnet.provenance import __version__, commit, provenance
from vrnet.registration.channels import LABELS_MATCHED, ImageChannels
from vrnet.variational.cascade import Initializer
from vrnet.vocabulary import Channels, Folds

INTENSITIES_ALONE = ImageChannels()


def measure_subject(
    sample: Sample, find: Initializer, structures: Mapping[str, int], device: torch.device = CPU,
    folds: Folds = "keep", channels: ImageChannels = INTENSITIES_ALONE,
) -> Row:  # fmt: skip
    """The scores of one subject, each the mean over its pairs, and seconds per pair: overlaps where both have labels,
    the end-point error where the motion is known, of labelled voxels if fixed has labels."""
    start = perf_counter()
    with torch.inference_mode():
        L0, L1, h = sample.fixed_labels, sample.moving_labels, sample.spacing
        labels = None if L0 is None or L1 is None else (L0.to(device), L1.to(device))
        images = channels.beside_pair(sample.fixed.to(device), sample.moving.to(device), h, labels)
        pairs = zip(*images, strict=True)
        u = torch.cat([find(I0[None], I1[None], h) for I0, I1 in pairs])
        check_finite(u, sample.name)
        u = (unfold(u).field if folds == "repair" else u).cpu()
    seconds = (perf_counter() - start) / len(sample.fixed)
    scores = subject_overlaps(sample, u, structures) | batch_regularity(u)
    if sample.field is not None:
        inside = None if sample.fixed_labels is None else sample.fixed_labels[:, 0].numpy() > 0
        found, true = (field.movedim(1, 0).numpy() for field in (u, sample.field))
        errors = motion_error(found, true, sample.spacing, inside)
        scores["end_point_error_mm"] = errors["end_point_error_mm_after"]
    return {"subject": sample.name, **scores, "seconds": seconds}


def subject_overlaps(sample: Sample, u: Float[Tensor, "b d *s"], structures: Mapping[str, int]) -> dict[str, float]:
    """dice_NAME and hd_NAME of each structure, once the moving labels are warped by the fields u: the mean over pairs
    that have the structure; and the means over structures. None without labels."""
    if sample.fixed_labels is None or sample.moving_labels is None:
        return {}
    masks = sample.fixed_labels[:, 0].numpy(), warp_labels(sample.moving_labels, u)[:, 0].numpy()
    found = {}
    for kind, measure in (("dice", dice), ("hd", lambda a, b: contour_hausdorff(a, b, sample.spacing))):
        for name, label in structures.items():
            values = [measure(a == label, b == label) for a, b in zip(*masks, strict=True)]
            found[f"{kind}_{name}"] = nan_mean(values)
        found[f"{kind}_mean"] = nan_mean([found[f"{kind}_{name}"] for name in structures])
    return found


def summarise(rows: list[Row]) -> dict[str, dict[str, float]]:
    """{column: {"mean", "std"}} over the subjects that have a value there."""
    found = {}
    for key in [column for column in columns_of(rows) if column != "subject"]:
        values = [value for row in rows if not np.isnan(value := row.get(key, np.nan))] or [np.nan]
        found[key] = {"mean": float(np.mean(values)), "std": float(np.std(values))}
    return found


METRICS, SUMMARY = "metrics.csv", "summary.json"


def evaluate_split(
    stage: Stage, method: MethodSpec, pairs: PreparedSplit, folder: Path, device: str = "cpu", folds: Folds = "keep", *,
    channels: Channels = "auto", jobs: int = 1, say: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:  # fmt: skip
    """Measure a method on every subject of a split, repairs included in the time; write metrics.csv and summary.json,
    and return the latter, with subjects that failed. `jobs` processes share the subjects, with one thread each; `say`
    is told what an earlier run left."""
    check_jobs(jobs)
    check_set(folder, (METRICS, SUMMARY))
    first = pairs.samples[0]
    ready = method.load().resolve(len(first.spacing), first.spacing)
    place = find_device(device, ready.devices)
    ready.build(len(first.spacing))  # which fails at once if it is for another dimension
    warn_if_far(ready, first.spacing)
    seen = ImageChannels.of(ready, channels, len(first.spacing), first.spacing)
    work = MeasureSubject(method, pairs.read, dict(pairs.structures), place.type, folds, seen.kind)
    weights = None if ready.weights is None else method.weights_sha256  # `default` may come to a solver
    recipe: Recipe = json_ready(  # what scores depend on beside the images; seconds are among them, so the device too
        {"method": str(ready), "weights": weights, "folds": folds, "channels": seen.kind,
         "device": place.type, "data": pairs.data,
         "structures": work.structures, "vrnet": __version__, "commit": commit()}
    )  # fmt: skip
    subjects = []
    for number, name in enumerate(pairs.names, start=1):  # carried: what it is called in its data set
        own = name if is_folder_name(name) else f"{number:06d}_{safe_name(name)}"
        subjects.append(Subject(own, {}, carried=(name,), values={"sample": pairs.identity(name)}))
    task = Task(CohortFolder(folder.absolute()), work, recipe)
    plan = make_plan(task.folder, subjects, recipe)
    to_do = plan.to_do(retry=True)
    if plan.done:
        say(f"{counted(len(plan.done), 'subject')} measured already, {len(to_do):,} to do.")
    for change, number in plan.changes.items():
        say(f"{counted(number, 'subject')} to measure again: {change}.")
    tick = stage(f"{ready} on {counted(len(subjects), 'subject')}")
    try:
        with open_executor(len(to_do), jobs) as executor:
            task.folder.make(ended={one.name for one in (*plan.done, *plan.failed)})
            run_tasks(task, to_do, executor, lambda tally: tick(1 - tally.left / max(len(plan.done) + len(to_do), 1)))
    finally:
        build_once.cache_clear()
    rows, before, failed = read_results(task, subjects)
    summary: dict[str, Any] = {
        "method": str(ready), "weights": ready.weights, "data": pairs.data, "split": pairs.split, "folds": folds,
        "channels": seen.kind, **({"labels": LABELS_MATCHED} if seen.kind == "labels" else {}),
        "subjects": len(rows), "metrics": summarise(rows), "before": summarise(before), "provenance": provenance(place),
        **({"failed": failed} if failed else {}),
    }  # fmt: skip
    with replace_set(folder, (METRICS, SUMMARY)) as staged:
        write_rows(rows, staged / METRICS)
        write_json(summary, staged / SUMMARY)
    return summary


@dataclass(frozen=True)
class MeasureSubject:
    """Measure a method on one subject. There are no files: the row is the result."""

    method: MethodSpec
    read: Callable[[str], Sample]
    structures: dict[str, int]
    device: str
    folds: Folds
    channels: Channels

    def __call__(self, subject: Subject, folder: Path) -> Row:
        sample = self.read(subject.carried[0])
        shape = tuple(sample.fixed.shape[1:])
        method, find, channels = build_once(self.method, self.device, shape, sample.spacing, self.channels)
        with threads_for(method.is_network, sample.fixed[0].numel()):
            after = measure_subject(sample, find, self.structures, torch.device(self.device), self.folds, channels)
            before = subject_overlaps(sample, zeros(sample.fixed), self.structures)
            return {"after": after, "before": {"subject": sample.name, **before}}


@lru_cache(maxsize=1)
def build_once(
    choice: MethodSpec, device: str, shape: tuple[int, ...], spacing: tuple[float, ...], channels: Channels
) -> tuple[Method, Initializer, ImageChannels]:
    """The method, and what finds the field of a pair of this shape and spacing, built once for subjects that are alike:
    a network on a GPU is recorded as a CUDA graph, which works for one shape alone."""
    ready = choice.load().resolve(len(spacing), spacing)
    find = ready.build(len(spacing), torch.device(device))
    seen = ImageChannels.of(ready, channels, len(spacing), spacing)
    is_random = isinstance(find, nn.Module) and any(isinstance(part, Noise) for part in find.modules())
    if device != "cuda" or not ready.is_network or is_random:
        return ready, find, seen
    with torch.inference_mode():
        blank = torch.zeros(1, 1 + seen.count, *shape[1:], device=device)
        replay = capture_graph(lambda I0, I1: find(I0, I1, spacing), blank, blank)
    return ready, lambda I0, I1, spacing=None, masks=None: replay(I0, I1).clone(), seen


def read_results(task: Task, subjects: list[Subject]) -> tuple[list[Row], list[Row], dict[str, str]]:
    """The rows of subjects that are done, after and before registration, in their order, and {name: reason} of those
    that could not be measured; BadInput if none is done, or another run is at some."""
    survey = Survey(task.folder, task.recipe)
    found = [(one, survey.state(one)) for one in subjects]
    done = [state.record.row for _, state in found if state.kind == "done"]
    failed = {one.carried[0]: state.why for one, state in found if state.kind == "failed"}
    if left := len(subjects) - len(done) - len(failed):
        raise BadInput(f"another run is at {counted(left, 'subject')} of {task.folder.path}: wait until it has ended")
    if not done:
        name, reason = next(iter(failed.items()))
        raise BadInput(f"no subject of {len(failed):,} could be measured, such as {name}: {reason}")

    def rows(part: str) -> list[Row]:  # what is None in the file was NaN
        return [{name: np.nan if value is None else value for name, value in row[part].items()} for row in done]

    return rows("after"), rows("before"), failed
