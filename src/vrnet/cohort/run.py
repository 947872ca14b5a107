"""Runs the tasks of a cohort, here or by Dask. What is done is in the folder: a run that ends loses nothing.

One subject is one task with one result: done, failed with a reason that is kept, or left to another process."""

import logging
import os
import pickle
import platform
import re
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, no_type_check

import msgspec

from vrnet.cohort import results
from vrnet.cohort.table import Subject
from vrnet.errors import BadInput, UnfitMachine
from vrnet.files import Row, read_json, sha256, write_bytes, write_json
from vrnet.provenance import __version__, commit, how_to_install, may_be_same_commit

if TYPE_CHECKING:
    from distributed import Client

Work = Callable[[Subject, Path], Row]
"""What is done to one subject: it writes the files of a result in a folder, and returns the row of the table."""


class Outcome(NamedTuple):
    name: str
    status: Literal["done", "failed", "begun"]  # begun: another process is at it, or was killed during it
    reason: str = ""


@dataclass(frozen=True)
class Task:
    """What a process needs to know to do any subject of a cohort."""

    folder: results.CohortFolder
    work: Work
    recipe: results.Recipe

    def __call__(self, subject: Subject, is_last: bool = False) -> Outcome:
        """Do a subject, unless it is done; if it is begun, only in the last round. UnfitMachine if it cannot here."""
        start = perf_counter()
        if not is_last and subject.name in self.folder.begun():
            return Outcome(subject.name, "begun")
        before = results.look_at_inputs(subject, "stamp")
        try:
            begun = f"{subject.name}{results.BEGUN}"  # which stays only if this process is killed
            with TemporaryDirectory(prefix=begun, dir=self.folder.working, ignore_cleanup_errors=True) as place:
                self.do(subject, before, Path(place), start)
        except Exception as error:
            if not all(map(os.path.isdir, self.folder.places)):  # nothing is made here: nobody else would see it
                said = f"{platform.node()} does not see {self.folder.path}, or not all of it"
                raise UnfitMachine(f"{said}: is its file system mounted, and shared?") from error
            if isinstance(error, UnfitMachine):
                raise
            if results.judge(self.folder, subject, self.recipe, "stamp", before).kind != "done":  # by another process
                return self.fail(subject, error, start, before)
        self.folder.clear({subject.name})
        self.folder.forget_failure(subject.name)  # now that the result is in its place
        return Outcome(subject.name, "done")

    def do(self, subject: Subject, before: results.Inputs, place: Path, start: float) -> None:
        """Make the result of a subject in a folder, and put it in its place when it is whole."""
        content = results.look_at_inputs(subject, "sha256")
        inputs = {k: {"path": path, "stamp": before[k], "sha256": content[k]} for k, path in subject.files.items()}
        inputs |= {column: {"value": value} for column, value in subject.values.items()}
        result = self.folder.subjects / subject.name
        state = results.judge(self.folder, subject, self.recipe, "sha256", content)
        if state.kind == "done":  # only the times of its inputs are others: the next plan need not read them
            write_json({**msgspec.structs.asdict(state.record), "inputs": inputs}, result / results.DONE)
            return
        results.check_own(result, state.record)
        (staged := place / "new").mkdir()
        row = self.work(subject, staged)
        now = results.look_at_inputs(subject, "stamp")
        if changed := [path for column, path in subject.files.items() if now[column] != before[column]]:
            raise BadInput(f"{changed[0]} was replaced while it was read: start again when it is complete")
        made = {os.path.relpath(file, staged): Path(file) for file in results.files_below(str(staged))}
        files = {name: {"bytes": file.stat().st_size, "sha256": sha256(file)} for name, file in made.items()}
        row |= {"machine": platform.node()}
        write_json(self.record(subject, start, inputs, row=row, files=files), staged / results.DONE)
        try:
            os.rename(staged, result)  # also over an empty folder
        except OSError:
            if not os.path.lexists(result):
                raise
            if results.judge(self.folder, subject, self.recipe, "sha256", content).kind != "done":  # by another process
                results.check_own(result, state.record)
                os.rename(result, place / "old")  # killed here, the subject is to do: the old result is not asked for
                os.rename(staged, result)

    def record(self, subject: Subject, start: float, inputs: results.Inputs, **more: Any) -> dict[str, Any]:
        finished = datetime.now().astimezone().isoformat(timespec="seconds")
        known = {"subject": subject.name, "recipe": self.recipe, "inputs": inputs}
        return {**known, "seconds": perf_counter() - start, "finished": finished, **more}

    def fail(self, subject: Subject, error: BaseException, start: float, before: results.Inputs) -> Outcome:
        """Record the failure of a subject; BadInput, the end of the run, if not even that can be written."""
        reason = re.sub(rf"{re.escape(str(self.folder.working))}/[^/]+/new/", "", reason_of(error))
        inputs = {column: {"stamp": found} for column, found in before.items()}
        record = self.record(subject, start, inputs, reason=reason, machine=platform.node())
        try:
            trace = "".join(traceback.format_exception(error)).encode(errors="backslashreplace")
            write_bytes(trace, self.folder.failures / f"{subject.name}.txt")
            write_json(record, self.folder.failures / f"{subject.name}.json")
        except BadInput as refused:
            said = f"{subject.name} could not be done ({reason}), and not even that can be written"
            advice = "check its room and your permission, then start again: what is done stays done"
            raise BadInput(f"{said} in {self.folder.path}: {advice}") from refused
        return Outcome(subject.name, "failed", reason)


