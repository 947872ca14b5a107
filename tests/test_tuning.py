"""Outside tools have the best parameters of those that results/tuning.csv says were tried."""

from pathlib import Path

import pytest
from benchmarks.rows import read_measured
from benchmarks.tune import describe_setting, score

from vrnet.methods.names import parse

pytestmark = pytest.mark.release
RESULTS = Path(__file__).parents[1] / "results"


def measured_settings(data, name):
    """The rows of tuning.csv of a method on a data set, by setting."""
    rows = read_measured(RESULTS / "tuning.csv")
    return {row["setting"]: row for row in rows if (row["data"], row["method"]) == (data, name)}


@pytest.mark.parametrize("name", ["FFD", "Demons", "SyN"])
def test_the_parameters_of_outside_tools_are_the_best_of_those_tried_on_hearts_and_were_measured_in_3d(name):
    tried = measured_settings("acdc", name)
    assert max(tried, key=lambda setting: score(tried[setting])) == describe_setting(name, parse(name), 2)
    for data in ("hippocampus", "phantom3d"):
        assert describe_setting(name, parse(name), 3) in measured_settings(data, name)
