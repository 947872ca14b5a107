"""`vrnet cohort`: many subjects, on this machine or on a cluster."""

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from vrnet.app import arguments as args
from vrnet.app.console import cohort_progress, exit_if, method_title, print_line, this_command
from vrnet.errors import BadInput, counted, some
from vrnet.vocabulary import RegistrationOptions

if TYPE_CHECKING:
    from vrnet.app.subject import SubjectWork
    from vrnet.cohort.results import CohortFolder, Plan, Recipe
    from vrnet.cohort.run import Tally, Task
    from vrnet.cohort.table import CohortTable
    from vrnet.files import Row

WHOLE = "1/1"
"""The shard that is all of a list."""
ENDED = "done", "failed"
"""The states of subjects that are not left."""
MAX_SHOWN = 10
"""Lines about missing files, about changes, and about reasons of failures."""


@dataclass(frozen=True, kw_only=True)
class Cohort:
    """Register, or track, every subject of a list, and say which to look at.

    LIST.csv has one row per subject. Pairs are registered: columns subject, fixed and moving, optionally fixed_labels,
    moving_labels, fixed_mask and moving_mask. Cines are tracked: columns subject and cine, optionally labels, and
    frame, the one that they belong to, from 0. Further columns, such as group, are kept. Paths are relative to the
    file.

    Writes in DIR: subjects/NAME, as `vrnet register` or `vrnet track` does; failures/NAME.json and NAME.txt, the reason
    of a failure and the traceback; cohort.csv, one row per subject; summary.json; and index.html, a page that ranks the
    subjects by how much they need a look.

    It may be stopped at any moment and started again: what is done is not repeated, unless its method, parameters,
    version or inputs changed. The exit status is 0 when every subject is done, whatever the verdicts; 3 where some
    failed or are left to another run; 130 after Ctrl-C.
    """

    list_file: Annotated[Path | None, tyro.conf.Positional, tyro.conf.arg(metavar="LIST.csv")] = None
    """The list of subjects."""
    out: args.Folder
    """Folder for the results; made if it is not there."""
    scan: args.OptionalFolder = None
    """Instead of a list, a folder in the layout of ACDC or BIDS: writes its list, DIR/pairs.csv or DIR/cines.csv."""
    cines: bool = False
    """With --scan: list the cines, also where there are pairs of ED and ES."""
    dry_run: bool = False
    """Say what is done already, what would be done and what is missing, and do nothing."""
    retry: bool = False
    """Try those again that could not be done."""
    keep: bool = False
    """Replace no result: end with status 2 where method, parameters, version or inputs changed."""
    skip_broken: bool = False
    """Go on where files of the list are missing: those subjects fail. Otherwise nothing is done."""
    jobs: args.Jobs = 1
    """So many subjects at a time, each in a process with one thread (needs vrnet[cluster])."""
    scheduler: Annotated[str | None, tyro.conf.arg(metavar="ADDRESS|FILE")] = None
    """A Dask scheduler, such as tcp://host:8786, or the file that it wrote; workers must see the images and DIR."""
    shard: Annotated[str, tyro.conf.arg(metavar="I/N")] = WHOLE
    """Do every N-th subject from the I-th on, I from 1 to N: for array jobs that share a list without Dask."""
    bids: bool = False
    """Name results as BIDS derivatives, with a dataset_description.json. Pairs also get the transform back."""
    method: args.Name = "default"
    """Any name that `vrnet methods` lists."""
    label_names: args.LabelNamesText = None
    """What the labels are called in pages; SET: acdc, ukbb, hippocampus or freesurfer. Of cines they say which labels
    are RV, Myo and LV."""
    options: args.Group[RegistrationOptions]
    report: bool = False
    """Write the page and the pictures of each subject."""
    method_options: args.Group[args.MethodOptions]

    def run(self) -> None:
        from vrnet.files import is_folder

        if self.scan is not None:
            self.write_list(self.scan)
        elif self.list_file is None:
            raise BadInput("there is no list of subjects: give LIST.csv, or --scan FOLDER to have one written")
        elif is_folder(self.list_file):
            raise BadInput(f"{self.list_file} is a folder: --scan {self.list_file} writes the list of its subjects")
        elif self.cines:
            raise BadInput("`cines` is for a folder that is scanned: whether a list is of cines, its columns say")
        else:
            self.run_list(self.list_file)

    def write_list(self, folder: Path) -> None:
        """Write the list of a folder's subjects."""
        from vrnet.app.layouts import scan_folder, write_scanned
        from vrnet.cohort.table import find_missing, read_table

        if self.list_file is not None:
            raise BadInput("a list and a folder to be scanned cannot be given at once: leave out one")
        others = {*args.changed_fields(self)} - {"out", "scan", "cines"}
        args.refuse_options(self, others, "on a folder that is listed: give that with the list")
        found = scan_folder(folder, self.cines)
        path = write_scanned(found, self.out)
        said = f"Wrote {path}: {counted(len(found), 'subject')}. Look at it, then: vrnet cohort {path} --out {self.out}"
        print_line(said, "With --report, each subject has a page, which the page of the cohort leads to.")
        subjects = read_table(path).subjects
        without = [one.name for one in subjects if not one.has_labels]
        told = [f"Without labels, which others have: {some(without)}."] if 0 < len(without) < len(subjects) else []
        print_line(*told, *missing_lines(find_missing(subjects), skip_broken=False))

    def run_list(self, path: Path) -> None:
        """Do what is to do of a list, write the tables, and say what came of it."""
        from vrnet.app.layouts import as_bids
        from vrnet.cohort.results import CohortFolder, Survey, check_kept, make_plan
        from vrnet.cohort.run import Task, check_jobs
        from vrnet.cohort.table import check_files, find_missing, read_table
        from vrnet.files import check_set

        found = re.fullmatch("([0-9]{1,6})/([0-9]{1,6})", self.shard)
        index, shards = (int(found[1]), int(found[2])) if found else (0, 0)
        if not 1 <= index <= shards:
            raise BadInput(f'--shard is "{self.shard}": give I/N, such as 3/100, with I from 1 to N')
        check_jobs(self.jobs, self.scheduler)
        table = read_table(path)
        work = self.work(table)
        table = as_bids(table) if self.bids else table
        folder = CohortFolder(self.out.absolute(), "." if self.bids else "subjects")
        subjects, recipe = table.subjects[index - 1 :: shards], work.recipe()
        plan, missing = make_plan(folder, subjects, recipe), find_missing(subjects)
        if self.dry_run:
            print_line(*plan_lines(plan, self.retry), *missing_lines(missing, self.skip_broken))
            return
        check_set(self.out, planned_tables(recipe))
        check_files(path, subjects, missing, self.skip_broken)
        if self.keep:
            check_kept(plan, folder, recipe)
        print_line(*plan_lines(plan, self.retry))
        tally = self.do(plan, Task(folder, work, recipe))
        print_line(
            *(f"No more work was given to {', '.join(names)}: {reason}" for reason, names in by_reason(tally.stopped))
        )
        survey = Survey(folder, recipe)  # what is left is found soonest from the end of the list
        if self.shard != WHOLE and any(survey.state(one).kind not in ENDED for one in reversed(table.subjects)):
            failed = tally.failed + (0 if self.retry else len(plan.failed))
            done = len(plan.done) + tally.done
            print_line(f"Shard {self.shard}: {done:,} done, {failed:,} failed, {tally.left:,} left.",
                       *failure_lines(tally.reasons), "The last shard to end writes the tables.")  # fmt: skip
            exit_if(failed + tally.left > 0)
            return
        summary, rows = write_tables(folder, table, recipe)
        print_line(*ending_lines(summary, rows))
        if summary["failed"]:
            print_line(f"See {self.out / 'failures'} for tracebacks; --retry tries those again.")
        print_line(f"Wrote cohort.csv, summary.json and index.html in {self.out}.")
        exit_if(summary["failed"] + summary["left"] > 0)

    def work(self, table: "CohortTable") -> "SubjectWork":
        """What is done to each subject; BadInput if something is asked for that cannot be done to it."""
        from vrnet.app.subject import SubjectWork
        from vrnet.cardiac.labels import heart_of
        from vrnet.cohort.table import CINES
        from vrnet.data.labels import names_told_by_files, read_label_names
        from vrnet.devices import find_device

        if self.scheduler is None:
            find_device(self.options.device)  # which fails at once if there is none
        are_cines, options = table.kind is CINES, self.options
        method = self.method_options.spec(self.method, "cine" if are_cines else "pair").pin()
        names: Mapping[int, str] = {}
        if self.label_names is not None:
            names = read_label_names(self.label_names)
            if not any(one.has_labels for one in table.subjects):
                raise BadInput(f"names of labels are given, but not the labels: {table.path} names no labels")
        elif not are_cines:
            files = (file for one in table.subjects for column, file in one.files.items() if column.endswith("labels"))
            if names := names_told_by_files(files):
                told = ", ".join(f"{label} {name}" for label, name in names.items())
                print_line(f"Structures are called as in ACDC, whose names the files of the labels have: {told}.")
        if are_cines:
            if names:
                heart_of(names)  # which fails at once if the wall has no name
            kept = ("slices", "channels", "device")
            options = RegistrationOptions(**{name: getattr(self.options, name) for name in kept})
            if options != self.options:
                raise BadInput("cines are tracked: leave out --affine, --brightness, --match-intensities and --folds")
        return SubjectWork(method, options, self.report, self.bids, tuple(names.items()), are_cines)

    def do(self, plan: "Plan", task: "Task") -> "Tally":
        """Do what is to do, here or elsewhere."""
        from vrnet.cohort.run import Tally, open_executor, run_tasks
        from vrnet.devices import CPU, find_device
        from vrnet.files import replace_set

        subjects = plan.to_do(self.retry)
        if (self.jobs, self.scheduler, self.shard) == (1, None, WHOLE) and find_device(self.options.device) == CPU:
            cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
            if (jobs := min(cores, len(subjects))) > 1:
                advice = f"--jobs {jobs} would use more of the {cores} cores here (it needs vrnet[cluster])"
                print_line(f"One at a time: {advice}.")
        tally = Tally(len(subjects))
        try:
            with open_executor(len(subjects), self.jobs, self.scheduler) as executor, cohort_progress() as show:
                task.folder.make(ended={one.name for one in plan.done})
                if plan.again:  # tables would tell of results that are about to go
                    with replace_set(task.folder.path, planned_tables(task.recipe)):
                        pass
                return run_tasks(task, subjects, executor, show, tally)
        except KeyboardInterrupt:
            done, total = len(plan.done) + tally.done, len(plan.subjects)
            kept = ", and stay done" if done else ""
            print_line(f"Stopped: {done:,} of {total:,} subjects are done{kept}. To go on: {this_command()}")
            raise


