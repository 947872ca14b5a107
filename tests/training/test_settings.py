import pytest

from vrnet.errors import BadInput
from vrnet.training.settings import PRESETS, Training


@pytest.mark.parametrize(
    ("preset", "steps", "batch", "alpha", "rates"),
    [  # as the paper prints them: steps, batch, α, and the rate at the start, half-way, and at three quarters
        ("ukbb", 50_000, 10, 0.1, (1e-4, 1e-4, 0.5e-4)),
        ("acdc", 20_000, 10, 0.05, (1e-4, 1e-4, 0.5e-4)),
        ("cmr3d", 30_000, 2, 1e-4, (1e-4, 1e-4, 1e-4)),
    ],
)
def test_the_presets_are_the_paper_s(preset, steps, batch, alpha, rates):
    settings = PRESETS[preset]
    assert (settings.steps, settings.batch, settings.alpha) == (steps, batch, alpha)
    found = [settings.rate_at(round(part * steps)) for part in (0, 0.5, 0.75)]
    assert found == pytest.approx(rates)


def test_the_rate_falls_to_nothing():
    assert Training(steps=100).rate_at(100) == 0
    assert Training(steps=100).rate_at(99) == pytest.approx(1e-4 / 50)
    assert Training(steps=100, hold=0.0).rate_at(25) == pytest.approx(0.75e-4)


@pytest.mark.parametrize(
    "wrong", [{"steps": 0}, {"batch": 0}, {"rate": 0.0}, {"alpha": -1.0}, {"hold": 1.5}, {"validate_every": 0}]
)
def test_settings_that_make_no_sense_are_refused(wrong):
    with pytest.raises(BadInput):
        Training(**wrong)
