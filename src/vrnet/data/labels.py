"""What labels are called: {1: "RV", 2: "Myo", 3: "LV"}. Some sets are known by a name; others are written out."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import Any, TypeGuard

import numpy as np
from jaxtyping import Bool
from numpy import ndarray
from numpy.typing import NDArray

from vrnet.errors import BadInput
from vrnet.images.image import Image
from vrnet.vocabulary import HEART, HIPPOCAMPUS

LabelNames = Mapping[int, str]
Array = NDArray[Any]
LABEL = re.compile("-?[0-9]{1,18}")
BOTH_SIDES = {
    "Cerebral-White-Matter": (2, 41), "Cerebral-Cortex": (3, 42), "Lateral-Ventricle": (4, 43),
    "Inf-Lat-Vent": (5, 44), "Cerebellum-White-Matter": (7, 46), "Cerebellum-Cortex": (8, 47), "Thalamus": (10, 49),
    "Caudate": (11, 50), "Putamen": (12, 51), "Pallidum": (13, 52), "Hippocampus": (17, 53), "Amygdala": (18, 54),
    "Accumbens-area": (26, 58), "VentralDC": (28, 60), "vessel": (30, 62), "choroid-plexus": (31, 63),
    "WM-hypointensities": (78, 79), "non-WM-hypointensities": (81, 82),
}  # fmt: skip
"""The numbers, left and right, that FreeSurfer's segmentation of the brain (aseg) gives to structures."""
MIDLINE = {
    14: "3rd-Ventricle", 15: "4th-Ventricle", 16: "Brain-Stem", 24: "CSF", 72: "5th-Ventricle",
    77: "WM-hypointensities", 80: "non-WM-hypointensities", 85: "Optic-Chiasm", 251: "CC_Posterior",
    252: "CC_Mid_Posterior", 253: "CC_Central", 254: "CC_Mid_Anterior", 255: "CC_Anterior",
}  # fmt: skip
"""Those of FreeSurfer that lie in the middle, or on either side."""
FREESURFER = MIDLINE | {
    numbers[side]: f"{word}-{name}"
    for side, word in enumerate(("Left", "Right"))
    for name, numbers in BOTH_SIDES.items()
}
HEART_NAMES = {label: part for part, label in reversed(HEART.items())}
KNOWN: dict[str, LabelNames] = dict.fromkeys(("acdc", "ukbb"), HEART_NAMES)
KNOWN["hippocampus"] = {label: part for part, label in HIPPOCAMPUS.items()}
KNOWN["freesurfer"] = FREESURFER
ACDC_MASK = re.compile(r"patient[0-9]{3}_frame[0-9]{2}_gt\.nii(\.gz)?")
"""What ACDC calls its masks, and no other data set of hearts: others count LV and RV the other way round."""


def is_known(given: object) -> TypeGuard[str]:
    """Whether this is the name of a known set of names."""
    return isinstance(given, str) and given.strip().casefold() in KNOWN


def read_label_names(given: str | LabelNames) -> dict[int, str]:
    """The names of labels: those of a known set, or of 1=RV,2=Myo,3=LV, or of {1: "RV"}; each once, and none of 0."""
    if is_known(given):
        return dict(KNOWN[given.strip().casefold()])
    entries: list[tuple[Any, Any]] = []
    if isinstance(given, str):
        entries = [entry.partition("=")[::2] for entry in given.split(",")]
    elif isinstance(given, Mapping):  # metrics.json has {"1": "RV"}
        entries = list(given.items())
    texts = [(str(label).strip(), name.strip() if isinstance(name, str) else "") for label, name in entries]
    said = json.dumps(given) if isinstance(given, str) else ascii(given)
    if not texts or not all(LABEL.fullmatch(label) and int(label) and name for label, name in texts):
        known = f"one of {', '.join(KNOWN)}; 0 is the background, and has no name"
        raise BadInput(f"the names of labels are {said}: give them as 1=RV,2=Myo,3=LV, or {known}")
    numbers, names = [int(label) for label, _ in texts], [name for _, name in texts]
    for kind, values in (("label", [*map(str, numbers)]), ("name", names)):
        if twice := next((value for value in values if values.count(value) > 1), None):
            raise BadInput(f"the {kind} {twice} is given twice in {said}: give each once")
    return dict(zip(numbers, names, strict=True))


