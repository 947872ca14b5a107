"""The three planes of a volume, in a browser that draws WebGL by software; and without WebGL."""

import re
from dataclasses import replace
from io import BytesIO

import numpy as np
import pytest
from numpy.testing import assert_allclose
from PIL import Image

from tests.report.browser import expected_greys, find_element, open_file, panel_colours, set_range, write_report
from tests.report.conftest import METRICS, start_browser
from vrnet.images.grid import Grid
from vrnet.report.pair import View, orient_for_viewing

SHAPE = (40, 36, 32)
SLOPES = {"fixed": (1.0, 0.4, -0.7), "moving": (0.6, -0.8, 0.5), "warped": (-0.5, 0.9, 0.3)}
"""Greys per mm of LPS: linear images, whose value at any point is known, between voxels too."""
HOSTILE = "<img src=x onerror=alert(1)>'\"\n</script>"
MAX_SECONDS = 30.0
"""To open the page on a machine that is busy with other tests; alone it takes a few."""
NO_WEBGL = """
const getContext = HTMLCanvasElement.prototype.getContext;
HTMLCanvasElement.prototype.getContext = function (kind, ...more) {
  return kind.startsWith("webgl") ? null : getContext.call(this, kind, ...more);
};
"""

pytestmark = pytest.mark.release


@pytest.fixture(scope="module")
def turned():
    """Linear images on an oblique grid, stored in another order than the world's; a bump of motion; a structure."""
    turn = np.array([[0.0, 0.96, 0.28], [0.0, -0.28, 0.96], [-1.0, 0.0, 0.0]])
    grid = Grid(SHAPE, (2.0, 1.5, 1.8), (-30.0, 12.0, 55.0), tuple(turn.ravel().tolist()))
    index = np.argwhere(np.ones(SHAPE)).astype(float)
    points = grid.points(index)
    images = [(100 + points @ SLOPES[name]).reshape(SHAPE) for name in ("fixed", "moving", "warped")]
    bump = np.exp(-((index - (25, 10, 20)) ** 2).sum(1) / 18).reshape(SHAPE)
    labels = np.zeros(SHAPE, int)
    labels[15:30, 8:20, 10:26] = 7
    return View(*images, np.stack([2 * bump, -bump, 0 * bump]), grid, labels, labels, labels)


@pytest.fixture(scope="module")
def path(tmp_path_factory, turned):
    path = tmp_path_factory.mktemp("planes") / "page.html"
    metrics = METRICS | {"label_names": {"7": HOSTILE}}
    write_report(path, turned, metrics, [], {"fixed": HOSTILE.replace("/", ""), "moving": "b.nii"})
    return path


@pytest.fixture(scope="module")
def software(tmp_path_factory):
    """A browser that draws WebGL without a graphics card."""
    flags = "--use-angle=swiftshader-webgl", "--enable-unsafe-swiftshader"
    yield from start_browser(tmp_path_factory.mktemp("software"), flags)


@pytest.fixture(scope="module")
def page(software, path):
    """The page, opened on a wide screen once its planes are drawn, without outlines: it takes seconds to open."""
    open_file(software, path, "#position", height=1200, seconds=MAX_SECONDS)
    software.execute_script("document.getElementById('outlines').click()")
    return software


def position(page):
    """What is said of the point under the cross: the point in LPS, and the rest of the words."""
    text = find_element(page, "#position").text.replace("−", "-")
    return np.array([float(x) for x in re.search(r"LPS \(([^)]*)\)", text)[1].split(", ")]), text


def areas(page):
    """{plane: (left, top, width, height)} on the screen."""
    script = "return [...document.querySelectorAll('.plane')].map((e) => [e.dataset.plane, e.getBoundingClientRect()])"
    return {
        name: [area[side] for side in ("left", "top", "width", "height")] for name, area in page.execute_script(script)
    }


