"""A cine tracked, with all that follows from it: transforms, labels of every frame, volumes, strain."""

import json
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from hashlib import sha256
from io import BytesIO
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import SimpleITK as sitk
import torch
from jaxtyping import Bool, Float
from numpy import ndarray
from numpy.typing import NDArray

from vrnet.cardiac.labels import heart_of, names_by_part, names_of, shown, warn_of_exchanged_ventricles
from vrnet.cardiac.segments import anterior_direction
from vrnet.cardiac.strain import MEASURES, NO_SEGMENTS, NO_STRAIN, NO_WALL, Measure, Strain, strain
from vrnet.cardiac.volumes import (
    CavityMuscle,
    SliceCurves,
    Volumes,
    known_ml,
    muscle_in_cavity,
    open_wall_text,
    slice_curves,
    volumes,
)
from vrnet.cardiac.wall import HeartLabels
from vrnet.data.labels import SMALLEST_CAVITY, LabelNames, find_cavity, in_planes, read_label_names
from vrnet.errors import BadInput, Progress, Stage, as_options, in_runs, percent, warn_of_input
from vrnet.evaluation.metrics import folding_strict_percent
from vrnet.files import Row, check_not_input, check_set, exists, own_files, replace_set, write_json, write_rows
from vrnet.images.grid import check_same_grid
from vrnet.images.image import Cine, Image, as_labels, to_sitk
from vrnet.images.io import CineLike, ImageLike, given_cine, given_image, grid_in_space, write_sitk
from vrnet.images.transforms import Transform
from vrnet.methods.method import Method
from vrnet.methods.names import kind_of
from vrnet.provenance import __version__, commit, versions
from vrnet.registration.arrays import explain_bad_keyword
from vrnet.registration.cine import (
    KEPT_OF_START,
    SMOOTHING_MM,
    SOLVER_SMOOTHING_MM,
    Link,
    LinkStore,
    TrackedFrames,
    TrackingPlan,
    check_reference,
    motion_of,
    plan_tracking,
    propagate_labels,
    track_frames,
)
from vrnet.report.cine import Film, Tracked, frame_text, headline, material_points, smallest_cavity, write_cine_page
from vrnet.report.cine_figures import (
    PLOTTED,
    curves_figure,
    film_picture,
    plot_strain,
    plot_volumes,
    times_of,
    write_film,
)
from vrnet.report.figures import Card, save
from vrnet.report.pair import Pair
from vrnet.tensors import checksum, open_tensors, write_tensors
from vrnet.verdict.advice import Run
from vrnet.verdict.cine import (
    CineEvidence,
    SixthExtremes,
    extremes_of_slices,
    extremes_of_whole,
    judge_cine,
    judge_frames,
    where_to_look,
)
from vrnet.verdict.evidence import RegisteredPair
from vrnet.verdict.rules import Verdict
from vrnet.vocabulary import Slices

if TYPE_CHECKING:
    from matplotlib.figure import Figure


# What the labels of a reference mean: whether they fit the cine, what a lone one is, and where the wall is open.

CAVITY = 3
"""What the inside of the wall is labelled where a map has the wall alone."""
OPEN_WALL = 1.2
"""How many times as large as a wall that encloses nothing its convex hull is, where the wall is an open arc: that of
the apex, a disc, is no larger than it."""
SMALLEST_CAVITY_OF_A_THREE = 0.25
"""Of a wall whose label is 3, which is the cavity in ACDC: less is a papillary muscle left out of the cavity."""


def check_labels(labels: Image, cine: Cine) -> Image:
    """The labels of a frame; BadInput unless they are a label map on its grid that shows something."""
    labels = without_third_axis(labels) if len(cine.grid.shape) == 2 else labels
    check_same_grid(labels.name, labels.grid, f"the frames of {cine.name}", cine.grid)
    found = as_labels(labels)
    if not found.array.any():
        raise BadInput(f"{labels.name} is 0 everywhere: give the label map of the reference frame")
    return replace(found, grid=cine.grid)


def without_third_axis(labels: Image) -> Image:
    """One slice that was saved as a stack, where a cine of one slice with that header lies."""
    if labels.grid.shape[2:] != (1,):
        return labels
    return replace(labels, array=labels.array[..., 0], grid=grid_in_space(labels.grid, Path(labels.name)))


