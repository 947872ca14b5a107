"""Train one method on one data set, in one folder.

Lightning Fabric brings devices, nodes and mixed precision.
"""

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vrnet.data.prepared import PreparedSplit
from vrnet.devices import own_stream
from vrnet.files import exists
from vrnet.methods.method import Trainable
from vrnet.methods.weights import Card
from vrnet.provenance import provenance
from vrnet.training.loop import TrainingLoop, TrainingResult, Watch
from vrnet.training.pairs import Pairs
from vrnet.training.processes import (
    catch_stop_signals,
    check_devices,
    is_first_process,
    keep_settings,
    launch_fabric,
)
from vrnet.training.run import CHECKPOINT, Run
from vrnet.training.settings import Training
from vrnet.training.start import check_start, load_start
from vrnet.training.trainer import Trainer, loss_of

if TYPE_CHECKING:
    from lightning.fabric import Fabric


@dataclass(frozen=True)
class TrainingJob:
    """What is to be trained, how, and the folder of the run."""

    method: Trainable
    settings: Training
    folder: Path
    start_from: str | None = None
    """Weights to begin with, of a model in the box or in a file; None: those that the seed draws."""


def fit(
    method: Trainable,
    train: PreparedSplit,
    val: PreparedSplit,
    settings: Training,
    folder: Path,
    *,
    start_from: str | Path | None = None,
    device: str = "auto",
    devices: int = 1,
    nodes: int = 1,
    resume: bool = False,
    watch: Watch = lambda status: None,
) -> TrainingResult:
    """Train a method; the folder then holds what `run.py` says. Ctrl-C and SIGTERM leave a run that can be resumed.

    `start_from` names weights to begin with: a model in the box or a file. `watch` is called with a TrainingStatus
    about twice a second."""
    start = None if start_from is None else str(start_from)
    job, pairs = TrainingJob(method, settings, folder, start), Pairs.from_split(train, settings.uses_labels)
    check_devices(settings.batch, devices, nodes)
    check_job(job, train, val, resume)
    is_first = devices * nodes == 1 or is_first_process()
    with Run(folder).lock() if is_first else nullcontext():
        Run(folder).check(resume)  # again: another run may have begun and ended there meanwhile
        with keep_settings():
            fabric = launch_fabric(device, devices, nodes, settings)  # others start here: they make the checks too
            with catch_stop_signals() as stop_requested, own_stream(fabric.device):
                loop = begin_loop(job, fabric, pairs.move_to(fabric.device), train, val)
                return loop.run(watch, stop_requested)


def check_job(job: TrainingJob, train: PreparedSplit, val: PreparedSplit, resume: bool) -> None:
    """BadInput unless the run can begin, or go on, in its folder; nothing is written."""
    loss_of(job.method, job.settings)
    if job.start_from is not None:
        check_start(job.start_from, job.method, train.samples[0].fixed.dim() - 2)
    run = Run(job.folder)
    run.check(resume)
    run.check_same(describe_run(job, train, val))


def begin_loop(
    job: TrainingJob, fabric: "Fabric", pairs: Pairs, train: PreparedSplit, val: PreparedSplit
) -> TrainingLoop:
    """The loop of a run, ready for its next step; the first process writes config.json."""
    pairs.check_batch(job.settings.batch // fabric.world_size, fabric.device)
    made_by = provenance(fabric.device)
    if fabric.world_size > 1:
        made_by["device"] = f"{fabric.world_size} x {made_by['device']}"
    if fabric.is_global_zero:
        Run(job.folder).begin(describe_run(job, train, val), made_by)
    fabric.barrier()
    trainer = Trainer(fabric, job.method, pairs, job.settings)
    if job.start_from is not None and not exists(job.folder / CHECKPOINT):
        load_start(job.start_from, trainer.model)
    return TrainingLoop(trainer, val.load(), job.folder, make_card(job, train, made_by))


def describe_run(job: TrainingJob, train: PreparedSplit, val: PreparedSplit) -> dict[str, Any]:
    """config.json without its provenance: all that makes the run what it is."""
    return {
        "method": str(job.method),
        "dimension": train.samples[0].fixed.dim() - 2,
        "data": train.data,
        "subjects": {part.split: part.names for part in (train, val)},
        "training": asdict(job.settings),
        "start_from": job.start_from,
    }


def make_card(job: TrainingJob, train: PreparedSplit, made_by: Mapping[str, str | None]) -> Card:
    """What weights.safetensors says of itself."""
    first, with_labels = train.samples[0], job.settings.uses_labels
    start = job.start_from and check_start(job.start_from, job.method, first.fixed.dim() - 2)
    return Card(
        method=str(job.method),
        dimension=first.fixed.dim() - 2,
        spacing_mm=first.spacing,
        normalisation="each" if train.pairs_across_subjects else "jointly",
        trained_on=f"{train.data}, {train.split}: {len(train.samples)} subjects, {job.settings.steps} steps",
        version=made_by["vrnet"] or "",
        commit=made_by["commit"] or "",
        torch=made_by["torch"] or "",
        device=made_by["device"] or "",
        labels_in_training=with_labels or bool(start and start.labels_in_training),
        flips_in_training=job.settings.mirrors,
        started_from=f"{Path(job.start_from).name} ({start.trained_on})" if job.start_from and start else "",
    )
