"""Clusters of Dask: processes of this machine, or a cluster that is there already."""

import logging
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from pathlib import Path
from threading import current_thread, main_thread
from typing import Any

from vrnet.cohort.dask_executor import DaskExecutor
from vrnet.errors import BadInput
from vrnet.files import read_json
from vrnet.provenance import how_to_install

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
