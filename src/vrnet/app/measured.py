"""What a transform does to a pair of images, and how good that is."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from vrnet.app.conditions import NOTHING_KNOWN, Conditions
from vrnet.app.endings import as_options
from vrnet.app.image_pair import ImagePair, name_of, path_of
from vrnet.errors import BadInput, warn_of_input
from vrnet.evaluation.advice import Run
from vrnet.evaluation.pair import (
    motion_error,
    overlap,
    similarity,
    slice_overlap,
    structure_evidence,
    target_registration_error,
)
from vrnet.evaluation.registered import RegisteredPair
from vrnet.evaluation.verdict import Verdict, judge_evidence
from vrnet.images.affine import Affine
from vrnet.images.compared import compared_voxels
from vrnet.images.image import Image, label_maps
from vrnet.images.points import Points
from vrnet.images.resample import coverage, place_image, place_labels
from vrnet.images.transform import Transform
from vrnet.methods.names import parameters, parse
from vrnet.methods.parameters import value_in
from vrnet.provenance import provenance, versions
from vrnet.registration.brightness import Remap, find_remap
from vrnet.registration.images import ImageRegistration
from vrnet.registration.masks import Inside
from vrnet.report.pair import Pair

MASK_PATHS = "mask_paths"
"""The key of metrics.json that says where the masks are."""


@dataclass(frozen=True)
class MeasuredTransform:
    """A transform found or given, what it does to moving, and how good that is."""

    transform: Transform
    warped: Image
    warped_labels: Image | None
    affine: Affine | None
    """The affine start of a registration that had one."""
    on_fixed_grid: Pair
    """Both images, the warped one and the field, as the report shows them: after an affine start, what is beyond it."""
    metrics: dict[str, Any]
    """What metrics.json holds."""
    unmatched: Remap | None = None
    """What would make moving as bright as fixed, of a transform from a file, where it is not and was not made so."""


def measure_transform(
    pair: ImagePair,
    transform: Transform,
    registration: ImageRegistration | None = None,
    name: str = "",
    command: str = "register",
    known: Conditions = NOTHING_KNOWN,
) -> MeasuredTransform:
    """Apply a transform to moving and measure the result; without a registration, the transform is that of a file, and
    `known` what is known of how it was found.

    Where intensities were matched, images are compared and shown with moving in those of fixed. What to try is said in
    the options of a command."""
    grid, labels = pair.fixed.grid, pair.moving_labels
    conditions = Conditions.of(registration) if registration else known
    start, moving = conditions.affine, conditions.seen(pair)
    warped = registration.warped if registration else transform.apply(pair.moving, grid)
    warped_labels = None if labels is None else transform.apply_labels(labels, grid)
    seen_warped = warped if moving is pair.moving else transform.apply(moving, grid)
    placed = placed_pair(pair, moving, seen_warped, warped_labels, transform)
    compared = compared_voxels(pair.masks.fixed, pair.masks.moving, grid, transform, start)
    registered = on_grid_of_fixed(placed, moving, start, compared)
    seen = seen_voxels(pair, transform, compared)
    metrics = (
        run_metrics(registration, name, conditions)
        | quality_metrics(placed, registered, seen)
        | known_facts(pair, placed)
    )
    metrics["files"] = {role: name_of(image) for role, image in pair.images.items()}
    if compared is not None:
        metrics["masks"] = {"fixed": name_of(pair.fixed_mask), "moving": name_of(pair.moving_mask)}
        metrics[MASK_PATHS] = {"fixed": path_of(pair.fixed_mask), "moving": path_of(pair.moving_mask)}
    run = run_of(registration, metrics, conditions, label_maps(pair.fixed, pair.moving))
    metrics["verdict"] = pair_verdict(registered, metrics, run, command).as_json()
    shown = replace(placed, mask=None if compared is None or compared.all() else compared)
    if start is not None and registered.started is not None:
        shown = seen_through(start, shown, registered.started, labels, registered.deformation)
    unmatched = None if registration else unmatched_brightness(placed, seen[1], conditions)
    return MeasuredTransform(transform, warped, warped_labels, start, shown, metrics, unmatched)


def unmatched_brightness(pair: Pair, seen: NDArray[Any], conditions: Conditions) -> Remap | None:
    """What would make the warped image as bright as fixed at the voxels that both have; None where they are so, or
    were compared so, or were to be compared as they are."""
    if conditions.is_matched or conditions.is_brightness_kept:
        return None
    mask = None if seen.all() else torch.from_numpy(seen)
    return find_remap(torch.from_numpy(pair.fixed), torch.from_numpy(pair.warped), Inside(mask, mask))


def placed_pair(
    pair: ImagePair, moving: Image, warped: Image, warped_labels: Image | None, transform: Transform
) -> Pair:
    """Both images, labels and the field on the grid of fixed, with moving and warped in the intensities given."""
    grid, labels = pair.fixed.grid, pair.moving_labels
    return Pair(
        fixed=pair.fixed.array.astype(np.float32),
        moving=place_image(moving, grid).array,
        warped=warped.array,
        field=transform.on(grid).in_voxels(),
        grid=grid,
        fixed_labels=None if pair.fixed_labels is None else pair.fixed_labels.array,
        moving_labels=None if labels is None else place_labels(labels, grid).array,
        warped_labels=None if warped_labels is None else warped_labels.array,
    )


def seen_through(
    affine: Affine, pair: Pair, started: NDArray[Any], labels: Image | None, deformation: NDArray[Any]
) -> Pair:
    """A pair as the deformation was sought: moving through the affine start, and what moves beyond that."""
    return replace(
        pair,
        moving=started,
        moving_labels=None if labels is None else place_labels(labels, pair.grid, affine).array,
        field=deformation,
        is_aligned=True,
    )


def on_grid_of_fixed(pair: Pair, moving: Image, affine: Affine | None, compared: NDArray[Any] | None) -> RegisteredPair:
    """A pair as it is judged, given moving as it came, the affine start and the voxels inside masks."""
    images, started = (pair.fixed, pair.moving, pair.warped), None
    if affine is not None:
        started = place_image(moving, pair.grid, affine).array
    return RegisteredPair(*images, pair.field, pair.grid, moving.grid, affine, compared, started)


def run_metrics(registration: ImageRegistration | None, name: str, conditions: Conditions) -> dict[str, Any]:
    """The part of metrics.json that says what was run; a transform from a file took no time here."""
    seen: dict[str, Any] = {
        "affine": conditions.affine.summary() if conditions.affine else None,
        "intensities_matched": conditions.is_matched,
        "brightness": None if conditions.remap is None else asdict(conditions.remap),
    }
    if registration is None:
        unknown = dict.fromkeys(("weights", "parameters", "options", "device", "seconds", "slice_by_slice", "repair"))
        return {"method": name, **unknown, **seen, "provenance": {**versions(), "device": None}}
    return {
        "method": registration.method,
        "weights": registration.weights,
        "parameters": parameters_of(registration),
        "options": registration.options.as_json(),
        "device": registration.device,
        "seconds": registration.seconds,
        "slice_by_slice": registration.slice_axis is not None,
        "repair": None if registration.repair is None else asdict(registration.repair),
        **seen,
        "provenance": provenance(torch.device(registration.device)),
    }


def parameters_of(registration: ImageRegistration) -> dict[str, Any] | None:
    """The value of every parameter that the method has; None of weights from a file, and of a method of one's own."""
    try:
        method = parse(registration.method)
    except BadInput:
        return None
    d = len(registration.fixed.grid.shape) - (registration.slice_axis is not None)
    return {each.name: value_in(each.value, d) for each in parameters(method)}


