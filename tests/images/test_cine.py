import numpy as np
import pytest
from numpy.testing import assert_array_equal

from tests.images.cines import STEP_MS
from vrnet.errors import BadInput
from vrnet.images.grid import Grid
from vrnet.images.image import Cine

GRID = Grid.plain((6, 5), (1.5, 1.5))
FRAMES = np.random.default_rng(1).random((4, 6, 5)).astype(np.float32)


def with_frame(k, value):
    frames = FRAMES.copy()
    frames[k] = value
    return frames


def test_a_frame_is_an_image_on_the_grid():
    cine = Cine(FRAMES, GRID, tuple(STEP_MS * k for k in range(4)))
    assert len(cine) == 4
    assert_array_equal(cine.image(2).array, FRAMES[2])
    assert cine.image(2).grid == GRID


@pytest.mark.parametrize(
    ("frames", "times", "said"),
    [
        (FRAMES[:1], None, "one frame only"),
        (FRAMES[..., :4], None, "on a grid of"),
        (FRAMES[0], None, "on a grid of"),
        (with_frame(2, np.nan), None, "frame 2 .* NaN"),
        (with_frame(3, 0.0), None, "frame 3 .* shows nothing"),
        (FRAMES.astype(complex), None, "real numbers"),
        (FRAMES, (0.0, 30.0, 20.0, 60.0), "do not increase at frame 2"),
        (FRAMES, (0.0, np.nan, 20.0, 60.0), "do not increase at frame 1"),
        (FRAMES, (0.0, 30.0), "4 frames and 2 times"),
    ],
)
def test_what_is_no_cine_is_refused(frames, times, said):
    with pytest.raises(BadInput, match=said):
        Cine(frames, GRID, times)
