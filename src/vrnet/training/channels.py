"""Further channels of the images to train on: probabilities of structures, each subject's by a segmenter that has not
seen it.

A network that is trained on the probabilities of images which the segmenter has learned by heart trusts them too much:
elsewhere they are worse. So two segmenters share the training subjects, and each makes the channels of those whom the
other was trained on. One of all subjects makes those of validation, and of all images at use.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy import ndarray

from vrnet.data.prepared import PreparedSplit, StoredSamples, write_arrays
from vrnet.data.protocols import Sample
from vrnet.errors import BadInput, Progress
from vrnet.files import exists, sha256
from vrnet.methods.method import Trainable
from vrnet.methods.weights import load_method
from vrnet.registration.channels import Anatomy

PROBABILITIES = "probabilities.npz"
SIDES = "fixed", "moving"


@dataclass(frozen=True)
class Segmenters:
    """Files of weights of the networks that make channels."""

    all: Path
    """The one that was trained on all subjects: that of use."""
    halves: tuple[Path, Path] | None = None
    """Those that were trained on each half of them, as `half_of` says; without them the one of all makes the channels
    of those it was trained on too, to see what cross-fitting brings."""

    @property
    def cross_fitted(self) -> bool:
        return self.halves is not None

    def __str__(self) -> str:
        return "anatomy (cross-fitted)" if self.cross_fitted else "anatomy (not cross-fitted)"

    def file_for(self, subject: str, trained_on: list[str]) -> Path:
        """The one that makes the channels of a subject, given all that they were trained on."""
        if self.halves is None or subject not in trained_on:
            return self.all
        return self.halves[1 - half_of(subject, trained_on)]


def half_of(subject: str, subjects: list[str]) -> int:
    """0 at even places of the sorted subjects, 1 at odd ones."""
    return sorted(subjects).index(subject) % 2


def take_channels(method: Trainable, count: int) -> Trainable:
    """The method for images with so many further channels."""
    if "channels" not in (field.name for field in fields(method)):  # type: ignore[arg-type]
        raise BadInput(f"{method} takes no further channels: train a pyramid, such as P-L2, or leave out `channels`")
    if method.channels not in (0, count):
        raise BadInput(f"{method} takes {method.channels} further channels, and there are {count} structures")
    return replace(method, channels=count)  # type: ignore[type-var]


def make_channels(
    train: PreparedSplit, val: PreparedSplit, segmenters: Segmenters, path: Path,
    device: torch.device, progress: Progress = lambda part: None,
) -> None:  # fmt: skip
    """Write the probabilities of structures in all images of both splits, in half precision, unless they are there."""
    made_from = index_of(train, val, segmenters)
    if exists(path):
        if read_index(path) != made_from:
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


def index_of(train: PreparedSplit, val: PreparedSplit, segmenters: Segmenters) -> dict[str, Any]:
    """What channels depend on: who is in the splits, and the networks."""
    files = [segmenters.all, *(segmenters.halves or ())]
    return {"subjects": [train.names, val.names], "segmenters": [sha256(file) for file in files]}


def read_index(path: Path) -> Any:
    try:
        with np.load(path) as file:
            return json.loads(file["index"].item())
    except Exception as error:
        raise BadInput(f"{path} is damaged: remove it, and resume") from error


def add_channels(train: PreparedSplit, val: PreparedSplit, path: Path) -> tuple[PreparedSplit, PreparedSplit]:
    """Both splits, with the channels of a file that `make_channels` wrote for them after the channel of each image."""

    def add(part: PreparedSplit, place: int) -> PreparedSplit:
        numbers = {name: number for number, name in enumerate(part.names)}

        def read(subject: str) -> Sample:
            sample = part.read(subject)
            try:
                with np.load(path) as file:
                    arrays = (file[f"{place}/{numbers[subject]}/{side}"].astype(np.float32) for side in SIDES)
                    p0, p1 = map(torch.from_numpy, arrays)
                I0, I1 = torch.cat([sample.fixed, p0], dim=1), torch.cat([sample.moving, p1], dim=1)
                return replace(sample, fixed=I0, moving=I1)
            except Exception as error:
                raise BadInput(f"{subject}: {path} is damaged: remove it, and resume") from error

        return replace(part, samples=StoredSamples(part.names, read))

    return add(train, 0), add(val, 1)
