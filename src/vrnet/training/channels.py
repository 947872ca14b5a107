"""Further channels of the images to train on: probabilities of structures, each subject's by a segmenter that has not
seen it.

A network that is trained on the probabilities of images which the segmenter has learned by heart trusts them too much:
elsewhere they are worse. So two segmenters share the training subjects, and each makes the channels of those whom the
other was trained on. One of all subjects makes those of validation, and of all images at use.

FOLDER/0, FOLDER/1 and FOLDER/all are their runs, each of which goes on where it was left; the channels that they make
are kept in FOLDER/probabilities.npz.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy import ndarray

from vrnet.data.prepared import PreparedSplit, StoredSamples, write_arrays
from vrnet.data.protocols import Sample
from vrnet.errors import BadInput, Progress
from vrnet.files import exists, sha256, write_bytes
from vrnet.methods.method import Trainable
from vrnet.methods.weights import load_method
from vrnet.registration.channels import Anatomy
from vrnet.training.fit import Watch, fit, keep_settings, launch_fabric
from vrnet.training.run import CONFIG, WEIGHTS, Run
from vrnet.training.settings import Training

HALVES, ALL = ("0", "1"), "all"
TITLES = {"0": "1st half", "1": "2nd half", ALL: "all subjects"}
SIDES = "fixed", "moving"


@dataclass(frozen=True)
class Segmenters:
    all: Path  # the one that was trained on all subjects: that of use
    halves: tuple[Path, Path]  # those that were trained on each half of them, as `half_of` says

    @property
    def files(self) -> list[Path]:
        return [self.all, *self.halves]

    def __str__(self) -> str:
        return "anatomy (cross-fitted)"

    def file_for(self, subject: str, trained_on: list[str]) -> Path:
        """The one that makes the channels of a subject, given all that they were trained on."""
        return self.halves[1 - half_of(subject, trained_on)] if subject in trained_on else self.all

    @classmethod
    def of_folder(cls, folder: Path) -> "Segmenters":
        """Those that `crossfit` trained in a folder."""
        first, second, everyone = (folder / part / WEIGHTS for part in (*HALVES, ALL))
        for file in (first, second, everyone):
            if not exists(file):
                raise BadInput(f"there is no {file}: give the folder anatomy of a run that was trained with channels")
        return cls(everyone, (first, second))


def half_of(subject: str, subjects: list[str]) -> int:
    """0 at even places of the sorted subjects, 1 at odd ones."""
    return sorted(subjects).index(subject) % 2


def subjects_of(part: str, train: PreparedSplit) -> PreparedSplit:
    if part == ALL:
        return train
    if len(train.names) < 2:
        raise BadInput(f"{train.split} of {train.data} has one subject, which cannot be halved: add subjects")
    return train.choose([name for name in train.names if half_of(name, train.names) == int(part)])


def crossfit(
    segmenter: Trainable, train: PreparedSplit, val: PreparedSplit, settings: Training, folder: Path, *,
    bar: Callable[[str], AbstractContextManager[Watch]], **options: Any,
) -> Segmenters | None:  # fmt: skip
    """Train what is not trained yet; None if that was stopped. `bar` shows a training; options are those of `fit`."""
    for part in (*HALVES, ALL):
        with bar(f"{segmenter}, {TITLES[part]}") as watch:
            result = fit(segmenter, subjects_of(part, train), val, settings, folder / part, watch=watch, **options)
        if not result.is_finished:
            return None
    return Segmenters.of_folder(folder)


def take_over(source: Path, folder: Path, train: PreparedSplit, val: PreparedSplit) -> Segmenters:
    """The segmenters of another run, copied; BadInput if one has seen a subject whose channels it is to make."""
    given = Segmenters.of_folder(source)
    seen = {path: Run(path.parent).config()["subjects"].get(train.split, []) for path in given.files}
    for name in [*val.names, *train.names]:
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
    return Segmenters.of_folder(folder)


def take_channels(method: Trainable, count: int) -> Trainable:
    if "channels" not in (field.name for field in fields(method)):  # type: ignore[arg-type]
        raise BadInput(f"{method} takes no further channels: train a pyramid, such as P-L2, or leave out `channels`")
    if method.channels not in (0, count):
        raise BadInput(f"{method} takes {method.channels} further channels, and there are {count} structures")
    return replace(method, channels=count)  # type: ignore[type-var]


def prepare_channels(
    train: PreparedSplit, val: PreparedSplit, segmenters: Segmenters, folder: Path, settings: Training,
    progress: Progress, *, device: str, devices: int, nodes: int,
) -> tuple[PreparedSplit, PreparedSplit]:  # fmt: skip
    """Both splits with channels, which the first of several processes makes and keeps in the folder."""
    path = folder / "probabilities.npz"
    with keep_settings():
        fabric = launch_fabric(device, devices, nodes, settings)
        if fabric.is_global_zero:
            make_channels(train, val, segmenters, path, fabric.device, progress)
        fabric.barrier()
    return add_channels(train, val, path)


def make_channels(
    train: PreparedSplit, val: PreparedSplit, segmenters: Segmenters, path: Path,
    device: torch.device, progress: Progress = lambda part: None,
) -> None:  # fmt: skip
    """Write the probabilities of structures in all images of both splits, in half precision, unless they are there."""
    made_from = {"subjects": [train.names, val.names], "segmenters": [sha256(file) for file in segmenters.files]}
    if exists(path):
        if json.loads(read_arrays(path, "index")[0].item()) != made_from:
            told = f"{path} was made of other subjects or by other segmenters"
            raise BadInput(f"{told}: resume with the same, or choose another folder")
        return
    models: dict[Path, Anatomy] = {}

    def arrays() -> Iterator[tuple[str, ndarray]]:
        done, count = 0, len(train.samples) + len(val.samples)
        for place, part in enumerate((train, val)):
            for number, sample in enumerate(part.samples):
                file = segmenters.file_for(sample.name, train.names)
                if file not in models:
                    models[file] = Anatomy(load_method(file))
                for side in SIDES:
                    with torch.inference_mode():
                        p = models[file].probabilities(getattr(sample, side).to(device), sample.spacing)[:, 1:]
                    yield f"{place}/{number}/{side}", p.half().cpu().numpy()
                done += 1
                progress(done / count)
        yield "index", np.array(json.dumps(made_from))

    write_arrays(arrays(), path)


def read_arrays(path: Path, *names: str) -> list[ndarray]:
    try:
        with np.load(path) as file:
            return [file[name] for name in names]
    except Exception as error:
        raise BadInput(f"{path} is damaged: remove it, and resume") from error


def add_channels(train: PreparedSplit, val: PreparedSplit, path: Path) -> tuple[PreparedSplit, PreparedSplit]:
    """Both splits, with the channels of a file that `make_channels` wrote for them after the channel of each image."""

    def add(part: PreparedSplit, place: int) -> PreparedSplit:
        def read(subject: str) -> Sample:
            sample, number = part.read(subject), part.names.index(subject)
            found = read_arrays(path, *(f"{place}/{number}/{side}" for side in SIDES))
            p0, p1 = (torch.from_numpy(array.astype(np.float32)) for array in found)
            I0, I1 = torch.cat([sample.fixed, p0], dim=1), torch.cat([sample.moving, p1], dim=1)
            return replace(sample, fixed=I0, moving=I1)

        return replace(part, samples=StoredSamples(part.names, read))

    return add(train, 0), add(val, 1)
