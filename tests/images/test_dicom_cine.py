import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from tests.images.cines import STEP_MS, write_enhanced, write_slices
from tests.images.conftest import POSES, make_grid
from tests.images.test_io import same_place
from vrnet.errors import BadInput
from vrnet.images.io import read_cine

GRID = make_grid((12, 10, 3), (1.3, 0.7, 8.0), (10.0, -20.0, 5.0), POSES["oblique"](3))
CINE = np.random.default_rng(0).integers(0, 900, (4, *GRID.shape)).astype(np.uint16)
ORDER = [(t, k) for k in (2, 0, 1) for t in (0, 3, 1, 2)]


def check_read(path, times):
    cine = read_cine(path)
    assert_array_equal(cine.frames, CINE)
    same_place(cine.grid, GRID, atol=1e-4)
    assert cine.times_ms is None if times is None else np.allclose(cine.times_ms, times)


@pytest.mark.parametrize("series", ["1.2.3", ["1.2.3", "1.2.4", "1.2.5"]])
@pytest.mark.parametrize("folders", [False, True])
def test_slices_and_frames_are_put_together_whatever_series_they_are_in(tmp_path, series, folders):
    check_read(write_slices(tmp_path / "cine", CINE, GRID, series, folders), STEP_MS * np.arange(4) + 5)


def test_without_trigger_times_the_numbers_of_images_order_them(tmp_path):
    check_read(write_slices(tmp_path / "cine", CINE, GRID, times=False), None)


@pytest.mark.parametrize("marks", [False, True])
def test_an_enhanced_file_is_read_by_what_it_says_of_each_frame(tmp_path, marks):
    check_read(write_enhanced(tmp_path / "cine.dcm", CINE, GRID, ORDER, marks), STEP_MS * np.arange(4))


def test_one_slice_over_time_is_a_stack_of_one(tmp_path):
    grid = make_grid((12, 10, 1), (1.3, 0.7, 6.0), (10.0, -20.0, 5.0), POSES["oblique"](3))
    cine = read_cine(write_slices(tmp_path / "cine", CINE[..., :1], grid))
    same_place(cine.grid, grid, atol=1e-4)
    assert_array_equal(cine.frames, CINE[..., :1])
    assert_allclose(cine.times_ms, STEP_MS * np.arange(4) + 5)


def two_sizes(folder):
    write_slices(folder, CINE, GRID)
    smaller = make_grid((11, 10, 3), GRID.spacing, GRID.origin, np.reshape(GRID.direction, (3, 3)))
    return write_slices(folder / "other", CINE[:, 1:], smaller)


def two_directions(folder):
    write_slices(folder, CINE, GRID)
    return write_slices(folder / "other", CINE, make_grid(GRID.shape, GRID.spacing, GRID.origin, np.eye(3)))


BAD = {
    "frames that differ in size": lambda folder: two_sizes(folder).parent,
    "several directions": lambda folder: two_directions(folder).parent,
    "3 to 4 frames": lambda folder: write_slices(folder, CINE, GRID, skip=[(2, 1)]),
    "order is unknown": lambda folder: write_slices(folder, CINE, GRID, times=False, numbers=False),
    "unequal distances": lambda folder: write_slices(
        folder,
        np.concatenate([CINE, CINE], -1),
        make_grid((12, 10, 6), GRID.spacing, GRID.origin, np.eye(3)),
        skip=[(t, 2) for t in range(4)],
    ),
    "one frame only": lambda folder: write_slices(folder, CINE[:1], GRID),
    "says of 7 where they lie": lambda folder: write_enhanced(folder.parent / "x.dcm", CINE, GRID, ORDER, frames=7),
}


@pytest.mark.parametrize("said", BAD)
def test_what_is_no_cine_is_refused_in_one_line(tmp_path, said):
    with pytest.raises(BadInput, match=said) as raised:
        read_cine(BAD[said](tmp_path / "cine"))
    assert len(str(raised.value).splitlines()) == 1


def test_a_header_cut_off_anywhere_is_refused(tmp_path):
    whole = write_enhanced(tmp_path / "cine.dcm", CINE, GRID, ORDER).read_bytes()
    for length in range(140, len(whole) - 3000, 97):
        (tmp_path / "cut.dcm").write_bytes(whole[:length])
        with pytest.raises(BadInput):
            read_cine(tmp_path / "cut.dcm")