def planned_tables(recipe: "Recipe") -> tuple[str, ...]:
    """The names of the files that are written of all subjects together."""
    from vrnet.app.layouts import DESCRIPTION, IGNORE
    from vrnet.cohort.summary import SUMMARY, TABLE
    from vrnet.report.cohort import INDEX

    return (TABLE, SUMMARY, INDEX, *((DESCRIPTION, IGNORE) if recipe["bids"] else ()))


def write_tables(folder: "CohortFolder", table: "CohortTable", recipe: "Recipe") -> "tuple[dict[str, Any], list[Row]]":
    """Write cohort.csv, summary.json and index.html, and return the summary and the rows."""
    from vrnet.app.layouts import DESCRIBED, DESCRIPTION, IGNORE, IGNORED, NAMES
    from vrnet.app.pair_files import METRICS
    from vrnet.app.track import SUMMARY as TRACKING
    from vrnet.cohort.summary import SUMMARY, TABLE, collect_rows, summarise_rows
    from vrnet.files import replace_set, write_bytes, write_json, write_table
    from vrnet.report import REPORT, THUMBNAIL
    from vrnet.report.cohort import INDEX, Links, index_data, write_index

    is_tracked = recipe.get("tracked", False)
    names = REPORT, THUMBNAIL, TRACKING if is_tracked else METRICS
    page, picture, numbers = (NAMES[name] if recipe["bids"] else name for name in names)
    shown = ("the reference", "the frame farthest from it") if is_tracked else ("fixed", "moving")
    links = Links(folder.results, page, picture, *shown, numbers)
    columns, carried, rows, results = collect_rows(folder, table, recipe, page)
    for name, new in zip(table.carried, carried, strict=True):
        if new != name:
            print_line(f"The column {name} of the list is {new} in cohort.csv, which has a column {name} of its own.")
    summary = summarise_rows(rows, recipe)
    # What ran, as people know it: `default` may come to several methods, of which the most frequent comes first.
    counts = Counter(row["method"] for row in rows if row.get("method"))
    method = ", ".join(method_title(name, None) for name, _ in counts.most_common())
    with replace_set(folder.path, planned_tables(recipe)) as staged:
        write_table(columns, ([row.get(name) for name in columns] for row in rows), staged / TABLE)
        write_json(summary, staged / SUMMARY)
        label_names = recipe["label_names"]
        data = index_data(columns, rows, carried, links, label_names, results)
        write_index(staged / INDEX, data, summary, method)
        if recipe["bids"]:
            write_json(DESCRIBED, staged / DESCRIPTION)
            write_bytes("".join(f"{name}\n" for name in IGNORED).encode(), staged / IGNORE)
    return summary, rows


