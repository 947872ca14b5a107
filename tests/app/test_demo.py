import numpy as np
import pytest
import SimpleITK as sitk
from numpy.testing import assert_allclose

from vrnet import register_images
from vrnet.app import demo
from vrnet.app.pair import write_pair
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
    assert {int(label) for label in demo.STRUCTURES} == set(patient.fixed_labels.unique().tolist()) - {0}
    assert {name: int(label) for label, name in demo.STRUCTURES.items()} == {"LV": 3, "Myo": 2, "RV": 1}


def test_the_error_before_is_the_length_of_the_true_motion(patient):
    pair = demo.phantom_pair(patient)
    transform = register_images(pair.fixed, pair.moving).transform
    heart = pair.fixed_labels.array > 0
    true = patient.field[0].numpy()[:, heart] * np.reshape(patient.spacing, (2, 1))
    found = transform.displacement[:, heart]
    error = demo.end_point_error(patient, transform)
    assert_allclose(error.before, np.sqrt((true**2).sum(0)).mean(), rtol=1e-5)
    assert_allclose(error.after, np.sqrt(((found - true) ** 2).sum(0)).mean(), rtol=1e-5)
    assert error.after < error.before / 3
