import time

import numpy as np
import pytest
import SimpleITK as sitk
from numpy.testing import assert_allclose

from tests.conftest import SHAPES
from tests.evaluation.shapes import SPACING
from vrnet.evaluation.metrics import dice
from vrnet.evaluation.pair import (
    motion_error,
    overlap,
    overlap_in_slices,
    regularity,
    similarity,
    target_registration_error,
)
from vrnet.files import json_ready
from vrnet.images.grid import Grid

MEASURES = ["dice", "hausdorff_mm", "surface_hausdorff_mm", "hausdorff95_mm", "mean_surface_distance_mm"]


@pytest.fixture
def labels(d):
    """A label map with structures 1 and 4, and the same moved by two voxels along axis 0."""
    fixed = np.zeros(SHAPES[d], np.uint8)
    fixed[2:7, 2:7], fixed[2:7, 7:9] = 1, 4
    return fixed, np.roll(fixed, 2, axis=0)


def test_similarity_compares_with_fixed_before_and_after(d, random):
    fixed, moving, warped, *seen = random(5, *SHAPES[d]).numpy()
    seen = tuple(each > np.median(each) for each in seen)
    found = similarity(fixed, moving, warped, seen)
    assert list(found) == ["mae_before", "mae_after", "ncc_before", "ncc_after"]
    pairs = [(image[where], fixed[where]) for image, where in zip((moving, warped), seen, strict=True)]
    mae = [np.abs(image - other).sum() / image.size for image, other in pairs]
    ncc = [np.corrcoef(image, other)[0, 1] for image, other in pairs]
    assert_allclose(list(found.values()), [*mae, *ncc])


def test_regularity_has_the_names_of_metrics_json(d):
    still = regularity(np.zeros((d, *SHAPES[d]), np.float32), Grid.plain(SHAPES[d], (1.0,) * d))
    assert still == {"folding_percent": 0, "folding_strict_percent": 0, "jacobian_gradient": 0}


@pytest.mark.parametrize(("axis", "thick"), [(0, 0), (1, 2), (2, 1)])
def test_slices_registered_each_by_itself_are_measured_so(axis, thick, random):
    """The mean over the slices, whatever happens from one slice to the next, also after rounding in a file. Slices may
    be taken across any axis, not only across that of the widest spacing."""
    field = 0.3 * random(3, 6, 5, 4).numpy()
    field[axis] = 1e-5
    stack = Grid.plain((6, 5, 4), tuple(8.0 if i == thick else 1.5 for i in range(3)))
    flat = Grid.plain(tuple(np.delete(stack.shape, axis).tolist()), (1.5, 1.5))
    alone = [regularity(np.delete(field, axis, 0).take(k, 1 + axis), flat) for k in range(field.shape[1 + axis])]
    for name, value in regularity(field, stack).items():
        assert_allclose(value, np.mean([each[name] for each in alone]))
        assert value > 0


def test_a_volume_in_which_nothing_moves_at_all_is_one_without_folds(random):
    """And where nothing moves along two axes, the one across slices is that of the slices: smoothness is theirs."""
    stack = Grid.plain((6, 5, 4), (1.0, 1.0, 8.0))
    assert regularity(np.zeros((3, 6, 5, 4), np.float32), stack)["folding_strict_percent"] == 0
    field = np.stack([0.3 * random(6, 5, 4).numpy(), *np.zeros((2, 6, 5, 4))])
    alone = [regularity(field[:2, :, :, k], Grid.plain((6, 5), (1.0, 1.0)))["jacobian_gradient"] for k in range(4)]
    assert_allclose(regularity(field, stack)["jacobian_gradient"], np.mean(alone))


def test_motion_across_slices_is_measured_in_three_dimensions(random):
    field = 0.3 * random(3, 6, 5, 4).numpy()
    stack, cubes = (Grid.plain((6, 5, 4), spacing) for spacing in ((1.0, 1.0, 8.0), (1.0, 1.0, 1.0)))
    assert regularity(field, stack) == regularity(field, cubes)


def test_overlap_has_every_label_and_their_mean_before_and_after(d, labels):
    fixed, moving = labels
    found = overlap(fixed, moving, moving, (1.0,) * d)
    assert list(found) == MEASURES
    for measure in found.values():
        assert list(measure) == ["before", "after"]
        assert measure["before"] == measure["after"]
        assert list(measure["before"]) == ["1", "4", "mean"]


def test_a_perfect_registration_overlaps_fully_and_lies_at_no_distance(d, labels):
    fixed, moving = labels
    found = overlap(fixed, moving, fixed.copy(), (1.5,) * d)
    assert set(found["dice"]["after"].values()) == {1.0}
    assert_allclose(list(found["dice"]["before"].values()), 3 / 5)  # 2 of the 5 rows have left
    for name in MEASURES[1:]:
        assert set(found[name]["after"].values()) == {0.0}
    for name in ("hausdorff_mm", "surface_hausdorff_mm"):
        assert_allclose(list(found[name]["before"].values()), 2 * 1.5)


