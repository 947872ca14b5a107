"""Runs that are at one folder at the same time: any number of one recipe, which share the work, and of no other, whose
results they would take from each other.

A run holds a lock file that is named by its recipe, together with all runs of that recipe."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep, time_ns

from vrnet.cohort.attempts import take_back
from vrnet.cohort.records import CohortFolder, Recipe, identify
from vrnet.errors import BadInput
from vrnet.locks import RETRY_SECONDS, is_locked, share_lock

RUN = ".run-"
"""How the names of these lock files begin; those of subjects begin with no dot."""
LOOKING_SECONDS = 0.5
"""How long the lock of another run must be held before it is taken for one that is under way."""


@contextmanager
def open_folder(folder: CohortFolder, recipe: Recipe) -> Iterator[None]:
    """A folder, made if it is not there, while a run is at it; BadInput if one of another recipe is. What killed
    processes left there is removed before and after."""
    folder.make()
    try:
        own = folder.lock(f"{RUN}{identify(recipe)}")
        with share_lock(own):
            check_alone(folder, own)
            yield
    finally:
        folder.tidy()


def check_alone(folder: CohortFolder, own: Path) -> None:
    """BadInput if a run of another recipe is at a folder.

    Whoever tidies the folder holds what killed runs left, for a moment: only what stays held is held by a run."""
    end = monotonic() + LOOKING_SECONDS
    while any(is_locked(other) for other in folder.working.glob(f"{RUN}*.lock") if other != own):
        if monotonic() > end:
            raise BadInput(
                f"another run is at {folder.path}, with another method or other options: wait for its end, or choose "
                "another folder"
            )
        sleep(RETRY_SECONDS)


@contextmanager
def forgiving(folder: CohortFolder) -> Iterator[None]:
    """A run that may be stopped: the processes that it then ends did not end during their subjects by themselves."""
    start = time_ns()
    try:
        yield
    except BaseException:
        for name in folder.unended():
            if folder.lock(name).stat().st_mtime_ns >= start:
                take_back(folder.lock(name))
        raise