def check_parts(labels: Image, heart: HeartLabels, names: LabelNames) -> None:
    """BadInput if no part of the heart is labelled; a warning where names are given to labels that are not there, where
    there is no wall, and where LV and RV seem to be exchanged, before a minute is spent."""
    there = sorted(np.unique(labels.array[labels.array != 0]).tolist())
    if not {heart.rv, heart.wall, heart.lv} & {*there}:
        said = f"{labels.name} has the labels {', '.join(map(str, there))}, and none of {shown(names_by_part(heart))}"
        raise BadInput(f"{said}: say which is which by `label_names`, as in 1=RV,2=Myo,3=LV")
    if absent := {label: name for label, name in names.items() if label not in there}:
        warn_of_input(f"{labels.name} has no label {shown(absent)}")
    if heart.wall not in there:
        said = f"{NO_STRAIN.format(reason=NO_WALL)}; the verdict looks neither at the wall nor for muscle in the cavity"
        warn_of_input(said)
    warn_of_exchanged_ventricles([labels], names or names_by_part(heart))


def interpret_labels(labels: Image) -> tuple[Image, HeartLabels]:
    """The labels with what they mean: as in ACDC; a lone value is the wall, and what it encloses is labelled too. A
    lone 3 that encloses little is the cavity, as in ACDC."""
    values = np.unique(labels.array[labels.array != 0])
    if len(values) > 1:
        return labels, HeartLabels()
    lone = int(values[0])
    inside = np.stack([find_cavity(plane) for plane in in_planes(labels.array != 0, labels)])
    least = SMALLEST_CAVITY_OF_A_THREE if lone == CAVITY else SMALLEST_CAVITY
    is_solid = bool(inside.sum() <= least * np.count_nonzero(labels.array))
    if is_solid and lone == CAVITY:
        said = f"{labels.name} has one label, {lone}: it is taken for the cavity of the LV, since it encloses little"
        warn_of_input(said)
        return labels, HeartLabels(rv=None, wall=None, lv=lone)
    return label_inside(labels, lone, inside, is_solid)


def label_inside(labels: Image, wall: int, inside: Bool[ndarray, "k x y"], is_solid: bool) -> tuple[Image, HeartLabels]:
    """The labels with the inside of the wall as the cavity; a warning says so, and how to say what a disc is."""
    cavity = CAVITY if wall != CAVITY else CAVITY + 1
    array = labels.array.astype(np.int32)
    if not is_solid:
        in_planes(array, labels)[inside] = cavity
    closed = f"and what it encloses is labelled {cavity}"
    disc = f'but encloses next to nothing; if it is the cavity, give `label_names="{wall}=LV"`'
    said = f"{labels.name} has one label, {wall}: it is taken for the wall, {disc if is_solid else closed}"
    warn_of_input(said)
    return labels.with_array(array), HeartLabels(rv=None, wall=wall, lv=cavity)


def open_slices(labels: Image, heart: HeartLabels) -> tuple[int, ...]:
    """The slices whose wall is an open arc, as at the outflow: the LV has no volume there, though the wall has; none
    where the LV is not labelled at all."""
    walls, cavities = (in_planes(labels.array == part, labels) for part in (heart.wall, heart.lv))
    pairs = zip(walls, cavities, strict=True) if cavities.any() else ()
    return tuple(k for k, (wall, cavity) in enumerate(pairs) if is_open(wall, cavity | find_cavity(wall)))


def warn_of_open_slices(labels: Image, heart: HeartLabels) -> None:
    """Warn where no cavity can be counted, before a minute is spent."""
    if slices := open_slices(labels, heart):
        said = f"{labels.name}: {open_wall_text(slices)}; to count it, label the cavity too"
        warn_of_input(said)


def is_open(wall: Bool[ndarray, "x y"], cavity: Bool[ndarray, "x y"]) -> bool:
    """Whether a wall encloses nothing, and is an arc."""
    from scipy.spatial import ConvexHull, QhullError

    if cavity.sum() > SMALLEST_CAVITY * wall.sum():
        return False
    try:
        hull = ConvexHull(np.argwhere(wall)).volume
    except (QhullError, ValueError):  # a line, a few voxels, or none
        return False
    return bool(hull > OPEN_WALL * wall.sum())


CLOSURE = (
    "mean length, in mm over the labelled voxels (without labels, over all), of the displacement that a chain of "
    "registrations, before it is refined, finds for the reference itself after going once round the cycle; 0 if it "
    "does not drift"
)
Array = NDArray[Any]


