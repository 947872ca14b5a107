"""The demonstration: a phantom's end-systole registered to its end-diastole, whose true motion is known."""

from typing import NamedTuple

import torch

from vrnet.app.image_pair import ImagePair
from vrnet.images.grid import Grid
from vrnet.images.image import Image
from vrnet.images.transform import Transform
from vrnet.phantom import Phantom

STRUCTURES = {"3": "LV", "2": "Myo", "1": "RV"}
"""The names of the phantom's labels."""


class EndPointError(NamedTuple):
    """Mean distance from the true motion, in mm."""

    before: float
    after: float


def phantom_pair(patient: Phantom) -> ImagePair:
    """The images and labels of a phantom, as if they had been read from files."""
    grid = Grid.plain(tuple(patient.fixed.shape[2:]), patient.spacing)
    parts = ("fixed", "moving", "fixed_labels", "moving_labels")
    return ImagePair(*(Image(getattr(patient, part)[0, 0].numpy(), grid, f"{part}.nii.gz") for part in parts))


def end_point_error(patient: Phantom, transform: Transform) -> EndPointError:
    """Mean |u − true u| over the labelled voxels, in mm: for u = 0, and for the u of a transform."""
    u = torch.from_numpy(transform.in_voxels())
    heart = patient.fixed_labels[0, 0] > 0
    true = patient.field[0][:, heart]
    mm = torch.tensor(patient.spacing)[:, None]
    fields = torch.zeros_like(true), u[:, heart]
    return EndPointError(*(((field - true) * mm).norm(dim=0).mean().item() for field in fields))
