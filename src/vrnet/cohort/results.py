"""A cohort's folder: one whole result per subject with its `done.json`, or the reason why there is none.

    DIR/subjects/NAME/       the result of a subject, whole, with done.json
    DIR/failures/NAME.json   why a subject could not be done; NAME.txt has the traceback
    DIR/.working/NAME~.../   what a process is writing; left behind if that process is killed

There is no other memory, and nothing is locked. A result is written in .working and renamed when it is whole. If two
processes do the same subject, the first to end wins, and removes what the other has written in .working."""

import glob
import hashlib
import os
import shutil
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np

from vrnet.cohort.table import CohortTable, Subject
from vrnet.errors import BadInput, counted
from vrnet.files import Row, columns_of, remove_leftovers, sha256
from vrnet.provenance import may_be_same_commit

Recipe = Mapping[str, Any]
"""What is done to every subject, as JSON: method, parameters, version. Results of another recipe are made again."""

Look = Literal["stamp", "sha256"]
"""What an input was when a result was made of it. As for `make` and `git`, a file of the same path, size and time is
unchanged; otherwise its content decides."""
Inputs = Mapping[str, Any]
"""By column: the stamp or the SHA-256 of a file; the value of a column that is no file, such as the frame."""


def files_of(path: str) -> list[str]:
    """The files of an input: those in a folder; or an image, and the file of its voxels if that is another one."""
    if os.path.isdir(path):
        return list(files_below(path))
    place = Path(path)
    others = place.parent.glob(f"{glob.escape(place.stem)}.*") if place.suffix.lower() in (".mhd", ".nhdr") else ()
    return [path, *sorted(str(other) for other in others if other != place)]


def files_below(folder: str) -> Iterator[str]:
    """Every file in a folder and in the folders inside it, in a fixed order."""
    for place, folders, names in os.walk(folder):
        folders.sort()
        yield from (os.path.join(place, name) for name in sorted(names))


def stamp(path: str) -> list[str | int] | None:
    """[path, bytes, last change in ns since 1970], summed over the files of an input; None if one cannot be seen."""
    try:
        stats = [os.stat(file) for file in files_of(path)]
    except OSError:
        return None
    return [path, sum(one.st_size for one in stats), sum(one.st_mtime_ns for one in stats) % 2**63]


def digest(path: str) -> str:
    """The SHA-256 of a file; of several files, that of their names and contents."""
    files = files_of(path)
    if files == [path]:
        return sha256(Path(path))
    lines = (f"{os.path.relpath(file, path)}\0{sha256(Path(file))}\n" for file in files)
    return hashlib.sha256("".join(lines).encode(errors="surrogateescape")).hexdigest()


def look_at_inputs(subject: Subject, look: Look) -> Inputs:
    see = stamp if look == "stamp" else digest
    return {column: see(path) for column, path in subject.files.items()} | subject.values


class Record(msgspec.Struct, frozen=True):
    """What done.json holds; or a failure, which has a reason instead of a row and files."""

    subject: str
    recipe: dict[str, Any]
    inputs: dict[str, dict[str, Any]]  # {column: {"path", "stamp", "sha256"}}; {"value"} if the column is no file
    seconds: float
    row: dict[str, Any] = {}  # which msgspec copies
    files: dict[str, dict[str, Any]] = {}  # {name: {"bytes", "sha256"}}
    reason: str = ""
    machine: str = ""
    finished: str = ""

    def known_inputs(self, look: Look) -> Inputs:
        """What `look_at_inputs` gave when the result was made."""
        return {column: one.get(look, one.get("value")) for column, one in self.inputs.items()}


NOTHING = Record("", {}, {}, 0.0)
DONE, FAILURES = "done.json", "failures"
BEGUN = "~"  # ends the subject's name in the names of folders in .working; no subject's name holds it


