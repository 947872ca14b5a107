"""`vrnet cohort`: many subjects, on this machine or on a cluster."""

import os
import re
import warnings
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from vrnet.app.arguments import (
    Folder,
    Group,
    Jobs,
    LabelNamesText,
    MethodOptions,
    Name,
    OptionalFolder,
    changed_fields,
    refuse_options,
)
from vrnet.app.cine import (
    PAGE,
    notes_on_tracking,
    prepare_tracking,
    shown_pair,
    summary,
    write_track_report,
    write_tracking,
)
from vrnet.app.cine import SUMMARY as TRACKING
from vrnet.app.console import end_if_any, last_words, method_title, print_line, this_command
from vrnet.app.layouts import DESCRIPTION, IGNORE, IGNORED, NAMES, description, name_pair, name_tracking
from vrnet.app.pair import METRICS, notes_on, read_pair, register_pair
from vrnet.cohort.results import CohortFolder, Recipe
from vrnet.cohort.run import FIRST, LAST, SUMMARY, TABLE, Plan, Survey, Tally, collect_rows, is_made_by, summarise_rows
from vrnet.cohort.table import PAIRS, CohortTable, Missing, Subject, some
from vrnet.devices import use_threads
from vrnet.errors import BadInput, InputWarning, Progress, counted
from vrnet.files import (
    RECORD,
    Row,
    exists,
    hold_lock,
    json_ready,
    own_files,
    read_json,
    read_rows,
    replace_set,
    write_bytes,
    write_json,
    write_table,
)
from vrnet.images.resample import one_thread
from vrnet.methods.names import MethodSpec
from vrnet.provenance import __version__, commit
from vrnet.registration.options import RegistrationOptions
from vrnet.report.cohort import INDEX, Links, heading, write_index
from vrnet.report.figures import THUMBNAIL, write_thumbnail
from vrnet.verdict.rules import WORDS

if TYPE_CHECKING:
    from vrnet.cohort.run import Task
    from vrnet.methods.method import Images

ListFile = Annotated[Path | None, tyro.conf.Positional, tyro.conf.arg(metavar="LIST.csv")]
WHOLE = "1/1"
"""The shard that is all of a list."""


