"""The affine start on images that known maps have misplaced, and on brains whose headers are destroyed.

    python benchmarks/affine.py --data DIR [--count 30] [--method TV-L1]

DIR holds brain_pair/ (a_t1, a_seg, b_t1, b_seg) and hippocampus/images/. Half of the misplacements are rigid, half are
affine: turned about a random axis by up to 30°, shifted by up to 30 mm and, if affine, stretched along each axis by up
to 20 %.
Error: median over points of fixed of |found(x) − true(x)|, and the angle between the rotations of both. With a method,
the brains are registered by it as they are, and again with the header of moving destroyed: identity direction, or
turned by 28°, and a wrong origin.
"""

import argparse
from dataclasses import replace
from itertools import product
from pathlib import Path
from time import perf_counter

import numpy as np
import SimpleITK as sitk
from scipy.spatial.transform import Rotation

from vrnet import Grid, Image, read_image, register_images
from vrnet.images.grid import Affine, rotation_angle
from vrnet.images.io import to_sitk
from vrnet.registration.affine import find_affine

MAX_DEGREES, MAX_MM, MAX_STRETCH = 30, 30, 0.2
LOST_ORIGIN = (300.0, -700.0, 40.0)


def random_map(grid, kind, seed):
    """A misplacement about the centre of a grid."""
    rng = np.random.default_rng(seed)
    axis, shift = (v / np.linalg.norm(v) for v in rng.standard_normal((2, 3)))
    R = Rotation.from_rotvec(np.radians(rng.uniform(0, MAX_DEGREES)) * axis).as_matrix()
    stretch = rng.uniform(1 - MAX_STRETCH, 1 + MAX_STRETCH, 3) if kind == "affine" else np.ones(3)
    return Affine(kind, R @ np.diag(stretch), rng.uniform(0, MAX_MM) * shift, grid.centre)


def misplace(image, affine):
    """The image moved by a map, on a grid with room for all of it, black elsewhere: moved(affine(x)) = image(x)."""
    own = image.grid
    corners = np.array(list(product(*((-0.5, n - 0.5) for n in own.shape))))
    reached = own.index(affine.points(own.points(corners)))
    low, high = np.floor(reached.min(0)), np.ceil(reached.max(0))
    shape, origin = tuple(int(n) for n in high - low + 1), tuple(own.points(low[None])[0].tolist())
    place, outside = (origin, own.spacing, own.direction), float(image.array.min())
    source = to_sitk(image.array.astype(np.float32), own)
    moved = sitk.Resample(source, shape, affine.itk.GetInverse(), sitk.sitkLinear, *place, outside)
    return Image(sitk.GetArrayFromImage(moved).T, Grid(shape, own.spacing, origin, own.direction), "moved")


def recover(image, kind, seed):
    """(mm, degrees, seconds) of one misplacement."""
    true = random_map(image.grid, kind, seed)
    moved, start = misplace(image, true), perf_counter()
    found = find_affine(image, moved, kind)
    seconds, x = perf_counter() - start, image.grid.points(image.grid.lattice())
    apart = np.linalg.norm(found.points(x) - true.points(x), axis=1)
    return float(np.median(apart)), rotation_angle(found.rotation @ true.rotation.T), seconds


def misplacements(name, images, count):
    """A row of the table per kind of map."""
    for kind in ("rigid", "affine"):
        found = np.array([recover(images[seed % len(images)], kind, seed) for seed in range(count // 2)])
        (mm, degrees, seconds), (worst_mm, worst_degrees, _) = np.median(found, 0), found.max(0)
        print(f"{name:12} {kind:7} {len(found):5} {mm:10.3f} {worst_mm:9.3f} {degrees:11.3f} {worst_degrees:10.3f} "
              f"{seconds:8.1f}", flush=True)  # fmt: skip


def mean_dice(a, b):
    """Mean Dice over the labels that both maps have."""
    shared = [label for label in np.intersect1d(a, b) if label]
    return float(np.mean([2 * np.sum((a == k) & (b == k)) / (np.sum(a == k) + np.sum(b == k)) for k in shared]))


def destroy_header(image, direction):
    """The image with a header that has lost how and where it lies."""
    return replace(image, grid=replace(image.grid, direction=tuple(direction.ravel().tolist()), origin=LOST_ORIGIN))


def destroyed_headers(folder, method):
    """Dice of two brains: as they are; with headers destroyed, and an affine start."""
    names = ("a_t1", "b_t1", "a_seg", "b_seg")
    fixed, moving, fixed_labels, moving_labels = (read_image(folder / f"{name}.nii.gz") for name in names)
    turn = Rotation.from_rotvec(np.radians(28) * np.array([0.5, 0.5, -(0.5**0.5)])).as_matrix()
    lost = {"identity direction": np.eye(3), "turned by 28°": turn @ moving.grid.axes}
    cases = [("as they are", moving, moving_labels, "none")]
    for (name, direction), kind in product(lost.items(), ("rigid", "affine")):
        cases.append((name, *(destroy_header(image, direction) for image in (moving, moving_labels)), kind))
    for name, image, labels, kind in cases:
        found = register_images(fixed, image, method, affine=kind)
        dice = mean_dice(fixed_labels.array, found.transform.apply_labels(labels, fixed.grid).array)
        print(f"{name:20} --affine {kind:7} Dice {dice:.3f}  {found.seconds:6.1f} s", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--count", type=int, default=30, help="misplacements of brains, and of hippocampi")
    parser.add_argument("--method", help="register the brains with destroyed headers, too, by this method")
    options = parser.parse_args()
    brain = [read_image(options.data / "brain_pair" / "a_t1.nii.gz")]
    hippocampi = [read_image(path) for path in sorted((options.data / "hippocampus" / "images").glob("*.nii.gz"))[:15]]
    print("image        kind    count  median mm  worst mm  median deg  worst deg  seconds")
    misplacements("brain", brain, options.count)
    misplacements("hippocampus", hippocampi, options.count)
    if options.method:
        destroyed_headers(options.data / "brain_pair", options.method)


if __name__ == "__main__":
    main()
