"""Several runs at once on one device: one network alone leaves most of a large GPU idle.

Each has a stream of its own. Runs of one seed, batch and augmentation see the same pairs at the same step: these are
drawn once. benchmarks/concurrent_runs.py compares this with one process per run, and
results/concurrent_runs_h200.json has what an H200 gave."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

from torch import Tensor

from vrnet.data.prepared import PreparedSplit
from vrnet.devices import Stream, hand_over, on_stream, own_stream, synchronise
from vrnet.errors import BadInput, Progress
from vrnet.training.fit import (
    REPORT_EVERY_SECONDS,
    TrainingJob,
    TrainingLoop,
    TrainingResult,
    begin_loop,
    catch_stop_signals,
    check_job,
    keep_settings,
    launch_fabric,
)
from vrnet.training.pairs import Pairs
from vrnet.training.run import Run

__all__ = ["TrainingJob", "fit_concurrently"]


class SharedDraws:
    """The pairs of the latest step of each seed, batch and augmentation, with labels or without, for all runs that need
    the same."""

    def __init__(self) -> None:
        self.latest: dict[object, tuple[int, Stream | None, tuple[Tensor, ...]]] = {}

    def draw(self, loop: TrainingLoop) -> tuple[Tensor, ...]:
        """The pairs of the next step of a loop, safe to use on its stream, which is the current one."""
        asked = loop.settings
        key = asked.seed, asked.batch, asked.augmentation, asked.uses_labels
        step, drawn_on, pairs = self.latest.get(key, (-1, None, None))
        if pairs is None or step != loop.step:
            pairs = loop.trainer.draw(loop.step)
            self.latest[key] = loop.step, loop.trainer.drawing, pairs
        else:
            hand_over(pairs, drawn_on)
        return pairs


class ConcurrentRun(NamedTuple):
    """A run, and the stream that its work is queued on."""

    loop: TrainingLoop
    stream: Stream | None


def fit_concurrently(
    jobs: Sequence[TrainingJob],
    train: PreparedSplit,
    val: PreparedSplit,
    *,
    device: str = "auto",
    watch: Progress = lambda part: None,
) -> list[TrainingResult]:
    """Train each job as `fit` would, one step of each in turn; a run that was begun goes on.

    Ctrl-C and SIGTERM leave all runs so that they can go on, and raise KeyboardInterrupt. A run that diverges leaves
    the others to finish; then BadInput names it. `watch` hears which part of all steps is done."""
    for job in jobs:
        check_job(job, train, val, resume=True)
    with ExitStack() as locks:
        for job in jobs:
            locks.enter_context(Run(job.folder).lock())
        locks.enter_context(keep_settings())
        return fit_locked(jobs, train, val, device, watch)


def fit_locked(
    jobs: Sequence[TrainingJob], train: PreparedSplit, val: PreparedSplit, device: str, watch: Progress
) -> list[TrainingResult]:
    """Train each job, in folders that nobody else trains in."""
    fabric = launch_fabric(device, 1, 1, jobs[0].settings)
    with_labels = any(job.settings.uses_labels for job in jobs)
    pairs = Pairs.from_split(train, with_labels).move_to(fabric.device)
    val = val.load()  # once for all runs
    runs: list[ConcurrentRun] = []
    for job in jobs:
        with own_stream(fabric.device) as stream:
            runs.append(ConcurrentRun(begin_loop(job, fabric, pairs, train, val), stream))
    failed: dict[Path, str] = {}
    with catch_stop_signals() as stop_requested:
        try:
            run_in_turn(runs, failed, stop_requested, watch)
        finally:
            for loop, stream in unfinished(runs, failed):
                with on_stream(stream):
                    loop.checkpoint()
        if stop_requested():
            raise KeyboardInterrupt
    if failed:
        raise BadInput("\n".join(f"{folder}: {reason}" for folder, reason in failed.items()))
    return [loop.result for loop, _ in runs]


def run_in_turn(
    runs: Sequence[ConcurrentRun], failed: dict[Path, str], stop_requested: Callable[[], bool], watch: Progress
) -> None:
    """Take every step that is left, unless asked to stop; `failed` gets the folders of the runs that diverge."""
    draws, reported = SharedDraws(), perf_counter()
    while (left := unfinished(runs, failed)) and not stop_requested():
        for loop, stream in left:
            with on_stream(stream):
                try:
                    loop.advance(*draws.draw(loop))
                except BadInput as error:
                    failed[loop.folder] = str(error)
        if perf_counter() - reported > REPORT_EVERY_SECONDS:
            synchronise(runs[0].loop.fabric.device)
            watch(sum(loop.step for loop, _ in runs) / sum(loop.settings.steps for loop, _ in runs))
            reported = perf_counter()


def unfinished(runs: Sequence[ConcurrentRun], failed: Mapping[Path, str]) -> list[ConcurrentRun]:
    """The runs that have steps left to take, and have not failed."""
    return [run for run in runs if not run.loop.is_finished and run.loop.folder not in failed]
