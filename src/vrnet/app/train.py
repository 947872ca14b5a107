"""`vrnet train`, a learned method made ready; `vrnet prepare`, a data set in one file."""

import sys
from dataclasses import dataclass, make_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, get_args, get_origin, get_type_hints

import tyro

from vrnet.app import arguments as args
from vrnet.app import console
from vrnet.app.console import print_line, stage_progress
from vrnet.errors import BadInput, counted
from vrnet.methods.parameters import field_docstrings
from vrnet.training.settings import PRESETS, Training, settings

if TYPE_CHECKING:
    from vrnet.data.prepared import PreparedSplit
    from vrnet.training.channels import Segmenters
    from vrnet.training.run import Row

Preset: TypeAlias = Literal[("auto", *PRESETS)]  # type: ignore[valid-type]
METAVARS = {int: "INT", float: "FLOAT", str: "NAME"}


def option(name: str, kind: Any) -> tuple[str, Any, Any]:
    """Name, annotated type and default of the option for a field of `Training`, whose docstring is its help."""
    text = field_docstrings(Training)[name]
    if name == "augmentation":
        return "augment", Annotated[bool, tyro.conf.arg(help=text, help_behavior_hint="")], True
    default = "the method's" if str in get_args(kind) else "the preset's"
    (kind,) = set(get_args(kind)) - {type(None)} if type(None) in get_args(kind) else (kind,)
    kind = Literal["yes", "no"] if kind is bool else kind
    metavar = f"{{{','.join(get_args(kind))}}}" if get_origin(kind) is Literal else METAVARS[kind]
    shown = tyro.conf.arg(metavar=metavar, help=text, help_behavior_hint=f"(default: {default})")
    return name, Annotated[kind | None, shown], None


OPTIONS = make_dataclass("Options", [option(*field) for field in get_type_hints(Training).items()], frozen=True)


class TrainingOptions(OPTIONS):  # type: ignore[misc, valid-type]
    """Changes of a preset; None where its value stays."""

    def changes(self) -> dict[str, Any]:
        """{field of Training: value} of the options that were given."""
        found = {name: value for name, value in vars(self).items() if value is not None}
        if not found.pop("augment"):
            found["augmentation"] = None
        return found | ({"recompute": found["recompute"] == "yes"} if "recompute" in found else {})