def reason_of(error: BaseException) -> str:
    if isinstance(error, BadInput):
        return str(error)
    if isinstance(error, MemoryError):
        return "there was too little memory: run fewer jobs at once, or on a larger machine"
    if isinstance(error, OSError) and error.strerror:
        name = error.filename2 or error.filename  # of two the second: the first one is a temporary folder
        return f"{name}: {error.strerror}" if name else error.strerror
    return f"{type(error).__name__}: {(str(error).strip() or 'no message').splitlines()[0]}"


@dataclass
class Tally:
    total: int
    done: int = 0
    reasons: dict[str, str] = field(default_factory=dict)  # why subjects could not be done, by name
    has_workers: bool = True

    @property
    def failed(self) -> int:
        return len(self.reasons)

    @property
    def left(self) -> int:
        return self.total - self.done - self.failed


Executor = Callable[[Task, Sequence[Subject], bool, Tally], Iterator[Outcome]]
"""executor(task, subjects, is_last, tally) gives the outcomes as they come. BadInput if no machine can do anything."""


def run_tasks(
    task: Task, subjects: Sequence[Subject], executor: Executor,
    show: Callable[[Tally], None] = lambda tally: None, tally: Tally | None = None,
) -> Tally:  # fmt: skip
    """Do the subjects; those last that another process is at, or was killed during. The tally is kept up to date."""
    tally = tally or Tally(len(subjects))
    show(tally)
    for is_last in (False, True):
        begun = set()
        for name, status, reason in executor(task, subjects, is_last, tally):
            if status == "begun":
                begun.add(name)
            elif status == "failed":
                tally.reasons[name] = reason
            else:
                tally.done += 1
            show(tally)
        subjects = [one for one in subjects if one.name in begun]
    return tally


def run_here(task: Task, subjects: Sequence[Subject], is_last: bool, tally: Tally) -> Iterator[Outcome]:
    return (task(one, is_last) for one in subjects)


def check_jobs(jobs: int, scheduler: str | None = None) -> None:
    """BadInput unless it is clear where the subjects are to be done."""
    if not 1 <= jobs <= 1024:
        raise BadInput(f"`jobs` is {jobs}: choose from 1 to 1,024")
    if jobs > 1 and scheduler is not None:
        raise BadInput("a scheduler has workers of its own: leave out `jobs`, or `scheduler`")


@contextmanager
def open_executor(subjects: int, jobs: int = 1, scheduler: str | None = None) -> Iterator[Executor]:
    """What does so many subjects: this process, `jobs` processes of one thread each, or the cluster of a scheduler."""
    jobs = min(jobs, subjects)
    if not subjects or (scheduler is None and jobs == 1):
        yield run_here
        return
    try:
        import dask
        import distributed
    except ImportError as error:
        raise BadInput(f"several jobs need Dask: {how_to_install('cluster')}") from error
    with ExitStack() as stack:
        stack.callback(logging.disable, logging.root.manager.disable)
        logging.disable(logging.CRITICAL)  # Dask tells of every connection that ends; the run tells what matters
        if scheduler is None:
            stack.enter_context(dask.config.set(SETTINGS))
            try:
                cluster = stack.enter_context(distributed.LocalCluster(
                    n_workers=jobs, threads_per_worker=1, memory_limit=0, dashboard_address=":0",
                    silence_logs=logging.CRITICAL,
                ))  # fmt: skip
            except RuntimeError as error:
                raise BadInput(f"{jobs} processes cannot be started here: choose fewer jobs, or start again") from error
            client = stack.enter_context(distributed.Client(cluster, set_as_default=False))
            cluster.adapt(minimum=jobs, maximum=jobs)  # also if one is killed as it begins
            yield partial(run_by_dask, client, f"the {jobs} processes here")
            return
        address = scheduler
        try:
            if "://" not in scheduler and (scheduler.endswith(".json") or os.path.exists(scheduler)):
                address = str(read_json(Path(scheduler))["address"])
            client = stack.enter_context(distributed.Client(address, timeout=CONNECT_SECONDS, set_as_default=False))
        except (OSError, ValueError, TimeoutError, TypeError, LookupError) as error:
            raise BadInput(f"no Dask scheduler answers at {address}: check that it runs, and its address") from error
        yield partial(run_by_dask, client, f"the scheduler at {address}")