class CohortFolder:
    def __init__(self, path: Path, results: str = "subjects") -> None:
        self.path, self.results = path, results  # "." where results lie in the folder itself
        self.subjects, self.failures, self.working = path / results, path / FAILURES, path / ".working"
        self.places = self.subjects, self.failures, self.working

    def make(self, ended: Collection[str] = ()) -> None:
        """Make the folders, and remove what killed processes left: of subjects that have ended, or a day ago."""
        for folder in self.places:
            folder.mkdir(parents=True, exist_ok=True)
        remove_leftovers(self.failures)
        remove_leftovers(self.working, f"*{BEGUN}*")
        self.clear(ended)

    def remove(self) -> None:
        """Remove the records of a run whose results are elsewhere by now, and the folders that are empty then."""
        names = self.names_of_results() | self.names_of_failures()
        for name in names:
            self.forget_failure(name)
            (self.subjects / name / DONE).unlink(missing_ok=True)
        for folder in (*(self.subjects / name for name in names), *self.places):
            with suppress(OSError):  # which is raised where something is in it
                folder.rmdir()

    def begun(self) -> set[str]:
        """The subjects that a process is at, or was killed during."""
        return {place.partition(BEGUN)[0] for place in names_in(self.working) if BEGUN in place}

    def clear(self, names: Collection[str]) -> None:
        for place in names_in(self.working):
            if place.partition(BEGUN)[0] in names:
                shutil.rmtree(self.working / place, ignore_errors=True)

    def names_of_results(self) -> set[str]:
        return {name for name in names_in(self.subjects) if not name.startswith(".")}

    def names_of_failures(self) -> set[str]:
        """The subjects that could not be done once, and have not been since."""
        return {name.removesuffix(".json") for name in names_in(self.failures) if name.endswith(".json")}

    def forget_failure(self, name: str) -> None:
        for end in ("json", "txt"):
            with suppress(FileNotFoundError):
                os.unlink(f"{self.failures}/{name}.{end}")


