"""Bad input ends with one line that says what is wrong, exit status 2, and nothing half-written."""

import re
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import numpy as np
import pytest
import SimpleITK as sitk

from tests.models import saved
from vrnet import Grid, Image, Transform, write_image
from vrnet.app import main as cli
from vrnet.images.io import to_sitk

GRID = Grid.plain((20, 18, 8), (1.5, 1.5, 8.0))


def noise(shape=GRID.shape, seed=0):
    return np.random.default_rng(seed).random(shape).astype(np.float32)


@pytest.fixture
def files(tmp_path):
    """A folder of good files; out is a folder that is not there yet."""
    write_image(Image(noise(), GRID), tmp_path / "fixed.nii.gz")
    write_image(Image(noise(seed=1), GRID), tmp_path / "moving.nii.gz")
    write_image(Image((noise() > 0.5).astype(np.uint8), GRID), tmp_path / "labels.nii.gz")
    Transform.from_voxels(np.zeros((3, *GRID.shape)), GRID).save(tmp_path / "transform.nii.gz")
    (tmp_path / "points.csv").write_text("x,y,z\n1,2,3\n")
    return tmp_path


# What spoils files["moving.nii.gz"], or makes another file; and the words that the answer must have.
def image(array, grid=GRID):
    return lambda folder: sitk.WriteImage(to_sitk(array, grid), str(folder / "moving.nii.gz"))


def cut(folder):
    path = folder / "moving.nii.gz"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def colour(folder):
    picture = np.random.default_rng(0).integers(0, 255, (20, 18, 3)).astype(np.uint8)
    sitk.WriteImage(sitk.GetImageFromArray(picture, isVector=True), str(folder / "moving.png"))


def nothing(folder):
    pass


def register(moving="moving.nii.gz", *words, out="out", fixed="fixed.nii.gz"):
    return lambda folder: ["register", folder / fixed, folder / moving, "--out", folder / out, *words]


def with_labels(name):
    return lambda folder: [*register()(folder), "--moving-labels", folder / name]


def with_masks(fixed, moving):
    return lambda folder: [*register("moving.nii.gz", "--method", "TV-L1", "--fixed-mask", folder / fixed,
                                     "--moving-mask", folder / moving)(folder)]  # fmt: skip


def two_masks(folder):
    """Masks that are 1 in boxes apart."""
    for name, start in (("left", 0), ("right", 10)):
        array = np.zeros(GRID.shape, np.float32)
        array[start : start + 5] = 1
        sitk.WriteImage(to_sitk(array, GRID), str(folder / f"{name}.nii.gz"))


def apply(transform="transform.nii.gz", moving="moving.nii.gz", out="out.nii.gz", *words):
    return lambda folder: ["apply", folder / transform, folder / moving, "--reference", folder / "fixed.nii.gz",
                           "--out", folder / out, *words]  # fmt: skip


def weights(d):
    return lambda folder: saved(folder, "C-L2-2x1-w2", d)


def evaluate(method, option, name):
    return lambda folder: ["evaluate", method, "--fixed", folder / "fixed.nii.gz", "--moving", folder / "moving.nii.gz",
                           option, folder / name]  # fmt: skip


AWAY = Grid(GRID.shape, GRID.spacing, (1e4, 0.0, 0.0), GRID.direction)
OTHER = Grid((20, 18, 9), *[getattr(GRID, part) for part in ("spacing", "origin", "direction")])
BAD = {
    "missing": (nothing, register("absent.nii.gz"), "there is no"),
    "truncated .nii.gz": (cut, register(), "incomplete"),
    "NaN": (image(np.where(noise() > 0.9, np.nan, noise())), register(), "NaN"),
    "constant": (image(np.full(GRID.shape, 7.0, np.float32)), register(), r"constant \(7\)"),
    "RGB": (colour, register("moving.png"), "3 values per voxel"),
    "disjoint grids": (image(noise(), AWAY), register(), "do not overlap"),
    "labels on another grid": (lambda folder: write_image(Image((noise(OTHER.shape) > 0.5).astype(np.uint8), OTHER),
                               folder / "other.nii.gz"), with_labels("other.nii.gz"), "not on the grid"),
    "labels that are not whole numbers": (nothing, with_labels("fixed.nii.gz"), "not whole numbers"),
    "masks apart": (two_masks, with_masks("left.nii.gz", "right.nii.gz"), "do not overlap"),
    "out is a file": (lambda folder: (folder / "out").write_text("a file"), register(), "cannot write to"),
    "no write permission": (nothing, lambda folder: [*register()(folder)[:3], "--out", "/proc/out"], "cannot write to"),
    "unknown method": (nothing, register("moving.nii.gz", "--method", "TVL1"), 'did you mean TV-L1'),
    "absent extra": (nothing, register("moving.nii.gz", "--method", "SyN"), "pip install"),
    "image for transform": (nothing, apply("moving.nii.gz", "transform.nii.gz"), "not a transform|give a grey image"),
    "smooth images": (nothing, apply("transform.nii.gz", "moving.nii.gz", "out.nii.gz", "--smooth"), "add --labels"),
    "a name that is not text": (nothing, lambda folder: ["register", folder / "fixed.nii.gz", "m\udcff.nii", "--out",
                                folder / "out"], "cannot be written"),
    "points of one image": (nothing, evaluate("identity", "--fixed-points", "points.csv"), "both"),
    "3D weights on slices": (weights(3), lambda folder: [*register()(folder), "--slices", "each", "--weights",
                             folder / "m.safetensors"], "3D model: give it volumes"),
    "evaluate a transform with weights": (weights(2), evaluate("transform.nii.gz", "--weights", "m.safetensors"),
                                          "--weights would have no effect"),
}  # fmt: skip


def absent(package):
    raise PackageNotFoundError(package)


@pytest.mark.parametrize("case", BAD)
def test_bad_input_ends_with_one_line_and_nothing_written(case, files, monkeypatch, capsys):
    if case == "absent extra":
        monkeypatch.setattr("vrnet.methods.external.version", absent)
    spoil, command, words = BAD[case]
    spoil(files)
    before = {path: path.read_bytes() if path.is_file() else None for path in files.rglob("*")}
    monkeypatch.setattr(sys, "argv", ["vrnet", *map(str, command(files))])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    out, err = capsys.readouterr()
    (line,) = [line for line in err.splitlines() if line.startswith("vrnet: ")]
    assert stop.value.code == 2
    assert out == ""
    assert "Traceback" not in err
    assert err.rstrip().endswith(line)
    assert re.search(words, line), line
    assert not Path("/proc/out").exists()
    after = {path: path.read_bytes() if path.is_file() else None for path in files.rglob("*")}
    assert after == before
