"""What a cohort's folder says of a subject: the one answer that plans, tables, shards and tasks go by.

to do     nothing counts that is there
done      a whole result of this recipe, and of these inputs
changed   a whole result of another recipe, or of other inputs
damaged   a result that is not whole, or whose record cannot be read
failed    it could not be done, by this recipe and with these inputs"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from vrnet.cohort.records import DONE, CohortFolder, Recipe, damage, has_stamps
from vrnet.cohort.stamps import stamps
from vrnet.cohort.table import Subject
from vrnet.provenance import may_be_same_commit

Kind = Literal["to do", "done", "changed", "damaged", "failed"]
NOTHING: Mapping[str, Any] = {}
OTHER_INPUTS = "newer or other inputs"


class State(NamedTuple):
    """What there is of a subject."""

    kind: Kind
    why: str = ""
    """What is other than asked for, what is damaged, or why it could not be done."""
    record: Mapping[str, Any] = NOTHING
    """What is recorded of the result, or of the failure."""

    @property
    def is_settled(self) -> bool:
        """Whether a run leaves the subject alone, unless it is told to try failures again."""
        return self.kind in ("done", "failed")


@dataclass(frozen=True)
class Survey:
    """A folder, asked about subjects. Names are listed once; records are read when they are asked for."""

    folder: CohortFolder
    recipe: Recipe
    results: frozenset[str] = field(init=False)
    failures: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "results", frozenset(self.folder.names_of_results()))
        object.__setattr__(self, "failures", frozenset(self.folder.names_of_failures()))

    def state(self, subject: Subject) -> State:
        """What there is of a subject. A file of the same path, size and time is taken for unchanged."""
        name = subject.name
        if name not in self.results and name not in self.failures:
            return State("to do")
        now = stamps(subject)
        found = State("to do")
        if name in self.results:
            record = self.folder.done(name)
            found = judge(self.folder, name, record, self.recipe, has_stamps(record, now))
            if found.why == OTHER_INPUTS and None in now.values():
                found = found._replace(why="inputs are missing")
        if found.kind != "done" and name in self.failures:
            failure = self.folder.failure(name)
            if is_made_by(self.recipe, failure) and has_stamps(failure, now):
                return State("failed", str(failure.get("reason", "the reason is not recorded")), failure)
        return found


def judge(folder: CohortFolder, name: str, record: Mapping[str, Any], recipe: Recipe, has_same_inputs: bool) -> State:
    """What the result of a subject is worth, by its record and by whether its inputs are as they were."""
    place = f"{folder.path}/{folder.results}/{name}"
    if not record:
        is_ours = os.path.lexists(f"{place}/{DONE}")
        return State("damaged", f"{DONE} cannot be read") if is_ours else State("to do")
    if not is_made_by(recipe, record):
        return State("changed", differences(record["recipe"], recipe), record)
    if not has_same_inputs:
        return State("changed", OTHER_INPUTS, record)
    why = damage(place, record)
    return State("damaged", why, record) if why else State("done", "", record)


def is_made_by(recipe: Recipe, record: Mapping[str, Any]) -> bool:
    """Whether what a record is of is what a recipe asks for.

    It may have a page beyond that. Where the images choose, as for the method `default`, what they chose counts. And a
    commit that one of both does not know is no difference."""
    made = record.get("recipe", NOTHING)
    if made == recipe:
        return True
    as_asked = dict(made)
    if "commit" in made and may_be_same_commit(made["commit"], recipe.get("commit")):
        as_asked["commit"] = recipe.get("commit")
    if made.get("report"):
        as_asked["report"] = recipe.get("report")
    if record.get("row", NOTHING).get("method") == recipe.get("method"):
        as_asked["method"] = recipe.get("method")
        if recipe.get("weights") is None and "weights" in made:  # those that `default` may have used, and did not
            as_asked["weights"] = None
    return as_asked == recipe


def differences(made: Recipe, recipe: Recipe) -> str:
    """What of a recipe is another than it was, in words."""
    keys = {key for key in {*made, *recipe} if made.get(key) != recipe.get(key)}
    if may_be_same_commit(made.get("commit"), recipe.get("commit")):
        keys -= {"commit"}
    return ", ".join(f"{key.replace('_', ' ')} {made.get(key)} → {recipe.get(key)}" for key in sorted(keys))
