import nibabel
import numpy as np
import pytest

from tests.data.making import affine_of, brightest, place, spots, write_ukbb
from vrnet.data.cmr3d import CMR3D

SHAPE, SPACING = (81, 70, 60), (1.3, 1.3, 2.0)
MARKS = (46, 34, 32), (38, 40, 25)


@pytest.fixture
def root(tmp_path):
    affine = affine_of(SPACING)
    images = [spots(affine, SHAPE, nibabel.affines.apply_affine(affine, mark)) for mark in MARKS]
    write_ukbb(tmp_path / "a", images, [(image > 500) * 3 for image in images], affine)
    return tmp_path


def test_a_subject_is_one_volume_at_the_protocol_s_resolution(root):
    sample = CMR3D(root).prepare("a", "evaluation")
    for part in (sample.fixed, sample.moving, sample.fixed_labels, sample.moving_labels):
        assert part.shape == (1, 1, 128, 128, 96)
    assert sample.spacing == (1.2, 1.2, 1.2)


def test_landmarks_keep_their_distance_in_mm_and_the_centre_is_the_centre(root):
    sample, affine = CMR3D(root).prepare("a", "evaluation"), affine_of(SPACING)
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


def test_training_needs_no_labels(root):
    for phase in ("ED", "ES"):
        (root / "a" / f"label_sa_{phase}.nii.gz").unlink()
    assert CMR3D(root).prepare("a", "training").fixed_labels is None
    assert [path.name for path in CMR3D(root).sources("a", "training")] == ["sa_ED.nii.gz", "sa_ES.nii.gz"]
