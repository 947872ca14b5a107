"""What `vrnet cohort` writes of all subjects together, and what it says of them."""

import os
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any

from vrnet.app.console import method_title, this_command
from vrnet.app.layouts import DESCRIPTION, IGNORE, IGNORED, NAMES, description
from vrnet.app.pair_files import METRICS
from vrnet.app.track import SUMMARY as TRACKING
from vrnet.cohort.results import CohortFolder, Plan, Recipe, Survey, is_made_by
from vrnet.cohort.run import Tally
from vrnet.cohort.summary import SUMMARY, TABLE, collect_rows, summarise_rows
from vrnet.cohort.table import CohortTable, Missing, Subject, some
from vrnet.errors import BadInput, counted
from vrnet.files import Row, exists, read_json, read_rows, replace_set, write_bytes, write_json, write_table
from vrnet.report.cine import PAGE
from vrnet.report.cohort import INDEX, Links, heading, write_index
from vrnet.report.figures import THUMBNAIL
from vrnet.verdict.rules import WORDS


def planned_tables(recipe: Recipe) -> tuple[str, ...]:
    """The names of what is written of all subjects together."""
    return (TABLE, SUMMARY, INDEX, *((DESCRIPTION, IGNORE) if recipe["bids"] else ()))


def write_tables(folder: CohortFolder, table: CohortTable, recipe: Recipe) -> tuple[dict[str, Any], list[Row]]:
    """Write cohort.csv, summary.json and index.html, and return the summary and the rows."""
    links = links_of(folder, recipe)
    columns, rows, results = collect_rows(folder, table, recipe, links.page)
    summary = summarise_rows(rows, recipe)
    # What ran, as people know it: `default` may come to several methods, of which the most frequent comes first.
    counts = Counter(row["method"] for row in rows if row.get("method"))
    method = ", ".join(method_title(name, None) for name, _ in counts.most_common())
    with replace_set(folder.path, planned_tables(recipe)) as staged:
        write_table(columns, ([row.get(name) for name in columns] for row in rows), staged / TABLE)
        write_json(summary, staged / SUMMARY)
        names = recipe["label_names"]
        write_index(staged / INDEX, columns, rows, summary, table.carried, links, names, method, results)
        if recipe["bids"]:
            write_json(description(), staged / DESCRIPTION)
            write_bytes(IGNORED.encode(), staged / IGNORE)
    return summary, rows


def remove_tables(folder: CohortFolder, recipe: Recipe) -> None:
    """Remove tables of results that are about to be replaced: should the run be stopped, they would tell of some that
    are gone."""
    if any(exists(folder.path / name) for name in planned_tables(recipe)):
        with replace_set(folder.path, planned_tables(recipe)):
            pass


def has_tables_of(folder: CohortFolder, recipe: Recipe) -> bool:
    """Whether the tables that are there tell of results of this recipe."""
    try:
        return is_made_by(recipe, {"recipe": dict(read_json(folder.path / SUMMARY)["recipe"])})
    except (BadInput, LookupError, TypeError, ValueError):
        return False


def has_rows_of(folder: CohortFolder, table: CohortTable) -> bool:
    """Whether the tables are there, with a row of each subject of a list, and no other."""
    try:
        names = [row["subject"] for row in read_rows(folder.path / TABLE, "one row per subject")]
    except (BadInput, LookupError):
        return False
    return names == [one.name for one in table.subjects] and exists(folder.path / INDEX)


def is_complete(folder: CohortFolder, table: CohortTable, recipe: Recipe) -> bool:
    """Whether every subject of a list is done, or has failed: then the shard that asks is the last to end.

    Names are looked at first, which are listed at once. Shards go through the list from its beginning, so that what is
    left is found soonest from its end."""
    survey = Survey(folder, recipe)
    if any(one.name not in survey.results and one.name not in survey.failures for one in table.subjects):
        return False
    return all(survey.state(one).kind in ("done", "failed") for one in reversed(table.subjects))


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
    if deadly := [one.name for one in plan.to_do(retry) if one.name in plan.begun]:
        yield f"Last, since another run is at them or their process was killed: {some(deadly)}."
    if left_alone:
        yield "Those that failed are tried again with --retry."


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
