"""benchmarks/volumes.py judges every tool alike: in voxels of fixed, by the labels, and each pair once."""

from dataclasses import replace
from importlib.metadata import distributions

import numpy as np
import pytest

import volumes
from registration_tools import PEERS
from volumes import (
    MAX_SHIFT_ERROR,
    SHIFT,
    ToolFailed,
    brains,
    compare,
    mean_dice,
    read_measured,
    run_tool,
    shift_error,
    shifted_pair,
    summarise,
    table,
)
from vrnet import BadInput, Grid, Image, write_image

INSTALLED = {distribution.name.lower() for distribution in distributions()}
CONVERSIONS = "greedy", "ConvexAdam", "SyN mean squares short", "SimpleITK demons", "SimpleITK diffeomorphic demons"
"""Peers whose fields come in forms of their own."""


@pytest.mark.release
@pytest.mark.parametrize("tool", ["TV-L1", *(t for t in CONVERSIONS if PEERS[t].package.lower() in INSTALLED)])
def test_a_tool_finds_a_known_shift_in_voxels_of_fixed(tool):
    assert shift_error(tool, shifted_pair(), threads=1) <= MAX_SHIFT_ERROR


def test_no_other_axes_signs_or_units_would_pass_for_the_shift():
    shift, spacing = np.array(SHIFT), np.array(shifted_pair().spacing)
    others = [-shift, shift[::-1], shift[[1, 0, 2]], shift[[0, 2, 1]], shift * spacing, shift / spacing]
    assert min(np.linalg.norm(other - shift) for other in others) > 2 * MAX_SHIFT_ERROR


def test_the_labels_of_a_shifted_ball_overlap_wholly_by_its_shift():
    pair = shifted_pair()
    field = np.broadcast_to(np.reshape(SHIFT, (3, 1, 1, 1)), (3, *pair.fixed.shape)).astype(np.float32)
    assert mean_dice(pair, field) == 1
    assert mean_dice(pair, -field) < mean_dice(pair, 0 * field) < 1


def test_brains_are_judged_by_the_labels_that_both_have(tmp_path):
    grid, random = Grid.plain((6, 7, 8), (1.0, 1.0, 1.0)), np.random.default_rng(0)
    maps = {"a_seg": (0, 2, 5, 9), "b_seg": (0, 2, 7, 9)}
    arrays = {name: random.choice(values, grid.shape).astype(np.uint8) for name, values in maps.items()}
    arrays |= {name: random.integers(0, 99, grid.shape).astype(np.uint8) for name in ("a_t1", "b_t1")}
    for name, array in arrays.items():
        write_image(Image(array, grid, name), tmp_path / f"{name}.nii.gz")
    ((_, _, load),) = brains(tmp_path)
    assert load().labels == (2, 9)
    assert (load().fixed.min(), load().fixed.max()) == (0, 1)
    ((_, _, load),) = brains(tmp_path / "nowhere")
    with pytest.raises(BadInput, match=r"there is no .*nowhere/a_t1\.nii\.gz: give the folder"):
        load()


@pytest.mark.release
def test_a_tool_that_fails_is_named_with_its_reason():
    with pytest.raises(ToolFailed, match=r"no-such-method failed: .*no-such-method"):
        run_tool("no-such-method", shifted_pair(), threads=1)


@pytest.fixture
def measured(monkeypatch):
    """The tools that were run, in place of running them: each finds no motion."""
    ran = []

    def run_tool(tool, pair, threads):
        ran.append((tool, pair.name))
        found = {
            "field": np.zeros((3, *pair.fixed.shape), np.float32),
            "seconds": 2.0,
            "cpu_seconds": 3.0,
            "peak_bytes": 2**30,
        }
        return found | {"version": "1", "settings": "none"}

    monkeypatch.setattr(volumes, "run_tool", run_tool)
    return ran


def test_what_is_measured_is_not_measured_again(measured, tmp_path):
    pairs = [("shift", name, shifted_pair) for name in ("ball", "again")]
    for _ in range(2):
        assert compare(pairs, ["TV-L1", "SimpleITK demons"], 1, tmp_path / "rows.csv") == {}
        assert len(measured) == len(read_measured(tmp_path / "rows.csv")) == 4
    compare(pairs, ["TV-L1"], 2, tmp_path / "rows.csv")
    assert len(measured) == 6


def test_a_tool_that_is_not_installed_is_said_to_be_so(measured, tmp_path, monkeypatch):
    monkeypatch.setitem(PEERS, "greedy", replace(PEERS["greedy"], package="no-such-package"))
    failed = compare([("shift", "ball", shifted_pair)], ["greedy", "TV-L1"], 1, tmp_path / "rows.csv")
    page = table(summarise(read_measured(tmp_path / "rows.csv")), failed)
    assert measured == [("TV-L1", "ball")]
    assert "- greedy: no-such-package is not installed on this machine" in page


def test_a_tool_that_lacks_pairs_is_not_ranked_above_those_that_have_all():
    row = dict.fromkeys(volumes.COLUMNS, "0") | {"tool": "whole", "dice": "0.7"}
    rows = [row, row | {"pair": "1"}, row | {"tool": "partial", "dice": "0.9"}]
    page = table(summarise(rows), {})
    assert page.index("| whole |") < page.index("| partial |")
