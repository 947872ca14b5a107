"""Both grids are told, and what to do about each way in which they can differ."""

from dataclasses import replace

import pytest

from vrnet.errors import BadInput
from vrnet.images.grid import Grid, check_same_grid

GRID = Grid.plain((96, 90, 3), (1.8, 1.8, 10.0))
SMALLER = Grid.plain((48, 45, 3), (3.6, 3.6, 10.0))
PLACE = "96 x 90 x 3 voxels of 1.8 x 1.8 x 10 mm at 0, 0, 0"
WAYS = {
    "smaller": (
        SMALLER,
        f"it has 48 x 45 x 3 voxels of 3.6 x 3.6 x 10 mm at 0, 0, 0, and that grid has {PLACE}; ",
        "give the one that was drawn on this image, or resample it",
    ),
    "flat": (
        Grid.plain((96, 90), (1.8, 1.8)),
        f"it has 96 x 90 voxels of 1.8 x 1.8 mm at 0, 0, and that grid has {PLACE}; ",
        "give the one that was drawn on this image, or resample it",
    ),
    "elsewhere": (
        replace(GRID, origin=(0.0, -7.25, 0.0)),
        f"it has {PLACE.replace('0, 0, 0', '0, -7.25, 0')}, and that grid has {PLACE}; ",
        "if its header alone is wrong, give it that of the image; else resample it",
    ),
    "turned": (
        replace(GRID, direction=(-1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0)),
        f"both have {PLACE}, but turned or placed otherwise, up to 342 mm apart; ",  # 2 · 95 · 1.8
        "if its header alone is wrong, give it that of the image; else resample it",
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_both_grids_are_told_and_what_to_do(way):
    own, said, advice = WAYS[way]
    with pytest.raises(BadInput) as error:
        check_same_grid("seg.nii", own, "ed.nii", GRID)
    words = f"seg.nii is not on the grid of ed.nii: {said}{advice} to that grid, to the nearest voxel"
    assert str(error.value) == words


def test_the_other_image_is_named_where_it_lies_on_that_one():
    with pytest.raises(BadInput, match=r"; it lies on that of es\.nii: give each to its own image$"):
        check_same_grid("seg.nii", SMALLER, "ed.nii", GRID, {"es.nii": SMALLER})


def test_grids_that_match_pass():
    check_same_grid("seg.nii", GRID, "ed.nii", replace(GRID, origin=(0.001, 0.0, 0.0)))
