"""Files in, files out: what `vrnet register`, `vrnet evaluate` and `vrnet demo` share."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from math import isclose
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from numpy.typing import NDArray

from vrnet.cardiac.labels import warn_of_exchanged_ventricles
from vrnet.data.labels import LabelNames, check_labels_are_there, names_told_by_files, read_label_names
from vrnet.errors import BadInput, Stage, as_options, warn_of_input
from vrnet.evaluation.pair import (
    motion_error,
    overlap,
    similarity,
    slice_overlap,
    structure_evidence,
    target_registration_error,
)
from vrnet.files import (
    check_file,
    check_not_input,
    check_set,
    convert_record,
    exists,
    own_files,
    read_json,
    replace_set,
    write_json,
)
from vrnet.images.grid import Affine, AffineKind, Grid, check_same_grid
from vrnet.images.image import Image, as_labels, label_maps, segment_count
from vrnet.images.io import read_image, write_image
from vrnet.images.points import Points
from vrnet.images.resample import coverage, match_histogram, place_image, place_labels
from vrnet.images.transforms import RESULT, Transform, load_chain, read_itk, write_itk
from vrnet.methods.method import Method
from vrnet.methods.names import choose, find_base, parameters, parse
from vrnet.methods.parameters import value_in
from vrnet.methods.weights import SUFFIX
from vrnet.provenance import provenance, versions
from vrnet.registration.arrays import Repair
from vrnet.registration.images import ImageRegistration, check_pair, register_image_pair, resolve_on_grid
from vrnet.registration.intensity import Remap, find_remap
from vrnet.registration.masks import ImageMasks, Inside, compared_voxels
from vrnet.registration.options import RegistrationOptions
from vrnet.report.drawing import join_tiles, quantise, window_of
from vrnet.report.figures import (
    CARD_SIDE_PIXELS,
    WINDOW_PERCENTILES,
    Card,
    busiest_slice,
    image_tiles,
    main_cut,
    middle_slice,
    motion_tile,
    overview,
    save,
)
from vrnet.report.measures import Row, headline, is_contrast_opposite
from vrnet.report.measures import title as title_of_measure
from vrnet.report.page import write_report
from vrnet.report.pair import Pair
from vrnet.verdict.advice import Run
from vrnet.verdict.evidence import RegisteredPair
from vrnet.verdict.rules import WORDS, Verdict, judge_evidence

# Two images, with all that comes with them, as they are read from files.


@dataclass(frozen=True)
class ImagePair:
    """Two images, and the labels and masks of either, each on its image's grid."""

    fixed: Image
    moving: Image
    fixed_labels: Image | None = None
    moving_labels: Image | None = None
    fixed_mask: Image | None = None
    moving_mask: Image | None = None
    label_names: LabelNames = field(default_factory=dict, kw_only=True)
    """What labels are called."""
    are_names_told_by_files: bool = field(default=False, kw_only=True)
    """Whether nobody gave these names, but the label maps are called as a data set calls its own."""
    true_motion: Float[ndarray, "d *s"] | None = field(default=None, kw_only=True)
    """The displacement from fixed to moving, in voxels of fixed, where it is known: that of a phantom."""

    def __post_init__(self) -> None:
        maps = (self.fixed_labels, self.fixed, self.moving), (self.moving_labels, self.moving, self.fixed)
        for labels, image, other in maps:
            if labels is not None:
                check_same_grid(labels.name, labels.grid, image.name, image.grid, {other.name: other.grid})

    @property
    def images(self) -> dict[str, Image]:
        """All images that are given, by their names here."""
        return {name: image for name, image in vars(self).items() if isinstance(image, Image)}

    @property
    def masks(self) -> ImageMasks:
        return ImageMasks.read(self.fixed_mask, self.moving_mask, self.fixed, self.moving)

    def with_label_names(self, given: str | LabelNames | None) -> "ImagePair":
        """The pair with names for its labels; BadInput unless both images have labels, and these are among them.

        Given none, those of the data set that has such names of files, if the labels are among its own."""
        if given is None:
            return self if self.label_names else self.named_by_files()
        if self.fixed_labels is None or self.moving_labels is None:
            raise BadInput("names of labels are given, but not the labels: give `fixed_labels` and `moving_labels` too")
        check_labels_are_there(given, self.labels_there())
        return self.named(read_label_names(given))

    def named_by_files(self) -> "ImagePair":
        """The pair with the names that the files of its labels tell; the pair itself where they tell none."""
        maps = [map_ for map_ in (self.fixed_labels, self.moving_labels) if map_ is not None]
        names = names_told_by_files(map_.name for map_ in maps)
        if len(maps) < 2 or not names or not self.labels_there() <= {0, *names}:
            return self
        return replace(self.named(names), are_names_told_by_files=True)

    def named(self, names: LabelNames) -> "ImagePair":
        """The pair with these names, whether or not every label is there; a warning where LV and RV seem exchanged."""
        warn_of_exchanged_ventricles([map_ for map_ in (self.fixed_labels, self.moving_labels) if map_], names)
        return replace(self, label_names=names)

    @property
    def naming(self) -> str:
        """Where the names of structures come from, where nobody gave any: for a reader who wonders at them."""
        if self.fixed_labels is None or self.moving_labels is None:
            return ""
        if not self.label_names:
            return "called by their numbers; --label-names names them, as in 1=RV,2=Myo"
        if not self.are_names_told_by_files:
            return ""
        names = ", ".join(f"{label} {name}" for label, name in self.label_names.items())
        return f"called as in ACDC, whose names the files of the labels have: {names}"

    def labels_there(self) -> set[int]:
        """Every label that a voxel of either label map has."""
        maps = [map_.array for map_ in (self.fixed_labels, self.moving_labels) if map_ is not None]
        return {label for map_ in maps for label in np.unique(map_).tolist()}


