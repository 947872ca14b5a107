"""Bad input ends with one line that says what is wrong, exit status 2, and nothing half-written."""

import gzip
import re
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import nibabel
import numpy as np
import pytest
import SimpleITK as sitk
import torch

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


def two_pictures(folder):
    for seed, name in enumerate(("fixed", "moving")):
        write_image(Image(noise((20, 18), seed), FLAT), folder / f"{name}.nii.gz")


def cut(name, part):
    def spoil(folder):
        path = folder / name
        write_image(Image(noise(seed=1), GRID), path)
        path.write_bytes(path.read_bytes()[: int(part * path.stat().st_size)])

    return spoil


def text(name):
    return lambda folder: (folder / name).write_text("this is not an image")


def with_value(value):
    array = noise(seed=1)
    array[3, 4, 5] = value
    return image(array)


def nifti(array, **header):
    def spoil(folder):
        made = nibabel.Nifti1Image(array, np.diag([-1.0, -1.0, 1.0, 1.0]))
        nibabel.save(made, folder / "moving.nii")
        raw = bytearray((folder / "moving.nii").read_bytes())
        for offset, values in header.items():
            data = np.asarray(values, np.float32).tobytes()
            raw[int(offset[1:]) : int(offset[1:]) + len(data)] = data
        (folder / "moving.nii.gz").write_bytes(gzip.compress(raw))
        (folder / "moving.nii").unlink()

    return spoil


def mha(old, new):
    def spoil(folder):
        sitk.WriteImage(sitk.GetImageFromArray(noise()), str(folder / "moving.mha"))
        (folder / "moving.mha").write_bytes((folder / "moving.mha").read_bytes().replace(old, new))

    return spoil


def colour(folder):
    picture = np.random.default_rng(0).integers(0, 255, (20, 18, 3)).astype(np.uint8)
    sitk.WriteImage(sitk.GetImageFromArray(picture, isVector=True), str(folder / "moving.png"))


def nothing(folder):
    pass


def register(moving="moving.nii.gz", *words, out="out", fixed="fixed.nii.gz"):
    return lambda folder: ["register", folder / fixed, folder / moving, "--out", folder / out, *words]


def with_labels(name):
    return lambda folder: [*register()(folder), "--moving-labels", folder / name]


def with_masks(fixed=None, moving=None):
    def command(folder):
        given = [("--fixed-mask", fixed), ("--moving-mask", moving)]
        words = [word for option, name in given if name for word in (option, folder / name)]
        return [*register()(folder), "--method", "TV-L1", *words]

    return command


def mask(name, *voxels, grid=GRID):
    """A mask that is 1 in a box."""
    array = np.zeros(grid.shape, np.float32)
    array[voxels] = 1
    return lambda folder: sitk.WriteImage(to_sitk(array, grid), str(folder / name))


def two_masks(folder):
    mask("left.nii.gz", slice(0, 5))(folder)
    mask("right.nii.gz", slice(10, 15))(folder)


def apply(transform="transform.nii.gz", moving="moving.nii.gz", out="out.nii.gz", *words):
    return lambda folder: ["apply", folder / transform, folder / moving, "--reference", folder / "fixed.nii.gz",
                           "--out", folder / out, *words]  # fmt: skip


def points(table="points.csv", transform="transform.nii.gz"):
    return lambda folder: ["points", folder / transform, folder / table, "--out", folder / "out.csv"]


def weights(method="C-L2-2x1-w2", d=2):
    return lambda folder: saved(folder, method, d)


def with_weights(*words, name="m.safetensors"):
    return lambda folder: [*register()(folder), "--weights", folder / name, *words]


def evaluate(method, *words):
    pair = "fixed.nii.gz", "moving.nii.gz"
    return lambda folder: ["evaluate", method, "--fixed", folder / pair[0], "--moving", folder / pair[1],
                           *(folder / word if "." in word else word for word in words)]  # fmt: skip


