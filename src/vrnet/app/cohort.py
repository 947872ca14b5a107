"""A cohort on the disk: what `vrnet cohort` writes of all subjects together."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from vrnet.app.bids import DESCRIPTION, IGNORE, IGNORED, NAMES, description
from vrnet.app.console import method_title
from vrnet.app.pair import METRICS
from vrnet.app.track_files import SUMMARY as TRACKING
from vrnet.app.track_report import PAGE
from vrnet.cohort.collect import SUMMARY, TABLE, collect_rows, summarise_rows
from vrnet.cohort.plan import Plan
from vrnet.cohort.records import CohortFolder, Recipe
from vrnet.cohort.state import Survey, is_made_by
from vrnet.cohort.table import CohortTable, Subject
from vrnet.errors import BadInput
from vrnet.file_sets import own_files, replace_set
from vrnet.files import Row, exists, read_json, read_rows, write_bytes, write_json, write_table
from vrnet.locks import hold_lock
from vrnet.report.cohort import INDEX, Links, write_index
from vrnet.report.thumbnail import THUMBNAIL

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
