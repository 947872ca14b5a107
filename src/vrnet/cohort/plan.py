"""What is done, what has failed, and what is to do: read from the folder alone, without looking into an image."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from vrnet.cohort.records import CohortFolder, Recipe, has_content, has_stamps, is_whole
from vrnet.cohort.stamps import digests, stamps
from vrnet.cohort.table import Subject, count
from vrnet.errors import BadInput


@dataclass(frozen=True)
class Plan:
    """The subjects of a list by what is to happen to them."""

    done: list[Subject] = field(default_factory=list)
    """Whole results of this recipe, and of these inputs."""
    failed: list[Subject] = field(default_factory=list)
    """Failures of this recipe with these inputs: tried again only if asked."""
    changed: list[Subject] = field(default_factory=list)
    """Results of another recipe, of other inputs, or not whole: done again."""
    new: list[Subject] = field(default_factory=list)
    changes: dict[str, int] = field(default_factory=dict)
    """What is another than it was, and for how many subjects."""

    def to_do(self, retry: bool) -> list[Subject]:
        """What a run has to do, those that failed last."""
        return [*self.new, *self.changed, *(self.failed if retry else [])]


def make_plan(folder: CohortFolder, subjects: Iterable[Subject], recipe: Recipe) -> Plan:
    """Sort the subjects by what the folder says of them. A file of the same size and time is taken for unchanged."""
    plan, results, failures = Plan(), folder.names_of_results(), folder.names_of_failures()
    place = str(folder.subjects)
    for one in subjects:
        if one.name not in results and one.name not in failures:
            plan.new.append(one)
            continue
        now = stamps(one)
        record = folder.done(one.name) if one.name in results else {}
        change = change_since(record, recipe, has_stamps(record, now), is_whole(f"{place}/{one.name}", record))
        failure = folder.failure(one.name) if change and one.name in failures else {}
        if not change:
            plan.done.append(one)
        elif failure.get("recipe") == recipe and has_stamps(failure, now):
            plan.failed.append(one)
        elif record:
            plan.changed.append(one)
            plan.changes[change] = plan.changes.get(change, 0) + 1
        else:
            plan.new.append(one)
    return plan


def change_since(record: Mapping[str, Any], recipe: Recipe, has_same_inputs: bool, is_whole: bool) -> str:
    """What is another than when a result was made, in words; empty if nothing is."""
    made = record.get("recipe", {})
    if made != recipe:
        keys = sorted(key for key in {*made, *recipe} if made.get(key) != recipe.get(key))
        return ", ".join(f"{key.replace('_', ' ')} {made.get(key)} → {recipe.get(key)}" for key in keys)
    if not has_same_inputs:
        return "inputs"
    return "" if is_whole else "files of the result that are missing"


def check_kept(plan: Plan, folder: CohortFolder, recipe: Recipe) -> None:
    """BadInput if results would be replaced by others. Of inputs that are only newer, the content decides."""
    changed = [one for one in plan.changed if not is_made_so(folder, one, recipe)]
    if changed:
        reasons = "; ".join(f"{words} ({many:,})" for words, many in plan.changes.items())
        raise BadInput(
            f"{count(changed, 'result')} in {folder.path} would be replaced, since these differ: {reasons}: leave out "
            "`keep`, or choose another folder"
        )


def is_made_so(folder: CohortFolder, subject: Subject, recipe: Recipe) -> bool:
    """Whether a result is of this recipe, and of inputs with the content that they have now."""
    record = folder.done(subject.name)
    return record.get("recipe") == recipe and has_content(record, digests(subject))
