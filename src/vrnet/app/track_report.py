"""What people look at of a tracked cine: the page, its curves as a picture, and a film for slides."""

from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from vrnet.app.endings import as_options
from vrnet.app.tracking import CLOSURE, Tracking
from vrnet.evaluation.cine_verdict import where_to_look
from vrnet.evaluation.strain import NO_SEGMENTS
from vrnet.methods.names import kind_of
from vrnet.progress import Progress
from vrnet.provenance import versions
from vrnet.report.cine_figures import curves_figure, write_film
from vrnet.report.cine_numbers import Tracked, frame_text
from vrnet.report.cine_page import write_cine_page
from vrnet.report.figures import save
from vrnet.report.film import Film
from vrnet.wording import in_runs

PAGE_SUFFIX = ".html"
REPORT_FILES = PAGE, CURVES, FILM = "report.html", "strain.png", "cine.gif"
VOLUME_DEFINITION = (
    "voxels of the labels brought to each frame, times their volume (Simpson's rule); ejection "
    "fraction: 100 (largest - smallest) / largest volume of the cycle; mass: 1.05 g per ml of the reference's wall"
)
FOLDS = "voxels of all frames where any of the determinants between a voxel and its neighbours is 0 or less"


def report_names(is_labelled: bool) -> list[str]:
    """The files of a report; without labels there are no curves."""
    return [*REPORT_FILES] if is_labelled else [PAGE, FILM]


def write_track_page(tracking: Tracking, page: Path, film: Film | None = None) -> Path:
    """Write the page alone, and return it; the film is that of the tracking."""
    write_cine_page(page, film or film_of(tracking), quality(tracking), describe_tracking(tracking))
    return page


def write_track_report(tracking: Tracking, folder: Path, progress: Progress | None = None) -> Path:
    """Write the page and the pictures in a folder, and return the page."""
    tell, film = progress or (lambda done: None), film_of(tracking)
    write_track_page(tracking, folder / PAGE, film)
    tell(1 / len(REPORT_FILES))
    if film.volumes is not None:
        save(curves_figure(film, Path(tracking.cine.name).name), folder / CURVES)
    tell(2 / len(REPORT_FILES))
    write_film(folder / FILM, film)
    return folder / PAGE


def film_of(tracking: Tracking) -> Film:
    """The tracked cine as it is shown."""
    labels = None if tracking.reference_labels is None else tracking.reference_labels.array
    cine = tracking.cine
    return Film(
        cine.frames, tracking.fields, cine.grid, tracking.frame, cine.times_ms, labels, tracking.heart,
        tracking.strain, tracking.volumes, tracking.label_names, tracking.no_strain,
        tracking.cine.doubt,
    )  # fmt: skip


def quality(tracking: Tracking) -> Tracked:
    """How well it was tracked, with what the numbers mean."""
    meanings = {"closure error": CLOSURE, "folded voxels": FOLDS}
    if tracking.volumes is not None:
        meanings = {"volumes": VOLUME_DEFINITION, **meanings}
    folds, verdict = tracking.folding_strict_percent, verdict_of(tracking)
    return Tracked(tracking.closure_mm, folds, meanings, verdict, where_to_look(tracking.evidence))


def verdict_of(tracking: Tracking) -> dict[str, Any]:
    """The verdict as summary.json holds it, with what to try as options of the command, and where it is worst."""
    verdict, worst = tracking.verdict, where_to_look(tracking.evidence)
    told = replace(verdict, try_=tuple(as_options(advice) for advice in verdict.try_)).as_json()
    return told | {"worst": None if worst is None else {"slice": worst.slice, "frame": worst.frame}}


def repaired_frames(tracking: Tracking) -> list[int]:
    """The frames whose fields were changed to free them of folds."""
    return [k for k, repair in enumerate(tracking.found.repairs) if repair is not None]


def notes_on_tracking(tracking: Tracking) -> list[str]:
    """What a reader should know beside the verdict: whether it may be no cine, why there are no segments, and where
    folds were repaired."""
    doubt = [f"{tracking.cine.doubt}."] if tracking.cine.doubt else []
    has_no_segments = tracking.strain is not None and not tracking.strain.insertions
    return [*doubt, *([f"Segments are {NO_SEGMENTS}."] if has_no_segments else []), *notes_on_folds(tracking)]


def notes_on_folds(tracking: Tracking) -> list[str]:
    """In how many frames folds were repaired."""
    changed = {k: repair.changed_percent for k, repair in enumerate(tracking.found.repairs) if repair is not None}
    if not changed:
        return []
    worst = max(changed, key=lambda k: changed[k])
    most = f"in the worst, {frame_text(worst)}, {changed[worst]:.2g} % of the voxels were moved"
    return [f"Folds were repaired in {len(changed)} of {len(tracking.cine)} frames: {most}."]


def describe_tracking(tracking: Tracking) -> dict[str, str]:
    """What was run and by which code, for the page: {heading: text}."""
    cine, found = tracking.cine, tracking.found
    size = " x ".join(map(str, cine.grid.shape))
    spacing = " x ".join(f"{h:.4g}" for h in cine.grid.spacing)
    about = {
        "cine": cine.name,
        "frames": f"{len(cine)} of {size} voxels of {spacing} mm",
        "reference": frame_text(tracking.frame, len(cine)),
        "in files": "frames are counted from 0, as in Python: frame 1 here is frame 0 there, or frame_00",
    }
    if tracking.reference_labels is not None:
        about["labels"] = tracking.reference_labels.name
    about["method"] = found.method
    if kind := kind_of(found.method):
        about["configuration"] = kind
    if found.turned_by:
        about["turns found by"] = found.turned_by
    if found.refined_by:
        about["refined by"] = found.refined_by
    if len(cine.grid.shape) == 3:
        about["slices"] = "each by itself" if found.slice_axis is not None else "together"
    if repaired := [k + 1 for k in repaired_frames(tracking)]:
        about["folds"] = f"repaired in {len(repaired)} of {len(cine)} frames: {in_runs(repaired)}"
    return about | {
        "device": found.device,
        "seconds of tracking": f"{found.seconds:.1f}",
        "versions": ", ".join(f"{name} {version}" for name, version in versions().items() if version),
        "date": datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z"),
    }
