"""How tests use a page that a browser shows."""

import shutil

import numpy as np
import pytest

from vrnet.report.page import render_page

# The colour of the middle of every pixel of the image, row by row.
SAMPLE = """
const canvas = document.querySelector(`[data-panel="${arguments[0]}"] canvas`), [w, h] = arguments[1];
const {data} = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height), out = [];
for (let y = 0; y < h; y++) for (let x = 0; x < w; x++) {
  const column = Math.floor((x + 0.5) * canvas.width / w), row = Math.floor((y + 0.5) * canvas.height / h);
  for (let c = 0; c < 3; c++) out.push(data[4 * (row * canvas.width + column) + c]);
}
return out;
"""


def find_tool(name):
    """The path of a program, or a skip that says what it is for."""
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is not installed: it shows the page to the tests")
    return path


def open_file(browser, path, ready, width=1200, height=900, seconds=60, **media):
    """Open a page on a wide bright screen, and wait until it is drawn: until this element says something."""
    from selenium.webdriver.support.ui import WebDriverWait

    set_screen(browser, width, height)
    features = [{"name": f"prefers-{feature.replace('_', '-')}", "value": value} for feature, value in media.items()]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    browser.get_log("browser")  # drops what an earlier page logged
    browser.get(path.as_uri())
    WebDriverWait(browser, seconds, 0.05).until(lambda _: find_element(browser, ready).text != "–")
    return browser


def set_screen(browser, width=1200, height=900):
    """The size that the window keeps, also for the tests that come later."""
    screen = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)


def find_element(page, selector):
    return page.find_element("css selector", selector)


def press(page, key):
    from selenium.webdriver import ActionChains

    ActionChains(page).send_keys(key).perform()


def set_range(page, identifier, value):
    """Move a slider to a value."""
    script = (
        "const e = document.getElementById(arguments[0]); e.value = arguments[1]; e.dispatchEvent(new Event('input'))"
    )
    page.execute_script(script, identifier, value)


def panel_colours(page, panel, shape=(24, 20)):
    """(across, down, RGB) of every pixel of the image, as the panel shows it."""
    values = page.execute_script(SAMPLE, panel, shape[:2])
    return np.array(values).reshape(shape[1], shape[0], 3).swapaxes(0, 1)


def expected_greys(image, pair):
    """The grey values that an image should have: the middle 99 % of both images, from black to white."""
    low, high = np.percentile([pair.fixed, pair.moving], (0.5, 99.5))
    return (255 * (image - low) / (high - low)).clip(0, 255)


def show_only(page, fade):
    """Show the comparison without outlines, at a fade from 0 (fixed) to 100 (the other image)."""
    if find_element(page, "#outlines").is_selected():
        press(page, "o")
    set_range(page, "fade", fade)


def write_report(path, view, metrics, energies, run):
    """The page of a view, written as `write_report` writes that of a result."""
    path.write_bytes(render_page(view, metrics, energies, run).encode(errors="replace"))