def seen_voxels(
    pair: ImagePair, transform: Transform, compared: NDArray[Any] | None
) -> tuple[NDArray[Any], NDArray[Any]]:
    """The voxels of fixed for which moving has values, before a transform and after it; inside the masks, if given."""
    grid, own = pair.fixed.grid, pair.moving.grid
    inside = np.ones(grid.shape, bool) if compared is None else compared
    if pair.masks.moving is not None:
        before = inside & (place_labels(pair.masks.moving, grid).array != 0)
        return before if before.any() else inside, inside
    everywhere = pair.moving.with_array(np.ones(own.shape, np.uint8))
    seen = inside & coverage(own, grid), inside & (transform.apply_labels(everywhere, grid).array != 0)
    return seen if all(voxels.any() for voxels in seen) else (inside, inside)


def quality_metrics(pair: Pair, registered: RegisteredPair, seen: tuple[NDArray[Any], NDArray[Any]]) -> dict[str, Any]:
    """The part of metrics.json that says how good it is; likeness is that of the voxels that both images have."""
    metrics = {
        "shape": list(pair.grid.shape),
        "spacing_mm": list(pair.grid.spacing),
        "similarity": similarity(pair.fixed, pair.moving, pair.warped, seen),
        **registered.regularity,
    }
    if pair.fixed_labels is None or pair.moving_labels is None or pair.warped_labels is None:
        return metrics
    labels = pair.fixed_labels, pair.moving_labels, pair.warped_labels
    metrics |= overlap(*labels, pair.grid.spacing, pair.grid.across)
    stacked = pair.grid.stacked_across
    return metrics if stacked is None else metrics | slice_overlap(*labels, stacked)


