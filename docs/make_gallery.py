"""Make the pages of the gallery, from phantoms alone: python docs/make_gallery.py [--only cine] [--pictures]

They are written in build/gallery, one folder per page; `make docs` then copies them to the site. With --pictures they
are shown in Chromium too, and docs/images gets what docs/gallery.md and the front page show: a small picture of each
page, and the film of the cine. The tutorials get a long picture of the page of a pair, and of a cine.
"""

import argparse
import csv
import subprocess
import sys
from base64 import b64decode
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from shutil import which
from tempfile import TemporaryDirectory
from time import sleep

from smaller import smaller_gif

ROOT = Path(__file__).resolve().parents[1]
GALLERY, IMAGES = ROOT / "build" / "gallery", ROOT / "docs" / "images"
PAGES = {"pair": "report.html", "volume": "report.html", "cine": "report.html", "cohort": "index.html"}
"""The page of each folder."""
PARTS = ("fixed", "moving", "fixed_labels", "moving_labels")
SEED, COHORT_SEEDS, COHORT_SHAPE, COHORT_SPACING = 5, range(20, 44), (96, 96), 2.6
SWAPPED, INVERTED = "heart-27", "heart-33"
"""The two of the cohort whose end-systole is another patient's, and is bright where it should be dark."""
CINE_SHAPE, CINE_SPACING, FRAME_SECONDS = (128, 128, 3), (1.4, 1.4, 10.0), 0.037
VOLUME_SHAPE, VOLUME_SPACING = (80, 80, 64), 2.0
SHOW_END_SYSTOLE = """
const slider = document.getElementById("frame");
if (slider) { slider.value = 9; slider.dispatchEvent(new Event("input")); }
"""
SECONDS_TO_DRAW = 15
"""How long a browser without a GPU may take to draw the planes of a volume."""
WINDOW, PICTURE = (1200, 800), (600, 400)
"""Sizes in pixels: of the browser, and of what is kept of it."""
FLAGS = (
    "headless=new", "no-sandbox", "hide-scrollbars", "force-prefers-reduced-motion", "use-angle=swiftshader",
    "enable-unsafe-swiftshader", "blink-settings=primaryHoverType=2,availableHoverTypes=2,primaryPointerType=4",
)  # fmt: skip
LONG_PICTURES, LONG_HEIGHT = {"pair": "report.jpg", "cine": "cine.jpg"}, 1600
"""What shows more of a page than a window does, and how far down."""
SCREEN = {"width": WINDOW[0], "height": WINDOW[1], "deviceScaleFactor": 1, "mobile": False}


def run_vrnet(*words) -> None:
    """Run a command of vrnet; status 3, a verdict that a result failed, is what one page is to show."""
    done = subprocess.run([sys.executable, "-m", "vrnet", *map(str, words)])
    if done.returncode not in (0, 3):
        sys.exit(done.returncode)


def write_pair(folder: Path, patient) -> list[Path]:
    """Write the images and labels of a phantom."""
    from vrnet import Grid, Image, write_image

    grid = Grid.plain(tuple(patient.fixed.shape[2:]), patient.spacing)
    files = [folder / f"{part}.nii.gz" for part in PARTS]
    for part, file in zip(PARTS, files, strict=True):
        file.parent.mkdir(parents=True, exist_ok=True)
        write_image(Image(getattr(patient, part)[0, 0].numpy(), grid), file)
    return files


def register(folder: Path, out: Path, patient) -> None:
    """The page of a phantom's end-systole, registered to its end-diastole."""
    fixed, moving, *labels = write_pair(folder, patient)
    run_vrnet("register", fixed, moving, "--fixed-labels", labels[0], "--moving-labels", labels[1],
              "--label-names", "acdc", "--out", out, "--report")  # fmt: skip


def make_pair(folder: Path, out: Path) -> None:
    from vrnet.phantom import phantom

    register(folder, out, phantom(SEED))


def make_volume(folder: Path, out: Path) -> None:
    from vrnet.phantom import phantom

    register(folder, out, phantom(SEED, VOLUME_SHAPE, VOLUME_SPACING))


