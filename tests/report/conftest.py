"""Pages, and a browser that shows them."""

from dataclasses import replace

import numpy as np
import pytest

from tests.phantoms import phantom
from tests.report.browser import find_tool, open_file, write_report
from vrnet.fields.calculus import warp, warp_labels
from vrnet.images.grid import Grid
from vrnet.report.pair import View

SHAPE = (24, 20, 5)
MOTIONS = {0: (2.0, 0.0), 1: (0.0, 1.0), 2: (-1.0, 0.0)}  # of whole slices, in voxels across and down
FOLDED = (9, 12, 3)
HOSTILE = f"<script>alert(1);<img src=x onerror=alert(1)>&amp;{80 * 'x'}.nii.gz"  # files have no slash in their names
SCRIPT = "<script>alert(1)</script>"
METRICS = {
    "method": "TV-L1",
    "seconds": 0.4,
    "folding_strict_percent": 0.02,
    "verdict": {"level": "look", "reasons": ["The motion is <large>."], "try": ["--affine affine", "a mask"]},
    "dice": {"before": {"7": 0.5, "-2": None, "mean": 0.5}, "after": {"7": 0.75, "-2": None, "mean": 0.75}},
}
FLAGS = (
    "--headless=new --no-sandbox --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --disable-quic --force-color-profile=srgb"
)
MOUSE = "--blink-settings=primaryHoverType=2,availableHoverTypes=2,primaryPointerType=4,availablePointerTypes=4"
TOUCH = "--blink-settings=primaryHoverType=1,availableHoverTypes=1,primaryPointerType=2,availablePointerTypes=2"
"""What the browser takes its screen for: without either, it has neither, as no other browser has."""


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    yield from start_browser(tmp_path_factory.mktemp("profile"), ("--disable-gpu", MOUSE))


def start_browser(profile, flags):
    """Yield a browser with these flags; it ends after that."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed: it drives the browser")
    options = webdriver.ChromeOptions()
    options.binary_location = find_tool("chromium")
    for flag in (*FLAGS.split(), *flags, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(find_tool("chromedriver")))
    yield driver
    driver.quit()


@pytest.fixture(scope="session")
def volume():
    """Slices that move as a whole, one with a fold, and two structures; widest spacing last, axes of the world."""
    generator = np.random.default_rng(0)
    fixed, moving, warped = generator.uniform(0, 1000, (3, *SHAPE))
    u = np.zeros((3, *SHAPE))
    for k, motion in MOTIONS.items():
        u[:2, ..., k] = np.reshape(motion, (2, 1, 1))
    u[(0, *FOLDED)] = 4.0  # carried past its neighbours
    labels = np.zeros(SHAPE, int)
    labels[4:10, 5:12, 1:4], labels[10:16, 5:12, 1:3] = 7, -2
    grid = Grid.plain(SHAPE, (1.5, 2.0, 8.0))
    return View(fixed, moving, warped, u, grid, labels, np.roll(labels, 2, 0), labels)


@pytest.fixture(scope="session")
def single():
    """One slice of a volume, across its second axis, with 45 structures of any numbers."""
    generator = np.random.default_rng(1)
    fixed, moving, warped = generator.uniform(0, 1, (3, 24, 1, 20))
    labels = 300 * generator.integers(-22, 24, (24, 1, 20))
    u = generator.standard_normal((3, 24, 1, 20))
    return View(fixed, moving, warped, u, Grid.plain((24, 1, 20), (1.0, 1.0, 1.0)), labels, labels, labels)


@pytest.fixture(scope="session")
def heart():
    """A 2D phantom registered by its true motion."""
    patient = phantom(7)
    warped, labels = warp(patient.moving, patient.field), warp_labels(patient.moving_labels, patient.field)
    images = (patient.fixed, patient.moving, warped, patient.field[None])
    maps = (patient.fixed_labels, patient.moving_labels, labels)
    fixed, moving, warped, field = (image[0, 0].numpy() for image in images)
    return View(
        fixed, moving, warped, field, Grid.plain(fixed.shape, patient.spacing), *(map_[0, 0].numpy() for map_ in maps)
    )


@pytest.fixture(scope="session")
def pages(tmp_path_factory, volume, single, heart):
    folder = tmp_path_factory.mktemp("pages")
    bare = replace(heart, fixed_labels=None, moving_labels=None, warped_labels=None)
    write_report(folder / "volume.html", volume, METRICS, [3.0, 1.0, 0.5], {"fixed": "a/ED.nii", "moving": "a/ES.nii"})
    write_report(folder / "single.html", single, METRICS, [], {})
    write_report(folder / "heart.html", heart, METRICS, [], {})
    write_report(folder / "bare.html", bare, {}, [1.0], {"fixed": HOSTILE, "moving": HOSTILE, "note": SCRIPT})
    return folder


@pytest.fixture
def open_page(browser, pages):
    """open_page("volume") opens a page on a wide bright screen, and waits until it is drawn."""

    def open_and_wait(name, **screen):
        return open_file(browser, pages / f"{name}.html", "#folds", **screen)

    return open_and_wait


def bare(pair):
    return replace(pair, fixed_labels=None, moving_labels=None, warped_labels=None)


@pytest.fixture
def masked(volume):
    """A stack with a mask in its last slice alone, where there is no structure."""
    mask = np.zeros(volume.fixed.shape, bool)
    mask[3:9, 4:10, -1] = True
    return replace(volume, mask=mask)
