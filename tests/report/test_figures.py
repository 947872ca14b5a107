"""Pictures: the overview of a pair and its panels, images and volumes, thumbnails."""

from dataclasses import replace

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import hsv_to_rgb, to_rgba
from matplotlib.figure import Figure
from matplotlib.image import imread
from numpy.testing import assert_allclose, assert_array_equal
from PIL import Image as PILImage

from tests.conftest import SHAPES
from tests.report.conftest import bare
from vrnet import Image
from vrnet.images.grid import Grid
from vrnet.report.drawing import FOLD, LABELS, label_colours
from vrnet.report.figures import (
    MAX_SIDE_PIXELS,
    PLANES,
    image_figure,
    middle_slice,
    overview,
    save,
    show_difference,
    show_grid,
    show_image,
    show_jacobian,
    show_motion,
    show_outlines,
    write_thumbnail,
)
from vrnet.report.pair import Deformation, PageSlices, View, deformation

SPACING = {2: (1.5, 2.0), 3: (1.5, 2.0, 8.0)}
MAIN = 7  # the slice with the most labels


@pytest.fixture
def pair(d, random):
    """Random images and a small random field, with labels 1 and 2 side by side; axes of the world, thick slices."""
    shape = SHAPES[d]
    labels = np.zeros(shape, np.uint8)
    labels[3:6, 3:8], labels[6:9, 3:8] = 1, 2
    if d == 3:
        labels[:4, :4, :MAIN], labels[:4, :4, MAIN + 1 :] = 0, 0
    fixed, moving, warped = random(3, *shape).numpy()
    grid = Grid.plain(shape, SPACING[d])
    return View(fixed, moving, warped, random(d, *shape).numpy(), grid, labels, np.roll(labels, 2, 1), labels)


@pytest.fixture
def flat(pair, d):
    """The slice of the pair that the overview shows."""
    return pair if d == 2 else pair.cut(MAIN)


@pytest.fixture
def ax():
    return Figure().subplots()


def image_pixels(ax, layer=0):
    """The pixels of an image on the axes, by (across, down)."""
    return ax.images[layer].get_array().T


def find_panels(figure):
    """The axes with a title: the panels, row by row."""
    return [ax for ax in figure.axes if ax.get_title()]


@pytest.mark.release
def test_the_overview_is_a_picture_of_ten_panels_or_eight_without_labels(pair, tmp_path):
    figure = overview(pair, "a title")
    assert len(find_panels(figure)) == 10
    assert len(find_panels(overview(bare(pair), "a title"))) == 8
    assert figure.get_suptitle().startswith("a title")
    save(figure, tmp_path / "overview.png")
    height, width, _ = imread(tmp_path / "overview.png").shape
    assert 1500 < width < 2200
    assert 800 < height < 1200


@pytest.mark.parametrize("d", [2])
def test_the_title_of_an_overview_is_shown_as_it_is(pair, tmp_path):
    """It holds the name of a file, which may look like mathematics, also like wrong ones."""
    save(overview(pair, r"a$\wrong$.nii.gz"), tmp_path / "overview.png")


def test_the_overview_says_where_moving_is_aligned(pair):
    titles = {aligned: [ax.get_title() for ax in find_panels(overview(replace(pair, is_aligned=aligned), ""))]
              for aligned in (False, True)}  # fmt: skip
    assert (titles[False][1], titles[True][1]) == ("moving", "moving, aligned")
    assert any("aligned" in title for title in titles[True][5:])
    assert not any("aligned" in title for title in titles[False])


def test_of_opposite_contrasts_the_overview_has_checkerboards_for_differences(pair, flat):
    """Every pixel is one of fixed or one of the other image, in the greys of its own."""
    plain, opposite = (find_panels(overview(pair, "", is_opposite=which)) for which in (False, True))
    assert [ax.get_title() for ax in plain[:5]] == [ax.get_title() for ax in opposite[:5]]
    assert [ax.get_title() for ax in opposite[5:7]] == ["fixed and moving, in turns", "fixed and warped, in turns"]
    look = PageSlices(pair)
    fixed, warped = (
        ((getattr(flat, name) - low) / (high - low)).clip(0, 1)
        for name, (low, high) in look.windows.items()
        if name != "moving"
    )
    shown = image_pixels(opposite[6])
    assert ((shown == fixed) | (shown == warped)).all()
    for image in (fixed, warped):
        assert 0.3 < ((shown == image) & (fixed != warped)).sum() / (fixed != warped).sum() < 0.7


