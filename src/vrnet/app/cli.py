"""The command line: `vrnet COMMAND --help` explains each command."""

import gc
import re
import sys
from collections.abc import Callable
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar

import tyro
from rich.table import Table

from vrnet.app.console import (
    best_score,
    errors,
    metrics_table,
    say,
    screen,
    sheet_table,
    silence,
    stages,
    summary_table,
    training_bar,
)
from vrnet.errors import BadInput
from vrnet.images.points import Space
from vrnet.images.transform import Interpolation
from vrnet.provenance import __version__
from vrnet.registration.images import Slices
from vrnet.training.options import TrainingOptions

if TYPE_CHECKING:
    from vrnet.data.source import Source

app = tyro.extras.SubcommandApp()
Device = Literal["auto", "cpu", "cuda"]
FixedFile = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FIXED")]
MovingFile = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="MOVING")]
TransformFile = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="TRANSFORM")]
Name = Annotated[str, tyro.conf.arg(metavar="NAME")]
File = Annotated[Path, tyro.conf.arg(metavar="FILE")]
Folder = Annotated[Path, tyro.conf.arg(metavar="DIR")]
Maybe = Annotated[Path | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="")]
MaybeFolder = Annotated[Path | None, tyro.conf.arg(metavar="DIR", help_behavior_hint="")]
Root = Annotated[Path | None, tyro.conf.arg(metavar="DIR|FILE", help_behavior_hint="")]
DataName = Annotated[str, tyro.conf.arg(metavar="NAME|FILE")]
Flag = Annotated[bool, tyro.conf.arg(help_behavior_hint="")]
NOTHING_CHANGED = TrainingOptions()
Function = TypeVar("Function", bound=Callable[..., None])


def command(function: Function) -> Function:
    """Make it a command; tyro would break its help wherever a line of the docstring ends."""
    function.__doc__ = re.sub(r"\n {12}", " ", function.__doc__ or "")
    return app.command(function)


@command
def register(
    fixed: FixedFile,
    moving: MovingFile,
    out: Folder,
    method: Name = "default",
    weights: Maybe = None,
    fixed_labels: Maybe = None,
    moving_labels: Maybe = None,
    slices: Slices = "auto",
    match_intensities: Flag = False,
    device: Device = "auto",
    report: Flag = False,
) -> None:
    """Find the deformation that takes FIXED to MOVING, and bring MOVING to FIXED.

    Images are NIfTI, MHA, NRRD, a folder with one DICOM series, or PNG/JPEG; 2D or 3D, on any grids that overlap in
    space.

    Writes in DIR: warped.nii.gz, MOVING on the grid of FIXED; transform.nii.gz, an ITK displacement field that
    SimpleITK, ANTs and 3D Slicer read as it is; metrics.json; warped_labels.nii.gz, given moving labels; and, if asked
    for a report, a page to look at (report.html) and a picture (overview.png).

    Args:
        fixed: The reference image. For the beating heart: end-diastole.
        moving: The image to be brought to it. For the beating heart: end-systole.
        out: Folder for the results; made if it is not there.
        method: Any name that `vrnet methods` lists. default: short-axis, a model that comes with vrnet, for 2D images
            and for stacks registered slice by slice; TV-L1 for volumes.
        weights: A learned method's, as `vrnet train` writes them; they say by themselves of which method they are.
        fixed_labels: Label map on the grid of FIXED; with both label maps, Dice and distances are measured.
        moving_labels: Label map on the grid of MOVING, to be brought to FIXED.
        slices: Of a stack, register each slice within itself, or all together as a volume. auto: each, where slices
            are at least two and a half times as far apart as the voxels within them, or where a 2D model is named.
        match_intensities: Give MOVING the histogram of FIXED while registering: for two subjects or two scanners, where
            the same tissue is not equally bright. Not for the beating heart.
        device: Where to compute; auto takes CUDA where there is one.
        report: Write report.html and overview.png too.
    """
    from vrnet.app.pair import notes, read_case, run
    from vrnet.devices import find_device
    from vrnet.methods.names import choose

    ready, _ = choose(method, weights), find_device(device)
    with stages() as stage:
        stage("reading")
        case = read_case(fixed, moving, fixed_labels, moving_labels)
        done, written = run(
            stage,
            case,
            ready,
            out,
            slices=slices,
            match_intensities=match_intensities,
            device=device,
            report=report,
        )
    screen.print(metrics_table(done.metrics))
    for line in notes(case, done.metrics):
        say(f"Note: {line}")
    say(f"Wrote {', '.join(path.name for path in written)} in {out}.")


