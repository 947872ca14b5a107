"""benchmarks/contrasts.py changes the contrast and nothing else, and counts what a verdict has not noticed."""

import numpy as np
import pytest

import contrasts
from contrasts import CONTRASTS, measure_all, table
from volumes import shifted_pair


@pytest.fixture
def pairs():
    return [("shift", "ball", shifted_pair)]


@pytest.mark.parametrize("names", [("monotone", "non-monotone"), ("rising knots", "any knots")])
def test_a_monotone_contrast_keeps_the_order_of_intensities_and_the_other_does_not(names):
    x = np.linspace(0, 1, 200, dtype=np.float32)
    for seed in range(5):
        rising, other = (CONTRASTS[name](x, np.random.default_rng(seed)) for name in names)
        assert (np.diff(rising) > 0).all()
        assert np.diff(other).min() < 0 < np.diff(other).max()
        assert all(y.min() >= 0 and y.max() <= 1 and y.dtype == x.dtype for y in (rising, other))


@pytest.mark.release
def test_what_was_measured_is_not_measured_again(pairs, tmp_path, monkeypatch):
    path, contrast_names = tmp_path / "rows.csv", ["same", "scaled"]
    measure_all(pairs, ["identity"], contrast_names, path)
    first = path.read_text()
    monkeypatch.setattr(contrasts, "measure", lambda *_: pytest.fail("measured twice"))
    measure_all(pairs, ["identity"], contrast_names, path)
    assert path.read_text() == first
    assert len(first.splitlines()) == 3


def test_harm_is_counted_and_unnoticed_where_the_verdict_is_good():
    levels = {"a": "good", "b": "look", "c": "failed", "d": "good"}
    dice = {"a": "0.4", "b": "0.4", "c": "0.4", "d": "0.8"}
    rows = [
        {"data": "x", "method": "M", "contrast": "same", "pair": k, "dice_before": "0.5", "dice": dice[k], "verdict": v}
        for k, v in levels.items()
    ]
    assert "| M | 0.500 | 3 of 4 | 1 |" in table(rows)
