"""Strain of hearts whose motion is known, as cines of two frames, and the figure of what was measured."""

import numpy as np
import pytest
from benchmarks.strain_figure import PANELS, STRAIN_METHODS, draw_strain

from strain import lost_at_base, measure
from tests.phantoms import cycle
from vrnet import Cine, Grid, Image
from vrnet.errors import BadInput
from vrnet.files import write_rows


@pytest.mark.release
def test_a_beating_stack_has_about_its_exact_strain_and_ejection():
    """Voxels of 4 mm blur the radial strain of a wall of 11 mm: it is found, and no more is claimed."""
    beat = cycle(1, (32, 32, 3), (4.0, 4.0, 12.0), frames=6)
    grid, at = Grid.plain((32, 32, 3), beat.spacing), [0, beat.end_systole]
    labels = [Image(beat.frame_labels[t].numpy(), grid) for t in at]
    row = measure(Cine(beat.frames[at].numpy(), grid), *labels, "TV-L1", "cpu")
    inside = beat.labels == 2
    around = beat.strain.circumferential[beat.end_systole][inside].mean()
    assert row["green_circumferential"] == pytest.approx(float(around), abs=3)
    assert row["green_radial"] > 10
    assert row["ejection_labels"] == pytest.approx(beat.volumes.ejection_fraction_percent, abs=3)
    assert row["ejection_tracked"] == pytest.approx(row["ejection_labels"], abs=8)
    assert row["ejection_tracked"] == pytest.approx(
        100 * (1 - row["systole_tracked_ml"] / row["diastole_ml"]), abs=0.01
    )
    assert row["slices"] == 3
    assert row["lost_at_base_percent"] == 0


def test_basal_slices_without_a_cavity_at_end_systole_are_lost_and_apical_ones_are_not():
    diastole, systole = np.array([10, 30, 40, 20, 0]), np.array([0, 0, 20, 0, 0])
    assert lost_at_base(diastole, systole, (1, 2, 3)) == 40
    assert lost_at_base(diastole[::-1], systole[::-1], (3, 2, 1)) == 40


# The figure.

GROUPS = "NOR", "DCM"


def rows_of(method):
    """Two groups of three; the tracked ejection fraction is lower by 1, 2 and 3 points."""
    scale = {"short-axis-cine": 1.0, "TV-L1": 0.5}[method]
    return [
        {
            "subject": f"{group}{k}", "group": group, "method": method,
            "green_circumferential": scale * (-20 + k + 10 * (group == "DCM")), "green_radial": scale * (30 + k),
            "ejection_labels": 60.0, "ejection_tracked": 59.0 - k, "lost_at_base_percent": 5.0 * (k == 2),
        }
        for group in GROUPS
        for k in range(3)
    ]  # fmt: skip


@pytest.fixture
def drawn(study):
    made = study()
    for method in STRAIN_METHODS:
        path = made.results.out / "strain" / f"{made.data}_{method}.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_rows(rows_of(method), path)
    return draw_strain(made)


def test_what_is_not_measured_yet_is_named_with_the_benchmark_that_does(study):
    with pytest.raises(BadInput, match=r"run benchmarks/strain\.py, which writes"):
        draw_strain(study())


def test_one_box_per_group_and_method_beside_the_healthy_range(drawn):
    figure, numbers = drawn
    ax = figure.axes[0]
    healthy, *boxes = ax.patches
    assert (healthy.get_y(), healthy.get_y() + healthy.get_height()) == PANELS["green_circumferential"][1]
    heights = [box.get_path().vertices[:, 1] for box in boxes]
    np.testing.assert_allclose([(y.min(), y.max()) for y in heights[:2]], [(-19.5, -18.5), (-9.5, -8.5)])
    assert [label.get_text() for label in ax.get_xticklabels()] == list(GROUPS)
    assert len(numbers) == 12


def test_the_plot_of_bland_and_altman_has_bias_and_limits(drawn):
    """Differences −1, −2, −3, twice: their mean is −2, their standard deviation sqrt(4/5)."""
    ax = drawn[0].axes[2]
    points, *lines = ax.get_lines()[:4]
    np.testing.assert_allclose(points.get_ydata(), [-1, -2, -3, -1, -2, -3])
    np.testing.assert_allclose(points.get_xdata(), [59.5, 59, 58.5, 59.5, 59, 58.5])
    spread = 1.96 * np.sqrt(4 / 5)
    np.testing.assert_allclose([line.get_ydata()[0] for line in lines], [-2, -2 - spread, -2 + spread])
    assert "-2.0 (-3.8 to -0.2)" in ax.get_legend().get_texts()[0].get_text()
    rings = ax.get_lines()[4]
    assert rings.get_markerfacecolor() == "none"
    np.testing.assert_allclose(rings.get_ydata(), [-3, -3])  # hearts whose labels lose a basal slice
