"""Where the solver must land: on phantoms, whose motion is known, and on real hearts, whose labels are."""

import pytest

from vrnet import parse, register
from vrnet.data import acdc
from vrnet.data.phantom import phantom
from vrnet.evaluation.cohort import measured, summarised

GRIDS = {2: ((160, 160), 1.8), 3: ((64, 64, 48), 2.4)}


def error_left(patient):
    """End-point error inside the heart after TV-L1, as a part of that before."""
    field = register(patient.fixed[0, 0], patient.moving[0, 0], "TV-L1").field
    heart = patient.fixed_labels[0, 0] > 0
    after, before = (patient.field[0] - field).norm(dim=0), patient.field[0].norm(dim=0)
    return (after[heart].mean() / before[heart].mean()).item()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_tv_l1_halves_the_end_point_error_on_every_phantom(d, seed):
    assert error_left(phantom(seed, *GRIDS[d])) < 0.5


@pytest.mark.slow
def test_tv_l1_on_real_hearts_reaches_the_published_accuracy_and_more(data_root):
    """On the 20 ACDC test subjects the paper's own TV-L1 has Dice .843 and HD 7.20 mm (on its 50)."""
    samples = [acdc.prepare(folder) for folder in acdc.subjects(data_root / "acdc", "test")]
    unregistered, registered = (
        summarised([measured(sample, parse(name).build(2), acdc.STRUCTURES) for sample in samples])
        for name in ("identity", "TV-L1")
    )
    assert unregistered["dice_mean"]["mean"] == pytest.approx(0.625, abs=0.003)
    assert unregistered["hd_mean"]["mean"] == pytest.approx(10.80, abs=0.15)
    assert registered["dice_mean"]["mean"] >= 0.868
    assert registered["hd_mean"]["mean"] <= 6.2  # 5.86 where it was measured; one subject swings it by .2
