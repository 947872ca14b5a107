import numpy as np
import pytest

from vrnet.report.drawing import grey_windows

NOISE = np.random.default_rng(0).random((3, 40, 40))
PERCENTILES = (0.5, 99.5)


def windows(change):
    """Those of an image, and of others in other intensities."""
    images = dict(zip(("fixed", "moving", "warped"), NOISE, strict=True))
    return images, grey_windows(images | {name: change(images[name]) for name in ("moving", "warped")}, PERCENTILES)


@pytest.mark.parametrize("change", [lambda x: x, lambda x: 1.5 * x, lambda x: x + 0.3])
def test_intensities_that_are_alike_have_the_same_greys(change):
    images, found = windows(change)
    both = np.percentile([images["fixed"], change(images["moving"])], PERCENTILES)
    assert {*found.values()} == {tuple(both)}


@pytest.mark.parametrize("change", [lambda x: 5 * x, lambda x: x / 5, lambda x: x + 2, lambda x: 900 - 100 * x])
def test_of_intensities_far_apart_each_image_has_its_own_and_warped_those_of_moving(change):
    images, found = windows(change)
    assert found["fixed"] == tuple(np.percentile(images["fixed"], PERCENTILES))
    assert found["moving"] == found["warped"] == tuple(np.percentile(change(images["moving"]), PERCENTILES))
