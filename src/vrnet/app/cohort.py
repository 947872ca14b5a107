"""A cohort on the disk: what `vrnet cohort` does to each subject, and what it writes of all."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from vrnet.app.bids import DESCRIPTION, IGNORE, IGNORED, NAMES, description, rename_results
from vrnet.app.image_pair import read_pair
from vrnet.app.pair import METRICS, REPORT, register_pair
from vrnet.cohort.collect import SUMMARY, TABLE, collect_rows, summarise_rows
from vrnet.cohort.records import CohortFolder, Recipe
from vrnet.cohort.stamps import digest
from vrnet.cohort.table import FILES, CohortTable, Subject
from vrnet.errors import BadInput, InputWarning
from vrnet.file_sets import RECORD, replace_set
from vrnet.files import Row, json_ready, write_bytes, write_json, write_table
from vrnet.images.itk_settings import one_thread
from vrnet.locks import hold_lock
from vrnet.methods.method import Method
from vrnet.methods.names import choose
from vrnet.progress import Progress
from vrnet.provenance import __version__, commit
from vrnet.registration.options import RegistrationOptions
from vrnet.report.cohort import INDEX, Links, write_index
from vrnet.report.thumbnail import THUMBNAIL, write_thumbnail
from vrnet.threads import use_threads

TABLES = (TABLE, SUMMARY, INDEX)
COLLECTING_SECONDS = 120.0
"""How long to wait for another run that collects the same table."""
MEASURES = {
    "ncc": ("similarity", "ncc"),
    "mae": ("similarity", "mae"),
}
OVERLAPS = {"dice": "dice", "hausdorff_mm": "hausdorff_mm", "surface_mm": "mean_surface_distance_mm"}
"""Columns, each before and after, of what metrics.json has by structure."""
FIELD = ("folding_percent", "folding_strict_percent", "jacobian_gradient")


@dataclass(frozen=True)
class RegisterSubject:
    """Register the pair of a subject, and write what `vrnet register` writes."""

    method: str
    asked: tuple[Path | None, tuple[str, ...], bool]
    """Weights, settings, and whether to average."""
    options: RegistrationOptions
    report: bool = False
    bids: bool = False
    """Whether files have the names of BIDS derivatives."""
    label_names: tuple[tuple[int, str], ...] = ()
    """What labels are called."""

    def recipe(self) -> Recipe:
        """What results depend on beside their inputs. The device is not part of it: a run may go on elsewhere."""
        method, weights = load_once(self.method, *self.asked), self.asked[0]
        options = {name: value for name, value in self.options.as_json().items() if name != "device"}
        made_by = {"vrnet": __version__, "commit": commit()}
        found = {"method": str(method), "weights": None if weights is None else digest(str(weights)), **options}
        names = {str(label): name for label, name in self.label_names} or None
        return json_ready({**found, "report": self.report, "bids": self.bids, "label_names": names, **made_by})

    def __call__(self, subject: Subject, folder: Path) -> Row:
        """With one thread, wherever it runs: so a result depends neither on how many jobs there are nor on which."""
        method = load_once(self.method, *self.asked)
        with use_threads(1), one_thread(), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", InputWarning)
            pair = read_pair(*(subject.path(column) for column in FILES))  # type: ignore[arg-type]
            pair = replace(pair, label_names=dict(self.label_names))  # not every subject has every structure
            result, _ = register_pair(no_stage, pair, method, folder, self.options, report=self.report)
            write_thumbnail(folder / THUMBNAIL, result.on_fixed_grid)
        (folder / RECORD).unlink()  # done.json records the files
        if self.bids:
            rename_results(folder, subject)
        notes = dict.fromkeys(str(one.message) for one in caught if issubclass(one.category, InputWarning))
        return row_of(result.metrics) | ({"notes": "; ".join(notes)} if notes else {})


@cache
def load_once(name: str, weights: Path | None, settings: tuple[str, ...], average: bool) -> Method:
    """The method, whose model is read once per process."""
    return choose(name, weights, settings, average)


def no_stage(name: str) -> Progress:
    """Nobody looks at how far a single subject is."""
    return lambda done: None


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
    return row | {name: metrics[name] for name in FIELD} | {"device": metrics["device"]}


def write_tables(folder: CohortFolder, table: CohortTable, recipe: Recipe) -> dict[str, Any]:
    """Write cohort.csv, summary.json and index.html, and return the summary.

    Of several runs that end at once each waits for the one before, so that the last sees the results of all."""
    try:
        with hold_lock(folder.lock(".tables"), COLLECTING_SECONDS):
            columns, rows = collect_rows(folder, table, recipe)
            summary = summarise_rows(rows, recipe)
            with replace_set(folder.path, planned_tables(recipe)) as staged:
                write_table(columns, ([row.get(name) for name in columns] for row in rows), staged / TABLE)
                write_json(summary, staged / SUMMARY)
                names = recipe.get("label_names") or {}
                titles = {f"dice_{label}": f"dice_{name}" for label, name in names.items()}
                write_index(staged / INDEX, columns, rows, summary, table.carried, links_of(folder, recipe), titles)
                if recipe["bids"]:
                    write_json(description(), staged / DESCRIPTION)
                    write_bytes(IGNORED.encode(), staged / IGNORE)
    except BlockingIOError as error:
        raise BadInput(f"another run is writing the tables of {folder.path}: start again when it has ended") from error
    return summary


def is_complete(folder: CohortFolder, table: CohortTable) -> bool:
    """Whether every subject has a result or a failure: of many shards, only the last need read those of all."""
    return folder.names_of_results() | folder.names_of_failures() >= {one.name for one in table.subjects}


def planned_tables(recipe: Recipe) -> tuple[str, ...]:
    """The names of what is written of all subjects together."""
    return (*TABLES, DESCRIPTION, IGNORE) if recipe["bids"] else TABLES


def links_of(folder: CohortFolder, recipe: Recipe) -> Links:
    """What the page of a cohort leads to."""
    page, picture = REPORT if recipe["report"] else METRICS, THUMBNAIL
    return Links(folder.results, *((NAMES[page], NAMES[picture]) if recipe["bids"] else (page, picture)))
