"""Images that lie turned, mirrored or moved are told from those that do not, whatever a field made of them locally."""

from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy import ndimage, stats
from scipy.ndimage import affine_transform
from scipy.spatial.transform import Rotation
from torch.nn import functional

from tests.conftest import SHAPES
from tests.phantoms import phantom
from vrnet import read_image, register
from vrnet.verdict.placement import (
    BINS,
    MIN_COARSE_VOXELS,
    MIN_PART_SEEN,
    MIN_VARIANCE_SEEN,
    NOISE,
    CoarseImage,
    Shifts,
    Windows,
    best_of_shifts,
    best_turned,
    coarse_shape,
    compare_placements,
    gain,
    intensity_range,
    mutual_information,
    placements,
    squared_correlation,
    turns,
    window_mean,
)
from vrnet.verdict.rules import MAX_PLACEMENT_GAIN, judge

pytestmark = pytest.mark.usefixtures("as_users_run")
SIDES = {2: ((96, 96), 3.0), 3: ((48, 48, 32), 4.0)}


@pytest.fixture(scope="module")
def hearts():
    return {d: phantom(7, *SIDES[d]) for d in (2, 3)}


def whole(image):
    """An image (*s) of which every voxel counts."""
    return CoarseImage(image[None, None], torch.ones(1, 1, *image.shape))


def placed(fixed, moving, field, spacing):
    found, turned, mirrored = compare_placements(whole(fixed), whole(moving), field, spacing)
    return SimpleNamespace(found=found, turned=turned, mirrored=mirrored)


def turned(image, degrees):
    """An image turned about its middle, in the plane of its first two axes."""
    R = Rotation.from_rotvec([0, 0, np.radians(degrees)]).as_matrix()[: image.dim(), : image.dim()]
    centre = (np.array(image.shape) - 1) / 2
    return torch.from_numpy(affine_transform(image.numpy(), R, centre - R @ centre, order=1))


def test_the_true_motion_leaves_nothing_to_be_gained_by_turning(hearts, d):
    heart = hearts[d]
    found = placed(heart.fixed[0, 0], heart.moving[0, 0], heart.field, heart.spacing)
    assert gain(max(found.turned, found.mirrored), found.found) < 0.1


