"""Beating-heart phantoms: end-diastole I0, end-systole I1, and the exact u with I1(x + u(x)) = I0(x).

The anatomy A is a function of end-diastolic position, the motion φ = id + u a map in closed form. The images are
I0 = A and I1 = A ∘ φ⁻¹ on one grid, then blurred and made noisy; no voxel is ever warped. A 2D phantom is a cut of a 3D
one across the long axis, without the motion along it.
"""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from vrnet.images.intensity import rescale_jointly
from vrnet.phantom.anatomy import Chest, RandomSource
from vrnet.phantom.motion import Motion
from vrnet.phantom.scanner import Scanner


@dataclass(frozen=True)
class Phantom:
    """A pair on one grid: fixed is end-diastole (I0), moving is end-systole (I1).

    The images share one scaling to [0, 1]; labels are 0 background, 1 RV, 2 Myo, 3 LV. What lies at x in fixed lies at
    x + field(x), in voxels, in moving. The spacing is in mm."""

    fixed: Float[Tensor, "1 1 *s"]
    moving: Float[Tensor, "1 1 *s"]
    fixed_labels: UInt8[Tensor, "1 1 *s"]
    moving_labels: UInt8[Tensor, "1 1 *s"]
    field: Float[Tensor, "1 d *s"]
    spacing: tuple[float, ...]


def phantom(seed: int, shape: tuple[int, ...] = (160, 160), spacing: float = 1.8) -> Phantom:
    """The patient of this seed, on a grid of any shape and spacing in mm; a third axis runs from base to apex."""
    random, d = RandomSource.seeded(seed), len(shape)
    chest = Chest.draw(random)
    heart, motion = chest.heart, Motion.draw(chest.heart, random)
    if d == 2:  # tissue would leave the plane
        motion = replace(motion, descent=0.0)
    x = voxel_positions(shape, (spacing,) * d, level=heart.belly + random.uniform(-8.0, 16.0))
    origin = heart.to_picture(motion.inverse(heart.to_heart(x)))
    scanner = Scanner.draw(random)
    I0, I1 = (scanner.image(chest.brightness(p), x) for p in (x, origin))
    I0, I1 = rescale_jointly(I0, I1)
    return Phantom(
        fixed=I0[None, None],
        moving=I1[None, None],
        fixed_labels=heart.labels(heart.to_heart(x))[None, None],
        moving_labels=heart.labels(heart.to_heart(origin))[None, None],
        field=(heart.to_picture(motion.forward(heart.to_heart(x))) - x)[None, :d] / spacing,
        spacing=(spacing,) * d,
    )


def voxel_positions(shape: tuple[int, ...], spacing: tuple[float, ...], level: float) -> Float[Tensor, "3 *s"]:
    """Position of each voxel in mm from the middle of the grid; a 2D grid lies across the long axis at a level."""
    axes = [(torch.arange(n, dtype=torch.float32) - (n - 1) / 2) * h for n, h in zip(shape, spacing, strict=True)]
    p = torch.stack(torch.meshgrid(*axes, indexing="ij"))
    return torch.cat([p, p.new_full((3 - len(shape), *shape), level)])