@dataclass(frozen=True, repr=False, eq=False)
class Tracking:
    """The result of `track`."""

    cine: Cine
    frame: int
    """The reference, to which the labels belong."""
    found: TrackedFrames
    reference_labels: Image | None = None
    heart: HeartLabels | None = None
    """Which labels are the ventricles and the wall; None without labels."""
    label_names: LabelNames = field(default_factory=dict)
    """What labels are called, where that was given."""

    def __repr__(self) -> str:
        return f"Tracking({self.found.method}, {self.cine}, {self.found.seconds:.2f} s)"

    @property
    def fields(self) -> Float[ndarray, "t d *s"]:
        """In voxels: the point at x in the reference is at x + u(x) in frame t, u being fields[t]."""
        return self.found.fields

    @cached_property
    def transforms(self) -> tuple[Transform, ...]:
        """From the reference to every frame."""
        return tuple(Transform.from_voxels(field, self.cine.grid) for field in self.fields)

    @cached_property
    def labels(self) -> Array | None:
        """(t, *s): the label map of every frame, brought there from the reference; None without labels."""
        if self.reference_labels is None:
            return None
        return propagate_labels(self.reference_labels.array, self.fields, self.found.slice_axis)

    @property
    def strain(self) -> Strain | None:
        """Strain of the wall of the left ventricle; None without labels, or where no slice shows a ring of wall."""
        return self.strain_or_reason if isinstance(self.strain_or_reason, Strain) else None

    @property
    def no_strain(self) -> str | None:
        """Why there is no strain, though there are labels; None where there is, and without labels."""
        return self.strain_or_reason if isinstance(self.strain_or_reason, str) else None

    @cached_property
    def strain_or_reason(self) -> Strain | str | None:
        """The strain, or why it cannot be measured; None without labels."""
        if self.reference_labels is None or self.heart is None:
            return None
        grid, times = self.cine.grid, self.cine.times_ms
        anterior = anterior_direction(grid) if len(grid.shape) == 3 else None
        try:
            return strain(self.fields, self.reference_labels.array, grid.spacing, across=self.across,
                          anterior=anterior, times_ms=times, heart=self.heart)  # fmt: skip
        except BadInput as error:
            warn_of_input(NO_STRAIN.format(reason=error))
            return str(error)

    @cached_property
    def volumes(self) -> Volumes | None:
        """Volumes of the ventricles at every frame; None without labels."""
        if self.labels is None or self.reference_labels is None or self.heart is None:
            return None
        found = volumes(self.labels, self.cine.grid.spacing, self.frame, self.heart)
        return replace(found, open_slices=open_slices(self.reference_labels, self.heart))

    @cached_property
    def closure_mm(self) -> dict[str, float]:
        """How far each chain is from where it began, once round the cycle: see CLOSURE."""
        spacing = np.reshape(self.cine.grid.spacing, (-1, *[1] * len(self.cine.grid.shape)))
        lengths = np.linalg.norm(self.found.closing * spacing, axis=1)
        forward, backward = (float(length[self.labelled].mean()) for length in lengths)
        return {"forward": forward, "backward": backward}

    @cached_property
    def labelled(self) -> NDArray[np.bool_]:
        """The voxels of the reference that have a label; without labels, all."""
        if self.reference_labels is not None and self.reference_labels.array.any():
            return np.asarray(self.reference_labels.array != 0)
        return np.ones(self.cine.grid.shape, bool)

    @cached_property
    def evidence(self) -> CineEvidence:
        """The grounds of the verdict."""
        motion, axis = (self.fields, self.labelled.astype(float)), self.stack_axis
        pairs = ((k, self.as_pair(k)) for k in range(len(self.cine)) if k != self.frame)
        frames, unmatched = judge_frames(pairs, axis)
        return CineEvidence(
            frames=frames,
            closure_mm=max(self.closure_mm.values()),
            whole=extremes_of_whole(*motion, self.volumes, self.strain, self.muscle_in_cavity),
            slices=() if axis is None else extremes_of_slices(*motion, axis, self.by_slice, self.frame, unmatched),
            sixths=None if self.strain is None else SixthExtremes.of(self.strain),
        )

    @property
    def stack_axis(self) -> int | None:
        """The axis across which several slices lie, each of which was tracked by itself; None where that is not so."""
        axis = self.found.slice_axis
        return axis if axis is not None and self.cine.grid.shape[axis] > 1 else None

    @cached_property
    def muscle_in_cavity(self) -> CavityMuscle | None:
        """How much more of the cavity looks like muscle than in the reference; None without its labels."""
        if self.labels is None or self.heart is None:
            return None
        return muscle_in_cavity(self.cine.frames, self.labels, self.heart, self.frame, self.across)

    @cached_property
    def by_slice(self) -> SliceCurves | None:
        """Areas, strain and muscle in the cavity of every slice at every frame; None without labels."""
        if self.labels is None or self.heart is None:
            return None
        spacing, heart = self.cine.grid.spacing, self.heart
        return slice_curves(self.labels, spacing, heart, self.frame, self.across, self.strain, self.muscle_in_cavity)

    @property
    def across(self) -> int | None:
        """The axis across which slices lie; None of a cine of one slice."""
        return self.cine.grid.across if len(self.cine.grid.shape) == 3 else None

    @cached_property
    def verdict(self) -> Verdict:
        """What the tracking is worth: good, look or failed, why, and what to try."""
        dimension = len(self.cine.grid.shape) - (self.found.slice_axis is not None)
        return judge_cine(self.evidence, Run(self.found.method, dimension, self.stack_axis is not None))

    def as_pair(self, k: int) -> RegisteredPair:
        """The reference and frame k as a registered pair."""
        reference, moving, grid = self.cine.frames[self.frame], self.cine.frames[k], self.cine.grid
        return RegisteredPair(reference, moving, self.warped(k).array, self.fields[k], grid, grid)

    @cached_property
    def folding_strict_percent(self) -> float:
        """Voxels of all frames that are folded, by the strict count; of slices, within any slice."""
        motions = (motion_of(field, self.found.slice_axis) for field in self.fields)
        return float(np.mean([folding_strict_percent(torch.as_tensor(u)) for u in motions]))

    def warped(self, k: int) -> Image:
        """Frame k brought to the reference."""
        return self.transforms[k].apply(self.cine.image(k))

    def metrics(self) -> dict[str, Any]:
        """What `vrnet track` writes in summary.json: closure error, folds; with labels, volumes and peaks of strain."""

        return summary(self)

    def show(self) -> "Figure":
        """A figure of matplotlib: two frames with what was tracked, and curves of strain and volumes given labels."""

        return tracking_figure(self)

    def report(self, path: str | PathLike[str]) -> Path:
        """Write the page on which the heart beats, in a file that ends in .html. In a folder, which is made if it is
        not there, write report.html, and for slides cine.gif and, given labels, strain.png. Returns the page."""

        place = Path(path)
        return write_track_page(self, place) if place.suffix == PAGE_SUFFIX else write_track_report(self, place)

    def _repr_html_(self) -> str:

        return tracking_card(self).html()