@dataclass(frozen=True, kw_only=True)
class Train:
    """Train a learned method; without labels, unless --labels-weight, --batch-dice, --channels or the preset asks for
    them.

    Writes in RUN: config.json; weights.safetensors, the model that was best on validation; metrics.csv, one row per
    validation; logs for tensorboard; and checkpoint.safetensors, for `--resume`. Ctrl-C and SIGTERM stop after the
    current step.
    """

    method: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="METHOD")]
    """A learned method, such as P-L2, R-L1-3x2, C-L2-3x1-w32, VoxelMorph, Siamese or 2xRC-Net."""
    data: Annotated[str, tyro.conf.arg(metavar="NAME|FILE")]
    """A data set (acdc, acdc-cycles, acdc3d, ukbb, cmr3d, hippocampus, phantom, phantom3d, manifest), or a file that
    `vrnet prepare` wrote. Its splits train and val are used."""
    out: Annotated[Path, tyro.conf.arg(metavar="RUN")]
    """The folder of the run; made if it is not there."""
    preset: Preset = "auto"
    """Steps, batch, rate, loss and augmentation: the paper's for acdc, ukbb and cmr3d; auto goes by the data."""
    start_from: Annotated[str | None, tyro.conf.arg(metavar="MODEL|FILE")] = None
    """Fine-tune: begin with weights of METHOD, those of a model in the box, such as short-axis, or those of a file."""
    channels: Literal["none", "anatomy"] = "none"
    """anatomy: the probabilities of structures are further channels of the images. Segmenters are trained first, with
    labels, in RUN/anatomy: see docs/training.md."""
    segmenters: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None
    """Take the segmenters of another run, from its folder anatomy."""
    segmenter_steps: Annotated[int | None, tyro.conf.arg(metavar="INT", help_behavior_hint="")] = None
    """How long each segmenter is trained; 5000 steps where not given, 3000 in 3D."""
    resume: bool = False
    """Continue the run in RUN."""
    devices: int = 1
    """GPUs (on a CPU, processes) of each machine."""
    nodes: int = 1
    """Machines; start the same command on each, with MASTER_ADDR, MASTER_PORT and NODE_RANK set, or by SLURM."""
    training_options: args.Group[TrainingOptions]
    settings: args.Settings = ()
    """As lam=0.15; repeatable. `vrnet methods METHOD` lists all."""
    source_options: args.Group[args.SourceOptions]
    device_options: args.Group[args.DeviceOptions]

    def run(self) -> None:
        from vrnet.data.prepared import USES
        from vrnet.devices import find_device
        from vrnet.methods.names import parse_trainable
        from vrnet.methods.weights import load_weights
        from vrnet.training.channels import take_channels
        from vrnet.training.fit import check_lightning, find_start, fit, is_first_process, validate
        from vrnet.training.loss import loss_of
        from vrnet.training.run import Run, best_row
        from vrnet.training.settings import settings
        from vrnet.variational.cascade import Cascade, no_motion

        method = parse_trainable(self.method, self.settings)
        if self.channels == "none" and (self.segmenters or self.segmenter_steps):
            told = "--segmenters and --segmenter-steps are for training with channels"
            raise BadInput(f"{told}: add --channels anatomy, or leave them out")
        if self.channels == "anatomy":
            take_channels(method, method.channels)
        check_lightning()  # before the data are prepared, as all of this
        source = self.source_options.source(self.data)
        device = find_device(self.device_options.device)  # which fails at once where there is none
        Run(self.out).check(self.resume)
        is_first = self.devices * self.nodes == 1 or is_first_process()
        if not is_first:  # of several processes, one shows more than errors
            console.screen.quiet = console.bar_screen.quiet = True
        with stage_progress() as stage:
            train, val = (source.split(*use, stage, print_line) for use in USES[:2])
        training = settings(method, self.preset, train, self.training_options.changes())
        segmenters = None
        if self.channels == "anatomy":
            method = take_channels(method, len(train.structures))
            found = self.add_anatomy(train, val, training)
            if found is None:
                print_line("Stopped while segmenters were trained. Go on with the same command and --resume.")
                sys.exit(130 if is_first else 0)
            train, val, segmenters = found
        with console.training_bar(str(method)) as watch:
            result = fit(
                method, train, val, training, self.out, start_from=self.start_from, segmenters=segmenters,
                resume=self.resume, watch=watch, **self.where,
            )  # fmt: skip
        if not result.is_finished:
            print_line(
                f"Stopped after {result.step} of {training.steps} steps. Go on with the same command and --resume."
            )
            sys.exit(130 if is_first else 0)  # Lightning kills all processes when one that it started fails
        if is_first:  # how the best model scores, beside no registration and the model that it began with
            loss = loss_of(method, training, train.structures.values())
            others: dict[str, Row] = {"unregistered": {**validate(Cascade(no_motion, []), val, loss, device)}}
            if self.start_from is not None:
                model, _ = load_weights(find_start(self.start_from))
                others["before fine-tuning"] = {**validate(model.to(device), val, loss, device)}
            best, start = result.best, others.get("before fine-tuning")
            name, key, digits = ("Dice", "val_dice", 3) if "val_dice" in best else ("loss", "val_loss", 4)
            beside = ", ".join(f"{other} {scores[key]:.{digits}f}" for other, scores in others.items())
            print_line(f"Best on validation after {best['step']} steps: {name} {best[key]:.{digits}f} ({beside}).")
            if start is not None and best_row([start, best]) is start:
                print_line(f"{self.start_from} itself is no worse: use that, or try another --rate or more steps.")
        written = ["weights.safetensors", *(["segmenter.safetensors"] if segmenters else []), "metrics.csv"]
        print_line(f"Wrote {', '.join(written)} and config.json in {self.out}.")

    def add_anatomy(
        self, train: "PreparedSplit", val: "PreparedSplit", training: Training
    ) -> "tuple[PreparedSplit, PreparedSplit, Segmenters] | None":
        """Both splits with channels, and the segmenters that made these; None if their training was stopped."""
        from vrnet.methods.vrnet import Segmenter
        from vrnet.training.channels import crossfit, prepare_channels, take_over

        folder = self.out / "anatomy"
        if self.segmenters is not None:
            segmenters = take_over(self.segmenters, folder, train, val)
        else:
            one, steps = Segmenter(len(train.structures)), self.segmenter_steps
            changes = {"seed": training.seed, "precision": training.precision} | (
                {} if steps is None else {"steps": steps}
            )
            how = settings(one, "auto", train, changes)
            trained = crossfit(one, train, val, how, folder, bar=console.training_bar, resume=self.resume, **self.where)
            if trained is None:
                return None
            segmenters = trained
        with stage_progress() as stage:
            progress = stage("probabilities of structures")
            return *prepare_channels(train, val, segmenters, folder, training, progress, **self.where), segmenters

    @property
    def where(self) -> dict[str, Any]:
        return {"device": self.device_options.device, "devices": self.devices, "nodes": self.nodes}


@dataclass(frozen=True, kw_only=True)
class Prepare:
    """Prepare a data set, and put it in one file, to be carried to another machine.

    Training and evaluation prepare what they need by themselves; with `--data FILE` they need no images.
    """

    data: args.Name
    """Which data set: acdc, acdc-cycles, acdc3d, ukbb, cmr3d, hippocampus, phantom, phantom3d or manifest."""
    out: args.File
    """The file to write, .npz."""
    source_options: args.Group[args.SourceOptions]

    def run(self) -> None:
        from vrnet.data.prepared import pack

        with stage_progress() as stage:
            parts = pack(self.source_options.source(self.data), self.out, stage, print_line)
        for (split, purpose), part in parts.items():
            pairs = sum(len(sample.fixed) for sample in part.samples)
            print_line(f"{split}: {counted(len(part.samples), 'subject')}, {counted(pairs, 'pair')}, for {purpose}")
        print_line(f"Wrote {self.out}.")
