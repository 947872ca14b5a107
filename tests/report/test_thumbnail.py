"""A thumbnail shows fixed, moving and warped side by side, in their proportions."""

import numpy as np
import pytest
from PIL import Image

from vrnet import Grid
from vrnet.report.figures import MAX_SIDE_PIXELS, write_thumbnail
from vrnet.report.pair import View


@pytest.mark.parametrize(
    ("shape", "spacing"), [((40, 20), (1.0, 1.0)), ((40, 20, 5), (1.0, 1.0, 8.0)), ((40, 10), (1.0, 2.0))]
)
def test_three_images_stand_side_by_side_in_their_proportions(tmp_path, shape, spacing):
    ramp = np.broadcast_to(np.linspace(0, 1, shape[0])[(...,) + (None,) * (len(shape) - 1)], shape).astype(np.float32)
    zeros = np.zeros((len(shape), *shape), np.float32)
    write_thumbnail(tmp_path / "t.png", View(ramp, 1 - ramp, ramp, zeros, Grid.plain(shape, spacing)))
    picture = np.asarray(Image.open(tmp_path / "t.png"))
    assert picture.shape == (MAX_SIDE_PIXELS // 2, 3 * MAX_SIDE_PIXELS)
    fixed, moving, warped = np.split(picture, 3, axis=1)
    assert (fixed == warped).all()
    assert np.abs(255 - moving.astype(int) - fixed).max() <= 1


def test_images_whose_intensities_lie_far_apart_are_both_seen(tmp_path):
    """By one window for both, one of them would be all black."""
    ramp = np.broadcast_to(np.linspace(0, 1, 40)[:, None], (40, 20)).astype(np.float32)
    far = 1000 + ramp
    pair = View(ramp, far, far, np.zeros((2, 40, 20), np.float32), Grid.plain((40, 20), (1.0, 1.0)))
    write_thumbnail(tmp_path / "t.png", pair)
    assert all(np.ptp(picture) > 200 for picture in np.split(np.asarray(Image.open(tmp_path / "t.png")), 3, axis=1))