@explain_bad_keyword
def track(
    cine: CineLike,
    method: str | Method = "default",
    *,
    labels: ImageLike | None = None,
    frame: int = 0,
    slices: Slices = "auto",
    heart: HeartLabels | None = None,
    label_names: str | LabelNames | None = None,
    device: str = "auto",
    progress: Progress | None = None,
) -> Tracking:
    """Follow a beating heart: the transform from the reference `frame` to every frame of a cine, or of its file,
    or of a 4D image of SimpleITK or nibabel.

    Each frame starts from what was found for its neighbour and is registered against the reference, both ways round the
    cycle; the two are blended, so that the last frame closes on the first. Of a network that is done for 20 frames at
    most, and a solver refines all. With `labels` of the reference, every frame gets labels, and there are volumes and
    strain. Their values are those of ACDC (1 RV, 2 wall of the LV, 3 its cavity; a lone value is the wall, but a lone 3
    that encloses little the cavity), unless `heart` says otherwise, or `label_names`, such as "3=RV,2=Myo,1=LV", which
    names other structures too. Where no method is named, the model in the box tracks stacks slice by slice, and
    Gaussian-LNCC tracks volumes; `slices` are as in `register_images`."""
    request = prepare_tracking(cine, method, labels, frame, slices, heart, device, label_names)
    return request.run(None, progress)


@dataclass(frozen=True)
class TrackingRequest:
    """A cine that is read and checked, and how it is to be tracked."""

    cine: Cine
    plan: TrackingPlan
    frame: int
    labels: Image | None
    heart: HeartLabels | None
    label_names: LabelNames = field(default_factory=dict)

    def run(self, store: LinkStore | None, progress: Progress | None) -> Tracking:
        """Track it."""
        found = track_frames(self.cine, self.plan, self.frame, store, progress)
        return Tracking(self.cine, self.frame, found, self.labels, self.heart, self.label_names)


