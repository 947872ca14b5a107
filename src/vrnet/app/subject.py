"""What `vrnet cohort` does: to one subject, whose pair is registered or whose cine is tracked, and to a whole list."""

import os
import re
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vrnet.app.bids import DESCRIBED, DESCRIPTION, IGNORE, IGNORED, NAMES, as_bids, name_pair, name_tracking
from vrnet.app.cohort import WHOLE, Cohort, missing_lines
from vrnet.app.console import cohort_progress, exit_if, method_title, print_line, this_command
from vrnet.app.pair_files import METRICS, notes_on, read_pair, register_files
from vrnet.app.track import SUMMARY as TRACKING
from vrnet.app.track import Source, write_results
from vrnet.cardiac.cine import CineResult, track
from vrnet.cardiac.labels import heart_of
from vrnet.cohort import results as outcome
from vrnet.cohort.results import CohortFolder, Plan, Recipe, Survey, check_kept, make_plan
from vrnet.cohort.run import Tally, Task, check_jobs, open_executor, run_tasks
from vrnet.cohort.table import CINES, CohortTable, Subject, check_files, find_missing, read_table
from vrnet.data.labels import names_told_by_files, read_label_names
from vrnet.devices import CPU, find_device, use_threads
from vrnet.errors import BadInput, InputWarning, Progress, counted, some
from vrnet.files import RECORD, Row, check_set, json_ready, replace_set, write_bytes, write_json, write_table
from vrnet.images.resample import one_thread
from vrnet.methods.names import MethodSpec
from vrnet.provenance import __version__, commit
from vrnet.report import REPORT, THUMBNAIL
from vrnet.report.cine import shown_pair, write_report
from vrnet.report.cohort import INDEX, Links, heading, index_data, write_index
from vrnet.report.figures import write_thumbnail
from vrnet.report.pair import View
from vrnet.verdict.rules import WORDS
from vrnet.vocabulary import RegistrationOptions

OVERLAPS = {"dice": "dice", "hausdorff_mm": "hausdorff_mm", "surface_mm": "mean_surface_distance_mm"}
"""Columns, each before and after, of what metrics.json has by structure."""
FIELD = "folding_percent", "folding_strict_percent", "jacobian_gradient"
VOLUMES = (
    "lv_ejection_fraction_percent", "rv_ejection_fraction_percent", "lv_largest_ml", "lv_smallest_ml", "mass_g",
)  # fmt: skip
NOT_SHOWN: Progress = lambda done: None  # noqa: E731
"""Nobody looks at how far a single subject is."""


@dataclass(frozen=True)
class SubjectWork:
    """What is done to every subject of a list: its pair is registered, or its cine tracked."""

    method: MethodSpec
    options: RegistrationOptions
    """Of which tracking knows slices, channels and device."""
    report: bool = False
    bids: bool = False
    """Whether files have the names of BIDS derivatives."""
    label_names: tuple[tuple[int, str], ...] = ()
    """What labels are called; of cines, where they are not numbered as in ACDC. In pairs, so that all can be hashed."""
    are_cines: bool = False

    def recipe(self) -> Recipe:
        """What results depend on beside their inputs. The device is not in it: a run may go on elsewhere."""
        options = {name: value for name, value in self.options.as_json().items() if name != "device"}
        if self.are_cines:
            options = {"tracked": True, "slices": options["slices"], "channels": options["channels"]}
        return json_ready(
            {
                "method": str(self.method.load()),
                "weights": self.method.weights_sha256,
                **options,
                "report": self.report,
                "bids": self.bids,
                "label_names": dict(self.label_names),
                "vrnet": __version__,
                "commit": commit(),
            }
        )

    def __call__(self, subject: Subject, folder: Path) -> Row:
        """Write what `vrnet register` or `vrnet track` writes by one thread, whatever the jobs, and return the row."""
        do = self.track if self.are_cines else self.register
        with use_threads(1), one_thread(), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", InputWarning)
            row, notes = do(subject, folder)
        warned = dict.fromkeys(str(one.message) for one in caught if issubclass(one.category, InputWarning))
        if said := [*warned, *notes]:
            row["notes"] = " ".join(note if note.endswith((".", ")")) else f"{note}." for note in said)
        return row

    def register(self, subject: Subject, folder: Path) -> tuple[Row, list[str]]:
        """The row of a pair, out of its metrics.json, and notes on it."""
        pair = read_pair(**{column: Path(path) for column, path in subject.files.items()})
        pair = pair.named(dict(self.label_names))  # not every subject has every structure
        result, metrics, _ = register_files(
            lambda name: NOT_SHOWN, pair, self.method.load(), folder, self.options, report=self.report
        )
        write_thumbnail(folder / THUMBNAIL, View.of(result))
        if self.bids:
            name_pair(folder, subject, result.transform, pair.moving.grid)
        (folder / RECORD).unlink()  # done.json records the files
        row: Row = {"verdict": metrics["verdict"]["level"], "reason": " ".join(metrics["verdict"]["reasons"])}
        for name in ("ncc", "mae"):
            row |= {f"{name}_{when}": metrics["similarity"][f"{name}_{when}"] for when in ("before", "after")}
        for column, part in OVERLAPS.items():
            if part in metrics:
                row |= {f"{column}_{when}": metrics[part][when]["mean"] for when in ("before", "after")}
        heart = metrics.get("heart", {})
        if "ef_percent" in heart:
            volumes = sorted(heart["lv_ml"].values(), reverse=True)
            row |= zip(VOLUMES, (*heart["ef_percent"].values(), *volumes, heart["mass_g"]), strict=True)
            row["volumes_by"] = heart["source"] + (", unsure" if heart.get("level") == "look" else "")
        structures = metrics.get("dice", {"after": {}})["after"]
        row |= {f"dice_{label}": value for label, value in structures.items() if label != "mean"}
        return row | {name: metrics[name] for name in (*FIELD, "method", "device")}, notes_on(result)

    def track(self, subject: Subject, folder: Path) -> tuple[Row, list[str]]:
        """The row of a cine, out of its summary.json, and notes on it."""
        result = track(
            subject.files["cine"],
            self.method.load(),
            labels=subject.path("labels") or "auto",
            frame=int(subject.values["frame"]) if "frame" in subject.values else None,
            slices=self.options.slices,
            channels=self.options.channels,
            label_names=dict(self.label_names) if self.label_names and "labels" in subject.files else None,
            device=self.options.device,
        )
        names = ",".join(f"{label}={name}" for label, name in self.label_names) or None
        source = Source.of(Path(subject.files["cine"]), subject.path("labels"), result.frame, names)
        write_results(result, folder, NOT_SHOWN, source)
        if self.report:
            write_report(result, folder)
        write_thumbnail(folder / THUMBNAIL, shown_pair(result))
        if self.bids:
            name_tracking(folder, subject, result.frame, len(result.cine))
        return tracked_row(result), result.notes()


