"""Tasks run by Dask: in processes of this machine, or on a cluster that is there already.

Dask only hands out the work. Should a worker, the scheduler or this process end at any moment, the folder of the cohort
says what is done. A subject whose worker dies is tried elsewhere; one that does so several times is an error."""

import logging
import os
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from math import inf
from multiprocessing import resource_tracker
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import current_thread, main_thread
from time import perf_counter
from typing import TYPE_CHECKING, Any

from vrnet.cohort.state import Survey
from vrnet.cohort.table import Subject
from vrnet.cohort.task import Outcome, Task
from vrnet.errors import BadInput

if TYPE_CHECKING:
    from distributed import Client, Future

CONNECT_SECONDS = 30.0
"""How long a scheduler may take to answer, or to come back."""
LOOK_SECONDS = 1.0
"""Between two looks at a cluster that finishes nothing."""
START_SECONDS = 120.0
"""How long the first process may take to start; on a busy machine that is many times what it takes on an idle one."""
RESTART_SECONDS = 30.0
"""How long a process may take to start again, before another is started in its place."""
BATCH_SECONDS, MAX_BATCH = 1.0, 64
"""Quick subjects are handed out together: about so long, and so many at most, since handing out costs milliseconds."""
RESULT_SECONDS = 10.0
"""How long the outcomes of a batch that has ended may take to arrive."""
ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "ITK_GLOBAL_DEFAULT_NUMBER_OF_THREADS"), "1"
)
"""Each job computes with one thread, so that they do not fight for cores."""

UNWATCHED = {
    "distributed.worker.profile.enabled": False,
    "distributed.admin.tick.interval": "1s",
    "distributed.admin.system-monitor.interval": "5s",
}
"""Dask's looks at its own processes, a hundred in a second, took a tenth of the time that they compute in."""


@contextmanager
def local_cluster(jobs: int) -> Iterator["DaskExecutor"]:
    """So many processes of this machine, each with one thread; one that dies is started again."""
    distributed = import_distributed()
    settings = {
        "distributed.nanny.pre-spawn-environ": ONE_THREAD,
        "distributed.worker.multiprocessing-method": "spawn",
        "distributed.comm.timeouts.connect": f"{CONNECT_SECONDS}s",
        "distributed.deploy.lost-worker-timeout": f"{RESTART_SECONDS}s",
        **UNWATCHED,
    }
    with (
        quiet_logs(),
        distributed_settings(settings),
        one_interrupt() as ignore_more,
        open_cluster(distributed) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        try:
            cluster.scale(jobs)
            wait_for_one(client, jobs)
            yield DaskExecutor(client, f"the {jobs} processes here", lambda: cluster.scale(jobs))
        finally:
            ignore_more()


@contextmanager
def one_interrupt() -> Iterator[Callable[[], None]]:
    """A function from whose call on Ctrl-C is ignored: processes that are being ended need some seconds for it, and an
    impatient second one would leave them, and what they were writing, behind."""
    before = signal.getsignal(signal.SIGINT)
    is_main = current_thread() is main_thread()  # no other thread may say what becomes of signals

    def ignore_more() -> None:
        if is_main:
            signal.signal(signal.SIGINT, signal.SIG_IGN)

    try:
        yield ignore_more
    finally:
        if is_main:
            signal.signal(signal.SIGINT, before)


def open_cluster(distributed: Any) -> Any:
    """A cluster of this machine, without processes yet. Those that it starts are deaf to Ctrl-C, which a terminal sends
    to all of them: this process ends them, and they have nothing to say.

    What a thread blocks is blocked in the threads and processes that come of it, and this starts the thread that will
    start them."""
    silent = {"dashboard_address": ":0", "silence_logs": logging.CRITICAL}
    resource_tracker.ensure_running()  # the thread that starts it would hear of Ctrl-C again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        return distributed.LocalCluster(n_workers=0, threads_per_worker=1, memory_limit=0, **silent)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def wait_for_one(client: "Client", jobs: int) -> None:
    """Wait for the first of the processes; BadInput if none comes."""
    try:
        client.wait_for_workers(1, timeout=START_SECONDS)
    except TimeoutError as error:
        raise BadInput(f"{jobs} processes cannot be started here: choose fewer jobs, or start again") from error


@contextmanager
def existing_cluster(address: str) -> Iterator["DaskExecutor"]:
    """A cluster whose scheduler is at an address such as tcp://host:8786, or wrote one in a file."""
    distributed = import_distributed()
    is_file = "://" not in address and (address.endswith(".json") or Path(address).exists())
    where = {"scheduler_file": address} if is_file else {"address": address}
    if is_file and not Path(address).exists():
        raise BadInput(f"there is no {address}: start the scheduler with that scheduler file first")
    with quiet_logs():
        try:
            client = distributed.Client(**where, timeout=CONNECT_SECONDS, set_as_default=False)
        except (OSError, ValueError, TimeoutError) as error:
            raise BadInput(f"no Dask scheduler answers at {address}: check that it runs, and its address") from error
        with client:
            yield DaskExecutor(client, f"the scheduler at {address}")


def import_distributed() -> Any:
    try:
        import distributed
    except ImportError as error:
        raise BadInput(
            "several jobs need Dask: pip install 'vrnet[cluster]' (in a checkout, -e '.[cluster]')"
        ) from error
    return distributed


@contextmanager
def distributed_settings(settings: dict[str, Any]) -> Iterator[None]:
    """Settings of Dask meanwhile."""
    import dask

    with dask.config.set(settings):
        yield


@contextmanager
def quiet_logs() -> Iterator[None]:
    """Dask tells of every connection that ends; what matters is told by the run."""
    names = [name for name in logging.root.manager.loggerDict if name.partition(".")[0] == "distributed"]
    levels = {logger: logger.level for logger in map(logging.getLogger, names)}
    for logger in levels:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in levels.items():
            logger.setLevel(level)


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

        One that was alone is an error then, unless it is done: its worker may have died after that."""
        from distributed import KilledWorker

        if isinstance(error, KilledWorker) and len(batch) == 1:
            if Survey(self.task.folder, self.task.recipe).state(batch[0]).kind == "done":
                return [Outcome(batch[0].name, "done")]
            reason = "the process that did it died several times: too little memory?"
            return [Outcome(batch[0].name, "error", 0.0, reason, is_recorded=False)]
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
