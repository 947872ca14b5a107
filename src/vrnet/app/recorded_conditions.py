"""An affine start and matched intensities of a registration, found again by the files beside its transform."""

from dataclasses import dataclass, replace
from math import isclose
from pathlib import Path
from typing import Any

from vrnet.app.conditions import NOTHING_KNOWN, Conditions
from vrnet.app.pair import AFFINE, METRICS, TRANSFORM
from vrnet.app.recorded_masks import images_named, metrics_beside
from vrnet.errors import BadInput, warn_of_input
from vrnet.files import exists
from vrnet.images.affine import Affine, AffineKind
from vrnet.images.grid import Grid
from vrnet.images.itk_transforms import read_itk
from vrnet.registration.brightness import Remap
from vrnet.schema import convert, convert_record

SAME_WITHIN = 1e-3
"""By how many degrees, millimetres and parts of a scale a start may differ from what is recorded of it."""

OF_CONDITIONS = "affine", "brightness", "options"
"""The keys of metrics.json that say how a transform was found."""


@dataclass(frozen=True)
class RecordedStart:
    """What metrics.json says of an affine start."""

    kind: AffineKind
    rotation_deg: float
    translation_mm: float
    scale: float

    def is_of(self, affine: Affine) -> bool:
        """Whether this was said of that map."""
        said = affine.summary()
        return all(isclose(getattr(self, key), said[key], abs_tol=SAME_WITHIN)
                   for key in ("rotation_deg", "translation_mm", "scale"))  # fmt: skip


def conditions_beside(transform: Path, fixed: Path, moving: Path, grid: Grid) -> Conditions:
    """Those that `vrnet register` found a transform under, on the grid of fixed; none where nothing is recorded, or the
    images are others. The user is told which are used, and why they are not."""
    try:
        metrics = metrics_beside(transform)
    except KeyError:
        return NOTHING_KNOWN
    except BadInput:
        tell_of_loss(transform, "cannot be read")
        return NOTHING_KNOWN
    try:
        recorded, found, files = start_of(metrics), matching(metrics), images_named(metrics)
    except (ValueError, KeyError, TypeError):
        if is_of_registration(metrics):
            tell_of_loss(transform, what_is_lacking(metrics))
        return NOTHING_KNOWN
    place, parts = transform.with_name(METRICS), ["with matched intensities"] if found.is_matched else []
    if recorded is None and not parts:
        return found
    if (files.fixed, files.moving) != (fixed.name, moving.name):
        warn_of_input(f"{place} tells how {files.names} were compared, which are other images: that is not used")
        return NOTHING_KNOWN
    start = transform.with_name(AFFINE)
    if recorded and (affine := read_start(start, recorded, grid)):
        found, parts = replace(found, affine=affine), [f"after the start in {start.name}", *parts]
    elif recorded:
        warn_of_input(f"{transform} was found after an affine start, but {start} is gone, or is another: the whole "
                      "transform is judged as a deformation")  # fmt: skip
    if parts:
        warn_of_input(f"{transform} is judged as it was found: {' and '.join(parts)}, as {place} says "
                      "(--ignore-recorded judges it as a whole, in the intensities of the images)")  # fmt: skip
    return found


def is_record(path: Path) -> bool:
    """Whether a file says how the transform beside it was found, also where it was copied there with it."""
    try:
        return path.name == METRICS and metrics_beside(path.with_name(TRANSFORM))["options"] is not None
    except (ValueError, KeyError, TypeError):
        return False


def is_of_registration(metrics: Any) -> bool:
    """Whether a record is of a registration; one of another program was never to tell how a transform was found."""
    return isinstance(metrics, dict) and any(key in metrics for key in OF_CONDITIONS)


def what_is_lacking(metrics: dict[str, Any]) -> str:
    """Why a record does not tell how a transform was found; that of an evaluation has no options."""
    known = {key for key in metrics if key != "options" or metrics[key] is not None}
    lacking = [key for key in (*OF_CONDITIONS, "files") if key not in known]
    return f"has no {' and no '.join(lacking)}" if lacking else "is damaged"


def tell_of_loss(transform: Path, reason: str) -> None:
    warn_of_input(f"{transform.with_name(METRICS)} {reason}, so that it does not tell how {transform} was found: that "
                  "is judged as a whole, in the intensities of the images")  # fmt: skip


def start_of(metrics: Any) -> RecordedStart | None:
    """The affine start, if there was one."""
    return None if metrics["affine"] is None else convert_record(metrics["affine"], RecordedStart)


def matching(metrics: Any) -> Conditions:
    """In which intensities moving was seen."""
    remap = None if metrics["brightness"] is None else convert_record(metrics["brightness"], Remap)
    options = metrics["options"]
    return Conditions(
        remap=remap,
        match_intensities=convert(options["match_intensities"], bool),
        is_brightness_kept=options.get("brightness") == "keep",
    )


def read_start(path: Path, recorded: RecordedStart, grid: Grid) -> Affine | None:
    """The affine map of a file, about the centre of a grid; None unless it is the one that is recorded."""
    try:
        itk = read_itk(path) if exists(path) else None
        found = Affine.from_sitk(itk).checked(len(grid.shape)) if itk is not None and itk.IsLinear() else None
    except BadInput:
        return None
    start = found and replace(found.about(grid.centre), kind=recorded.kind)
    return start if start and recorded.is_of(start) else None