def read_pair(
    fixed: Path,
    moving: Path,
    fixed_labels: Path | None = None,
    moving_labels: Path | None = None,
    fixed_mask: Path | None = None,
    moving_mask: Path | None = None,
) -> ImagePair:
    """Read two images, and the label maps and masks that are given; a warning where the two are the same."""
    labels = [None if path is None else as_labels(read_image(path)) for path in (fixed_labels, moving_labels)]
    masks = [None if path is None else read_image(path) for path in (fixed_mask, moving_mask)]
    pair = ImagePair(read_image(fixed), read_image(moving), *labels, *masks)
    if pair.fixed.grid.matches(pair.moving.grid) and np.array_equal(pair.fixed.array, pair.moving.array):
        warn_of_input(f"{pair.fixed.name} and {pair.moving.name} are the same image: nothing is to be found")
    return pair


def name_of(image: Image | None) -> str | None:
    """The name of the file that an image came from, without its folder."""
    return None if image is None else Path(image.name).name


def path_of(image: Image | None) -> str | None:
    """Where the file is that an image came from, so that it is found again; None if it came from none."""
    return str(Path(image.name).absolute()) if image is not None and exists(Path(image.name)) else None


# How moving was seen when its deformation was sought: through an affine start, and in matched intensities.


@dataclass(frozen=True)
class Conditions:
    """What a registration did to moving before it sought the deformation, and what it is therefore judged by."""

    affine: Affine | None = None
    """The start, if there was one."""
    remap: Remap | None = None
    """What made moving as bright as fixed, if it had to be made so."""
    match_intensities: bool = False
    """Whether moving was given the histogram of fixed."""
    is_brightness_kept: bool = False
    """Whether images that are not equally bright were to be compared as they are."""

    @classmethod
    def of(cls, registration: ImageRegistration) -> "Conditions":
        options = registration.options
        kept = options.brightness == "keep"
        return cls(registration.affine, registration.remap, options.match_intensities, kept)

    @property
    def is_matched(self) -> bool:
        """Whether moving was seen in other intensities than its own."""
        return self.match_intensities or self.remap is not None

    def seen(self, pair: ImagePair) -> Image:
        """Moving in the intensities in which it was compared with fixed; unless these are its own, without what lies
        outside the masks."""
        if not self.is_matched:
            return pair.moving
        fixed, moving = pair.masks.inpaint(pair.fixed, pair.moving)
        if self.match_intensities or self.remap is None:
            return match_histogram(moving, fixed)
        return moving.with_array(self.remap.match(moving.array.astype(np.float32)))

    def describe(self) -> dict[str, str]:
        """What the page says of it: {heading: text}."""
        said: dict[str, str] = {} if self.affine is None else {"affine start": self.affine.kind}
        if self.match_intensities:
            said["intensities"] = "moving matched to the histogram of fixed, here and in the differences"
        elif self.remap is not None:
            said["intensities"] = f"moving as bright as fixed, here and in the differences: {self.remap}"
        return said


