"""What a reader is told beside the verdict."""

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from vrnet import Grid, Image
from vrnet.app.image_pair import ImagePair
from vrnet.app.notes import notes_on
from vrnet.images.affine import Affine


@pytest.mark.parametrize(("degrees", "is_told"), [(30, False), (85, False), (120, True), (179, True)])
def test_an_affine_start_that_turns_an_image_round_is_told(degrees, is_told):
    """A mirrored brain is turned by 180°, so that left comes to lie on right."""
    grid = Grid.plain((8, 8, 8), (1.0, 1.0, 1.0))
    values = np.random.default_rng(0).random(grid.shape).astype(np.float32)
    pair = ImagePair(Image(values, grid, name="a.nii.gz"), Image(values, grid, name="b.nii.gz"))
    matrix = Rotation.from_rotvec(np.radians(degrees) * np.array([0.6, 0.8, 0])).as_matrix()
    affine = Affine("affine", matrix, np.zeros(3), grid.points(np.array([[3.5, 3.5, 3.5]]))[0])
    words = " ".join(notes_on(pair, {"repair": None, "brightness": None}, affine))
    assert (f"turns b.nii.gz by {degrees}°" in words) is is_told