# Dask hands out the work, and hands it out again if a worker dies. If a worker, the scheduler or this process ends at
# any moment, the folder of the cohort says what is done.

MAX_UNDER_WAY = 4096  # subjects that the scheduler knows at a time: a list may have hundreds of thousands
WORKERS_DIED = "the process that did it died several times: too little memory?"
CONNECT_SECONDS = 30.0  # how long a scheduler may take to answer
THREADS = "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "ITK_GLOBAL_DEFAULT_NUMBER_OF_THREADS"
SETTINGS = {
    "distributed.nanny.pre-spawn-environ": dict.fromkeys(THREADS, "1"),  # so that jobs do not fight for cores
    "distributed.worker.multiprocessing-method": "spawn",
    "distributed.comm.timeouts.connect": f"{CONNECT_SECONDS}s",
    "distributed.deploy.lost-worker-timeout": "30s",
    "distributed.scheduler.worker-saturation": 1.0,  # a subject that waits in a worker would be blamed for its death
    # Dask's looks at its own processes, a hundred in a second, took a tenth of the time that they compute in.
    "distributed.worker.profile.enabled": False,
    "distributed.admin.tick.interval": "1s",
    "distributed.admin.system-monitor.interval": "5s",
}


def run_by_dask(
    client: "Client", place: str, task: Task, subjects: Sequence[Subject], is_last: bool, tally: Tally
) -> Iterator[Outcome]:
    """Do the subjects by the workers of a cluster; `place` is the cluster, in words."""
    from distributed import CancelledError, KilledWorker, as_completed

    tally.has_workers = bool(client.nthreads())
    run, ended = unpack_and_run(), as_completed(loop=client.loop)
    under_way: dict[str, Subject] = {}
    waiting = iter(subjects)

    def submit(more: Sequence[Subject]) -> None:
        packed = [pickle.dumps((do_on_worker, task, one, is_last)) for one in more]
        for future, one in zip(client.map(run, packed, pure=False), more, strict=True):
            under_way[future.key] = one
            ended.add(future)

    submit([*islice(waiting, MAX_UNDER_WAY)])
    try:
        for future in ended:
            one = under_way.pop(future.key)
            try:
                outcome = future.result(timeout=10)
            except TimeoutError:  # its worker has died, or the scheduler, with what came of it; the folder knows
                submit([one])
                continue
            except KilledWorker:
                task.folder.clear({one.name})
                outcome = task.fail(one, BadInput(WORKERS_DIED), perf_counter(), results.look_at_inputs(one, "stamp"))
            except CancelledError as error:
                advice = "start it again, then this command: what is done stays done"
                raise BadInput(f"{place} went away: {advice}") from error
            except Exception as error:  # of the machine: a subject that cannot be done is an outcome
                said = f"{reason_of(error)}: stop that worker, or install the same vrnet for all"
                raise BadInput(f"a worker of {place} can do nothing: {said}; what is done stays done") from error
            tally.has_workers = True
            # Many at once: Dask lets them wait in the scheduler, where no worker's death is blamed on them.
            if len(under_way) < MAX_UNDER_WAY / 2 and (more := [*islice(waiting, MAX_UNDER_WAY // 2)]):
                submit(more)
            yield outcome
    finally:
        with suppress(Exception):  # what is under way ends by itself, and is kept
            client.cancel([*ended.futures], force=True)


def unpack_and_run() -> Callable[[bytes], Outcome]:
    """A function that does a packed subject. It knows nothing of vrnet, since workers that have none, or another one,
    would hang if Dask unpacked what is to do; and it is inside another, so that Dask sends it as it is, not by name."""

    @no_type_check
    def run(packed):
        import pickle

        do, *arguments = pickle.loads(packed)
        return do(*arguments)

    return run


def do_on_worker(task: Task, subject: Subject, is_last: bool) -> Outcome:
    """Do a subject; UnfitMachine if this process has another vrnet than the one that asks."""
    asked, own = ((task.recipe.get("vrnet", __version__), task.recipe.get("commit")), (__version__, commit()))
    if asked[0] != own[0] or (asked[1] is not None and not may_be_same_commit(asked[1], own[1])):
        raise UnfitMachine(f"{platform.node()} has vrnet {own[0]}, commit {own[1]}, not {asked[0]}, {asked[1]}")
    return task(subject, is_last)