NOTHING_KNOWN = Conditions()
"""Of a transform of which no file says how it was found: it is judged as a whole, in the intensities of the images."""


# What a transform does to a pair of images, and how good that is.

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


# What a reader is told of the images and the field, beside the verdict.

MAX_TURN_DEGREES = 90.0
"""An affine start that turns by more is told: a mirrored image may be behind it."""
FULL_COVERAGE_PERCENT, HALF_COVERAGE_PERCENT = 99.0, 50.0
"""Below the one, the reader is told which part of fixed moving covers; below the other, what may help."""


def notes_on(
    pair: ImagePair, metrics: Mapping[str, Any], affine: Affine | None = None, command: str = "register"
) -> list[str]:
    """What a reader should know of the images and the field, beside the verdict; options are those of a command."""
    notes = []
    covered = 100 * coverage(pair.moving.grid, pair.fixed.grid, affine).mean()
    if covered < FULL_COVERAGE_PERCENT:
        start, is_little = as_options('`affine="rigid"`', command), covered < HALF_COVERAGE_PERCENT
        advice = f" If that is the headers' fault, try {start}." if is_little and affine is None else ""
        after = "" if affine is None else f", after the {affine.kind} start"
        notes.append(
            f"{name_of(pair.moving)} covers {covered:.0f} % of {name_of(pair.fixed)}{after}: elsewhere nothing was "
            f"registered.{advice}"
        )
    if affine is not None and affine.summary()["rotation_deg"] > MAX_TURN_DEGREES:
        notes.append(
            f"The affine start turns {name_of(pair.moving)} by {affine.summary()['rotation_deg']:.0f}°. If it is not "
            "upside down or back to front, check the headers: an affine start does not mirror, and fits the left side "
            "of a mirrored image to the right."
        )
    if metrics["repair"] is not None and not (repair := Repair(**metrics["repair"])).is_slight:
        notes.append(f"{repair}. (--folds keep leaves the field as it was.)")
    if metrics["brightness"] is not None:
        notes.append(brightness_note(pair, Remap(**metrics["brightness"]), command))
    for role, image in (("fixed", pair.fixed), ("moving", pair.moving)):
        if count := segment_count(image):
            notes.append(
                f"{name_of(image)} holds {count} whole numbers only. If they are labels, give them as --{role}-labels, "
                "and register the image that they were drawn on."
            )
    if (pair.fixed_labels is None) != (pair.moving_labels is None):
        notes.append("Labels of one image alone cannot be measured: give both for Dice and distances.")
    if pair.are_names_told_by_files:
        notes.append(f"Structures are {pair.naming}. (--label-names says otherwise.)")
    return notes


def unmatched_notes(pair: ImagePair, remap: Remap | None) -> list[str]:
    """What a reader should know of differences of intensities, where one image is plainly brighter."""
    if remap is None:
        return []
    fixed, moving = name_of(pair.fixed), name_of(pair.moving)
    return [
        f"{moving} and {fixed} are not equally bright: {moving} would be as bright as {fixed} with its intensities as "
        f"{remap}. Nothing says that the transform was found so, and differences are measured as the images are: they "
        "show brightness, not motion alone."
    ]


def brightness_note(pair: ImagePair, remap: Remap, command: str) -> str:
    """What was done about images of which one is plainly brighter, and how to have it otherwise."""
    switch = as_options('`brightness="keep"`', command)
    return (
        f"{name_of(pair.moving)} and {name_of(pair.fixed)} are not equally bright: they were compared, and differences "
        f"are measured, with the intensities of {name_of(pair.moving)} as {remap}. The warped image keeps its own. "
        f"({switch} compares them as they are.)"
    )


