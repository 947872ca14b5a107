"""Outside tools have the best parameters of those that results/tuning.csv says were tried."""

from pathlib import Path

import pytest
from benchmarks.tune import described, rows_in, score

from vrnet.methods.names import parse

pytestmark = pytest.mark.release
RESULTS = Path(__file__).parents[1] / "results"


def measured_settings(data, name):
    """The rows of tuning.csv, by setting."""
    rows = [row for row in rows_in(RESULTS / "tuning.csv") if (row["data"], row["method"]) == (data, name)]
    return {row["setting"]: row for row in rows}


@pytest.mark.parametrize("name", ["FFD", "Demons", "SyN"])
def test_the_parameters_of_outside_tools_are_the_best_of_those_tried_on_hearts(name):
    tried = measured_settings("acdc", name)
    assert max(tried, key=lambda setting: score(tried[setting])) == described(parse(name), 2)


@pytest.mark.parametrize("data", ["hippocampus", "phantom3d"])
@pytest.mark.parametrize("name", ["FFD", "Demons", "SyN"])
def test_the_parameters_of_outside_tools_were_measured_in_3d(name, data):
    assert described(parse(name), 3) in measured_settings(data, name)
