"""The affine map from fixed to moving that has the greatest mutual information (Mattes), from coarse to fine.

The optimiser is SimpleITK's. It is given coordinates in which fixed lies about 0 with a root mean square of 1 along an
axis: there the entries of a matrix and of a shift move points equally far, and one length of step suits all of them.
Each refinement seeks a small map before the one that is known. Samples are seeded and added up by one thread, so that
results are the same to the bit on any number of cores.

A mask says where to look. What lies around it often moves alike and shows the way, and sometimes misleads: so a map is
sought twice, in the whole images and in what the masks leave of them. The second is kept if images are plainly more
alike by it inside.
"""

from itertools import permutations, product
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from vrnet.errors import BadInput
from vrnet.images.affine import Affine, AffineKind
from vrnet.images.exchange import grid_of
from vrnet.images.image import Image
from vrnet.images.itk_settings import one_thread
from vrnet.progress import Progress
from vrnet.registration.affine_levels import (
    MIN_VOXELS_PER_AXIS,
    NO_MASKS,
    Level,
    count_inside,
    make_levels,
    rms_distance,
    some_voxels,
)
from vrnet.registration.masks import ImageMasks
from vrnet.wording import shape_text

if TYPE_CHECKING:
    import SimpleITK as sitk

SAMPLES, SEED, HISTOGRAM_BINS = 20_000, 1, 32
FIRST_STEP, LAST_STEP, ITERATIONS = 0.5, 0.002, 100
"""The steps of a refinement, in voxels of its level: from the first down to the last, or so many."""
SMALL_TURN = np.radians(25)
STARTS_REFINED = 6
MIN_SHARE = 0.2
"""A map that takes less of fixed into moving is none: by chance, little can be alike."""
MIN_VOXELS_INSIDE = 100
"""Fewer voxels inside a mask are alike by chance, whatever the map."""
MIN_SAMPLES = 500
"""A level with fewer voxels inside a mask is too coarse to seek a map in it."""
PLAINLY_BETTER = 1.1
"""By what factor a map must have a greater score inside the masks than that of the whole images has there."""


score = attrgetter("score")


class Found(NamedTuple):
    """A map, and its mutual information times the share of fixed that it takes into moving, both inside their masks."""

    affine: Affine
    score: float


def find_affine(
    fixed: Image, moving: Image, kind: AffineKind, masks: ImageMasks = NO_MASKS, progress: Progress | None = None
) -> Affine:
    """The map from fixed to moving, wherever their headers put them: of the whole images, unless inside their masks
    another is plainly better."""
    masks, report = masks.without_full(), progress or ignore
    for image, mask in (fixed, masks.fixed), (moving, masks.moving):
        check_size(image, mask)
    with one_thread():  # the optimiser's own setting does not reach all of its parts
        if masks.fixed is None and masks.moving is None:
            return find_whole(fixed, moving, kind, report)
        whole = find_whole(fixed, moving, kind, lambda done: report(done / 2))
        return find_better_inside(fixed, moving, masks, whole, lambda done: report((1 + done) / 2)) or whole


def find_whole(fixed: Image, moving: Image, kind: AffineKind, progress: Progress) -> Affine:
    """The map by which the whole images are most alike."""
    unit = rms_distance(fixed.grid)
    found = search(make_levels(fixed, moving, unit), kind, progress)
    return in_world(found.affine, kind, unit, fixed.grid.centre)


def find_better_inside(
    fixed: Image, moving: Image, masks: ImageMasks, whole: Affine, progress: Progress
) -> Affine | None:
    """A map by which images are plainly more alike inside their masks than by that of the whole images, if there is
    one."""
    if masks.fixed is None:  # samples are taken where the mask is
        swapped = ImageMasks(fixed=masks.moving)
        found = find_better_inside(moving, fixed, swapped, whole.inverse(), progress)
        return found and found.inverse().about(fixed.grid.centre)
    unit, centre = rms_distance(fixed.grid), fixed.grid.centre
    *coarser, finest = make_levels(fixed, moving, unit, masks)
    inside = search([*(each for each in coarser if count_inside(each) >= MIN_SAMPLES), finest], whole.kind, progress)
    is_better = inside.score > PLAINLY_BETTER * measure(finest, in_optimiser(whole, unit, centre)).score
    return in_world(inside.affine, whole.kind, unit, centre) if is_better else None


