import nibabel
import numpy as np
import pytest

from tests.data.making import affine_of, brightest, heart, place, spots, write_acdc
from vrnet.data.acdc import ACDC
from vrnet.data.acdc3d import ACDC3D

SHAPE, SPACING = (100, 90, 9), (1.4, 1.6, 10.0)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("acdc3d")
    write_acdc(folder, "patient001", *heart(3))
    affine = affine_of(SPACING)
    marks = [nibabel.affines.apply_affine(affine, index) for index in ((55, 40, 4.2), (45, 50, 3.1))]
    images = [spots(affine, SHAPE, mark) for mark in marks]
    write_acdc(folder, "patient002", images, [(image > 500).astype(int) for image in images], affine)
    return folder


def test_a_patient_is_one_volume_at_the_protocol_s_resolution(root):
    sample = ACDC3D(root).prepare("patient001", "evaluation")
    for part in (sample.fixed, sample.moving, sample.fixed_labels, sample.moving_labels):
        assert part.shape == (1, 1, 128, 128, 32)
    assert sample.spacing == (1.5, 1.5, 3.15)
    trained = ACDC3D(root).prepare("patient001", "training")
    assert trained.fixed_labels is None
    assert (trained.fixed == sample.fixed).all()


def test_a_landmark_stays_where_it_is_in_the_world(root):
    sample, affine = ACDC3D(root).prepare("patient002", "evaluation"), affine_of(SPACING)
    for part, mark in ((sample.fixed, (55, 40, 4.2)), (sample.moving, (45, 50, 3.1))):
        at = place(affine, SHAPE, sample.spacing, (128, 128, 32), brightest(part[0, 0].numpy()))
        expected = nibabel.affines.apply_affine(affine, mark)
        np.testing.assert_allclose(at, expected, atol=1.0)  # linear between slices 10 mm apart


def test_a_structure_keeps_its_volume(root):
    labels = nibabel.load(root / "patient001" / "patient001_frame01_gt.nii.gz").get_fdata()
    sample = ACDC3D(root).prepare("patient001", "evaluation").fixed_labels.numpy()
    for value in (1, 2, 3):
        before, after = (labels == value).sum() * 1.5**2 * 10, (sample == value).sum() * 1.5**2 * 3.15
        assert after == pytest.approx(before, rel=0.06)


def test_it_reads_the_folders_of_the_2d_protocol(root):
    (root / "split.csv").write_text("patient,split\npatient002,test\n")
    assert ACDC3D(root).subjects("test") == ["patient002"]
    assert ACDC3D(root).sources("patient001", "training") == ACDC(root).sources("patient001", "training")


def test_real_stacks_fill_the_volume(data_root):
    sample = ACDC3D(data_root / "acdc").prepare("patient001", "evaluation")
    assert set(sample.fixed_labels.unique().tolist()) == {0, 1, 2, 3}
    assert sample.fixed.std() > 0.1
