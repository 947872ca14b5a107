"""Train the segmenters whose probabilities are further channels: one on each half of the subjects, and one on all.

FOLDER/0, FOLDER/1 and FOLDER/all are their runs: each goes on where it was left.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from vrnet.data.prepared import PreparedSplit
from vrnet.errors import BadInput, Progress
from vrnet.files import exists, write_bytes
from vrnet.methods.method import Trainable
from vrnet.training.channels import PROBABILITIES, Segmenters, add_channels, half_of, make_channels
from vrnet.training.fit import Watch, fit, keep_settings, launch_fabric
from vrnet.training.run import CONFIG, WEIGHTS, Run
from vrnet.training.settings import Training

HALVES, ALL = ("0", "1"), "all"
TITLES = {"0": "1st half", "1": "2nd half", ALL: "all subjects"}


def crossfit(
    segmenter: Trainable, train: PreparedSplit, val: PreparedSplit, settings: Training, folder: Path, *,
    cross_fitted: bool = True, bar: Callable[[str], AbstractContextManager[Watch]], **options: Any,
) -> Segmenters | None:  # fmt: skip
    """Train what is not trained yet; None if that was stopped. `bar` shows a training; the options are those of `fit`.

    Without cross-fitting, only the one of all subjects."""
    for part in (*HALVES, ALL) if cross_fitted else (ALL,):
        with bar(f"{segmenter}, {TITLES[part]}") as watch:
            result = fit(segmenter, subjects_of(part, train), val, settings, folder / part, watch=watch, **options)
        if not result.is_finished:
            return None
    return segmenters_in(folder, cross_fitted)


def subjects_of(part: str, train: PreparedSplit) -> PreparedSplit:
    """The subjects that a segmenter is trained on."""
    if part == ALL:
        return train
    if len(train.names) < 2:
        raise BadInput(f"{train.split} of {train.data} has one subject, which cannot be halved: add subjects")
    return train.choose([name for name in train.names if half_of(name, train.names) == int(part)])


def segmenters_in(folder: Path, cross_fitted: bool = True) -> Segmenters:
    """Those of a folder that `crossfit` filled."""
    files = [folder / part / WEIGHTS for part in (*HALVES, ALL)]
    for file in files if cross_fitted else files[2:]:
        if not exists(file):
            raise BadInput(f"there is no {file}: give the folder anatomy of a run that was trained with channels")
    return Segmenters(files[2], (files[0], files[1]) if cross_fitted else None)


def take_over(source: Path, folder: Path, train: PreparedSplit, val: PreparedSplit, cross_fitted: bool) -> Segmenters:
    """The segmenters of another run, copied; BadInput if one of them has seen a subject whose channels it is to make.

    Without cross-fitting, the one of all has seen those to be trained on, and only those of validation count."""
    given = segmenters_in(source, cross_fitted)
    seen = {
        path: Run(path.parent).config()["subjects"].get(train.split, []) for path in (given.all, *(given.halves or ()))
    }
    for name in [*val.names, *(train.names if cross_fitted else ())]:
        file = given.file_for(name, train.names)
        if name in seen[file]:
            told = f"the segmenter in {file.parent} was trained on {name}, whose channels it is to make"
            raise BadInput(f"{told}: give segmenters of the same training subjects, or leave them out")
    for path in seen:
        for name in (WEIGHTS, CONFIG):
            content, copy = (path.parent / name).read_bytes(), folder / path.parent.name / name
            if exists(copy) and copy.read_bytes() != content:
                raise BadInput(f"{folder} has other segmenters than {source}: choose another folder")
            write_bytes(content, copy)
    return segmenters_in(folder, cross_fitted)


def prepare_channels(
    train: PreparedSplit, val: PreparedSplit, segmenters: Segmenters, folder: Path, settings: Training,
    device: str, devices: int, nodes: int, progress: Progress,
) -> tuple[PreparedSplit, PreparedSplit]:  # fmt: skip
    """Both splits with channels, which the first of several processes makes and keeps in FOLDER/probabilities.npz."""
    path = folder / PROBABILITIES
    with keep_settings():
        fabric = launch_fabric(device, devices, nodes, settings)
        if fabric.is_global_zero:
            make_channels(train, val, segmenters, path, fabric.device, progress)
        fabric.barrier()
    return add_channels(train, val, path)