def tracked_row(result: CineResult) -> Row:
    """The row of a tracked cine in the table of a cohort."""
    summary: dict[str, Any] = result.metrics()
    row: Row = {"verdict": summary["verdict"]["level"], "reason": " ".join(summary["verdict"]["reasons"])}
    if "volumes" in summary:
        row |= {name: summary["volumes"][name] for name in VOLUMES}
        row["volumes_by"] = "network" if result.given_labels is None else "given labels"
    peaks = summary["strain"]["peaks"]["global"] if "strain" in summary else {}
    row |= {f"peak_{name}_percent": peak["percent"] for name, peak in peaks.items() if peak is not None}
    row |= {f"closure_{way}_mm": summary["closure_mm"][way] for way in ("forward", "backward")}
    row |= {name: summary[name] for name in ("folding_strict_percent", "frames")}
    row["frames_repaired"] = len(summary["frames_with_repaired_folds"])
    return row | {name: summary[name] for name in ("method", "device")}


# A list of subjects.

ENDED = "done", "failed"
"""The states of subjects that are not left."""
MAX_SHOWN = 10
"""Lines about missing files, about changes, and about reasons of failures."""


def run_list(asked: Cohort, path: Path) -> None:
    """Do what is to do of a list, write the tables, and say what came of it."""
    found = re.fullmatch("([0-9]{1,6})/([0-9]{1,6})", asked.shard)
    index, shards = (int(found[1]), int(found[2])) if found else (0, 0)
    if not 1 <= index <= shards:
        raise BadInput(f'--shard is "{asked.shard}": give I/N, such as 3/100, with I from 1 to N')
    check_jobs(asked.jobs, asked.scheduler)
    table = read_table(path)
    work = plan_work(asked, table)
    table = as_bids(table) if asked.bids else table
    folder = CohortFolder(asked.out.absolute(), "." if asked.bids else "subjects")
    subjects, recipe = table.subjects[index - 1 :: shards], work.recipe()
    plan, missing = make_plan(folder, subjects, recipe), find_missing(subjects)
    if asked.dry_run:
        print_line(*plan_lines(plan, asked.retry), *missing_lines(missing, asked.skip_broken))
        return
    check_set(asked.out, planned_tables(recipe))
    check_files(path, subjects, missing, asked.skip_broken)
    if asked.keep:
        check_kept(plan, folder, recipe)
    print_line(*plan_lines(plan, asked.retry))
    tally = do(asked, plan, Task(folder, work, recipe))
    survey = Survey(folder, recipe)  # what is left is found soonest from the end of the list
    if asked.shard != WHOLE and any(survey.state(one).kind not in ENDED for one in reversed(table.subjects)):
        failed = tally.failed + (0 if asked.retry else len(plan.failed))
        done = len(plan.done) + tally.done
        print_line(f"Shard {asked.shard}: {done:,} done, {failed:,} failed, {tally.left:,} left.",
                   *failure_lines(tally.reasons), "The last shard to end writes the tables.")  # fmt: skip
        exit_if(failed + tally.left > 0)
        return
    summary, rows = write_tables(folder, table, recipe)
    print_line(*ending_lines(summary, rows))
    if summary["failed"]:
        print_line(f"See {asked.out / 'failures'} for tracebacks; --retry tries those again.")
    print_line(f"Wrote cohort.csv, summary.json and index.html in {asked.out}.")
    exit_if(summary["failed"] + summary["left"] > 0)


