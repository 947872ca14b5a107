"""What "Wrote" means, and what a command never overwrites: the command line on full disks and in folders in use."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.app.outputs import RESULTS, file_names
from tests.disks import file_size_limit, full_disk
from tests.models import card, saved
from vrnet import Grid, Image, Transform, write_image
from vrnet.methods.names import parse_trainable
from vrnet.methods.weights import save_weights

GRID = Grid.plain((64, 64), (2.0, 2.0))
TRAINING = "--steps", 2, "--batch", 2, "--device", "cpu"
DONE = 0, 3
"""All files are written. Of noise, the verdict may be that it failed."""


@pytest.fixture
def inputs(tmp_path):
    """A folder of images of noise, which does not get smaller by compression."""
    folder, random = tmp_path / "in", np.random.default_rng(0)
    for name in ("fixed", "moving"):
        write_image(Image(random.random(GRID.shape).astype(np.float32), GRID), folder / f"{name}.nii.gz")
    write_image(Image(random.integers(0, 4, GRID.shape).astype(np.uint8), GRID), folder / "labels.nii.gz")
    Transform(random.standard_normal((2, *GRID.shape)), GRID).save(folder / "t.nii.gz")
    lines = ["x,y", *(f"{x},{y}" for x, y in random.uniform(0, 99, (2000, 2)))]
    (folder / "points.csv").write_text("\n".join(lines))
    return folder


def commands(inputs, out, data):
    """{command: its words}: each writes more than 12 kB in the folder `out`."""
    fixed, moving, transform = (inputs / f"{name}.nii.gz" for name in ("fixed", "moving", "t"))
    return {
        "register": ("register", fixed, moving, "--out", out, "--method", "identity"),
        "apply": ("apply", transform, moving, "--reference", fixed, "--out", out / "x.nii.gz"),
        "invert": ("invert", transform, "--out", out / "x.nii.gz"),
        "invert to h5": ("invert", transform, "--out", out / "x.h5"),
        "points": ("points", transform, inputs / "points.csv", "--out", out / "x.csv"),
        "train": ("train", "VoxelMorph-w8", *data, "--out", out, *TRAINING),
        "prepare": ("prepare", *data, "--out", out / "x.npz"),
    }


def read_all(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@contextmanager
def tmpfs(folder):
    with full_disk(folder, 80) as is_full:
        if not is_full:
            pytest.skip("only the superuser can mount a full disk")
        (folder / "filler").write_bytes(bytes(72 * 1024))
        yield


@contextmanager
def limit(folder):
    with file_size_limit(8):
        yield


@pytest.mark.parametrize(
    ("command", "place"), [*((command, limit) for command in commands(Path(), Path(), ())), ("register", tmpfs)]
)
def test_a_command_whose_files_do_not_fit_says_so_and_calls_nothing_written(
    vrnet, inputs, tmp_path, data, command, place
):
    out = tmp_path / "out"
    out.mkdir()
    with place(out):
        status, said, err = vrnet(*commands(inputs, out, data)[command])
        assert status == 2, err
        assert "Wrote" not in said
        assert "cannot write" in err
        assert ".partial-" not in err
        left = file_names(out) - {"filler"}
    if command == "train":
        assert left <= {"config.json", "logs", "metrics.csv"}, "each of them whole"
    else:
        assert not left


# Only what is finite


@pytest.mark.parametrize("command", ["register", "evaluate", "evaluate a data set"])
def test_a_network_that_gives_nan_ends_with_one_line(vrnet, inputs, tmp_path, data, command):
    model = parse_trainable("C-L2-2x1-w2").build(2)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(100).clamp_(-1e30, 1e30)
            parameter[...] = parameter.sign() * 1e30
    save_weights(model, card(), tmp_path / "m.safetensors")
    pair = inputs / "fixed.nii.gz", inputs / "moving.nii.gz"
    words = {
        "register": ("register", *pair, "--out", tmp_path / "out"),
        "evaluate": ("evaluate", "--fixed", pair[0], "--moving", pair[1], "--out", tmp_path / "m.json"),
        "evaluate a data set": ("evaluate", *data, "--out", tmp_path / "out"),
    }
    status, out, err = vrnet(*words[command], "--weights", tmp_path / "m.safetensors")
    assert (status, re.sub("^Note: .* was trained on voxels of .*\n", "", out)) == (2, ""), err
    assert "NaN or infinite" in err
    recorded = {"out"} if command == "evaluate a data set" else set()  # which subjects failed, and why
    assert file_names(tmp_path) == {"in", "m.safetensors"} | recorded
    assert not {path.name for path in tmp_path.rglob("*")} & {"metrics.csv", "summary.json", "metrics.json"}


# Nothing that others wrote


def test_register_refuses_to_replace_what_it_did_not_write(vrnet, inputs, tmp_path):
    name = "warped.nii.gz"
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / name).write_text("mine")
    (tmp_path / "out" / "report.html").write_text("mine too")
    words = commands(inputs, tmp_path / "out", ())["register"]
    status, _, err = vrnet(*words)
    assert (status, "would be lost" in err) == (2, True), err
    assert file_names(tmp_path / "out") == {name, "report.html"}
    (tmp_path / "out" / name).unlink()
    assert vrnet(*words)[0] in DONE
    assert file_names(tmp_path / "out") == RESULTS | {"report.html"}
    assert (tmp_path / "out" / "report.html").read_text() == "mine too"


@pytest.mark.release
def test_images_of_the_demonstration_may_be_registered_where_they_are(vrnet, tmp_path):
    out = tmp_path / "demo"
    assert vrnet("demo", "--out", out, "--method", "identity")[0] == 0
    images = {"fixed.nii.gz", "moving.nii.gz", "fixed_labels.nii.gz", "moving_labels.nii.gz"}
    before = {name: (out / name).read_bytes() for name in images}
    words = "register", out / "fixed.nii.gz", out / "moving.nii.gz", "--out", out, "--method", "identity"
    assert vrnet(*words)[0] in DONE
    assert file_names(out) == RESULTS | images
    assert before == {name: (out / name).read_bytes() for name in images}


@pytest.mark.parametrize(
    ("command", "link"),
    [("apply", "itself"), ("apply's reference", "symbolic link"), ("invert", "hard link"), ("points", "itself"),
     ("register", "symbolic link"), ("register", "itself")],
)  # fmt: skip
def test_an_input_is_never_an_output(vrnet, inputs, tmp_path, command, link):
    first, out = inputs / "t.nii.gz", tmp_path / "out"
    words = {
        "apply": (first, "apply", inputs / "fixed.nii.gz", first, "--reference", inputs / "fixed.nii.gz"),
        "apply's reference": (first, "apply", inputs / "fixed.nii.gz", inputs / "moving.nii.gz", "--reference", first),
        "invert": (first, "invert", first),
        "points": (inputs / "points.csv", "points", first, inputs / "points.csv"),
        "register": (inputs / "moving.nii.gz", "register", inputs / "fixed.nii.gz", inputs / "moving.nii.gz"),
    }
    given, *words = words[command]
    other = out / ("warped.nii.gz" if command == "register" else given.name)
    out.mkdir()
    if link == "itself":
        if command == "register":
            shutil.copy(given, other)
            words[2] = other
        else:
            other = given
    elif link == "symbolic link":
        other.symlink_to(given)
    else:
        os.link(given, other)
    before = read_all(tmp_path)
    status, said, err = vrnet(*words, "--out", out if command == "register" else other)
    assert (status, said, "is an input" in err) == (2, "", True), err
    assert read_all(tmp_path) == before


def test_no_transform_is_left_beside_one_that_itk_takes_for_it(vrnet, inputs, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "transform.nii").write_text("stale")
    status, _, err = vrnet(*commands(inputs, tmp_path / "out", ())["register"])
    assert (status, "transform.nii is there" in err) == (2, True), err
    status, _, err = vrnet("invert", inputs / "t.nii.gz", "--out", tmp_path / "out" / "transform.nii.gz")
    assert (status, "transform.nii is there" in err) == (2, True), err
    assert file_names(tmp_path / "out") == {"transform.nii"}


def test_evaluate_keeps_the_metrics_of_a_training(vrnet, tmp_path, data):
    status, _, err = vrnet("train", "VoxelMorph-w2", *data, "--out", tmp_path / "run", *TRAINING)
    assert status == 0, err
    before = read_all(tmp_path / "run")
    status, said, err = vrnet("evaluate", "identity", *data, "--out", tmp_path / "run")
    assert (status, said, "metrics.csv" in err) == (2, "", True), err
    assert read_all(tmp_path / "run") == before
    for _ in range(2):
        assert vrnet("evaluate", "identity", *data, "--out", tmp_path / "again")[0] == 0
    assert file_names(tmp_path / "again") == {"metrics.csv", "summary.json", "subjects", "failures", ".working"}


@pytest.mark.release
def test_a_folder_in_use_by_a_training_is_refused_until_that_ends_or_is_killed(vrnet, tmp_path, data):
    run = tmp_path / "run"
    words = "train", "VoxelMorph-w2", *data, "--out", run, "--batch", 2, "--device", "cpu"
    command = [sys.executable, "-m", "vrnet", *map(str, words), "--steps", "100000"]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as first:
        while not (run / "config.json").exists():
            assert first.poll() is None
            time.sleep(0.1)
        for again in (("--steps", 2), ("--steps", 100000, "--resume")):
            status, said, err = vrnet(*words, *again)
            assert (status, said) == (2, ""), err
            assert "in use" in err or "holds a run" in err
        assert "in use" in err
        os.kill(first.pid, signal.SIGKILL)
        first.wait()
    status, _, err = vrnet("train", "VoxelMorph-w4", *words[2:], "--steps", 100000, "--resume")
    assert (status, "begun with method" in err) == (2, True), err


def test_weights_may_be_read_from_the_folder_of_the_results(vrnet, inputs, tmp_path):
    weights = saved(tmp_path)
    words = "register", inputs / "fixed.nii.gz", inputs / "moving.nii.gz", "--weights", weights, "--out", tmp_path
    assert vrnet(*words)[0] in DONE
    assert file_names(tmp_path) == RESULTS | {"in", weights.name}