def screen(page):
    """The picture on the screen, (across, down, RGB), after all has been drawn."""
    page.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")
    return np.asarray(Image.open(BytesIO(page.get_screenshot_as_png())).convert("RGB")).swapaxes(0, 1).astype(float)


def press_at(page, x, y):
    from selenium.webdriver.common.actions.action_builder import ActionBuilder

    builder = ActionBuilder(page, duration=0)
    builder.pointer_action.move_to_location(round(x), round(y)).pointer_down().pointer_up()
    builder.perform()


def grey_at(point, name, pair):
    """The grey of a linear image at a point of LPS."""
    return float(expected_greys(100 + point @ np.array(SLOPES[name]), pair))


def test_the_page_of_a_volume_opens_from_disk_without_network_in_time(software, path):
    page = open_file(software, path, "#position", seconds=MAX_SECONDS)
    assert sorted(areas(page)) == ["axial", "coronal", "sagittal"]
    assert not find_element(page, "#main").is_displayed()
    loaded = page.execute_script("return performance.getEntriesByType('resource').map((entry) => entry.name)")
    assert all(address.startswith(("data:", "blob:")) for address in loaded)
    logged = [entry["message"] for entry in page.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]
    assert [message for message in logged if "GPU stall due to ReadPixels" not in message] == []
    assert not re.findall(r"(?:https?:)?//[a-z]+\.", path.read_text())


def test_without_webgl_the_viewer_of_slices_shows_the_same_slice(software, path, turned):
    number = find_element(open_file(software, path, "#position", seconds=MAX_SECONDS), "#number").text
    script = software.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": NO_WEBGL})["identifier"]
    try:
        page = open_file(software, path, "#folds")
        assert find_element(page, "#main").is_displayed()
        assert not find_element(page, "#volume").is_displayed()
        assert "WebGL2" in find_element(page, "#no-planes").text
        assert find_element(page, "#number").text == number
        shown, k = orient_for_viewing(turned), int(number.split()[1]) - 1
        assert_allclose(panel_colours(page, "warped", shown.fixed.shape)[..., 0],
                        expected_greys(shown.warped[..., k], shown), atol=3)  # fmt: skip
    finally:
        software.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", {"identifier": script})


@pytest.mark.parametrize(("fade", "name"), [(0, "fixed"), (100, "warped")])
def test_each_plane_shows_the_grey_of_the_point_that_it_names(page, turned, fade, name):
    """On an oblique grid: where one presses, the image has the grey that it has in the world, in every plane."""
    set_range(page, "fade", fade)
    shift = 0.0 if name == "fixed" else 0.1
    for plane, across, down in (("axial", 0.3, 0.4), ("coronal", 0.55, 0.6), ("sagittal", 0.8, 0.25)):  # off the cross
        left, top, width, height = areas(page)[plane]
        x, y = left + (across + shift) * width, top + (down + shift) * height
        colour = screen(page)[round(x), round(y)]
        press_at(page, x, y)
        # the readout names the nearest voxel, half a voxel away at most along each axis
        slack = 0.5 * np.abs(np.array(SLOPES[name]) @ turned.grid.to_world).sum() * grey_scale(turned)
        assert_allclose(colour, grey_at(position(page)[0], name, turned), atol=slack + 3)


def grey_scale(pair):
    """Greys on the screen per unit of intensity."""
    low, high = np.percentile([pair.fixed, pair.moving], (0.5, 99.5))
    return 255 / (high - low)


def test_pressing_right_of_the_middle_goes_to_the_left_of_the_patient(page):
    """Radiological: in the axial and coronal plane L is on the right, up is anterior and superior."""
    moves = {"axial": ((0, 1), (1, 1)), "coronal": ((0, 1), (2, -1)), "sagittal": ((1, 1), (2, -1))}
    for plane, (across, down) in moves.items():
        left, top, width, height = areas(page)[plane]
        found = []
        for x, y in ((0.3, 0.3), (0.7, 0.3), (0.7, 0.7)):
            press_at(page, left + x * width, top + y * height)
            found.append(position(page)[0])
        for change, (axis, sign) in zip(np.diff(found, axis=0), (across, down), strict=True):
            assert np.argmax(np.abs(change)) == axis
            assert change[axis] * sign > 0


