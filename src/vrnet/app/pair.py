"""Files in, files out: what `vrnet register`, `vrnet evaluate` and `vrnet demo` share."""

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path

import numpy as np

from vrnet.app.conditions import Conditions
from vrnet.app.image_pair import ImagePair
from vrnet.app.measured import MeasuredTransform, measure_transform
from vrnet.app.notes import FULL_COVERAGE_PERCENT
from vrnet.errors import BadInput
from vrnet.evaluation.levels import WORDS
from vrnet.file_sets import check_set, replace_set
from vrnet.files import check_not_input, exists, write_json
from vrnet.images.io import write_image
from vrnet.images.itk_transforms import RESULT, write_itk
from vrnet.images.resample import coverage
from vrnet.images.transform import Transform
from vrnet.methods.method import Method
from vrnet.methods.names import choose, find_base
from vrnet.methods.weights import SUFFIX
from vrnet.progress import Stage
from vrnet.provenance import versions
from vrnet.registration.images import ImageRegistration, register_image_pair
from vrnet.registration.options import RegistrationOptions
from vrnet.registration.plan import check_pair, resolve_on_grid
from vrnet.report.figures import overview, save
from vrnet.report.measures import is_contrast_opposite
from vrnet.report.measures import title as title_of_measure
from vrnet.report.page import write_report

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
