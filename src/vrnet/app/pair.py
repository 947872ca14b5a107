"""Files in, files out: what `vrnet register`, `vrnet evaluate` and `vrnet demo` share."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vrnet.errors import BadInput
from vrnet.evaluation.pair import overlap, regularity, similarity, target_registration_error
from vrnet.files import check_folder, write_json
from vrnet.images.image import Image, as_labels
from vrnet.images.io import read_image, write_image
from vrnet.images.points import Points
from vrnet.images.resample import coverage, place_image, place_labels
from vrnet.images.transform import Transform
from vrnet.methods.method import Method
from vrnet.methods.names import choose
from vrnet.methods.weights import SUFFIX
from vrnet.progress import Stage
from vrnet.provenance import __version__, provenance, versions
from vrnet.registration.images import ImageRegistration, Slices, check_pair, register_images, resolve_on_grid
from vrnet.report.figures import overview, save
from vrnet.report.page import write_report
from vrnet.report.pair import Pair

OUTPUTS = ("warped.nii.gz", "transform.nii.gz", "warped_labels.nii.gz", "metrics.json", "report.html", "overview.png")


@dataclass(frozen=True)
class Case:
    """Two images, and the labels of either, each on its image's grid."""

    fixed: Image
    moving: Image
    fixed_labels: Image | None = None
    moving_labels: Image | None = None

    def __post_init__(self) -> None:
        for labels, image in ((self.fixed_labels, self.fixed), (self.moving_labels, self.moving)):
            if labels is not None and not labels.grid.matches(image.grid):
                raise BadInput(f"{labels.name} is not on the grid of {image.name}: labels must match their image")


def read_case(fixed: Path, moving: Path, fixed_labels: Path | None = None, moving_labels: Path | None = None) -> Case:
    """The images and labels of these files."""
    labels = [None if path is None else as_labels(read_image(path)) for path in (fixed_labels, moving_labels)]
    return Case(read_image(fixed), read_image(moving), *labels)


def run(
    stage: Stage,
    case: Case,
    method: Method,
    folder: Path,
    *,
    slices: Slices = "auto",
    match_intensities: bool = False,
    device: str = "auto",
    report: bool = False,
) -> tuple["Outcome", list[Path]]:
    """Register a case and write what became of it in the folder; `stage` is told what is being done."""
    check_folder(folder, OUTPUTS)
    ready = resolve_on_grid(method, case.fixed.grid, slices)
    found = register_images(
        case.fixed,
        case.moving,
        ready,
        slices=slices,
        match_intensities=match_intensities,
        device=device,
        progress=stage(f"registering with {ready}"),
    )
    stage("measuring")
    done = outcome(case, found.transform, found)
    stage("writing")
    written = write_outcome(done, folder)
    if report:
        written += write_pages(done, folder, found.energies.tolist(), described(case, ready, found, match_intensities))
    return done, written


def transform_of(
    stage: Stage, method: str, case: Case, slices: Slices, device: str, weights: Path | None = None
) -> tuple[Transform, ImageRegistration | None]:
    """The transform in a file of this name; or that which the method of this name finds, with the registration."""
    if Path(method).suffix not in ("", SUFFIX):
        if weights is not None:
            raise BadInput(f"{method} is a transform, which has no weights: leave out --weights, or name a method")
        check_pair(case.fixed, case.moving)
        return Transform.load(method, case.fixed.grid), None
    ready = resolve_on_grid(choose(method, weights), case.fixed.grid, slices)
    tick = stage(f"registering with {ready}")
    found = register_images(case.fixed, case.moving, ready, slices=slices, device=device, progress=tick)
    return found.transform, found


@dataclass(frozen=True)
class Outcome:
    """A transform found or given, what it does to moving, and how good that is."""

    transform: Transform
    warped: Image
    warped_labels: Image | None
    pair: Pair
    metrics: dict[str, Any]


def outcome(case: Case, transform: Transform, found: ImageRegistration | None = None, name: str = "") -> Outcome:
    """What a transform does to moving, and how good that is; `found` is the registration, where one was made."""
    grid, labels = case.fixed.grid, case.moving_labels
    warped = found.warped if found else transform.apply(case.moving, grid)
    warped_labels = None if labels is None else transform.apply_labels(labels, grid)
    pair = Pair(
        fixed=case.fixed.array.astype(np.float32),
        moving=place_image(case.moving, grid).array,
        warped=warped.array,
        field=transform.on(grid).in_voxels(),
        grid=grid,
        fixed_labels=None if case.fixed_labels is None else case.fixed_labels.array,
        moving_labels=None if labels is None else place_labels(labels, grid).array,
        warped_labels=None if warped_labels is None else warped_labels.array,
    )
    slice_axis = found.slice_axis if found else None
    return Outcome(transform, warped, warped_labels, pair, {**how(found, name), **measured(pair, slice_axis)})


