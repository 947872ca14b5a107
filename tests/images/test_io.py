import nibabel
import numpy as np
import pytest
import SimpleITK as sitk
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy.spatial.transform import Rotation

from tests.conftest import SHAPES
from vrnet.errors import BadInput
from vrnet.fields import warp
from vrnet.images.grid import Grid
from vrnet.images.io import made_folder, write_image, write_transform, written_whole

POSES = {
    "plain": lambda d: np.eye(d),
    "oblique": lambda d: Rotation.from_euler("zyx", [0.5, 0.3 * (d == 3), -0.8 * (d == 3)]).as_matrix()[:d, :d],
    "flipped": lambda d: np.diag([1.0, -1.0, 1.0][:d]),
    "oblique and flipped": lambda d: POSES["oblique"](d) @ np.diag([-1.0, 1.0, 1.0][:d]),
    "axes exchanged": lambda d: np.roll(np.eye(d), 1, axis=0),
}


@pytest.fixture(params=POSES)
def grid(d, request):
    """A grid with a different spacing along each axis, posed in the world in several ways."""
    direction = POSES[request.param](d)
    return Grid(SHAPES[d], (1.3, 0.7, 2.5)[:d], (10.0, -20.0, 5.0)[:d], tuple(direction.ravel().tolist()))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "image.nii.gz"


def test_an_image_keeps_its_place_and_its_values_in_simpleitk(grid, random, path):
    array = random(*grid.shape).numpy()
    write_image(array, grid, path)
    image = sitk.ReadImage(str(path))
    assert image.GetSize() == grid.shape
    assert_allclose(image.GetSpacing(), grid.spacing, rtol=1e-6)
    assert_allclose(image.GetOrigin(), grid.origin, rtol=1e-6)
    assert_allclose(image.GetDirection(), grid.direction, atol=1e-6)
    for index in [(0,) * len(grid.shape), (5, 2, 7)[: len(grid.shape)]]:
        assert image[index] == array[index]


def test_an_image_keeps_its_place_and_its_values_in_nibabel(grid, random, path):
    """NIfTI counts from right to left and from back to front where ITK does the opposite: x and y change sign."""
    array, d = random(*grid.shape).numpy(), len(grid.shape)
    write_image(array, grid, path)
    image = nibabel.load(path)
    assert_array_equal(np.asarray(image.dataobj).reshape(grid.shape), array)
    to_ras = np.diag([-1.0, -1.0, 1.0])[:d, :d]
    assert_allclose(image.affine[:d, :d], to_ras @ grid.to_world, atol=1e-6)
    assert_allclose(image.affine[:d, 3], to_ras @ grid.origin, atol=1e-5)


@pytest.mark.parametrize("suffix", [".nii.gz", ".mha"])
def test_simpleitk_resamples_with_the_transform_as_we_warp(grid, smooth_image, tmp_path, suffix):
    """The convention of the whole package, told by an outsider."""
    d, path = len(grid.shape), tmp_path / f"transform{suffix}"
    moving = smooth_image(grid.shape, 1.5)
    u = 3 * torch.cat([smooth_image(grid.shape, 3, seed) - 0.5 for seed in range(1, d + 1)], dim=1)
    write_image(moving[0, 0].numpy(), grid, tmp_path / f"moving{suffix}")
    write_transform(u[0].numpy(), grid, path)
    image = sitk.ReadImage(str(tmp_path / f"moving{suffix}"))
    transform = sitk.DisplacementFieldTransform(sitk.Cast(sitk.ReadImage(str(path)), sitk.sitkVectorFloat64))
    resampled = sitk.GetArrayFromImage(sitk.Resample(image, image, transform)).T
    inside = (slice(2, -2),) * d
    assert_allclose(resampled[inside], warp(moving, u)[0, 0].numpy()[inside], atol=1e-3)
    assert (warp(moving, u) - moving).abs()[0, 0][inside].max() > 0.1  # it did move


