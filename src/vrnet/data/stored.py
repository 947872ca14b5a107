"""A sample as plain arrays and back: images in steps of 1/65535, labels as bytes; no pickle, nothing but NumPy."""

import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import torch
from jaxtyping import Float, Shaped, UInt16
from numpy import ndarray
from torch import Tensor

from vrnet.data.sample import Sample
from vrnet.files import atomic_write

FORMAT = 1
"""To be raised when files are written otherwise, or another sample is made of the same sources."""
STEPS = 65535
KINDS = {"fixed": "u2", "moving": "u2", "spacing": "f8", "fixed_labels": "u1", "moving_labels": "u1", "field": "f4"}
NEEDED, OPTIONAL = ("name", "spacing", "fixed", "moving"), ("fixed_labels", "moving_labels", "field")
DAMAGE = BadZipFile, zlib.error, OSError, EOFError, KeyError, ValueError, NotImplementedError
"""What reading a damaged file raises."""
Arrays = Mapping[str, Shaped[ndarray, "..."]]


def arrays_of(sample: Sample) -> Arrays:
    """What a file keeps of a sample."""
    images = {name: in_steps(getattr(sample, name)) for name in ("fixed", "moving")}
    others = {name: getattr(sample, name).numpy() for name in OPTIONAL if getattr(sample, name) is not None}
    return {"name": np.array(sample.name), "spacing": np.array(sample.spacing, np.float64), **images, **others}


def sample_of(arrays: Arrays) -> Sample:
    """The sample that a file kept; KeyError or ValueError if it kept another thing."""
    check_arrays(arrays)
    others = {name: torch.from_numpy(arrays[name]) for name in OPTIONAL if name in arrays}
    fixed, moving = (from_steps(arrays[name]) for name in ("fixed", "moving"))
    return Sample(str(arrays["name"]), fixed, moving, tuple(arrays["spacing"].tolist()), **others)


def in_steps(image: Float[Tensor, "b 1 *s"]) -> UInt16[ndarray, "b 1 *s"]:
    return np.round(image.numpy() * np.float64(STEPS)).astype(np.uint16)


def from_steps(steps: UInt16[ndarray, "b 1 *s"]) -> Float[Tensor, "b 1 *s"]:
    return torch.from_numpy(steps.astype(np.float32) / np.float32(STEPS))


def check_arrays(arrays: Arrays) -> None:
    """KeyError or ValueError unless these are the arrays of one sample."""
    b, _, *s = arrays["fixed"].shape
    shapes = dict.fromkeys(KINDS, (b, 1, *s)) | {"spacing": (len(s),), "field": (b, len(s), *s)}
    for name in (name for name in KINDS if name in arrays or name in NEEDED):
        if (arrays[name].dtype, arrays[name].shape) != (np.dtype(KINDS[name]), shapes[name]):
            raise ValueError(f"{name} is {arrays[name].dtype} of shape {arrays[name].shape}")


def save(sample: Sample, path: Path) -> None:
    """Write a sample."""
    write(arrays_of(sample), path)


def write(arrays: Mapping[str, Any], path: Path) -> None:
    """Write arrays in one .npz file, whole or not at all."""
    with atomic_write(path) as temporary:
        np.savez_compressed(temporary, **arrays)


def load(path: Path) -> Sample | None:
    """The sample of a file; None if there is no such file, or it is damaged."""
    try:
        with np.load(path, allow_pickle=False) as file:
            return sample_of({name: file[name] for name in file.files})
    except DAMAGE:
        return None
