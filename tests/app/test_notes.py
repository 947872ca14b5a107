"""What a reader is told beside the verdict."""

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from vrnet import Grid, Image
from vrnet.app.pair import ImagePair, notes_on
from vrnet.images.grid import Affine

GRID = Grid.plain((8, 8, 8), (1.0, 1.0, 1.0))


def same_images():
    values = np.random.default_rng(0).random(GRID.shape).astype(np.float32)
    return ImagePair(Image(values, GRID, name="a.nii.gz"), Image(values, GRID, name="b.nii.gz"))


@pytest.mark.parametrize(("degrees", "is_told"), [(30, False), (85, False), (120, True), (179, True)])
def test_an_affine_start_that_turns_an_image_round_is_told(degrees, is_told):
    """A mirrored brain is turned by 180°, so that left comes to lie on right."""
    pair = same_images()
    matrix = Rotation.from_rotvec(np.radians(degrees) * np.array([0.6, 0.8, 0])).as_matrix()
    affine = Affine("affine", matrix, np.zeros(3), GRID.points(np.array([[3.5, 3.5, 3.5]]))[0])
    words = " ".join(notes_on(pair, {"repair": None, "brightness": None}, affine))
    assert (f"turns b.nii.gz by {degrees}°" in words) is is_told


def test_whose_intensities_were_changed_is_told_by_name():
    (note,) = notes_on(same_images(), {"repair": None, "brightness": {"gain": 2.0, "offset": 3.0}})
    assert "the intensities of b.nii.gz as 2 times what they are, plus 3." in note
