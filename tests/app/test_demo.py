import numpy as np
import pytest
import SimpleITK as sitk
from numpy.testing import assert_allclose

from vrnet import register_images
from vrnet.app import register as demo
from vrnet.app.pair import measure_transform, write_pair
from vrnet.phantom import phantom

SEED = 3


@pytest.fixture(scope="module")
def patient():
    return phantom(SEED)


def test_the_files_hold_the_phantom(patient, tmp_path):
    write_pair(demo.phantom_pair(patient), tmp_path)
    for name in ("fixed", "moving", "fixed_labels", "moving_labels"):
        image = sitk.ReadImage(str(tmp_path / f"{name}.nii.gz"))
        assert np.array_equal(sitk.GetArrayFromImage(image).T, getattr(patient, name)[0, 0])
        assert_allclose(image.GetSpacing(), patient.spacing, rtol=1e-6)


def test_the_structures_have_the_labels_of_the_phantom(patient):
    names = demo.phantom_pair(patient).label_names
    assert set(names) == set(patient.fixed_labels.unique().tolist()) - {0}
    assert names == {3: "LV", 2: "Myo", 1: "RV"}


def test_the_known_motion_is_compared_with_what_was_found_inside_the_heart(patient):
    pair = demo.phantom_pair(patient)
    transform = register_images(pair.fixed, pair.moving).transform
    heart = pair.fixed_labels.array > 0
    true = patient.field[0].numpy()[:, heart] * np.reshape(patient.spacing, (2, 1))
    found = transform.displacement[:, heart]
    error = measure_transform(pair, transform).metrics["known_motion"]
    before, after = error["end_point_error_mm_before"], error["end_point_error_mm_after"]
    assert_allclose(before, np.sqrt((true**2).sum(0)).mean(), rtol=1e-5)
    assert_allclose(after, np.sqrt(((found - true) ** 2).sum(0)).mean(), rtol=1e-5)
    assert after < before / 3
