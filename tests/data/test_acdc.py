import nibabel
import numpy as np
import pytest
import torch

from tests.data.conftest import affine_of, brightest, heart, place, spots, write_acdc
from vrnet import BadInput
from vrnet.data.acdc import ACDC, ACDC3D, group_of
from vrnet.evaluation.metrics import contour_hausdorff, dice

SHAPE, SPACING = (100, 90, 9), (1.4, 1.6, 10.0)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Two made-up patients in ACDC's folders, 1.5 mm in-plane, seven slices of which five show the heart."""
    folder = tmp_path_factory.mktemp("acdc")
    for number, seed in ((1, 3), (2, 4)):
        write_acdc(folder, f"patient{number:03d}", *heart(seed))
    (folder / "split.csv").write_text("patient,group,split\npatient001,NOR,test\npatient002,NOR,train\n")
    return folder


def test_to_be_measured_on_a_subject_is_three_slices_at_the_protocol_s_resolution(root):
    sample = ACDC(root).prepare("patient001", "evaluation")
    for part in (sample.fixed, sample.moving, sample.fixed_labels, sample.moving_labels):
        assert part.shape == (3, 1, 160, 160)
    assert sample.spacing == (1.8, 1.8)
    assert sample.fixed_labels.dtype == torch.uint8
    assert set(sample.fixed_labels.unique().tolist()) == {0, 1, 2, 3}


def test_to_be_trained_on_a_subject_is_all_its_slices_with_their_labels(root):
    sample, measured = (ACDC(root).prepare("patient001", purpose) for purpose in ("training", "evaluation"))
    for part in (sample.fixed, sample.moving, sample.fixed_labels, sample.moving_labels):
        assert part.shape == (7, 1, 160, 160)
    assert torch.equal(sample.fixed_labels[[2, 3, 4]], measured.fixed_labels)
    assert torch.equal(sample.moving_labels[[2, 3, 4]], measured.moving_labels)


def test_both_phases_share_one_scaling(root):
    """What is equally bright in both files is equally bright in both images: the chest wall does not move."""
    sample = ACDC(root).prepare("patient001", "evaluation")
    still = (sample.fixed_labels == 0) & (sample.moving_labels == 0)
    assert (sample.fixed - sample.moving)[still].abs().median() < 0.02
    assert 0 <= sample.fixed.min() < sample.fixed.max() <= 1


def test_the_centre_stays_in_the_centre(root):
    """The middle of the stack is the middle of the sample: labels keep their distance from it, in mm, along axes that
    run as LPS does, and not as those of the file, RAS."""
    labels = nibabel.load(root / "patient001" / "patient001_frame01_gt.nii.gz").get_fdata()[..., 3]
    sample = ACDC(root).prepare("patient001", "evaluation").fixed_labels[1, 0].numpy()
    for structure in ACDC.structures.values():
        before = (np.argwhere(labels == structure).mean(0) - (np.array(labels.shape) - 1) / 2) * 1.5
        after = (np.argwhere(sample == structure).mean(0) - 159 / 2) * 1.8
        np.testing.assert_allclose(after, -before, atol=0.5)


def test_a_folder_that_is_no_patient_s_is_named(tmp_path):
    (tmp_path / "patient009").mkdir()
    with pytest.raises(BadInput, match=r"no Info\.cfg"):
        ACDC(tmp_path).sources("patient009", "training")


@pytest.mark.release
def test_unregistered_hearts_are_as_far_apart_as_published(data_root):
    """Dice .625, HD 10.84 mm on these 20 test subjects; the paper prints .626 and 10.87 on its 50."""
    data = ACDC(data_root / "acdc")
    samples = (data.prepare(name, "evaluation") for name in data.subjects("test"))
    scores = np.array([unregistered_scores(sample) for sample in samples])
    assert scores.shape == (20, 2)
    np.testing.assert_allclose(scores.mean(0), (0.6252, 10.836), atol=(0.0005))


def unregistered_scores(sample):
    """Dice and HD: the mean over slices of each structure, then over structures."""
    pairs = [(a[0].numpy(), b[0].numpy()) for a, b in zip(sample.fixed_labels, sample.moving_labels, strict=True)]
    measures = dice, lambda a, b: contour_hausdorff(a, b, sample.spacing)
    return [np.nanmean([np.nanmean([f(a == k, b == k) for a, b in pairs]) for k in (1, 2, 3)]) for f in measures]


@pytest.fixture(scope="module")
def stacks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("acdc3d")
    write_acdc(folder, "patient001", *heart(3))
    affine = affine_of(SPACING)
    marks = [nibabel.affines.apply_affine(affine, index) for index in ((55, 40, 4.2), (45, 50, 3.1))]
    images = [spots(affine, SHAPE, mark) for mark in marks]
    write_acdc(folder, "patient002", images, [(image > 500).astype(int) for image in images], affine)
    return folder


def test_a_patient_is_one_volume_at_the_protocol_s_resolution(stacks):
    sample = ACDC3D(stacks).prepare("patient001", "evaluation")
    for part in (sample.fixed, sample.moving, sample.fixed_labels, sample.moving_labels):
        assert part.shape == (1, 1, 128, 128, 32)
    assert sample.spacing == (1.5, 1.5, 3.15)
    trained = ACDC3D(stacks).prepare("patient001", "training")
    assert (trained.fixed == sample.fixed).all()
    assert (trained.moving_labels == sample.moving_labels).all()


def test_a_landmark_stays_where_it_is_in_the_world(stacks):
    sample, affine = ACDC3D(stacks).prepare("patient002", "evaluation"), affine_of(SPACING)
    for part, mark in ((sample.fixed, (55, 40, 4.2)), (sample.moving, (45, 50, 3.1))):
        at = place(affine, SHAPE, sample.spacing, (128, 128, 32), brightest(part[0, 0].numpy()))
        expected = nibabel.affines.apply_affine(affine, mark)
        np.testing.assert_allclose(at, expected, atol=1.0)  # linear between slices 10 mm apart


def test_the_group_of_a_patient_is_that_of_its_info(root):
    assert group_of(root / "patient001") == "NOR"
    with pytest.raises(BadInput, match="names the Group"):
        group_of(root)