WARPED, TRANSFORM, LABELS, METRICS = "warped.nii.gz", RESULT, "warped_labels.nii.gz", "metrics.json"
AFFINE, REPORT, OVERVIEW = "affine.tfm", "report.html", "overview.png"
OUTPUTS = (WARPED, TRANSFORM, AFFINE, LABELS, METRICS, REPORT, OVERVIEW)
"""All that a registration may write. What an earlier one recorded of these goes when a new one is written."""
DEFAULTS = RegistrationOptions()
NAME_WITH_SETTINGS = re.compile(r".*\)|.*\+\w*")
"""TV-L1(lam=0.15) or TV-L1(lam=0.15)+average, which have a dot and are no files."""


def register_pair(
    stage: Stage,
    pair: ImagePair,
    method: Method,
    folder: Path,
    options: RegistrationOptions = DEFAULTS,
    *,
    report: bool = False,
    images: bool = False,
    inputs: Sequence[Path | None] = (),
) -> tuple[MeasuredTransform, list[Path]]:
    """Register a pair and write the results in a folder; also returns which files. `stage` is told what is done.

    All files replace those of an earlier run at once. With `images` those of the pair are among them, each under its
    name. `inputs` are the files that are read, and never written."""
    check_not_input((folder / name for name in OUTPUTS), inputs)
    check_set(folder, names := planned_outputs(pair, options, report, images))
    resolved = resolve_on_grid(method, pair.fixed.grid, options.slices)
    registration = register_image_pair(pair.fixed, pair.moving, pair.masks, resolved, options, stage)
    stage("measuring")
    result = measure_transform(pair, registration.transform, registration)
    stage("writing")
    with replace_set(folder, (*OUTPUTS, *names)) as staged:
        write_results(result, staged)
        if images:
            write_pair(pair, staged)
        if report:
            description = describe_run(pair, registration)
            write_report_files(result, staged, registration.energies.tolist(), description)
    return result, [folder / name for name in names]


def planned_outputs(pair: ImagePair, options: RegistrationOptions, report: bool, images: bool) -> list[str]:
    """The names of the files that a registration is to write."""
    start = [] if options.affine == "none" else [AFFINE]
    labels = [] if pair.moving_labels is None else [LABELS]
    pages = [REPORT, OVERVIEW] if report else []
    given = [image.name for image in pair.images.values()] if images else []
    return [WARPED, TRANSFORM, *start, METRICS, *labels, *pages, *given]


def names_file(name: str) -> bool:
    """Whether a name is that of a transform file, or of the folder of a result, not of a method or its weights."""
    if exists(Path(name) / TRANSFORM) and find_base(name) is None:
        return True
    return Path(name).suffix not in ("", SUFFIX) and not NAME_WITH_SETTINGS.fullmatch(name)


def find_transform(
    stage: Stage,
    pair: ImagePair,
    name: str,
    weights: Path | None = None,
    settings: Iterable[str] = (),
    average: bool = False,
    options: RegistrationOptions = DEFAULTS,
) -> tuple[Transform, ImageRegistration | None]:
    """Read the transform from a file of this name; or find it by the method of this name, and return how, too."""
    if names_file(name):
        if weights is not None or any(settings) or average:
            raise BadInput(f"{name} is a transform: leave out --weights, --set and --average, or name a method")
        check_pair(pair.fixed, pair.moving, must_overlap=False)
        return Transform.load(name, pair.fixed.grid), None
    method = choose(name, weights, settings, average)
    registration = register_image_pair(pair.fixed, pair.moving, pair.masks, method, options, stage)
    return registration.transform, registration


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
    for image in pair.images.values():
        write_image(image, folder / image.name)


def write_report_files(
    result: MeasuredTransform, folder: Path, energies: Sequence[float], description: Mapping[str, str]
) -> None:
    """Write the page to look at, and the picture to show."""
    write_report(folder / REPORT, result.on_fixed_grid, result.metrics, energies, description)
    dice, measure = result.metrics.get("dice"), title_of_measure("dice", result.metrics)
    gain = f": mean {measure} {dice['before']['mean']:.3f} → {dice['after']['mean']:.3f}" if dice else ""
    level = result.metrics["verdict"]["level"]
    worth = "" if level == "good" else f"; verdict: {WORDS[level]}"
    title, names = f"{result.metrics['method']}{gain}{worth}", result.metrics.get("label_names")
    figure = overview(result.on_fixed_grid, title, names, is_contrast_opposite(result.metrics))
    save(figure, folder / OVERVIEW)