def known_facts(given: ImagePair, placed: Pair) -> dict[str, Any]:
    """The part of metrics.json that says what is known of a pair: names of labels, and how far its true motion is."""
    facts: dict[str, Any] = {}
    if given.label_names and given.fixed_labels is not None and placed.moving_labels is not None:
        there = {
            label for map_ in (given.fixed_labels.array, placed.moving_labels) for label in np.unique(map_).tolist()
        }
        facts["label_names"] = {str(label): given.label_names[label] for label in sorted(there & {*given.label_names})}
    if given.true_motion is not None:
        inside = None if given.fixed_labels is None else given.fixed_labels.array != 0
        facts["known_motion"] = motion_error(placed.field, given.true_motion, placed.grid.spacing, inside)
    return facts


def pair_verdict(registered: RegisteredPair, metrics: dict[str, Any], run: Run, command: str) -> Verdict:
    """What a registration is worth, given its measures and how it was run; what to try, in options of a command."""
    evidence = registered.evidence(*structure_evidence(metrics, metrics.get("label_names")))
    verdict = judge_evidence(evidence, run)
    return replace(verdict, try_=tuple(as_options(advice, command) for advice in verdict.try_))


def run_of(
    registration: ImageRegistration | None,
    metrics: Mapping[str, Any],
    conditions: Conditions,
    maps: tuple[str, ...] = (),
) -> Run:
    """How a registration was run, so that nothing is advised that was done; of a transform from a file it is known
    whether there are masks, and what is recorded beside it."""
    run = Run(
        has_start=conditions.affine is not None,
        has_affine=conditions.affine is not None and conditions.affine.kind == "affine",
        is_matched=conditions.match_intensities,
        is_brightness_kept=conditions.is_brightness_kept,
        has_masks="masks" in metrics,
        label_maps=maps,
    )
    if registration is None:
        return run
    return replace(
        run,
        method=registration.method,
        dimension=len(metrics["shape"]) - (registration.slice_axis is not None),
        is_repaired=registration.options.folds == "repair",
    )


def landmark_error(pair: ImagePair, transform: Transform, fixed: Points, moving: Points) -> dict[str, Any]:
    """The part of metrics.json about landmarks: the same number of points in both, in the same order."""
    if fixed.lps.shape != moving.lps.shape:
        raise BadInput(f"there are {len(fixed.lps)} fixed points and {len(moving.lps)} moving ones: give pairs")
    mapped = transform.points(fixed.lps)
    warn_of_points_outside(pair, fixed, moving)
    return {"target_registration_error_mm": target_registration_error(fixed.lps, moving.lps, mapped)}


def warn_of_points_outside(pair: ImagePair, fixed: Points, moving: Points) -> None:
    """Warn of landmarks outside their image, as where their axes run the other way: nothing moves there."""
    for image, points in ((pair.fixed, fixed), (pair.moving, moving)):
        count = int((~image.grid.holds(points.lps)).sum())
        if count:
            said = f"{count} of {len(points.lps)} landmarks of {name_of(image)} lie outside it"
            warn_of_input(f"{said}: check --space (LPS or RAS), and whether the files belong together")
