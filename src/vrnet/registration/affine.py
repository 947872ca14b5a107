"""The affine map from fixed to moving that has the greatest mutual information (Mattes), from coarse to fine.

SimpleITK's optimiser is given coordinates in which fixed lies about 0 with a root mean square of 1 along an axis: there
the entries of a matrix and of a shift move points equally far. Each refinement seeks a small map before the known one.
Samples are seeded and added up by one thread, so that results are the same to the bit on any machine.

What lies around a mask often shows the way, and sometimes misleads: so a map is sought in whole images and in masks."""

from itertools import permutations, product
from operator import itemgetter
from typing import NamedTuple

import numpy as np
import SimpleITK as sitk
from jaxtyping import Float
from numpy import ndarray

from vrnet.errors import BadInput, Progress, shape_text
from vrnet.images.grid import Affine, AffineKind, Grid
from vrnet.images.image import Image, grid_of, rescale_images_jointly, to_sitk
from vrnet.images.resample import one_thread
from vrnet.registration.masks import PairMasks, inpaint_image

COARSEST_VOXELS = 28  # about how many voxels the longest side of fixed has at the coarsest level
MAX_VOXELS = 1e6  # a level of more voxels would cost time and gain nothing that can be measured
MIN_VOXELS_PER_AXIS = 4
MAX_VOXELS_OF_SHARE = 4000  # how many voxels inside a mask are looked at, at most, where some will do
NO_MASKS: PairMasks[Image] = PairMasks()


class Level(NamedTuple):
    """Both images at one coarseness, in the optimiser's coordinates; a mask of None is everywhere."""

    fixed: sitk.Image
    moving: sitk.Image
    spacing: float
    fixed_mask: sitk.Image | None = None
    moving_mask: sitk.Image | None = None


def coordinates(grid: Grid) -> tuple[float, Float[ndarray, " d"]]:
    """(unit in mm, centre) of the optimiser's coordinates, in which fixed has a root mean square of 1 along an axis."""
    return float(np.linalg.norm(np.multiply(grid.shape, grid.spacing))) / (12 * len(grid.shape)) ** 0.5, grid.centre


def make_levels(fixed: Image, moving: Image, masks: PairMasks[Image] = NO_MASKS) -> list[Level]:
    """Both images, without what lies outside their masks, from coarse to fine; a voxel is inside if any part is."""
    unit, centre = coordinates(fixed.grid)

    def to_optimiser(image: Image) -> sitk.Image:
        grid, origin = image.grid, (np.array(image.grid.origin) - centre) / unit
        spacing = tuple(h / unit for h in grid.spacing)
        return to_sitk(image.array, Grid(grid.shape, spacing, tuple(origin.tolist()), grid.direction))

    images = [rescale_images_jointly(image)[0] for image in masks.apply(inpaint_image, fixed, moving)]
    given = [mask and mask.with_array(mask.array.astype(np.float32)) for mask in (masks.fixed, masks.moving)]
    parts = [image and to_optimiser(image) for image in (*images, *given)]
    place, spacing = fixed.grid, max(np.multiply(fixed.grid.shape, fixed.grid.spacing)) / COARSEST_VOXELS
    spacings = [spacing]
    while max(shrink_factors(place, spacing)) > 1:
        spacing /= 2
        if np.prod(np.floor_divide(place.shape, shrink_factors(place, spacing))) >= MAX_VOXELS:
            break
        spacings.append(spacing)
    levels: list[Level] = []
    for spacing in reversed(spacings):
        parts = [part and sitk.BinShrink(part, shrink_factors(grid_of(part), spacing / unit)) for part in parts]
        inside = (part and sitk.Greater(part, 0) for part in parts[2:])
        levels.insert(0, Level(parts[0], parts[1], spacing / unit, *inside))
    return levels