@command
def demo(out: Folder = Path("demo"), method: Name = "default", weights: Maybe = None, seed: int = 7) -> None:
    """Register a made-up beating heart, and show how well that went.

    A phantom's end-systole (moving) is registered to its end-diastole (fixed). Since the phantom's true motion is
    known, so is the error that is left. Writes the images and what `vrnet register --report` writes.

    Args:
        out: Folder for the results; made if it is not there.
        method: Any name that `vrnet methods` lists.
        weights: A learned method's, as `vrnet train` writes them.
        seed: Which phantom patient.
    """
    from vrnet.app import demo as demonstration
    from vrnet.app.pair import run
    from vrnet.methods.names import choose
    from vrnet.phantom import phantom

    ready, patient = choose(method, weights), phantom(seed)
    case = demonstration.phantom_case(patient)
    with stages() as stage:
        done, _ = run(stage, case, ready, out, report=True)
        demonstration.write_case(case, out)
    error = demonstration.end_point_error(patient, done.transform)
    screen.print(metrics_table(done.metrics, demonstration.STRUCTURES))
    say(f"Distance from the true motion, in the heart: {error['before']:.2f} mm before, {error['after']:.2f} mm after.")
    say(f"Look at {out / 'report.html'}; the transform and the images are beside it.")


@command
def apply(
    transform: TransformFile,
    moving: MovingFile,
    reference: File,
    out: File,
    labels: Flag = False,
    smooth: Flag = False,
    interpolation: Interpolation = "linear",
) -> None:
    """Bring an image, or a label map, to FIXED through a transform.

    Args:
        transform: A displacement field, or any ITK transform: by vrnet, ANTs, SimpleITK, elastix, 3D Slicer.
        moving: The image, as it is on disk, at its own resolution.
        reference: The image on whose grid the result is to be: FIXED.
        out: The file to write: .nii.gz, .nii, .mha or .nrrd.
        labels: MOVING is a label map: take the nearest label, and keep its number type.
        smooth: With --labels: take the label of greatest weight, for smoother outlines.
        interpolation: For an image.
    """
    from vrnet.files import check_file
    from vrnet.images.io import IMAGE_SUFFIXES, read_image, write_image
    from vrnet.images.transform import Transform

    check_file(out, IMAGE_SUFFIXES)
    if smooth and not labels:
        raise BadInput("--smooth is for label maps: add --labels")
    if labels and interpolation != "linear":
        raise BadInput("labels are not interpolated: leave out --interpolation, or --labels")
    grid, image = read_image(reference).grid, read_image(moving)
    found = Transform.load(transform, grid)
    moved = found.apply_labels(image, grid, smooth) if labels else found.apply(image, grid, interpolation)
    write_image(moved, out)
    say(f"Wrote {out}.")


