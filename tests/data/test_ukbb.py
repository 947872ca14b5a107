import nibabel
import numpy as np
import pytest
import torch
from scipy import ndimage

from tests.data.conftest import affine_of, brightest, heart, place, spots, write, write_splits, write_ukbb
from vrnet.data.dataset import CMR3D, UKBB

SHAPE, SPACING = (81, 70, 60), (1.3, 1.3, 2.0)
MARKS = (46, 34, 32), (38, 40, 25)


@pytest.fixture
def root(tmp_path):
    """One subject with a cine of four frames, one without, one without labels."""
    images, labels = heart(5)
    for name in ("1000001", "1000002", "1000003"):
        write_ukbb(tmp_path / name, images, labels)
    for phase in ("ED", "ES"):
        (tmp_path / "1000003" / f"label_sa_{phase}.nii.gz").unlink()
    weights = (0, 0.5, 1, 0.25)
    frames = [(1 - w) * images[0] + w * images[1] for w in weights]
    write(tmp_path / "1000001" / "sa.nii.gz", np.stack(frames, -1), np.diag([1.5, 1.5, 10, 1]))
    write_splits(tmp_path, train=["1000001", "1000002", "1000003"])
    return tmp_path


def test_to_be_measured_on_a_subject_is_three_labelled_slices_of_both_phases(root):
    sample = UKBB(root).prepare("1000001", "evaluation")
    assert sample.fixed.shape == sample.moving_labels.shape == (3, 1, 160, 160)
    assert sample.spacing == (1.8, 1.8)
    assert {path.name for path in UKBB(root).sources("1000001", "evaluation")} == {
        "sa_ED.nii.gz", "sa_ES.nii.gz", "label_sa_ED.nii.gz", "label_sa_ES.nii.gz",
    }  # fmt: skip


def test_to_be_trained_on_every_frame_is_paired_with_the_first(root):
    """Frame 2 of the cine is end-systole, and the others lie between: so do their images, under one scaling."""
    sample = UKBB(root).prepare("1000001", "training")
    assert sample.fixed.shape == sample.moving.shape == (3 * 7, 1, 160, 160)
    assert sample.fixed_labels is None
    first, (half, systole, quarter) = sample.fixed[:7], sample.moving.split(7)
    assert torch.equal(sample.fixed, first.repeat(3, 1, 1, 1))
    unclipped = (first > 0.05) & (first < 0.95) & (systole > 0.05) & (systole < 0.95)
    assert (half - (first + systole) / 2)[unclipped].abs().max() < 0.01
    assert (quarter - (0.75 * first + 0.25 * systole))[unclipped].abs().max() < 0.01


def test_without_a_cine_end_systole_is_paired_with_end_diastole_and_no_labels_are_needed(root):
    both, unlabelled = (UKBB(root).prepare(name, "training") for name in ("1000002", "1000003"))
    assert both.fixed.shape == (7, 1, 160, 160)
    assert torch.equal(both.moving, unlabelled.moving)
    assert both.fixed_labels.shape == both.moving_labels.shape == both.fixed.shape
    assert unlabelled.fixed_labels is unlabelled.moving_labels is None
    names = ["sa_ED.nii.gz", "sa_ES.nii.gz", "label_sa_ED.nii.gz", "label_sa_ES.nii.gz"]
    for name, count in (("1000002", 4), ("1000003", 2)):
        assert [path.name for path in UKBB(root).sources(name, "training")] == names[:count]


def test_labels_with_lv_and_rv_exchanged_are_renumbered(root):
    """At both phases, even where one of them alone does not tell, since its walls are open."""
    images, (diastole, systole) = heart(5)
    systole[60:] *= systole[60:] != 2
    found = []
    for parts in ((diastole, systole), [np.choose(mask, [0, 3, 2, 1]) for mask in (diastole, systole)]):
        write_ukbb(root / "1000002", images, parts)
        found.append(UKBB(root).prepare("1000002", "evaluation"))
    for part in ("fixed_labels", "moving_labels"):
        expected, renumbered = (getattr(sample, part) for sample in found)
        assert set(expected.unique().tolist()) == {0, 1, 2, 3}
        assert torch.equal(renumbered, expected)


def test_in_a_real_subject_the_myocardium_encloses_the_lv(data_root):
    sample = UKBB(data_root / "ukbb_sample").prepare("0001", "evaluation")
    for mask in sample.fixed_labels[:, 0].numpy():
        wall = mask == UKBB.structures["Myo"]
        cavity = ndimage.binary_fill_holes(wall) & ~wall
        assert (mask[cavity] == UKBB.structures["LV"]).mean() > 0.95
    assert UKBB(data_root / "ukbb_sample").prepare("0001", "training").fixed.shape == (9, 1, 160, 160)


@pytest.fixture
def volumes(tmp_path):
    affine = affine_of(SPACING)
    images = [spots(affine, SHAPE, nibabel.affines.apply_affine(affine, mark)) for mark in MARKS]
    write_ukbb(tmp_path / "a", images, [(image > 500) * 3 for image in images], affine)
    return tmp_path


def test_landmarks_keep_their_distance_in_mm_and_the_centre_is_the_centre(volumes):
    sample, affine = CMR3D(volumes).prepare("a", "evaluation"), affine_of(SPACING)
    assert (sample.fixed.shape, sample.spacing) == ((1, 1, 128, 128, 96), (1.2, 1.2, 1.2))
    found = [brightest(part[0, 0].numpy()) for part in (sample.fixed, sample.moving)]
    at = [place(affine, SHAPE, sample.spacing, (128, 128, 96), index) for index in found]
    true = [nibabel.affines.apply_affine(affine, mark) for mark in MARKS]
    np.testing.assert_allclose(at[1] - at[0], true[1] - true[0], atol=0.1)
    assert (np.abs(at[0] - true[0]) <= 1.01).all()  # half a voxel of the file, 2 mm


def test_images_at_the_protocol_s_spacing_are_cropped_and_padded_to_the_bit(tmp_path):
    """Not blurred, even where an odd number of voxels is centred in an even one."""
    labels = np.random.default_rng(0).integers(0, 2, (41, 30, 101))
    write_ukbb(tmp_path / "a", [labels * 100, labels * 50], [labels, labels], np.diag([1.2, 1.2, 1.2, 1]))
    sample = CMR3D(tmp_path).prepare("a", "evaluation")
    assert sample.fixed_labels.sum() == labels[..., 2:98].sum() or sample.fixed_labels.sum() == labels[..., 3:99].sum()
    inside = (sample.fixed_labels[0, 0] > 0).numpy()
    np.testing.assert_allclose(sample.fixed[0, 0].numpy()[inside], 1, atol=1e-4)
