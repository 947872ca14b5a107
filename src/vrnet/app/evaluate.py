"""`vrnet evaluate`: how good a method, or a transform, is on a pair or on a data set."""

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

import tyro
from rich.text import Text

from vrnet.app import arguments as args
from vrnet.app import console
from vrnet.errors import BadInput, counted
from vrnet.vocabulary import Channels, RegistrationOptions, Slices, Space

OF_A_PAIR = (
    "fixed_labels", "moving_labels", "fixed_mask", "moving_mask", "ignore_recorded",
    "fixed_points", "moving_points", "space", "slices",
)  # fmt: skip
"""Options that say nothing of a data set."""


@dataclass(frozen=True, kw_only=True)
class Evaluate:
    """Measure a method, or a transform by any tool: on a pair (--fixed, --moving), or on a data set (--data, --root).

    A data set is measured under its protocol. On a pair, a transform.nii.gz of `vrnet register` is judged as `vrnet
    report` does.

    The exit status is 3 if the verdict on a pair is failed, but for `identity`, or if subjects of a data set could not
    be measured.
    """

    method: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="METHOD", help_behavior_hint="")] = "default"
    """Any name that `vrnet methods` lists, `identity` for no registration, or, on a pair, a transform file."""
    fixed: args.OptionalFile = None
    """The reference image."""
    moving: args.OptionalFile = None
    """The image brought to it."""
    labels: args.Group[args.LabelOptions]
    fixed_points: args.OptionalFile = None
    """CSV file of landmarks in FIXED, with columns x, y, z."""
    moving_points: args.OptionalFile = None
    """CSV file of the same landmarks in MOVING, in the same order."""
    space: Space = "LPS"
    """Which way x and y run in the points: LPS or RAS."""
    slices: Slices = "auto"
    """Register a stack slice by slice (each) or as a volume (together)."""
    conditions: args.Group[args.EvaluationOptions]
    data: Annotated[str | None, tyro.conf.arg(metavar="NAME|FILE")] = None
    """A data set (acdc, acdc-cycles, acdc3d, ukbb, cmr3d, hippocampus, phantom, phantom3d, manifest), or a file that
    `vrnet prepare` wrote."""
    folds: Literal["auto", "repair", "keep"] = "auto"
    """auto: repair on a pair, keep on a data set."""
    channels: Channels = "auto"
    """As in `vrnet register`; the overlap of matched labels is no test."""
    split: args.Name = "test"
    """Any split named in split.csv."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="FILE|DIR")] = None
    """Of a pair, a .json file; of a data set, a folder for metrics.csv, summary.json and subjects/NAME. Started again,
    it continues from these."""
    jobs: args.Jobs = 1
    """Of a data set, so many subjects at a time, each in a process with one thread (needs vrnet[cluster])."""
    method_options: args.Group[args.MethodOptions]
    source_options: args.Group[args.SourceOptions]
    device_options: args.Group[args.DeviceOptions]

    def run(self) -> None:
        self.evaluate_pair() if self.data is None else self.evaluate_data_set(self.data)

    def evaluate_data_set(self, data: str) -> None:
        from vrnet.data.labels import rename_structures
        from vrnet.evaluation.split import evaluate_split
        from vrnet.report.measures import number

        if self.fixed is not None or self.moving is not None:
            raise BadInput("pairs and data sets cannot be evaluated at once: leave out --data, or --fixed and --moving")
        args.refuse_options(self, OF_A_PAIR, "on a data set, which has its own labels and slices: leave that out")
        if self.out is None:
            raise BadInput("a data set needs a folder for the results: give --out")
        method, device = self.method_options.spec(self.method).pin(), self.device_options.device
        folds = "keep" if self.folds == "auto" else self.folds
        with console.stage_progress() as stage:
            subjects = self.source_options.source(data).split(self.split, "evaluation", stage, console.print_line)
            if (names := self.labels.label_names) is not None:
                subjects = replace(subjects, structures=rename_structures(subjects.structures, names))
            summary = evaluate_split(
                stage, method, subjects, self.out, device, folds, channels=self.channels, jobs=self.jobs,
                say=console.print_line,
            )  # fmt: skip
        title = console.method_title(summary["method"], summary.get("weights"))
        of_what = f"{counted(summary['subjects'], 'subject')} ({summary['data']}, {summary['split']})"
        table = console.numbers_table(f"{title} on {of_what}", "before", "mean", "std")
        for name, value in summary["metrics"].items():
            before = number(summary["before"][name]["mean"]) if name in summary["before"] else ""
            table.add_row(Text(name), before, number(value["mean"]), number(value["std"]))
        console.screen.print(table)
        if "labels" in summary:
            console.print_line(f"Note: {summary['labels']}")
        if "hd_mean" in summary["metrics"]:
            legend = "Hausdorff distance, how far apart outer contours lie at most, in mm"
            console.print_line(f"hd: {legend}. docs/protocols.md defines all.")
        console.print_line(f"Wrote metrics.csv and summary.json in {self.out}.")
        if failed := summary.get("failed", {}):
            told = [f"Could not be measured, left out: {name}: {reason}" for name, reason in failed.items()]
            console.print_line(*told[:10], f"See {self.out / 'failures'}; the same command tries all of those again.")
        console.exit_if(bool(failed))

    def evaluate_pair(self) -> None:
        from vrnet.app import pair_files
        from vrnet.app.pair_files import TRANSFORM
        from vrnet.files import check_file, exists, own_files, write_json
        from vrnet.images.io import read_points
        from vrnet.images.transforms import Transform
        from vrnet.methods.names import find_base
        from vrnet.methods.weights import SUFFIX
        from vrnet.registration.images import check_pair, register_pair

        if self.fixed is None or self.moving is None:
            raise BadInput("nothing to evaluate on: give --fixed and --moving, or --data and --root")
        args.refuse_options(self, ("jobs", "split", *args.OF_A_SPLIT), "on a pair: leave that out, or give --data")
        path = Path(self.method)
        is_file = path.suffix not in ("", SUFFIX) and not re.search(r"\)(\+\w*)?$", self.method)
        is_file = is_file or (exists(path / TRANSFORM) and find_base(self.method) is None)
        of_a_method = "weights", "settings", "average", "slices", "folds", "channels"
        kind = "a transform" if is_file else "of which nothing is recorded"
        ignored = of_a_method if is_file else ("ignore_recorded",)
        args.refuse_options(self, ignored, f"on {self.method}, {kind}: leave that out")
        if (self.fixed_points is None) != (self.moving_points is None):
            raise BadInput("points of one image only: give both --fixed-points and --moving-points")
        if self.fixed_points is None:
            args.refuse_options(self, ("space",), "without points: give --fixed-points and --moving-points")
        if self.out is not None:
            check_file(self.out, (".json",))
            if self.out.name in own_files(self.out.parent):
                raise BadInput(f"{self.out} is of the result in its folder, which stays as it is: choose another name")
        with console.stage_progress() as stage:
            stage("reading")
            is_used = is_file and not self.conditions.ignore_recorded
            record = pair_files.PairRecord.beside(path, self.fixed, self.moving) if is_used else pair_files.PairRecord()
            masks = record.masks(vars(self.conditions.masks))
            pair = pair_files.read_pair(self.fixed, self.moving, **self.labels.files, **masks)
            pair = pair.with_label_names(self.labels.label_names)
            landmarks = [read_points(path, self.space) for path in (self.fixed_points, self.moving_points) if path]
            if is_file:
                check_pair(pair.fixed, pair.moving, must_overlap=False)
                result = record.result(pair, Transform.load(path, pair.fixed.grid), self.method, path)
            else:
                folds = "repair" if self.folds == "auto" else self.folds
                options = RegistrationOptions(
                    slices=self.slices, channels=self.channels, folds=folds, device=self.device_options.device
                )
                result = register_pair(pair, self.method_options.spec(self.method).load(), options, stage)
            stage("measuring")
            command = "evaluate FILE" if is_file else "evaluate"
            metrics = pair_files.metrics_of(result, command)
            if landmarks:
                metrics |= pair_files.landmark_error(result, *landmarks)
        if self.out is not None:
            write_json(metrics, self.out)
        written = [] if self.out is None else [f"Wrote {self.out}."]
        console.print_result(metrics, pair_files.notes_on(result, command), *written)
