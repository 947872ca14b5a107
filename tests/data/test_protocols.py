import nibabel
import numpy as np
import pytest
import torch

from tests.data.conftest import affine_of, brightest, place, spots, write
from vrnet import BadInput, Grid, Image
from vrnet.data.protocols import (
    all_slices,
    centred_grid,
    choose_slices,
    read_frames,
    read_labels,
    read_phases,
    read_shown,
    snap_to_voxels,
    three_slices,
    volume_pair,
)

SHAPE, SPACING = (90, 70, 6), (2.0, 2.5, 9.0)
AFFINE = affine_of(SPACING)
STACK = Grid.plain((20, 16, 6), (1.5, 1.5, 9.0))


def on_file_s_grid(array):
    """The image that a file with the affine would be read as: in LPS."""
    to_lps = np.diag([-1.0, -1, 1])
    direction = to_lps @ AFFINE[:3, :3] / SPACING
    origin = to_lps @ AFFINE[:3, 3]
    return Image(array, Grid(SHAPE, SPACING, tuple(origin.tolist()), tuple(direction.ravel().tolist())))


def test_a_landmark_stays_where_it_is_in_the_world():
    marks = [nibabel.affines.apply_affine(AFFINE, index) for index in ((50, 30, 2), (40, 42, 2))]
    sample = all_slices("x", [on_file_s_grid(spots(AFFINE, SHAPE, mark)) for mark in marks], [], 1.8, 160)
    for part, mark in ((sample.fixed, marks[0]), (sample.moving, marks[1])):
        found = [*brightest(part[2, 0].numpy()), 2]
        at = place(AFFINE, SHAPE, (1.8, 1.8, 9.0), (160, 160, 6), found)
        np.testing.assert_allclose(at, mark, atol=0.1)


def test_every_frame_is_registered_to_the_first_under_one_scaling():
    """Frames at 1, 1/2 and 1/4 of the brightness keep these ratios, slice by slice."""
    ramp = np.random.default_rng(0).random(SHAPE)
    sample = all_slices("x", [on_file_s_grid(1000 * ramp / 2**t) for t in range(3)], [], 1.8, 160)
    assert sample.fixed.shape == sample.moving.shape == (12, 1, 160, 160)
    assert sample.fixed_labels is None
    assert sample.moving_labels is None
    assert torch.equal(sample.fixed[:6], sample.fixed[6:])
    first, bright = sample.fixed[:6], (sample.fixed[:6] > 0.4) & (sample.fixed[:6] < 0.9)
    for t, frame in enumerate(sample.moving.split(6), start=1):
        assert (frame / first)[bright].median() == pytest.approx(2.0**-t, abs=0.02)


def test_slices_without_anything_to_see_are_not_trained_on():
    image = np.random.default_rng(0).random(SHAPE)
    other = image.copy()
    image[..., 0], other[..., 5] = 0, 0
    assert len(all_slices("x", [on_file_s_grid(image), on_file_s_grid(other)], [], 1.8, 160).fixed) == 4
    with pytest.raises(BadInput, match="nothing to register"):
        all_slices("x", [on_file_s_grid(image), on_file_s_grid(0 * image)], [], 1.8, 160)


def test_three_slices_keep_their_labels():
    """A square of 30x30 mm in each structure is as large at 1.8 mm."""
    labels = np.zeros(SHAPE, np.uint8)
    labels[20:35, 20:32], labels[50:65, 20:32], labels[50:65, 40:52] = 1, 2, 3
    image = on_file_s_grid(np.random.default_rng(0).random(SHAPE))
    mask = on_file_s_grid(labels)
    sample = three_slices("x", [image, image], [mask, mask], 1.8, 160)
    for value in (1, 2, 3):
        area = (sample.fixed_labels == value).sum().item() / 3 * 1.8**2
        assert area == pytest.approx(30 * 30, rel=0.05)


def test_slices_are_chosen_among_those_that_show_enough():
    masks = [torch.zeros(9, 1, 20, 20, dtype=torch.uint8) for _ in range(2)]
    for mask, shown in zip(masks, (range(1, 8), range(2, 9)), strict=True):
        for k in shown:
            mask[k, 0, :4, :4], mask[k, 0, 8:12, :4] = 2, 3
    assert choose_slices(masks, "x") in ([3, 4, 6], [3, 4, 5])  # 2 to 7 show enough: quantiles 3.25, 4.5, 5.75
    masks[0][:] = 0
    with pytest.raises(BadInput, match="no slice"):
        choose_slices(masks, "x")


@pytest.mark.parametrize("structure", [2, 3])
def test_ten_pixels_of_a_structure_are_enough_and_nine_are_not(structure):
    masks = [torch.zeros(3, 1, 20, 20, dtype=torch.uint8) for _ in range(2)]
    for mask in masks:
        mask[:, 0, :4, :4], mask[:, 0, 8:12, :4] = 2, 3
    masks[1][masks[1] == structure] = 0
    for k, pixels in enumerate((9, 10, 9)):
        masks[1][k, 0, 19, :pixels] = structure
    assert choose_slices(masks, "x") == [1, 1, 1]


@pytest.fixture
def pair():
    bright = np.random.default_rng(0).random(STACK.shape) * 100
    return [Image(bright, STACK), Image(0.5 * bright, STACK)]