# What is said: what the command will do, what came of it, and how to go on.


def plan_lines(plan: "Plan", retry: bool) -> Iterator[str]:
    """What a run does, in numbers that add up, and why it replaces results."""
    to_do = {"new": plan.new, "again": plan.again, "that failed before": plan.failed if retry else []}
    parts = ", ".join(f"{len(subjects):,} {word}" for word, subjects in to_do.items() if subjects)
    left_alone = f", {len(plan.failed):,} failed" if plan.failed and not retry else ""
    planned = f"{len(plan.to_do(retry)):,} to do{f' ({parts})' if parts else ''}"
    yield f"{counted(len(plan.subjects), 'subject')}: {len(plan.done):,} done already{left_alone}, {planned}."
    for why, number in plan.changes.most_common(MAX_SHOWN):
        yield f"Again, {number:,}: {why}."
    if plan.again:
        yield "Earlier results of these are replaced, unless inputs are newer and of the same content."
    if begun := [one.name for one in plan.to_do(retry) if one.name in plan.begun]:
        yield f"Last, since another run is at them or their process was killed: {some(begun)}."
    if left_alone:
        yield "Those that failed are tried again with --retry."


def missing_lines(missing: Mapping[str, str], skip_broken: bool) -> Iterator[str]:
    """The files of a list that are not there, and what to do about them unless they are skipped."""
    for name, file in [*missing.items()][:MAX_SHOWN]:
        yield f"Missing, of {name}: {file}"
    if len(missing) > MAX_SHOWN:
        yield f"Files of {counted(len(missing) - MAX_SHOWN, 'more subject')} are missing."
    if missing and not skip_broken:
        yield "Correct the list, or give --skip-broken with it, which makes failures of them."


