import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.image import imread
from numpy.testing import assert_allclose, assert_array_equal

from tests.conftest import SHAPES
from vrnet.report.figures import (
    GRID_STEP,
    LABEL_COLOURS,
    Pair,
    overview,
    save,
    show_difference,
    show_grid,
    show_image,
    show_jacobian,
)


@pytest.fixture
def pair(d, random):
    """Random images and a small random field, with labels 1 and 2 side by side."""
    shape = SHAPES[d]
    labels = np.zeros(shape, np.uint8)
    labels[3:6, 3:8], labels[6:9, 3:8] = 1, 2
    images = dict(zip(("fixed", "moving", "warped"), random(3, *shape).numpy(), strict=True))
    return Pair(
        field=random(d, *shape).numpy(),
        fixed_labels=labels,
        moving_labels=np.roll(labels, 2, 1),
        warped_labels=labels,
        **images,
    )


@pytest.fixture
def ax():
    return Figure().subplots()


def drawn(ax, layer=0):
    """The pixels of an image on the axes, by (across, down)."""
    return ax.images[layer].get_array().T


def test_the_overview_is_a_picture_of_eight_panels(pair, tmp_path):
    figure = overview(pair, "a title")
    save(figure, tmp_path / "overview.png")
    height, width, _ = imread(tmp_path / "overview.png").shape
    assert 1500 < width < 2000
    assert 800 < height < 1200
    assert figure.get_suptitle() == "a title"
    assert len([ax for ax in figure.axes if ax.get_title()]) == 8
    assert [path.name for path in tmp_path.iterdir()] == ["overview.png"]


def test_the_overview_of_a_volume_shows_its_middle_slice(pair, d):
    k = () if d == 2 else (slice(None), slice(None), SHAPES[3][2] // 2)
    fixed, moving, warped, *_ = overview(pair, "").axes
    for ax, image in ((fixed, pair.fixed), (moving, pair.moving), (warped, pair.warped)):
        assert_array_equal(drawn(ax), image[k])


def test_axis_0_runs_across_and_axis_1_down(ax):
    """One bright voxel at (6, 1) of 8 x 3 shines right of the middle, on the second line from the top of three."""
    image = np.zeros((8, 3))
    image[6, 1] = 1
    show_image(ax, image, "title", 0.0, 1.0)
    assert_array_equal(drawn(ax), image)
    canvas = FigureCanvasAgg(ax.figure)
    ax.set_position((0, 0, 1, 1))
    canvas.draw()
    x, y = ax.transData.transform((6, 1))
    pixels = np.asarray(canvas.buffer_rgba())
    assert pixels[pixels.shape[0] - 1 - int(y), int(x), 0] == 255
    assert ax.yaxis_inverted()
    assert ax.get_title() == "title"


def test_all_images_share_one_grey_scale(pair):
    limits = {ax.images[0].get_clim() for ax in overview(pair, "").axes[:4]}
    assert len(limits) == 1


def test_differences_carry_their_mean(pair):
    before, after = overview(pair, "").axes[4:6]
    flat = pair.in_plane()
    for ax, image in ((before, flat.moving), (after, flat.warped)):
        assert f"(mean {np.abs(image - flat.fixed).mean():.3g})" in ax.get_title()
        assert_allclose(drawn(ax), np.abs(image - flat.fixed))
    assert before.get_title().startswith("|moving")
    assert after.get_title().startswith("|warped")
    assert before.images[0].get_clim() == after.images[0].get_clim()


def test_the_mean_in_a_title_is_that_of_the_picture(ax):
    show_difference(ax, np.zeros((2, 2)), np.array([[1.0, -2.0], [3.0, -4.0]]), "name", 1.0)
    assert ax.get_title() == "name (mean 2.5)"


def test_grid_lines_pass_through_x_plus_u(ax, random):
    u = random(2, 9, 13).numpy()
    show_grid(ax, u)
    lines = [line.get_xydata() for line in ax.lines]
    expected = [[(i + u[0, i, j], j + u[1, i, j]) for j in range(13)] for i in range(0, 9, GRID_STEP)]
    expected += [[(i + u[0, i, j], j + u[1, i, j]) for i in range(9)] for j in range(0, 13, GRID_STEP)]
    assert len(lines) == len(expected)
    for line, points in zip(lines, expected, strict=True):
        assert_allclose(line, points)
    assert ax.yaxis_inverted()  # as in the images beside it


def test_folds_are_green_where_the_determinant_is_negative_and_nowhere_else(ax, random):
    det = random(7, 9).numpy()
    show_jacobian(ax, det)
    assert_array_equal(drawn(ax), det)
    overlay = ax.images[1]
    assert_array_equal(np.ma.filled(drawn(ax, 1), np.nan) == 1, det < 0)
    colours = overlay.cmap(overlay.norm(overlay.get_array()))
    assert_array_equal(colours[(det < 0).T], np.tile([0.0, 1.0, 0.0, 1.0], (np.sum(det < 0), 1)))
    assert not colours[(det >= 0).T][:, 3].any()  # transparent


def test_the_overview_folds_where_the_map_does(pair, d):
    """In a volume the determinant is that of the whole motion, not of the slice's."""
    J = np.stack([np.gradient(component) for component in pair.field]) + np.eye(d).reshape(d, d, *[1] * d)
    det = np.linalg.det(np.moveaxis(J, (0, 1), (-2, -1)))
    if d == 3:
        det = det[..., SHAPES[3][2] // 2]
    shown = drawn(overview(pair, "").axes[7], layer=1)
    assert (det < 0).any()
    assert_array_equal(np.ma.filled(shown, np.nan) == 1, det < 0)


def test_outlines_run_between_a_label_and_its_neighbours_in_the_label_s_colour(pair):
    """The contour at one half lies half a voxel outside the voxels 3..5 (label 1) and 6..8 (label 2)."""
    ax = overview(pair, "").axes[3]
    fixed_1, fixed_2, warped_1, warped_2 = ax.collections
    for contour, across in ((fixed_1, (2.5, 5.5)), (fixed_2, (5.5, 8.5))):
        (path,) = contour.get_paths()
        assert_allclose((path.vertices[:, 0].min(), path.vertices[:, 0].max()), across)
        assert_allclose((path.vertices[:, 1].min(), path.vertices[:, 1].max()), (2.5, 7.5))
    from matplotlib.colors import to_rgba

    for contour, colour in zip(ax.collections, LABEL_COLOURS[:2] * 2, strict=True):
        assert_allclose(contour.get_edgecolor()[0], to_rgba(colour))
    assert fixed_1.get_linestyle() == fixed_2.get_linestyle() != warped_1.get_linestyle() == warped_2.get_linestyle()
