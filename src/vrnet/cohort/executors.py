"""Where the subjects of a run are done: in this process, in several, or by the workers of a cluster."""

from contextlib import AbstractContextManager, nullcontext

from vrnet.cohort.run import Executor, Here
from vrnet.errors import BadInput

MAX_JOBS = 1024


def check_jobs(jobs: int, scheduler: str | None = None) -> None:
    """BadInput unless it is clear where the subjects are to be done."""
    if not 1 <= jobs <= MAX_JOBS:
        raise BadInput(f"`jobs` is {jobs}: choose from 1 to {MAX_JOBS:,}")
    if jobs > 1 and scheduler is not None:
        raise BadInput("a scheduler has workers of its own: leave out `jobs`, or `scheduler`")


def open_executor(subjects: int, jobs: int = 1, scheduler: str | None = None) -> AbstractContextManager[Executor]:
    """What does so many subjects. No more processes are started than there are subjects to do."""
    from vrnet.cohort.dask import existing_cluster, local_cluster

    jobs = min(jobs, subjects)
    if not subjects or (scheduler is None and jobs == 1):
        return nullcontext(Here())
    return local_cluster(jobs) if scheduler is None else existing_cluster(scheduler)
