from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from pydicom import dcmread

from tests.images.cines import STEP_MS, write_enhanced, write_slices
from tests.images.conftest import POSES, make_grid
from tests.images.test_io import same_place, series
from vrnet.errors import BadInput, InputWarning
from vrnet.images.grid import Grid
from vrnet.images.io import read_cine, read_image

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


def test_a_damaged_slice_at_the_end_is_told_of(tmp_path):
    folder = series(tmp_path / "scan", GRID, VOXELS)
    last = max(folder.iterdir(), key=lambda file: float(dcmread(file).ImagePositionPatient @ GRID.axes[:, 2]))
    last.write_bytes(last.read_bytes()[:300])
    with pytest.warns(InputWarning, match=f"left out: {last.name}"):
        assert read_image(folder).grid.shape == (12, 10, 5)


# Cines


STACK = make_grid((12, 10, 3), (1.3, 0.7, 8.0), (10.0, -20.0, 5.0), POSES["oblique"](3))
CINE = np.random.default_rng(0).integers(0, 900, (4, *STACK.shape)).astype(np.uint16)
ORDER = [(t, k) for k in (2, 0, 1) for t in (0, 3, 1, 2)]


def check_read(path, times):
    cine = read_cine(path)
    assert_array_equal(cine.frames, CINE)
    same_place(cine.grid, STACK, atol=1e-4)
    assert cine.times_ms is None if times is None else np.allclose(cine.times_ms, times)


@pytest.mark.parametrize("series", ["1.2.3", ["1.2.3", "1.2.4", "1.2.5"]])
@pytest.mark.parametrize("folders", [False, True])
def test_slices_and_frames_are_put_together_whatever_series_they_are_in(tmp_path, series, folders):
    check_read(write_slices(tmp_path / "cine", CINE, STACK, series, folders), STEP_MS * np.arange(4) + 5)


def test_without_trigger_times_the_numbers_of_images_order_them(tmp_path):
    check_read(write_slices(tmp_path / "cine", CINE, STACK, times=False), None)


@pytest.mark.parametrize("marks", [False, True])
def test_an_enhanced_file_is_read_by_what_it_says_of_each_frame(tmp_path, marks):
    check_read(write_enhanced(tmp_path / "cine.dcm", CINE, STACK, ORDER, marks), STEP_MS * np.arange(4))


def test_one_slice_over_time_is_a_stack_of_one(tmp_path):
    grid = make_grid((12, 10, 1), (1.3, 0.7, 6.0), (10.0, -20.0, 5.0), POSES["oblique"](3))
    cine = read_cine(write_slices(tmp_path / "cine", CINE[..., :1], grid))
    same_place(cine.grid, grid, atol=1e-4)
    assert_array_equal(cine.frames, CINE[..., :1])
    assert_allclose(cine.times_ms, STEP_MS * np.arange(4) + 5)


BAD = {
    "3 to 4 frames": lambda folder: write_slices(folder, CINE, STACK, skip=[(2, 1)]),
    "order is unknown": lambda folder: write_slices(folder, CINE, STACK, times=False, numbers=False),
    "unequal distances": lambda folder: write_slices(
        folder,
        np.concatenate([CINE, CINE], -1),
        make_grid((12, 10, 6), STACK.spacing, STACK.origin, np.eye(3)),
        skip=[(t, 2) for t in range(4)],
    ),
    "no images of one place over time": lambda folder: write_slices(folder, CINE[:1], STACK),
    "says of 7 where they lie": lambda folder: write_enhanced(folder.parent / "x.dcm", CINE, STACK, ORDER, frames=7),
}


@pytest.mark.parametrize("said", BAD)
def test_what_is_no_cine_is_refused_in_one_line(tmp_path, said):
    with pytest.raises(BadInput, match=said) as raised:
        read_cine(BAD[said](tmp_path / "cine"))
    assert len(str(raised.value).splitlines()) == 1


# Studies


def add(folder, number, title, grid=STACK, cine=CINE, per_slice=False, **more):
    """A series of its own in a folder of a study, its files named after nothing that tells what they are."""
    uid = f"1.2.{number}"
    uids = [f"{uid}.{k}" for k in range(grid.shape[2])] if per_slice else uid
    tags = {"x00200011": str(number), "x0008103e": title, "x00080032": f"10{number:02d}00", **more}
    return write_slices(folder / f"{(37 * number) % 101}", cine, grid, uids, **tags)


def long_axes(folder):
    for number, direction in ((21, np.eye(3)), (22, np.eye(3)[[1, 2, 0]].T), (23, np.eye(3)[[2, 0, 1]].T)):
        add(
            folder,
            number,
            f"cine_{number}ch",
            make_grid((12, 10, 1), (1.3, 0.7, 6.0), (0.0, 0.0, 0.0), direction),
            CINE[..., :1],
        )


def copies(folder):
    for file in [*folder.rglob("*.dcm")]:
        (file.parent / f"copy_of_{file.name}").write_bytes(file.read_bytes())


