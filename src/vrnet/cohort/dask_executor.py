"""Tasks run by Dask, on whatever cluster there is.

Dask only hands out the work. Should a worker, the scheduler or this process end at any moment, the folder of the cohort
says what is done. A subject whose worker dies is tried elsewhere; one that does so several times is an error."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from math import inf
from queue import Empty, SimpleQueue
from time import perf_counter
from typing import TYPE_CHECKING

from vrnet.cohort.state import Survey
from vrnet.cohort.table import Subject
from vrnet.cohort.task import Outcome, Task
from vrnet.errors import BadInput

if TYPE_CHECKING:
    from distributed import Client, Future

LOOK_SECONDS = 1.0
"""Between two looks at a cluster that finishes nothing."""
BATCH_SECONDS, MAX_BATCH = 1.0, 64
"""Quick subjects are handed out together: about so long, and so many at most, since handing out costs milliseconds."""
RESULT_SECONDS = 10.0
"""How long the outcomes of a batch that has ended may take to arrive."""


class DaskExecutor:
    """Tasks run by the workers of a cluster; `renew` starts processes again that were lost, where we may."""

    def __init__(self, client: "Client", place: str, renew: Callable[[], None] = lambda: None) -> None:
        self.client, self.place, self.renew = client, place, renew
        self._looked, self._workers = -inf, 0

    @property
    def workers(self) -> int:
        """The threads of all workers as of the last second, since asking a hundred of them takes long; 0 while there
        is none, or the scheduler is away."""
        if perf_counter() - self._looked > LOOK_SECONDS or not self._workers:
            self._workers = self.count_workers()
            self._looked = perf_counter()
        return self._workers

    def count_workers(self) -> int:
        """The threads of all workers now."""
        with suppress(Exception):
            return sum(worker["nthreads"] for worker in self.client.scheduler_info(n_workers=-1)["workers"].values())
        return 0

    def map(self, task: Task, subjects: Sequence[Subject]) -> Iterator[Outcome | None]:
        """The outcome of each subject, as they come; None about every second."""
        flight = Flight(self.client, task, iter(subjects))
        try:
            flight.fill(self.workers)
            while flight.batches or flight.alone:
                self.check_scheduler()
                outcomes = flight.land()
                if not outcomes:
                    self.renew()
                yield from outcomes or (None,)
                flight.fill(self.workers)
        finally:
            flight.cancel()

    def check_scheduler(self) -> None:
        """BadInput if the scheduler went away and did not come back."""
        if self.client.status in ("closing", "closed"):
            raise BadInput(f"{self.place} went away: start it again, then this command: what is done stays done")


class Flight:
    """The batches that the cluster has, and the subjects that it does not have yet."""

    def __init__(self, client: "Client", task: Task, waiting: Iterator[Subject]) -> None:
        self.client, self.task, self.waiting = client, task, waiting
        self.batches: dict[str, tuple[Future, list[Subject]]] = {}
        self.landed: SimpleQueue[Future] = SimpleQueue()
        self.alone: deque[Subject] = deque()
        """Subjects of batches that were lost, each to be handed out alone."""
        self.size = 1

    def fill(self, threads: int) -> None:
        """Hand out one batch per thread. One that waits in a worker would be blamed, too, for its death."""
        while len(self.batches) < max(threads, 1):
            batch = [self.alone.popleft()] if self.alone else list(islice(self.waiting, self.size))
            if not batch:
                return
            self.submit(batch)

    def submit(self, batch: list[Subject]) -> None:
        future = self.client.submit(run_batch, self.task, batch, pure=False)
        self.batches[future.key] = future, batch
        future.add_done_callback(self.landed.put)

    def land(self) -> list[Outcome]:
        """The outcomes of the next batch that ends; none if no batch ends for a while."""
        try:
            future = self.landed.get(timeout=LOOK_SECONDS)
        except Empty:
            self.resubmit_lost()
            return []
        _, batch = self.batches.pop(future.key, (None, []))
        try:
            outcomes: list[Outcome] = future.result(timeout=RESULT_SECONDS)
        except Exception as error:  # whatever the work raised is in the outcomes: this is of the cluster
            return self.take_apart(batch, error)
        self.resize(outcomes)
        return outcomes

    def take_apart(self, batch: list[Subject], error: Exception) -> list[Outcome]:
        """Have the subjects of a batch handed out alone, after its workers died several times, or outcomes were lost.

        One that was alone is a failure then, unless it is done: its worker may have died after that."""
        from distributed import KilledWorker

        if isinstance(error, KilledWorker) and len(batch) == 1:
            if Survey(self.task.folder, self.task.recipe).state(batch[0]).kind == "done":
                return [Outcome(batch[0].name, "done")]
            reason = "the process that did it died several times: too little memory?"
            return [Outcome(batch[0].name, "failed", 0.0, reason, is_recorded=False)]
        self.alone.extend(batch)
        return []

    def resubmit_lost(self) -> None:
        """Hand out again what a scheduler that was started anew knows nothing of."""
        lost = [key for key, (future, _) in self.batches.items() if future.status in ("lost", "cancelled")]
        if self.client.status == "running":
            for key in lost:
                self.submit(self.batches.pop(key)[1])

    def resize(self, outcomes: Sequence[Outcome]) -> None:
        """Make the next batches as large as takes about BATCH_SECONDS."""
        mean = sum(outcome.seconds for outcome in outcomes) / len(outcomes)
        self.size = min(max(1, int(BATCH_SECONDS / max(mean, 1e-3))), 2 * self.size, MAX_BATCH)

    def cancel(self) -> None:
        """Take back what is handed out; what is under way ends by itself, and is kept."""
        with suppress(Exception):
            if self.batches and self.client.status == "running":
                self.client.cancel([future for future, _ in self.batches.values()], force=True)


def run_batch(task: Task, subjects: Iterable[Subject]) -> list[Outcome]:
    """Do some subjects, one after the other, in a worker."""
    choose_gpu()
    return [task(one) for one in subjects]


def choose_gpu() -> None:
    """Give the workers of a machine with several GPUs one each, in turn; before CUDA is first used."""
    from distributed import get_worker

    if "CUDA_VISIBLE_DEVICES" in os.environ:
        return
    with suppress(ValueError, TypeError):  # a worker whose name is no number
        import torch

        number, gpus = int(get_worker().name), torch.cuda.device_count()
        if gpus > 1:
            torch.cuda.set_device(number % gpus)