AWAY = Grid(GRID.shape, GRID.spacing, (1e4, 0.0, 0.0), GRID.direction)
OTHER = Grid((20, 18, 9), *[getattr(GRID, part) for part in ("spacing", "origin", "direction")])
FLAT = Grid.plain((20, 18), (1.5, 1.5))
BAD = {
    "missing": (nothing, register("absent.nii.gz"), "there is no"),
    "truncated .nii.gz": (cut("moving.nii.gz", 0.5), register(), "incomplete"),
    "NaN": (with_value(np.nan), register(), "NaN"),
    "constant": (image(np.full(GRID.shape, 7.0, np.float32)), register(), r"constant \(7\)"),
    "RGB": (colour, register("moving.png"), "3 values per voxel"),
    "disjoint grids": (image(noise(), AWAY), register(), "do not overlap"),
    "zero spacing in NIfTI": (nifti(noise(), _80=[0.0]), register(), "not positive"),
    "sheared sform": (nifti(noise(), _284=[0.7]), register(), "sheared or coincide"),
    "labels on another grid": (lambda folder: write_image(Image((noise(OTHER.shape) > 0.5).astype(np.uint8), OTHER),
                               folder / "other.nii.gz"), with_labels("other.nii.gz"), "not on the grid"),
    "labels that are not whole numbers": (nothing, with_labels("fixed.nii.gz"), "not whole numbers"),
    "mask on another grid": (mask("m.nii.gz", slice(0, 5), grid=OTHER), with_masks("m.nii.gz"), "not on the grid"),
    "masks apart": (two_masks, with_masks("left.nii.gz", "right.nii.gz"), "do not overlap"),
    "mask of one voxel": (mask("m.nii.gz", 3, 3, 3), with_masks("m.nii.gz"), "constant .* inside .*m.nii.gz"),
    "out is a file": (text("out"), register(), "cannot write to"),
    "no write permission": (nothing, lambda folder: [*register()(folder)[:3], "--out", "/proc/out"], "cannot write to"),
    "unknown method": (nothing, register("moving.nii.gz", "--method", "TVL1"), 'did you mean TV-L1'),
    "absent extra": (nothing, register("moving.nii.gz", "--method", "SyN"), "pip install"),
    "no CUDA": (nothing, register("moving.nii.gz", "--device", "cuda"), "no CUDA"),
    "slices of a picture": (two_pictures, register("moving.nii.gz", "--slices", "each"), "no slices"),
    "image for transform": (nothing, apply("moving.nii.gz", "transform.nii.gz"), "not a transform|give a grey image"),
    "invert an image": (nothing, lambda folder: ["invert", folder / "moving.nii.gz", "--out", folder / "out.nii.gz"],
                        "not a transform"),
    "points without columns": (lambda folder: (folder / "p.csv").write_text("a,b\n1,2\n"), points("p.csv"), "x and y"),
    "smooth images": (nothing, apply("transform.nii.gz", "moving.nii.gz", "out.nii.gz", "--smooth"), "add --labels"),
    "a result that is a folder": (lambda folder: (folder / "out" / "metrics.json").mkdir(parents=True), register(),
                                  "would have to be a file"),
    "a name too long": (nothing, register("x" * 300 + ".nii.gz"), "there is no"),
    "a name that is not text": (nothing, lambda folder: ["register", folder / "fixed.nii.gz", "m\udcff.nii", "--out",
                                folder / "out"], "cannot be written"),
    "complex": (nifti(noise().astype(np.complex64)), register(), "complex"),
    "points of one image": (nothing, lambda folder: ["evaluate", "identity", "--fixed", folder / "fixed.nii.gz",
                            "--moving", folder / "moving.nii.gz", "--fixed-points", folder / "points.csv"], "both"),
    "no weights": (nothing, with_weights(), "there is no"),
    "weights that are text": (text("m.safetensors"), with_weights(), "is damaged, or no file of tensors"),
    "weights for TV-L1": (weights(), with_weights("--method", "TV-L1"), "holds C-L2-2x1-w2, not TV-L1"),
    "2D weights on a volume": (weights(), with_weights("--slices", "together"), "2D model: register slices one by one"),
    "3D weights on slices": (weights(d=3), with_weights("--slices", "each"), "3D model: give it volumes"),
    "a method without weights": (nothing, register("moving.nii.gz", "--method", "R-L1-3x2"), "needs weights"),
    "weights for a method": (weights(), register("moving.nii.gz", "--method", "m.safetensors"), "by --weights"),
    "evaluate a transform with weights": (weights(), evaluate("transform.nii.gz", "--weights", "m.safetensors"),
                                          "leave out --weights"),
}  # fmt: skip


def absent(package):
    raise PackageNotFoundError(package)


@pytest.mark.parametrize("case", BAD)
def test_bad_input_ends_with_one_line_and_nothing_written(case, files, monkeypatch, capsys):
    if case == "no CUDA" and torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
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