def test_the_overview_of_a_volume_shows_the_slice_with_the_most_labels(pair, flat):
    for ax, image in zip(find_panels(overview(pair, "")), (flat.fixed, flat.moving, flat.warped), strict=False):
        assert_array_equal(image_pixels(ax), image)


@pytest.mark.parametrize("d", [3])
def test_a_volume_is_oriented_for_viewing(pair):
    """A volume whose axes run to S, A and R is shown as the same one whose axes run to L, P and S."""
    turned = pair.map_arrays(lambda array: np.moveaxis(array, -1, -3)[..., ::-1, ::-1].swapaxes(-1, -2), pair.grid)
    turned = replace(turned, field=turned.field[[2, 1, 0]] * np.reshape((1, -1, -1), (3, 1, 1, 1)))
    shape, spacing = (tuple(getattr(pair.grid, name)[i] for i in (2, 1, 0)) for name in ("shape", "spacing"))
    direction = (0.0, 0.0, -1.0, 0.0, -1.0, 0.0, 1.0, 0.0, 0.0)
    turned = replace(turned, grid=Grid(shape, spacing, (0.0, 0.0, 0.0), direction))
    for found, expected in zip(find_panels(overview(turned, "")), find_panels(overview(pair, "")), strict=True):
        if found.images:
            assert_allclose(found.images[0].get_array(), expected.images[0].get_array())


@pytest.mark.parametrize("d", [3])
def test_the_overview_looks_as_the_page_does(pair):
    """The same greys, the same length of motion at the rim, and the colour that a label has in the whole volume."""
    labels = pair.fixed_labels.astype(int)
    labels[0, 0, 0] = -3  # a label of another slice, before the others
    pair = replace(pair, fixed_labels=labels)
    look, panels = PageSlices(pair), find_panels(overview(pair, "", {"1": "RV"}))
    assert [*look.colours] == [-3, 1, 2]
    assert panels[0].images[0].get_clim() == look.windows["fixed"]
    assert f"(rim {look.rim_mm:.3g} mm)" in panels[8].get_title()
    legend = panels[3].get_legend()
    names, colours = ([part(one) for one in parts] for part, parts in (
        (lambda text: text.get_text(), legend.get_texts()), (lambda line: line.get_color(), legend.legend_handles),
    ))  # fmt: skip
    assert dict(zip(names, colours, strict=True)) == {"RV": look.colours[1], "label 2": look.colours[2]}


def test_axis_0_runs_across_and_axis_1_down(ax):
    """One bright voxel at (6, 1) of 8 x 3 shines right of the middle, on the second line from the top of three."""
    image = np.zeros((8, 3))
    image[6, 1] = 1
    show_image(ax, image, "title", (0.0, 1.0))
    assert_array_equal(image_pixels(ax), image)
    canvas = FigureCanvasAgg(ax.figure)
    ax.set_position((0, 0, 1, 1))
    canvas.draw()
    x, y = ax.transData.transform((6, 1))
    pixels = np.asarray(canvas.buffer_rgba())
    assert pixels[pixels.shape[0] - 1 - int(y), int(x), 0] == 255
    assert ax.yaxis_inverted()
    assert ax.get_title() == "title"


def test_differences_carry_their_mean(pair, flat):
    before, after = find_panels(overview(pair, ""))[5:7]
    for ax, image in ((before, flat.moving), (after, flat.warped)):
        assert f"(mean {np.abs(image - flat.fixed).mean():.3g})" in ax.get_title()
        assert_allclose(image_pixels(ax), np.abs(image - flat.fixed))
    assert before.get_title().startswith("|moving")
    assert after.get_title().startswith("|warped")
    assert before.images[0].get_clim() == after.images[0].get_clim()


def test_the_mean_in_a_title_is_that_inside_the_mask(ax):
    mask = np.array([[True, True], [True, False]])
    show_difference(ax, np.array([[1.0, 2.0], [3.0, 4.0]]), "name", 1.0, mask)
    assert ax.get_title() == "name (mean inside 2)"
    show_difference(ax, np.ones((2, 2)), "name", 1.0, np.zeros((2, 2), bool))
    assert ax.get_title() == "name (mean 1)"