def plan_work(asked: Cohort, table: CohortTable) -> SubjectWork:
    """What is done to each subject; BadInput if something is asked for that cannot be done to it."""
    if asked.scheduler is None:
        find_device(asked.options.device)  # which fails at once if there is none
    are_cines, options = table.kind is CINES, asked.options
    method = asked.method_options.spec(asked.method, "cine" if are_cines else "pair").pin()
    names: Mapping[int, str] = {}
    if asked.label_names is not None:
        names = read_label_names(asked.label_names)
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
        options = RegistrationOptions(**{name: getattr(asked.options, name) for name in kept})
        if options != asked.options:
            raise BadInput("cines are tracked: leave out --affine, --brightness, --match-intensities and --folds")
    return SubjectWork(method, options, asked.report, asked.bids, tuple(names.items()), are_cines)


def do(asked: Cohort, plan: Plan, task: Task) -> Tally:
    """Do what is to do, here or elsewhere."""
    subjects = plan.to_do(asked.retry)
    if (asked.jobs, asked.scheduler, asked.shard) == (1, None, WHOLE) and find_device(asked.options.device) == CPU:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        if (jobs := min(cores, len(subjects))) > 1:
            advice = f"--jobs {jobs} would use more of the {cores} cores here (it needs vrnet[cluster])"
            print_line(f"One at a time: {advice}.")
    tally = Tally(len(subjects))
    try:
        with open_executor(len(subjects), asked.jobs, asked.scheduler) as executor, cohort_progress() as show:
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


def planned_tables(recipe: Recipe) -> tuple[str, ...]:
    """The names of the files that are written of all subjects together."""
    return (outcome.TABLE, outcome.SUMMARY, INDEX, *((DESCRIPTION, IGNORE) if recipe["bids"] else ()))


def write_tables(folder: CohortFolder, table: CohortTable, recipe: Recipe) -> tuple[dict[str, Any], list[Row]]:
    """Write cohort.csv, summary.json and index.html, and return the summary and the rows."""
    is_tracked = recipe.get("tracked", False)
    names = REPORT, THUMBNAIL, TRACKING if is_tracked else METRICS
    page, picture, numbers = (NAMES[name] if recipe["bids"] else name for name in names)
    shown = ("the reference", "the frame farthest from it") if is_tracked else ("fixed", "moving")
    links = Links(folder.results, page, picture, *shown, numbers)
    columns, carried, rows, results = outcome.collect_rows(folder, table, recipe, page)
    for name, new in zip(table.carried, carried, strict=True):
        if new != name:
            print_line(f"The column {name} of the list is {new} in cohort.csv, which has a column {name} of its own.")
    summary = outcome.summarise_rows(rows, recipe)
    # What ran, as people know it: `default` may come to several methods, of which the most frequent comes first.
    counts = Counter(row["method"] for row in rows if row.get("method"))
    method = ", ".join(method_title(name, None) for name, _ in counts.most_common())
    with replace_set(folder.path, planned_tables(recipe)) as staged:
        write_table(columns, ([row.get(name) for name in columns] for row in rows), staged / outcome.TABLE)
        write_json(summary, staged / outcome.SUMMARY)
        label_names = recipe["label_names"]
        data = index_data(columns, rows, carried, links, label_names, results)
        write_index(staged / INDEX, data, summary, method)
        if recipe["bids"]:
            write_json(DESCRIBED, staged / DESCRIPTION)
            write_bytes("".join(f"{name}\n" for name in IGNORED).encode(), staged / IGNORE)
    return summary, rows


# What is said: what the command will do, what came of it, and how to go on.


def plan_lines(plan: Plan, retry: bool) -> Iterator[str]:
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


def ending_lines(summary: Mapping[str, Any], rows: Sequence[Row]) -> Iterator[str]:
    """What came of a cohort: failed verdicts, what to look at first, which subjects failed, and what is left."""
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