def describe_run(pair: ImagePair, registration: ImageRegistration) -> dict[str, str]:
    """What was run and by which code, for the page: {heading: text}."""
    description = {name.replace("_", " "): image.name for name, image in pair.images.items()}
    description |= {"method": registration.method, **registration.details}
    if len(pair.fixed.grid.shape) == 3:
        description["slices"] = "each by itself" if registration.slice_axis is not None else "together"
    if pair.naming:
        description["structures"] = pair.naming
    description |= Conditions.of(registration).describe()
    covered = 100 * coverage(pair.moving.grid, pair.fixed.grid, registration.affine).mean()
    if covered < FULL_COVERAGE_PERCENT:
        description["overlap"] = f"moving covers {covered:.0f} % of fixed; elsewhere nothing was registered"
    if registration.repair is not None:
        description["folds"] = f"repaired: {registration.repair}"
    return description | {"device": registration.device, **describe_code()}


def describe_code() -> dict[str, str]:
    """Which code is running, and when, for the page: {heading: text}."""
    code = {**versions(), "numpy": np.__version__}
    return {
        "versions": ", ".join(f"{name} {version}" for name, version in code.items() if version),
        "date": datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z"),
    }


# The masks that a registration was run with, found again by metrics.json beside its transform.

MaskFiles = tuple[Path | None, Path | None]
"""The mask of fixed, and that of moving."""


@dataclass(frozen=True)
class ByRole:
    """What metrics.json says of the file of either image."""

    fixed: str | None = None
    moving: str | None = None

    @property
    def names(self) -> str:
        """Those that there are: "a and b"."""
        return " and ".join(filter(None, (self.fixed, self.moving)))

    @property
    def files(self) -> MaskFiles:
        return Path(self.fixed) if self.fixed else None, Path(self.moving) if self.moving else None


def masks_beside(transform: Path, fixed: Path, moving: Path) -> MaskFiles:
    """The masks that `vrnet register` found a transform with; none if there were none, one is gone, or the images are
    others. The user is told which masks are used, and why they are not."""
    paths, files = recorded(transform)
    if not paths.names:
        return None, None
    place = transform.with_name(METRICS)
    if (files.fixed, files.moving) != (fixed.name, moving.name):
        warn_of_input(f"{place} names masks, but of {files.names}: they are not used. If they are for these images, "
                      f"give --fixed-mask and --moving-mask ({paths.names})")  # fmt: skip
        return None, None
    gone = [str(path) for path in paths.files if path is not None and not exists(path)]
    if gone:
        warn_of_input(f"{transform} was found inside masks that are no longer there: {' and '.join(gone)}. The whole "
                      "images are compared, unless --fixed-mask and --moving-mask say where they are now")  # fmt: skip
        return None, None
    warn_of_input(f"the images are compared inside {paths.names}, as {place} names them (--ignore-masks compares all)")
    return paths.files


def recorded(transform: Path) -> tuple[ByRole, ByRole]:
    """(the paths of masks, the names of images) of metrics.json beside a transform; empty if it says nothing."""
    try:
        metrics = metrics_beside(transform)
        return convert_record(metrics[MASK_PATHS], ByRole), images_named(metrics)
    except (ValueError, KeyError, TypeError):  # a file of another program, or of a registration without masks
        return ByRole(), ByRole()


def metrics_beside(transform: Path) -> Any:
    """What metrics.json says, beside a transform that `vrnet register` wrote; KeyError where there is none."""
    place = transform.with_name(METRICS)
    if transform.name != TRANSFORM or not exists(place):
        raise KeyError(METRICS)
    return read_json(place)


def images_named(metrics: Any) -> ByRole:
    """The names of both images."""
    return convert_record({role: metrics["files"][role] for role in ("fixed", "moving")}, ByRole)


# An affine start and matched intensities of a registration, found again by the files beside its transform.

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
        match_intensities=msgspec.convert(options["match_intensities"], bool),
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


# The page of a transform that is there already, by whichever tool it was found.

PAGE_SUFFIX = ".html"
PAGE_FILES = (REPORT, OVERVIEW, METRICS)
"""What a folder gets; a page of a name of its own comes alone."""


