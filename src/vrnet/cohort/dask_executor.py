"""Tasks run by Dask, on whatever cluster there is.

Dask only hands out the work. Should a worker, the scheduler or this process end at any moment, the folder of the cohort
says what is done. A subject whose outcome does not come is tried again, alone and after all others; after three
attempts it is a failure."""

import os
import pickle
import platform
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import ExitStack, suppress
from itertools import islice
from math import inf
from queue import Empty, SimpleQueue
from time import perf_counter
from typing import TYPE_CHECKING, Any, no_type_check

from vrnet.cohort.dask_workers import WorkerWatch
from vrnet.cohort.runs import share_run
from vrnet.cohort.state import Survey
from vrnet.cohort.table import Subject
from vrnet.cohort.task import Outcome, Task, reason_of
from vrnet.errors import BadInput

if TYPE_CHECKING:
    from distributed import Client, Future

LOOK_SECONDS = 1.0
"""Between two looks at a cluster that finishes nothing."""
BATCH_SECONDS, MAX_BATCH = 1.0, 64
"""Quick subjects are handed out together: about so long, and so many at most, since handing out costs milliseconds."""
RESULT_SECONDS = 10.0
"""How long the outcomes of a batch that has ended may take to arrive."""
MAX_ATTEMPTS = 3
"""At a subject whose outcome does not come, or that its machine cannot do."""
WORKERS_DIED = "the process that did it died several times: too little memory?"
SAME_EVERYWHERE = "install the same vrnet and Python for all workers"


class DaskExecutor:
    """Tasks run by the workers of a cluster; `renew` starts processes again that were lost, where we may."""

    def __init__(self, client: "Client", place: str, renew: Callable[[], None] = lambda: None) -> None:
        self.client, self.place, self.renew = client, place, renew
        self._looked, self._workers = -inf, 0
        self.watch = WorkerWatch(client, place)

    @property
    def stopped(self) -> dict[str, str]:
        """Why workers get no more work, by address."""
        return self.watch.stopped

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
        queue = BatchQueue(self.client, task, iter(subjects), self.watch)
        try:
            queue.fill(self.workers)
            while queue.batches or queue.alone:
                self.check_scheduler()
                outcomes = queue.next_outcomes()
                if not outcomes:
                    self.renew()
                yield from outcomes or (None,)
                queue.fill(self.workers)
        finally:
            queue.cancel()

    def check_scheduler(self) -> None:
        """BadInput if the scheduler went away and did not come back."""
        if self.client.status in ("closing", "closed"):
            raise BadInput(f"{self.place} went away: start it again, then this command: what is done stays done")