def test_distances_are_in_mm_along_the_axis_of_the_motion(d, labels):
    fixed, moving = labels
    found = overlap(fixed, moving, moving, (0.5, *[9.0] * (d - 1)))
    for name in ("hausdorff_mm", "surface_hausdorff_mm"):
        assert_allclose(found[name]["after"]["mean"], 2 * 0.5)


def test_a_label_in_one_image_only_is_measured_all_the_same(d, labels):
    """Otherwise a method could lose a structure for free."""
    fixed, moving = labels
    moving = np.where(moving == 4, 0, moving).astype(np.uint8)
    found = overlap(fixed, moving, moving, (1.0,) * d)
    assert found["dice"]["after"]["4"] == 0
    assert found["dice"]["after"]["mean"] == found["dice"]["after"]["1"] / 2
    for name in MEASURES[1:]:
        assert np.isnan(found[name]["after"]["4"])
        assert found[name]["after"]["mean"] == found[name]["after"]["1"] > 0


def test_each_measure_goes_by_its_name():
    """Distances 0, ½, …, 10 mm from a line to its first voxel, and 0 back: P95 is 9.5, and 22 voxels share 105 mm."""
    line, first = np.zeros((2, 3, 30), int)
    line[1, 4:25], first[1, 4] = 1, 1
    found = overlap(line, first, line, (7.0, 0.5))
    assert_allclose([found[name]["before"]["1"] for name in MEASURES], [2 / 22, 10, 10, 9.5, 105 / 22])
    assert_allclose([found[name]["after"]["1"] for name in MEASURES], [1, 0, 0, 0, 0])


def test_label_maps_without_labels_have_no_measure(d):
    nothing = np.zeros(SHAPES[d], np.int16)
    found = overlap(nothing, nothing, nothing, (1.0,) * d)
    assert json_ready(found) == {name: {"before": {"mean": None}, "after": {"mean": None}} for name in MEASURES}


@pytest.mark.parametrize("values", [(-5, 300), (-(2**63), 2**63 - 1)])
def test_the_numbers_of_the_labels_do_not_matter(d, labels, values):
    fixed, moving = (np.select([image == 1, image == 4], values, 0).astype(np.int64) for image in labels)
    found, plain = (overlap(*pair, pair[1], SPACING[d]) for pair in ((fixed, moving), labels))
    for name in MEASURES:
        assert list(found[name]["before"]) == [*map(str, values), "mean"]
        assert list(found[name]["before"].values()) == list(plain[name]["before"].values())


def test_label_maps_of_two_types_share_their_labels():
    """2⁶² and 2⁶² + 1 are one floating-point number, but two labels."""
    fixed = np.array([[2**62, 2**62, 2**62 + 1]], np.uint64)
    moving = np.array([[2**62, 2**62 + 1, -7]], np.int64)
    found = overlap(fixed, moving, moving, (1.0, 1.0))["dice"]["before"]
    assert found == {"-7": 0, str(2**62): 2 / 3, str(2**62 + 1): 0, "mean": pytest.approx(2 / 9)}


@pytest.mark.parametrize("axis", [0, 2])
def test_a_slice_stored_as_a_volume_is_measured_as_the_slice(axis):
    rng = np.random.default_rng(0)
    fixed, moving, warped = rng.integers(0, 4, (3, 12, 10)).repeat(2, 1).repeat(2, 2)
    spacing = list(SPACING[2])
    spacing.insert(axis, 6.0)
    volumes = [np.expand_dims(image, axis) for image in (fixed, moving, warped)]
    assert overlap(*volumes, tuple(spacing)) == overlap(fixed, moving, warped, SPACING[2])
    images = [[image.astype(float) for image in images] for images in (volumes, (fixed, moving, warped))]
    as_volume, as_slice = (similarity(*given, (np.ones(given[0].shape, bool),) * 2) for given in images)
    assert as_volume == as_slice


def test_the_target_registration_error_is_the_mean_distance_from_the_moving_points():
    fixed, moving = np.array([[0.0, 0.0], [1.0, 2.0]]), np.array([[3.0, 4.0], [1.0, 3.0]])
    mapped = np.array([[3.0, 3.0], [1.0, 3.0]])
    assert target_registration_error(fixed, moving, mapped) == {"before": 3.0, "after": 0.5}