def in_world(affine: Affine, kind: AffineKind, unit: float, centre: Float[ndarray, " d"]) -> Affine:
    """A map of the optimiser's coordinates, whose lengths are in a unit of millimetres, as one of the world's."""
    return Affine(kind, affine.matrix, affine.translation * unit, centre)


def in_optimiser(affine: Affine, unit: float, centre: Float[ndarray, " d"]) -> Affine:
    """The inverse of `in_world`."""
    return Affine(affine.kind, affine.matrix, affine.about(centre).translation / unit, np.zeros(len(centre)))


def ignore(done: float) -> None:
    """Nobody asked for the progress."""


def check_size(image: Image, mask: Image | None) -> None:
    """BadInput if an image, or what is inside its mask, is too small to be aligned."""
    if min(image.grid.shape) < MIN_VOXELS_PER_AXIS:
        size = shape_text(image.grid.shape)
        needed = f"an affine start needs {MIN_VOXELS_PER_AXIS} voxels along each axis"
        raise BadInput(f"{image.name} is {size}: {needed}; leave `affine` out")
    if mask is not None and (count := np.count_nonzero(mask.array)) < MIN_VOXELS_INSIDE:
        needed = f"an affine start needs {MIN_VOXELS_INSIDE}"
        raise BadInput(f"{mask.name} has {count} voxels inside: {needed}; give a larger mask, or leave `affine` out")


def search(levels: list[Level], kind: AffineKind, progress: Progress) -> Found:
    """The best map from any start, refined from level to level."""
    found = best_start(levels[0])
    for done, level in enumerate(levels, start=1):
        found = refine(level, found.affine, kind)
        progress(done / len(levels))
    return found


def best_start(level: Level) -> Found:
    """The best rigid map from any start: the most promising of them are refined."""
    starts = sorted((measure(level, start) for start in possible_starts(level)), key=score, reverse=True)
    return max((refine(level, start.affine, "rigid") for start in starts[:STARTS_REFINED]), key=score)


def possible_starts(level: Level) -> list[Affine]:
    """As the headers say, centre on centre, centre of mass on centre of mass, and mask on mask: each as it is, and
    turned."""
    origin = np.zeros(level.fixed.GetDimension())
    shifts = [(origin, origin), (origin, grid_of(level.moving).centre)]
    shifts += [(centre_of_mass(level.fixed), centre_of_mass(level.moving))]
    if level.fixed_mask is not None and level.moving_mask is not None:
        shifts += [(centre_of_mass(level.fixed_mask), centre_of_mass(level.moving_mask))]
    turns = all_turns(len(origin))
    return [Affine("rigid", R, target - R @ pivot, origin) for R in turns for pivot, target in shifts]


def centre_of_mass(image: "sitk.Image") -> Float[ndarray, " d"]:
    """The mean place of the voxels, weighted by their intensities in [0, 1]."""
    import SimpleITK as sitk

    weights = sitk.GetArrayFromImage(image).T.astype(np.float64)
    index = np.average(np.indices(weights.shape).reshape(weights.ndim, -1), axis=1, weights=weights.ravel())
    return grid_of(image).points(index[None])[0]


def all_turns(d: int) -> list[Float[ndarray, "d d"]]:
    """The rotations of starts: none; small ones about every axis; and those that take axes to axes."""
    planes = [(i, j) for i in range(d) for j in range(d) if i != j]
    return [np.eye(d), *(small_turn(d, i, j) for i, j in planes), *axis_turns(d)]