@dataclass(frozen=True, kw_only=True)
class Cohort:
    """Register, or track, every subject of a list, and say which to look at.

    LIST.csv has one row per subject. Pairs are registered: columns subject, fixed and moving; where wanted
    fixed_labels, moving_labels, fixed_mask and moving_mask. Cines are tracked: columns subject and cine; where wanted
    labels, and frame, the one that they belong to, counted from 0. Further columns, such as group or scanner, go with
    the subject. Paths are relative to the file.

    Writes in DIR: subjects/NAME, with what `vrnet register` or `vrnet track` writes; failures/NAME.json and NAME.txt,
    with the reason why a subject could not be done, and the traceback; cohort.csv, with one row per subject;
    summary.json; and index.html, a page that ranks the subjects by how much they need a look.

    It may be stopped at any moment and started again: what is done is not done twice, and what is half done does not
    count. Results of another method, parameter, version or input are made again. The exit status is 0 when every
    subject is done, whatever the verdicts; 3 where some failed or are left to another run; 130 after Ctrl-C.
    """

    list_file: ListFile = None
    """The list of subjects."""
    out: Folder
    """Folder for the results; made if it is not there."""
    scan: OptionalFolder = None
    """Instead of a list, a folder in the layout of ACDC or BIDS: writes DIR/pairs.csv, to be looked at and used; or
    DIR/cines.csv, where it has cines alone."""
    cines: bool = False
    """With --scan: list the cines, also where there are pairs of ED and ES."""
    dry_run: bool = False
    """Say what is done already, what would be done and what is missing, and do nothing."""
    retry: bool = False
    """Try those again that could not be done."""
    keep: bool = False
    """Replace no result: where method, parameters, version or inputs are others than those of results that are there,
    end with status 2."""
    skip_broken: bool = False
    """Go on where files of the list are not there: those subjects fail. Otherwise all of them are named, and
    nothing is done."""
    jobs: Jobs = 1
    """So many subjects at a time, each in a process with one thread (needs vrnet[cluster])."""
    scheduler: Annotated[str | None, tyro.conf.arg(metavar="ADDRESS|FILE")] = None
    """The Dask scheduler of a cluster that runs, such as tcp://host:8786, or the file that it wrote; the workers must
    see the images and DIR under the same names."""
    shard: Annotated[str, tyro.conf.arg(metavar="I/N")] = WHOLE
    """Do every N-th subject from the I-th on, I from 1 to N: for array jobs that share a list without Dask."""
    bids: bool = False
    """Name results as BIDS derivatives: DIR/sub-NAME/sub-NAME_from-ES_to-ED_mode-image_xfm.nii.gz and so on, with a
    dataset_description.json. Of a pair, the transform back is written, too."""
    method: Name = "default"
    """Any name that `vrnet methods` lists."""
    label_names: LabelNamesText = None
    """What the labels are called in pages and pictures; or a known set of names: acdc, ukbb, hippocampus or
    freesurfer. Columns of cohort.csv keep the numbers. Of cines they say which labels are RV, Myo and LV."""
    options: Group[RegistrationOptions]
    report: bool = False
    """Write the page and the pictures of each subject, too."""
    method_options: Group[MethodOptions]

    def run(self) -> None:
        from vrnet.files import is_folder

        if self.scan is not None:
            self.write_list(self.scan)
            return
        if self.list_file is None:
            raise BadInput("there is no list of subjects: give LIST.csv, or --scan FOLDER to have one written")
        if is_folder(self.list_file):
            raise BadInput(f"{self.list_file} is a folder: --scan {self.list_file} writes the list of its subjects")
        if self.cines:
            raise BadInput("`cines` is for a folder that is scanned: whether a list is of cines, its columns say")
        self.run_list(self.list_file)

    def write_list(self, folder: Path) -> None:
        """Write the list of a folder's subjects."""
        from vrnet.app.layouts import scan_folder, write_scanned
        from vrnet.cohort.table import find_missing, read_table

        if self.list_file is not None:
            raise BadInput("a list and a folder to be scanned cannot be given at once: leave out one")
        others = {*changed_fields(self)} - {"out", "scan", "cines"}
        refuse_options(self, others, "on a folder that is listed: give that with the list")
        found = scan_folder(folder, self.cines)
        path = write_scanned(found, self.out)
        print_line(
            f"Wrote {path}: {counted(len(found), 'subject')}. Look at it, then: vrnet cohort {path} --out {self.out}"
        )
        print_line("With --report, each subject has a page, which the page of the cohort leads to.")
        subjects = read_table(path).subjects
        say(chain(unlabelled_lines(subjects), missing_lines(find_missing(subjects), skip_broken=False)))

    def run_list(self, path: Path) -> None:
        """Do what is to do of a list."""
        from vrnet.app.layouts import as_bids
        from vrnet.cohort.executors import check_jobs
        from vrnet.cohort.results import CohortFolder, find_unseen
        from vrnet.cohort.run import Task, check_kept, make_plan
        from vrnet.cohort.table import check_files, find_missing, read_table, rename_carried, shard
        from vrnet.files import check_set

        index, shards = read_shard(self.shard)
        check_jobs(self.jobs, self.scheduler)
        table = read_table(path)
        work = self.work(table)
        table, renamed = rename_carried(as_bids(table) if self.bids else table, is_taken)
        say(renamed_lines(renamed))
        folder = CohortFolder(self.out.absolute(), "." if self.bids else "subjects")
        subjects, recipe = shard(table.subjects, index, shards), work.recipe()
        plan, missing = make_plan(folder, subjects, recipe), find_missing(subjects)
        if self.dry_run:
            say(chain(plan_lines(plan, self.retry), missing_lines(missing, self.skip_broken)))
            return
        check_set(self.out, planned_tables(recipe))
        check_files(path, subjects, missing, self.skip_broken)
        if self.keep:
            check_kept(plan, folder, recipe)
        self.do(plan, Task(folder, work, recipe, find_unseen(plan.to_do(self.retry))), table)

    def work(self, table: "CohortTable") -> "RegisterSubject | TrackSubject":
        """What is done to each subject; BadInput if something is asked for that cannot be done to it."""
        from vrnet.cardiac.labels import heart_of
        from vrnet.cohort.table import CINES
        from vrnet.devices import find_device

        if self.scheduler is None:
            find_device(self.options.device)  # which fails at once where there is none
        images: Images = "cine" if table.kind is CINES else "pair"
        method, others = self.method_options.choice(self.method, images), (self.report, self.bids)
        names = self.names_of_labels(table)
        if names and not any(column.endswith("labels") for one in table.subjects for column in one.files):
            raise BadInput(f"names of labels are given, but not the labels: {table.path} names no labels")
        if table.kind is not CINES:
            return RegisterSubject(method, self.options, *others, names)
        if names:
            heart_of(dict(names))  # which fails at once where the wall has no name
        known = RegistrationOptions(slices=self.options.slices, device=self.options.device)
        if self.options != known:
            raise BadInput("cines are tracked: leave out --affine, --brightness, --match-intensities and --folds")
        return TrackSubject(method, known, *others, names)

    def names_of_labels(self, table: "CohortTable") -> "NamePairs":
        """What labels are called: as the user says, or else as the names of all their files tell.

        Those of cines are known without."""
        from vrnet.cohort.table import CINES
        from vrnet.data.labels import names_told_by_files, read_label_names

        if self.label_names is not None:
            return tuple(read_label_names(self.label_names).items())
        files = (file for one in table.subjects for column, file in one.files.items() if column.endswith("labels"))
        names = () if table.kind is CINES else tuple(names_told_by_files(files).items())
        if names:
            told = ", ".join(f"{label} {name}" for label, name in names)
            print_line(f"Structures are called as in ACDC, whose names the files of the labels have: {told}.")
        return names

    def do(self, plan: "Plan", task: "Task", table: "CohortTable") -> None:
        """Do what is to do, and write the tables."""
        from vrnet.cohort.run import open_folder

        with open_folder(task.folder, task.recipe):
            not_done = self.do_and_collect(plan, task, table)
        end_if_any(not_done)  # which is an end, and no stop that the folder would have to forgive

    def do_and_collect(self, plan: "Plan", task: "Task", table: "CohortTable") -> int:
        """Do what is to do, write the tables, and return how many subjects are not done."""

        say(plan_lines(plan, self.retry))
        retire_tables(task.folder, plan, task.recipe)
        tally = self.do_subjects(plan, task)
        say(unable_lines(tally))
        if self.shard != WHOLE:
            is_current = not tally.total and has_current_tables(task.folder, table, plan.subjects, task.recipe)
            if is_current or not is_complete(task.folder, table, task.recipe):
                failed = tally.failed + (0 if self.retry else len(plan.failed))
                say(shard_lines(self.shard, plan, tally, failed, is_current))
                return failed + tally.left
        summary, rows = write_tables(task.folder, table, task.recipe)
        say(ending_lines(summary, rows, tally.unable))
        if summary["failed"]:
            print_line(f"See {self.out / 'failures'} for tracebacks; --retry tries those again.")
        print_line(f"Wrote cohort.csv, summary.json and index.html in {self.out}.")
        return summary["failed"] + summary["left"]

    def do_subjects(self, plan: "Plan", task: "Task") -> "Tally":
        """Do what is to do, here or elsewhere."""
        from vrnet.app.console import cohort_progress
        from vrnet.cohort.executors import open_executor
        from vrnet.cohort.run import Tally, run_tasks
        from vrnet.devices import CPU, find_device

        subjects = plan.to_do(self.retry)
        if (self.jobs, self.scheduler, self.shard) == (1, None, WHOLE) and find_device(self.options.device) == CPU:
            say(jobs_line(len(subjects)))
        tally = Tally(len(subjects))
        executor = open_executor(len(subjects), self.jobs, self.scheduler)
        try:
            with last_words(lambda: stopped_line(plan, tally)), cohort_progress() as show, executor as opened:
                return run_tasks(task, subjects, opened, show, tally)
        except KeyboardInterrupt:
            print_line(stopped_line(plan, tally))
            raise


