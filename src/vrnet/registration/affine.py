"""The affine map from fixed to moving that has the greatest mutual information (Mattes), from coarse to fine.

The optimiser is SimpleITK's. It is given coordinates in which fixed lies about 0 with a root mean square of 1 along an
axis: there the entries of a matrix and of a shift move points equally far, and one length of step suits all of them.
Each refinement seeks a small map before the one that is known. Samples are seeded and added up by one thread, so that
results are the same to the bit on any number of cores.

A mask says where to look. What lies around it often moves alike and shows the way, and sometimes misleads: so a map is
sought twice, in the whole images and in what the masks leave of them. What is alike inside alone decides which is kept.
"""

from itertools import permutations, product
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from vrnet.errors import BadInput
from vrnet.images.affine import Affine, AffineKind
from vrnet.images.exchange import grid_of, to_sitk
from vrnet.images.grid import Grid
from vrnet.images.image import Image
from vrnet.images.intensity import rescale_images_jointly
from vrnet.images.itk_settings import one_thread
from vrnet.progress import Progress
from vrnet.registration.masks import ImageMasks

if TYPE_CHECKING:
    import SimpleITK as sitk

COARSEST_VOXELS = 28
"""About how many voxels the longest side of fixed has at the coarsest level."""
MAX_VOXELS = 1e6
"""A level of more voxels would cost time and gain nothing that can be measured."""
MIN_VOXELS_PER_AXIS = 4
SAMPLES, SEED, HISTOGRAM_BINS = 20_000, 1, 32
FIRST_STEP, LAST_STEP, ITERATIONS = 0.5, 0.002, 100
"""The steps of a refinement, in voxels of its level: from the first down to the last, or so many."""
SMALL_TURN = np.radians(25)
STARTS_REFINED = 6
MIN_SHARE = 0.2
"""A map that takes less of fixed into moving is none: by chance, little can be alike."""
MAX_VOXELS_OF_SHARE = 4000
"""By how many voxels inside a mask at most that share is measured."""
MIN_VOXELS_INSIDE = 100
"""Of fewer voxels inside a mask, any two are alike by chance."""
LEVELS_FROM_WHOLE = 2
"""At how many levels, the finest, a map of the whole images is refined inside the masks."""
NO_MASKS = ImageMasks()


score = attrgetter("score")


class Level(NamedTuple):
    """Both images at one coarseness, in the optimiser's coordinates."""

    fixed: "sitk.Image"
    moving: "sitk.Image"
    spacing: float
    inside: "sitk.Image | None" = None
    """The mask of fixed: where samples are taken."""


class Found(NamedTuple):
    """A map, and its mutual information times the share of fixed, inside its mask, that it takes into moving."""

    affine: Affine
    score: float


def find_affine(
    fixed: Image, moving: Image, kind: AffineKind, masks: ImageMasks = NO_MASKS, progress: Progress | None = None
) -> Affine:
    """The map from fixed to moving, wherever their headers put them, that has the greatest mutual information inside
    their masks."""
    masks = masks.without_full()
    if masks.fixed is None and masks.moving is not None:  # samples are taken where the mask is
        swapped = ImageMasks(fixed=masks.moving)
        return find_affine(moving, fixed, kind, swapped, progress).inverse().about(fixed.grid.centre)
    for image, mask in (fixed, masks.fixed), (moving, masks.moving):
        check_size(image, mask)
    unit, report = rms_distance(fixed.grid), progress or ignore
    with one_thread():  # the optimiser's own setting does not reach all of its parts
        whole, parts = make_levels(fixed, moving, unit), 1 if masks.fixed is None else 2
        found = search(whole, kind, lambda done: report(done / parts))
        if masks.fixed is not None:
            I0, I1 = masks.inpaint(fixed, moving)
            inside = make_levels(I0, I1, unit, masks.fixed)
            guided = descend(inside[-LEVELS_FROM_WHOLE:], found, kind)
            found = max(guided, search(inside, kind, lambda done: report((1 + done) / parts)), key=score)
    return Affine(kind, found.affine.matrix, found.affine.translation * unit, fixed.grid.centre)


def ignore(done: float) -> None:
    """Nobody asked for the progress."""


def check_size(image: Image, mask: Image | None) -> None:
    """BadInput if an image, or what is inside its mask, is too small to be aligned."""
    if min(image.grid.shape) < MIN_VOXELS_PER_AXIS:
        size = "x".join(map(str, image.grid.shape))
        needed = f"an affine start needs {MIN_VOXELS_PER_AXIS} voxels along each axis"
        raise BadInput(f"{image.name} is {size}: {needed}; leave `affine` out")
    if mask is not None and (count := np.count_nonzero(mask.array)) < MIN_VOXELS_INSIDE:
        needed = f"an affine start needs {MIN_VOXELS_INSIDE}"
        raise BadInput(f"{mask.name} has {count} voxels inside: {needed}; give a larger mask, or leave `affine` out")


def search(levels: list[Level], kind: AffineKind, progress: Progress) -> Found:
    """The best map from any start."""
    return descend(levels, best_start(levels[0]), kind, progress)


