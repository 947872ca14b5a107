"""`vrnet train`: a learned method made ready."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from vrnet.app.commands.options import DeviceOptions, Group, ParameterOptions, SourceOptions
from vrnet.app.console import best_score, print_line, show_errors_only, stage_progress, training_bar
from vrnet.errors import BadInput
from vrnet.training.options import TrainingOptions

if TYPE_CHECKING:
    from vrnet.data.prepared import PreparedSplit
    from vrnet.methods.method import Trainable
    from vrnet.training.loss import Loss
    from vrnet.training.run import Row


@dataclass(frozen=True, kw_only=True)
class Train:
    """Train a learned method; without labels, unless --labels-weight, --batch-dice or the preset asks for them.

    Writes in RUN: config.json, all that makes the run what it is; weights.safetensors, the model that was best on
    validation, for `--weights`; metrics.csv, one row per validation; logs, for `tensorboard --logdir RUN`; and
    checkpoint.safetensors, from which `--resume` goes on. Ctrl-C and SIGTERM stop after the step under way.
    """

    method: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="METHOD")]
    """A learned method, such as R-L1-3x2, C-L2-3x1-w32, VoxelMorph, Siamese or 2xRC-Net."""
    data: Annotated[str, tyro.conf.arg(metavar="NAME|FILE")]
    """A data set (acdc, acdc3d, ukbb, cmr3d, hippocampus, phantom, phantom3d, manifest), or a file that `vrnet prepare`
    wrote. Its splits train and val are used."""
    out: Annotated[Path, tyro.conf.arg(metavar="RUN")]
    """The folder of the run; made if it is not there."""
    preset: Literal[
        "auto",
        "acdc",
        "ukbb",
        "cmr3d",
        "short",
        "labels",
        "consistent",
        "hippocampus",
        "hippocampus-labels",
        "hippocampus-consistent",
        "phantom",
    ] = "auto"
    """Steps, batch, rate, loss and augmentation: the paper's for acdc, ukbb and cmr3d; ours for the rest. Those called
    labels train with labels; auto goes by the data."""
    start_from: Annotated[str | None, tyro.conf.arg(metavar="MODEL|FILE")] = None
    """Fine-tune: begin with weights of METHOD, those of a model in the box, such as short-axis, or those of a file.
    What they were trained with is recorded in the new weights."""
    resume: bool = False
    """Go on with the run in RUN, as if it had not been interrupted."""
    devices: int = 1
    """GPUs (on a CPU, processes) of each machine."""
    nodes: int = 1
    """Machines; start the same command on each, with MASTER_ADDR, MASTER_PORT and NODE_RANK set, or by SLURM."""
    training_options: Group[TrainingOptions]
    parameter_options: Group[ParameterOptions]
    source_options: Group[SourceOptions]
    device_options: Group[DeviceOptions]

    def run(self) -> None:
        from vrnet.data.source import USES, splits
        from vrnet.devices import find_device
        from vrnet.methods.names import parse_trainable
        from vrnet.training.processes import check_lightning, is_first_process
        from vrnet.training.run import Run

        method = parse_trainable(self.method, self.parameter_options.settings)
        check_lightning()  # before the data are prepared, as all of this
        source = self.source_options.source(self.data)
        find_device(self.device_options.device)  # which fails at once where there is none
        run, is_first = Run(self.out), self.devices * self.nodes == 1 or is_first_process()
        run.check(self.resume)
        if is_first:
            run.check_unlocked()
        else:
            show_errors_only()
        with stage_progress() as stage:
            train, val = splits(source, USES[:2], stage, print_line).values()
        self.fit(method, train, val, is_first)

    def fit(self, method: "Trainable", train: "PreparedSplit", val: "PreparedSplit", is_first: bool) -> None:
        """Train on one split, choose by the other, and say how it went."""
        from vrnet.training.fit import fit
        from vrnet.training.settings import settings
        from vrnet.training.trainer import loss_of

        training = settings(method, self.preset, train, self.training_options.changes())
        with training_bar(str(method)) as watch:
            result = fit(
                method,
                train,
                val,
                training,
                self.out,
                start_from=self.start_from,
                device=self.device_options.device,
                devices=self.devices,
                nodes=self.nodes,
                resume=self.resume,
                watch=watch,
            )
        if not result.is_finished:
            done = f"{result.step} of {training.steps} steps"
            print_line(f"Stopped after {done}. Go on with the same command and --resume.")
            sys.exit(130 if is_first else 0)  # Lightning kills all processes when one that it started fails
        if is_first:
            self.print_best(result.best, val, loss_of(method, training, train.structures.values()))
        print_line(f"Wrote weights.safetensors, metrics.csv and config.json in {self.out}.")

    def print_best(self, best: "Row", val: "PreparedSplit", loss: "Loss") -> None:
        """Say how the model that was kept scores, beside no registration and the model that it began with."""
        from vrnet.devices import find_device
        from vrnet.training.run import best_row
        from vrnet.training.start import validate_start
        from vrnet.training.validation import validate_identity

        others: dict[str, Row] = {"unregistered": {**validate_identity(val, loss)}}
        if self.start_from is not None:
            try:
                scores = validate_start(self.start_from, val, loss, find_device(self.device_options.device))
                others["before fine-tuning"] = {**scores}
            except BadInput as error:  # what was trained is there all the same
                print_line(f"How good the start was cannot be told: {error}.")
        print_line(f"Best on validation {best_score(best, others)}.")
        start = others.get("before fine-tuning")
        if start is not None and best_row([start, best]) is start:
            print_line(f"{self.start_from} itself is no worse: use that, or try another --rate or more steps.")
