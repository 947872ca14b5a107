"""Tasks run by Dask: by processes of this machine, or by the workers of a cluster that is there already.

Dask hands out the work, and hands it out again where a worker dies. Should a worker, the scheduler or this process end
at any moment, the folder of the cohort says what is done."""

import logging
import os
import pickle
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import current_thread, main_thread
from typing import TYPE_CHECKING, Any, no_type_check

from vrnet.cohort.run import Executor, Outcome, Task, reason_of
from vrnet.cohort.table import Subject
from vrnet.errors import BadInput
from vrnet.files import read_json
from vrnet.provenance import how_to_install

if TYPE_CHECKING:
    from distributed import Client, Future

BATCHES_PER_THREAD, MAX_BATCH = 50, 64
"""Subjects are handed out together where there are many, since handing out costs milliseconds."""
LOOK_SECONDS = 1.0
"""Between two looks at a cluster that finishes nothing."""
RESULT_SECONDS = 10.0
"""How long the outcomes of a batch that has ended may take to arrive."""
MAX_TRIES = 3
"""At a subject whose outcome does not come, or that its machine cannot do."""
MAX_STRIKES = 2
"""Batches in turn that a worker may be unable to do. It ends them at once, and so would be given all of them."""
WORKERS_DIED = "the process that did it died several times: too little memory?"
SAME_EVERYWHERE = "install the same vrnet and Python for all workers"


class DaskExecutor(Executor):
    """Tasks run by the workers of a cluster; `renew` starts processes again that were lost, where we may."""

    def __init__(self, client: "Client", place: str, renew: Callable[[], object] = lambda: None) -> None:
        self.client, self.place, self.renew = client, place, renew
        self.stopped: dict[str, str] = {}
        self.strikes: Counter[str] = Counter()
        """By address: batches that a worker was unable to do since the last that it could."""
        self.has_worked = False
        self.workers = sum(self.threads().values())

    def threads(self) -> dict[str, int]:
        """By the address of each worker; none while the scheduler is away."""
        with suppress(Exception):
            found = self.client.scheduler_info(n_workers=-1)["workers"]
            return {address: worker["nthreads"] for address, worker in found.items()}
        return {}

    def map(self, task: Task, subjects: Sequence[Subject]) -> Iterator[Outcome | None]:
        """The outcome of each subject, as they come; None about every second. BadInput if the scheduler goes away, or
        no worker can do anything."""
        self.ended: SimpleQueue[Future] = SimpleQueue()
        self.under_way: dict[str, tuple[Future, list[Subject]]] = {}
        tries: Counter[str] = Counter()
        size = min(max(1, len(subjects) // (BATCHES_PER_THREAD * max(self.workers, 1))), MAX_BATCH)
        self.submit(task, [list(subjects[k : k + size]) for k in range(0, len(subjects), size)])
        try:
            while self.under_way:
                try:
                    future = self.ended.get(timeout=LOOK_SECONDS)
                except Empty:
                    self.renew()
                    self.workers = sum(self.threads().values())
                    yield None
                    continue
                _, batch = self.under_way.pop(future.key)
                worker, outcomes = self.collect(future, batch)
                if worker:
                    self.judge(worker, outcomes, is_new=not any(tries[one.name] for one in batch))
                for one, outcome in zip(batch, outcomes, strict=True):
                    tries[one.name] += 1
                    if worker and outcome.status != "unable":
                        yield outcome
                    elif tries[one.name] < MAX_TRIES:
                        self.submit(task, [[one]], without=worker)
                    else:
                        yield outcome if worker else task.fail(one, BadInput(outcome.reason), 0.0)
        finally:
            with suppress(Exception):  # what is under way ends by itself, and is kept
                self.client.cancel([future for future, _ in self.under_way.values()], force=True)

    def submit(self, task: Task, batches: list[list[Subject]], without: str = "") -> None:
        """Hand out batches; if possible, to others than one worker."""
        packed = [pickle.dumps((choose_gpu, task, batch)) for batch in batches]
        others = sorted({*self.threads()} - {without, *self.stopped}) if without else []
        choice = {"workers": others, "allow_other_workers": True} if others else {}
        for future, batch in zip(self.client.map(unpack_and_run(), packed, pure=False, **choice), batches, strict=True):
            self.under_way[future.key] = future, batch
            future.add_done_callback(self.ended.put)

    def collect(self, future: "Future", batch: list[Subject]) -> tuple[str, list[Outcome]]:
        """The worker that has ended a batch, and the outcomes; where these do not come, no worker, and why."""
        from distributed import KilledWorker

        if future.status in ("cancelled", "lost"):
            raise BadInput(f"{self.place} went away: start it again, then this command: what is done stays done")
        try:
            worker, answer = future.result(timeout=RESULT_SECONDS)
        except BadInput:  # a failure that could not even be recorded
            raise
        except Exception as error:  # whatever else the work raised is in the outcomes: this is of the cluster
            reason = WORKERS_DIED if isinstance(error, KilledWorker) else reason_of(error)
            return "", [Outcome(one.name, "failed", 0.0, reason) for one in batch]
        if isinstance(answer, str):
            answer = [Outcome(one.name, "unable", 0.0, answer) for one in batch]
        return worker, answer

    def judge(self, worker: str, outcomes: list[Outcome], is_new: bool) -> None:
        """Stop a worker that is unable to do anything; BadInput if there is no other. What others could not do either
        blames nobody."""
        if any(one.status != "unable" for one in outcomes):
            self.has_worked = True
            self.strikes.pop(worker, None)
            return
        self.strikes[worker] += is_new
        if self.strikes[worker] < MAX_STRIKES or worker in self.stopped:
            return
        reason = self.stopped[worker] = outcomes[-1].reason
        with suppress(Exception):  # it may have ended by itself
            self.client.retire_workers([worker])
        if not {*self.threads()} - {*self.stopped}:
            if self.has_worked:
                raise BadInput(f"all workers of {self.place} had to be stopped: {reason}: what is done stays done")
            raise BadInput(f"no worker of {self.place} can do anything: {reason}")


def unpack_and_run() -> Callable[[bytes], tuple[str, list[Outcome] | str]]:
    """A function that knows nothing of vrnet, for workers that may not have it: these would be lost otherwise, again
    and again, without a word. It is sent as it is, and not by its name, since it is inside another one.

    It does a batch, and returns the address of its worker with the outcomes; or with the reason why the batch cannot
    even be begun there."""
    advice = SAME_EVERYWHERE

    @no_type_check
    def run(packed):
        import pickle

        from distributed import get_worker

        address = get_worker().address
        try:
            prepare, task, batch = pickle.loads(packed)
            prepare()
        except Exception as error:
            return address, f"what is to do cannot be read there ({type(error).__name__}: {error}): {advice}"
        return address, [task(one) for one in batch]

    return run


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
"""How long a scheduler may take to answer."""
ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "ITK_GLOBAL_DEFAULT_NUMBER_OF_THREADS"), "1"
)
"""Each job computes with one thread, so that they do not fight for cores."""
SETTINGS = {
    "distributed.nanny.pre-spawn-environ": ONE_THREAD,
    "distributed.worker.multiprocessing-method": "spawn",
    "distributed.comm.timeouts.connect": f"{CONNECT_SECONDS}s",
    "distributed.deploy.lost-worker-timeout": "30s",
    "distributed.scheduler.worker-saturation": 1.0,  # a batch that waits in a worker would be blamed for its death
    # Dask's looks at its own processes, a hundred in a second, took a tenth of the time that they compute in.
    "distributed.worker.profile.enabled": False,
    "distributed.admin.tick.interval": "1s",
    "distributed.admin.system-monitor.interval": "5s",
}