def descend(levels: list[Level], found: Found, kind: AffineKind, progress: Progress = ignore) -> Found:
    """A map, refined from level to level."""
    for done, level in enumerate(levels, start=1):
        found = refine(level, found.affine, kind)
        progress(done / len(levels))
    return found


def rms_distance(grid: Grid) -> float:
    """The root mean square, over the grid and the axes, of the distance from its centre along an axis."""
    return float(np.linalg.norm(np.multiply(grid.shape, grid.spacing)) / (12 * len(grid.shape)) ** 0.5)


def make_levels(fixed: Image, moving: Image, unit: float, mask: Image | None = None) -> list[Level]:
    """Both images, and the mask of fixed, from coarse to fine, about the centre of fixed, with lengths in a unit of
    millimetres."""
    centre, place = fixed.grid.centre, fixed.grid
    images = [to_optimiser(rescale_images_jointly(image)[0], centre, unit) for image in (fixed, moving)]
    images += [] if mask is None else [to_optimiser(mask.with_array(mask.array.astype(np.float32)), centre, unit)]
    spacings = [max(np.multiply(place.shape, place.spacing)) / COARSEST_VOXELS]
    while max(shrink_factors(place, spacings[-1])) > 1 and count_voxels(place, spacings[-1] / 2) < MAX_VOXELS:
        spacings.append(spacings[-1] / 2)
    levels: list[Level] = []
    for spacing in reversed(spacings):
        images = [shrink(image, spacing / unit) for image in images]
        levels.insert(0, Level(images[0], images[1], spacing / unit, *(part > 0 for part in images[2:])))
    return levels


def to_optimiser(image: Image, centre: Float[ndarray, " d"], unit: float) -> "sitk.Image":
    """The image about a centre, with lengths in a unit of millimetres."""
    grid, origin = image.grid, (np.array(image.grid.origin) - centre) / unit
    place = Grid(grid.shape, tuple(h / unit for h in grid.spacing), tuple(origin.tolist()), grid.direction)
    return to_sitk(image.array, place)


def shrink(image: "sitk.Image", spacing: float) -> "sitk.Image":
    """The image at about this spacing, by means over blocks of voxels."""
    import SimpleITK as sitk

    return sitk.BinShrink(image, shrink_factors(grid_of(image), spacing))


def shrink_factors(grid: Grid, spacing: float) -> list[int]:
    """How many voxels become one along each axis: 1 where they are that coarse, as in thick slices, or few."""
    sides = zip(grid.shape, grid.spacing, strict=True)
    return [max(1, min(round(spacing / h), n // MIN_VOXELS_PER_AXIS)) for n, h in sides]


def count_voxels(grid: Grid, spacing: float) -> int:
    """How many voxels an image on this grid has at about this spacing."""
    return int(np.prod(np.floor_divide(grid.shape, shrink_factors(grid, spacing))))


def best_start(level: Level) -> Found:
    """The best rigid map from any start: the most promising of them are refined."""
    starts = sorted((measure(level, start) for start in possible_starts(level)), key=score, reverse=True)
    return max((refine(level, start.affine, "rigid") for start in starts[:STARTS_REFINED]), key=score)


def possible_starts(level: Level) -> list[Affine]:
    """As the headers say, centre on centre, and centre of mass on centre of mass: each as it is, and turned."""
    origin = np.zeros(level.fixed.GetDimension())
    shifts = (origin, origin), (origin, grid_of(level.moving).centre), tuple(map(centre_of_mass, level[:2]))
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
    if level.inside is not None:
        made.SetMetricFixedMask(level.inside)
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
        return Found(affine, -share * optimiser.MetricEvaluate(level.fixed, level.moving) if share > MIN_SHARE else 0.0)
    except RuntimeError:  # as good as nothing of fixed is taken into moving
        return Found(affine, 0.0)


def share_inside(level: Level, affine: Affine) -> float:
    """The share of fixed, out of some of its voxels, that a map takes into moving."""
    fixed, moving = grid_of(level.fixed), grid_of(level.moving)
    index = moving.index(affine.points(fixed.points(some_voxels(level))))
    reached = ((index > -0.5) & (index < np.array(moving.shape) - 0.5)).all(1)
    return float(reached.mean()) if len(index) else 0.0


def some_voxels(level: Level) -> Float[ndarray, "n d"]:
    """Indices of voxels of fixed: a lattice of them, or some inside its mask."""
    import SimpleITK as sitk

    if level.inside is None:
        return grid_of(level.fixed).lattice()
    inside = np.argwhere(sitk.GetArrayViewFromImage(level.inside).T).astype(np.float64)
    return inside[:: 1 + len(inside) // MAX_VOXELS_OF_SHARE]


def count_inside(level: Level) -> int:
    """How many voxels of fixed samples can be taken from: inside its mask, or all."""
    import SimpleITK as sitk

    if level.inside is None:
        return int(level.fixed.GetNumberOfPixels())
    return max(1, int(np.count_nonzero(sitk.GetArrayViewFromImage(level.inside))))


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
