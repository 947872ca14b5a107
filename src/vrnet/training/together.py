"""Several runs at once on one device: one network alone leaves most of a large GPU idle.

Each has a stream of its own. Runs of one seed, batch and augmentation see the same pairs at the same step: these are
drawn once."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import torch
from torch import Tensor

from vrnet.data.prepared import Prepared
from vrnet.methods.learned import Learned
from vrnet.networks.capture import Stream, own_stream
from vrnet.training.fit import LOOK_EVERY, Course, Fitted, asked_to_stop, card_of, described, launched
from vrnet.training.pairs import Pairs
from vrnet.training.run import Run
from vrnet.training.settings import Training
from vrnet.training.trainer import Trainer


@dataclass(frozen=True)
class Job:
    """A run to be made: as `fit` would, in this folder."""

    method: Learned
    settings: Training
    folder: Path


class Draws:
    """The pairs of a step, for all who ask for the same."""

    def __init__(self) -> None:
        self.last: dict[object, tuple[int, Stream | None, tuple[Tensor, Tensor]]] = {}

    def of(self, course: Course, stream: Stream | None) -> tuple[Tensor, Tensor]:
        """Those of the course's next step, safe to use on the current stream."""
        settings = course.settings
        key = settings.seed, settings.batch, settings.augmentation
        step, home, pairs = self.last.get(key, (-1, None, None))
        if pairs is None or step != course.done:
            pairs = course.trainer.draw(course.done)
            self.last[key] = course.done, stream, pairs
        elif stream is not None and home is not None:
            stream.wait_stream(home)
            for images in pairs:
                images.record_stream(stream)
        return pairs


def fit_together(
    jobs: Sequence[Job],
    train: Prepared,
    val: Prepared,
    *,
    device: str = "auto",
    watch: Callable[[float], None] = lambda part: None,
) -> list[Fitted]:
    """Train each as `fit` would, a step of each in turn; a run that was begun goes on.

    Ctrl-C and SIGTERM leave all of them to be gone on with. `watch` hears which part of all steps is done."""
    fabric = launched(device, 1, 1, jobs[0].settings)
    pairs, draws = Pairs.of(train).near(fabric.device), Draws()
    courses: list[tuple[Course, Stream | None]] = []
    for job in jobs:
        run, config = Run(job.folder), described(job.method, train, val, job.settings)
        run.check(resume=True)
        run.check_same(config)
        run.begin(config)
        with own_stream(fabric.device) as stream:
            trainer = Trainer(fabric, job.method, pairs, job.settings)
            courses.append((Course(trainer, val, run, card_of(job.method, train, job.settings)), stream))
    looked = perf_counter()
    with asked_to_stop() as is_asked:
        while (left := [item for item in courses if not item[0].is_finished]) and not is_asked():
            for course, stream in left:
                with torch.cuda.stream(stream):
                    course.advance(*draws.of(course, stream))
            if perf_counter() - looked > LOOK_EVERY:
                synchronise(fabric.device)
                watch(sum(course.done for course, _ in courses) / sum(job.settings.steps for job in jobs))
                looked = perf_counter()
        for course, stream in left:
            with torch.cuda.stream(stream):
                course.keep()
    return [course.fitted for course, _ in courses]


def synchronise(device: torch.device) -> None:
    """Wait for all that was asked of a GPU."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