def how(found: ImageRegistration | None, name: str) -> dict[str, Any]:
    """The part of metrics.json that says what was run; a transform given by file took no time here."""
    if found is None:
        nothing = dict.fromkeys(("weights", "device", "seconds", "slice_by_slice"))
        return {"method": name, **nothing, "provenance": {**versions(), "device": None}}
    return {
        "method": found.method,
        "weights": found.weights,
        "device": found.device,
        "seconds": found.seconds,
        "slice_by_slice": found.slice_axis is not None,
        "provenance": provenance(torch.device(found.device)),
    }


def measured(pair: Pair, slice_axis: int | None) -> dict[str, Any]:
    """The part of metrics.json that says how good it is."""
    measures = {
        "shape": list(pair.grid.shape),
        "spacing_mm": list(pair.grid.spacing),
        "similarity": similarity(pair.fixed, pair.moving, pair.warped),
        **regularity(pair.field, slice_axis),
    }
    if pair.fixed_labels is None or pair.moving_labels is None or pair.warped_labels is None:
        return measures
    labels = pair.fixed_labels, pair.moving_labels, pair.warped_labels
    return measures | overlap(*labels, pair.grid.spacing, pair.grid.across)


def point_error(transform: Transform, fixed: Points, moving: Points) -> dict[str, Any]:
    """The part of metrics.json about landmarks: the same number of points in both, in the same order."""
    if fixed.lps.shape != moving.lps.shape:
        raise BadInput(f"there are {len(fixed.lps)} fixed points and {len(moving.lps)} moving ones: give pairs")
    mapped = transform.points(fixed.lps)
    return {"target_registration_error_mm": target_registration_error(fixed.lps, moving.lps, mapped)}


def write_outcome(done: Outcome, folder: Path) -> list[Path]:
    """The files that others read; what an earlier run left in the folder under their names is gone."""
    remove_outputs(folder)
    write_image(done.warped, folder / "warped.nii.gz")
    done.transform.save(folder / "transform.nii.gz")
    written = ["warped.nii.gz", "transform.nii.gz", "metrics.json"]
    if done.warped_labels is not None:
        write_image(done.warped_labels, folder / "warped_labels.nii.gz")
        written.append("warped_labels.nii.gz")
    write_json(done.metrics, folder / "metrics.json")
    return [folder / name for name in written]


def remove_outputs(folder: Path) -> None:
    try:
        for name in OUTPUTS:
            (folder / name).unlink(missing_ok=True)
    except OSError as error:
        raise BadInput(f"cannot replace {folder / name} ({error.strerror}): choose another folder") from error


def notes(case: Case, metrics: dict[str, Any]) -> list[str]:
    """What a reader should know before trusting the result."""
    alike, found = metrics["similarity"], []
    covered = 100 * coverage(case.moving.grid, case.fixed.grid).mean()
    if covered < 99:
        found.append(
            f"{case.moving.name} covers {covered:.0f} % of {case.fixed.name}: elsewhere nothing was registered."
        )
    if metrics["method"] != "identity" and alike["mae_after"] > alike["mae_before"]:
        found.append("The images are less alike after than before: check their headers, overlap and contrast.")
    if (case.fixed_labels is None) != (case.moving_labels is None):
        found.append("Labels of one image alone cannot be measured: give both for Dice and distances.")
    return found


def write_pages(done: Outcome, folder: Path, energies: Sequence[float], run: Mapping[str, str]) -> list[Path]:
    """The page to look at, and the picture to show."""
    write_report(folder / "report.html", done.pair, done.metrics, energies, run)
    dice = done.metrics.get("dice")
    gain = f": mean Dice {dice['before']['mean']:.3f} → {dice['after']['mean']:.3f}" if dice else ""
    save(overview(done.pair, f"{done.metrics['method']}{gain}"), folder / "overview.png")
    return [folder / "report.html", folder / "overview.png"]


def described(case: Case, method: Method, found: ImageRegistration, match_intensities: bool) -> dict[str, str]:
    """What was run, for the page."""
    slices = "each by itself" if found.slice_axis is not None else "together"
    return {
        "fixed": case.fixed.name,
        "moving": case.moving.name,
        **{
            name.replace("_", " "): labels.name
            for name, labels in vars(case).items()
            if name.endswith("labels") and labels
        },
        "method": found.method,
        **method.details,
        **({"slices": slices} if len(case.fixed.grid.shape) == 3 else {}),
        **({"intensities": "moving matched to the histogram of fixed"} if match_intensities else {}),
        "device": found.device,
        "versions": f"vrnet {__version__}, PyTorch {torch.__version__}, NumPy {np.__version__}",
        "date": datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z"),
    }
