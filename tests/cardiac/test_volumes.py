import numpy as np
import pytest

from tests.evaluation.hearts import phantom_stack
from vrnet.cardiac.volumes import volumes
from vrnet.cardiac.wall import HeartLabels


def cylinders(radii, spacing=(0.5, 0.5, 8.0)):
    """Frames of a tube whose cavity has these radii in mm, of 10 mm of wall, through five slices."""
    x, y = (np.indices((160, 160)) - 79.5) * spacing[0]
    r = np.hypot(x, y)
    frames = [np.where(r < radius, 3, np.where(r < radius + 10, 2, 0)) for radius in radii]
    return np.repeat(np.array(frames, np.uint8)[..., None], 5, -1)


def test_a_tube_has_the_volume_of_its_formula():
    found = volumes(cylinders([20.0, 15.0]), (0.5, 0.5, 8.0))
    assert found.lv_ml.tolist() == pytest.approx([np.pi * r**2 * 40 / 1000 for r in (20, 15)], rel=5e-3)
    assert found.lv_ejection_fraction_percent == pytest.approx(100 * (1 - 9 / 16), abs=0.5)
    assert found.mass_g == pytest.approx(1.05 * np.pi * (30**2 - 20**2) * 40 / 1000, rel=5e-3)
    assert found.rv_ml.tolist() == [0, 0]
    assert np.isnan(found.rv_ejection_fraction_percent)
    assert np.isnan(volumes(cylinders([20.0]), (0.5, 0.5, 8.0), heart=HeartLabels(wall=9)).mass_g)


def test_ejection_fractions_are_those_of_the_ventricles_that_are_labelled():
    frames, spacing = cylinders([20.0, 15.0]), (0.5, 0.5, 8.0)
    percent = volumes(frames, spacing).lv_ejection_fraction_percent
    assert volumes(frames, spacing).ejection_fractions_percent == {"LV": percent}
    right = volumes(np.where(frames == 3, 1, 0), spacing)
    assert right.ejection_fractions_percent == {"RV": percent}
    none = volumes(np.where(frames == 2, 2, 0), spacing).ejection_fractions_percent
    assert [*none] == ["LV"]
    assert np.isnan(none["LV"])


def test_the_mass_is_that_of_the_reference():
    frames = cylinders([20.0, 15.0])
    assert volumes(frames, (1.0, 1.0, 1.0), reference=1).mass_g == pytest.approx(1.05 * (frames[1] == 2).sum() / 1000)


def test_labels_of_other_numbers_are_those_they_are_said_to_be():
    frames = cylinders([20.0]) * 10
    found = volumes(frames, (0.5, 0.5, 8.0), heart=HeartLabels(rv=None, wall=20, lv=30))
    assert found.lv_ml[0] == volumes(frames // 10, (0.5, 0.5, 8.0)).lv_ml[0]


@pytest.mark.usefixtures("as_users_run")
@pytest.mark.parametrize("pathology", ["normal", "dilated", "hypertrophic", "infarct"])
def test_volumes_of_a_phantom_are_exact_to_one_percent(pathology):
    c = phantom_stack(pathology)
    found = volumes(c.frame_labels.numpy(), c.spacing)
    for counted, exact in (
        (found.lv_ml, c.volumes.lv_ml),
        (found.rv_ml, c.volumes.rv_ml),
        (found.wall_ml, c.volumes.wall_ml),
    ):
        np.testing.assert_allclose(counted, exact, rtol=0.01)
    assert found.lv_ejection_fraction_percent == pytest.approx(c.volumes.ejection_fraction_percent, abs=1)
