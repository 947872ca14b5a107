import nibabel
import numpy as np
import pytest
import torch

from tests.data.making import heart, write_acdc
from vrnet import BadInput
from vrnet.data import acdc
from vrnet.data.acdc import ACDC
from vrnet.evaluation.metrics import contour_hausdorff, dice


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return made_up(tmp_path_factory.mktemp("acdc"))


def made_up(folder):
    """Two made-up patients in ACDC's folders, 1.5 mm in-plane, seven slices of which five show the heart."""
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


def test_to_be_trained_on_a_subject_is_all_its_slices_without_labels(root):
    sample = ACDC(root).prepare("patient001", "training")
    assert sample.fixed.shape == sample.moving.shape == (7, 1, 160, 160)
    assert sample.fixed_labels is None
    assert sample.moving_labels is None


def test_the_three_slices_are_the_same_to_be_trained_on_and_measured_on(root):
    trained = ACDC(root, slices="three").prepare("patient001", "training")
    measured, every = (ACDC(root).prepare("patient001", purpose) for purpose in ("evaluation", "training"))
    assert torch.equal(trained.fixed, measured.fixed)
    assert torch.equal(measured.moving, every.moving[[2, 3, 4]])
    assert trained.fixed_labels is None


def test_both_phases_share_one_scaling(root):
    """What is equally bright in both files is equally bright in both images: the chest wall does not move."""
    sample = acdc.prepare(root / "patient001")
    still = (sample.fixed_labels == 0) & (sample.moving_labels == 0)
    assert (sample.fixed - sample.moving)[still].abs().median() < 0.02
    assert 0 <= sample.fixed.min() < sample.fixed.max() <= 1


def test_the_centre_stays_in_the_centre(root):
    """The middle of the stack is the middle of the sample: labels keep their distance from it, in mm, along axes that
    run as LPS does, and not as those of the file, RAS."""
    labels = nibabel.load(root / "patient001" / "patient001_frame01_gt.nii.gz").get_fdata()[..., 3]
    sample = acdc.prepare(root / "patient001").fixed_labels[1, 0].numpy()
    for structure in acdc.STRUCTURES.values():
        before = (np.argwhere(labels == structure).mean(0) - (np.array(labels.shape) - 1) / 2) * 1.5
        after = (np.argwhere(sample == structure).mean(0) - 159 / 2) * 1.8
        np.testing.assert_allclose(after, -before, atol=0.5)


def test_a_patient_is_made_of_five_files_whatever_the_purpose(root):
    for purpose in ("training", "evaluation"):
        names = sorted(path.name for path in ACDC(root).sources("patient001", purpose))
        ends = ("01.nii.gz", "01_gt.nii.gz", "12.nii.gz", "12_gt.nii.gz")
        assert names == ["Info.cfg", *(f"patient001_frame{end}" for end in ends)]


def test_splits_are_files(root, tmp_path):
    assert [folder.name for folder in acdc.subjects(root, "test")] == ["patient001"]
    (tmp_path / "mine.csv").write_text("subject,split\npatient002,test\n")
    assert ACDC(root, tmp_path / "mine.csv").subjects("test") == ["patient002"]
    with pytest.raises(BadInput, match=r"there is no .*split\.csv"):
        acdc.subjects(tmp_path, "test")


def test_a_folder_that_is_no_patient_s_is_named(tmp_path):
    (tmp_path / "patient009").mkdir()
    with pytest.raises(BadInput, match=r"no Info\.cfg"):
        ACDC(tmp_path).sources("patient009", "training")


def test_unregistered_hearts_are_as_far_apart_as_published(data_root):
    """Dice .625, HD 10.84 mm on these 20 test subjects; the paper prints .626 and 10.87 on its 50."""
    samples = [acdc.prepare(folder) for folder in acdc.subjects(data_root / "acdc", "test")]
    scores = np.array([unregistered(sample) for sample in samples])
    assert scores.shape == (20, 2)
    np.testing.assert_allclose(scores.mean(0), (0.6252, 10.836), atol=(0.0005))


def unregistered(sample):
    """Dice and HD: the mean over slices of each structure, then over structures."""
    pairs = [(a[0].numpy(), b[0].numpy()) for a, b in zip(sample.fixed_labels, sample.moving_labels, strict=True)]
    measures = dice, lambda a, b: contour_hausdorff(a, b, sample.spacing)
    return [np.nanmean([np.nanmean([f(a == k, b == k) for a, b in pairs]) for k in (1, 2, 3)]) for f in measures]