def test_a_transform_file_of_itk_is_read_as_one(d, random, tmp_path):
    """An .h5 file holds an ITK transform: it moves a point without any image around it."""
    grid, u = Grid.plain(SHAPES[d], (2.0,) * d), random(d, *SHAPES[d]).numpy()
    write_transform(u, grid, tmp_path / "transform.h5")
    transform = sitk.ReadTransform(str(tmp_path / "transform.h5"))
    x = np.full(d, 4)
    assert_allclose(transform.TransformPoint(2.0 * x), 2.0 * (x + u[(slice(None), *x)]))


def test_a_transform_says_that_it_is_one(d, path):
    """NIfTI intent 1007 is a vector at each voxel, on a fifth axis: what ANTs and Slicer look for."""
    write_transform(np.zeros((d, *SHAPES[d]), np.float32), Grid.plain(SHAPES[d], (1.0,) * d), path)
    header = nibabel.load(path).header
    assert header["intent_code"] == 1007
    assert header["dim"][5] == d


def test_a_displacement_is_written_in_millimetres_of_the_world(d, path):
    """One voxel along an axis that runs backwards, 2.5 mm apart."""
    direction = -np.eye(d)
    grid = Grid(SHAPES[d], (2.5,) * d, (0.0,) * d, tuple(direction.ravel().tolist()))
    u = np.zeros((d, *SHAPES[d]))
    u[0] = 1
    write_transform(u, grid, path)
    assert_allclose(sitk.ReadImage(str(path))[(3,) * d], [-2.5] + [0.0] * (d - 1))


@pytest.mark.parametrize(
    "dtype", ["uint8", "int8", "uint16", "int16", "uint32", "int32", "int64", "float32", "float64"]
)
def test_the_number_type_and_every_value_are_kept(d, dtype, path):
    extremes = np.iinfo(dtype) if "int" in dtype else np.finfo(dtype)
    array = np.zeros(SHAPES[d], dtype)
    array.flat[:4] = [extremes.min, extremes.max, 1, 3]
    write_image(array, Grid.plain(SHAPES[d], (1.0,) * d), path)
    read = sitk.GetArrayFromImage(sitk.ReadImage(str(path))).T
    assert read.dtype == array.dtype
    assert_array_equal(read, array)


def test_any_memory_layout_is_written_by_its_indices(d, random, path):
    array = random(*SHAPES[d]).numpy()
    odd = np.asfortranarray(array)[::-1, ::2]
    write_image(odd, Grid.plain(odd.shape, (1.0,) * d), path)
    assert_array_equal(sitk.GetArrayFromImage(sitk.ReadImage(str(path))).T, odd)


def test_a_failed_writing_leaves_nothing_behind_and_keeps_the_old_file(tmp_path):
    path = tmp_path / "metrics.json"
    path.write_text("old")

    def fail():
        with written_whole(path) as temporary:
            temporary.write_text("half of the n")
            raise RuntimeError("disk full")

    with pytest.raises(RuntimeError, match="disk full"):
        fail()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_successful_writing_takes_the_old_file_s_place(tmp_path):
    path = tmp_path / "metrics.json"
    path.write_text("old")
    with written_whole(path) as temporary:
        temporary.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_an_image_that_cannot_be_written_leaves_nothing_behind(tmp_path, d):
    with pytest.raises(RuntimeError):
        write_image(np.zeros(SHAPES[d]), Grid.plain(SHAPES[d], (1.0,) * d), tmp_path / "image.unknown")
    assert not list(tmp_path.iterdir())


def test_made_folder_makes_it_with_its_parents_and_leaves_it_empty(tmp_path):
    folder = tmp_path / "a" / "b"
    assert made_folder(made_folder(folder)) == folder
    assert not list(folder.iterdir())


@pytest.mark.parametrize("name", ["probe", "metrics.json"])
def test_made_folder_leaves_what_is_in_the_folder_alone(tmp_path, name):
    (tmp_path / name).write_text("precious")
    made_folder(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == "precious"


@pytest.mark.parametrize("below", [".", "sub/folder"])
def test_a_file_is_no_folder(tmp_path, below):
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(BadInput, match=r"cannot write to .*: choose another folder") as raised:
        made_folder(file / below)
    assert len(str(raised.value).splitlines()) == 1