def check_place(out: Path, inputs: Sequence[Path | None]) -> None:
    """BadInput unless the page, or the folder of one, can be written without loss of anything else."""
    if out.suffix == PAGE_SUFFIX:
        check_not_input([out], inputs)
        return check_file(out, (PAGE_SUFFIX,))
    check_not_input((out / name for name in PAGE_FILES), inputs)
    check_set(out, PAGE_FILES)
    if TRANSFORM in own_files(out):
        raise BadInput(f"{out} holds a registration, whose files stay as they are: name a page, such as {out}.html")


def report_transform(
    stage: Stage, pair: ImagePair, transforms: Sequence[Path], out: Path, known: Conditions = NOTHING_KNOWN
) -> tuple[MeasuredTransform, list[Path]]:
    """Measure what a chain of transforms does to a pair, and write its page: one file, or a folder of three.

    Also returns which files. Points of fixed go through the first transform first. `known` is how it was found."""
    check_pair(pair.fixed, pair.moving, must_overlap=False)
    transform = load_chain(transforms, pair.fixed.grid)
    stage("measuring")
    name = ", then ".join(path.name for path in transforms)
    result = measure_transform(pair, transform, name=name, command="report", known=known)
    stage("writing")
    description = {role.replace("_", " "): image.name for role, image in pair.images.items()}
    description |= {"transform": name, **({"structures": pair.naming} if pair.naming else {})}
    description |= known.describe() | describe_code()
    if out.suffix == PAGE_SUFFIX:
        write_report(out, result.on_fixed_grid, result.metrics, (), description)
        return result, [out]
    with replace_set(out, PAGE_FILES) as staged:
        write_json(result.metrics, staged / METRICS)
        write_report_files(result, staged, (), description)
    return result, [out / name for name in PAGE_FILES]


# What a notebook shows of each kind of result.

UNKNOWN = "–"


def registration_card(measured: MeasuredTransform, verdict: Verdict) -> Card:
    """Fixed, moving, warped and motion in the main slice, with the verdict and the few numbers that say how good."""
    flat = main_cut(measured.on_fixed_grid)
    size, metrics = " x ".join(map(str, metrics_shape(measured))), measured.metrics
    return Card(
        title=f"Registration by {metrics['method']}, {size} voxels",
        facts=[(row.name, value_of(row)) for row in headline(metrics, measured.on_fixed_grid.unit)],
        picture=join_tiles([*image_tiles(flat), motion_tile(flat)], flat.grid.spacing, CARD_SIDE_PIXELS, gap=3),
        caption="From left to right: fixed, moving, warped, motion (hue is direction).",
        verdict=verdict,
    )


def metrics_shape(measured: MeasuredTransform) -> list[int]:
    """How many voxels fixed has along each axis."""
    return list(measured.metrics["shape"])


def value_of(row: Row) -> str:
    """before → after; of what has no value before, that after."""
    return row.after if row.before == UNKNOWN else f"{row.before} → {row.after}"


def image_card(image: Image, title: str = "") -> Card:
    """The picture, or of a volume its middle slice."""
    flat, spacing = middle_slice(image.array, image.grid)
    return Card(
        title=title or repr(image),
        facts=[("range", f"{image.array.min():.4g} to {image.array.max():.4g}")],
        picture=join_tiles([quantise(flat, *window_of([flat], WINDOW_PERCENTILES))], spacing, CARD_SIDE_PIXELS),
        caption="" if image.array.ndim == 2 else "The middle slice.",
    )


def transform_card(transform: Transform) -> Card:
    """The motion in the slice that moves most, and how far and how much it deforms."""
    whole, k = busiest_slice(transform)
    flat = whole if whole.fixed.ndim == 2 else whole.cut(k)
    length, det = np.linalg.norm(transform.displacement, axis=0), transform.jacobian()
    return Card(
        title=repr(transform),
        facts=[
            ("displacement", f"{length.mean():.3g} mm in the mean, {length.max():.3g} mm at most"),
            ("Jacobian determinant", f"{det.min():.3g} to {det.max():.3g}"),
        ],
        picture=join_tiles([motion_tile(flat)], flat.grid.spacing, CARD_SIDE_PIXELS),
        caption="Motion (hue is direction)" + ("." if whole.fixed.ndim == 2 else f", slice {k + 1}."),
    )