def ending_lines(summary: Mapping[str, Any], rows: "Sequence[Row]") -> Iterator[str]:
    """What came of a cohort: failed verdicts, what to look at first, which subjects failed, and what is left."""
    from vrnet.report.cohort import heading
    from vrnet.verdict.rules import WORDS

    verdicts = ", ".join(f"{number:,} {WORDS[level]}" for level, number in sorted(summary["verdicts"].items()))
    judged = f"; verdicts: {verdicts}" if verdicts else ""
    yield f"{summary['done']:,} of {summary['subjects']:,} subjects are done{judged}."
    if bad := [str(row["subject"]) for row in rows if row.get("verdict") == "failed"]:
        yield f"Verdict {WORDS['failed']}: {some(bad)}."
    suspects = [row for row in rows if row["status"] == "done" and row.get("suspicion_by")]
    if first := sorted(suspects, key=lambda row: -row["suspicion"])[:3]:
        names = summary["recipe"].get("label_names") or {}
        told = "; ".join(f"{row['subject']} ({heading(row['suspicion_by'], names)})" for row in first)
        yield f"Look first at what is farthest from the others: {told}."
    yield from failure_lines({str(row["subject"]): str(row["reason"]) for row in rows if row["status"] == "failed"})
    if left := [str(row["subject"]) for row in rows if row["status"] not in ENDED]:
        yield f"Left, to another run or since they changed meanwhile: {some(left)}."
        yield f"To see to what is left: {this_command()}"


def failure_lines(reasons: Mapping[str, str]) -> Iterator[str]:
    """Each reason why subjects could not be done, and which."""
    found = by_reason(reasons)
    yield from (f"Could not be done, {some(names)}: {reason}" for reason, names in found[:MAX_SHOWN])
    if len(found) > MAX_SHOWN:
        yield f"{len(found) - MAX_SHOWN:,} more reasons are in cohort.csv."


def by_reason(reasons: Mapping[str, str]) -> list[tuple[str, list[str]]]:
    """Each reason with the names that have it, the most frequent reason first."""
    names: dict[str, list[str]] = {}
    for name, reason in reasons.items():
        names.setdefault(reason, []).append(name)
    return sorted(names.items(), key=lambda item: -len(item[1]))
