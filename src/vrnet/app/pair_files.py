"""A pair as files: read, registered, written, and read again from what an earlier run wrote.

`vrnet register`, `demo`, `report`, `evaluate` and `cohort` share this."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from vrnet.data.labels import KNOWN
from vrnet.errors import BadInput, Stage, as_options, warn_of_input
from vrnet.evaluation.pair import name_of, target_registration_error
from vrnet.files import check_not_input, check_set, exists, read_json, replace_set, write_json
from vrnet.images.grid import Affine, Grid
from vrnet.images.image import Image, segment_count
from vrnet.images.io import Points, write_image
from vrnet.images.resample import FULL_COVERAGE_PERCENT, coverage
from vrnet.images.transforms import RESULT, Transform, read_itk, write_itk
from vrnet.methods.method import Method
from vrnet.registration.channels import LABELS_MATCHED
from vrnet.registration.images import register_pair
from vrnet.registration.intensity import Remap
from vrnet.registration.pair import ImagePair, PairResult
from vrnet.report import OVERVIEW, REPORT
from vrnet.vocabulary import RegistrationOptions

if TYPE_CHECKING:
    from vrnet.phantom import Phantom

WARPED, TRANSFORM, LABELS, METRICS = "warped.nii.gz", RESULT, "warped_labels.nii.gz", "metrics.json"
AFFINE = "affine.tfm"
OUTPUTS = (WARPED, TRANSFORM, AFFINE, LABELS, METRICS, REPORT, OVERVIEW)
"""All that a registration may write. What an earlier one recorded of these goes when a new one is written."""
DEFAULTS = RegistrationOptions()


def read_pair(fixed: Path, moving: Path, **maps: Path | None) -> ImagePair:
    """Read two images, and the label maps and masks that are given; a warning where the two are the same."""
    pair = ImagePair.read(fixed, moving, **maps)
    if pair.fixed.grid.matches(pair.moving.grid) and np.array_equal(pair.fixed.array, pair.moving.array):
        warn_of_input(f"{pair.fixed.name} and {pair.moving.name} are the same image: nothing is to be found")
    return pair


def phantom_pair(patient: "Phantom") -> ImagePair:
    """The images and labels of a phantom, as if they had been read from files; its labels are those of ACDC."""
    grid = Grid.plain(tuple(patient.fixed.shape[2:]), patient.spacing)
    parts = ("fixed", "moving", "fixed_labels", "moving_labels")
    images: list[Any] = [Image(getattr(patient, part)[0, 0].numpy(), grid, f"{part}.nii.gz") for part in parts]
    return ImagePair(*images, label_names=KNOWN["acdc"], true_motion=patient.field[0].numpy())


def register_files(
    stage: Stage, pair: ImagePair, method: Method, folder: Path, options: RegistrationOptions = DEFAULTS, *,
    report: bool = False, images: bool = False, inputs: Sequence[Path | None] = (),
) -> tuple[PairResult, dict[str, Any], list[Path]]:  # fmt: skip
    """Register a pair and write the results in a folder: the result, what metrics.json holds, and which files.

    With `images` those of the pair are among the files, each under its name. `inputs` are read, and never written."""
    start = [] if options.affine == "none" else [AFFINE]
    labels = [] if pair.moving_labels is None else [LABELS]
    given = {image.name: image for image in pair.images.values()} if images else {}
    names = [WARPED, TRANSFORM, *start, METRICS, *labels, *([REPORT, OVERVIEW] if report else []), *given]
    check_not_input((folder / name for name in OUTPUTS), inputs)
    check_set(folder, names)
    result = register_pair(pair, method, options, stage)
    stage("measuring")
    metrics = metrics_of(result)
    metrics = result.with_heart(metrics) if report else metrics
    stage("writing")
    with replace_set(folder, (*OUTPUTS, *names)) as staged:
        write_image(result.warped, staged / WARPED)
        result.transform.save(staged / TRANSFORM)
        if result.affine is not None:
            write_itk(result.affine.itk, staged / AFFINE)
        if result.warped_labels is not None:
            write_image(result.warped_labels, staged / LABELS)
        write_json(metrics, staged / METRICS)
        for name, image in given.items():
            write_image(image, staged / name)
        if report:
            from vrnet.report.figures import write_overview
            from vrnet.report.page import write_report

            write_report(staged / REPORT, result, metrics)
            write_overview(staged / OVERVIEW, result)
    return result, metrics, [folder / name for name in names]


def metrics_of(result: PairResult, command: str = "register") -> dict[str, Any]:
    """What metrics.json holds, with what to try in the options of a command."""
    verdict = result.verdict
    in_options = replace(verdict, try_=tuple(as_options(advice, command) for advice in verdict.try_))
    notes = {"notes": [as_options(note, command) for note in result.notes]} if result.notes else {}
    return result.measures | notes | {"verdict": in_options.as_json()}


def landmark_error(result: PairResult, fixed: Points, moving: Points) -> dict[str, Any]:
    """The part of metrics.json about landmarks, in pairs; a warning where they lie outside, where nothing moves."""
    if fixed.lps.shape != moving.lps.shape:
        raise BadInput(f"there are {len(fixed.lps)} fixed points and {len(moving.lps)} moving ones: give pairs")
    mapped = result.transform.points(fixed.lps)
    for image, points in ((result.fixed, fixed), (result.moving, moving)):
        if count := int((~image.grid.holds(points.lps)).sum()):
            said = f"{count} of {len(points.lps)} landmarks of {name_of(image)} lie outside it"
            warn_of_input(f"{said}: check --space (LPS or RAS), and whether the files belong together")
    return {"target_registration_error_mm": target_registration_error(fixed.lps, moving.lps, mapped)}


@dataclass(frozen=True)
class PairRecord:
    """How a transform was found, as metrics.json says; of one that says nothing, as little as the defaults."""

    files: dict[str, str] = field(default_factory=dict)
    options: RegistrationOptions = DEFAULTS
    affine: dict[str, str | float] | None = None
    brightness: Remap | None = None
    channels: str = "none"
    mask_paths: dict[str, str | None] = field(default_factory=dict)

    @classmethod
    def beside(cls, transform: Path, fixed: Path, moving: Path) -> "PairRecord":
        """The record beside a transform that `vrnet register` wrote for these images."""
        place, record = transform.with_name(METRICS), cls()
        if transform.name != TRANSFORM or not exists(place):
            return record
        with suppress(BadInput, msgspec.ValidationError):
            record = msgspec.convert(read_json(place), cls)
        if {"fixed": fixed.name, "moving": moving.name}.items() <= record.files.items():
            return record
        warn_of_input(f"{place} does not say how {transform} was found for these images: it is judged as a whole")
        return cls()

    def masks(self, given: dict[str, Path | None]) -> dict[str, Path | None]:
        """Those that are given, as fixed_mask and moving_mask, or else those that the transform was found inside."""
        found: dict[str, Path | None] = {f"{role}_mask": Path(path) for role, path in self.mask_paths.items() if path}
        if any(given.values()) or not found:
            return given
        inside = " and ".join(map(str, found.values()))
        warn_of_input(f"the images are compared inside {inside}, as they were registered")
        return found

    def result(self, pair: ImagePair, transform: Transform, name: str, path: Path) -> PairResult:
        """What a transform from a file does to a pair, with moving seen as it was when the transform was found."""
        affine, told = None, []
        if self.affine is not None:
            start = Affine.from_sitk(read_itk(path.with_name(AFFINE))).checked(len(pair.fixed.grid.shape))
            start = start.about(pair.fixed.grid.centre)
            affine = replace(start, kind="rigid") if self.affine.get("kind") == "rigid" else start
            told = [f"after the start in {AFFINE}"]
        result = PairResult(
            **vars(pair), transform=transform, warped=transform.apply(pair.moving, pair.fixed.grid), method=name,
            affine=affine, remap=self.brightness, options=self.options, channels=self.channels,
        )  # fmt: skip
        if told := [*told, *(["with matched intensities"] if result.is_matched else [])]:
            warn_of_input(f"{name} is judged as it was found: {' and '.join(told)}, as {METRICS} says "
                          "(--ignore-recorded judges it as a whole, in the intensities of the images)")  # fmt: skip
        return result


def notes_on(result: PairResult, command: str = "register") -> list[str]:
    """What a reader should know of the images and the field, beside the verdict; options are those of a command."""
    notes, affine = [f"{as_options(note, command)}." for note in result.notes], result.affine
    fixed, moving = name_of(result.fixed), name_of(result.moving)
    unequal = f"{moving} and {fixed} are not equally bright:"
    covered = 100 * coverage(result.moving.grid, result.grid, affine).mean()
    if covered < FULL_COVERAGE_PERCENT:
        after = f", after the {affine.kind} start" if affine else ""
        note = f"{moving} covers {covered:.0f} % of {fixed}{after}: elsewhere nothing was registered."
        if affine is None and covered < 50:
            start = as_options('`affine="rigid"`', command)
            note += f" If that is the headers' fault, try {start}."
        notes.append(note)
    if affine is not None and (turned := affine.summary()["rotation_deg"]) > 90:
        notes.append(
            f"The affine start turns {moving} by {turned:.0f}°. If it is not upside down or back to front, check the "
            "headers: an affine start does not mirror, and fits the left side of a mirrored image to the right."
        )
    if result.repair is not None and not result.repair.is_slight:
        notes.append(f"{result.repair}. (--folds keep leaves the field as it was.)")
    if result.remap is not None:
        switch = as_options('`brightness="keep"`', command)
        notes.append(
            f"{unequal} they were compared, and differences are measured, with the intensities of {moving} as "
            f"{result.remap}. The warped image keeps its own. ({switch} compares them as they are.)"
        )
    for role, image in (("fixed", result.fixed), ("moving", result.moving)):
        if count := segment_count(image):
            notes.append(
                f"{name_of(image)} holds {count} whole numbers only. If they are labels, give them as --{role}-labels, "
                "and register the image that they were drawn on."
            )
    if len(result.label_maps) == 1:
        notes.append("Labels of one image alone cannot be measured: give both for Dice and distances.")
    if result.channels == "labels" and result.label_maps:
        notes.append(LABELS_MATCHED)
    if result.are_names_told_by_files:
        notes.append(f"Structures are {result.naming}. (--label-names says otherwise.)")
    return notes
