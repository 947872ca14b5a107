"""A cine tracked, with all that follows from it: transforms, labels of every frame, volumes, strain."""

from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from numpy.typing import NDArray

from vrnet.app.heart_labels import heart_of
from vrnet.app.track_labels import (
    check_labels,
    check_parts,
    interpret_labels,
    open_slices,
    warn_of_open_slices,
)
from vrnet.attributes import cached_property
from vrnet.choices import Slices
from vrnet.errors import BadInput, warn_of_input
from vrnet.evaluation.advice import Run
from vrnet.evaluation.cavity import CavityMuscle, muscle_in_cavity
from vrnet.evaluation.cine_evidence import CineEvidence, SixthExtremes, extremes_of_slices, extremes_of_whole
from vrnet.evaluation.cine_verdict import judge_cine
from vrnet.evaluation.label_names import LabelNames, read_label_names
from vrnet.evaluation.metrics import folding_strict_percent
from vrnet.evaluation.registered import RegisteredPair
from vrnet.evaluation.segments import anterior_direction
from vrnet.evaluation.slice_curves import SliceCurves, slice_curves
from vrnet.evaluation.slice_likeness import judge_frames
from vrnet.evaluation.strain import NO_STRAIN, Strain, strain
from vrnet.evaluation.verdict import Verdict
from vrnet.evaluation.volumes import Volumes, volumes
from vrnet.evaluation.wall import HeartLabels
from vrnet.images.cine import Cine
from vrnet.images.image import Image
from vrnet.images.inputs import CineLike, ImageLike, given_cine, given_image
from vrnet.images.transform import Transform
from vrnet.methods.method import Method
from vrnet.progress import Progress
from vrnet.registration.arguments import name_unknown
from vrnet.registration.chains import LinkStore
from vrnet.registration.cine import TrackedFrames, TrackingPlan, check_reference, plan_tracking, track_frames
from vrnet.registration.propagation import motion_of, propagate_labels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
        from vrnet.app.track_files import summary

        return summary(self)

    def show(self) -> "Figure":
        """A figure of matplotlib: two frames with what was tracked, and curves of strain and volumes given labels."""
        from vrnet.app.track_views import tracking_figure

        return tracking_figure(self)

    def report(self, path: str | PathLike[str]) -> Path:
        """Write the page on which the heart beats, in a file that ends in .html. In a folder, which is made if it is
        not there, write report.html, and for slides cine.gif and, given labels, strain.png. Returns the page."""
        from vrnet.app.track_report import PAGE_SUFFIX, write_track_page, write_track_report

        place = Path(path)
        return write_track_page(self, place) if place.suffix == PAGE_SUFFIX else write_track_report(self, place)

    def _repr_html_(self) -> str:
        from vrnet.app.track_views import tracking_card

        return tracking_card(self).html()


@name_unknown
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