@command
def invert(
    transform: TransformFile,
    out: File,
    reference: Maybe = None,
) -> None:
    """Write the transform from MOVING to FIXED, and say how exact it is.

    Where the transform folds it has no inverse; the distance left there tells.

    Args:
        transform: A displacement field, from fixed to moving.
        out: The file to write: .nii.gz, .nii, .mha, .nrrd, .h5 or .tfm.
        reference: The image on whose grid the inverse is to be: MOVING. Without it, the grid of the transform.
    """
    import numpy as np

    from vrnet.files import check_file
    from vrnet.images.io import read_image
    from vrnet.images.transform import TRANSFORM_SUFFIXES, Transform

    check_file(out, TRANSFORM_SUFFIXES)
    grid = None if reference is None else read_image(reference).grid
    with stages() as stage:
        stage("inverting")
        back, residual = Transform.load(transform, grid).inverse(grid)
        back.save(out)
    median, most, worst = np.percentile(residual, (50, 95, 100))
    say(f"Wrote {out}.")
    say(f"There and back, half of the points end within {median:.4f} mm of where they were, 95 % within {most:.4f} mm.")
    say(f"The farthest ends {worst:.2f} mm away: a transform has no inverse where it folds or leads out of its grid.")


@command
def points(
    transform: TransformFile,
    points: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="IN.csv")],
    out: File,
    space: Space = "LPS",
) -> None:
    """Take points of FIXED to where they are in MOVING.

    Points of MOVING go to FIXED by the transform that `vrnet invert` writes. Other columns of the table are kept.

    Args:
        transform: A displacement field, from fixed to moving, or any ITK transform.
        points: A CSV file with columns x, y and, in 3D, z: world millimetres.
        out: The CSV file to write.
        space: Which way x and y run, in both files: LPS as in ITK, ANTs and DICOM, or RAS as in nibabel and Slicer.
    """
    from vrnet.files import check_file
    from vrnet.images.points import read_points, write_points
    from vrnet.images.transform import map_points, read_point_map

    check_file(out, (".csv",))
    table = read_points(points, space)
    moved = map_points(read_point_map(transform), table.lps)
    write_points(table.with_lps(moved), out, space)
    say(f"Wrote {out}: {len(moved)} points in {space} millimetres.")
    unmoved = int((moved == table.lps).all(1).sum())
    if unmoved:
        say(f"Note: {unmoved} of them did not move at all. Do they lie outside the transform? Is --space right?")


