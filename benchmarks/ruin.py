"""Ways to ruin a pair on purpose: what is done to the moving image, and to its labels, before it is registered."""

import numpy as np
import torch
from scipy.ndimage import affine_transform
from scipy.spatial.transform import Rotation
from torch import Tensor

CHANGES = ("inverted", "scaled", "wrong patient", "shifted", "flipped", "noise", "half blank", "turned", "tilted")
FLIPS_AND_TILTS = tuple(f"{name} {axis}" for name in ("flipped", "tilted") for axis in range(3))
"""Of volumes: along, or about, each axis."""
TILTS = 25.0, 30.0, 35.0
"""Degrees, chosen by the seed; every second one to the other side."""
MISPLACED = "tilted and moved"
EULER_DEGREES, MOVED = (20.0, 11.5, -17.0), (0.16, -0.08, 0.09)
"""What that does, the shift as parts of the sides of the image: 27 degrees, and 35 mm of a brain."""


def changed(change: str, moving: Tensor, labels: Tensor, other: tuple[Tensor, Tensor], seed: int):
    """(moving, its labels) after an intervention; `seed` chooses the axis, the angle and the noise."""
    name, _, given = change.partition(" ")
    if given.isdigit():
        return along(name, int(given), moving, labels, seed)
    match change:
        case "inverted":
            return moving.max() - moving, labels
        case "scaled":
            return 5 * moving + 2 * moving.max(), labels
        case "wrong patient":
            return other
        case "shifted":
            axis = seed % 2
            return tuple(shift(part, axis, part.shape[axis] // 3) for part in (moving, labels))
        case "flipped":
            return along(change, seed % 2, moving, labels, seed)
        case "tilted":
            return along(change, 2, moving, labels, seed)
        case "noise":
            return torch.rand(moving.shape, generator=torch.Generator().manual_seed(seed)), labels
        case "half blank":
            middle = int(labels.nonzero()[:, 0].double().mean())
            return torch.cat([torch.zeros_like(moving[:middle]), moving[middle:]]), labels
        case "turned":
            return turn(moving), turn(labels)
    if change == MISPLACED:
        return placed(moving, labels, Rotation.from_euler("xyz", EULER_DEGREES, degrees=True), MOVED)
    return moving, labels


def along(name: str, axis: int, moving: Tensor, labels: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    """(moving, its labels) flipped along an axis, or tilted about it; of a slice, within its plane."""
    if name == "flipped":
        return moving.flip(axis), labels.flip(axis)
    angle = TILTS[seed % len(TILTS)] * (-1) ** (seed // len(TILTS))
    return placed(moving, labels, Rotation.from_rotvec(np.radians(angle) * np.eye(3)[axis]))


def placed(moving: Tensor, labels: Tensor, rotation: Rotation, moved=(0.0, 0.0, 0.0)) -> tuple[Tensor, Tensor]:
    """(moving, its labels) turned about the middle of the image, in voxels, and moved; its least value comes in."""
    d = moving.dim()
    R, centre = rotation.as_matrix()[:d, :d], (np.array(moving.shape) - 1) / 2
    offset = centre - R @ centre + np.array(moved[:d]) * moving.shape
    image = affine_transform(moving.numpy(), R, offset, order=1, cval=float(moving.min()))
    return torch.from_numpy(image), torch.from_numpy(affine_transform(labels.numpy(), R, offset, order=0))


def shift(image: Tensor, axis: int, by: int) -> Tensor:
    """The image moved along an axis; zeros come in."""
    n = image.shape[axis]
    return torch.cat([torch.zeros_like(image.narrow(axis, 0, by)), image.narrow(axis, 0, n - by)], dim=axis)


def turn(image: Tensor) -> Tensor:
    """The middle square of the first two axes turned by 90°, on zeros."""
    side = min(image.shape[:2])
    box = tuple(slice((n - side) // 2, (n - side) // 2 + side) for n in image.shape[:2])
    out = torch.zeros_like(image)
    out[box] = torch.rot90(image[box], 1, (0, 1))
    return out
