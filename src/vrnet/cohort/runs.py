"""Runs that are at one folder at the same time: any number of one recipe, which share the work, and of no other, whose
results they would take from each other.

A run holds a lock file that is named by its recipe, together with all runs of that recipe."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep

from vrnet.cohort.attempts import take_back
from vrnet.cohort.records import CohortFolder, Recipe, identify
from vrnet.errors import BadInput
from vrnet.locks import RETRY_SECONDS, is_locked, share_lock
from vrnet.provenance import may_be_same_commit

RUN = ".run-"
"""How the names of these lock files begin; those of subjects begin with no dot."""
LOOKING_SECONDS = 0.5
"""How long the lock of another run must be held before it is taken for one that is under way."""


@contextmanager
def open_folder(folder: CohortFolder, recipe: Recipe) -> Iterator[None]:
    """A folder, made if it is not there, while a run is at it; BadInput if one of another recipe is. What killed
    processes left there is removed before and after; folders that were made for nothing go, too."""
    made = [place for place in folder.places if not place.exists()]
    folder.make()
    try:
        with share_run(folder, recipe), forgiving(folder):
            yield
    finally:
        folder.tidy()
        folder.remove_if_unused(made)


@contextmanager
def share_run(folder: CohortFolder, recipe: Recipe) -> Iterator[None]:
    """Be one of the processes of a recipe at a folder; BadInput if one of another recipe is there.

    A worker of a cluster does so, too: it may outlive the run that it works for."""
    own = folder.lock(name_of_run(recipe))
    with share_lock(own):
        check_alone(folder, own)
        yield


def name_of_run(recipe: Recipe) -> str:
    """The name of the lock file of a run, without its ending: what is asked for, and the commit that it is asked by."""
    asked = {name: value for name, value in recipe.items() if name != "commit"}
    return f"{RUN}{identify(asked)}-{recipe.get('commit') or ''}"


def is_same_run(one: str, other: str) -> bool:
    """Whether runs of these names ask for the same, by code that may be the same."""
    (asked, _, commit), (asked_there, _, commit_there) = (name[len(RUN) :].partition("-") for name in (one, other))
    return asked == asked_there and may_be_same_commit(commit or None, commit_there or None)


def check_alone(folder: CohortFolder, own: Path) -> None:
    """BadInput if a run of another recipe is at a folder.

    Whoever tidies the folder holds what killed runs left, for a moment: only what stays held is held by a run."""
    end = monotonic() + LOOKING_SECONDS
    others = [path for path in folder.working.glob(f"{RUN}*.lock") if not is_same_run(path.stem, own.stem)]
    while any(map(is_locked, others)):
        if monotonic() > end:
            raise BadInput(
                f"another run is at {folder.path}, with another method or other options: wait for its end, or choose "
                "another folder"
            )
        sleep(RETRY_SECONDS)


@contextmanager
def forgiving(folder: CohortFolder) -> Iterator[None]:
    """A run that may be stopped: the attempts that it then ends, here or in its processes, do not count, and those
    before them still do."""
    before = folder.unended()
    try:
        yield
    except BaseException:
        for name, count in folder.unended().items():
            if count > before.get(name, 0):
                take_back(folder.lock(name))
        raise
