"""The files of a tracked cine: links of its chains while it is tracked, and the results at the end, all at once."""

import json
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vrnet.app.heart_labels import names_of
from vrnet.app.track_report import (
    REPORT_FILES,
    VOLUME_DEFINITION,
    repaired_frames,
    report_names,
    verdict_of,
    write_track_report,
)
from vrnet.app.track_slices import write_slices
from vrnet.app.tracking import CLOSURE, Tracking, TrackingRequest
from vrnet.errors import BadInput, warn_of_input
from vrnet.evaluation.strain import MEASURES, NO_SEGMENTS, Measure, Strain
from vrnet.evaluation.volumes import Volumes, known_ml
from vrnet.file_sets import check_set, own_files, replace_set
from vrnet.files import Row, check_not_input, exists, write_json, write_rows
from vrnet.images.exchange import to_sitk
from vrnet.images.io import write_sitk
from vrnet.progress import Progress, Stage
from vrnet.provenance import __version__, commit, versions
from vrnet.registration.chains import KEPT_OF_START, SMOOTHING_MM, SOLVER_SMOOTHING_MM, Link
from vrnet.tensor_files import checksum, open_tensors, write_tensors
from vrnet.wording import percent

if TYPE_CHECKING:
    import SimpleITK as sitk

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