SCOUT = make_grid((9, 8, 3), (2.0, 2.0, 9.0), (1.0, 2.0, 3.0), np.eye(3))
OTHER = make_grid((11, 10, 2), STACK.spacing, (0.0, 0.0, 0.0), np.eye(3))
AROUND = {
    "scouts of another matrix": lambda f: add(f, 1, "scout", SCOUT, CINE[:1, :9, :8]),
    "long axes": long_axes,
    "late enhancement of the same slices": lambda f: add(f, 31, "psir", STACK, CINE[:1] + 1),
    "flow, its map beside it": lambda f: add(f, 32, "flow_P", STACK, CINE, x00080008="ORIGINAL\\PRIMARY\\P\\ND"),
    "copies of all files": copies,
    "a stack of fewer slices of another size": lambda f: add(f, 33, "cine_rv", OTHER, CINE[:, 1:, :, :2]),
    "fewer slices of other frames": lambda f: add(f, 34, "perfusion", at(0, 2), np.concatenate([CINE, CINE])[..., :2]),
    "a report without an image": lambda f: (f / "SR000001").write_bytes(b"\0" * 128 + b"DICM" + b"\0" * 40),
    "a text beside": lambda f: (f / "README.txt").write_text("of a hospital"),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore::vrnet.errors.InputWarning")
@pytest.mark.parametrize("per_slice", [False, True])
@pytest.mark.parametrize("around", [*AROUND, "everything"])
def test_the_short_axis_stack_of_a_study_is_found_whatever_lies_beside_it(tmp_path, around, per_slice):
    folder = tmp_path / "study"
    add(folder, 7, "cine_sa", per_slice=per_slice)
    for name, spoil in AROUND.items():
        if around in (name, "everything"):
            spoil(folder)
    check_read(folder, STEP_MS * np.arange(4) + 5)
    told = read_cine(folder).study
    assert all(("taken" in line) == ("cine_sa" in line) for line in told)
    assert len(told) >= (3 if per_slice else 1)


def test_a_slice_that_was_taken_again_counts_and_the_earlier_one_is_told_of(tmp_path):
    folder = tmp_path / "study"
    worse = CINE.copy()
    worse[..., 1] = 7 * np.arange(4)[:, None, None] + np.arange(120).reshape(12, 10)
    add(folder, 7, "cine_sa", cine=worse, per_slice=True)
    add(folder, 9, "cine_sa_again", at(1), CINE[..., 1:2])
    check_read(folder, STEP_MS * np.arange(4) + 5)
    assert any("left, taken again by series 9 (cine_sa_again)" in line for line in read_cine(folder).study)


def test_slices_of_one_series_that_were_taken_again_count_where_they_are(tmp_path):
    """Also where the first time was broken off."""
    folder = tmp_path / "study"
    add(folder, 7, "cine_sa", cine=CINE, skip=[(2, 0), (3, 0)])
    add(folder, 9, "cine_sa_again", at(0), CINE[..., :1])
    check_read(folder, STEP_MS * np.arange(4) + 5)
    first, again = read_cine(folder).study
    assert first.endswith("taken, but for what was taken again by series 9 (cine_sa_again)")
    assert again.endswith("taken")


def test_slices_beside_the_stack_in_its_plane_are_no_part_of_it(tmp_path):
    folder = tmp_path / "study"
    add(folder, 7, "cine_sa")
    beside = Grid.of(STACK.shape, STACK.spacing, np.add(STACK.origin, 40 * STACK.axes[:, 0]), STACK.axes)
    add(folder, 9, "cine_rv", replace(beside, shape=(*STACK.shape[:2], 1)), CINE[..., :1])
    check_read(folder, STEP_MS * np.arange(4) + 5)


def test_a_number_names_a_series_though_descriptions_have_it_too(tmp_path):
    folder = tmp_path / "study"
    add(folder, 2, "cine")
    add(folder, 12, "cine_2ch", make_grid((12, 10, 3), (1.3, 0.7, 6.0), (0.0, 0.0, 0.0), np.eye(3)), CINE[..., :3])
    assert [line.endswith("taken") for line in read_cine(folder, "2").study] == [True, False]


def test_of_cines_alike_one_is_chosen_by_its_series(tmp_path):
    folder = tmp_path / "study"
    long_axes(folder)
    with pytest.raises(BadInput, match=r"several cines of 1 slice each.*--series"):
        read_cine(folder)
    assert read_cine(folder, "22CH").frames.shape == (4, 12, 10, 1)
    assert read_cine(folder, "23").grid.axes[0, 0] == 0
    with pytest.raises(BadInput, match=r"no series is called .24.\. It has .*cine_21ch"):
        read_cine(folder, "24")


def test_a_header_cut_off_anywhere_is_refused(tmp_path):
    whole = write_enhanced(tmp_path / "cine.dcm", CINE, STACK, ORDER).read_bytes()
    for length in range(140, len(whole) - 3000, 97):
        (tmp_path / "cut.dcm").write_bytes(whole[:length])
        with pytest.raises(BadInput):
            read_cine(tmp_path / "cut.dcm")
