import numpy as np
import pytest

from tests.images.conftest import POSES, make_grid
from tests.images.test_io import series
from vrnet.errors import BadInput
from vrnet.images.grid import Grid
from vrnet.images.io import read_image

GRID = make_grid((12, 10, 6), (1.3, 0.7, 8.0), (10.0, -20.0, 5.0), POSES["oblique"](3))
VOXELS = np.arange(720, dtype=np.uint16).reshape(GRID.shape)


def at(k, n=1):
    """n slices of the grid, from slice k on, by themselves."""
    origin = GRID.points(np.array([[0.0, 0.0, k]]))[0]
    return Grid((12, 10, n), GRID.spacing, tuple(origin.tolist()), GRID.direction)


def test_time_frames_are_not_slices(tmp_path):
    for frame in range(3):
        part = series(tmp_path / f"{frame}", at(0), VOXELS[..., frame : frame + 1])
        (tmp_path / "cine").mkdir(exist_ok=True)
        for file in part.iterdir():
            file.rename(tmp_path / "cine" / f"{frame}.dcm")
    with pytest.raises(BadInput, match="time frames"):
        read_image(tmp_path / "cine")


def test_missing_slices_are_missed(tmp_path):
    folder = series(tmp_path / "scan", GRID, VOXELS)
    assert read_image(folder).grid.shape == GRID.shape
    inner = sorted(folder.iterdir())[2]
    inner.unlink()
    with pytest.raises(BadInput, match="are some missing"):
        read_image(folder)
