"""`vrnet track`, the motion of a beating heart from one frame of a cine to all others, and the files of results; `vrnet
segment`, where the ventricles are in short-axis images."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from vrnet.app import arguments as args
from vrnet.errors import Progress, counted, in_runs, numbered
from vrnet.vocabulary import Channels, Slices

if TYPE_CHECKING:
    from rich.table import Table

    from vrnet.cardiac.cine import CineResult

TRANSFORMS, LABELS, VOLUMES, STRAIN, SLICES, SUMMARY = (
    "transforms", "labels.nii.gz", "volumes.csv", "strain.csv", "slices.csv", "summary.json"
)  # fmt: skip
LABELLED = LABELS, VOLUMES, STRAIN, SLICES
"""What is written where labels are given."""


@dataclass(frozen=True, kw_only=True)
class Track:
    """Follow a beating heart: find the deformation from one frame of CINE, the reference, to every other.

    Writes in DIR transforms/frame_00.nii.gz and so on, and summary.json; given labels, also labels.nii.gz, volumes.csv,
    strain.csv and slices.csv. Results of an earlier run are replaced, other files never. See docs/cine.md.

    Ends with a verdict: good, look or failed, the reasons, and what to try. Where it is failed, the exit status is 3.
    """

    cine: args.CineFile
    """One whole cycle: NIfTI, MHA, NRRD or DICOM."""
    out: args.Folder
    """Folder for the results; made if it is not there."""
    labels: args.OptionalFile = None
    """Label map of the reference: 1 RV, 2 wall, 3 cavity."""
    report: bool = False
    """Write a page on which the heart beats, and pictures."""
    frame: int = 0
    """The reference, from 0: best end-diastole."""
    label_names: args.LabelNamesText = None
    """What the labels are, if not as above; SET: acdc, ukbb."""
    method: args.Name = "default"
    """Any name that `vrnet methods` lists."""
    slices: Slices = "auto"
    """Track each slice by itself, or all together."""
    channels: Channels = "auto"
    """Match frames by their anatomy too."""
    method_options: args.Group[args.MethodOptions]
    device_options: args.Group[args.DeviceOptions]

    def run(self) -> None:
        from vrnet.app.console import exit_if, print_line, print_verdict, screen, stage_progress
        from vrnet.cardiac.cine import track
        from vrnet.devices import find_device
        from vrnet.files import check_not_input, check_set, exists, own_files, replace_set
        from vrnet.images.io import read_cine
        from vrnet.report import CINE_FILES, CURVES

        if self.labels is None:
            args.refuse_options(self, ("label_names",), "without labels of the reference: give --labels")
        find_device(self.device_options.device)  # which fails at once where there is none
        with stage_progress() as stage:
            stage("reading")
            method, cine = self.method_options.spec(self.method).load(), read_cine(self.cine)
            transforms = [transform_name(k, len(cine)) for k in range(len(cine))]
            drawn = [name for name in CINE_FILES if self.report and (self.labels or name != CURVES)]
            names = [*transforms, *(LABELLED if self.labels else ()), SUMMARY, *drawn]
            check_not_input((self.out / name for name in names), (self.cine, self.labels, self.method_options.weights))
            check_set(self.out, names)
            result = track(
                cine, method, labels=self.labels, frame=self.frame, slices=self.slices, label_names=self.label_names,
                channels=self.channels, device=self.device_options.device, progress=stage("tracking"),
            )  # fmt: skip
            stage("measuring")
            verdict = result.metrics()["verdict"]  # what takes long is kept: not while files are written
            stale = [name for name in own_files(self.out) if name.startswith(f"{TRANSFORMS}/frame_")]
            with replace_set(self.out, (*names, *LABELLED, *CINE_FILES, *stale)) as staged:
                write_results(result, staged, stage("writing"))
                if self.report:
                    from vrnet.report.cine import write_report

                    write_report(result, staged, stage("drawing"))
                others = [name for name in names if name not in transforms and exists(staged / name)]
        screen.print(result_table(result))
        print_line(*(f"Note: {note}" for note in result.notes()))
        print_verdict(verdict)
        print_line(f"Wrote {counted(len(transforms), 'transform')}, {', '.join(others)} in {self.out}.")
        exit_if(verdict["level"] == "failed")


def result_table(result: "CineResult") -> "Table":
    """What a tracked cine comes to: volumes and peaks of strain where there are labels, and how well it closes."""
    from vrnet.app.console import method_title, numbers_table
    from vrnet.cardiac.strain import TITLES
    from vrnet.report.measures import number

    frames, title = len(result.cine), method_title(result.method, result.weights)
    helped = (", turned" if result.turned_by else "") + (", refined" if result.refined_by else "")
    by_slice = ", slice by slice" if result.slice_axis is not None else ""
    table = numbers_table(f"{title}{helped}, {frames} frames{by_slice}", "value")
    if (found := result.volumes) is not None:
        without = f" (without {numbered('slice', found.open_slices)})" if found.open_slices else ""
        for name, fraction in found.ejection_fractions_percent.items():
            table.add_row(f"Ejection fraction of the {name}, %", number(fraction) + (without if name == "LV" else ""))
    for measure in ("green_circumferential", "green_radial", "midwall_length", "wall_thickness"):
        if peak := result.strain and result.strain.peak(measure):
            place = f"{numbered('frame', [peak.frame])} of {frames}"
            table.add_row(f"Peak {TITLES[measure]}, %", f"{number(peak.percent)} ({place})")
    if result.strain is not None and result.across is not None:
        measured = in_runs([k + 1 for k in sorted(result.strain.slices)])
        table.add_row("Strain is of slices", f"{measured} (of {result.cine.grid.shape[result.across]})")
    for way, length in result.closure_mm.items():
        table.add_row(f"Closure error {way}, mm", number(length))
    table.add_row("Folded voxels (strict), %", number(result.folding_strict_percent))
    table.add_row("Seconds of tracking", number(result.seconds))
    return table


# The files of a tracked cine.


def transform_name(k: int, frames: int) -> str:
    """transforms/frame_07.nii.gz: with as many digits as the last frame needs, and two at least."""
    return f"{TRANSFORMS}/frame_{k:0{max(2, len(str(frames - 1)))}d}.nii.gz"


def write_results(result: "CineResult", folder: Path, progress: Progress) -> None:
    """Write all results; the transforms first, which take longest."""
    from vrnet.cardiac.strain import MEASURES, TITLES
    from vrnet.cardiac.volumes import known_ml
    from vrnet.files import write_json, write_rows
    from vrnet.images.io import write_frames

    n, grid, times = len(result.cine), result.cine.grid, result.cine.times_ms
    for k, transform in enumerate(result.transforms):
        transform.save(folder / transform_name(k, n))
        progress((k + 1) / (n + 1))
    if result.labels is not None:
        write_frames(result.labels, grid, times, folder / LABELS)
    moments = [{"frame": t, "time_ms": times[t] if times else None} for t in range(n)]
    if (volumes := result.volumes) is not None:  # of a structure that is not labelled, cells are empty
        curves = {name: known_ml(getattr(volumes, name)).round(3) for name in ("lv_ml", "rv_ml", "wall_ml")}
        rows = [moment | {name: curve[t] for name, curve in curves.items()} for t, moment in enumerate(moments)]
        write_rows(rows, folder / VOLUMES)
    if (strain := result.strain) is not None:
        rows = [
            {"region": region} | moment | {f"{name}_percent": strain.curve(name, region)[t] for name in TITLES}
            for region in strain.regions
            for t, moment in enumerate(moments)
        ]
        write_rows(rows, folder / STRAIN, (f"{m.name}_percent: {m.definition}" for m in MEASURES))
    if (by_slice := result.by_slice) is not None and by_slice.slices:
        around, away = (f"{m.definition} in this slice; empty where that is no closed ring" for m in MEASURES[:2])
        columns = {
            "cavity_mm2": "area of the cavity of the LV in the labels of this frame",
            "wall_mm2": "area of the wall of the LV in the labels of this frame",
            "green_circumferential_percent": around,
            "green_radial_percent": away,
            "muscle_in_cavity_percent": "how much more of the cavity looks like muscle than in the reference, in "
            "percent of the cavity: is no brighter than half-way from the median of the wall to the 90th percentile of "
            "the cavity (no darker, where blood is dark)",
        }
        curves = {name: getattr(by_slice, name).round(3) + 0.0 for name in columns}
        rows = [
            {"slice": number} | moment | {name: curve[k, t] for name, curve in curves.items()}
            for k, number in enumerate(by_slice.slices)
            for t, moment in enumerate(moments)
        ]
        definitions = (f"{name}: {definition}" for name, definition in columns.items())
        write_rows(rows, folder / SLICES, ["slice, frame: counted from 0", *definitions])
    write_json(result.metrics(), folder / SUMMARY)


@dataclass(frozen=True, kw_only=True)
class Segment:
    """Find the ventricles in short-axis cine MR: in one slice, a stack of slices, or every frame of a cine.

    Writes a label map on the grid of IMAGE: 1 RV, 2 wall of the LV, 3 its cavity. Slices of which the network is unsure
    get no labels. See docs/cine.md.

    Ends with a verdict: good, look or failed, and the reasons. Where it is failed, as in other organs and other views,
    the exit status is 3.
    """

    image: args.ImageFile
    """A slice, a stack or a cine: NIfTI, MHA, NRRD or DICOM."""
    out: Annotated[args.File, tyro.conf.arg(metavar="LABELS")]
    """The label map to write: .nii.gz, .nii, .mha or .nrrd."""
    report: bool = False
    """Write a page with outlines and volumes beside LABELS, .html."""
    weights: args.OptionalFile = None
    """Weights of another segmenter, which `vrnet train` wrote."""
    device_options: args.Group[args.DeviceOptions]

    def run(self) -> None:
        from vrnet.app.console import exit_if, print_line, print_verdict, stage_progress
        from vrnet.cardiac.anatomy import load_segmenter, read_given, segment, sizes
        from vrnet.files import check_file, check_not_input
        from vrnet.images.io import IMAGE_SUFFIXES

        check_file(self.out, IMAGE_SUFFIXES)
        suffix = next(end for end in sorted(IMAGE_SUFFIXES, key=len, reverse=True) if self.out.name.endswith(end))
        page = self.out.with_name(self.out.name.removesuffix(suffix) + ".html")
        written = [self.out, *([page] if self.report else [])]
        for path in written[1:]:
            check_file(path, (".html",))
        check_not_input(written, (self.image, self.weights))
        with stage_progress() as stage:
            stage("reading")
            model, image = load_segmenter(self.weights), read_given(self.image)
            progress = stage("segmenting")
            found = segment(image, weights=model, device=self.device_options.device, progress=progress)
            stage("writing")
            found.save(self.out)
            if self.report:
                found.report(page)
        for when, parts in sizes(found):
            print_line(f"{when}: {', '.join(f'{name} {size}' for name, size in parts.items())}")
        for name, fraction in found.ejection_fractions_percent.items():
            print_line(f"Ejection fraction of the {name}: {fraction:.1f} %")
        if found.unsure:
            print_line(f"Note: no labels in {numbered('slice', found.unsure)}: the network is unsure there.")
        if found.open:
            print_line(f"Note: the wall does not close around the cavity in {numbered('slice', found.open)}.")
        print_verdict(found.verdict())
        print_line(f"Wrote {', '.join(path.name for path in written)} in {self.out.parent}.")
        exit_if(found.level == "failed")