def make_cine(folder: Path, out: Path) -> None:
    """The page of a beating heart with an anterior infarct."""
    import SimpleITK as sitk

    from vrnet import Grid, Image, write_image
    from vrnet.images.io import to_sitk
    from vrnet.phantom import cycle

    beat, grid = cycle(SEED, CINE_SHAPE, CINE_SPACING, "infarct", frames=25), Grid.plain(CINE_SHAPE, CINE_SPACING)
    frames = [to_sitk(frame.numpy(), grid) for frame in beat.frames]
    sitk.WriteImage(sitk.JoinSeries(frames, 0.0, FRAME_SECONDS), str(folder / "cine.nii.gz"))
    write_image(Image(beat.labels.numpy(), grid), folder / "labels.nii.gz")
    run_vrnet("track", folder / "cine.nii.gz", "--labels", folder / "labels.nii.gz", "--out", out, "--report")


def make_cohort(folder: Path, out: Path) -> None:
    """The page of 24 hearts, two of which are wrong."""
    from vrnet.phantom import phantom

    rows = {}
    for seed in COHORT_SEEDS:
        name, patient = f"heart-{seed}", phantom(seed, COHORT_SHAPE, COHORT_SPACING)
        if name == INVERTED:
            patient = replace(patient, moving=1 - patient.moving)
        files = write_pair(folder / name, patient)
        rows[name] = {"subject": name, **dict(zip(PARTS, map(str, files), strict=True))}
    other = rows[f"heart-{COHORT_SEEDS[0]}"]
    rows[SWAPPED] |= {part: other[part] for part in ("moving", "moving_labels")}
    with (folder / "pairs.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, other)
        writer.writeheader()
        writer.writerows(rows.values())
    run_vrnet("cohort", folder / "pairs.csv", "--label-names", "acdc", "--out", out, "--report")


MAKERS = {"pair": make_pair, "volume": make_volume, "cine": make_cine, "cohort": make_cohort}


def take_pictures(page: Path, target: Path, long_target: Path | None) -> None:
    """What a browser shows of a page at first, made small, and more of it; of a film, which is stopped, end-systole."""
    from PIL import Image
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = which("chromium") or sys.exit("Chromium is not installed")
    for flag in FLAGS:
        options.add_argument(f"--{flag}")
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(which("chromedriver")))
    try:
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", SCREEN)
        driver.get(page.as_uri())
        sleep(SECONDS_TO_DRAW)
        driver.execute_script(SHOW_END_SYSTOLE)
        sleep(1)
        with Image.open(BytesIO(driver.get_screenshot_as_png())) as picture:
            picture.convert("RGB").resize(PICTURE, Image.Resampling.LANCZOS).save(target, quality=82)
        if long_target:
            long_target.write_bytes(photograph_beyond_window(driver))
    finally:
        driver.quit()


def photograph_beyond_window(driver) -> bytes:
    """A JPEG of the upper part of a page; the dock, which covers its lower rim, moves to its end."""
    driver.execute_script("document.querySelector('.dock').style.position = 'static'")
    clip = {"x": 0, "y": 0, "width": WINDOW[0], "height": LONG_HEIGHT, "scale": 1}
    wanted = {"format": "jpeg", "quality": 78, "captureBeyondViewport": True, "clip": clip}
    return b64decode(driver.execute_cdp_cmd("Page.captureScreenshot", wanted)["data"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=PAGES, default=[*PAGES], metavar="PAGE")
    parser.add_argument("--pictures", action="store_true")
    given = parser.parse_args()
    for name in given.only:
        with TemporaryDirectory() as folder:
            MAKERS[name](Path(folder), GALLERY / name)
        if given.pictures:
            long_target = IMAGES / LONG_PICTURES[name] if name in LONG_PICTURES else None
            take_pictures(GALLERY / name / PAGES[name], IMAGES / f"gallery_{name}.jpg", long_target)
    if given.pictures and "cine" in given.only:
        (IMAGES / "heart.gif").write_bytes(smaller_gif((GALLERY / "cine" / "cine.gif").read_bytes()))


if __name__ == "__main__":
    main()
