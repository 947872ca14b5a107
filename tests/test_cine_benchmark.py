"""benchmarks/cine.py measures against what is true of a phantom, and measures each cine once."""

import numpy as np
import pytest

import cine
from tests.phantoms import cycle

SIZE = (96, 96), (1.8, 1.8), 6


@pytest.fixture(scope="module")
def beat():
    return cycle(5, *SIZE[:2], "infarct", frames=SIZE[2])


def test_the_true_motion_has_no_error_but_that_of_coarse_pixels(beat):
    found = cine.measure(beat, beat.fields.numpy())
    assert found["points_mm"] == found["systole_mm"] == 0
    assert abs(found["circumferential"]) < 0.5
    assert abs(found["radial"]) < 2.5
    assert abs(found["ejection"]) < 2
    assert found["volume_percent"] < 3
    assert found["infarct_found"]


def test_no_motion_misses_all_of_it(beat):
    found, true = cine.measure(beat, np.zeros_like(beat.fields.numpy())), cine.true_peaks(beat)
    inside = beat.labels.numpy() == 2
    lengths = 1.8 * np.linalg.norm(beat.fields.numpy(), axis=1)[:, inside]
    assert found["points_mm"] == pytest.approx(lengths.mean(), rel=1e-5)
    assert found["systole_mm"] == pytest.approx(lengths[beat.end_systole].mean(), rel=1e-5)
    assert {key: found[key] for key in true} == pytest.approx({key: -value for key, value in true.items()}, abs=1e-4)


def test_plain_ways_find_most_of_the_motion(beat):
    moved = cine.measure(beat, np.zeros_like(beat.fields.numpy()))["systole_mm"]
    for way in ("direct", "composed"):
        assert cine.measure(beat, cine.found_by(beat, "TV-L1", way)[0])["systole_mm"] < 0.6 * moved


@pytest.mark.release
def test_each_cine_is_measured_once_and_the_table_has_means_and_the_worst(tmp_path, capsys):
    path = tmp_path / "rows.csv"
    for seeds in ([5], [5, 6]):
        cine.run(seeds, ["infarct"], ["TV-L1"], ["both ways"], path, SIZE)
    rows = cine.read_measured(path)
    assert [row["seed"] for row in rows] == ["5", "6"]
    assert len(capsys.readouterr().out.splitlines()) == 2
    errors = [float(row["points_mm"]) for row in rows]
    line = cine.table(rows).splitlines()[-1]
    assert f"| TV-L1 | both ways | 2 | {np.mean(errors):.2f} ({max(errors):.2f}) |" in line
    assert f"| {sum(row['infarct_found'] == '1' for row in rows)} of 2 |" in line
