"""A reader of the documents: the files that the pages speak of, and training cut to what shows that it works."""

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import SimpleITK as sitk
from scipy import ndimage

from tests.data.conftest import heart, write_acdc, write_splits
from tests.phantoms import cycle, phantom
from vrnet import Grid, Image, write_image
from vrnet.images.io import to_sitk
from vrnet.training.fit import fit

SHAPE, SPACING = (32, 32), 8.0
"""Of the images in the reader's own data sets; mm."""
NAMES = {"ed": "fixed", "es": "moving", "ed_gt": "fixed_labels", "es_gt": "moving_labels"}
OBLIQUE = (-0.8, 0.6, 0.0, 0.6, 0.8, 0.0, 0.0, 0.0, 1.0)


def write_files(folder):
    """ed and es, their segmentations, masks around those, points, ACDC, and a cine."""
    patient = phantom(7, (48, 48, 4), 4.0)
    grid = Grid((48, 48, 4), (4.0, 4.0, 14.0), (30.0, -60.0, 200.0), OBLIQUE)
    for name, part in NAMES.items():
        write_image(Image(getattr(patient, part)[0, 0].numpy(), grid), folder / f"{name}.nii.gz")
    for name in ("ed", "es"):
        labels = getattr(patient, NAMES[f"{name}_gt"])[0, 0].numpy()
        mask = ndimage.binary_dilation(labels, np.ones((5, 5, 1))).astype(np.uint8)
        write_image(Image(mask, grid), folder / f"{name}_mask.nii.gz")
    (folder / "ed_points.csv").write_text("x,y,z\n30,-60,200\n")
    (folder / "es_landmarks.csv").write_text("x,y,z\n31,-60,200\n")
    write_patients(folder / "ACDC")
    write_cine(folder)


def write_cine(folder):
    """A short cine of two slices, and the labels of its first frame."""
    shape, spacing = (36, 36, 2), (3.0, 3.0, 10.0)
    beat, grid = cycle(3, shape, spacing, frames=4), Grid.plain(shape, spacing)
    frames = [to_sitk(frame.numpy(), grid) for frame in beat.frames]
    sitk.WriteImage(sitk.JoinSeries(frames, 0.0, 0.25), str(folder / "cine.nii.gz"))
    write_image(Image(beat.labels.numpy(), grid), folder / "frame0_gt.nii.gz")


def write_patients(folder):
    """ACDC, with one patient in each split."""
    names = ["patient001", "patient002", "patient003"]
    for seed, name in enumerate(names):
        write_acdc(folder, name, *heart(seed, slices=3, shown=range(3), size=(64, 64), spacing=3.0))
    write_splits(folder, train=names[:1], val=names[1:2], test=names[2:])


def write_pairs(table):
    """pairs.csv, and small images under the names in it."""
    Path("pairs.csv").write_text(table)
    for seed, row in enumerate(csv.DictReader(table.splitlines())):
        patient = phantom(seed, SHAPE, SPACING)
        for part in ("fixed", "moving", "fixed_labels", "moving_labels"):
            if row[part]:
                image = Image(getattr(patient, part)[0, 0].numpy(), Grid.plain(SHAPE, (SPACING, SPACING)))
                write_image(image, Path(row[part]))


def fit_briefly(method, train, val, settings, folder, **options):
    """Training, one step of it, with two channels instead of many."""
    brief = replace(settings, steps=1, batch=1, validate_every=1)
    return fit(replace(method, width=2), train, val, brief, folder, **options)
