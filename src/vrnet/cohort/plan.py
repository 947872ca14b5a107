"""What a run has to do, by what the folder says of each subject; no image is looked into."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from vrnet.cohort.records import CohortFolder, Recipe, has_content
from vrnet.cohort.stamps import digests
from vrnet.cohort.state import Survey, is_made_by, judge
from vrnet.cohort.table import Subject
from vrnet.errors import BadInput
from vrnet.wording import counted


@dataclass(frozen=True)
class Plan:
    """The subjects of a list by what is to happen to them."""

    done: list[Subject] = field(default_factory=list)
    failed: list[Subject] = field(default_factory=list)
    """Tried again only if asked."""
    again: list[Subject] = field(default_factory=list)
    """Those with results that changed or are damaged."""
    new: list[Subject] = field(default_factory=list)
    changes: Counter[str] = field(default_factory=Counter)
    """Why subjects are done again, and how many."""
    unended: Mapping[str, int] = field(default_factory=dict)
    """By subject: attempts that were begun and never ended, such as those that killed their process."""

    @property
    def subjects(self) -> list[Subject]:
        """All of them."""
        return [*self.done, *self.failed, *self.again, *self.new]

    def to_do(self, retry: bool) -> list[Subject]:
        """What a run has to do: failures after all else, and those last whose process ended during them before."""
        subjects = [*self.new, *self.again, *(self.failed if retry else [])]
        return sorted(subjects, key=lambda one: self.unended.get(one.name, 0)) if self.unended else subjects


def make_plan(folder: CohortFolder, subjects: Iterable[Subject], recipe: Recipe) -> Plan:
    """Sort the subjects by what the folder says of them."""
    plan, survey = Plan(unended=folder.unended()), Survey(folder, recipe)
    places = {"done": plan.done, "failed": plan.failed, "to do": plan.new}
    for one in subjects:
        kind, why, _ = survey.state(one)
        places.get(kind, plan.again).append(one)
        if kind in ("changed", "damaged"):
            plan.changes[why] += 1
    return plan


def check_kept(plan: Plan, folder: CohortFolder, recipe: Recipe) -> None:
    """BadInput if results would be replaced by others. Of inputs that are only newer, the content decides."""
    if replaced := [one for one in plan.again if not is_kept(folder, one, recipe)]:
        reasons = "; ".join(f"{why} ({number:,})" for why, number in plan.changes.items())
        raise BadInput(
            f"{counted(len(replaced), 'result')} in {folder.path} would be replaced, since they are not as asked for: "
            f"{reasons}: leave out `keep`, or choose another folder"
        )


def is_kept(folder: CohortFolder, subject: Subject, recipe: Recipe) -> bool:
    """Whether a result is not replaced by another: it is of this recipe, and of inputs of this content."""
    record = folder.done(subject.name)
    if record and not is_made_by(recipe, record):  # which is quick to tell; inputs may be large
        return False
    found = judge(folder, subject.name, record, recipe, bool(record) and has_content(record, digests(subject)))
    return found.kind in ("done", "damaged")
