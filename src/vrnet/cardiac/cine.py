"""A cine in, `CineResult` out: its motion, and all that follows from that.

Transforms, labels of every frame, volumes, strain and the verdict are computed when they are first asked for, and kept.
`app/track.py` writes them, `report/cine.py` draws them."""

from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf
from operator import itemgetter
from os import PathLike
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Integer
from numpy import ndarray

from vrnet.cardiac.anatomy import Planes, Segmentation, find_box, find_ventricles, load_segmenter
from vrnet.cardiac.labels import correct_labels, names_by_part, open_slices, read_labels, reconcile, warn_of_wrong_frame
from vrnet.cardiac.strain import MAX_AREA_GROWTH, NO_SEGMENTS, NO_STRAIN, KeptWall, Strain, keep_wall_area, strain
from vrnet.cardiac.volumes import CavityMuscle, SliceCurves, Volumes, muscle_in_cavity, slice_curves, volumes
from vrnet.cardiac.wall import HeartLabels, anterior_direction
from vrnet.data.labels import LabelNames, read_label_names
from vrnet.errors import BadInput, Progress, check_progress, numbered, warn_of_input
from vrnet.evaluation.metrics import folding_strict_percent
from vrnet.images.image import Cine, Image
from vrnet.images.io import CineLike, ImageLike, given_cine
from vrnet.images.transforms import Transform
from vrnet.methods.method import Method
from vrnet.provenance import versions
from vrnet.registration.cine import motion_of, plan_tracking, propagate_labels, track_motion
from vrnet.vocabulary import HEART, Channels, DeviceChoice, Slices

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from vrnet.verdict.cine import CineEvidence
    from vrnet.verdict.rules import Verdict

CLOSURE = (
    "mean length, in mm over the labelled voxels (without labels, over all), of the displacement that a chain of "
    "registrations, before it is refined, finds for the reference itself after going once round the cycle; 0 if it "
    "does not drift"
)
SEGMENTING = 0.3
"""The part of the time of `track` that the network takes to find the ventricles in all frames."""
LEAST_ALIKE = {"LV": 0.9, "Myo": 0.85}
"""Dice of what a network finds with labels that were given, from which on it draws as these do. Of ten validation
patients of ACDC it does in eight: with it in these, Dice at end-systole is .863 over all ten, by motion alone .813."""
EXPECTED_ERROR = {"LV": (-5.6, 11.9), "RV": (-17.6, 11.4)}
"""Limits of agreement with experts' outlines, in points, of 13 test patients of ACDC: results/strain/cycles.csv."""
COUNTING = "numbers of frames and slices are counted from 0; sentences count from 1"