def say(lines: Iterable[str]) -> None:
    """Print some lines."""
    for line in lines:
        print_line(line)


def read_shard(text: str) -> tuple[int, int]:
    """(I, N) of I/N."""
    found = re.fullmatch("([0-9]{1,6})/([0-9]{1,6})", text)
    index, shards = (int(found[1]), int(found[2])) if found else (0, 0)
    if not 1 <= index <= shards:
        raise BadInput(f'--shard is "{text}": give I/N, such as 3/100, with I from 1 to N')
    return index, shards


# A cohort on the disk: what `vrnet cohort` writes of all subjects together.

TABLES = (TABLE, SUMMARY, INDEX)
COLLECTING_SECONDS = 120.0
"""How long to wait for another run that collects the same table."""


def write_tables(folder: CohortFolder, table: CohortTable, recipe: Recipe) -> tuple[dict[str, Any], list[Row]]:
    """Write cohort.csv, summary.json and index.html, and return the summary and the rows.

    Of several runs that end at once each waits for the one before, so that the last sees the results of all."""
    try:
        with hold_lock(folder.lock(".tables"), COLLECTING_SECONDS):
            links = links_of(folder, recipe)
            columns, rows, results = collect_rows(folder, table, recipe, links.page)
            summary = summarise_rows(rows, recipe)
            with replace_set(folder.path, planned_tables(recipe)) as staged:
                write_table(columns, ([row.get(name) for name in columns] for row in rows), staged / TABLE)
                write_json(summary, staged / SUMMARY)
                names, method = recipe["label_names"], methods_of(rows)
                write_index(staged / INDEX, columns, rows, summary, table.carried, links, names, method, results)
                if recipe["bids"]:
                    write_json(description(), staged / DESCRIPTION)
                    write_bytes(IGNORED.encode(), staged / IGNORE)
    except BlockingIOError as error:
        raise BadInput(f"another run is writing the tables of {folder.path}: start again when it has ended") from error
    return summary, rows


