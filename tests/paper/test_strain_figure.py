import numpy as np
import pytest

from vrnet.paper import strain as strain_figure
from vrnet.paper.strain import PANELS, agreement, draw_strain

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
def drawn(study, monkeypatch):
    monkeypatch.setattr(strain_figure, "strain_rows", lambda study, method: rows_of(method))
    return draw_strain(study())


def test_one_box_per_group_and_method_beside_the_healthy_range(drawn):
    figure, numbers = drawn
    ax = figure.axes[0]
    healthy, *boxes = ax.patches
    assert (healthy.get_y(), healthy.get_y() + healthy.get_height()) == PANELS[0].healthy
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


def test_hearts_whose_labels_lose_a_basal_slice_have_a_ring(drawn):
    ax = drawn[0].axes[2]
    rings = ax.get_lines()[4]
    assert rings.get_markerfacecolor() == "none"
    np.testing.assert_allclose(rings.get_ydata(), [-3, -3])
    np.testing.assert_allclose(rings.get_xdata(), [58.5, 58.5])
    assert "basal slice" in ax.get_legend().get_texts()[-1].get_text()


def test_ways_that_agree_have_no_bias_and_no_spread():
    assert agreement(np.arange(4.0), np.arange(4.0)) == (0, 0, 0)
