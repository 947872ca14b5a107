import numpy as np
import pytest
from numpy.testing import assert_allclose

from tests.conftest import SHAPES
from vrnet.evaluation.evaluate import overlap, regularity, similarity


@pytest.fixture
def labels(d):
    """A label map with structures 1 and 4, and the same moved by two voxels along axis 0."""
    fixed = np.zeros(SHAPES[d], np.uint8)
    fixed[2:7, 2:7], fixed[2:7, 7:9] = 1, 4
    return fixed, np.roll(fixed, 2, axis=0)


def test_similarity_is_the_mean_absolute_difference(d, random):
    fixed, moving, warped = random(3, *SHAPES[d]).numpy()
    found = similarity(fixed, moving, warped)
    assert list(found) == ["mae_before", "mae_after"]
    assert_allclose(list(found.values()), [np.abs(image - fixed).sum() / fixed.size for image in (moving, warped)])


def test_regularity_has_the_names_of_metrics_json(d):
    still = regularity(np.zeros((d, *SHAPES[d]), np.float32))
    assert still == {"folding_percent": 0, "folding_strict_percent": 0, "jacobian_gradient": 0}


def test_overlap_has_every_label_and_their_mean_before_and_after(d, labels):
    fixed, moving = labels
    found = overlap(fixed, moving, moving, (1.0,) * d)
    assert list(found) == ["dice", "hausdorff_mm"]
    for measure in found.values():
        assert list(measure) == ["before", "after"]
        assert measure["before"] == measure["after"]
        assert list(measure["before"]) == ["1", "4", "mean"]


def test_a_perfect_registration_overlaps_fully_and_lies_at_no_distance(d, labels):
    fixed, moving = labels
    found = overlap(fixed, moving, fixed.copy(), (1.5,) * d)
    assert set(found["dice"]["after"].values()) == {1.0}
    assert set(found["hausdorff_mm"]["after"].values()) == {0.0}
    assert_allclose(list(found["dice"]["before"].values()), 3 / 5)  # 2 of the 5 rows have left
    assert_allclose(list(found["hausdorff_mm"]["before"].values()), 2 * 1.5)


def test_a_label_in_one_image_only_is_measured_all_the_same(d, labels):
    """Else a method could lose a structure for free."""
    fixed, moving = labels
    moving = np.where(moving == 4, 0, moving).astype(np.uint8)
    found = overlap(fixed, moving, moving, (1.0,) * d)
    assert found["dice"]["after"]["4"] == 0
    assert np.isnan(found["hausdorff_mm"]["after"]["4"])
