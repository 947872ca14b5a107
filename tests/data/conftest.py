"""Small data sets made for the tests, written by nibabel and measured by its affines, not by the package."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import nibabel
import numpy as np
import pytest
import torch

from tests.phantoms import phantom
from vrnet.data.protocols import Sample
from vrnet.errors import BadInput

SPOT_SIGMA_MM = 6.0


def affine_of(spacing, origin=(-80.0, 40.0, 25.0), degrees=20.0):
    """An oblique affine: turned in its first plane, its second axis running backward."""
    c, s = np.cos(np.radians(degrees)), np.sin(np.radians(degrees))
    affine = np.eye(4)
    affine[:3, :3] = np.array([[c, s, 0], [s, -c, 0], [0, 0, 1.0]]) * spacing
    affine[:3, 3] = origin
    return affine


def spots(affine, shape, *points):
    """A volume that is bright about points of the world."""
    index = np.stack(np.meshgrid(*map(np.arange, shape), indexing="ij"), -1)
    world = nibabel.affines.apply_affine(affine, index)
    return sum(1000 * np.exp(-((world - point) ** 2).sum(-1) / (2 * SPOT_SIGMA_MM**2)) for point in points)


def place(affine, shape, spacing, size, index):
    """The world position of an index of a grid about the centre of an image, along its axes, turned to run as those of
    LPS do."""
    axes = affine[:3, :3] / np.linalg.norm(affine[:3, :3], axis=0)
    axes = axes * np.sign((np.diag([-1, -1, 1]) @ axes)[np.abs(axes).argmax(0), range(3)])
    middle = nibabel.affines.apply_affine(affine, (np.array(shape) - 1) / 2)
    return middle + axes @ ((np.array(index) - (np.array(size) - 1) / 2) * spacing)


def brightest(image):
    """The (fractional) index about which an image is bright."""
    weights = np.clip(np.asarray(image, float) - 0.2 * float(image.max()), 0, None)
    return np.array([(weights * axis).sum() for axis in np.indices(weights.shape)]) / weights.sum()


def write(path, array, affine, dtype=np.int16):
    path.parent.mkdir(parents=True, exist_ok=True)
    nibabel.save(nibabel.Nifti1Image(np.asarray(array).astype(dtype), affine), path)


def heart(seed, slices=7, shown=range(1, 6), size=(120, 110), spacing=1.5):
    """The images and labels of both phases of a phantom, as stacks with the heart in some slices only."""
    made = phantom(seed, size, spacing)
    images = [np.stack([part[0, 0].numpy() * 900 + k for k in range(slices)], 2) for part in (made.fixed, made.moving)]
    labels = [
        np.stack([part[0, 0].numpy() * (k in shown) for k in range(slices)], 2)
        for part in (made.fixed_labels, made.moving_labels)
    ]
    return images, labels


def write_acdc(folder, name, images, labels, affine=None):
    """A patient in ACDC's official folder."""
    affine = np.diag([1.5, 1.5, 10, 1]) if affine is None else affine
    (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / name / "Info.cfg").write_text("ED: 1\nES: 12\nGroup: NOR\n")
    for frame, image, mask in zip((1, 12), images, labels, strict=True):
        write(folder / name / f"{name}_frame{frame:02d}.nii.gz", image, affine)
        write(folder / name / f"{name}_frame{frame:02d}_gt.nii.gz", mask, affine, np.uint8)


def write_ukbb(folder, images, labels, affine=None):
    """A subject in the UK Biobank's folder."""
    affine = np.diag([1.5, 1.5, 10, 1]) if affine is None else affine
    for phase, image, mask in zip(("ED", "ES"), images, labels, strict=True):
        write(folder / f"sa_{phase}.nii.gz", image, affine)
        write(folder / f"label_sa_{phase}.nii.gz", mask, affine, np.uint8)


def write_splits(folder, **splits):
    """split.csv, with the subjects of each split."""
    rows = [f"{subject},{split}" for split, subjects in splits.items() for subject in subjects]
    (folder / "split.csv").write_text("\n".join(["subject,split", *rows]))


def random_sample(name, seed, b=2, shape=(8, 6), labels=True, field=True):
    """A sample full of noise."""
    generator = torch.Generator().manual_seed(seed)

    def noise(c):
        return torch.rand(b, c, *shape, generator=generator)

    masks = [(3 * noise(1)).to(torch.uint8) for _ in range(2)] if labels else [None, None]
    return Sample(name, noise(1), noise(1), (1.8,) * len(shape), *masks, noise(len(shape)) if field else None)


def parts_of(sample):
    return {name: getattr(sample, name) for name in ("fixed", "moving", "fixed_labels", "moving_labels", "field")}


def assert_same(a, b):
    """Two samples are equal to the bit."""
    assert (a.name, a.spacing) == (b.name, b.spacing)
    for name, part in parts_of(a).items():
        other = parts_of(b)[name]
        assert (part is None) == (other is None)
        assert part is None or (part.dtype == other.dtype and torch.equal(part, other))


@dataclass(frozen=True)
class Toy:
    """A data set of text files, NAME.txt, each with a seed; it counts how often a subject is made."""

    root: Path
    shift: int = 0

    made: ClassVar[list[str]] = []
    name = "toy"
    structures: ClassVar[dict[str, int]] = {"all": 1}
    pairs_across_subjects = False

    def subjects(self, split):
        return sorted(path.stem for path in self.root.glob("*.txt"))

    def sources(self, subject, purpose):
        return [self.root / f"{subject}.txt"]

    def prepare(self, subject, purpose):
        self.made.append(subject)
        text = (self.root / f"{subject}.txt").read_text()
        if not text.isdigit():
            raise BadInput(f"{self.root / subject}.txt holds {text}: a number should be there")
        return random_sample(subject, int(text) + self.shift, labels=purpose == "evaluation")


@pytest.fixture
def toy(tmp_path):
    """Three subjects, s0 to s2; nothing made so far."""
    (tmp_path / "toy").mkdir()
    for number in range(3):
        (tmp_path / "toy" / f"s{number}.txt").write_text(str(number))
    Toy.made.clear()
    return Toy(tmp_path / "toy")


@pytest.fixture
def cache(tmp_path):
    """A folder for prepared samples."""
    return tmp_path / "cache"
