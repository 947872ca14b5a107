"""The affine map from fixed to moving that has the greatest mutual information (Mattes), from coarse to fine.

The optimiser is SimpleITK's. It is given coordinates in which fixed lies about 0 with a root mean square of 1 along an
axis: there the entries of a matrix and of a shift move points equally far, and one length of step suits all of them.
Each refinement seeks a small map before the one that is known. Samples are seeded and added up by one thread, so that
results are the same to the bit on any number of cores.
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


score = attrgetter("score")


class Level(NamedTuple):
    """Both images at one coarseness, in the optimiser's coordinates."""

    fixed: "sitk.Image"
    moving: "sitk.Image"
    spacing: float


class Found(NamedTuple):
    """A map, and its mutual information times the share of fixed that it takes into moving."""

    affine: Affine
    score: float


def find_affine(fixed: Image, moving: Image, kind: AffineKind, progress: Progress | None = None) -> Affine:
    """The map from fixed to moving, wherever their headers put them."""
    for image in (fixed, moving):
        if min(image.grid.shape) < MIN_VOXELS_PER_AXIS:
            size = "x".join(map(str, image.grid.shape))
            needed = f"an affine start needs {MIN_VOXELS_PER_AXIS} voxels along each axis"
            raise BadInput(f"{image.name} is {size}: {needed}; leave `affine` out")
    unit = rms_distance(fixed.grid)
    with one_thread():  # the optimiser's own setting does not reach all of its parts
        levels = make_levels(fixed, moving, unit)
        best = best_start(levels[0])
        for done, level in enumerate(levels, start=1):
            best = refine(level, best.affine, kind)
            if progress:
                progress(done / len(levels))
    return Affine(kind, best.affine.matrix, best.affine.translation * unit, fixed.grid.centre)


def rms_distance(grid: Grid) -> float:
    """The root mean square, over the grid and the axes, of the distance from its centre along an axis."""
    return float(np.linalg.norm(np.multiply(grid.shape, grid.spacing)) / (12 * len(grid.shape)) ** 0.5)


def make_levels(fixed: Image, moving: Image, unit: float) -> list[Level]:
    """Both images from coarse to fine, about the centre of fixed, with lengths in a unit of millimetres."""
    centre, place = fixed.grid.centre, fixed.grid
    images = [to_optimiser(image, centre, unit) for image in (fixed, moving)]
    spacings = [max(np.multiply(place.shape, place.spacing)) / COARSEST_VOXELS]
    while max(shrink_factors(place, spacings[-1])) > 1 and count_voxels(place, spacings[-1] / 2) < MAX_VOXELS:
        spacings.append(spacings[-1] / 2)
    levels: list[Level] = []
    for spacing in reversed(spacings):
        images = [shrink(image, spacing / unit) for image in images]
        levels.insert(0, Level(images[0], images[1], spacing / unit))
    return levels


def to_optimiser(image: Image, centre: Float[ndarray, " d"], unit: float) -> "sitk.Image":
    """The image in [0, 1], about a centre, with lengths in a unit of millimetres."""
    grid, origin = image.grid, (np.array(image.grid.origin) - centre) / unit
    place = Grid(grid.shape, tuple(h / unit for h in grid.spacing), tuple(origin.tolist()), grid.direction)
    return to_sitk(rescale_images_jointly(image)[0].array, place)


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
    made.SetMetricSamplingPercentage(min(1.0, SAMPLES / level.fixed.GetNumberOfPixels()), SEED)
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
    """The share of fixed, out of a lattice of its voxels, that a map takes into moving."""
    fixed, moving = grid_of(level.fixed), grid_of(level.moving)
    index = moving.index(affine.points(fixed.points(fixed.lattice())))
    return float(((index > -0.5) & (index < np.array(moving.shape) - 0.5)).all(1).mean())


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