def is_complete(folder: CohortFolder, table: CohortTable, recipe: Recipe) -> bool:
    """Whether every subject of a list is done, or has failed: then the shard that asks is the last to end.

    Names are looked at first, which are listed at once. Shards go through the list from its beginning, so that what is
    left is found soonest from its end."""
    survey = Survey(folder, recipe)
    if any(one.name not in survey.results and one.name not in survey.failures for one in table.subjects):
        return False
    return all(survey.state(one).is_settled for one in reversed(table.subjects))


def has_current_tables(folder: CohortFolder, table: CohortTable, subjects: Iterable[Subject], recipe: Recipe) -> bool:
    """Whether whole tables of this recipe, and of the subjects of the list, are there that were written after the list,
    and after all that the folder remembers of these subjects."""
    if not {*planned_tables(recipe)} <= own_files(folder.path).keys() or not has_tables_of(folder, recipe):
        return False
    written = min((folder.path / name).stat().st_mtime_ns for name in TABLES)
    if table.path.stat().st_mtime_ns > written or any(folder.has_ended_since(one.name, written) for one in subjects):
        return False
    return has_rows_of(folder, table)


def has_rows_of(folder: CohortFolder, table: CohortTable) -> bool:
    """Whether cohort.csv has a row of each subject of a list, and no other."""
    try:
        names = [row["subject"] for row in read_rows(folder.path / TABLE, "one row per subject")]
    except (BadInput, LookupError):
        return False
    return names == [one.name for one in table.subjects]


