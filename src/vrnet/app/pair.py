"""Files in, files out: what `vrnet register`, `vrnet evaluate` and `vrnet demo` share."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from vrnet.app.image_pair import ImagePair
from vrnet.errors import BadInput
from vrnet.evaluation.pair import overlap, regularity, similarity, target_registration_error
from vrnet.file_sets import check_set, replace_set
from vrnet.files import check_not_input, write_json
from vrnet.images.affine import Affine
from vrnet.images.image import Image
from vrnet.images.io import write_image
from vrnet.images.points import Points
from vrnet.images.resample import coverage, match_histogram, place_image, place_labels
from vrnet.images.transform import Transform, write_itk
from vrnet.methods.method import Method
from vrnet.methods.names import choose
from vrnet.methods.weights import SUFFIX
from vrnet.progress import Stage
from vrnet.provenance import provenance, versions
from vrnet.registration.folds import Repair
from vrnet.registration.images import (
    AffineStart,
    ImageRegistration,
    Slices,
    align_images,
    check_pair,
    register_images,
    resolve_on_grid,
)
from vrnet.repair import Folds
from vrnet.report.figures import overview, save
from vrnet.report.page import write_report
from vrnet.report.pair import Pair

WARPED, TRANSFORM, LABELS, METRICS = "warped.nii.gz", "transform.nii.gz", "warped_labels.nii.gz", "metrics.json"
AFFINE, REPORT, OVERVIEW = "affine.tfm", "report.html", "overview.png"
OUTPUTS = (WARPED, TRANSFORM, AFFINE, LABELS, METRICS, REPORT, OVERVIEW)
"""All that a registration may write. What an earlier one recorded of these goes when a new one is written."""
FULL_COVERAGE_PERCENT, HALF_COVERAGE_PERCENT = 99.0, 50.0
"""Below the one, the reader is told which part of fixed moving covers; below the other, what may help."""


@dataclass(frozen=True)
class MeasuredTransform:
    """A transform found or given, what it does to moving, and how good that is."""

    transform: Transform
    warped: Image
    warped_labels: Image | None
    affine: Affine | None
    """The affine start of a registration that had one."""
    on_fixed_grid: Pair
    """Both images, the warped one and the field, as the report shows them."""
    metrics: dict[str, Any]
    """What metrics.json holds."""


def register_pair(
    stage: Stage,
    pair: ImagePair,
    method: Method,
    folder: Path,
    *,
    affine: AffineStart = "none",
    slices: Slices = "auto",
    match_intensities: bool = False,
    folds: Folds = "repair",
    device: str = "auto",
    report: bool = False,
    images: bool = False,
    inputs: Sequence[Path | None] = (),
) -> tuple[MeasuredTransform, list[Path]]:
    """Register a pair and write the results in a folder; also returns which files. `stage` is told what is done.

    All files replace those of an earlier run at once. With `images` those of the pair are among them, each under its
    name. `inputs` are the files that are read, and never written."""
    check_not_input((folder / name for name in OUTPUTS), inputs)
    check_set(folder, names := planned_outputs(pair, affine, report, images))
    resolved = resolve_on_grid(method, pair.fixed.grid, slices)
    options = {"slices": slices, "match_intensities": match_intensities, "folds": folds, "device": device}
    registration = run_method(stage, pair, resolved, affine, **options)
    stage("measuring")
    result = measure_transform(pair, registration.transform, registration, match_intensities=match_intensities)
    stage("writing")
    with replace_set(folder, (*OUTPUTS, *names)) as staged:
        write_results(result, staged)
        if images:
            write_pair(pair, staged)
        if report:
            description = describe_run(pair, resolved, registration, match_intensities)
            write_report_files(result, staged, registration.energies.tolist(), description)
    return result, [folder / name for name in names]


def run_method(
    stage: Stage, pair: ImagePair, method: Method, affine: AffineStart = "none", **options: Any
) -> ImageRegistration:
    """Find the affine start, if asked for, then the deformation, inside the masks; options: `register_images`."""
    start, aligned = perf_counter(), None
    if affine != "none":
        fixed, moving = pair.masks.inpaint(pair.fixed, pair.moving)
        aligned = align_images(fixed, moving, affine, stage("aligning"))
    found = register_images(
        pair.fixed,
        pair.moving,
        method,
        affine=aligned or "none",
        fixed_mask=pair.fixed_mask,
        moving_mask=pair.moving_mask,
        progress=stage(f"registering with {method}"),
        **options,
    )
    return replace(found, seconds=perf_counter() - start)


def planned_outputs(pair: ImagePair, affine: AffineStart, report: bool, images: bool) -> list[str]:
    """The names of the files that a registration is to write."""
    start = [] if affine == "none" else [AFFINE]
    labels = [] if pair.moving_labels is None else [LABELS]
    pages = [REPORT, OVERVIEW] if report else []
    given = [image.name for image in vars(pair).values() if image is not None] if images else []
    return [WARPED, TRANSFORM, *start, METRICS, *labels, *pages, *given]


def find_transform(
    stage: Stage,
    pair: ImagePair,
    name: str,
    weights: Path | None = None,
    settings: Iterable[str] = (),
    *,
    slices: Slices = "auto",
    folds: Folds = "repair",
    device: str = "auto",
) -> tuple[Transform, ImageRegistration | None]:
    """Read the transform from a file of this name; or find it by the method of this name, and return how, too."""
    if Path(name).suffix not in ("", SUFFIX) and not name.endswith(")"):
        if weights is not None or any(settings):
            raise BadInput(f"{name} is a transform: leave out --weights and --set, or name a method")
        check_pair(pair.fixed, pair.moving, must_overlap=False)
        return Transform.load(name, pair.fixed.grid), None
    method = resolve_on_grid(choose(name, weights, settings), pair.fixed.grid, slices)
    registration = run_method(stage, pair, method, slices=slices, folds=folds, device=device)
    return registration.transform, registration


def measure_transform(
    pair: ImagePair,
    transform: Transform,
    registration: ImageRegistration | None = None,
    name: str = "",
    match_intensities: bool = False,
) -> MeasuredTransform:
    """Apply a transform to moving and measure the result; without a registration, the transform is that of a file.

    With `match_intensities`, images are compared and shown with moving in the histogram of fixed."""
    grid, labels = pair.fixed.grid, pair.moving_labels
    warped = registration.warped if registration else transform.apply(pair.moving, grid)
    compared = match_histogram(pair.moving, pair.fixed) if match_intensities else pair.moving
    warped_labels = None if labels is None else transform.apply_labels(labels, grid)
    on_fixed_grid = Pair(
        fixed=pair.fixed.array.astype(np.float32),
        moving=place_image(compared, grid).array,
        warped=transform.apply(compared, grid).array if match_intensities else warped.array,
        field=transform.on(grid).in_voxels(),
        grid=grid,
        fixed_labels=None if pair.fixed_labels is None else pair.fixed_labels.array,
        moving_labels=None if labels is None else place_labels(labels, grid).array,
        warped_labels=None if warped_labels is None else warped_labels.array,
    )
    inside, start = pair.masks.compared(grid, transform), registration.affine if registration else None
    about = run_metrics(registration, name) | {"intensities_matched": match_intensities}
    metrics = about | quality_metrics(on_fixed_grid, inside)
    if inside is not None:
        metrics["masks"] = {"fixed": name_of(pair.fixed_mask), "moving": name_of(pair.moving_mask)}
    return MeasuredTransform(transform, warped, warped_labels, start, on_fixed_grid, metrics)


def run_metrics(registration: ImageRegistration | None, name: str) -> dict[str, Any]:
    """The part of metrics.json that says what was run; a transform from a file took no time here."""
    if registration is None:
        unknown = dict.fromkeys(("weights", "device", "seconds", "affine", "slice_by_slice", "repair"))
        return {"method": name, **unknown, "provenance": {**versions(), "device": None}}
    return {
        "method": registration.method,
        "weights": registration.weights,
        "device": registration.device,
        "seconds": registration.seconds,
        "affine": registration.affine.summary() if registration.affine else None,
        "slice_by_slice": registration.slice_axis is not None,
        "repair": None if registration.repair is None else asdict(registration.repair),
        "provenance": provenance(torch.device(registration.device)),
    }


def name_of(image: Image | None) -> str | None:
    """The name of the file that an image came from, without its folder."""
    return None if image is None else Path(image.name).name


def quality_metrics(pair: Pair, compared: NDArray[Any] | None = None) -> dict[str, Any]:
    """The part of metrics.json that says how good it is; likeness is that of the voxels that were compared."""
    images = pair.fixed, pair.moving, pair.warped
    metrics = {
        "shape": list(pair.grid.shape),
        "spacing_mm": list(pair.grid.spacing),
        "similarity": similarity(*(image if compared is None else image[compared] for image in images)),
        **regularity(pair.field, pair.grid),
    }
    if pair.fixed_labels is None or pair.moving_labels is None or pair.warped_labels is None:
        return metrics
    labels = pair.fixed_labels, pair.moving_labels, pair.warped_labels
    return metrics | overlap(*labels, pair.grid.spacing, pair.grid.across)


def landmark_error(transform: Transform, fixed: Points, moving: Points) -> dict[str, Any]:
    """The part of metrics.json about landmarks: the same number of points in both, in the same order."""
    if fixed.lps.shape != moving.lps.shape:
        raise BadInput(f"there are {len(fixed.lps)} fixed points and {len(moving.lps)} moving ones: give pairs")
    mapped = transform.points(fixed.lps)
    return {"target_registration_error_mm": target_registration_error(fixed.lps, moving.lps, mapped)}


def warnings_for(pair: ImagePair, metrics: dict[str, Any], affine: Affine | None = None) -> list[str]:
    """What a reader should know before trusting the result."""
    alike, warnings = metrics["similarity"], []
    covered = 100 * coverage(pair.moving.grid, pair.fixed.grid, affine).mean()
    if covered < FULL_COVERAGE_PERCENT:
        advice = " If that is the headers' fault, add --affine rigid." if covered < HALF_COVERAGE_PERCENT else ""
        warnings.append(
            f"{pair.moving.name} covers {covered:.0f} % of {pair.fixed.name}: elsewhere nothing was registered.{advice}"
        )
    if metrics["method"] != "identity" and alike["mae_after"] > alike["mae_before"]:
        warnings.append("The images are less alike after than before: check their headers, overlap and contrast.")
    if metrics["repair"] is not None:
        warnings.append(f"{Repair(**metrics['repair'])}. (--folds keep leaves them.)")
    if (pair.fixed_labels is None) != (pair.moving_labels is None):
        warnings.append("Labels of one image alone cannot be measured: give both for Dice and distances.")
    return warnings


def write_results(result: MeasuredTransform, folder: Path) -> None:
    """Write the files that programs read."""
    write_image(result.warped, folder / WARPED)
    result.transform.save(folder / TRANSFORM)
    if result.affine is not None:
        write_itk(result.affine.itk, folder / AFFINE)
    if result.warped_labels is not None:
        write_image(result.warped_labels, folder / LABELS)
    write_json(result.metrics, folder / METRICS)


def write_pair(pair: ImagePair, folder: Path) -> None:
    """Write the images and labels of a pair, each under its own name."""
    for image in vars(pair).values():
        if image is not None:
            write_image(image, folder / image.name)


def write_report_files(
    result: MeasuredTransform, folder: Path, energies: Sequence[float], description: Mapping[str, str]
) -> None:
    """Write the page to look at, and the picture to show."""
    write_report(folder / REPORT, result.on_fixed_grid, result.metrics, energies, description)
    dice = result.metrics.get("dice")
    gain = f": mean Dice {dice['before']['mean']:.3f} → {dice['after']['mean']:.3f}" if dice else ""
    save(overview(result.on_fixed_grid, f"{result.metrics['method']}{gain}"), folder / OVERVIEW)


def describe_run(
    pair: ImagePair, method: Method, registration: ImageRegistration, match_intensities: bool
) -> dict[str, str]:
    """What was run and by which code, for the page: {heading: text}."""
    description = {name.replace("_", " "): image.name for name, image in vars(pair).items() if image is not None}
    description |= {"method": registration.method, **method.details}
    if len(pair.fixed.grid.shape) == 3:
        description["slices"] = "each by itself" if registration.slice_axis is not None else "together"
    if registration.affine:
        description["affine start"] = registration.affine.kind
    if registration.repair is not None:
        description["folds"] = f"repaired: {registration.repair}"
    if match_intensities:
        description["intensities"] = "moving matched to the histogram of fixed, here and in the differences"
    code = {**versions(), "numpy": np.__version__}
    return description | {
        "device": registration.device,
        "versions": ", ".join(f"{name} {version}" for name, version in code.items() if version),
        "date": datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z"),
    }