def prepare_tracking(
    cine: CineLike,
    method: str | Method,
    labels: ImageLike | None,
    frame: int,
    slices: Slices,
    heart: HeartLabels | None,
    device: str,
    label_names: str | LabelNames | None = None,
) -> TrackingRequest:
    """Read what is to be tracked; BadInput if it cannot be."""
    names = {} if label_names is None else read_label_names(label_names)
    if names and heart is not None:
        raise BadInput("labels are explained twice: give `heart` or `label_names`")
    if labels is None and (names or heart is not None):
        raise BadInput("names of labels are given, but not the labels: give `labels` too")
    said = heart_of(names) if names else heart
    whole = given_cine(cine)
    check_reference(whole, frame)
    if labels is None:
        return TrackingRequest(whole, plan_tracking(whole, method, slices, device), frame, None, None)
    of_frame = check_labels(given_image("labels", labels), whole)
    known, meaning = (of_frame, said) if said else interpret_labels(of_frame)
    check_parts(known, meaning, names)
    warn_of_open_slices(known, meaning)
    return TrackingRequest(whole, plan_tracking(whole, method, slices, device), frame, known, meaning, names)


# slices.csv: one row per slice and frame of a tracked cine.

OF_STRAIN = {m.name: m.definition for m in MEASURES}
DIGITS = 3
COLUMNS = {
    "cavity_mm2": ("cavity_mm2", "area of the cavity of the LV in the labels of this frame"),
    "wall_mm2": ("wall_mm2", "area of the wall of the LV in the labels of this frame"),
    "green_circumferential_percent": (
        "circumferential_percent",
        f"{OF_STRAIN['green_circumferential']} in this slice; empty where that is no closed ring",
    ),
    "green_radial_percent": (
        "radial_percent",
        f"{OF_STRAIN['green_radial']} in this slice; empty where that is no closed ring",
    ),
    "muscle_in_cavity_percent": (
        "muscle_percent",
        "how much more of the cavity looks like muscle than in the reference, in percent of the cavity: is no brighter "
        "than half-way from the median of the wall to the 90th percentile of the cavity (no darker, where blood is "
        "dark)",
    ),
}
"""{column: (its curve in SliceCurves, its definition)}"""


def write_slices(curves: SliceCurves, times_ms: tuple[float, ...] | None, path: Path) -> None:
    """Write the curves of all slices; comments above the header define the columns."""
    comments = ["slice, frame: counted from 0", *(f"{name}: {said}" for name, (_, said) in COLUMNS.items())]
    write_rows(slice_rows(curves, times_ms), path, comments)


def slice_rows(curves: SliceCurves, times_ms: tuple[float, ...] | None) -> list[Row]:
    """One row per slice and frame."""
    columns = {name: getattr(curves, curve).round(DIGITS) + 0.0 for name, (curve, _) in COLUMNS.items()}
    return [
        {"slice": number, "frame": t, "time_ms": times_ms[t] if times_ms else None}
        | {name: values[k, t] for name, values in columns.items()}
        for k, number in enumerate(curves.slices)
        for t in range(curves.wall_mm2.shape[1])
    ]


# What people look at of a tracked cine: the page, its curves as a picture, and a film for slides.

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


# The files of a tracked cine: links of its chains while it is tracked, and the results at the end, all at once.

TRANSFORMS, LABELS, VOLUMES, STRAIN, SLICES, SUMMARY = (
    "transforms", "labels.nii.gz", "volumes.csv", "strain.csv", "slices.csv", "summary.json"
)  # fmt: skip
LABELLED = LABELS, VOLUMES, STRAIN, SLICES
"""What is written where labels are given."""
COUNTING = "numbers of frames and slices are counted from 0; sentences count from 1"
UNFINISHED = ".vrnet-track"
"""The folder, inside that of the results, of what is kept until they are written."""


@dataclass(frozen=True)
class LinkFiles:
    """The links of one tracking, a file each, in a folder that is named after all that they depend on."""

    folder: Path

    def load(self, step: int) -> Link | None:
        """The link of a step; None if it is not there, or damaged."""
        if not exists(self.path(step)):
            return None
        with suppress(BadInput), open_tensors(self.path(step), "it is found again") as file:
            tensors = file.read()
            return Link(tensors["forward"], tensors["backward"])
        return None

    def save(self, step: int, link: Link) -> None:
        """Write the link of a step, whole or not at all."""
        write_tensors(
            {name: u.cpu().contiguous().clone() for name, u in link._asdict().items()},
            self.path(step),
            {"step": str(step)},
        )

    def path(self, step: int) -> Path:
        return self.folder / f"step_{step:03d}.safetensors"

    @property
    def steps(self) -> int:
        """How many steps are kept."""
        return len(list(self.folder.glob("step_*.safetensors")))


