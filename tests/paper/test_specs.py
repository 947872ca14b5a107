import csv
import re
from importlib.resources import files

import pytest

from vrnet.methods.names import parse
from vrnet.paper.specs import TABLES, TIMED_METHODS, Value, published_values

COUNTS = {
    "ablation_acdc": 20, "ablation_ukbb": 20, "ukbb": 12, "acdc": 12, "cmr3d": 11, "initialisation_ukbb": 3,
    "runtime": 12,
}  # fmt: skip
PRINTED = [
    ("ablation_acdc", "R-L1-3x2", "dice_mean", ".873(.050)"),
    ("ablation_ukbb", "R-L2-6x1", "hd_mean", "10.26(3.07)"),
    ("initialisation_ukbb", "R-L2-6x1-zeros", "dice_mean", ".744(.051)"),
    ("ukbb", "TV-L1", "folding_percent", "0.65(0.30)"),
    ("acdc", "7xRC-Net", "jacobian_gradient", ".194(.042)"),
    ("cmr3d", "SyN", "hd_LV", "9.08(1.29)"),
    ("runtime", "SyN", "3D_cpu", "1657.35"),
]
"""As the paper has them."""


def test_a_mean_and_a_deviation_read_and_print():
    assert Value.parse(".873(.050)") == Value(0.873, 0.05, 3)
    assert str(Value(0.873, 0.05, 3)) == ".873(.050)"
    assert str(Value(10.256, 3.07, 2)) == "10.26(3.07)"
    assert str(Value(0.9996, None, 3)) == "1.000"
    with pytest.raises(ValueError, match=r'"\.873 \(\.050\)" is not'):
        Value.parse(".873 (.050)")


def test_published_tables_are_those_of_the_paper_and_their_rows_are_ours():
    """Every cell reads, and prints as it was but for a zero before the point."""
    folder = files("vrnet.paper") / "published"
    assert {path.name.removesuffix(".csv") for path in folder.iterdir()} == set(COUNTS)
    for name, count in COUNTS.items():
        with (folder / f"{name}.csv").open() as file:
            cells = [cell for row in list(csv.reader(file))[1:] for cell in row[1:] if cell]
        for cell in cells:
            assert str(Value.parse(cell)) == re.sub(r"(?<!\d)0\.", ".", cell)
        ours = TIMED_METHODS if name == "runtime" else TABLES[name.split("_")[0]].methods
        assert len(published_values(name)) == count
        for method in published_values(name):
            assert str(parse(method)) == method
            assert method in ours
    for name, method, column, cell in PRINTED:
        assert published_values(name)[method][column] == Value.parse(cell)
    assert published_values("hippocampus") == {}  # no table of the paper