@pytest.mark.parametrize("shape", [(9, 13), (90, 70)])
def test_grid_lines_pass_through_x_plus_u(ax, random, shape):
    u, step = random(2, *shape).numpy(), {9: 1, 90: 2}[shape[0]]
    show_grid(ax, u)
    lines = [line.get_xydata() for line in ax.lines]
    w, h = shape
    expected = [[(i + u[0, i, j], j + u[1, i, j]) for j in range(h)] for i in range(0, w, step)]
    expected += [[(i + u[0, i, j], j + u[1, i, j]) for i in range(w)] for j in range(0, h, step)]
    for line, points in zip(lines, expected, strict=True):
        assert_allclose(line, points)


def test_motion_is_shown_in_mm_with_its_wheel(ax):
    """Four voxels right is 2 mm, one voxel down is 3 mm: the longer one is saturated."""
    u = np.zeros((2, 2, 3))
    u[0, 0, 0], u[1, 1, 2] = 4, 1
    show_motion(ax, u * np.reshape((0.5, 3.0), (2, 1, 1)), 3.0)
    shown = ax.images[0].get_array().swapaxes(0, 1)
    assert_allclose(shown[0, 0], hsv_to_rgb((0.0, 2 / 3, 1.0)))
    assert_allclose(shown[1, 2], hsv_to_rgb((0.25, 1.0, 1.0)), atol=1e-12)
    assert_allclose(shown[0, 1], 1.0)
    assert "3 mm" in ax.get_title()
    (wheel,) = ax.child_axes
    rim = wheel.images[0].get_array()
    assert_allclose(rim[50, 100], (*hsv_to_rgb((0.0, 1.0, 1.0)), 1.0))  # right
    assert_allclose(rim[100, 50], (*hsv_to_rgb((0.25, 1.0, 1.0)), 1.0), atol=1e-12)  # below
    assert rim[0, 0, 3] == 0


def test_folds_are_green_where_they_are_and_nowhere_else(ax, random):
    det = random(7, 9).numpy()
    folded = random(7, 9).numpy() > 1
    show_jacobian(ax, Deformation(det, folded))
    assert_array_equal(image_pixels(ax), det)
    overlay = ax.images[1]
    colours = overlay.cmap(overlay.norm(overlay.get_array()))
    assert_allclose(colours[folded.T], np.tile(to_rgba(FOLD), (folded.sum(), 1)))
    assert not colours[~folded.T][:, 3].any()  # transparent


def test_the_overview_folds_where_the_map_does(pair, d):
    """In a volume the determinant is that of the whole motion, not of the slice's."""
    expected = deformation(pair.field, MAIN if d == 3 else 0)
    jacobian = find_panels(overview(pair, ""))[-1]
    assert expected.folded.any()
    assert_allclose(image_pixels(jacobian), expected.det)
    assert_array_equal(np.ma.filled(image_pixels(jacobian, layer=1), np.nan) == 1, expected.folded)


def test_outlines_run_between_a_label_and_its_neighbours_in_the_colour_of_the_label(ax):
    """The contour at one half lies half a voxel outside the voxels 3..5 (label 1) and 6..8 (label 2)."""
    labels = np.zeros((12, 10), int)
    labels[3:6, 3:8], labels[6:9, 3:8] = 1, 2
    show_outlines(ax, {"solid": labels, "dashed": labels}, dict(zip((1, 2), LABELS, strict=False)), {})
    fixed_1, fixed_2, warped_1, warped_2 = ax.collections
    for contour, across in ((fixed_1, (2.5, 5.5)), (fixed_2, (5.5, 8.5))):
        (path,) = contour.get_paths()
        assert_allclose((path.vertices[:, 0].min(), path.vertices[:, 0].max()), across)
        assert_allclose((path.vertices[:, 1].min(), path.vertices[:, 1].max()), (2.5, 7.5))
    for contour, colour in zip(ax.collections, LABELS[:2] * 2, strict=True):
        assert_allclose(contour.get_edgecolor()[0], to_rgba(colour))
    assert fixed_1.get_linestyle() == fixed_2.get_linestyle() != warped_1.get_linestyle() == warped_2.get_linestyle()


def test_the_legend_names_the_labels_if_they_are_few(ax):
    labels = np.repeat([[-7, 0, 1000]], 4, axis=0)
    show_outlines(ax, {"solid": labels}, label_colours([-7, 5, 1000]), {"1000": "$wall_{x"})
    texts = ax.get_legend().get_texts()
    assert [text.get_text() for text in texts] == ["label -7", r"\$wall_{x"]
    FigureCanvasAgg(ax.figure).draw()  # where a dollar began mathematics, this would fail
    many = Figure().subplots()
    show_outlines(many, {"solid": np.arange(60).reshape(6, 10)}, label_colours([*range(1, 60)]), {})
    assert many.get_legend() is None


