import numpy as np
import pytest
import torch

from vrnet import BadInput, Grid, Image, write_image
from vrnet.data import acdc
from vrnet.data.phantom import phantom


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return made_up(tmp_path_factory.mktemp("acdc"))


def made_up(folder):
    """Two made-up patients in ACDC's folders, 1.5 mm in-plane, seven slices of which five show the heart."""
    for number, seed in ((1, 3), (2, 4)):
        patient, name = phantom(seed, (120, 110), 1.5), f"patient{number:03d}"
        (folder / name).mkdir()
        (folder / name / "Info.cfg").write_text("ED: 1\nES: 12\nGroup: NOR\n")
        grid = Grid.plain((120, 110, 7), (1.5, 1.5, 10.0))
        for frame, image, labels in (
            (1, patient.fixed, patient.fixed_labels),
            (12, patient.moving, patient.moving_labels),
        ):
            shown = np.stack([labels[0, 0].numpy() * (0 < k < 6) for k in range(7)], axis=2)
            bright = np.stack([image[0, 0].numpy() * 900 + k for k in range(7)], axis=2).astype(np.int16)
            write_image(Image(bright, grid), folder / name / f"{name}_frame{frame:02d}.nii.gz")
            write_image(Image(shown, grid), folder / name / f"{name}_frame{frame:02d}_gt.nii.gz")
    (folder / "split.csv").write_text("patient,group,split\npatient001,NOR,test\npatient002,NOR,train\n")
    return folder


def test_a_subject_is_three_slices_at_the_protocol_s_resolution(root):
    sample = acdc.prepare(root / "patient001")
    for part in (sample.fixed, sample.moving, sample.fixed_labels, sample.moving_labels):
        assert part.shape == (3, 1, 160, 160)
    assert sample.spacing == (1.8, 1.8)
    assert sample.fixed_labels.dtype == torch.uint8
    assert set(sample.fixed_labels.unique().tolist()) == {0, 1, 2, 3}


def test_both_phases_share_one_scaling(root):
    """What is equally bright in both files is equally bright in both images: the chest wall does not move."""
    sample = acdc.prepare(root / "patient001")
    still = (sample.fixed_labels == 0) & (sample.moving_labels == 0)
    assert (sample.fixed - sample.moving)[still].abs().median() < 0.02
    assert 0 <= sample.fixed.min() < sample.fixed.max() <= 1


def test_the_centre_stays_in_the_centre(root):
    """The middle of the stack is the middle of the sample: labels keep their distance from it, in mm."""
    from vrnet import read_image

    labels = read_image(root / "patient001" / "patient001_frame01_gt.nii.gz").array[..., 3]
    sample = acdc.prepare(root / "patient001").fixed_labels[1, 0].numpy()
    for structure in acdc.STRUCTURES.values():
        before = (np.argwhere(labels == structure).mean(0) - (np.array(labels.shape) - 1) / 2) * 1.5
        after = (np.argwhere(sample == structure).mean(0) - 159 / 2) * 1.8
        np.testing.assert_allclose(after, before, atol=0.5)


def test_slices_are_chosen_among_those_that_show_enough(root):
    masks = [np.zeros((20, 20, 9), np.uint8) for _ in range(2)]
    for mask, shown in zip(masks, (range(1, 8), range(2, 9)), strict=True):
        for k in shown:
            mask[:4, :4, k], mask[8:12, :4, k] = 2, 3
    assert acdc.chosen_slices(masks, "x") == [3, 4, 6] or acdc.chosen_slices(masks, "x") == [3, 4, 5]
    masks[0][...] = 0
    with pytest.raises(BadInput, match="no slice"):
        acdc.chosen_slices(masks, "x")


def test_splits_are_files(root, tmp_path):
    assert [folder.name for folder in acdc.subjects(root, "test")] == ["patient001"]
    with pytest.raises(BadInput, match="choose one of test, train"):
        acdc.subjects(root, "val")
    with pytest.raises(BadInput, match=r"no split\.csv"):
        acdc.subjects(tmp_path, "test")
    (tmp_path / "patient009").mkdir()
    with pytest.raises(BadInput, match=r"no Info\.cfg"):
        acdc.prepare(tmp_path / "patient009")
