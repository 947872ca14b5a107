import nibabel
import numpy as np
import pytest
import SimpleITK as sitk
from numpy.testing import assert_allclose, assert_array_equal

from tests.images.conftest import POSES, make_grid
from tests.images.test_io import same_place
from tests.skips import DATA
from vrnet.errors import BadInput, InputWarning
from vrnet.images.cine_files import read_cine
from vrnet.images.io import grid_of, read_image, to_sitk

GRID = make_grid((12, 10, 3), (1.3, 0.7, 8.0), (10.0, -20.0, 5.0), POSES["oblique"](3))
CINE = np.random.default_rng(0).random((4, *GRID.shape)).astype(np.float32)


def write_joined(path):
    """A cine as SimpleITK joins and writes it."""
    sitk.WriteImage(sitk.JoinSeries([to_sitk(frame, GRID) for frame in CINE]), str(path))
    return path


def write_nifti(path, frames=CINE, step=30.0, units="msec"):
    """A cine as nibabel writes it, the frames along the last axis."""
    image = nibabel.Nifti1Image(np.moveaxis(frames, 0, -1), np.diag([1.3, 0.7, 8.0, 1.0]))
    image.header.set_xyzt_units("mm", units)
    image.header["pixdim"][4] = step
    nibabel.save(image, path)
    return path


def write_sequence(path, kind="list"):
    """A cine as 3D Slicer writes its sequences: the first axis counts frames."""
    rows = " ".join(f"({','.join(map(str, row))})" for row in (GRID.axes * GRID.spacing).T)
    lines = [
        "NRRD0005", "type: float", "dimension: 4", "space: left-posterior-superior", "sizes: 4 12 10 3",
        f"space directions: none {rows}", f"kinds: {kind} domain domain domain", "endian: little", "encoding: raw",
        f"space origin: ({','.join(map(str, GRID.origin))})",
    ]  # fmt: skip
    path.write_bytes("\n".join([*lines, "", ""]).encode() + CINE.T.tobytes("C"))
    return path


@pytest.mark.parametrize("suffix", [".nii", ".nii.gz", ".mha", ".nrrd"])
@pytest.mark.filterwarnings("ignore::vrnet.errors.InputWarning")
def test_a_cine_of_four_axes_has_its_frames_along_the_last(tmp_path, suffix):
    cine = read_cine(write_joined(tmp_path / f"cine{suffix}"))
    assert_array_equal(cine.frames, CINE)
    same_place(cine.grid, GRID)


def test_a_sequence_of_slicer_has_its_frames_along_the_first(tmp_path):
    cine = read_cine(write_sequence(tmp_path / "cine.seq.nrrd"))
    assert_array_equal(cine.frames, CINE)
    same_place(cine.grid, GRID)
    with pytest.raises(BadInput, match="several values per voxel"):
        read_cine(write_sequence(tmp_path / "colours.nrrd", kind="vector"))


@pytest.mark.parametrize(("step", "units"), [(30.0, "msec"), (0.03, "sec"), (30000.0, "usec")])
def test_times_are_those_of_the_header(tmp_path, step, units):
    assert_allclose(read_cine(write_nifti(tmp_path / "cine.nii", np.tile(CINE, (3, 1, 1, 1)), step, units)).times_ms,
                    30.0 * np.arange(12), rtol=1e-6)  # fmt: skip


def test_times_that_no_heart_has_are_not_used(tmp_path):
    with pytest.warns(InputWarning, match="no heart beat"):
        assert read_cine(write_nifti(tmp_path / "cine.nii", step=33.0, units="sec")).times_ms is None
    assert read_cine(write_nifti(tmp_path / "unknown.nii", step=1.0, units="unknown")).times_ms is None
    with pytest.raises(BadInput, match="time runs forward"):
        read_cine(write_nifti(tmp_path / "back.nii", step=-30.0))


def test_three_axes_are_a_slice_over_time_unless_they_are_a_stack(tmp_path):
    flat = sitk.GetImageFromArray(CINE[..., 0].transpose(0, 2, 1))
    sitk.WriteImage(flat, str(tmp_path / "flat.mha"))
    with pytest.warns(InputWarning, match="taken for time"):
        cine = read_cine(tmp_path / "flat.mha")
    assert_array_equal(cine.frames, CINE[..., 0])
    assert cine.grid == grid_of(flat[..., 0])
    sitk.WriteImage(to_sitk(CINE[0], GRID), str(tmp_path / "stack.nii.gz"))
    with pytest.raises(BadInput, match="one frame only"):
        read_cine(tmp_path / "stack.nii.gz")


def test_one_image_of_a_cine_is_not_guessed(tmp_path):
    with pytest.raises(BadInput, match="vrnet track"):
        read_image(write_nifti(tmp_path / "cine.nii"))


@pytest.mark.skipif(not (DATA / "cine").is_dir(), reason=f"no real images at {DATA / 'cine'}")
def test_the_cine_of_a_volunteer_is_read():
    cine = read_cine(DATA / "cine" / "cine.nii.gz")
    assert (len(cine), cine.grid.shape, cine.times_ms) == (30, (128, 128, 14), None)
    assert cine.grid.matches(read_image(DATA / "cine" / "frame00_myocardium.nii.gz").grid)