def small_turn(d: int, i: int, j: int) -> Float[ndarray, "d d"]:
    """The rotation by a small angle that turns axis i towards axis j."""
    R = np.eye(d)
    R[[i, j], [i, j]], R[j, i], R[i, j] = np.cos(SMALL_TURN), np.sin(SMALL_TURN), -np.sin(SMALL_TURN)
    return R


def axis_turns(d: int) -> list[Float[ndarray, "d d"]]:
    """The rotations, but for none, that take every axis to an axis: headers may have lost how an image lies."""
    signs = [np.diag(sign) for sign in product((1.0, -1.0), repeat=d)]
    turns = [sign @ np.eye(d)[list(order)] for order in permutations(range(d)) for sign in signs]
    return [R for R in turns if np.linalg.det(R) > 0 and not np.array_equal(R, np.eye(d))]


def mutual_information(level: Level, start: Affine) -> "sitk.ImageRegistrationMethod":
    """An optimiser of what is seen through a start: of maps x ↦ start(map(x)), at seeded samples of fixed."""
    import SimpleITK as sitk

    made = sitk.ImageRegistrationMethod()
    made.SetMetricAsMattesMutualInformation(HISTOGRAM_BINS)
    made.SetMetricSamplingStrategy(made.RANDOM)
    made.SetMetricSamplingPercentage(min(1.0, SAMPLES / count_inside(level)), SEED)
    if level.fixed_mask is not None:
        made.SetMetricFixedMask(level.fixed_mask)
    made.SetInterpolator(sitk.sitkLinear)
    made.SetMovingInitialTransform(start.itk)
    return made


def measure(level: Level, affine: Affine) -> Found:
    """A map with its score."""
    import SimpleITK as sitk

    optimiser = mutual_information(level, affine)
    optimiser.SetInitialTransform(sitk.Transform(len(affine.centre), sitk.sitkIdentity))
    share = share_inside(level, affine)
    try:
        return Found(affine, -share * optimiser.MetricEvaluate(level.fixed, level.moving) if share else 0.0)
    except RuntimeError:  # as good as nothing of fixed is taken into moving
        return Found(affine, 0.0)


def share_inside(level: Level, affine: Affine) -> float:
    """The share of fixed, out of some of its voxels, that a map takes into moving, and there into its mask; 0 if it
    takes too little of it into moving."""
    import SimpleITK as sitk

    fixed, moving = grid_of(level.fixed), grid_of(level.moving)
    index = moving.index(affine.points(fixed.points(some_voxels(level))))
    reached = index[((index > -0.5) & (index < np.array(moving.shape) - 0.5)).all(1)]
    if len(reached) <= MIN_SHARE * len(index):
        return 0.0
    if level.moving_mask is None:
        return len(reached) / len(index)
    mask = sitk.GetArrayViewFromImage(level.moving_mask).T
    return float(mask[tuple(np.round(reached).astype(int).T)].sum() / len(index))


def refine(level: Level, start: Affine, kind: AffineKind) -> Found:
    """The better of a start, and what gradient descent finds from there."""
    import SimpleITK as sitk

    d, before = len(start.centre), measure(level, start)
    rigid = sitk.Euler2DTransform if d == 2 else sitk.Euler3DTransform
    change = rigid() if kind == "rigid" else sitk.AffineTransform(d)
    optimiser = mutual_information(level, start)
    steps = FIRST_STEP * level.spacing, LAST_STEP * level.spacing
    optimiser.SetOptimizerAsRegularStepGradientDescent(*steps, ITERATIONS)
    optimiser.SetInitialTransform(change, True)
    try:
        optimiser.Execute(level.fixed, level.moving)
    except RuntimeError:  # as good as nothing of fixed is taken into moving
        return before
    matrix = np.reshape(change.GetMatrix(), (d, d))
    found = start.compose(Affine(kind, matrix, np.array(change.GetTranslation()), start.centre))
    return max(before, measure(level, found), key=score)