def track_to_folder(
    stage: Stage,
    request: TrackingRequest,
    folder: Path,
    inputs: Sequence[Path | None] = (),
    *,
    report: bool = False,
) -> tuple[Tracking, list[str]]:
    """Track a cine and write the results in a folder; also returns their names. `stage` is told what is done; `report`
    asks for a page and pictures too.

    What was found before an interruption is taken up, unless the cine or what was asked is another."""
    names = planned_outputs(request, report)
    check_not_input((folder / name for name in names), inputs)
    check_set(folder, names)
    links = open_links(request, folder)
    tracking = request.run(links, stage(f"tracking with {request.plan.method}"))
    measure(tracking, stage("measuring"))
    stale = [name for name in own_files(folder) if name.startswith(f"{TRANSFORMS}/frame_")]
    with replace_set(folder, (*names, *LABELLED, *REPORT_FILES, *stale)) as staged:
        write_tracking(tracking, staged, stage("writing"))
        if report:
            write_track_report(tracking, staged, stage("drawing"))
        written = [name for name in names if exists(staged / name)]
    shutil.rmtree(folder / UNFINISHED, ignore_errors=True)
    return tracking, written


def measure(tracking: Tracking, progress: Progress) -> None:
    """Compute what takes longest, which a tracking keeps: otherwise it would be computed while files are written."""
    for done, part in enumerate(("labels", "verdict"), 1):
        getattr(tracking, part)
        progress(done / 2)


def open_links(request: TrackingRequest, folder: Path) -> LinkFiles:
    """Where the links of a tracking are kept; those of another that was not finished are removed, and that is told."""
    place = folder / UNFINISHED / fingerprint(request)[:16]
    others = [other for other in (folder / UNFINISHED).glob("*") if other != place]
    for other in others:
        shutil.rmtree(other, ignore_errors=True)
    links = LinkFiles(place)
    if links.steps:
        warn_of_input(f"{folder} holds {kept_words(request, links.steps)}")
    elif others:
        said = f"{folder} held a tracking that was not finished, of another cine or asked otherwise: it is begun anew"
        warn_of_input(said)
    return links


def has_kept_steps(folder: Path) -> bool:
    """Whether a tracking that was not finished, and goes on from there, has steps in a folder of results."""
    return any(LinkFiles(place).steps for place in (folder / UNFINISHED).glob("*"))


def kept_words(request: TrackingRequest, kept: int) -> str:
    """How much of a tracking is kept, and what is left, where steps are not all of it."""
    n = len(request.cine)
    known = f"{kept} of {len(request.plan.seen(n))} steps of this very tracking: it goes on from there"
    if request.plan.refinement(n) is None:
        return known
    turns = "" if request.plan.turning(n) is None else "how slices turn, and "
    rest = f"about {percent(1 - request.plan.part_of_steps(n))} of the time"
    return f"{known}. What follows the steps, {rest}, is not kept: {turns}the refinement of all {n} frames"


def fingerprint(request: TrackingRequest) -> str:
    """SHA-256 of all that links depend on: the frames, where they are, the method with its weights, and the code."""
    plan, frames = request.plan, np.ascontiguousarray(request.cine.frames)
    model = plan.method.model
    settings = {
        "version": __version__, "commit": commit(), "method": str(plan.method), "parameters": plan.method.details,
        "weights": None if model is None else checksum(model.state_dict(), {}), "device": plan.device.type,
        "order": plan.order, "slice_axis": plan.slice_axis, "grid": repr(plan.grid), "frame": request.frame,
        "shape": frames.shape, "type": frames.dtype.str, "smoothing_mm": (SMOOTHING_MM, SOLVER_SMOOTHING_MM),
        "kept_of_start": KEPT_OF_START, "seen": plan.seen(len(frames)),
    }  # fmt: skip
    digest = sha256(json.dumps(settings, sort_keys=True).encode())
    digest.update(frames.data)
    return digest.hexdigest()


def planned_outputs(request: TrackingRequest, report: bool) -> list[str]:
    """The names of the files that a tracking may write."""
    labelled = () if request.labels is None else LABELLED
    drawn = report_names(request.labels is not None) if report else []
    return [*(transform_name(k, len(request.cine)) for k in range(len(request.cine))), *labelled, SUMMARY, *drawn]


def transform_name(k: int, frames: int) -> str:
    """transforms/frame_07.nii.gz: with as many digits as the last frame needs, and two at least."""
    return f"{TRANSFORMS}/frame_{k:0{max(2, len(str(frames - 1)))}d}.nii.gz"