def names_in(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []


def read_record(path: str) -> Record | None:
    try:
        with open(path, "rb") as file:
            return msgspec.json.decode(file.read(), type=Record)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def check_own(folder: Path, record: Record) -> None:
    """BadInput unless every file in a result's folder is as its record lists it: it is about to be replaced."""
    for file in files_below(str(folder)):
        name = os.path.relpath(file, folder)
        if name != DONE and sha256(Path(file)) != record.files.get(name, {}).get("sha256"):
            advice = "move it away, or remove it if it is damaged, and try it again"
            raise BadInput(f"{file} is not as this cohort wrote it, and would be lost: {advice}")


class State(NamedTuple):
    """What there is of a subject: plans, tables, shards and tasks go by this one answer."""

    kind: Literal["to do", "done", "changed", "damaged", "failed"]
    """done: a whole result of this recipe and of these inputs; changed: of other ones; damaged: not whole, or its
    record cannot be read; failed: could not be done, by this recipe and with these inputs; to do: none of these."""
    why: str = ""
    record: Record = NOTHING


class Survey:
    """A folder, asked about subjects. Names are listed once; records are read when they are asked for."""

    def __init__(self, folder: CohortFolder, recipe: Recipe) -> None:
        self.folder, self.recipe = folder, recipe
        self.results, self.failures = folder.names_of_results(), folder.names_of_failures()

    def state(self, subject: Subject) -> State:
        """What there is of a subject. A file of the same path, size and time is taken for unchanged."""
        name, found = subject.name, State("to do")
        if name not in self.results and name not in self.failures:
            return found
        now = look_at_inputs(subject, "stamp")
        if name in self.results:
            found = judge(self.folder, subject, self.recipe, "stamp", now)
        if found.kind != "done" and name in self.failures:
            failure = read_record(f"{self.folder.path}/{FAILURES}/{name}.json")
            if failure and not differences(failure, self.recipe) and now == failure.known_inputs("stamp"):
                return State("failed", failure.reason, failure)
        return found


def judge(folder: CohortFolder, subject: Subject, recipe: Recipe, look: Look, inputs: Inputs | None = None) -> State:
    """What the result of a subject is worth. Inputs are looked at only where the recipe is as it was."""
    place = f"{folder.path}/{folder.results}/{subject.name}"
    record = read_record(f"{place}/{DONE}")
    if record is None:
        return State("damaged", f"{DONE} cannot be read") if os.path.lexists(f"{place}/{DONE}") else State("to do")
    if why := differences(record, recipe):
        return State("changed", why, record)
    inputs = look_at_inputs(subject, look) if inputs is None else inputs
    if inputs != record.known_inputs(look):
        return State("changed", "inputs are missing" if None in inputs.values() else "newer or other inputs", record)
    try:
        if all(os.stat(f"{place}/{name}").st_size == file.get("bytes") for name, file in record.files.items()):
            return State("done", "", record)
    except OSError:
        return State("damaged", "files are missing", record)
    return State("damaged", "files are cut short, or were changed", record)


def differences(record: Record, recipe: Recipe) -> str:
    """How the recipe of a record differs from what is asked for, in words. It may have a page that is not asked for; a
    method that the images chose, as for `default`, counts too; a commit that is not known is no difference."""
    made = dict(record.recipe)
    if may_be_same_commit(made.get("commit"), recipe.get("commit")):
        made["commit"] = recipe.get("commit")
    if made.get("report"):
        made["report"] = recipe.get("report")
    if record.row.get("method") == recipe.get("method"):
        made["method"] = recipe.get("method")
        if recipe.get("weights") is None:  # those that `default` may have used, and did not
            made["weights"] = None
    keys = sorted(key for key in {*made, *recipe} if made.get(key) != recipe.get(key))
    return ", ".join(f"{key.replace('_', ' ')} {made.get(key)} → {recipe.get(key)}" for key in keys)


@dataclass(frozen=True)
class Plan:
    """The subjects of a list by what a run has to do with them, as the folder says; no image is looked into."""

    done: list[Subject] = field(default_factory=list)
    failed: list[Subject] = field(default_factory=list)
    again: list[Subject] = field(default_factory=list)  # those with results that changed or are damaged
    new: list[Subject] = field(default_factory=list)
    changes: Counter[str] = field(default_factory=Counter)  # why subjects are done again, and how many
    begun: Collection[str] = ()  # the subjects that a process is at, or was killed during

    @property
    def subjects(self) -> list[Subject]:
        return [*self.done, *self.failed, *self.again, *self.new]

    def to_do(self, retry: bool) -> list[Subject]:
        """What a run has to do: failures after all else, and those last that are begun."""
        subjects = [*self.new, *self.again, *(self.failed if retry else [])]
        return sorted(subjects, key=lambda one: one.name in self.begun)


def make_plan(folder: CohortFolder, subjects: Iterable[Subject], recipe: Recipe) -> Plan:
    plan, survey = Plan(begun=folder.begun()), Survey(folder, recipe)
    places = {"done": plan.done, "failed": plan.failed, "to do": plan.new}
    for one in subjects:
        kind, why, _ = survey.state(one)
        places.get(kind, plan.again).append(one)
        if kind in ("changed", "damaged"):
            plan.changes[why] += 1
    return plan


def check_kept(plan: Plan, folder: CohortFolder, recipe: Recipe) -> None:
    """BadInput if results would be replaced by others. If inputs are only newer, their content decides."""
    if replaced := [one for one in plan.again if judge(folder, one, recipe, "sha256").kind == "changed"]:
        reasons = "; ".join(f"{why} ({number:,})" for why, number in plan.changes.items())
        said = f"{counted(len(replaced), 'result')} in {folder.path} would be replaced, since they are not as asked for"
        raise BadInput(f"{said}: {reasons}: leave out `keep`, or choose another folder")


# What came out of a cohort: one row per subject of the list, which to look at first, and what all come to.

TABLE, SUMMARY = "cohort.csv", "summary.json"
FIRST = "subject", "status", "verdict", "suspicion", "suspicion_by", "outlier"
LAST = "seconds", "machine", "reason", "notes"  # columns that every table has, at its beginning and at its end
IMAGES = (".nii.gz", ".tfm")  # how the names of files end that a registration is; others show or time it


class Result(NamedTuple):
    """What the page of a cohort needs to know of a subject beside its row."""

    version: str = ""  # another text for other images that came out, however they are shown; empty if there are none
    has_page: bool = True


def collect_rows(
    folder: CohortFolder, table: CohortTable, recipe: Recipe, page: str = ""
) -> tuple[list[str], list[str], list[Row], list[Result]]:
    """The columns of the table; those of them that are the list's, NAME_given where a column of ours is called NAME;
    one row per subject: its status, what the list says of it, and what was measured; and the result of each.

    `page` is the name of the page that a subject may have; {subject} stands for its name."""
    survey, results = Survey(folder, recipe), []
    rows: list[Row] = []
    for one in table.subjects:
        kind, why, record = survey.state(one)
        row: Row = {"subject": one.name, "status": kind}
        result = Result(has_page=False)
        if kind == "done":
            row |= {**record.row, "seconds": record.seconds}
            images = [file["sha256"] for name, file in record.files.items() if name.endswith(IMAGES)]
            version = hashlib.sha256("".join(sorted(images)).encode()).hexdigest()[:8]
            result = Result(version, page.replace("{subject}", one.name) in record.files)
        elif kind == "failed":
            row |= {"seconds": record.seconds, "machine": record.machine}
        rows.append(row | ({"reason": why} if why else {}))
        results.append(result)
    measured = [name for name in columns_of(rows) if name not in (*FIRST, *LAST)]
    carried = [f"{name}_given" if name in (*FIRST, *LAST, *measured) else name for name in table.carried]
    for row, one in zip(rows, table.subjects, strict=True):
        row |= zip(carried, one.carried, strict=True)
    add_suspicion(rows, measured)
    return [*FIRST, *measured, *carried, *LAST], carried, rows, results


# Which subjects to look at first: those that failed, then by verdict, then those unlike the rest of the cohort.
#
# Unlike the rest: the largest robust z-score, |x − median| / (1.4826 MAD), of any measure. Of one that has a worse
# side, only what lies on that side counts: nobody need look at the best result first.

MIN_SUBJECTS, MIN_NAMED = 4, 20
"""With fewer subjects there are no z-scores; with fewer than the second, they rank, but no measure is named."""
OUTLIER_FROM = 3.5  # a z-score from which the measure is named (Iglewicz and Hoaglin)
TOLD_FROM = 2.0  # a z-score from which the measure is told that ranks a subject, of however few
WORSE_BELOW = ("dice", "ncc")
WORSE_ABOVE = ("hausdorff", "surface", "folding", "jacobian", "closure", "frames_repaired", "end_point_error")
"""How the measures begin that are worse the lower, and the higher, they are; others are unusual on either side."""


def add_suspicion(rows: Sequence[Row], measures: Sequence[str]) -> None:
    """Give rows their suspicion, and the measure most unlike the rest's: suspicion_by; if far out, outlier too."""
    measures = [name for name in measures if not name.startswith("mae")]  # in units of the images, which differ
    most, which = np.zeros(len(rows)), np.full(len(rows), -1)
    for k, name in enumerate(measures):
        z = robust_z([row.get(name) for row in rows])
        if name.startswith((*WORSE_BELOW, *WORSE_ABOVE)):
            z = (-z if name.startswith(WORSE_BELOW) else z).clip(min=0)
        which[np.abs(z) > most] = k
        most = np.maximum(most, np.abs(z))
    for row, score, k in zip(rows, most.tolist(), which.tolist(), strict=True):
        if row["status"] in ("done", "failed"):  # these and verdicts count more than a z-score, which is 99 at most
            of_verdict = {"failed": 200.0, "look": 100.0}.get(str(row.get("verdict")), 0.0)
            row["suspicion"] = round(score + (300.0 if row["status"] == "failed" else 0.0) + of_verdict, 2)
        if score >= TOLD_FROM:
            row["suspicion_by"] = measures[k]
        if score >= OUTLIER_FROM and len(rows) >= MIN_NAMED:
            row["outlier"] = measures[k]


def robust_z(values: Sequence[object]) -> np.ndarray:
    """(x − median) / (1.4826 MAD) of each value; 0 where there is no number, or too few differ."""
    x = np.array([v if isinstance(v, (int, float)) else np.nan for v in values], dtype=float)
    known = x[np.isfinite(x)]
    if len(known) < MIN_SUBJECTS:
        return np.zeros(len(x))
    median = np.median(known)
    away = np.abs(known - median)
    # The standard deviation of a normal distribution, in units of the median, and of the mean, absolute deviation. The
    # latter is for a measure that most subjects have alike, such as folds.
    spread = 1.4826 * np.median(away) or 1.2533 * away.mean()
    if spread <= 0:
        return np.zeros(len(x))
    return np.nan_to_num((x - median) / spread).clip(-99, 99)


def summarise_rows(rows: Sequence[Row], recipe: Recipe) -> dict[str, Any]:
    """What summary.json holds: counts, and of each measured column of those done its mean, spread and percentiles."""
    statuses, verdicts = (Counter(row[name] for row in rows if name in row) for name in ("status", "verdict"))
    reasons = Counter(row.get("reason", "") for row in rows if row["status"] == "failed")
    done = [row for row in rows if row["status"] == "done"]
    metrics = {}
    for name in columns_of(done):
        found = [float(row[name]) for row in done if isinstance(row.get(name), (int, float))]
        if found and name != "suspicion":
            low, median, high = np.percentile(found, (5, 50, 95)).tolist()
            metrics[name] = {"mean": float(np.mean(found)), "std": float(np.std(found))}
            metrics[name] |= {"percentile_5": low, "median": median, "percentile_95": high}
    left = len(rows) - statuses["done"] - statuses["failed"]
    counts = {"subjects": len(rows), "done": statuses["done"], "failed": statuses["failed"], "left": left}
    outcomes = {"verdicts": dict(verdicts), "failures": dict(reasons.most_common(20))}
    return {**counts, **outcomes, "metrics": metrics, "recipe": dict(recipe)}
