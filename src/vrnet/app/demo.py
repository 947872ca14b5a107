"""The demonstration: a phantom's end-systole registered to its end-diastole, whose true motion is known."""

from pathlib import Path

import torch

from vrnet.app.pair import Case
from vrnet.images.grid import Grid
from vrnet.images.image import Image
from vrnet.images.io import write_image
from vrnet.images.transform import Transform
from vrnet.phantom import Phantom

STRUCTURES = {"3": "LV", "2": "Myo", "1": "RV"}


def phantom_case(patient: Phantom) -> Case:
    """A phantom as a case, as if it had been read from files."""
    grid = Grid.plain(tuple(patient.fixed.shape[2:]), patient.spacing)
    parts = ("fixed", "moving", "fixed_labels", "moving_labels")
    return Case(*(Image(getattr(patient, part)[0, 0].numpy(), grid, f"{part}.nii.gz") for part in parts))


def write_case(case: Case, folder: Path) -> None:
    """The images and labels of a phantom, beside what is made of them."""
    for image in vars(case).values():
        write_image(image, folder / image.name)


def end_point_error(patient: Phantom, transform: Transform) -> dict[str, float]:
    """Mean |u − true u| over the labelled voxels, in mm, of no motion and of the transform found."""
    field = torch.from_numpy(transform.in_voxels())
    heart = patient.fixed_labels[0, 0] > 0
    true = patient.field[0][:, heart]
    mm = torch.tensor(patient.spacing)[:, None]
    found = {"before": torch.zeros_like(true), "after": field[:, heart]}
    return {when: ((u - true) * mm).norm(dim=0).mean().item() for when, u in found.items()}