@pytest.fixture(scope="module")
def brains(data_root):
    """The label maps of two brains, 160 x 192 x 224 voxels of 1 mm with 45 structures."""
    folder = data_root / "brain_pair"
    if not folder.is_dir():
        pytest.skip(f"no brains at {folder}")
    return [sitk.ReadImage(str(folder / f"{name}_seg.nii.gz")) for name in "ab"]


@pytest.mark.release
def test_two_brains_are_measured_in_seconds_and_as_by_simpleitk(brains):
    fixed, moving = (sitk.GetArrayFromImage(image) for image in brains)
    start = time.process_time()
    found = overlap(fixed, moving, moving, (1.0, 1.0, 1.0))
    assert time.process_time() - start < 15
    itk = sitk.LabelOverlapMeasuresImageFilter()
    itk.Execute(*brains)
    labels = found["dice"]["before"].keys() - {"mean"}
    assert len(labels) == 45
    for label in labels:
        assert_allclose(found["dice"]["before"][label], itk.GetDiceCoefficient(int(label)))


def crop_to_what_is_shown(*masks):
    """The part of the masks where either shows something, with two voxels around it."""
    shown = np.argwhere(np.logical_or(*map(sitk.GetArrayFromImage, masks)))[:, ::-1]
    low, high = np.maximum(shown.min(0) - 2, 0).tolist(), (shown.max(0) + 3).tolist()
    return [mask[tuple(slice(a, b) for a, b in zip(low, high, strict=True))] for mask in masks]


@pytest.mark.release
@pytest.mark.parametrize("label", [2, 17, 53])
def test_structures_of_two_brains_lie_as_far_apart_as_simpleitk_says(brains, label):
    """White matter and the two hippocampi; an erosion by a cross leaves all but the surface."""
    masks = crop_to_what_is_shown(*(image == label for image in brains))
    only = [label * sitk.GetArrayFromImage(mask) for mask in masks]
    surfaces = [
        sitk.And(mask, sitk.Not(sitk.BinaryErode(mask, (1, 1, 1), sitk.sitkCross, 0, 1, True))) for mask in masks
    ]
    itk = sitk.HausdorffDistanceImageFilter()
    itk.Execute(*surfaces)
    found = overlap(*only, only[1], (1.0, 1.0, 1.0))
    assert_allclose(found["surface_hausdorff_mm"]["before"][str(label)], itk.GetHausdorffDistance(), rtol=1e-6)


@pytest.mark.parametrize("across", [0, 2])
def test_the_mean_over_slices_is_that_of_the_slices_that_show_a_structure(across):
    """By the Dice of one slice after another; a structure that neither map shows anywhere has none."""
    generator = np.random.default_rng(3)
    fixed, moving, warped = generator.integers(0, 4, (3, 5, 6, 7)) * 5
    for map_ in (fixed, moving, warped):
        map_[(slice(None),) * across + (0,)] = 0
    found = overlap_in_slices(fixed, moving, warped, across)["dice_mean_over_slices"]
    for when, other in (("before", moving), ("after", warped)):
        pairs = [(fixed.take(k, across), other.take(k, across)) for k in range(1, fixed.shape[across])]
        expected = {str(label): np.mean([dice(a == label, b == label) for a, b in pairs]) for label in (5, 10, 15)}
        assert_allclose([found[when][label] for label in expected], [*expected.values()])
        assert_allclose(found[when]["mean"], np.mean([*expected.values()]))


def test_a_structure_in_one_map_alone_counts_as_missed():
    labels, empty = np.zeros((4, 4, 3), int), np.zeros((4, 4, 3), int)
    labels[1:3, 1:3, :2] = 2
    moved = labels.copy()
    moved[..., 1] = 0
    assert overlap_in_slices(labels, empty, moved, 2)["dice_mean_over_slices"] == {
        "before": {"2": 0.0, "mean": 0.0}, "after": {"2": 0.5, "mean": 0.5},
    }  # fmt: skip
    nothing = overlap_in_slices(empty, empty, empty, 2)["dice_mean_over_slices"]["after"]
    assert json_ready(nothing) == {"mean": None}


def test_the_error_of_a_known_motion_is_in_mm_and_inside_the_mask(random, d):
    true, spacing = random(d, *SHAPES[d]).numpy(), (1.5, 2.0, 8.0)[:d]
    field, inside = true.copy(), np.zeros(SHAPES[d], bool)
    field[1] += 0.5
    inside[2:5, 3:6] = True
    found = motion_error(field, true, spacing, inside)
    lengths = np.sqrt(sum((h * u) ** 2 for h, u in zip(spacing, true, strict=True)))
    assert_allclose(found["end_point_error_mm_before"], lengths[inside].mean())
    assert_allclose(found["end_point_error_mm_after"], 1.0)
    assert_allclose(motion_error(field, true, spacing)["end_point_error_mm_before"], lengths.mean())
