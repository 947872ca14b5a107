import nibabel
import numpy as np
import pytest
import torch

from tests.data.conftest import affine_of, brightest, place, spots
from vrnet import BadInput, Grid, Image
from vrnet.data.protocols import Plane, all_slices, centred_grid, choose_slices, three_slices, volume_pair

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
    sample = all_slices("x", [on_file_s_grid(spots(AFFINE, SHAPE, mark)) for mark in marks], Plane())
    for part, mark in ((sample.fixed, marks[0]), (sample.moving, marks[1])):
        found = [*brightest(part[2, 0].numpy()), 2]
        at = place(AFFINE, SHAPE, (1.8, 1.8, 9.0), (160, 160, 6), found)
        np.testing.assert_allclose(at, mark, atol=0.1)


def test_every_frame_is_registered_to_the_first_under_one_scaling():
    """Frames at 1, 1/2 and 1/4 of the brightness keep these ratios, slice by slice."""
    ramp = np.random.default_rng(0).random(SHAPE)
    sample = all_slices("x", [on_file_s_grid(1000 * ramp / 2**t) for t in range(3)], Plane())
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
    assert len(all_slices("x", [on_file_s_grid(image), on_file_s_grid(other)], Plane()).fixed) == 4
    with pytest.raises(BadInput, match="nothing to register"):
        all_slices("x", [on_file_s_grid(image), on_file_s_grid(0 * image)], Plane())


def test_three_slices_keep_their_labels():
    """A square of 30x30 mm in each structure is as large at 1.8 mm."""
    labels = np.zeros(SHAPE, np.uint8)
    labels[20:35, 20:32], labels[50:65, 20:32], labels[50:65, 40:52] = 1, 2, 3
    image = on_file_s_grid(np.random.default_rng(0).random(SHAPE))
    mask = on_file_s_grid(labels)
    sample = three_slices("x", [image, image], [mask, mask], Plane())
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