def names_told_by_files(files: Iterable[str | PurePath]) -> LabelNames:
    """The names of labels that file names reveal: those of ACDC for its masks, none for other files."""
    names = [PurePath(file).name for file in files]
    return KNOWN["acdc"] if names and all(map(ACDC_MASK.fullmatch, names)) else {}


def label_text(label: int | str, names: Mapping[str, str]) -> str:
    """A label as people read it: its name where {"1": "RV"} has one, or label 1. What is no number is a name."""
    text = str(label)
    return names.get(text, f"label {text}" if LABEL.fullmatch(text) else text)


def check_labels_are_there(given: str | LabelNames, labels: Iterable[int]) -> None:
    """BadInput if a label has a name and no voxel has the label; a known set may name more than there are."""
    there, names = sorted(set(labels) - {0}), read_label_names(given)
    if not is_known(given) and (missing := [label for label in names if label not in there]):
        said = f"no voxel has the label {missing[0]}, which is called {names[missing[0]]}"
        raise BadInput(f"{said}: the labels are {', '.join(map(str, there)) or 'all 0'}")


def rename_structures(structures: Mapping[str, int], given: str | LabelNames) -> dict[str, int]:
    """{name: label} of a data set without names for its structures, with the names that are given."""
    known = [name for name, label in structures.items() if name != str(label)]
    if known:
        raise BadInput(f"the structures are called {', '.join(known)} already: leave out `label_names`")
    check_labels_are_there(given, structures.values())
    names = read_label_names(given)
    return {names.get(label, name): label for name, label in structures.items()}


SMALLEST_CAVITY = 0.05  # of the wall: less is a pit in it


def label_in_cavity(maps: Sequence[Image], wall: int, either: tuple[int, int]) -> int | None:
    """Which of two labels the wall goes all round, slice by slice, in most voxels of all maps: that of the LV. None
    where it encloses as much of both, as where its slices are open."""
    found = []
    for labels in maps:
        inside = np.stack([find_cavity(plane) for plane in in_planes(labels.array == wall, labels)])
        found.append(in_planes(labels.array, labels)[inside])
    first, second = ((np.concatenate(found) == label).sum() for label in either)
    return None if first == second else either[int(second > first)]


def in_planes(array: Array, labels: Image) -> Array:
    """A view of an array on the grid of the labels, slices first; a 2D image is one slice."""
    return array[None] if array.ndim == 2 else np.moveaxis(array, labels.grid.across, 0)


def find_cavity(wall: Bool[ndarray, "x y"]) -> Bool[ndarray, "x y"]:
    """The cavity: the largest part that the wall encloses; a small one counts only in the middle of the wall."""
    found = largest_part(fill_holes(wall[None])[0] & ~wall, diagonal=False)
    if found.sum() > SMALLEST_CAVITY * wall.sum():
        return found
    is_in_the_middle = found.any() and found[tuple(np.argwhere(wall).mean(0).round().astype(int))]
    return found if is_in_the_middle else np.zeros_like(wall)


def largest_part(mask: Bool[ndarray, "x y"], diagonal: bool) -> Bool[ndarray, "x y"]:
    """The largest connected part of a mask; empty if the mask is."""
    from scipy import ndimage

    parts, n = ndimage.label(mask, np.ones((3, 3)) if diagonal else None)
    return parts == 1 + np.argmax(np.bincount(parts.ravel(), minlength=2)[1:]) if n else mask


def fill_holes(slices: Bool[ndarray, "n h w"]) -> Bool[ndarray, "n h w"]:
    """2D masks and their holes: whatever cannot be left through sides of voxels."""
    from scipy import ndimage

    # scipy.ndimage.binary_fill_holes is slower: it spreads voxel by voxel.
    in_plane = np.zeros((3, 3, 3), bool)
    in_plane[1] = ndimage.generate_binary_structure(2, 1)
    background = np.pad(~slices, ((0, 0), (1, 1), (1, 1)), constant_values=True)
    parts, _ = ndimage.label(background, in_plane)
    return (parts != parts[:, :1, :1])[:, 1:-1, 1:-1]