def test_padding_repeats_the_border_of_images_and_is_no_label(pair):
    mask = Image(np.full(STACK.shape, 2, np.uint8), STACK)
    sample = volume_pair("x", pair, [mask, mask], centred_grid(STACK, (20, 16, 10), STACK.spacing, STACK.axes))
    inner = sample.fixed[0, 0, ..., 2:8]
    assert torch.allclose(sample.fixed[0, 0, ..., :2], inner[..., :1].expand(-1, -1, 2), atol=1e-5)
    assert torch.allclose(sample.fixed[0, 0, ..., 8:], inner[..., -1:].expand(-1, -1, 2), atol=1e-5)
    assert sample.fixed_labels[0, 0, ..., 2:8].unique().tolist() == [2]
    assert sample.fixed_labels[0, 0, ..., [0, 1, 8, 9]].unique().tolist() == [0]


def test_both_volumes_share_one_scaling_whatever_is_padded(pair):
    """The scaling ends at the percentiles of what the files hold, so that twice as bright stays twice as bright."""
    values = np.stack([image.array for image in pair])
    low, high = np.percentile(values, (1, 99))
    for size in (6, 30):
        sample = volume_pair("x", pair, [], centred_grid(STACK, (20, 16, size), STACK.spacing, STACK.axes))
        seen = sample.moving[0, 0, ..., size // 2 - 3 : size // 2 + 3].numpy()
        np.testing.assert_allclose(seen, np.clip((pair[1].array - low) / (high - low), 0, 1), atol=1e-5)
    assert sample.fixed_labels is None


TURNED = (0.0, 1.0, 0.0, -1.0, 0.0, 0.0, 0.0, 0.0, 1.0)
OWN = Grid((9, 12, 5), (1.2, 1.0, 8.0), (3.0, -7.0, 50.0), TURNED)


def middle(grid):
    return grid.points((np.array([grid.shape]) - 1) / 2)[0]


@pytest.mark.parametrize("axes", [OWN.axes, np.eye(3)])
def test_the_centre_stays_where_it_is(axes):
    grid = centred_grid(OWN, (16, 16, 8), (1.5, 2.0, 3.0), axes)
    np.testing.assert_allclose(middle(grid), middle(OWN))
    np.testing.assert_allclose(grid.axes, axes)


def test_voxels_of_the_same_spacing_fall_on_voxels_less_than_one_away():
    grid = snap_to_voxels(centred_grid(OWN, (16, 15, 6), OWN.spacing, OWN.axes), OWN)
    index = OWN.index(grid.points(np.array([[0.0, 0, 0], [15, 14, 5]])))
    np.testing.assert_allclose(index, np.round(index), atol=1e-9)
    assert (np.abs(OWN.index(middle(grid)[None]) - OWN.index(middle(OWN)[None])) <= 0.5 + 1e-9).all()


PLAIN = np.diag([1.5, 1.5, 10, 1])
RAMP = np.arange(8 * 6 * 4).reshape(8, 6, 4)


def test_phases_are_of_one_shape_and_in_one_place(tmp_path):
    write(tmp_path / "a.nii.gz", RAMP, PLAIN)
    write(tmp_path / "b.nii.gz", RAMP[:, :5], PLAIN)
    write(tmp_path / "c.nii.gz", RAMP, PLAIN + np.array([[0, 0, 0, 1000.0]] + [[0] * 4] * 3))
    with pytest.raises(BadInput, match=r"differ in shape \(8x6x4 and 8x5x4\)"):
        read_phases([tmp_path / "a.nii.gz", tmp_path / "b.nii.gz"])
    with pytest.raises(BadInput, match="do not overlap"):
        read_phases([tmp_path / "a.nii.gz", tmp_path / "c.nii.gz"])


def test_what_cannot_be_seen_is_refused(tmp_path):
    write(tmp_path / "constant.nii.gz", 0 * RAMP + 7, PLAIN)
    write(tmp_path / "nan.nii.gz", np.where(RAMP == 3, np.nan, RAMP), PLAIN, np.float32)
    write(tmp_path / "flat.nii.gz", RAMP[..., 0], PLAIN)
    for name, reason in (("constant", "is constant .7."), ("nan", "contains NaN"), ("flat", "is 2D")):
        with pytest.raises(BadInput, match=f"{name}.nii.gz {reason}"):
            read_phases([tmp_path / f"{name}.nii.gz"] * 2)


def test_frames_of_a_4d_file_are_volumes_in_time(tmp_path):
    frames = np.stack([RAMP + 100 * t for t in range(3)], -1)
    write(tmp_path / "sa.nii.gz", frames, PLAIN)
    found = read_frames(tmp_path / "sa.nii.gz")
    assert [image.array.tolist() for image in found] == [(RAMP + 100 * t).tolist() for t in range(3)]
    assert {image.grid.spacing for image in found} == {(1.5, 1.5, 10.0)}
    write(tmp_path / "sa.nii.gz", RAMP, PLAIN)
    with pytest.raises(BadInput, match="one frame only"):
        read_frames(tmp_path / "sa.nii.gz")


def test_labels_are_bytes_on_the_grid_of_their_image(tmp_path):
    write(tmp_path / "image.nii.gz", RAMP, PLAIN)
    image = read_shown(tmp_path / "image.nii.gz")
    write(tmp_path / "good.nii.gz", RAMP % 4, PLAIN, np.float32)
    write(tmp_path / "shifted.nii.gz", RAMP % 4, PLAIN + np.array([[0, 0, 0, 1.0]] + [[0] * 4] * 3))
    write(tmp_path / "many.nii.gz", RAMP % 4 + 1000, PLAIN)
    write(tmp_path / "halves.nii.gz", RAMP / 2, PLAIN, np.float32)
    labels = read_labels(tmp_path / "good.nii.gz", image).array
    assert labels.dtype == np.uint8
    assert (labels == RAMP % 4).all()
    for name, reason in (("shifted", "not on the grid"), ("many", "above 255"), ("halves", "not whole")):
        with pytest.raises(BadInput, match=reason):
            read_labels(tmp_path / f"{name}.nii.gz", image)