@dataclass(frozen=True, repr=False, eq=False)
class CineResult:
    """The result of `track`."""

    cine: Cine
    frame: int
    """The reference, to which the labels belong."""
    fields: Float[ndarray, "t d *s"]
    """In voxels: the point at x in the reference is at x + u(x) in frame t, u being fields[t]."""
    closure_mm: dict[str, float]
    """How far each chain, forward and backward, is from where it began, once round the cycle: see CLOSURE."""
    slice_axis: int | None
    """The axis across which slices were registered one by one, if they were."""
    method: str
    weights: str | None = None
    """The file that the weights of a trained model came from."""
    device: str = "cpu"
    seconds: float = 0.0
    """Of tracking, without what is measured afterwards."""
    repaired: dict[int, float] = field(default_factory=dict)
    """The frames whose fields were changed to free them of folds, and the percentage of voxels that was moved."""
    turned_by: str | None = None
    """The solver that found how slices turn, where a network found how they contract."""
    refined_by: str | None = None
    """The solver that refined what a network found."""
    channels: str = "none"
    """By what the method matched frames beside their intensities: none, or anatomy."""
    reference_labels: Image | None = None
    heart: HeartLabels | None = None
    """Which labels are the ventricles and the wall; None without labels."""
    label_names: LabelNames = field(default_factory=dict)
    """What labels are called, where that was given."""
    given_labels: tuple[int, Image] | None = None
    """The frame that labels were given of, and these; None where the network drew those of the reference."""
    seen: Segmentation | None = None
    """What the network finds in every frame; None where it was not asked."""
    corrections: tuple[tuple[int, Image], ...] = ()
    """Frames whose labels were corrected, and these; neighbours change with them."""

    def __repr__(self) -> str:
        return f"CineResult({self.method}, {self.cine}, {self.seconds:.2f} s)"

    def with_labels(
        self, labels: ImageLike, frame: int | None = None, heart: HeartLabels | None = None,
        label_names: str | LabelNames | None = None,
    ) -> "CineResult":  # fmt: skip
        """The same motion, measured by these labels of the reference, or with those of another frame corrected: that
        frame gets them as they are, and its neighbours change likewise, the less the farther. Where nothing is labelled
        yet, they are brought to the reference, from which all other frames get theirs."""
        frame = self.frame if frame is None else check_frame(frame, self.cine)
        is_correction = self.heart is not None and frame not in (self.frame, *(self.given_labels or ())[:1])
        names = read_label_names(label_names) if label_names else self.label_names if is_correction else {}
        known = read_labels(labels, self.cine, self.heart if is_correction and heart is None else heart, names)
        warn_of_wrong_frame(known[0], known[1], self.cine, frame)
        if is_correction:
            others = tuple(one for one in self.corrections if one[0] != frame)
            return replace(self, corrections=(*others, (frame, known[0])))
        given, back = known[0], known[0]
        if frame != self.frame:
            back = self.transforms[frame].apply_labels(given, smooth=True)
        return replace(
            self, reference_labels=replace(back, name=given.name), heart=known[1], label_names=known[2],
            given_labels=(frame, given), corrections=(),
        )  # fmt: skip

    def with_seen_labels(self) -> "CineResult":
        """The same motion, measured by what the network finds in the reference; as it is where that is not a heart."""
        if self.seen is None or self.seen.level == "failed" or not self.seen.frames[self.frame].any():
            return self
        labels = Image(self.seen.frames[self.frame], self.cine.grid, self.seen.model)
        known = read_labels(labels, self.cine, None, {})
        return replace(self, reference_labels=known[0], heart=known[1], label_names={}, given_labels=None)

    @property
    def outlines_by(self) -> str | None:
        """Who drew the outlines of the reference; None without any."""
        if self.reference_labels is None:
            return None
        return f"the network {self.seen.model}" if self.seen and not self.given_labels else "the labels given"

    @cached_property
    def is_seen_alike(self) -> bool:
        """Whether the network is sure, and draws the wall and the cavity of the LV as the labels that were given do."""
        if self.seen is None or self.seen.level != "good" or self.heart is None:
            return False
        if self.given_labels is None:
            return True
        (frame, given), alike = self.given_labels, []
        for label, name in ((self.heart.lv, "LV"), (self.heart.wall, "Myo")):
            a, b = given.array == label, self.seen.frames[frame] == HEART[name]
            alike.append(2 * (a & b).sum() >= LEAST_ALIKE[name] * (a.sum() + b.sum()))
        return all(alike)

    @cached_property
    def ejection_fractions_percent(self) -> dict[str, dict[str, float]]:
        """{estimate: {ventricle: ejection fraction}}: of the labels of all frames (`measured`), of the reference's
        labels carried by the motion alone, and of what the network finds in each frame by itself."""
        if self.volumes is None or self.carried is None:
            return {}
        found = {"measured": self.volumes.ejection_fractions_percent}
        is_own = self.seen is not None and self.seen.level != "failed" and self.given_labels is None
        if self.seen is not None and (is_own or self.is_seen_alike):
            found |= {"by motion alone": self.carried_volumes.ejection_fractions_percent}
            found |= {"by the network alone": self.seen.ejection_fractions_percent}
        return found

    @property
    def expected_fractions_percent(self) -> dict[str, tuple[float, float]]:
        """{ventricle: between which ejection fractions that by experts' outlines is expected}, where the network drew
        those of the reference: see EXPECTED_ERROR."""
        told = self.ejection_fractions_percent.get("measured", {}) if self.seen and not self.given_labels else {}
        sides = {
            name: (told[name] - high, told[name] - low) for name, (low, high) in EXPECTED_ERROR.items() if name in told
        }
        return {name: (max(0.0, low), min(100.0, high)) for name, (low, high) in sides.items()}

    @cached_property
    def transforms(self) -> tuple[Transform, ...]:
        """From the reference to every frame."""
        return tuple(Transform.from_voxels(field, self.cine.grid) for field in self.fields)

    def warped(self, k: int) -> Image:
        """Frame k brought to the reference."""
        return self.transforms[k].apply(self.cine.image(k))

    @property
    def across(self) -> int | None:
        """The axis across which slices lie; None of a cine of one slice."""
        return self.cine.grid.across if len(self.cine.grid.shape) == 3 else None

    @property
    def stack_axis(self) -> int | None:
        """The axis across which several slices lie, each of which was tracked by itself; None where that is not so."""
        axis = self.slice_axis
        return axis if axis is not None and self.cine.grid.shape[axis] > 1 else None

    # What the labels of the reference tell of every frame; all None without labels.

    @cached_property
    def labels(self) -> Integer[ndarray, "t *s"] | None:
        """The label map of every frame, brought there from the reference; where the network is sure, and draws that
        alike, between this and what it finds in each frame."""
        if self.carried is None or self.reference_labels is None or self.heart is None:
            return None
        found, (frame, given) = self.carried, self.given_labels or (self.frame, self.reference_labels)
        if self.seen is not None and self.is_seen_alike:
            found = reconcile(found, self.seen.frames, self.heart, self.cine.grid.spacing, self.across)
        found = np.stack([given.array if k == frame else labels for k, labels in enumerate(found)])
        for k, corrected in self.corrections:
            found = correct_labels(found, k, corrected.array, self.heart, self.cine.grid.spacing, self.across)
        return found

    @cached_property
    def carried(self) -> Integer[ndarray, "t *s"] | None:
        """The labels of the reference, brought to every frame by the motion alone."""
        labels = self.reference_labels
        return None if labels is None else propagate_labels(labels.array, self.kept.fields, self.slice_axis)

    @cached_property
    def kept(self) -> KeptWall:
        """The motion that outlines and strain follow: `fields`, but slices whose wall keeps its area."""
        if self.reference_labels is None or self.heart is None:
            return KeptWall(self.fields, {})
        growth = inf if self.slice_axis is None and len(self.cine.grid.shape) == 3 else MAX_AREA_GROWTH
        labels, spacing = self.reference_labels.array, self.cine.grid.spacing
        return keep_wall_area(self.fields, labels, spacing, self.across, self.heart.wall, growth)

    @cached_property
    def carried_volumes(self) -> Volumes:
        """Volumes of the labels that the motion alone brings to every frame, which tell what it is worth."""
        assert self.carried is not None
        return volumes(self.carried, self.cine.grid.spacing, self.frame, self.heart)

    @cached_property
    def volumes(self) -> Volumes | None:
        """Volumes of the ventricles at every frame."""
        if self.labels is None or self.reference_labels is None or self.heart is None:
            return None
        without = open_slices(self.reference_labels, self.heart)
        return volumes(self.labels, self.cine.grid.spacing, self.frame, self.heart, without)

    @cached_property
    def strain_or_reason(self) -> Strain | str | None:
        """The strain, or why it cannot be measured."""
        if self.reference_labels is None or self.heart is None:
            return None
        grid = self.cine.grid
        anterior = anterior_direction(grid) if len(grid.shape) == 3 else None
        try:
            labels, times = self.reference_labels.array, self.cine.times_ms
            return strain(self.kept.fields, labels, grid.spacing, across=self.across, anterior=anterior,
                          times_ms=times, heart=self.heart, is_mirrored=grid.is_mirrored)  # fmt: skip
        except BadInput as error:
            warn_of_input(NO_STRAIN.format(reason=error))
            return str(error)

    @property
    def strain(self) -> Strain | None:
        """Strain of the wall of the left ventricle; None too where no slice shows a ring of wall."""
        return self.strain_or_reason if isinstance(self.strain_or_reason, Strain) else None

    @property
    def no_strain(self) -> str | None:
        """Why there is no strain, though there are labels; None where there is."""
        return self.strain_or_reason if isinstance(self.strain_or_reason, str) else None

    @cached_property
    def muscle_in_cavity(self) -> CavityMuscle | None:
        """How much more of the cavity looks like muscle than in the reference."""
        if self.carried is None or self.heart is None:
            return None
        return muscle_in_cavity(self.cine.frames, self.carried, self.heart, self.frame, self.across)

    @cached_property
    def by_slice(self) -> SliceCurves | None:
        """Areas, strain and muscle in the cavity of every slice at every frame."""
        return self.curves_of(self.labels)

    def curves_of(self, labels: Integer[ndarray, "t *s"] | None) -> SliceCurves | None:
        """Those of every slice by these labels of all frames; None without any."""
        if labels is None or self.heart is None:
            return None
        spacing, heart = self.cine.grid.spacing, self.heart
        return slice_curves(labels, spacing, heart, self.frame, self.across, self.strain, self.muscle_in_cavity)

    # What the tracking is worth.

    @cached_property
    def labelled(self) -> Bool[ndarray, "*s"]:
        """The voxels of the reference that have a label; without labels, all."""
        if self.reference_labels is not None and self.reference_labels.array.any():
            return np.asarray(self.reference_labels.array != 0)
        return np.ones(self.cine.grid.shape, bool)

    @cached_property
    def folding_strict_percent(self) -> float:
        """Voxels of all frames that are folded, by the strict count; of slices, within any slice."""
        motions = (motion_of(field, self.slice_axis) for field in self.fields)
        return float(np.mean([folding_strict_percent(torch.as_tensor(u)) for u in motions]))

    @cached_property
    def evidence(self) -> "CineEvidence":
        from vrnet.verdict.cine import cine_evidence

        return cine_evidence(self)

    @cached_property
    def verdict(self) -> "Verdict":
        """What the tracking is worth: good, look or failed, why, and what to try."""
        from vrnet.verdict.advice import Run
        from vrnet.verdict.cine import judge_cine
        from vrnet.verdict.rules import Level

        dimension = len(self.cine.grid.shape) - (self.slice_axis is not None)
        found = judge_cine(self.evidence, Run(self.method, dimension, self.stack_axis is not None))
        if self.seen is None or self.seen.level == "good" or self.given_labels is not None:
            return found
        level: Level = "failed" if found.level == "failed" else "look"
        return replace(found, level=level, reasons=found.reasons + self.seen.reasons)

    def notes(self) -> list[str]:
        """What a reader should know beside the verdict."""
        found = [f"{self.cine.doubt}."] if self.cine.doubt else []
        found += [f"{line[0].upper()}{line[1:]}." for line in self.cine.study if ": left, " in line]
        is_own = self.seen is not None and self.given_labels is None
        if self.frame or is_own:
            by = ", end-diastole by the network" if is_own else ""
            found.append(f"The reference is frame {self.frame + 1} of {len(self.cine)}, {self.frame} in files{by}.")
        if self.seen is not None and self.reference_labels is None:
            found.append(f"Nothing was measured: {' '.join(self.seen.reasons)} Give --labels of the reference.")
        if self.reference_labels is not None:
            said = "those of other frames are carried there by the motion alone"
            if self.is_seen_alike:
                said = "those of other frames are between what motion carries there and what the network finds"
            found.append(f"Outlines of the reference are by {self.outlines_by}; {said}.")
        if self.corrections:
            found.append(f"The labels of {numbered('frame', [k for k, _ in self.corrections])} were corrected.")
        if self.reference_labels is None:
            found.append("Without labels the wall, the cavity and the strain are not checked.")
        if self.strain is not None and not self.strain.insertions:
            found.append(f"Segments are {NO_SEGMENTS}.")
        if self.repaired:
            worst, percent = max(self.repaired.items(), key=itemgetter(1))
            most = f"in the worst, {numbered('frame', [worst])}, {percent:.2g} % of the voxels were moved"
            found.append(f"Folds were repaired in {len(self.repaired)} of {len(self.cine)} frames: {most}.")
        return found

    def metrics(self) -> dict[str, Any]:
        """What `vrnet track` writes in summary.json: closure error, folds; with labels, volumes and peaks of strain."""
        from vrnet.verdict.cine import verdict_as_json

        cine = self.cine
        about: dict[str, Any] = {
            "cine": cine.name, "study": cine.study, "doubt": cine.doubt or None, "counting": COUNTING,
            "frames": len(cine), "reference": self.frame,
            "shape": cine.grid.shape, "spacing_mm": cine.grid.spacing, "times_ms": cine.times_ms,
            "method": self.method, "weights": self.weights, "channels": self.channels,
            "turned_by": self.turned_by, "refined_by": self.refined_by, "device": self.device, "seconds": self.seconds,
            "slice_by_slice": self.slice_axis is not None,
            "closure_mm": {"definition": CLOSURE, **self.closure_mm},
            "folding_strict_percent": self.folding_strict_percent,
            "frames_with_repaired_folds": [*self.repaired], "percent_of_voxels_repaired": [*self.repaired.values()],
            "verdict": verdict_as_json(self), "notes": self.notes(),
        }  # fmt: skip
        if self.reference_labels is not None and self.heart is not None:
            there = np.unique(self.reference_labels.array)
            by_part = {label: name for label, name in names_by_part(self.heart).items() if label in there}
            about["label_names"] = {str(label): name for label, name in (self.label_names or by_part).items()}
        about["outlines_by"] = self.outlines_by
        if self.seen is not None:
            about["segmentation"] = {"model": self.seen.model, **self.seen.verdict()}
        if self.volumes is not None:
            about["volumes"] = self.volumes.as_json()
            about["ejection_fractions_percent"] = self.ejection_fractions_percent
            about["ejection_fractions_expected_percent"] = self.expected_fractions_percent or None
        if self.strain is not None:
            about["strain"] = self.strain.as_json()
        if self.no_strain is not None:
            about["strain_not_measured"] = self.no_strain
        return about | versions()

    # What people look at.

    def show(self) -> "Figure":
        """A figure of matplotlib: two frames with what was tracked, and curves of strain and volumes given labels."""
        from vrnet.report.cine import tracking_figure

        return tracking_figure(self)

    def report(self, path: str | PathLike[str]) -> Path:
        """Write the page on which the heart beats, in a file that ends in .html. In a folder, which is made if it is
        not there, write report.html, and for slides cine.gif and, given labels, strain.png. Returns the page."""
        from vrnet.report.cine import write_report

        return write_report(self, Path(path))

    def _repr_html_(self) -> str:
        from vrnet.report.cine import tracking_card

        return tracking_card(self)


