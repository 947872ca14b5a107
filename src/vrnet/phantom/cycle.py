"""A whole cardiac cycle: frames I_t, and the exact u_t with I_t(x + u_t(x)) = I_0(x).

The anatomy A is a function of end-diastolic position, the motion φ_t a map in closed form: I_t = A ∘ φ_t⁻¹, then
blurred and made noisy. A stack has its slices across the last axis, from base to apex; unless it is asked to move
through the planes, tissue stays in its slice.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import prod

import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from vrnet.errors import BadInput
from vrnet.images.intensity import rescale_jointly
from vrnet.phantom.anatomy import Chest, Heart, RandomSource
from vrnet.phantom.motion import Motion
from vrnet.phantom.pair import voxel_positions
from vrnet.phantom.pathology import Infarct, Pathology, find_pathology
from vrnet.phantom.rhythm import Rhythm
from vrnet.phantom.scanner import Scanner
from vrnet.phantom.truth import ExactStrain, ExactVolumes, exact_strain, volumes_of_frame

ANTERIOR_SEGMENTS = (1, 2, 7, 8, 13, 14)
"""What the left anterior descending artery supplies."""


@dataclass(frozen=True)
class Cycle:
    """Frames of one beat on one grid; frame 0, end-diastole, is the reference.

    Frames share one scaling to [0, 1]; labels are 0 background, 1 RV, 2 Myo, 3 LV. What lies at x in the reference lies
    at x + u(x) in frame t, u being fields[t], in voxels. The spacing is in mm, times are in ms from the reference."""

    frames: Float[Tensor, "t *s"]
    labels: UInt8[Tensor, "*s"]
    frame_labels: UInt8[Tensor, "t *s"]
    fields: Float[Tensor, "t d *s"]
    spacing: tuple[float, ...]
    times_ms: tuple[float, ...]
    strain: ExactStrain
    volumes: ExactVolumes

    @property
    def end_systole(self) -> int:
        """The frame at which the LV is smallest."""
        return int(self.volumes.lv_ml.argmin())


def cycle(
    seed: int,
    shape: tuple[int, ...] = (128, 128),
    spacing: tuple[float, ...] = (1.4, 1.4),
    pathology: str = "normal",
    *,
    frames: int = 30,
    heart_rate: float = 65.0,
    through_plane: bool = False,
    infarct: Iterable[int] = ANTERIOR_SEGMENTS,
) -> Cycle:
    """The beat of the patient of this seed: one slice across the long axis, or a stack such as (128, 128, 10) voxels of
    (1.4, 1.4, 8) mm.

    `infarct` are the AHA segments that move less if the pathology is an infarct. With `through_plane` the valves
    descend and the heart shortens along its axis, through the slices of a stack."""
    check_request(shape, spacing, frames, through_plane)
    random, rhythm, is_stack = RandomSource.seeded(seed), Rhythm.at(heart_rate), len(shape) == 3
    chest, suffered = Chest.draw(random), find_pathology(pathology)
    motion = draw_motion(suffered, random, tuple(infarct), is_stack, through_plane)
    chest = replace(chest, heart=motion.heart)
    x = voxel_positions(shape, spacing, level=motion.heart.belly + random.uniform(-8.0, 16.0))
    times = tuple(rhythm.cycle * t / frames for t in range(frames))
    beat = [motion.part_way(rhythm.contraction(t), rhythm.torsion(t)) for t in times]
    return film(chest, beat, Scanner.draw(random), x, spacing, times)


def check_request(shape: tuple[int, ...], spacing: tuple[float, ...], frames: int, through_plane: bool) -> None:
    """BadInput if there is no such cycle."""
    if len(shape) not in (2, 3) or len(spacing) != len(shape):
        raise BadInput("a cycle is a slice or a stack: give two or three numbers as `shape`, and as many as `spacing`")
    if frames < 2:
        raise BadInput("a cycle has at least two frames: give more `frames`")
    if through_plane and len(shape) == 2:
        raise BadInput("a single slice shows nothing of motion `through_plane`: give the `shape` of a stack")


def draw_motion(
    pathology: Pathology, random: RandomSource, infarct: tuple[int, ...], is_stack: bool, through_plane: bool
) -> Motion:
    """The motion from end-diastole to end-systole, with its heart."""
    motion = pathology.draw(random, through_plane)
    if pathology.remaining is None:
        return motion
    scar = Infarct.of(motion.heart, infarct, random.uniform(*pathology.remaining), is_stack)
    return replace(motion, contractility=scar)


def film(
    chest: Chest,
    beat: list[Motion],
    scanner: Scanner,
    x: Float[Tensor, "3 *s"],
    spacing: tuple[float, ...],
    times_ms: tuple[float, ...],
) -> Cycle:
    """The motions of a beat, seen on the grid x."""
    heart, d = chest.heart, len(spacing)
    p, levels = heart.to_heart(x), x[2, 0, 0].reshape(-1)
    origins = [motion.inverse(p) for motion in beat]
    labels = torch.stack([heart.labels(origin) for origin in origins])
    images = [scanner.image(chest.brightness(heart.to_picture(origin)), x) for origin in origins]
    edges = torch.tensor(spacing).view(-1, *[1] * d)
    moved = [(heart.to_picture(motion.forward(p)) - x)[:d] / edges for motion in beat]
    return Cycle(
        frames=torch.stack(rescale_jointly(*images)),
        labels=labels[0],
        frame_labels=labels,
        fields=torch.stack(moved),
        spacing=spacing,
        times_ms=times_ms,
        strain=exact_strain(beat, p, labels[0], levels),
        volumes=exact_volumes(heart, origins, spacing),
    )


def exact_volumes(heart: Heart, origins: list[Float[Tensor, "3 *s"]], spacing: tuple[float, ...]) -> ExactVolumes:
    """Volumes at every frame; a single slice counts as 1 mm thick."""
    voxel_ml = prod(spacing) / 1000
    found = [volumes_of_frame(heart, origin, voxel_ml) for origin in origins]
    return ExactVolumes(*(torch.tensor(values) for values in zip(*found, strict=True)))