@command
def evaluate(
    method: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="METHOD", help_behavior_hint="")] = "default",
    weights: Maybe = None,
    fixed: Maybe = None,
    moving: Maybe = None,
    fixed_labels: Maybe = None,
    moving_labels: Maybe = None,
    fixed_points: Maybe = None,
    moving_points: Maybe = None,
    space: Space = "LPS",
    slices: Slices = "auto",
    device: Device = "auto",
    data: Annotated[str | None, tyro.conf.arg(metavar="NAME|FILE", help_behavior_hint="")] = None,
    root: Root = None,
    split: Name = "test",
    out: Annotated[Path | None, tyro.conf.arg(metavar="FILE|DIR", help_behavior_hint="")] = None,
    split_file: Maybe = None,
    cache: MaybeFolder = None,
    skip_broken: Flag = False,
) -> None:
    """Measure a method, or a transform by any tool: on a pair (--fixed, --moving), or on a data set (--data, --root).

    Args:
        method: Any name that `vrnet methods` lists, `identity` for no registration, or, on a pair, a transform file;
            without it `default`, or the method of the weights.
        weights: A learned method's, as `vrnet train` writes them; they say by themselves of which method they are.
        fixed: The reference image.
        moving: The image brought to it.
        fixed_labels: Label map on the grid of FIXED.
        moving_labels: Label map on the grid of MOVING.
        fixed_points: CSV file of landmarks in FIXED, with columns x, y, z.
        moving_points: The same landmarks in MOVING, in the same order.
        space: Which way x and y run in the points: LPS or RAS.
        slices: Of a stack, register each slice within itself, or all together.
        device: Where to compute; auto takes CUDA where there is one.
        data: A data set (acdc, acdc3d, ukbb, cmr3d, hippocampus, phantom, phantom3d, manifest), under the protocol of
            the paper where it has one; or a file that `vrnet prepare` wrote.
        root: Its folder, with split.csv in it; of a manifest, the CSV file; phantoms have none.
        split: Which subjects: any split named in split.csv.
        out: Of a pair, a .json file for what is shown; of a data set, a folder for metrics.csv and summary.json.
        split_file: Another split.csv than the folder's.
        cache: Where prepared subjects are kept; ~/.cache/vrnet if not given.
        skip_broken: Go on without the subjects that cannot be used.
    """
    if data is not None:
        if fixed is not None or moving is not None:
            raise BadInput(
                "a pair and a data set cannot be evaluated at once: leave out --data, or --fixed and --moving"
            )
        from vrnet.data.source import Source

        source = Source(data, root, split_file, cache, skip_broken)
        return evaluate_cohort(method, weights, source, split, out, device)
    if fixed is None or moving is None:
        raise BadInput("nothing to evaluate on: give --fixed and --moving, or --data and --root")
    if (fixed_points is None) != (moving_points is None):
        raise BadInput("points of one image only: give both --fixed-points and --moving-points")
    from vrnet.app.pair import notes, outcome, point_error, read_case, transform_of
    from vrnet.files import check_file, write_json
    from vrnet.images.points import read_points

    if out is not None:
        check_file(out, (".json",))
    with stages() as stage:
        stage("reading")
        case = read_case(fixed, moving, fixed_labels, moving_labels)
        tables = [read_points(path, space) for path in (fixed_points, moving_points) if path]
        transform, found = transform_of(stage, method, case, slices, device, weights)
        stage("measuring")
        metrics = outcome(case, transform, found, method).metrics
        if tables:
            metrics |= point_error(transform, *tables)
    if out is not None:
        write_json(metrics, out)
    screen.print(metrics_table(metrics))
    for line in notes(case, metrics):
        say(f"Note: {line}")
    return None


def evaluate_cohort(
    method: str, weights: Path | None, source: "Source", split: str, out: Path | None, device: str
) -> None:
    """A method on every subject of a split."""
    from vrnet.evaluation.cohort import evaluate_split
    from vrnet.methods.names import choose

    if out is None:
        raise BadInput("a data set needs a folder for the results: give --out")
    ready = choose(method, weights)
    with stages() as stage:
        pairs = source.split(split, "evaluation", stage, say)
        summary = evaluate_split(stage, ready, pairs, out, device)
    screen.print(summary_table(summary))
    say(f"Wrote metrics.csv and summary.json in {out}.")


@command
def prepare(
    data: Name,
    out: File,
    root: Root = None,
    split_file: Maybe = None,
    cache: MaybeFolder = None,
    skip_broken: Flag = False,
) -> None:
    """Prepare a data set, and put it in one file, to be carried to another machine.

    Training and evaluation prepare what they need by themselves; with `--data FILE` they take it from the file, and
    need neither the images nor their readers. Each subject is prepared once, and again only when its files change.

    Args:
        data: Which data set: acdc, acdc3d, ukbb, cmr3d, hippocampus, phantom, phantom3d or manifest.
        out: The file to write, .npz.
        root: Its folder, with split.csv in it; of a manifest, the CSV file; phantoms have none.
        split_file: Another split.csv than the folder's.
        cache: Where prepared subjects are kept; ~/.cache/vrnet if not given.
        skip_broken: Go on without the subjects that cannot be used; otherwise all of them are named, and nothing is
            done.
    """
    from vrnet.data.source import Source, pack

    with stages() as stage:
        parts = pack(Source(data, root, split_file, cache, skip_broken), out, stage, say)
    for (split, purpose), part in parts.items():
        pairs = sum(len(sample.fixed) for sample in part.samples)
        say(f"{split}: {len(part.samples)} subjects, {pairs} pairs, for {purpose}")
    say(f"Wrote {out}.")