def write_tracking(tracking: Tracking, folder: Path, progress: Progress) -> None:
    """Write all results; the transforms first, which take longest."""
    n = len(tracking.transforms)
    for k, transform in enumerate(tracking.transforms):
        transform.save(folder / transform_name(k, n))
        progress((k + 1) / (n + 1))
    if tracking.labels is not None:
        write_sitk(join_frames(tracking), folder / LABELS)
    if tracking.volumes is not None:
        write_rows(volume_rows(tracking.volumes, tracking.cine.times_ms), folder / VOLUMES)
    if tracking.strain is not None:
        definitions = (f"{strain_column(m)}: {m.definition}" for m in MEASURES)
        write_rows(strain_rows(tracking.strain), folder / STRAIN, definitions)
    if tracking.by_slice is not None and tracking.by_slice.slices:
        write_slices(tracking.by_slice, tracking.cine.times_ms, folder / SLICES)
    write_json(summary(tracking), folder / SUMMARY)


def join_frames(tracking: Tracking) -> "sitk.Image":
    """The labels of all frames as one image, time its last axis, in seconds; where times are unknown, 1 per frame."""
    import SimpleITK as sitk

    assert tracking.labels is not None
    times = tracking.cine.times_ms
    step = 1.0 if times is None else (times[-1] - times[0]) / (len(times) - 1) / 1000
    return sitk.JoinSeries([to_sitk(frame, tracking.cine.grid) for frame in tracking.labels], 0.0, step)


def volume_rows(found: Volumes, times_ms: tuple[float, ...] | None) -> list[Row]:
    """One row per frame; the cells of a structure that is not labelled are empty."""
    curves = {name: known_ml(getattr(found, name)).round(3) for name in ("lv_ml", "rv_ml", "wall_ml")}
    return [
        {"frame": k, "time_ms": times_ms[k] if times_ms else None, **{name: curve[k] for name, curve in curves.items()}}
        for k in range(len(found.lv_ml))
    ]


def strain_column(measure: Measure) -> str:
    """What the column of a measure is called in strain.csv; comments above the header define it."""
    return f"{measure.name}_percent"


def strain_rows(found: Strain) -> list[Row]:
    """One row per region and frame."""
    rows = []
    for r, region in enumerate(found.regions):
        for k in range(found.percent.shape[2]):
            place = {"region": region, "frame": k, "time_ms": found.times_ms[k] if found.times_ms else None}
            values = {strain_column(m): found.percent[r, j, k] for j, m in enumerate(MEASURES)}
            rows.append(place | values)
    return rows


def summary(tracking: Tracking) -> dict[str, Any]:
    """What summary.json says."""
    cine, found = tracking.cine, tracking.found
    about: dict[str, Any] = {
        "cine": cine.name, "doubt": cine.doubt or None, "counting": COUNTING,
        "frames": len(cine), "reference": tracking.frame,
        "shape": cine.grid.shape, "spacing_mm": cine.grid.spacing, "times_ms": cine.times_ms,
        "method": found.method, "weights": found.weights,
        "turned_by": found.turned_by, "refined_by": found.refined_by, "device": found.device, "seconds": found.seconds,
        "slice_by_slice": found.slice_axis is not None,
        "closure_mm": {"definition": CLOSURE, **tracking.closure_mm},
        "folding_strict_percent": tracking.folding_strict_percent,
        "frames_with_repaired_folds": repaired_frames(tracking),
        "verdict": verdict_of(tracking),
    }  # fmt: skip
    if tracking.reference_labels is not None and tracking.heart is not None:
        names = tracking.label_names or names_of(tracking.heart, tracking.reference_labels)
        about["label_names"] = {str(label): name for label, name in names.items()}
    if tracking.volumes is not None:
        about["volumes"] = describe_volumes(tracking.volumes)
    if tracking.strain is not None:
        about["strain"] = describe_strain(tracking.strain)
    if tracking.no_strain is not None:
        about["strain_not_measured"] = tracking.no_strain
    return about | versions()


def describe_volumes(found: Volumes) -> dict[str, Any]:
    """Ejection fractions, volumes and mass, with what they mean; of what is not labelled, null."""
    lv = known_ml(found.lv_ml)
    return {
        "definition": VOLUME_DEFINITION,
        "lv_ejection_fraction_percent": found.lv_ejection_fraction_percent,
        "rv_ejection_fraction_percent": found.rv_ejection_fraction_percent,
        "lv_largest_ml": lv.max(),
        "lv_smallest_ml": lv.min(),
        "mass_g": found.mass_g,
        "slices_whose_wall_is_open": found.open_slices,
    }


