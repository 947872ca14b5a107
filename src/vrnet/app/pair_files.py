"""A pair as files: read, registered, written, and read again from what an earlier run wrote.

`vrnet register`, `demo`, `report`, `evaluate` and `cohort` share this."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import isclose
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from vrnet.data.labels import KNOWN
from vrnet.errors import BadInput, Stage, as_options, warn_of_input
from vrnet.evaluation.pair import name_of, target_registration_error, unmatched_brightness
from vrnet.files import check_not_input, check_set, exists, read_json, replace_set, write_json
from vrnet.images.grid import Affine, Grid
from vrnet.images.image import Image, segment_count
from vrnet.images.io import Points, write_image
from vrnet.images.resample import FULL_COVERAGE_PERCENT, coverage
from vrnet.images.transforms import RESULT, Transform, read_itk, write_itk
from vrnet.methods.method import Method
from vrnet.phantom import Phantom
from vrnet.registration.channels import LABELS_MATCHED
from vrnet.registration.images import register_pair
from vrnet.registration.intensity import Remap
from vrnet.registration.pair import ImagePair, PairResult
from vrnet.report import OVERVIEW, REPORT
from vrnet.vocabulary import RegistrationOptions

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


def phantom_pair(patient: Phantom) -> ImagePair:
    """The images and labels of a phantom, as if they had been read from files; its labels are those of ACDC."""
    grid = Grid.plain(tuple(patient.fixed.shape[2:]), patient.spacing)
    parts = ("fixed", "moving", "fixed_labels", "moving_labels")
    images: list[Any] = [Image(getattr(patient, part)[0, 0].numpy(), grid, f"{part}.nii.gz") for part in parts]
    return ImagePair(*images, label_names=KNOWN["acdc"], true_motion=patient.field[0].numpy())


def register_files(
    stage: Stage,
    pair: ImagePair,
    method: Method,
    folder: Path,
    options: RegistrationOptions = DEFAULTS,
    *,
    report: bool = False,
    images: bool = False,
    inputs: Sequence[Path | None] = (),
) -> tuple[PairResult, dict[str, Any], list[Path]]:
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


MaskFiles = dict[str, Path | None]
"""Masks as they are given, by the names "fixed_mask" and "moving_mask"."""


@dataclass(frozen=True)
class PairRecord:
    """What metrics.json says of how a transform was found. Nothing else reads that file."""

    files: dict[str, str]
    options: RegistrationOptions
    affine: dict[str, str | float] | None
    brightness: Remap | None
    channels: str = "none"
    mask_paths: dict[str, str | None] = field(default_factory=dict)

    @classmethod
    def beside(cls, transform: Path) -> "PairRecord | None":
        """The record beside a transform, if `vrnet register` wrote one; the user is told of one that cannot be read."""
        place = transform.with_name(METRICS)
        if transform.name != TRANSFORM or not exists(place):
            return None
        try:
            value = read_json(place)
            return msgspec.convert(value, cls)
        except BadInput:
            reason = "cannot be read"
        except msgspec.ValidationError as error:
            if not (isinstance(value, dict) and {"affine", "brightness", "options"} & value.keys()):
                return None
            said = str(error).replace("`", "")  # which would be read as the arguments of a command
            reason = f"is not as vrnet register writes it ({said})"
        warn_of_input(
            f"{place} {reason}, so that it does not tell how {transform} was found: that is judged as a whole, in the "
            "intensities of the images"
        )
        return None

    @property
    def is_matched(self) -> bool:
        """Whether moving was seen in other intensities than its own."""
        return self.options.match_intensities or self.brightness is not None


@dataclass(frozen=True)
class RecordedConditions:
    """How a transform from a file was found, as far as that is known, and the masks inside which it is judged."""

    masks: MaskFiles = field(default_factory=dict)
    record: PairRecord | None = None
    transform: Path = Path()

    @classmethod
    def of(
        cls, transform: Path, fixed: Path, moving: Path, masks: MaskFiles, ignore_masks: bool = False,
        use_record: bool = True,
    ) -> "RecordedConditions":  # fmt: skip
        """What is recorded beside a transform, unless the images are others; masks that are given replace its masks."""
        record = PairRecord.beside(transform)
        if record is None:
            return cls(masks)
        place = transform.with_name(METRICS)
        files = [record.files.get(role, "") for role in ("fixed", "moving")]
        found = {f"{role}_mask": Path(path) for role, path in record.mask_paths.items() if path}
        wanted = [] if any(masks.values()) or ignore_masks else [*found.values()]
        if files != [fixed.name, moving.name]:
            if record.affine or record.is_matched or wanted:
                warn_of_input(
                    f"{place} tells how {' and '.join(files)} were compared, which are other images: that is not used. "
                    "If its masks are for these images, give --fixed-mask and --moving-mask"
                )
            return cls(masks)
        gone = " and ".join(str(path) for path in wanted if not exists(path))
        if gone:
            warn_of_input(f"{transform} was found inside masks that are no longer there: {gone}. The whole images "
                          "are compared, unless --fixed-mask and --moving-mask say where they are now")  # fmt: skip
        elif wanted:
            inside = " and ".join(map(str, wanted))
            warn_of_input(
                f"the images are compared inside {inside}, as {place} names them (--ignore-masks compares all)"
            )
        return cls({**found} if wanted and not gone else masks, record if use_record else None, transform)

    def result(self, pair: ImagePair, transform: Transform, name: str) -> PairResult:
        """What a transform from a file does to a pair, with moving seen as it was when the transform was found."""
        grid = pair.fixed.grid
        warped = transform.apply(pair.moving, grid)
        if self.record is None:
            return PairResult(**vars(pair), transform=transform, warped=warped, method=name)
        affine, path = None, self.transform.with_name(AFFINE)
        if said := self.record.affine:
            with suppress(BadInput):
                start = Affine.from_sitk(read_itk(path)).checked(len(grid.shape)).about(grid.centre)
                own = {key: value for key, value in start.summary().items() if key != "kind"}
                if all(isclose(float(said.get(key, np.nan)), value, abs_tol=1e-3) for key, value in own.items()):
                    affine = replace(start, kind="rigid" if said.get("kind") == "rigid" else "affine")
            if affine is None:
                warn_of_input(f"{self.transform} was found after an affine start, but {path} is gone, or is another: "
                              "the whole transform is judged as a deformation")  # fmt: skip
        parts = [f"after the start in {AFFINE}"] if affine else []
        parts += ["with matched intensities"] if self.record.is_matched else []
        if parts:
            place = self.transform.with_name(METRICS)
            warn_of_input(f"{self.transform} is judged as it was found: {' and '.join(parts)}, as {place} says "
                          "(--ignore-recorded judges it as a whole, in the intensities of the images)")  # fmt: skip
        conditions: dict[str, Any] = {
            "remap": self.record.brightness, "options": self.record.options, "channels": self.record.channels,
        }  # fmt: skip
        return PairResult(**vars(pair), transform=transform, warped=warped, method=name, affine=affine, **conditions)


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
    if (remap := unmatched_brightness(result)) is not None:
        notes.append(
            f"{unequal} {moving} would be as bright as {fixed} with its intensities as {remap}. Nothing says that the "
            "transform was found so, and differences are measured as the images are: they show brightness, not motion "
            "alone."
        )
    return notes