@command
def train(
    method: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="METHOD")],
    data: DataName,
    out: Annotated[Path, tyro.conf.arg(metavar="RUN")],
    root: Root = None,
    preset: Literal["auto", "acdc", "ukbb", "cmr3d", "hippocampus", "short", "phantom"] = "auto",
    options: Annotated[TrainingOptions, tyro.conf.arg(name="")] = NOTHING_CHANGED,
    resume: Flag = False,
    device: Device = "auto",
    devices: int = 1,
    nodes: int = 1,
    split_file: Maybe = None,
    cache: MaybeFolder = None,
    skip_broken: Flag = False,
) -> None:
    """Train a learned method, without labels.

    Writes in RUN: config.json, all that makes the run what it is; weights.safetensors, the model that was best on
    validation, for `--weights`; metrics.csv, a row a validation; logs, for `tensorboard --logdir RUN`; and
    checkpoint.safetensors, from which `--resume` goes on. Ctrl-C and SIGTERM stop after the step under way.

    Args:
        method: A learned method, such as R-L1-3x2, C-L2-3x1-w32, VoxelMorph, Siamese or 2xRC-Net.
        data: A data set (acdc, acdc3d, ukbb, cmr3d, hippocampus, phantom, phantom3d, manifest), or a file that
            `vrnet prepare` wrote. Its splits train and val are used.
        out: The folder of the run; made if it is not there.
        root: The folder of the data set, with split.csv in it; of a manifest, the CSV file; phantoms have none.
        preset: Steps, batch, rate and α: the paper's for acdc, ukbb and cmr3d; ours for the rest. auto goes by the
            data. What follows changes it.
        options: What is to be changed of the preset.
        resume: Go on with the run in RUN, as if it had not been interrupted.
        device: Where to compute; auto takes CUDA where there is one.
        devices: GPUs (on a CPU, processes) of each machine.
        nodes: Machines; start the same command on each, with MASTER_ADDR, MASTER_PORT and NODE_RANK set, or by SLURM.
        split_file: Another split.csv than the folder's.
        cache: Where prepared subjects are kept; ~/.cache/vrnet if not given.
        skip_broken: Go on without the subjects that cannot be used.
    """
    from vrnet.data.source import USES, Source, splits
    from vrnet.devices import find_device
    from vrnet.methods.names import trainable
    from vrnet.training.fit import fit
    from vrnet.training.processes import is_first_process
    from vrnet.training.run import Run
    from vrnet.training.settings import settings
    from vrnet.training.trainer import loss_of
    from vrnet.training.validation import validate_identity

    chosen, source, _ = trainable(method), Source(data, root, split_file, cache, skip_broken), find_device(device)
    Run(out).check(resume)
    is_first = devices * nodes == 1 or is_first_process()
    if not is_first:
        silence()
    with stages() as stage:
        pairs, val = splits(source, USES[:2], stage, say).values()
    how = settings(chosen, preset, pairs, options)
    with training_bar(str(chosen)) as watch:
        done = fit(
            chosen, pairs, val, how, out, device=device, devices=devices, nodes=nodes, resume=resume, watch=watch
        )
    if not done.is_finished:
        say(f"Stopped after {done.step} of {how.steps} steps. Go on with the same command and --resume.")
        sys.exit(130 if is_first else 0)  # Lightning kills all when one that it started fails
    say(f"Best on validation {best_score(done.best, validate_identity(val, loss_of(chosen, how)))}.")
    say(f"Wrote weights.safetensors, metrics.csv and config.json in {out}.")