def test_the_button_goes_to_the_largest_motion_in_planes_and_slices(page, turned):
    find_element(page, "#peak").click()
    point, text = position(page)
    assert_allclose(point, turned.grid.points(np.array([[25.0, 10.0, 20.0]]))[0], atol=0.06)
    moved = turned.grid.to_world @ (2, -1, 0)
    assert f"moves by {np.linalg.norm(moved):.1f} mm, LPS ({', '.join(f'{x:.1f}' for x in moved)})" in text
    shown = orient_for_viewing(turned)
    k = round(shown.grid.index(point[None])[0, 2])
    assert find_element(page, "#number").text == f"slice {k + 1} of {shown.fixed.shape[2]}"
    assert_allclose(panel_colours(page, "warped", shown.fixed.shape)[..., 0],
                    expected_greys(shown.warped[..., k], shown), atol=3)  # fmt: skip


def test_motion_is_drawn_over_the_planes(page):
    """Arrows and the grid on the canvas above, colours in the planes themselves."""
    drawn = (
        "const c = document.getElementById('plane-lines'), d = c.getContext('2d').getImageData(0, 0, c.width, c.height)"
    )
    count = f"{drawn}.data; return d.filter((value, i) => i % 4 === 3 && value > 0).length"
    screen(page)
    assert page.execute_script(count) == 0
    for name in ("arrows", "plane-grid"):
        before = page.execute_script(count)
        page.execute_script("document.getElementById(arguments[0]).click()", name)
        screen(page)
        assert page.execute_script(count) > before
    grey = screen(page)
    page.execute_script("document.querySelector('input[name=tint][value=motion]').click()")
    coloured = screen(page)
    assert find_element(page, "#tint-bar").is_displayed()
    left, top, width, height = map(round, areas(page)["axial"])
    inside = (slice(left, left + width), slice(top, top + height))
    assert np.ptp(coloured[inside], axis=2).max() > np.ptp(grey[inside], axis=2).mean() + 20


def test_paper_shows_the_planes(page):
    """A browser does not print what WebGL draws: the canvas of the lines has the same picture."""
    left, top, width, height = areas(page)["coronal"]
    x, y = left + 0.9 * width, top + 0.9 * height
    colour = screen(page)[round(x), round(y)]
    printed = page.execute_script(
        "dispatchEvent(new Event('beforeprint')); const c = document.getElementById('plane-lines'),"
        "box = c.getBoundingClientRect(), at = [arguments[0] - box.left, arguments[1] - box.top];"
        "return [...c.getContext('2d').getImageData(...at.map(Math.round), 1, 1).data]",
        x, y,
    )  # fmt: skip
    assert_allclose(printed, [*colour, 255], atol=3)
    page.execute_script("dispatchEvent(new Event('afterprint'))")


def test_hostile_names_are_text(page, turned):
    find_element(page, "#peak").click()
    assert HOSTILE.replace("\n", " ") in " ".join(find_element(page, "#position").text.split("\n"))
    assert page.find_elements("css selector", "#volume img, h1 img") == []


def test_planes_have_names_and_letters_of_directions_only_where_the_header_says_them(software, path, turned, tmp_path):
    write_report(tmp_path / "page.html", replace(turned, grid=Grid.plain(SHAPE, (2.0, 1.5, 1.8))), METRICS, [], {})
    for file, letters in ((path, 12), (tmp_path / "page.html", 0)):
        opened = open_file(software, file, "#position", height=1200, seconds=MAX_SECONDS)
        assert len(opened.find_elements("css selector", ".plane")) == 3
        assert len(opened.find_elements("css selector", ".plane i")) == letters
        assert len(opened.find_elements("css selector", ".plane b")) == letters / 4
