"""ACDC in its official folders, under the paper's 2D protocol: end-systole (moving) to end-diastole (fixed).

1.8 mm in-plane, 160x160 about the centre, the slices at 25, 50 and 75 % of those that show at least 10 pixels of LV and
of Myo at both phases, intensities scaled by the 1st and 99th percentile of both phases together.
"""

import csv
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Shaped
from numpy import ndarray

from vrnet.data.preprocessing import rescale_jointly
from vrnet.data.sample import Sample
from vrnet.errors import BadInput
from vrnet.images.grid import Grid
from vrnet.images.image import Image, as_labels
from vrnet.images.io import read_image
from vrnet.images.resample import placed, placed_labels

STRUCTURES = {"LV": 3, "Myo": 2, "RV": 1}
SPACING, SIZE, QUANTILES, MIN_PIXELS = 1.8, 160, (0.25, 0.5, 0.75), 10


def subjects(root: Path, split: str) -> list[Path]:
    """The folders of the subjects of a split, as split.csv (patient, split) lists them."""
    try:
        with (root / "split.csv").open(encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        found = [root / row["patient"] for row in rows if row["split"] == split]
    except (OSError, KeyError) as error:
        raise BadInput(f"{root} has no split.csv with columns patient and split: name the ACDC folder") from error
    if not found:
        known = ", ".join(sorted({row["split"] for row in rows}))
        raise BadInput(f'no subject is in the split "{split}" of {root / "split.csv"}: choose one of {known}')
    return found


def prepare(folder: Path) -> Sample:
    """One subject: read, resample, choose slices, scale."""
    frames = [folder / f"{folder.name}_frame{number:02d}" for number in phases(folder)]
    images = [on_grid(read_image(f"{frame}.nii.gz")) for frame in frames]
    labels = [on_grid(as_labels(read_image(f"{frame}_gt.nii.gz")), is_label=True) for frame in frames]
    chosen = chosen_slices(labels, folder.name)
    scaled = rescale_jointly(*(torch.from_numpy(image) for image in images))
    parts = [*scaled, *(torch.from_numpy(mask.astype(np.uint8)) for mask in labels)]
    fixed, moving, *masks = (part[..., chosen].movedim(2, 0)[:, None].contiguous() for part in parts)
    return Sample(folder.name, fixed, moving, masks[0], masks[1], spacing=(SPACING, SPACING))


def phases(folder: Path) -> tuple[int, int]:
    """The numbers of the end-diastolic and of the end-systolic frame."""
    try:
        lines = (folder / "Info.cfg").read_text(encoding="utf-8").splitlines()
        info = dict(line.split(":", 1) for line in lines if ":" in line)
        return int(info["ED"]), int(info["ES"])
    except (OSError, KeyError, ValueError) as error:
        raise BadInput(f"{folder} has no Info.cfg that names the frames ED and ES: is it a patient of ACDC?") from error


def on_grid(image: Image, is_label: bool = False) -> Shaped[ndarray, "160 160 n"]:
    """The stack at the protocol's resolution in its planes, about its centre."""
    shape = (SIZE, SIZE, image.grid.shape[2])
    spacing = (SPACING, SPACING, image.grid.spacing[2])
    centre = image.grid.points((np.array([image.grid.shape]) - 1) / 2)[0]
    origin = centre - image.grid.axes @ (np.array(spacing) * (np.array(shape) - 1) / 2)
    grid = Grid(shape, spacing, tuple(origin.tolist()), image.grid.direction)
    return (placed_labels(image, grid) if is_label else placed(image, grid)).array


def chosen_slices(labels: list[Shaped[ndarray, "h w n"]], name: str) -> list[int]:
    """The slices at the quantiles of those that show enough LV and Myo at both phases."""
    enough = [(mask == STRUCTURES[part]).sum((0, 1)) >= MIN_PIXELS for mask in labels for part in ("LV", "Myo")]
    valid = np.flatnonzero(np.all(enough, axis=0))
    if not len(valid):
        raise BadInput(f"{name} has no slice with LV and Myo at both phases: leave it out of split.csv")
    return [int(valid[round(q * (len(valid) - 1))]) for q in QUANTILES]