Tracking = CineResult  # what it was called before


def track(
    cine: CineLike,
    method: str | Method = "default",
    *,
    labels: ImageLike | None = "auto",
    frame: int | None = None,
    slices: Slices = "auto",
    channels: Channels = "auto",
    heart: HeartLabels | None = None,
    label_names: str | LabelNames | None = None,
    device: DeviceChoice = "auto",
    progress: Progress | None = None,
) -> CineResult:
    """Follow a beating heart: the transform from the reference `frame` to every frame of a cine, or of its file, or of
    a 4D image of SimpleITK or nibabel.

    Each frame starts from what was found for its neighbour and is registered against the reference, both ways round the
    cycle; the two are blended, so that the last frame closes on the first. Networks track at most 20 frames; a solver
    refines all of them. With `labels` of the reference, every frame gets labels, and there are volumes and strain.
    "auto" lets the network in the box find the ventricles of short-axis slices, with end-diastole for the reference
    unless a `frame` is given; None measures nothing. Their values are those of ACDC (1 RV, 2 wall of the LV, 3 its
    cavity; a lone value is the wall, but a lone 3 that encloses little the cavity), unless `heart` says otherwise, or
    `label_names`, such as "3=RV,2=Myo,1=LV", which names other structures too. Where no method is named, the bundled
    model tracks stacks slice by slice, and Gaussian-LNCC tracks volumes; `slices` and `channels` are as in
    `register_images`; a cine has no labels to match."""
    check_progress(progress)
    names = {} if label_names is None else read_label_names(label_names)
    if names and heart is not None:
        raise BadInput("labels are explained twice: give `heart` or `label_names`")
    is_given = labels is not None and not (isinstance(labels, str) and labels == "auto")
    if not is_given and (names or heart is not None):
        raise BadInput("names of labels are given, but not the labels: give `labels` too")
    whole = given_cine(cine)
    check_frame(frame or 0, whole)
    known = read_labels(labels, whole, heart, names) if is_given and labels is not None else ()
    plan, tell = plan_tracking(whole, method, slices, device, channels), progress or (lambda part: None)
    seen, box = None, None
    if not whole.grid.is_volume and (labels is not None or plan.method.is_network):
        model = load_segmenter()
        box = find_box(whole, model, device)
        if labels is not None:
            seen = find_ventricles(whole, model, device, box, lambda part: tell(SEGMENTING * part))
    if frame is None:
        frame = seen.end_diastole if seen is not None and seen.level != "failed" and not known else 0
    if box is not None:  # solvers are quick, and labels that are given must lie in it
        beyond = Planes(whole.grid).split(known[0].array[None]).copy() if known else np.zeros((1, 1, 1, 1))
        beyond[:, :, box[0], box[1]] = 0
        box = box if plan.method.is_network and not beyond.any() else None
    start, done = perf_counter(), 0.0 if seen is None else SEGMENTING
    fields, closing, repairs = track_motion(whole, plan, frame, lambda part: tell(done + (1 - done) * part), box)
    seconds, turning, refinement = perf_counter() - start, plan.turning(len(whole)), plan.refinement(len(whole))
    axis = None if plan.slice_axis is None else plan.order[plan.slice_axis]
    # As they come back from files, so that what is measured from these later is equal to the last digit.
    fields = np.stack([Transform.from_voxels(u, whole.grid).rounded().in_voxels() for u in fields])
    labelled = known[0].array != 0 if known else np.zeros(0, bool) if seen is None else seen.frames[frame] != 0
    shown = labelled if labelled.any() else np.ones(whole.grid.shape, bool)
    lengths = np.linalg.norm(closing * np.reshape(whole.grid.spacing, (-1, *[1] * len(whole.grid.shape))), axis=1)
    of_labels: dict[str, Any] = {}
    if known:
        warn_of_wrong_frame(known[0], known[1], whole, frame)
        names_of_known = "reference_labels", "heart", "label_names", "given_labels"
        of_labels = dict(zip(names_of_known, (*known, (frame, known[0])), strict=True))
    result = CineResult(
        whole, frame, fields, dict(zip(("forward", "backward"), lengths[:, shown].mean(1).tolist(), strict=True)),
        axis, str(plan.method), plan.method.weights, plan.device.type, seconds,
        {k: repair.changed_percent for k, repair in enumerate(repairs) if repair is not None},
        None if turning is None else str(turning), None if refinement is None else str(refinement),
        plan.channels.kind, **of_labels, seen=seen,
    )  # fmt: skip
    return result if known else result.with_seen_labels()


def check_frame(frame: int, cine: Cine) -> int:
    """The number of a frame; BadInput if the cine has no such frame."""
    if not 0 <= frame < len(cine):
        raise BadInput(f"{cine.name} has frames 0 to {len(cine) - 1}: `frame` cannot be {frame}")
    return frame