class BatchQueue:
    """The batches that the cluster has, and the subjects that it does not have yet."""

    def __init__(self, client: "Client", task: Task, waiting: Iterator[Subject], watch: WorkerWatch) -> None:
        self.client, self.task, self.waiting, self.watch = client, task, waiting, watch
        self.batches: dict[str, tuple[Future, list[Subject]]] = {}
        self.ended: SimpleQueue[Future] = SimpleQueue()
        self.alone: deque[Subject] = deque()
        """Subjects to be tried again, each handed out alone."""
        self.attempts: Counter[str] = Counter()
        """By subject: those that came to nothing."""
        self.unable: defaultdict[str, set[str]] = defaultdict(set)
        """By subject: the workers that could not do it, which may be idle and first to ask for it again."""
        self.size = 1

    def fill(self, threads: int) -> None:
        """Hand out one batch per thread. One that waits in a worker would be blamed, too, for its death."""
        while len(self.batches) < max(threads, 1):
            batch = list(islice(self.waiting, self.size)) or [self.alone.popleft() for _ in range(len(self.alone) > 0)]
            if not batch:
                return
            self.submit(batch)

    def submit(self, batch: list[Subject]) -> None:
        packed = pickle.dumps((run_batch, self.task, batch))
        future = self.client.submit(unpack_and_run(), packed, pure=False, **self.elsewhere(batch))
        self.batches[future.key] = future, batch
        future.add_done_callback(self.ended.put)

    def elsewhere(self, batch: list[Subject]) -> dict[str, Any]:
        """What tells Dask to prefer workers that have not been unable to do this, if there are any."""
        unable = set().union(*(self.unable.get(one.name, ()) for one in batch))
        others = (self.watch.addresses() or set()) - unable if unable else ()
        return {"workers": sorted(others), "allow_other_workers": True} if others else {}

    def next_outcomes(self) -> list[Outcome]:
        """The outcomes of the next batch that ends; none if no batch ends for a while, or all of it is tried again."""
        try:
            future = self.ended.get(timeout=LOOK_SECONDS)
        except Empty:
            self.resubmit_lost()
            return []
        if future.key not in self.batches:  # it was handed out again meanwhile
            return []
        _, batch = self.batches.pop(future.key)
        try:
            worker, answer = future.result(timeout=RESULT_SECONDS)
        except CancelledError:  # by a scheduler that was started anew
            self.alone.extend(batch)
            return []
        except Exception as error:  # whatever the work raised is in the outcomes: this is of the cluster
            return self.lose(batch, error)
        return self.refuse(batch, answer, worker) if isinstance(answer, str) else self.take(batch, answer, worker)

    def lose(self, batch: list[Subject], error: Exception) -> list[Outcome]:
        """Have the subjects of a batch tried again whose outcomes do not come. What failed too often has ended."""
        from distributed import KilledWorker

        is_killed = isinstance(error, KilledWorker)  # Dask has tried it elsewhere, again and again
        reason = WORKERS_DIED if is_killed else reason_of(error)
        self.watch.strike([], reason)
        if is_killed and len(batch) == 1:
            self.attempts[batch[0].name] = MAX_ATTEMPTS
        return [self.end(one, reason) for one in batch if not self.is_tried_again(one)]

    def refuse(self, batch: list[Subject], reason: str, worker: str) -> list[Outcome]:
        """Have a batch done elsewhere that a worker cannot even read."""
        reason = f"what is to do cannot be read there ({reason}): {SAME_EVERYWHERE}"
        return self.take(batch, [Outcome(one.name, "unable", 0.0, reason) for one in batch], worker)

    def is_tried_again(self, subject: Subject) -> bool:
        """Count an attempt that came to nothing, and have another made if there were few."""
        self.attempts[subject.name] += 1
        if self.attempts[subject.name] >= MAX_ATTEMPTS:
            return False
        self.alone.append(subject)
        return True

    def end(self, subject: Subject, reason: str) -> Outcome:
        """The failure of a subject, unless it is done: a worker may die after that."""
        if Survey(self.task.folder, self.task.recipe).state(subject).kind == "done":
            return Outcome(subject.name, "done")
        return Outcome(subject.name, "failed", 0.0, reason, is_recorded=False)

    def take(self, batch: list[Subject], outcomes: list[Outcome], worker: str) -> list[Outcome]:
        """The outcomes of a batch that came, but for those that another worker may better."""
        if any(one.status != "unable" for one in outcomes):
            self.watch.succeed(worker)
            self.resize(outcomes)
        elif any(one.name not in self.attempts for one in batch):  # what others could not do either blames nobody
            self.watch.strike([worker], outcomes[-1].reason)
        by_name = {one.name: one for one in batch}
        for one in outcomes:
            if one.status == "unable":
                self.unable[one.name].add(worker)
        return [one for one in outcomes if one.status != "unable" or not self.is_tried_again(by_name[one.name])]

    def resubmit_lost(self) -> None:
        """Hand out again what a scheduler that was started anew knows nothing of."""
        lost = [key for key, (future, _) in self.batches.items() if future.status in ("lost", "cancelled")]
        if self.client.status == "running":
            for key in lost:
                self.submit(self.batches.pop(key)[1])

    def resize(self, outcomes: Sequence[Outcome]) -> None:
        """Make the next batches as large as takes about BATCH_SECONDS. Failures do not count, which may be quicker than
        what is done."""
        seconds = [outcome.seconds for outcome in outcomes if outcome.status == "done"]
        if not seconds:
            return
        mean = sum(seconds) / len(seconds)
        self.size = min(max(1, int(BATCH_SECONDS / max(mean, 1e-3))), 2 * self.size, MAX_BATCH)

    def cancel(self) -> None:
        """Take back what is handed out; what is under way ends by itself, and is kept."""
        with suppress(Exception):
            if self.batches and self.client.status == "running":
                self.client.cancel([future for future, _ in self.batches.values()], force=True)


def unpack_and_run() -> Callable[[bytes], tuple[str, list[Outcome] | str]]:
    """A function that knows nothing of vrnet, for workers that may not have it: these would be lost otherwise, again
    and again, without a word. It is sent as it is, and not by its name, since it is inside another one.

    It runs a function on arguments, all of them pickled, and returns the address of its worker with what comes of it;
    or with the reason why they cannot be read."""

    @no_type_check
    def run(packed):
        import pickle

        from distributed import get_worker

        address = get_worker().address
        try:
            function, *arguments = pickle.loads(packed)
        except Exception as error:
            return address, f"{type(error).__name__}: {error}"
        return address, function(*arguments)

    return run


def run_batch(task: Task, subjects: Sequence[Subject]) -> list[Outcome]:
    """Do some subjects, one after the other, in a worker. Until its end no run of another recipe may begin, also where
    the one that it is done for has ended. What goes wrong before the first subject is the fault of the machine."""
    with ExitStack() as stack:
        try:
            choose_gpu()
            if task.folder.working.is_dir():
                stack.enter_context(share_run(task.folder, task.recipe))
        except Exception as error:
            reason = f"{platform.node()} cannot begin: {reason_of(error)}"
            return [Outcome(one.name, "unable", 0.0, reason) for one in subjects]
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
