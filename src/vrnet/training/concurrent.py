"""Several runs at once on one device: one network alone leaves most of a large GPU idle.

Each has a stream of its own. Runs of one seed, batch and augmentation see the same pairs at the same step: these are
drawn once."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

from torch import Tensor

from vrnet.data.prepared import PreparedSplit
from vrnet.devices import Stream, hand_over, on_stream, own_stream, synchronise
from vrnet.errors import BadInput
from vrnet.methods.method import Trainable
from vrnet.training.fit import LOOK_EVERY, TrainingLoop, TrainingResult, asked_to_stop, card_of, described, launched
from vrnet.training.pairs import Pairs
from vrnet.training.run import Run
from vrnet.training.settings import Training
from vrnet.training.trainer import Trainer

if TYPE_CHECKING:
    from lightning.fabric import Fabric


@dataclass(frozen=True)
class TrainingJob:
    """A run to be made: as `fit` would, in this folder."""

    method: Trainable
    settings: Training
    folder: Path


class Draws:
    """The pairs of a step, for all who ask for the same."""

    def __init__(self) -> None:
        self.last: dict[object, tuple[int, Stream | None, tuple[Tensor, Tensor]]] = {}

    def of(self, course: TrainingLoop, stream: Stream | None) -> tuple[Tensor, Tensor]:
        """Those of the course's next step, safe to use on the current stream."""
        settings = course.settings
        key = settings.seed, settings.batch, settings.augmentation
        step, home, pairs = self.last.get(key, (-1, None, None))
        if pairs is None or step != course.done:
            pairs = course.trainer.draw(course.done)
            self.last[key] = course.done, stream, pairs
        else:
            hand_over(pairs, home, stream)
        return pairs


class ConcurrentRun(NamedTuple):
    """A run, and the stream that it goes on."""

    course: TrainingLoop
    stream: Stream | None


def fit_concurrently(
    jobs: Sequence[TrainingJob],
    train: PreparedSplit,
    val: PreparedSplit,
    *,
    device: str = "auto",
    watch: Callable[[float], None] = lambda part: None,
) -> list[TrainingResult]:
    """Train each as `fit` would, a step of each in turn; a run that was begun goes on.

    Ctrl-C and SIGTERM leave all of them to be gone on with, and raise KeyboardInterrupt. A run that diverges leaves the
    others to finish; then BadInput names it. `watch` hears which part of all steps is done."""
    fabric = launched(device, 1, 1, jobs[0].settings)
    pairs = Pairs.of(train).near(fabric.device)
    val = val.load()  # every run validates on it, many times
    lanes = [begun(job, fabric, pairs, train, val) for job in jobs]
    failed: dict[Path, str] = {}
    with asked_to_stop() as is_asked:
        try:
            taken_in_turn(lanes, failed, is_asked, watch)
        finally:
            for course, stream in unfinished(lanes, failed):
                with on_stream(stream):
                    course.keep()
        if is_asked():
            raise KeyboardInterrupt
    if failed:
        raise BadInput("\n".join(f"{folder}: {why}" for folder, why in failed.items()))
    return [course.fitted for course, _ in lanes]


def begun(job: TrainingJob, fabric: "Fabric", pairs: Pairs, train: PreparedSplit, val: PreparedSplit) -> ConcurrentRun:
    """The run of a job, ready for its next step."""
    run, config = Run(job.folder), described(job.method, train, val, job.settings)
    run.check(resume=True)
    run.check_same(config)
    run.begin(config)
    with own_stream(fabric.device) as stream:
        trainer = Trainer(fabric, job.method, pairs, job.settings)
        return ConcurrentRun(TrainingLoop(trainer, val, run, card_of(job.method, train, job.settings)), stream)


def taken_in_turn(
    lanes: Sequence[ConcurrentRun],
    failed: dict[Path, str],
    is_asked: Callable[[], bool],
    watch: Callable[[float], None],
) -> None:
    """Every step that is left, unless asked to stop."""
    draws, looked = Draws(), perf_counter()
    while (left := unfinished(lanes, failed)) and not is_asked():
        for course, stream in left:
            with on_stream(stream):
                try:
                    course.advance(*draws.of(course, stream))
                except BadInput as error:
                    failed[course.run.folder] = str(error)
        if perf_counter() - looked > LOOK_EVERY:
            synchronise(lanes[0].course.fabric.device)
            watch(sum(lane.course.done for lane in lanes) / sum(lane.course.settings.steps for lane in lanes))
            looked = perf_counter()


def unfinished(lanes: Sequence[ConcurrentRun], failed: Mapping[Path, str]) -> list[ConcurrentRun]:
    """Those that have steps left to take."""
    return [lane for lane in lanes if not lane.course.is_finished and lane.course.run.folder not in failed]
