"""benchmarks/contrasts.py changes the contrast and nothing else, and counts what a verdict has not noticed."""

from dataclasses import replace

import numpy as np
import pytest

import contrasts
from contrasts import CONTRASTS, measure_all, table
from volume_pairs import shifted_pair


@pytest.fixture
def pairs():
    return [("shift", "ball", shifted_pair)]


@pytest.mark.parametrize("names", [("monotone", "non-monotone"), ("rising knots", "any knots")])
@pytest.mark.parametrize("seed", range(5))
def test_a_monotone_contrast_keeps_the_order_of_intensities_and_the_other_does_not(seed, names):
    x = np.linspace(0, 1, 200, dtype=np.float32)
    changed = {name: CONTRASTS[name](x, np.random.default_rng(seed)) for name in names}
    assert (np.diff(changed[names[0]]) > 0).all()
    slopes = np.sign(np.diff(changed[names[1]]))
    assert slopes.min() < 0 < slopes.max()
    assert all(y.min() >= 0 and y.max() <= 1 and y.dtype == x.dtype for y in changed.values())


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


def test_pairs_that_were_registered_and_are_told_to_lie_otherwise_are_counted():
    """A pair that is no better than before, or still poor, is none of them; rows that do not know it say nothing."""
    row = {"data": "x", "method": "M", "contrast": "same", "pair": "a", "dice_before": "0.5", "verdict": "look"}
    told = [("0.7", "True"), ("0.7", "False"), ("0.6", "True"), ("0.4", "True")]
    found = table([row | {"dice": dice, "lies_otherwise": otherwise} for dice, otherwise in told])
    assert "Registered, and told to lie otherwise: 1 of 2" in found
    assert "otherwise" not in table([row | {"dice": "0.7", "lies_otherwise": ""}])


def test_a_pair_that_is_upside_down_is_told_so(pairs):
    """The ball itself, turned: registered by nothing, it lies otherwise."""
    pair = shifted_pair()
    assert not contrasts.measure("identity", replace(pair, moving=pair.fixed), "same", 0)["lies_otherwise"]
    assert contrasts.measure("identity", replace(pair, moving=pair.fixed[::-1].copy()), "same", 0)["lies_otherwise"]
