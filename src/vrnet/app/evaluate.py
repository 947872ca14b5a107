"""`vrnet evaluate`: how good a method, or a transform, is on a pair or on a data set."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

import tyro

from vrnet.app import arguments, console
from vrnet.app.arguments import Group, OptionalFile
from vrnet.errors import BadInput
from vrnet.vocabulary import RegistrationOptions, Slices, Space

OF_A_PAIR = (
    "fixed_labels", "moving_labels", "fixed_mask", "moving_mask", "ignore_masks", "ignore_recorded",
    "fixed_points", "moving_points", "space", "slices",
)  # fmt: skip
"""Options that say nothing of a data set."""
HD_LEGEND = "hd: Hausdorff distance, how far apart outer contours lie at most, in mm. docs/protocols.md defines all."
MAX_SHOWN = 10
"""Lines about subjects that could not be measured."""


@dataclass(frozen=True, kw_only=True)
class Evaluate:
    """Measure a method, or a transform by any tool: on a pair (--fixed, --moving),
    or on a data set (--data, --root).

    Masks are for a pair; a data set is measured under its protocol. Those that a
    transform.nii.gz of `vrnet register` was found with need not be given again. It is also judged after
    its affine start and in matched intensities, if it was found so. --ignore-recorded uses nothing of this.

    Of a pair there is a verdict, as in `vrnet register`: where it is failed, the exit status is 3, but
    for `identity`. Of a data set, it is 3 where subjects could not be measured.
    """

    method: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="METHOD", help_behavior_hint="")] = "default"
    """Any name that `vrnet methods` lists, `identity` for no registration, or, on a pair, a transform file; without it
    `default`, or the method of the weights."""
    fixed: OptionalFile = None
    """The reference image."""
    moving: OptionalFile = None
    """The image brought to it."""
    fixed_labels: OptionalFile = None
    """Label map on the grid of FIXED."""
    moving_labels: OptionalFile = None
    """Label map on the grid of MOVING."""
    label_names: arguments.LabelNamesText = None
    """What the labels are called; or a known set of names: acdc, ukbb, hippocampus or freesurfer."""
    fixed_points: OptionalFile = None
    """CSV file of landmarks in FIXED, with columns x, y, z."""
    moving_points: OptionalFile = None
    """CSV file of the same landmarks in MOVING, in the same order."""
    space: Space = "LPS"
    """Which way x and y run in the points: LPS or RAS."""
    slices: Slices = "auto"
    """Of a stack, register each slice within itself, or all together."""
    judged: Group[arguments.EvaluationOptions]
    data: Annotated[str | None, tyro.conf.arg(metavar="NAME|FILE")] = None
    """A data set (acdc, acdc-cycles, acdc3d, ukbb, cmr3d, hippocampus, phantom, phantom3d, manifest), under the
    protocol of the paper where it has one; or a file that `vrnet prepare` wrote."""
    folds: Literal["auto", "repair", "keep"] = "auto"
    """Repair the folds of what the method finds, or keep them. auto: on a pair repair, as `vrnet register` does; on a
    data set keep, since tables report how much a method folds."""
    split: arguments.Name = "test"
    """Which subjects: any split named in split.csv."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="FILE|DIR")] = None
    """Of a pair, a .json file for what is shown; of a data set, a folder for metrics.csv and summary.json, and for what
    is known of each subject so far (subjects/NAME): stopped and started again, it goes on from there."""
    jobs: arguments.Jobs = 1
    """Of a data set, so many subjects at a time, each in a process with one thread (needs vrnet[cluster]). Measure
    seconds with one."""
    method_options: Group[arguments.MethodOptions]
    source_options: Group[arguments.SourceOptions]
    device_options: Group[arguments.DeviceOptions]

    def run(self) -> None:
        if self.data is not None:
            self.evaluate_data_set(self.data)
        else:
            self.evaluate_pair()

    def evaluate_data_set(self, data: str) -> None:
        """Measure a method on every subject of a split."""
        from vrnet.data.labels import rename_structures
        from vrnet.evaluation.split import evaluate_split

        if self.fixed is not None or self.moving is not None:
            raise BadInput(
                "a pair and a data set cannot be evaluated at once: leave out --data, or --fixed and --moving"
            )
        arguments.refuse_options(self, OF_A_PAIR, "on a data set, which has its own labels and slices: leave that out")
        if self.out is None:
            raise BadInput("a data set needs a folder for the results: give --out")
        method, device = self.method_options.choice(self.method), self.device_options.device
        folds = "keep" if self.folds == "auto" else self.folds
        with console.stage_progress() as stage:
            subjects = self.source_options.source(data).split(self.split, "evaluation", stage, console.print_line)
            if self.label_names is not None:
                subjects = replace(subjects, structures=rename_structures(subjects.structures, self.label_names))
            summary = evaluate_split(
                stage, method, subjects, self.out, device, folds, jobs=self.jobs, say=console.print_line
            )
        console.screen.print(console.summary_table(summary))
        if "hd_mean" in summary["metrics"]:
            console.print_line(HD_LEGEND)
        console.print_line(f"Wrote metrics.csv and summary.json in {self.out}.")
        failed = summary.get("failed", {})
        for name, reason in list(failed.items())[:MAX_SHOWN]:
            console.print_line(f"Could not be measured, left out: {name}: {reason}")
        if len(failed) > MAX_SHOWN:
            console.print_line(f"{len(failed) - MAX_SHOWN:,} more could not: summary.json names them.")
        if failed:
            console.print_line(f"See {self.out / 'failures'} for tracebacks; the same command tries those again.")
        console.end_if_any(len(failed))

    def checked_pair(self) -> tuple[Path, Path]:
        """The files of both images; BadInput if one is not given, or something that a pair cannot have."""
        from vrnet.app.pair_files import is_record, names_file
        from vrnet.files import check_file, own_files

        if self.fixed is None or self.moving is None:
            raise BadInput("nothing to evaluate on: give --fixed and --moving, or --data and --root")
        arguments.refuse_options(
            self, ("jobs", "split", *arguments.OF_A_SPLIT), "on a pair: leave that out, or give --data"
        )
        if not names_file(self.method):
            ignoring = "ignore_masks", "ignore_recorded"
            arguments.refuse_options(self, ignoring, f"on {self.method}, of which nothing is recorded: leave that out")
        if (self.fixed_points is None) != (self.moving_points is None):
            raise BadInput("points of one image only: give both --fixed-points and --moving-points")
        if self.fixed_points is None:
            arguments.refuse_options(self, ("space",), "without points: give --fixed-points and --moving-points")
        if self.out is not None:
            check_file(self.out, (".json",))
            if self.out.name in own_files(self.out.parent) or is_record(self.out):
                raise BadInput(f"{self.out} is of the result in its folder, which stays as it is: choose another name")
        return self.fixed, self.moving

    def evaluate_pair(self) -> None:
        """Measure a method, or a transform, on two images."""
        from vrnet.app.pair_files import find_or_load, landmark_error, metrics_of, notes_on, read_pair
        from vrnet.files import write_json
        from vrnet.images.points import read_points

        fixed, moving = self.checked_pair()
        with console.stage_progress() as stage:
            stage("reading")
            known = self.judged.known(Path(self.method), fixed, moving)
            files = fixed, moving, self.fixed_labels, self.moving_labels, *known.masks
            pair = read_pair(*files).with_label_names(self.label_names)
            landmarks = [read_points(path, self.space) for path in (self.fixed_points, self.moving_points) if path]
            folds = "repair" if self.folds == "auto" else self.folds
            options = RegistrationOptions(slices=self.slices, folds=folds, device=self.device_options.device)
            result = find_or_load(stage, pair, self.method, *self.method_options.asked, options=options, known=known)
            if result.is_from_file:
                arguments.refuse_options(self, ("slices", "folds"), f"on {self.method}, a transform: leave that out")
            stage("measuring")
            command = "evaluate FILE" if result.is_from_file else "evaluate"
            metrics = metrics_of(result, command)
            if landmarks:
                metrics |= landmark_error(result, *landmarks)
        if self.out is not None:
            write_json(metrics, self.out)
        console.print_result(metrics, notes_on(result, command), *([] if self.out is None else [f"Wrote {self.out}."]))
        if metrics["method"] != "identity":  # which was not meant to succeed
            console.end_if_failed(metrics["verdict"])