def retire_tables(folder: CohortFolder, plan: Plan, recipe: Recipe) -> None:
    """Remove tables of results that are about to be replaced: should the run be stopped, they would tell of some that
    are gone."""
    has_tables = any(exists(folder.path / name) for name in TABLES)
    if has_tables and (plan.again or not has_tables_of(folder, recipe)):
        with replace_set(folder.path, planned_tables(recipe)):
            pass


def has_tables_of(folder: CohortFolder, recipe: Recipe) -> bool:
    """Whether the tables that are there tell of results of this recipe."""
    try:
        return is_made_by(recipe, {"recipe": dict(read_json(folder.path / SUMMARY)["recipe"])})
    except (BadInput, LookupError, TypeError, ValueError):
        return False


def planned_tables(recipe: Recipe) -> tuple[str, ...]:
    """The names of what is written of all subjects together."""
    return (*TABLES, DESCRIPTION, IGNORE) if recipe["bids"] else TABLES


def methods_of(rows: Sequence[Row]) -> str:
    """What ran, as people know it: `default` may come to several methods, of which the most frequent comes first."""
    counts = Counter(row["method"] for row in rows if row.get("method"))
    return ", ".join(method_title(name, None) for name, _ in counts.most_common())


def links_of(folder: CohortFolder, recipe: Recipe) -> Links:
    """What the page of a cohort leads to."""
    is_tracked = recipe.get("tracked", False)
    numbers = TRACKING if is_tracked else METRICS
    page, numbers, picture = (NAMES[name] if recipe["bids"] else name for name in (PAGE, numbers, THUMBNAIL))
    still, moved = ("the reference", "the frame farthest from it") if is_tracked else ("fixed", "moving")
    return Links(folder.results, page, picture, still, moved, numbers)


# What `vrnet cohort` says: what it will do, what came of it, and how to go on.

MAX_SHOWN = 10
"""Lines about missing files, about changes, and about reasons of failures."""
MAX_SUSPECTS = 3
"""Subjects that are named as the first to look at; the page ranks all."""


def plan_lines(plan: Plan, retry: bool) -> Iterator[str]:
    """What a run does, in numbers that add up, and why it replaces results."""
    tried = plan.failed if retry else []
    to_do = {"new": plan.new, "again": plan.again, "that failed before": tried}
    parts = ", ".join(f"{len(some_of):,} {word}" for word, some_of in to_do.items() if some_of)
    left_alone = f", {len(plan.failed):,} failed" if plan.failed and not retry else ""
    planned = f"{len(plan.to_do(retry)):,} to do{f' ({parts})' if parts else ''}"
    yield f"{counted(len(plan.subjects), 'subject')}: {len(plan.done):,} done already{left_alone}, {planned}."
    for why, number in plan.changes.most_common(MAX_SHOWN):
        yield f"Again, {number:,}: {why}."
    if len(plan.changes) > MAX_SHOWN:
        yield f"Again, for {counted(len(plan.changes) - MAX_SHOWN, 'more reason')}."
    if plan.again:
        yield "Earlier results of these are replaced, unless inputs are newer and of the same content."
    if deadly := [one.name for one in plan.to_do(retry) if one.name in plan.unended]:
        yield f"Last, since another run is at them or their process was killed: {some(deadly)}."
    if left_alone:
        yield "Those that failed are tried again with --retry."


def renamed_lines(renamed: Mapping[str, str]) -> Iterator[str]:
    """Which columns of the list have other names in the table."""
    for name, new in renamed.items():
        yield f"The column {name} of the list is {new} in cohort.csv, which has a column {name} of its own."


def missing_lines(missing: Sequence[Missing], skip_broken: bool) -> Iterator[str]:
    """The files of a list that cannot be had, and what to do about them unless they are skipped."""
    for one in missing[:MAX_SHOWN]:
        yield f"{'Cannot be read' if one.why else 'Missing'}, of {one.line()}"
    if len(missing) > MAX_SHOWN:
        yield f"Files of {counted(len(missing) - MAX_SHOWN, 'more subject')} are missing."
    if missing and not skip_broken:
        yield "Correct the list, or give --skip-broken with it, which makes failures of them."


