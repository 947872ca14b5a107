"""Runs that are at one folder at the same time: any number of one recipe, which share the work, and of no other, whose
results they would take from each other.

A run holds a lock file that is named by its recipe, together with all runs of that recipe."""

from collections.abc import Iterator
from contextlib import contextmanager
from time import time_ns

from vrnet.cohort.attempts import take_back
from vrnet.cohort.records import CohortFolder, Recipe, identify
from vrnet.errors import BadInput
from vrnet.locks import is_locked, share_lock

RUN = ".run-"
"""How the names of these lock files begin; those of subjects begin with no dot."""


@contextmanager
def open_folder(folder: CohortFolder, recipe: Recipe) -> Iterator[None]:
    """A folder, made if it is not there, while a run is at it; BadInput if one of another recipe is. What killed
    processes left there is removed before and after."""
    folder.make()
    try:
        own = folder.lock(f"{RUN}{identify(recipe)}")
        with share_lock(own):
            if any(is_locked(other) for other in folder.working.glob(f"{RUN}*.lock") if other != own):
                raise BadInput(
                    f"another run is at {folder.path}, with another method or other options: wait for its end, or "
                    "choose another folder"
                )
            yield
    finally:
        folder.tidy()


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