VOLUME = (9, 8, 7)


@pytest.mark.parametrize("flips", [(1, 1, 1), (-1, 1, -1)])
def test_each_plane_of_a_volume_is_seen_as_radiologists_see_it(flips):
    """Patient left on the right, anterior on top of axial slices, superior on top of the others; LPS runs to the left,
    to the back and up."""
    grid = Grid(VOLUME, (1.0, 1.0, 1.0), (0.0, 0.0, 0.0), tuple(np.diag(flips).astype(float).ravel().tolist()))
    lps = grid.points(np.indices(VOLUME).reshape(3, -1).T.astype(float)).T.reshape(3, *VOLUME)
    axial, coronal = (middle_slice(lps[0].astype(np.float32), grid, PLANES[name])[0] for name in ("axial", "coronal"))
    for picture in (axial, coronal):
        assert (np.diff(picture, axis=0) > 0).all()
    axial = middle_slice(lps[1].astype(np.float32), grid, PLANES["axial"])[0]
    assert (np.diff(axial, axis=1) > 0).all()
    for name in ("coronal", "sagittal"):
        assert (np.diff(middle_slice(lps[2].astype(np.float32), grid, PLANES[name])[0], axis=1) < 0).all()


def test_pixels_are_as_wide_and_as_high_as_they_are():
    image = Image(np.arange(24, dtype=float).reshape(6, 4), Grid.plain((6, 4), (1.0, 3.0)))
    (ax,) = image_figure(image).axes
    assert ax.get_aspect() == 3.0


def test_planes_are_named_where_the_header_says_how_the_image_lies():
    plain = Grid.plain(VOLUME, (1.0, 1.0, 2.0))
    for grid, names in ((plain, ["across axis 2", "across axis 1", "across axis 0"]),
                        (replace(plain, origin=(-90.0, 40.0, 7.0)), ["axial", "coronal", "sagittal"])):  # fmt: skip
        figure = image_figure(Image(np.random.default_rng(0).random(VOLUME), grid))
        assert [ax.get_title() for ax in figure.axes] == names


@pytest.mark.parametrize(
    ("shape", "spacing"), [((40, 20), (1.0, 1.0)), ((40, 20, 5), (1.0, 1.0, 8.0)), ((40, 10), (1.0, 2.0))]
)
def test_three_images_stand_side_by_side_in_their_proportions(tmp_path, shape, spacing):
    ramp = np.broadcast_to(np.linspace(0, 1, shape[0])[(...,) + (None,) * (len(shape) - 1)], shape).astype(np.float32)
    zeros = np.zeros((len(shape), *shape), np.float32)
    write_thumbnail(tmp_path / "t.png", View(ramp, 1 - ramp, ramp, zeros, Grid.plain(shape, spacing)))
    picture = np.asarray(PILImage.open(tmp_path / "t.png"))
    assert picture.shape == (MAX_SIDE_PIXELS // 2, 3 * MAX_SIDE_PIXELS)
    fixed, moving, warped = np.split(picture, 3, axis=1)
    assert (fixed == warped).all()
    assert np.abs(255 - moving.astype(int) - fixed).max() <= 1


def test_images_whose_intensities_lie_far_apart_are_both_seen(tmp_path):
    """By one window for both, one of them would be all black."""
    ramp = np.broadcast_to(np.linspace(0, 1, 40)[:, None], (40, 20)).astype(np.float32)
    far = 1000 + ramp
    pair = View(ramp, far, far, np.zeros((2, 40, 20), np.float32), Grid.plain((40, 20), (1.0, 1.0)))
    write_thumbnail(tmp_path / "t.png", pair)
    assert all(np.ptp(picture) > 200 for picture in np.split(np.asarray(PILImage.open(tmp_path / "t.png")), 3, axis=1))


def test_the_picture_has_a_contour_of_the_mask_and_says_so(masked):
    figure, plain = overview(bare(masked), "TV-L1"), overview(bare(replace(masked, mask=None)), "TV-L1")
    assert "dotted: the mask" in figure._suptitle.get_text()
    assert "mask" not in plain._suptitle.get_text()
    assert [len(ax.collections) for ax in figure.axes[:3]] == [1, 1, 1]
    assert [len(ax.collections) for ax in plain.axes[:3]] == [0, 0, 0]
