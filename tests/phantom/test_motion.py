"""A beat: its motion is undone exactly, and its rhythm is that of hearts."""

import pytest

from vrnet.errors import BadInput
from vrnet.phantom.anatomy import Heart, RandomSource
from vrnet.phantom.cycle import voxel_positions
from vrnet.phantom.motion import Motion, Rhythm


def test_the_motion_is_undone_to_a_ten_thousandth_of_a_voxel():
    y = voxel_positions((64, 64, 48), (2.4,) * 3, level=0.0)
    for seed in range(4):
        random = RandomSource.seeded(seed)
        motion = Motion.draw(Heart.draw(random), random)
        assert (motion.forward(motion.inverse(y)) - y).abs().max() < 2.4e-4


@pytest.mark.parametrize("rate", [40.0, 75.0, 160.0])
def test_the_heart_contracts_in_systole_and_a_cycle_ends_as_it_began(rate):
    rhythm = Rhythm.at(rate)
    for share in (rhythm.contraction, rhythm.torsion):
        assert share(0.0) == 0
        assert share(rhythm.cycle) == pytest.approx(0, abs=1e-12)
        assert share(rhythm.systole) == pytest.approx(1)
    contraction = [rhythm.contraction(t * rhythm.cycle / 500) for t in range(501)]
    end = round(500 * rhythm.systole / rhythm.cycle)
    assert contraction[: end + 1] == pytest.approx(sorted(contraction[: end + 1]), abs=1e-9)
    assert contraction[end + 1 :] == pytest.approx(sorted(contraction[end + 1 :], reverse=True), abs=1e-9)
    assert min(contraction) == pytest.approx(0, abs=1e-9)
    assert max(contraction) <= 1


def test_diastasis_is_what_a_fast_heart_loses_first():
    """At rest it lasts about a third of a second; systole takes 350 ms of a second, and less than its share faster."""
    rests = []
    for rate in (60.0, 100.0):
        r = Rhythm.at(rate)
        rests.append(r.cycle - r.systole - r.early_filling - r.atrial_kick)
    assert 250 < rests[0] < 350
    assert 0 < rests[1] < 60
    assert Rhythm.at(60.0).systole == pytest.approx(350)
    assert Rhythm.at(100.0).systole == pytest.approx(282)


def test_the_heart_is_untwisted_before_it_is_filled():
    r = Rhythm.at(65.0)
    halfway = r.systole + 0.4 * r.early_filling
    assert r.torsion(halfway) < r.contraction(halfway)


@pytest.mark.parametrize("rate", [20.0, 300.0, float("nan")])
def test_rates_that_no_heart_has_are_refused(rate):
    with pytest.raises(BadInput, match="heart_rate"):
        Rhythm.at(rate)
