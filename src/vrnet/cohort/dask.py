"""Tasks run by Dask, on whatever cluster there is.

Dask only hands out the work. Should a worker, the scheduler or this process end at any moment, the folder of the cohort
says what is done. A subject whose outcome does not come is tried again, alone and after all others; after three
attempts it is a failure."""

import logging
import os
import pickle
import platform
import signal
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import ExitStack, contextmanager, suppress
from itertools import islice
from math import inf
from multiprocessing import resource_tracker
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import current_thread, main_thread
from time import perf_counter
from typing import TYPE_CHECKING, Any, no_type_check

from vrnet.cohort.run import Outcome, Survey, Task, reason_of, share_run
from vrnet.cohort.table import Subject
from vrnet.errors import BadInput
from vrnet.files import read_json
from vrnet.provenance import how_to_install

if TYPE_CHECKING:
    from distributed import Client, Future


# Workers of a Dask cluster that can do nothing: they lack vrnet, have another version, or do not see the files.
#
# Such a worker ends every batch at once, and so would be given all of them. It is stopped after two in turn. If all are
# so from the beginning, the run ends and says what is wrong.

MAX_STRIKES = 2
"""Batches in turn that a worker may fail to do. Fewer than the attempts at a subject, so that one bad machine makes no
subject a failure."""
MIN_BATCHES_LOST = 3
"""Before a cluster is taken for one that can do nothing."""


class WorkerWatch:
    """What the workers of a cluster were able to do so far."""

    def __init__(self, client: "Client", place: str) -> None:
        self.client, self.place = client, place
        self.strikes: Counter[str] = Counter()
        """By the address of a worker: batches that it could not do since the last that it could."""
        self.stopped: dict[str, str] = {}
        """Why workers get no more work, by address."""
        self.lost = self.lost_nowhere = 0
        """Batches that no worker was able to do; and those of them of which nobody knows where."""
        self.has_worked = False

    def succeed(self, worker: str) -> None:
        """A worker did a batch."""
        self.has_worked = True
        self.strikes.pop(worker, None)

    def strike(self, workers: Iterable[str], reason: str) -> None:
        """Workers could not do a batch. BadInput if there is none that can, as far as can be known."""
        workers = tuple(workers)
        self.lost += 1
        self.lost_nowhere += not workers
        for worker in workers:
            self.strikes[worker] += 1
            if self.strikes[worker] >= MAX_STRIKES:
                self.stop(worker, reason)
        here = self.addresses()
        if here is None:
            return
        all_struck = bool(here) and here <= self.strikes.keys()
        is_hopeless = self.lost >= MIN_BATCHES_LOST and (all_struck or self.lost_nowhere >= MIN_BATCHES_LOST)
        is_empty = bool(self.stopped) and not here - self.stopped.keys()
        if self.has_worked and is_empty:
            raise BadInput(f"all workers of {self.place} had to be stopped: {reason}: what is done stays done")
        if not self.has_worked and (is_hopeless or is_empty):
            raise BadInput(f"no worker of {self.place} can do anything: {reason}")

    def stop(self, worker: str, reason: str) -> None:
        """Have a worker end, and remember why."""
        if worker not in self.stopped:
            self.stopped[worker] = reason
            with suppress(Exception):  # it may have ended by itself
                self.client.retire_workers([worker])

    def addresses(self) -> set[str] | None:
        """The workers that there are; None while the scheduler is away, and nobody knows."""
        with suppress(Exception):
            found = set(self.client.scheduler_info(n_workers=-1)["workers"])
            return found if self.client.status == "running" else None
        return None


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


# Clusters of Dask: processes of this machine, or a cluster that is there already.

CONNECT_SECONDS = 30.0
"""How long a scheduler may take to answer, or to come back."""
RESTART_SECONDS = 30.0
"""How long a process may take to start again, before another is started in its place."""
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
def local_cluster(jobs: int) -> Iterator[DaskExecutor]:
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
        open_cluster(distributed, jobs) as cluster,
        closing_anyhow(distributed.Client(cluster, set_as_default=False)) as client,
    ):
        try:
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


@contextmanager
def open_cluster(distributed: Any, jobs: int) -> Iterator[Any]:
    """A cluster of processes that are deaf to Ctrl-C, which a terminal sends to all of them: this process ends them,
    and they have nothing to say.

    What a thread blocks is blocked in the threads and processes that come of it. So Ctrl-C waits until they run."""
    resource_tracker.ensure_running()  # the thread that starts it would hear of Ctrl-C again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        with closing_anyhow(start_processes(distributed, jobs)) as cluster:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            yield cluster
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def closing_anyhow(server: Any) -> Iterator[Any]:
    """Close a cluster, or a client, at the end. What goes wrong then is no failure of the run, whose results are in
    their places: on a busy machine, a process takes longer to end than Dask waits for it."""
    try:
        yield server
    finally:
        with suppress(Exception):
            server.close()


def start_processes(distributed: Any, jobs: int) -> Any:
    """A cluster of processes of this machine; BadInput if they end before they have begun."""
    silent = {"dashboard_address": ":0", "silence_logs": logging.CRITICAL}
    try:
        return distributed.LocalCluster(n_workers=jobs, threads_per_worker=1, memory_limit=0, **silent)
    except RuntimeError as error:
        raise BadInput(f"{jobs} processes cannot be started here: choose fewer jobs, or start again") from error


@contextmanager
def existing_cluster(address: str) -> Iterator[DaskExecutor]:
    """A cluster whose scheduler is at an address such as tcp://host:8786, or wrote one in a file."""
    distributed = import_distributed()
    is_file = "://" not in address and (address.endswith(".json") or Path(address).exists())
    where = {"scheduler_file": address} if is_file else {"address": address}
    if is_file:
        check_scheduler_file(Path(address))
    with quiet_logs():
        try:
            client = distributed.Client(**where, timeout=CONNECT_SECONDS, set_as_default=False)
        except (OSError, ValueError, TimeoutError) as error:
            raise BadInput(f"no Dask scheduler answers at {address}: check that it runs, and its address") from error
        with closing_anyhow(client):
            yield DaskExecutor(client, f"the scheduler at {address}")


def check_scheduler_file(path: Path) -> None:
    """BadInput unless a file names the address of a scheduler."""
    if not path.exists():
        raise BadInput(f"there is no {path}: start the scheduler with that scheduler file first")
    found = read_json(path)
    if not isinstance(found, dict) or not isinstance(found.get("address"), str):
        raise BadInput(f"{path} names no address of a scheduler: give the file that dask scheduler has written")


def import_distributed() -> Any:
    try:
        import distributed
    except ImportError as error:
        raise BadInput(f"several jobs need Dask: {how_to_install('cluster')}") from error
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