def unlabelled_lines(subjects: Sequence[Subject]) -> Iterator[str]:
    """Which subjects have no labels, where others have some."""
    without = [one.name for one in subjects if not any(column.endswith("labels") for column in one.files)]
    if without and len(without) < len(subjects):
        yield f"Without labels, which others have: {some(without)}."


def jobs_line(subjects: int) -> Iterator[str]:
    """That one process does not use all cores, where there are several."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if (jobs := min(cores, subjects)) > 1:
        yield f"One at a time: --jobs {jobs} would use more of the {cores} cores here (it needs vrnet[cluster])."


def stopped_line(plan: Plan, tally: Tally) -> str:
    """How far a run was that is stopped, and what goes on."""
    done, total = len(plan.done) + tally.done, len(plan.subjects)
    kept = ", and stay done" if done else ""
    return f"Stopped: {done:,} of {total:,} subjects are done{kept}. To go on: {this_command()}"


def unable_lines(tally: Tally) -> Iterator[str]:
    """Which workers were stopped, and which subjects are left that no machine could do."""
    for reason, workers in most_frequent(by_reason(tally.stopped)):
        yield f"No more work was given to {some(workers)}: {reason}"
    for reason, names in most_frequent(by_reason(tally.unable)):
        yield f"Left, {some(names)}: {reason}"


def shard_lines(shard: str, plan: Plan, tally: Tally, failed: int, has_tables: bool) -> Iterator[str]:
    """What came of a shard that writes no tables, since others are to end or have written them, and in which so many
    failed, now or before."""
    yield f"Shard {shard}: {len(plan.done) + tally.done:,} done, {failed:,} failed, {tally.left:,} left."
    yield from failure_lines(tally.reasons)
    yield "The tables of all shards are there." if has_tables else "The last shard to end writes the tables."


def ending_lines(summary: Mapping[str, Any], rows: Sequence[Row], told: Container[str] = ()) -> Iterator[str]:
    """What came of a cohort; which subjects failed, which verdicts are failed, and what is left. Of subjects in `told`
    the reader knows why."""
    verdicts = ", ".join(f"{number:,} {WORDS[level]}" for level, number in sorted(summary["verdicts"].items()))
    judged = f"; verdicts: {verdicts}" if verdicts else ""
    yield f"{summary['done']:,} of {summary['subjects']:,} subjects are done{judged}."
    if bad := [str(row["subject"]) for row in rows if row.get("verdict") == "failed"]:
        yield f"Verdict {WORDS['failed']}: {some(bad)}."
    yield from suspect_line(rows, summary["recipe"].get("label_names") or {})
    yield from failure_lines({str(row["subject"]): str(row["reason"]) for row in rows if row["status"] == "failed"})
    left = [str(row["subject"]) for row in rows if row["status"] not in ("done", "failed")]
    if others := [name for name in left if name not in told]:
        yield f"Left, to another run or since they changed meanwhile: {some(others)}."
    if left:
        yield f"To see to what is left: {this_command()}"


def suspect_line(rows: Sequence[Row], label_names: Mapping[str, str]) -> Iterator[str]:
    """Which results to look at first, and the measure that each is farthest out in; nothing where none is far out."""
    suspects = [row for row in rows if row["status"] == "done" and row.get("suspicion_by")]
    first = sorted(suspects, key=lambda row: -row["suspicion"])[:MAX_SUSPECTS]
    if first:
        told = "; ".join(f"{row['subject']} ({heading(row['suspicion_by'], label_names)})" for row in first)
        yield f"Look first at what is farthest from the others: {told}."


def failure_lines(reasons: Mapping[str, str]) -> Iterator[str]:
    """Each reason why subjects could not be done, and which."""
    names = by_reason(reasons)
    yield from (f"Could not be done, {some(found)}: {reason}" for reason, found in most_frequent(names))
    if len(names) > MAX_SHOWN:
        yield f"{len(names) - MAX_SHOWN:,} more reasons are in cohort.csv."


def by_reason(reasons: Mapping[str, str]) -> dict[str, list[str]]:
    """The names that have each reason."""
    names: dict[str, list[str]] = {}
    for name, reason in reasons.items():
        names.setdefault(reason, []).append(name)
    return names


def most_frequent(names: Mapping[str, list[str]]) -> list[tuple[str, list[str]]]:
    """The reasons of most subjects."""
    return sorted(names.items(), key=lambda item: -len(item[1]))[:MAX_SHOWN]


# What `vrnet cohort` does to one subject: a pair is registered, a cine is tracked.

MEASURES = {"ncc": ("similarity", "ncc"), "mae": ("similarity", "mae")}
OVERLAPS = {"dice": "dice", "hausdorff_mm": "hausdorff_mm", "surface_mm": "mean_surface_distance_mm"}
"""Columns, each before and after, of what metrics.json has by structure."""
FIELD = ("folding_percent", "folding_strict_percent", "jacobian_gradient")
VOLUMES = (
    "lv_ejection_fraction_percent",
    "rv_ejection_fraction_percent",
    "lv_largest_ml",
    "lv_smallest_ml",
    "mass_g",
)


MEASURED = re.compile(
    rf"(dice|hausdorff_mm|surface_mm|ncc|mae)_(before|after)|dice_\d+|{'|'.join((*FIELD, *VOLUMES))}|peak_.*_percent"
    "|closure_(forward|backward)_mm|frames|frames_repaired|method|device"
)
"""The names of what is measured of a subject."""


NamePairs = tuple[tuple[int, str], ...]
"""(label, name): as pairs, so that what is done can be hashed."""


@dataclass(frozen=True)
class RegisterSubject:
    """Register the pair of a subject, and write what `vrnet register` writes."""

    method: MethodSpec
    options: RegistrationOptions
    report: bool = False
    bids: bool = False
    """Whether files have the names of BIDS derivatives."""
    label_names: NamePairs = ()
    """What labels are called."""

    def recipe(self) -> Recipe:
        """What results depend on beside their inputs. The device is not part of it: a run may go on elsewhere."""
        options = {name: value for name, value in self.options.as_json().items() if name != "device"}
        return json_ready({**of_method(self.method), **options, **of_output(self), **made_by()})

    def __call__(self, subject: Subject, folder: Path) -> Row:
        with computing_alone() as notes:
            pair = read_pair(*(subject.path(column) for column in PAIRS.files))  # type: ignore[arg-type]
            pair = pair.named(dict(self.label_names))  # not every subject has every structure
            result, _ = register_pair(no_stage, pair, self.method.load(), folder, self.options, report=self.report)
            write_thumbnail(folder / THUMBNAIL, result.on_fixed_grid)
            if self.bids:
                name_pair(folder, subject, result.transform, pair.moving.grid)
        (folder / RECORD).unlink()  # done.json records the files
        return row_of(result.metrics) | said([*notes, *notes_on(pair, result.metrics, result.affine)])


@dataclass(frozen=True)
class TrackSubject:
    """Track the cine of a subject, and write what `vrnet track` writes."""

    method: MethodSpec
    options: RegistrationOptions
    """Of which tracking knows slices and device."""
    report: bool = False
    bids: bool = False
    """Whether files have the names of BIDS derivatives."""
    label_names: NamePairs = ()
    """What labels are called, where they are not numbered as in ACDC."""

    def recipe(self) -> Recipe:
        """What results depend on beside their inputs; the device is not part of it."""
        asked = {"tracked": True, "slices": self.options.slices}
        return json_ready({**of_method(self.method), **asked, **of_output(self), **made_by()})

    def __call__(self, subject: Subject, folder: Path) -> Row:
        with computing_alone() as notes:
            request = prepare_tracking(
                subject.files["cine"],
                self.method.load(),
                subject.path("labels"),
                int(subject.values.get("frame", 0)),
                self.options.slices,
                None,
                self.options.device,
                dict(self.label_names) if self.label_names and "labels" in subject.files else None,
            )
            tracking = request.run(None, no_stage("tracking"))
            write_tracking(tracking, folder, no_stage("writing"))
            if self.report:
                write_track_report(tracking, folder)
            write_thumbnail(folder / THUMBNAIL, shown_pair(tracking))
        if self.bids:
            name_tracking(folder, subject, tracking.frame, len(tracking.cine))
        return row_of_tracking(summary(tracking)) | said([*notes, *notes_on_tracking(tracking)])


def of_method(method: MethodSpec) -> dict[str, Any]:
    """The part of a recipe that says by what a subject is done."""
    return {"method": str(method.load()), "weights": method.weights_sha256}


def of_output(work: "RegisterSubject | TrackSubject") -> dict[str, Any]:
    """The part of a recipe that says what is written of a subject."""
    names = {str(label): name for label, name in work.label_names}
    return {"report": work.report, "bids": work.bids, "label_names": names}


def made_by() -> dict[str, Any]:
    """The part of a recipe that says by which code a subject is done."""
    return {"vrnet": __version__, "commit": commit()}


@contextmanager
def computing_alone() -> Iterator[list[str]]:
    """Compute with one thread, wherever it is: so a result depends neither on how many jobs there are nor on which.

    What the package warns of meanwhile is in the list at the end, each thing once."""
    notes: list[str] = []
    with use_threads(1), one_thread(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", InputWarning)
        yield notes
    notes += dict.fromkeys(str(one.message) for one in caught if issubclass(one.category, InputWarning))


def said(notes: list[str]) -> Row:
    """The part of a row that holds notes, if there are any: what the terminal says of a single subject."""
    return {"notes": " ".join(note if note.endswith((".", ")")) else f"{note}." for note in notes)} if notes else {}


def no_stage(name: str) -> Progress:
    """Nobody looks at how far a single subject is."""
    return lambda done: None


def is_taken(column: str) -> bool:
    """Whether a column of cohort.csv is ours, so that one of the list must have another name."""
    return column in (*FIRST, *LAST) or MEASURED.fullmatch(column) is not None


def row_of(metrics: Mapping[str, Any]) -> Row:
    """The row of a table that metrics.json comes to."""
    row: Row = {"verdict": metrics["verdict"]["level"], "reason": " ".join(metrics["verdict"]["reasons"])}
    for column, (part, name) in MEASURES.items():
        row |= {f"{column}_{when}": metrics[part][f"{name}_{when}"] for when in ("before", "after")}
    for column, part in OVERLAPS.items():
        if part in metrics:
            row |= {f"{column}_{when}": metrics[part][when]["mean"] for when in ("before", "after")}
    row |= {f"dice_{label}": value for label, value in metrics.get("dice", {"after": {}})["after"].items()}
    row.pop("dice_mean", None)
    return row | {name: metrics[name] for name in (*FIELD, "method", "device")}


def row_of_tracking(summary: Mapping[str, Any]) -> Row:
    """The row of a table that the summary.json of a cine comes to."""
    row: Row = {"verdict": summary["verdict"]["level"], "reason": " ".join(summary["verdict"]["reasons"])}
    row |= {name: summary["volumes"][name] for name in VOLUMES if "volumes" in summary}
    peaks = summary["strain"]["peaks"]["global"] if "strain" in summary else {}
    row |= {f"peak_{name}_percent": peak["percent"] for name, peak in peaks.items() if peak is not None}
    row |= {f"closure_{way}_mm": summary["closure_mm"][way] for way in ("forward", "backward")}
    row |= {"folding_strict_percent": summary["folding_strict_percent"], "frames": summary["frames"]}
    row["frames_repaired"] = len(summary["frames_with_repaired_folds"])
    return row | {name: summary[name] for name in ("method", "device")}