@contextmanager
def local_cluster(jobs: int) -> Iterator[DaskExecutor]:
    """So many processes of this machine, each with one thread; one that dies is started again.

    They are deaf to Ctrl-C, which a terminal sends to all of them: this process ends them. What a thread blocks is
    blocked in the threads and processes that come of it, so Ctrl-C waits until they run. It is ignored while they are
    ended: an impatient second one would leave them, and what they were writing, behind."""
    distributed = import_distributed()
    import dask

    resource_tracker.ensure_running()  # the thread that starts it would hear of Ctrl-C again
    is_main, heard = current_thread() is main_thread(), signal.getsignal(signal.SIGINT)
    with quiet_logs(), dask.config.set(SETTINGS):
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            silent = {"dashboard_address": ":0", "silence_logs": logging.CRITICAL}
            cluster = distributed.LocalCluster(n_workers=jobs, threads_per_worker=1, memory_limit=0, **silent)
            client = distributed.Client(cluster, set_as_default=False)
        except RuntimeError as error:
            raise BadInput(f"{jobs} processes cannot be started here: choose fewer jobs, or start again") from error
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        try:
            yield DaskExecutor(client, f"the {jobs} processes here", lambda: cluster.scale(jobs))
        finally:
            if is_main:
                signal.signal(signal.SIGINT, signal.SIG_IGN)
            for server in (client, cluster):
                with suppress(Exception):  # a process that ends slowly is no failure of the run
                    server.close()
            if is_main:
                signal.signal(signal.SIGINT, heard)


@contextmanager
def existing_cluster(address: str) -> Iterator[DaskExecutor]:
    """A cluster whose scheduler is at an address such as tcp://host:8786, or wrote one in a file."""
    distributed = import_distributed()
    is_file = "://" not in address and (address.endswith(".json") or Path(address).exists())
    if is_file:
        if not Path(address).exists():
            raise BadInput(f"there is no {address}: start the scheduler with that scheduler file first")
        found = read_json(Path(address))
        if not isinstance(found, dict) or not isinstance(found.get("address"), str):
            raise BadInput(f"{address} names no address of a scheduler: give the file that dask scheduler has written")
    where = {"scheduler_file": address} if is_file else {"address": address}
    with quiet_logs():
        try:
            client = distributed.Client(**where, timeout=CONNECT_SECONDS, set_as_default=False)
        except (OSError, ValueError, TimeoutError) as error:
            raise BadInput(f"no Dask scheduler answers at {address}: check that it runs, and its address") from error
        try:
            yield DaskExecutor(client, f"the scheduler at {address}")
        finally:
            with suppress(Exception):
                client.close()


def import_distributed() -> Any:
    try:
        import distributed
    except ImportError as error:
        raise BadInput(f"several jobs need Dask: {how_to_install('cluster')}") from error
    return distributed


@contextmanager
def quiet_logs() -> Iterator[None]:
    """Dask tells of every connection that ends; what matters is told by the run."""
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)
