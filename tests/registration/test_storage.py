"""The answer depends on anatomy, not on storage: any order of the axes, and any way they run, give one transform."""

from dataclasses import replace
from functools import cache
from itertools import permutations, product

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from tests.phantoms import phantom
from tests.registration.test_images import reorient
from vrnet import Grid, Image, register_images

AGREEMENT_MM = 1e-3
BRIEF = {
    "FFD": "FFD(spacing=40.0,levels=1,samples=200,iterations=3)",
    "Demons": "Demons(iterations=(10,5))",
    "SyN": "SyN(iterations=(10,5))",
    "TV-MIND": "TV-MIND(lam=0.01)",
}
"""Outside tools with less to do: what is asked is whether they see the same, not how well they do. And a solver that
finds a motion in so small a volume."""
METHODS = ["Gaussian-LNCC", BRIEF["TV-MIND"], "Gaussian-NMI(warps=8)"]
"""Of each kind that sees images otherwise. Between reading a file and the method nothing asks which method it is."""
TOOLS = [BRIEF[name] for name in ("FFD", "Demons", "SyN")]
TURNS = {d: list(product(permutations(range(d)), product((False, True), repeat=d))) for d in (2, 3)}
FEW = TURNS[3][5::9]
EVERY_ORDER = TURNS[3][::7]
"""Seven of the 48: every order of the axes, and each time other axes run the other way."""
POSES = {
    "oblique": Rotation.from_euler("zyx", [0.4, 0.3, -0.5]),
    "turned by 45 degrees": Rotation.from_euler("z", 45, degrees=True),
    "along the diagonal of a cube": Rotation.from_rotvec(np.pi / np.sqrt(3) * np.ones(3)),
}


@cache
def pair(kind, pose="oblique"):
    """A small phantom heart somewhere in the world: a picture (2), a volume (3), or a stack of slices."""
    size, h = {2: ((28, 24), 5.0), 3: ((16, 15, 14), 8.0), "stack": ((28, 24), 5.0), "fine": ((24, 20, 18), 1.0)}[kind]
    heart = phantom(5, size, h)
    arrays = [part[0, 0].numpy() for part in (heart.fixed, heart.moving)]
    spacing = (h,) * len(size)
    if kind == "stack":
        arrays, spacing = [np.stack([I, I**1.3, I**0.8], 2) for I in arrays], (h, h, 4 * h)
    d = len(spacing)
    turn = POSES[pose] if d == 3 else Rotation.from_rotvec([0, 0, POSES[pose].magnitude()])
    direction = tuple(turn.as_matrix()[:d, :d].ravel().tolist())
    return [Image(I, Grid(I.shape, spacing, (-40.0, 25.0, 110.0)[:d], direction)) for I in arrays]


def farthest_apart(images, method, turns, **options):
    """The greatest distance, in mm, between where voxels of fixed go as it is stored, and stored otherwise.

    Moving is stored in yet another way."""
    fixed, moving = images
    x = fixed.grid.points(np.argwhere(np.ones(fixed.grid.shape)).astype(float))
    expected = register_images(fixed, moving, method, **options).transform.points(x)
    assert np.linalg.norm(expected - x, axis=1).max() > 1, "there is a motion to be found"
    distances = []
    for turn, other in zip(turns, turns[1:] + turns[:1], strict=True):
        result = register_images(
            reorient(fixed, *map(list, turn)), reorient(moving, *map(list, other)), method, **options
        )
        distances.append(np.linalg.norm(result.transform.points(x) - expected, axis=1).max())
    return max(distances)


EITHER_ORDER = [TURNS[2][k] for k in (2, 7)]  # each with two ways for the axes to run
OFTEN = [(2, "oblique", method, EITHER_ORDER, {}) for method in (*METHODS, BRIEF["Demons"])]
BEFORE_A_RELEASE = [
    *((2, "oblique", method, TURNS[2], {}) for method in ("TV-L1", "short-axis")),
    *((3, "oblique", method, EVERY_ORDER, {}) for method in (*METHODS, *TOOLS)),
    ("fine", "oblique", "hippocampus", FEW[:1], {}),
    ("stack", "oblique", "short-axis", FEW[:3], {"match_intensities": True}),
    ("stack", "oblique", "TV-L1", FEW[:3], {}),
    (3, "oblique", "TV-L1", TURNS[3], {}),
    ("stack", "oblique", "short-axis", TURNS[3], {}),
    # where no order of the axes is the best
    (2, "turned by 45 degrees", "short-axis", TURNS[2], {}),
    (3, "along the diagonal of a cube", "TV-L1", FEW[:3], {}),
    ("stack", "turned by 45 degrees", "default", FEW[:3], {}),
]


@pytest.mark.usefixtures("as_users_run")
@pytest.mark.parametrize(
    ("kind", "pose", "method", "turns", "options"),
    [*OFTEN, *(pytest.param(*case, marks=pytest.mark.release) for case in BEFORE_A_RELEASE)],
)
def test_every_way_to_store_images_gives_one_transform(kind, pose, method, turns, options):
    assert farthest_apart(pair(kind, pose), method, turns, **options) < AGREEMENT_MM


@pytest.mark.parametrize("turn", [((1, 0, 2), (False,) * 3), ((2, 0, 1), (True, False, True))])
def test_the_slice_axis_is_that_of_fixed_as_it_is_stored(turn):
    fixed, moving = (reorient(image, list(turn[0]), turn[1]) for image in pair("stack"))
    result = register_images(fixed, moving, "identity")
    assert result.slice_axis == turn[0].index(2)
    assert result.transform.grid == fixed.grid
    assert result.warped.array.shape == fixed.array.shape


@pytest.mark.parametrize("kind", [2, pytest.param(3, marks=pytest.mark.release)])
def test_an_affine_start_does_not_depend_on_storage(kind, as_users_run):
    fixed, moving = pair(kind)
    away = replace(moving.grid, origin=tuple(x + 9.0 for x in moving.grid.origin))
    images = fixed, replace(moving, grid=away)
    assert farthest_apart(images, "identity", TURNS[kind][5:7], affine="rigid") < AGREEMENT_MM
