"""Where the solver must land: on phantoms, whose motion is known, and on real hearts, whose labels are."""

import sys
from pathlib import Path

import pytest
import torch

from vrnet import parse, register
from vrnet.data.phantom import phantom
from vrnet.fields import zeros

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
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
    import acdc

    cohort = acdc.subjects(data_root / "acdc", "test")
    unregistered = acdc.evaluate(cohort, lambda I0, I1: zeros(I0))[1]
    assert unregistered["dice_mean"][0] == pytest.approx(0.625, abs=0.003)
    assert unregistered["hd_mean"][0] == pytest.approx(10.80, abs=0.15)
    with torch.inference_mode():
        registered = acdc.evaluate(cohort, parse("TV-L1").build())[1]
    assert registered["dice_mean"][0] >= 0.868
    assert registered["hd_mean"][0] <= 6.2  # 5.86 where it was measured; one subject swings it by .2 with rounding