def test_a_small_part_of_an_image_does_not_tell_how_it_lies():
    """Inside a small mask some placement fits by chance, even of noise."""
    fixed, moving = torch.rand(2, 40, 40, generator=torch.Generator().manual_seed(0))
    for rows in (MIN_COARSE_VOXELS // 40, MIN_COARSE_VOXELS // 40 + 1):
        counted = torch.zeros(1, 1, 40, 40)
        counted[:, :, :rows] = 1
        few = CoarseImage(fixed[None, None], counted)
        _, *otherwise = compare_placements(few, whole(moving), torch.zeros(1, 2, 40, 40), (1.0, 1.0))
        assert tuple(each > 0 for each in otherwise) == (rows * 40 >= MIN_COARSE_VOXELS,) * 2


def test_a_mirrored_image_is_told_and_so_is_a_turned_one(hearts, d):
    heart, axis = hearts[d], d - 2
    fixed, moving, still = heart.fixed[0, 0], heart.moving[0, 0], torch.zeros_like(heart.field)
    mirrored, tilted = (placed(fixed, image, still, heart.spacing) for image in (moving.flip(axis), turned(moving, 30)))
    assert mirrored.mirrored > mirrored.turned
    assert gain(mirrored.mirrored, mirrored.found) > MAX_PLACEMENT_GAIN
    assert tilted.turned > tilted.mirrored
    assert gain(tilted.turned, tilted.found) > MAX_PLACEMENT_GAIN


@pytest.mark.release
def test_an_image_that_lies_a_quarter_away_is_told_unless_the_field_brings_it_back(hearts, d):
    heart = hearts[d]
    fixed, by = heart.fixed[0, 0], heart.fixed.shape[2] // 4
    moving, field = fixed.roll(by, 0), torch.zeros_like(heart.field)
    away = placed(fixed, moving, field, heart.spacing)
    field[:, 0] = by
    back = placed(fixed, moving, field, heart.spacing)
    assert gain(away.turned, away.found) > MAX_PLACEMENT_GAIN
    assert gain(max(back.turned, back.mirrored), back.found) < 0.05


def test_the_best_of_all_shifts_is_that_of_trying_each():
    """Of images parts of which do not count; shifts by more than half a side are not tried."""
    noise = np.random.default_rng(0)
    F, M = noise.random((2, 7, 6))
    f, m = np.ones((7, 6)), np.ones((7, 6))
    f[:2, 3:], m[5:] = 0, 0
    best, variance = 0.0, F[f > 0].var() * f.sum()
    for i, j in product(range(-3, 4), range(-3, 4)):
        pairs = [
            (F[x, y], M[x + i, y + j])
            for x, y in product(range(7), range(6))
            if 0 <= x + i < 7 and 0 <= y + j < 6 and f[x, y] and m[x + i, y + j]
        ]
        a = np.array([pair[0] for pair in pairs])
        if len(pairs) >= MIN_PART_SEEN * f.sum() and a.var() * len(pairs) >= MIN_VARIANCE_SEEN * variance:
            best = max(best, abs(np.corrcoef(np.array(pairs).T)[0, 1]))
    images = [
        CoarseImage(*(torch.from_numpy(part).float()[None, None] for part in parts)) for parts in ((F, f), (M, m))
    ]
    assert Shifts(images[0]).best_correlation(images[1]) == pytest.approx(best, abs=1e-4)


def test_what_comes_round_from_behind_is_no_shift():
    """Both ends of fixed are at the other end of moving: no one shift brings them there."""
    F, M = 0.3 * torch.rand(2, 8, 6, generator=torch.Generator().manual_seed(0))
    F[[0, 1, 6, 7]] = torch.rand(4, 6, generator=torch.Generator().manual_seed(1))
    M[[6, 7, 0, 1]] = F[[0, 1, 6, 7]]
    counted = torch.ones(1, 1, 8, 6)
    counted[0, 0, 3:5] = 0
    fixed = CoarseImage(F[None, None], counted)
    assert Shifts(fixed).best_correlation(whole(F)) > 0.99
    assert Shifts(fixed).best_correlation(whole(M)) < 0.9


def test_placements_are_rotations_and_mirrors_and_slices_stay_slices():
    assert [len(placements(across)) for across in ((False,) * 3, (False, False, True), (False,) * 2)] == [62, 18, 10]
    for R in placements((False,) * 3):
        np.testing.assert_allclose(R @ R.T, np.eye(3), atol=1e-12)
    assert all(abs(R[2, 2]) == pytest.approx(1) for R in placements((False, False, True)))


def test_coarse_voxels_are_nearly_cubes_and_slices_of_a_stack_are_kept():
    images = ((160, 192, 224), (1.0,) * 3), ((216, 256, 9), (1.4, 1.4, 10.0)), ((500, 40), (1.0, 1.0))
    for shape, spacing in images:
        found = coarse_shape(shape, spacing)
        assert np.prod(found) <= 4000
        sides = [h * n / m for n, h, m in zip(shape, spacing, found, strict=True)]
        assert max(sides[:2]) / min(sides[:2]) < 1.2
        assert found[-1] == 9 or spacing[-1] == 1


@pytest.mark.release
def test_a_real_brain_is_good_and_one_that_lies_otherwise_is_not_though_it_was_fitted(data_root):
    """Upside down, front to back, and turned by 27° and 35 mm away, by the default for volumes, on voxels of 4 mm."""
    images = [read_image(data_root / "brain_pair" / f"{name}_t1.nii.gz").array for name in "ab"]
    fixed, moving = (functional.avg_pool3d(torch.from_numpy(image).float()[None, None], 4)[0, 0] for image in images)
    R, centre = Rotation.from_euler("xyz", (0.35, 0.2, -0.3)).as_matrix(), (np.array(moving.shape) - 1) / 2
    away = affine_transform(moving.numpy(), R, centre - R @ centre + np.array((25, -15, 20)) / 4, order=1)
    ruined = {"mirrored": moving.flip(1), "mirrored ": moving.flip(2), "turned or moved": torch.from_numpy(away)}
    field = register(fixed, moving, "Gaussian-LNCC").field
    assert judge(fixed, moving, field).level == "good"
    for words, image in ruined.items():
        field = register(fixed, image.contiguous(), "Gaussian-LNCC").field
        verdict = judge(fixed, image, field)
        assert verdict.level == "failed"
        assert words.strip() in verdict.reasons[0]


def angle_between(R, S):
    return np.degrees(Rotation.from_matrix(R @ S.T).magnitude())


def test_the_best_rotation_is_found_to_a_few_degrees():
    """Of a likeness that falls with the angle to some rotation, which is none of those that are tried first."""
    true = Rotation.from_rotvec(np.radians(25) * np.random.default_rng(0).uniform(-1, 1, 3)).as_matrix()
    found = best_turned(lambda R: -angle_between(R, true), (False,) * 3)
    assert found > -6
    assert found >= max(-angle_between(R, true) for R in placements((False,) * 3) if np.linalg.det(R) > 0)


def test_an_image_turned_by_less_than_the_rotations_that_are_tried_first_is_turned_back(hearts, d):
    heart, degrees = hearts[d], {2: 8, 3: 14}[d]
    fixed, still = heart.fixed[0, 0], torch.zeros_like(heart.field)
    found = placed(fixed, turned(fixed, degrees), still, heart.spacing)
    assert found.turned > 0.9
    assert gain(found.turned, found.found) > MAX_PLACEMENT_GAIN


def test_small_turns_leave_slices_that_are_far_apart_as_they_are():
    assert [len(turns(6.0, across)) for across in ((False,) * 3, (False, False, True), (False,) * 2)] == [6, 2, 2]
    for R in turns(6.0, (False, False, True)):
        assert R[2, 2] == pytest.approx(1)
        assert angle_between(R, np.eye(3)) == pytest.approx(6)


def everywhere(image):
    return torch.ones_like(image, dtype=torch.bool)


def test_the_mean_of_a_window_is_that_of_scipy_inside_the_image(d, random):
    image, radius = random(1, 1, *SHAPES[d]).float(), (2, 1, 0)[:d]
    kernel = np.ones([2 * r + 1 for r in radius])
    total, count = (
        ndimage.convolve(each, kernel, mode="constant") for each in (image[0, 0].numpy(), np.ones(SHAPES[d]))
    )
    assert_allclose(window_mean(image, radius)[0, 0].numpy(), total / count, atol=1e-5)


def test_local_correlation_is_that_of_the_window(d, smooth_image):
    """NumPy's correlation coefficient over one window, noise added to both variances."""
    a, b = (smooth_image(SHAPES[d], 1.5, seed, torch.float32) for seed in (0, 1))
    middle, radius = tuple(n // 2 for n in SHAPES[d]), (2,) * d
    box = tuple(slice(m - 2, m + 3) for m in middle)
    x, y = (image[0, 0].numpy()[box].ravel() for image in (a, b))
    expected = np.cov(x, y, ddof=0)[0, 1] ** 2 / ((x.var() + NOISE) * (y.var() + NOISE))
    found, inverted = (squared_correlation(Windows.of(a, radius), Windows.of(other, radius)) for other in (b, 1 - b))
    assert_allclose(found[0, 0][middle].item(), expected, rtol=1e-3)
    assert_allclose(inverted.numpy(), found.numpy(), atol=1e-3, err_msg="contrast does not matter")


def test_a_shift_is_found_by_trying_shifts(d, smooth_image):
    """Moved by two voxels along an axis, the image fits again once it is moved back, but for a margin at the border."""
    image = smooth_image([3 * n for n in SHAPES[d]], 1.0, 0, torch.float32)
    a, b = (Windows.of(each, (2,) * d) for each in (image, image.roll(2, -1)))
    inner = (..., *(slice(8, -8) for _ in range(d)))
    same = squared_correlation(a, a)[inner]
    assert_allclose(best_of_shifts(a, b, reach=3)[inner].numpy(), same.numpy(), atol=0.02)
    assert best_of_shifts(a, b, reach=1)[inner].mean() < 0.9 * same.mean()


def test_mutual_information_is_that_of_numpys_histogram(random):
    a = random(1, 1, 200, 200).float().sigmoid()
    b = (a + 0.1 * random(1, 1, 200, 200).float()).clamp(0, 1)
    joint = np.histogram2d(a.numpy().ravel(), b.numpy().ravel(), BINS, [(0, 1), (0, 1)])[0]
    first, second, both = (stats.entropy(part) for part in (joint.sum(1), joint.sum(0), joint.ravel()))
    expected = (first + second - both) / np.sqrt(first * second)
    assert_allclose(mutual_information(a, b, everywhere(a)), expected, rtol=0.02)


def test_mutual_information_is_none_of_independent_images_and_all_of_a_renamed_one(random):
    noise, other = (random(1, 1, 64, 64).float().sigmoid() for _ in range(2))
    steps = (noise * BINS).floor() / BINS + 0.5 / BINS
    assert mutual_information(noise, other, everywhere(noise)) < 0.02
    assert mutual_information(steps, 1 - steps, everywhere(noise)) > 0.97
    assert mutual_information(noise, other, ~everywhere(noise)) == 0


def test_the_range_leaves_out_outliers_but_not_all():
    image = torch.linspace(0, 1, 1000).view(1, 1, 25, 40).clone()
    image[..., 0, 0] = -1e6
    found = intensity_range(image)
    assert 0 <= found.low < found.high <= 1
    spots = torch.zeros(1, 1, 30, 30)
    spots[..., 3, 4] = 7
    assert intensity_range(spots) == (0, 7)