def shrink_factors(grid: Grid, spacing: float) -> list[int]:
    """How many voxels become one along each axis: 1 where they are that coarse, as in thick slices, or few."""
    sides = zip(grid.shape, grid.spacing, strict=True)
    return [max(1, min(round(spacing / h), n // MIN_VOXELS_PER_AXIS)) for n, h in sides]


def count_inside(level: Level) -> int:
    """How many voxels of fixed samples can be taken from: inside its mask, or all."""
    mask = level.fixed_mask
    count = level.fixed.GetNumberOfPixels() if mask is None else np.count_nonzero(sitk.GetArrayViewFromImage(mask))
    return max(1, int(count))


SAMPLES, SEED, HISTOGRAM_BINS = 20_000, 1, 32
FIRST_STEP, LAST_STEP, ITERATIONS = 0.5, 0.002, 100  # of a refinement, in voxels of its level
SMALL_TURN = np.radians(25)
STARTS_REFINED = 6
MIN_SHARE = 0.2  # a map that takes less of fixed into moving is none: by chance, little can be alike
MIN_VOXELS_INSIDE = 100  # fewer voxels inside a mask are alike by chance, whatever the map
MIN_SAMPLES = 500  # a level with fewer voxels inside a mask is too coarse to seek a map in it
PLAINLY_BETTER = 1.1  # how many times greater the score of a map inside the masks must be than that of the whole's


Found = tuple[float, Affine]  # a map, after its score: mutual information times the share of fixed that it takes inside
SCORE = itemgetter(0)


def find_affine(
    fixed: Image, moving: Image, kind: AffineKind, masks: PairMasks[Image] = NO_MASKS,
    progress: Progress = lambda done: None,
) -> Affine:  # fmt: skip
    """The map from fixed to moving, of the whole images, unless inside their masks another is plainly better."""
    given = [None if mask is None or mask.array.all() else mask for mask in (masks.fixed, masks.moving)]
    for image, mask in zip((fixed, moving), given, strict=True):
        if min(image.grid.shape) < MIN_VOXELS_PER_AXIS:
            needed = f"an affine start needs {MIN_VOXELS_PER_AXIS} voxels along each axis; leave `affine` out"
            raise BadInput(f"{image.name} is {shape_text(image.grid.shape)}: {needed}")
        if mask is not None and (count := np.count_nonzero(mask.array)) < MIN_VOXELS_INSIDE:
            needed = f"an affine start needs {MIN_VOXELS_INSIDE}; give a larger mask, or leave `affine` out"
            raise BadInput(f"{mask.name} has {count} voxels inside: {needed}")
    masks = PairMasks(*given)
    parts = 1 if masks.is_everywhere else 2
    with one_thread():  # the optimiser's own setting does not reach all of its parts
        _, found = search(make_levels(fixed, moving), kind, lambda done: progress(done / parts))
        whole = in_world(found, kind, fixed.grid)
        if masks.is_everywhere:
            return whole
        return find_better_inside(fixed, moving, masks, whole, lambda done: progress((1 + done) / 2)) or whole


def find_better_inside(
    fixed: Image, moving: Image, masks: PairMasks[Image], whole: Affine, progress: Progress
) -> Affine | None:
    """A map by which images are plainly more alike inside their masks than by that of the whole, if there is one."""
    if masks.fixed is None:  # samples are taken where the mask is
        swapped = PairMasks(fixed=masks.moving)
        found = find_better_inside(moving, fixed, swapped, whole.inverse(), progress)
        return found and found.inverse().about(fixed.grid.centre)
    unit, centre = coordinates(fixed.grid)
    *coarser, finest = make_levels(fixed, moving, masks)
    fine_enough = [*(level for level in coarser if count_inside(level) >= MIN_SAMPLES), finest]
    score, found = search(fine_enough, whole.kind, progress)
    shift = whole.about(centre).translation / unit
    score_of_whole, _ = measure(finest, Affine(whole.kind, whole.matrix, shift, np.zeros(len(centre))))
    return in_world(found, whole.kind, fixed.grid) if score > PLAINLY_BETTER * score_of_whole else None


def in_world(affine: Affine, kind: AffineKind, grid: Grid) -> Affine:
    """A map of the optimiser's coordinates, those of this grid, as one of the world's."""
    unit, centre = coordinates(grid)
    return Affine(kind, affine.matrix, affine.translation * unit, centre)


def search(levels: list[Level], kind: AffineKind, progress: Progress) -> Found:
    """The best map: rigid from the most promising starts at the coarsest level, then refined from level to level."""
    starts = sorted((measure(levels[0], start) for start in possible_starts(levels[0])), key=SCORE, reverse=True)
    found = max((refine(levels[0], start, "rigid") for _, start in starts[:STARTS_REFINED]), key=SCORE)
    for done, level in enumerate(levels, start=1):
        found = refine(level, found[1], kind)
        progress(done / len(levels))
    return found


def possible_starts(level: Level) -> list[Affine]:
    """As the headers say, centre on centre, centre of mass on centre of mass, and mask on mask: each as it is; turned a
    little about every axis; and turned so that axes come to axes, since headers may have lost how an image lies."""
    d = level.fixed.GetDimension()
    origin = np.zeros(d)
    shifts = [(origin, origin), (origin, grid_of(level.moving).centre)]
    shifts += [(centre_of_mass(level.fixed), centre_of_mass(level.moving))]
    if level.fixed_mask is not None and level.moving_mask is not None:
        shifts += [(centre_of_mass(level.fixed_mask), centre_of_mass(level.moving_mask))]

    rotations = [np.eye(d)]
    for i, j in permutations(range(d), 2):
        R = np.eye(d)
        R[[i, j], [i, j]], R[j, i], R[i, j] = np.cos(SMALL_TURN), np.sin(SMALL_TURN), -np.sin(SMALL_TURN)
        rotations.append(R)
    for order, sign in product(permutations(range(d)), product((1.0, -1.0), repeat=d)):
        R = np.diag(sign) @ np.eye(d)[list(order)]
        if np.linalg.det(R) > 0 and not np.array_equal(R, np.eye(d)):
            rotations.append(R)
    return [Affine("rigid", R, target - R @ pivot, origin) for R in rotations for pivot, target in shifts]


def centre_of_mass(image: sitk.Image) -> Float[ndarray, " d"]:
    weights = sitk.GetArrayFromImage(image).T.astype(np.float64)
    index = np.average(np.indices(weights.shape).reshape(weights.ndim, -1), axis=1, weights=weights.ravel())
    return grid_of(image).points(index[None])[0]


def make_optimiser(level: Level, start: Affine) -> sitk.ImageRegistrationMethod:
    """An optimiser of what is seen through a start: of maps x ↦ start(map(x)), at seeded samples of fixed."""
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
    """A map with its score; 0 if it takes too little of fixed into moving."""
    fixed, moving = grid_of(level.fixed), grid_of(level.moving)
    places = fixed.lattice()
    if level.fixed_mask is not None:
        inside = np.argwhere(sitk.GetArrayViewFromImage(level.fixed_mask).T).astype(np.float64)
        places = inside[:: 1 + len(inside) // MAX_VOXELS_OF_SHARE]
    index = moving.index(affine.points(fixed.points(places)))
    reached = index[((index > -0.5) & (index < np.array(moving.shape) - 0.5)).all(1)]
    count = float(len(reached))
    if level.moving_mask is not None:
        mask = sitk.GetArrayViewFromImage(level.moving_mask).T
        count = float(mask[tuple(np.round(reached).astype(int).T)].sum())
    if len(reached) <= MIN_SHARE * len(index) or not count:
        return 0.0, affine
    optimiser = make_optimiser(level, affine)
    optimiser.SetInitialTransform(sitk.Transform(len(affine.centre), sitk.sitkIdentity))
    try:
        return -count / len(index) * optimiser.MetricEvaluate(level.fixed, level.moving), affine
    except RuntimeError:  # hardly any voxel of fixed is taken into moving
        return 0.0, affine


def refine(level: Level, start: Affine, kind: AffineKind) -> Found:
    """The better of a start, and what gradient descent finds from there."""
    d, before, optimiser = len(start.centre), measure(level, start), make_optimiser(level, start)
    rigid = sitk.Euler2DTransform if d == 2 else sitk.Euler3DTransform
    change = rigid() if kind == "rigid" else sitk.AffineTransform(d)
    first, last = FIRST_STEP * level.spacing, LAST_STEP * level.spacing
    optimiser.SetOptimizerAsRegularStepGradientDescent(first, last, ITERATIONS)
    optimiser.SetInitialTransform(change, True)
    try:
        optimiser.Execute(level.fixed, level.moving)
    except RuntimeError:  # hardly any voxel of fixed is taken into moving
        return before
    matrix = np.reshape(change.GetMatrix(), (d, d))
    found = start.compose(Affine(kind, matrix, np.array(change.GetTranslation()), start.centre))
    return max(before, measure(level, found), key=SCORE)