def describe_strain(found: Strain) -> dict[str, Any]:
    """Peaks of every region by every measure, and which slices they come from."""
    peaks = {
        region: {m.name: None if (peak := found.peak(m.name, region)) is None else peak._asdict() for m in MEASURES}
        for region in found.regions
    }
    return {
        "definitions": {m.name: m.definition for m in MEASURES},
        "peaks": peaks,
        "slices": found.slices,
        "slices_left_out": [vars(left) for left in found.left_out],
        "levels": found.doubt_about_levels or "thirds of the slices, from base to apex",
        "segments": "by the insertion of the RV" if found.insertions else NO_SEGMENTS,
    }


# What Python and notebooks show of a tracked cine: two frames with what was tracked, and the curves.

ROW_INCHES, CURVE_INCHES = 3.6, 4.6


def tracking_figure(tracking: Tracking) -> "Figure":
    """The reference and the frame farthest from it, with contours and strain, or the grid; below, the curves."""
    from vrnet.report.drawing import Picture

    film = film_of(tracking)
    curves = (len(PLOTTED) if film.strain is not None else 0) + (film.volumes is not None)
    rows = 2 if curves else 1
    figure = Picture(figsize=(CURVE_INCHES * max(curves, 3), ROW_INCHES * rows), layout="constrained")
    figure.suptitle(f"{Path(tracking.cine.name).name}, {tracking.found.method}", parse_math=False, fontsize=11)
    upper, *lower = figure.subfigures(rows, 1, squeeze=False)[:, 0]
    for ax, t in zip(upper.subplots(1, 2), (tracking.frame, shown_frame(tracking)), strict=True):
        ax.imshow(frame_picture(film, t))
        ax.set_title(frame_text(t, len(film)) + (" (reference)" if t == tracking.frame else ""), fontsize=10)
        ax.set_axis_off()
    if lower:
        plot_curves(lower[0].subplots(1, curves, squeeze=False)[0].tolist(), film)
    return figure


def plot_curves(axes: list, film: Film) -> None:  # type: ignore[type-arg]
    """Strain, where it was measured, and volumes over the cycle."""
    times = times_of(film)
    if film.strain is not None:
        for ax, measure in zip(axes, PLOTTED, strict=False):
            plot_strain(ax, film.strain, measure, times)
    if film.volumes is not None:
        plot_volumes(axes[-1], film.volumes, times)
    for ax in axes:
        ax.set_xlabel("frame" if film.times_ms is None else "ms")


def shown_frame(tracking: Tracking) -> int:
    """The frame that a picture shows beside the reference: where the labels show the cavity of the left ventricle, that
    of its smallest volume; where they do not, or where the reference is that frame, the one that has moved farthest."""
    if (smallest := smallest_cavity(film_of(tracking))) is not None:
        return smallest
    spacing = np.reshape(tracking.cine.grid.spacing, (-1, *[1] * len(tracking.cine.grid.shape)))
    return int(np.argmax([float(np.square(field * spacing).mean()) for field in tracking.fields]))


def shown_pair(tracking: Tracking) -> Pair:
    """The reference, the frame that is shown beside it, and that frame brought back: what a thumbnail shows."""
    cine, k, reference = tracking.cine, shown_frame(tracking), tracking.reference_labels
    return Pair(
        fixed=cine.frames[tracking.frame].astype(np.float32),
        moving=cine.frames[k].astype(np.float32),
        warped=tracking.warped(k).array,
        field=tracking.fields[k],
        grid=cine.grid,
        fixed_labels=None if reference is None else reference.array,
    )


def frame_picture(film: Film, t: int) -> "Image":
    """A frame of the main slice: in grey with contours, and beside it with strain or grid."""
    return film_picture(film, material_points(film.slices, film.slices.main), t)


def tracking_card(tracking: Tracking) -> Card:
    """The frame beside the reference, and the numbers that the page has on top."""
    film, t = film_of(tracking), shown_frame(tracking)
    file = BytesIO()
    frame_picture(film, t).save(file, "PNG")
    numbers = headline(film, quality(tracking))
    facts = [(each.name, each.value + (f" ({each.detail})" if each.detail else "")) for each in numbers]
    title = f"{len(film)} frames of {Path(tracking.cine.name).name}, tracked by {tracking.found.method}"
    caption = f"{frame_text(t, len(film)).capitalize()}, as it has moved from frame {tracking.frame + 1}."
    return Card(title, facts, file.getvalue(), caption, tracking.verdict)