@command
def paper(
    kind: Annotated[Literal["table", "figure"], tyro.conf.Positional],
    name: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="NAME")],
    root: Root = None,
    data: Annotated[str, tyro.conf.arg(metavar="NAME|FILE", help_behavior_hint="(default: the one in the paper)")] = "",
    out: Folder = Path("results"),
    budget: Literal["paper", "short", "quick"] = "short",
    quick: Flag = False,
    seeds: int = 1,
    at_once: int = 4,
    device: Device = "auto",
    split_file: Maybe = None,
    cache: MaybeFolder = None,
    skip_broken: Flag = False,
) -> None:
    """Make a table or a figure of the paper, what was published beside what is measured.

    Tables: ablation, initialisation, acdc, ukbb, cmr3d, hippocampus, phantom3d, runtime. Figures: parameterisations,
    alpha, cascades, visual, boxplots, denoising.

    What is missing is trained and measured first, and kept in DIR, a folder a method with a row a subject; what is
    there is never computed again. Ctrl-C and SIGTERM stop; the same command goes on. Writes tables in DIR/tables, as
    Markdown, CSV and LaTeX, and figures in DIR/figures, with their numbers.

    Args:
        kind: What is to be made.
        name: Which one.
        root: The folder of the data set, with split.csv in it. The tables ukbb and cmr3d are made on phantoms where
            none is given.
        data: Another data set of the same dimension, or a file that `vrnet prepare` wrote.
        out: Where results are kept, and looked for.
        budget: What is spent on each learned method. paper: its width and steps; short: narrow networks and a tenth
            of the steps, for minutes a method on a GPU; quick: a few steps on small phantoms.
        quick: The same as --budget quick: to see that all works, in minutes on a CPU.
        seeds: Train each learned method so often, at least; all that are there are used.
        at_once: How many networks are trained at the same time.
        device: Where to compute; auto takes CUDA where there is one.
        split_file: Another split.csv than the folder's.
        cache: Where prepared subjects are kept; ~/.cache/vrnet if not given.
        skip_broken: Go on without the subjects that cannot be used.
    """
    from vrnet.data.source import Source
    from vrnet.paper.request import PaperRequest, make_figure, make_table

    source = Source(data, root, split_file, cache, skip_broken)
    asked = PaperRequest(source, out, "quick" if quick else budget, device, at_once, seeds)
    with stages() as stage:
        if kind == "table":
            made, written = make_table(name, asked, stage, say)
        else:
            written = make_figure(name, asked, stage, say)
    if kind == "table":
        screen.print(sheet_table(made))
        for line in made.notes:
            say(line)
    say(f"Wrote {', '.join(path.name for path in written)} in {written[0].parent}.")


@command
def methods() -> None:
    """List every method by its name, with what it is and whether it is ready.

    Learned methods come as families: R-L1-3x2, say, is of the first. To their names may be added -w32 (channels of the
    first level), and to those of the first family -zeros or -noise (what it starts from), -Θ1 (all steps share their
    weights) and -released (the order of steps in the authors' code).
    """
    from vrnet.methods.learned import FAMILIES
    from vrnet.methods.names import missing, names, parse

    table = Table("name", "what it is", "ready", box=None)
    for name, line in names().items():
        table.add_row(name, line, f"no: needs {missing(parse(name))}" if missing(parse(name)) else "yes")
    for name, family in FAMILIES.items():
        table.add_row(name, family.summary, "with --weights FILE")
    screen.print(table)
    say("FILE is what `vrnet train` writes.")


def main() -> None:
    """Run a command; bad input ends with one line and status 2."""
    gc.freeze()  # what was imported is there to stay: looking through it at the end would take 0.4 s
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that cannot show a name shows part of it
    if sys.argv[1:] == ["--version"]:
        print(f"vrnet {__version__}")
        return
    try:
        app.cli(
            prog="vrnet",
            description="Deformable image registration for cardiac MR, in 2D and 3D.",
            config=(tyro.conf.FlagCreatePairsOff,),
        )
    except KeyboardInterrupt:
        errors.print("vrnet: interrupted; nothing is half-written", style="red")
        sys.exit(130)
    except BadInput as error:
        errors.print(f"vrnet: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
        sys.exit(2)


if __name__ == "__main__":
    main()
