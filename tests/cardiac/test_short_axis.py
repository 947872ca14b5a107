from itertools import permutations

import numpy as np
import pytest

from vrnet.cardiac.strain import SliceAxes, box_around
from vrnet.errors import BadInput

SHAPE, SPACING = (9, 8, 5), (1.2, 1.5, 8.0)


@pytest.mark.parametrize("order", [*permutations(range(3))])
def test_slices_lie_across_the_widest_spacing_wherever_it_is_stored(order):
    """The slice and its motion in mm are the same, but that its two axes may change places."""
    labels = np.arange(np.prod(SHAPE)).reshape(SHAPE)
    fields = np.random.default_rng(0).standard_normal((2, 3, *SHAPE))
    spacing = tuple(SPACING[axis] for axis in order)
    axes = SliceAxes.of(labels.transpose(order).shape, spacing, None)
    stack = axes.stack(labels.transpose(order))
    stored = fields[:, list(order)].transpose(0, 1, *(2 + axis for axis in order))
    motion = axes.motion_mm(stored, (slice(None), slice(None)))
    is_turned = axes.within == (1.5, 1.2)
    expected = fields * np.reshape(SPACING, (3, 1, 1, 1))
    if is_turned:
        labels, expected = labels.transpose(1, 0, 2), expected[:, [1, 0, 2]].transpose(0, 1, 3, 2, 4)
    assert np.array_equal(stack, labels)
    np.testing.assert_allclose(motion, expected)


def test_a_slice_is_a_stack_of_one():
    axes = SliceAxes.of((9, 8), (1.2, 1.5), None)
    assert axes.stack(np.zeros((9, 8))).shape == (9, 8, 1)
    assert axes.motion_mm(np.ones((4, 2, 9, 8)), (slice(2, 5), slice(None))).shape == (4, 2, 3, 8, 1)


def test_slices_may_be_said_to_lie_across_another_axis():
    assert SliceAxes.of(SHAPE, SPACING, 0).order == (1, 2, 0)


def test_the_box_has_a_margin_within_the_image():
    wall = np.zeros((60, 40, 2), bool)
    wall[20:24, 5:9, 1] = True
    assert box_around(wall) == (slice(8, 36), slice(0, 21))
    assert box_around(wall[:, :, :1]) == (slice(None), slice(None))


def test_what_is_no_stack_is_refused():
    with pytest.raises(BadInput, match="2 or 3 axes"):
        SliceAxes.of((4, 4, 4, 4), (1.0,) * 4, None)
    with pytest.raises(BadInput, match="spacing"):
        SliceAxes.of((4, 4), (1.0,) * 3, None)
