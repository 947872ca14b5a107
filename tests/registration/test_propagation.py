import numpy as np
import pytest
from numpy.testing import assert_array_equal

from vrnet.phantom import cycle
from vrnet.registration.cine import propagate_labels


def dice(a, b):
    return 2 * (a & b).sum() / (a.sum() + b.sum())


@pytest.mark.parametrize("shape", [(96, 96), (96, 96, 3)])
def test_exact_motion_takes_labels_to_where_the_tissue_is(shape):
    beat = cycle(1, shape, (1.8, 1.8, 10.0)[: len(shape)], frames=4)
    found = propagate_labels(beat.labels.numpy(), beat.fields.numpy(), 2 if len(shape) == 3 else None)
    assert_array_equal(found[0], beat.labels.numpy())
    for t in range(1, 4):
        for value in (1, 2, 3):
            assert dice(found[t] == value, beat.frame_labels[t].numpy() == value) > 0.96


def test_values_and_types_are_kept():
    labels = np.zeros((8, 9), np.uint16)
    labels[2:5, 3:6] = 4711
    fields = np.zeros((2, 2, 8, 9), np.float32)
    fields[1, 0] = 2.0
    found = propagate_labels(labels, fields, None)
    assert found.dtype == np.uint16
    assert_array_equal(found[1], np.roll(labels, 2, 0))
