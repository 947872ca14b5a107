import itertools

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from vrnet.cardiac.wall import HeartLabels
from vrnet.images.grid import Grid
from vrnet.report.cine import (
    BOX_MARGIN,
    MAX_PIXELS,
    MAX_SLICES,
    Film,
    FilmSlices,
    grid_lines,
    material_points,
    trace_outlines,
)

SHAPE = (40, 30, 3)


def directions():
    """Short-axis stacks in every order of the first two axes and every sign."""
    for swap, signs in itertools.product((False, True), itertools.product((1, -1), repeat=3)):
        D = np.diag(signs).astype(float)
        yield tuple((D[:, [1, 0, 2]] if swap else D).ravel())


def moving_square(direction):
    """A bright square that moves by (2, -3, 0) voxels of the array from frame 0 to frame 1."""
    frames, labels = np.zeros((2, *SHAPE)), np.zeros(SHAPE, int)
    labels[12:20, 14:22] = frames[0, 12:20, 14:22] = 1
    frames[1, 14:22, 11:19] = 1
    fields = np.zeros((2, 3, *SHAPE))
    fields[1, 0], fields[1, 1] = 2, -3
    return Film(frames, fields, Grid(SHAPE, (1.0, 1.0, 9.0), (0.0, 0.0, 0.0), direction), labels=labels)


@pytest.mark.parametrize("direction", [*directions()])
def test_outlines_follow_what_moves_however_the_file_is_stored(direction):
    slices = moving_square(direction).slices
    points = material_points(slices, 1)
    (outline,) = points.outlines
    for t in (0, 1):
        line = points.moved[t, :, outline.first : outline.first + outline.length]
        bright = np.argwhere(slices.frames[t, ..., 1] > 0.5)
        assert_allclose(line.mean(1), bright.mean(0) + 0.5, atol=0.05)
        assert_allclose([line.min(1), line.max(1)], [bright.min(0), bright.max(0) + 1], atol=0.3)


def test_what_is_shown_is_the_part_around_the_labels():
    slices = moving_square(tuple(np.eye(3).ravel())).slices
    margin = round(BOX_MARGIN * 8)
    assert slices.frames.shape == (2, 8 + 2 * margin, 8 + 2 * margin, 3)
    assert (slices.numbers, slices.depth, slices.block) == ([0, 1, 2], 3, 1)


def test_an_image_is_one_slice_and_many_slices_are_thinned():
    flat = Film(np.zeros((2, 9, 8)), np.zeros((2, 2, 9, 8)), Grid.plain((9, 8), (1.0, 1.0))).slices
    assert (flat.frames.shape, flat.motion.shape, dict(flat.edges)) == ((2, 9, 8, 1), (2, 2, 9, 8, 1), {})
    deep = Film(np.zeros((2, 4, 4, 100)), np.zeros((2, 3, 4, 4, 100)), Grid.plain((4, 4, 100), (1.0, 1.0, 3.0))).slices
    assert len(deep.numbers) <= MAX_SLICES
    assert deep.depth == 100


def test_large_slices_are_shown_by_blocks_so_that_pixels_are_few():
    frames = np.broadcast_to(np.float32(0), (30, 800, 800, 10))
    still = np.broadcast_to(np.float32(0), (30, 2, *frames.shape[1:]))
    slices = FilmSlices(frames, still, None, HeartLabels(), (1.0, 1.0), [*range(10)], 10, {})
    assert frames.size / slices.block**2 <= MAX_PIXELS < frames.size / (slices.block - 1) ** 2


def test_a_part_of_the_heart_has_one_colour_whatever_its_number():
    def colours(values, heart):
        labels = np.array(values).reshape(-1, 1, 1)
        frames = np.zeros((1, *labels.shape))
        slices = FilmSlices(frames, np.stack([frames, frames], 1), labels, heart, (1.0, 1.0), [0], 1, {})
        return dict(slices.structures.values())

    usual = colours([0, 1, 2, 3], HeartLabels())
    assert usual == colours([0, 7, 5, 9], HeartLabels(rv=9, wall=7, lv=5))
    assert colours([0, 2, 3, 8], HeartLabels(rv=-1)).items() >= {k: usual[k] for k in ("wall", "cavity")}.items()
    assert len(set(colours([1, 2, 3, 8, 9], HeartLabels()).values())) == 5


def test_the_outline_of_a_ring_is_two_circles():
    x, y = np.indices((50, 50)) - 24.5
    radius = np.hypot(x, y)
    lines = trace_outlines((radius > 10) & (radius < 18))
    found = sorted(float(np.hypot(*(line - 25)).mean()) for line in lines)
    assert_allclose(found, [10, 18], atol=0.15)
    for line in lines:
        assert np.ptp(np.hypot(*(line - 25))) < 1.0  # less than the steps of voxels


def test_the_corners_of_a_voxel_lie_around_it_and_move_with_it():
    x, y = np.indices((50, 50)) - 24.5
    radius = np.hypot(x, y)
    labels = np.where(radius < 18, np.where(radius < 10, 3, 2), 0)[..., None]
    motion = np.zeros((2, 2, 50, 50, 1))
    motion[1] = 0.1 * np.stack([x, y])[..., None]
    slices = FilmSlices(np.zeros((2, 50, 50, 1)), motion, labels, HeartLabels(), (1.0, 1.0), [0], 1, {})
    points = material_points(slices, 0)
    middles = points.moved[..., points.corners].mean(-1)
    voxels = slices.strain.index[:2]
    assert_allclose(middles[0], voxels + 0.5)
    assert_allclose(middles[1], 25 + 1.1 * (voxels - 24.5), atol=1e-6)


def test_lines_of_the_grid_go_through_the_middles_of_pixels():
    across, down = grid_lines((56, 28))
    assert_array_equal(np.diff(across), 2)
    assert_array_equal(across % 1, 0.5)
    assert len(down) == 14
