"""`vrnet track`, the motion of a beating heart from one frame of a cine to all others, and the files of results; `vrnet
segment`, where the ventricles are in short-axis images."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from vrnet.app import arguments as args
from vrnet.errors import BadInput, Progress, Stage, counted, in_runs, numbered, shape_text
from vrnet.vocabulary import Channels, Slices

if TYPE_CHECKING:
    from rich.table import Table

    from vrnet.cardiac.cine import CineResult
    from vrnet.cohort.results import Record

TRANSFORMS, LABELS, VOLUMES, STRAIN, SLICES, SUMMARY, SEEN = (
    "transforms", "labels.nii.gz", "volumes.csv", "strain.csv", "slices.csv", "summary.json", "segmented.nii.gz"
)  # fmt: skip
LABELLED = LABELS, VOLUMES, STRAIN, SLICES, SEEN
"""What is written where there are labels."""


@dataclass(frozen=True, kw_only=True)
class Track:
    """Follow a beating heart: find the deformation from one frame of CINE, the reference, to every other.

    CINE may be the folder of a DICOM study, of which the largest stack of parallel slices over time is tracked. Labels
    are a map of the reference with 1 RV, 2 wall, 3 cavity. Without any, the network finds them in short-axis images,
    and the reference is end-diastole; with --labels none, only the motion is found.

    Writes in DIR transforms/frame_00.nii.gz and so on, and summary.json; with labels, given or by the network, also
    labels.nii.gz, volumes.csv, strain.csv, slices.csv, and what the network finds in each frame, segmented.nii.gz.
    Results of an earlier run are replaced, other files never. See docs/cine.md.

    Ends with a verdict: good, look or failed (exit status 3), the reasons, and what to try.
    """

    cine: args.CineFile
    """One whole cycle: NIfTI, MHA, NRRD or DICOM."""
    out: args.Folder
    """Folder for the results; made if it is not there."""
    labels: args.LabelsFile = "auto"
    """Of the reference; auto: by the network."""
    report: bool = False
    """Write a page on which the heart beats, and pictures."""
    frame: int | None = None
    """The reference, from 0: best end-diastole."""
    label_names: args.LabelNamesText = None
    """What the labels are, if not as above; SET: acdc, ukbb."""
    series: Annotated[str | None, tyro.conf.arg(metavar="TEXT")] = None
    """Of a study: a number, or a part of a description."""
    dry_run: bool = False
    """List the series of a study; track nothing."""
    method: args.Name = "default"
    """Any name that `vrnet methods` lists."""
    slices: Slices = "auto"
    """Track each slice by itself, or all together."""
    channels: Channels = "auto"
    """Match frames by their anatomy too."""
    method_options: args.Group[args.MethodOptions]
    device_options: args.Group[args.DeviceOptions]

    def run(self) -> None:
        from vrnet.app.console import print_line, stage_progress
        from vrnet.cardiac.cine import track
        from vrnet.devices import find_device
        from vrnet.images.io import read_cine

        labels = None if self.labels in ("auto", "none") else Path(self.labels)
        if labels is None:
            args.refuse_options(self, ("label_names",), "without labels of the reference: give --labels")
        find_device(self.device_options.device)  # which fails at once where there is none
        with stage_progress() as stage:
            stage("reading")
            method, cine = self.method_options.spec(self.method).load(), read_cine(self.cine, self.series)
            transforms = [transform_name(k, len(cine)) for k in range(len(cine))]
            source = Source.of(self.cine, labels, self.frame or 0, self.label_names, self.series)
            written = *transforms, *(LABELLED if self.labels != "none" else ())
            source.check_apart(self.out, written, self.report, self.method_options.weights)
            if self.dry_run:
                print_line(*cine.study, f"{cine.name}: {len(cine)} frames of {shape_text(cine.grid.shape)} voxels.")
                return
            result = track(
                cine, method, labels=None if self.labels == "none" else self.labels, frame=self.frame,
                slices=self.slices, label_names=self.label_names, channels=self.channels,
                device=self.device_options.device, progress=stage("tracking"),
            )  # fmt: skip
            write(result, self.out, self.report, replace(source, frame=result.frame), stage)
        tell(result, self.out, f"{counted(len(transforms), 'transform')}, ")


@dataclass(frozen=True, kw_only=True)
class Measure:
    """Measure a tracked cine again: with other labels, or to add the page. Nothing is tracked.

    DIR is what `vrnet track` wrote, or `vrnet cohort` of a subject. Its labels.nii.gz, volumes.csv, strain.csv,
    slices.csv and summary.json are written anew, and with --report the page. To correct one frame of labels.nii.gz,
    save it as a file and give its number: its neighbours change with it. Labels of the reference replace all.

    Ends as `vrnet track` does.
    """

    tracked: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="DIR")]
    """The folder of a tracked cine."""
    labels: args.OptionalFile = None
    """Label map of one frame: 1 RV, 2 wall, 3 cavity. Without it, the labels of DIR."""
    frame: int | None = None
    """The frame of the labels, from 0; without it, the reference."""
    label_names: args.LabelNamesText = None
    """What the labels are, if not as above; SET: acdc, ukbb."""
    cine: args.OptionalFile = None
    """Where the cine is now, if not where it was."""
    report: bool = False
    """Write a page on which the heart beats, and pictures."""

    def run(self) -> None:
        from vrnet.app.console import stage_progress

        if self.labels is None:
            args.refuse_options(self, ("frame", "label_names"), "without labels: give --labels")
        with stage_progress() as stage:
            stage("reading")
            result, source = read_tracked(self.tracked, self.cine)
            if self.labels is not None:
                source = source.corrected_by(result, self.labels, self.frame, self.label_names)
            record = take_over(self.tracked)
            source.check_apart(self.tracked, LABELLED, self.report)
            result = source.label(result)
            write(result, self.tracked, self.report, source, stage, with_transforms=False)
            if record is not None:
                give_back(result, self.tracked, record, self.report)
        tell(result, self.tracked)


def take_over(folder: Path) -> "Record | None":
    """What a cohort recorded of the folder of one of its subjects, whose files become those of this command."""
    from vrnet.cohort.results import DONE, read_record
    from vrnet.files import RECORD, write_json

    record = read_record(str(folder / DONE))
    if record is not None:
        write_json({"files": {name: file["sha256"] for name, file in record.files.items()}}, folder / RECORD)
    return record


def give_back(result: "CineResult", folder: Path, record: "Record", report: bool) -> None:
    """Record the files, and the row of the table, for the cohort, which need not do this subject again."""
    import msgspec

    from vrnet.app.subject import tracked_row
    from vrnet.cohort.results import DONE
    from vrnet.files import RECORD, own_files, write_json

    files = {name: {"bytes": (folder / name).stat().st_size, "sha256": sha} for name, sha in own_files(folder).items()}
    row = record.row | tracked_row(result) | {"notes": " ".join(result.notes())}
    changed = {"files": files, "row": row, "recipe": record.recipe | ({"report": True} if report else {})}
    write_json(msgspec.structs.asdict(record) | changed, folder / DONE)
    (folder / RECORD).unlink()


@dataclass(frozen=True)
class Source:
    """The files that results come from, as summary.json names them."""

    cine: str
    labels: str | None = None
    frame: int = 0
    """That of the labels."""
    label_names: str | None = None
    series: str | None = None
    corrections: dict[str, str] = field(default_factory=dict)
    """{frame: label map}: what `vrnet measure` was given after these."""

    @classmethod
    def of(
        cls, cine: Path, labels: Path | None, frame: int, label_names: str | None, series: str | None = None
    ) -> "Source":
        of_labels = None if labels is None else str(labels.absolute())
        return cls(str(cine.absolute()), of_labels, frame, label_names, series)

    def corrected_by(self, result: "CineResult", labels: Path, frame: int | None, names: str | None) -> "Source":
        """With labels that were given later: of the reference in place of the others, of another frame beside them."""
        has_labels = self.labels is not None or result.with_seen_labels().heart is not None
        of_base = (result.frame, self.frame) if self.labels is not None else (result.frame,)
        if frame is None or frame in of_base or not has_labels:
            return Source.of(Path(self.cine), labels, result.frame if frame is None else frame, names, self.series)
        if names is not None and names != self.label_names:
            raise BadInput("a frame is corrected in the numbers of the labels that are there: leave out --label-names")
        return replace(self, corrections=self.corrections | {str(frame): str(labels.absolute())})

    def label(self, result: "CineResult") -> "CineResult":
        """The result measured by these labels; without any, by those of the network."""
        if self.labels is not None:
            result = result.with_labels(self.labels, self.frame, label_names=self.label_names)
        else:
            result = result.with_seen_labels()
        for frame, labels in self.corrections.items():
            result = result.with_labels(labels, int(frame))
        return result

    def check_apart(self, folder: Path, written: Sequence[str], report: bool, weights: Path | None = None) -> None:
        """BadInput where results would be written over what is read, or over files that no run has written."""
        from vrnet.files import check_not_input, check_set
        from vrnet.report import CINE_FILES

        names = [*written, SUMMARY, *(CINE_FILES if report else ())]
        labels = () if self.labels is None else (self.labels,)
        inputs = *map(Path, (self.cine, *labels, *self.corrections.values())), weights
        check_not_input((folder / name for name in names), inputs)
        check_set(folder, names)


def write(
    result: "CineResult", folder: Path, report: bool, source: Source, stage: Stage, with_transforms: bool = True
) -> None:
    """Write the files of a tracked cine, in place of those of an earlier run."""
    from vrnet.files import own_files, replace_set
    from vrnet.report import CINE_FILES

    stage("measuring")
    result.metrics()  # what takes long is kept: not while files are written
    stale = [name for name in own_files(folder) if with_transforms and name.startswith(f"{TRANSFORMS}/frame_")]
    with replace_set(folder, (*LABELLED, SUMMARY, *CINE_FILES, *stale)) as staged:
        write_results(result, staged, stage("writing"), source, with_transforms)
        if report:
            from vrnet.report.cine import write_report

            write_report(result, staged, stage("drawing"))


def tell(result: "CineResult", folder: Path, transforms: str = "") -> None:
    """Print what was measured, the verdict, and which files there are now; exit as the verdict says."""
    from vrnet.app.console import exit_if, print_line, print_verdict, screen
    from vrnet.files import exists
    from vrnet.report import CINE_FILES
    from vrnet.verdict.cine import verdict_as_json

    screen.print(result_table(result))
    print_line(*(f"Note: {note}" for note in result.notes()))
    print_verdict(verdict_as_json(result))
    others = [name for name in (*LABELLED, SUMMARY, *CINE_FILES) if exists(folder / name)]
    print_line(f"Wrote {transforms}{', '.join(others)} in {folder}.")
    exit_if(result.verdict.level == "failed")


@dataclass(frozen=True, kw_only=True)
class Summary:
    """What `measure` reads of a summary.json; what folders of earlier versions do not have is at its default."""

    reference: int
    frames: int
    method: str
    weights: str | None
    device: str
    seconds: float
    slice_by_slice: bool
    closure_mm: dict[str, float | str]
    turned_by: str | None = None
    refined_by: str | None = None
    channels: str = "none"
    frames_with_repaired_folds: tuple[int, ...] = ()
    percent_of_voxels_repaired: tuple[float, ...] = ()
    source: Source | None = None
    segmentation: dict[str, Any] | None = None


def read_tracked(folder: Path, moved_to: Path | None) -> "tuple[CineResult, Source]":
    """What `vrnet track` wrote in a folder, without labels, and the files that it came from."""
    import msgspec
    import numpy as np

    from vrnet.cardiac.anatomy import Segmentation
    from vrnet.cardiac.cine import CineResult
    from vrnet.files import exists, read_json
    from vrnet.images.io import read_cine, read_voxels
    from vrnet.images.transforms import Transform

    if not exists(folder / SUMMARY):
        raise BadInput(f"{folder} holds no {SUMMARY}: give the folder that `vrnet track` wrote")
    try:
        known = msgspec.convert(read_json(folder / SUMMARY), Summary)
    except msgspec.ValidationError as error:
        raise BadInput(f"{folder / SUMMARY} is not as `vrnet track` writes it ({error}): track again") from error
    path = Path(known.source.cine) if moved_to is None and known.source else moved_to
    if path is None or not exists(path):
        was = f"{path} is gone" if path else f"{SUMMARY} does not name the cine"
        raise BadInput(f"{was}: say where the cine is, by --cine")
    cine = read_cine(path, known.source.series if known.source and path.is_dir() else None)
    grid, fields = cine.grid, []
    for k in range(len(cine)):
        found = Transform.load(folder / transform_name(k, len(cine)))
        if grid.shape[2:] == (1,):  # written twice: see `Transform.save`
            found = Transform(found.displacement[..., :1], replace(found.grid, shape=grid.shape))
        if not found.grid.matches(grid) or known.frames != len(cine):
            raise BadInput(f"{path} is not the cine that {folder} was tracked from: its frames or its grid are others")
        fields.append(found.in_voxels())
    source = replace(known.source or Source(""), cine=str(path.absolute()))
    result = CineResult(
        cine, known.reference, np.stack(fields), {way: float(known.closure_mm[way]) for way in ("forward", "backward")},
        grid.across if known.slice_by_slice else None, known.method, known.weights, known.device, known.seconds,
        dict(zip(known.frames_with_repaired_folds, known.percent_of_voxels_repaired, strict=False)),
        known.turned_by, known.refined_by, known.channels,
    )  # fmt: skip
    if (told := known.segmentation) is not None and exists(folder / SEEN):
        labels = np.moveaxis(read_voxels(folder / SEEN).array, -1, 0).astype(np.uint8)
        none = np.full((len(cine), 1), np.nan)
        seen = Segmentation(cine, labels, none, (), (), {}, told["level"], tuple(told["reasons"]), told["model"])
        result = replace(result, seen=seen)
    return result, source


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
        alone = {name: value for name, value in result.ejection_fractions_percent.items() if name != "measured"}
        for name, fraction in found.ejection_fractions_percent.items():
            beside = [f"{number(value[name])} {estimate}" for estimate, value in alone.items() if name in value]
            if name in result.expected_fractions_percent:
                low, high = result.expected_fractions_percent[name]
                beside.insert(0, f"experts': {low:.0f} to {high:.0f} expected")
            more = f" ({', '.join(beside)})" if beside else ""
            table.add_row(
                f"Ejection fraction of the {name}, %", number(fraction) + (without if name == "LV" else "") + more
            )
    for measure in ("green_circumferential", "midwall_length", "wall_thickness", "green_radial"):
        if peak := result.strain and result.strain.peak(measure):
            place = f"{numbered('frame', [peak.frame])} of {frames}"
            table.add_row(f"Peak {TITLES[measure]}, %", f"{number(peak.percent)} ({place})")
    if result.strain is not None and (rates := result.strain.strain_rates):
        table.add_row("Strain rate, shortening and lengthening, %/s", " and ".join(map(number, rates.values())))
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


def write_results(
    result: "CineResult", folder: Path, progress: Progress, source: Source, with_transforms: bool = True
) -> None:
    """Write all results; the transforms first, which take longest."""
    from vrnet.cardiac.strain import MEASURES, TITLES
    from vrnet.cardiac.volumes import known_ml
    from vrnet.devices import side_by_side
    from vrnet.files import write_json, write_rows
    from vrnet.images.io import write_frames

    n, grid, times = len(result.cine), result.cine.grid, result.cine.times_ms
    save = lambda k: result.transforms[k].save(folder / transform_name(k, n))  # noqa: E731
    for done, _ in enumerate(side_by_side(save, range(n if with_transforms else 0)), start=1):
        progress(done / (n + 1))
    if result.labels is not None:
        write_frames(result.labels, grid, times, folder / LABELS)
    if result.seen is not None:
        write_frames(result.seen.frames, grid, times, folder / SEEN)
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
            "rotation_deg": "mean angle by which the middle of the wall has turned about its centre, counterclockwise "
            "as seen from the apex",
        }
        curves = {name: getattr(by_slice, name).round(3) + 0.0 for name in columns}
        rows = [
            {"slice": number} | moment | {name: curve[k, t] for name, curve in curves.items()}
            for k, number in enumerate(by_slice.slices)
            for t, moment in enumerate(moments)
        ]
        definitions = (f"{name}: {definition}" for name, definition in columns.items())
        write_rows(rows, folder / SLICES, ["slice, frame: counted from 0", *definitions])
    write_json(result.metrics() | {"source": vars(source)}, folder / SUMMARY)


@dataclass(frozen=True, kw_only=True)
class Segment:
    """Find the ventricles in short-axis cine MR: in one slice, a stack of slices, or every frame of a cine.

    Writes a label map on the grid of IMAGE: 1 RV, 2 wall of the LV, 3 its cavity. Unsure slices get no labels. See
    docs/cine.md.

    Ends with a verdict: good, look or failed (exit status 3, as in other organs and views), and the reasons.
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
