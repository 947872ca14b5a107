import os
import subprocess
import sys

import pytest

from tests.app.outputs import PAGES, RESULTS, file_names, read_json
from tests.models import saved


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """(folder, process): `vrnet demo` as a process of its own, in an empty folder."""
    folder = tmp_path_factory.mktemp("demo")
    command = [sys.executable, "-m", "vrnet", "demo", "--out", "out"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "100"}
    process = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True)
    return folder / "out", process


def test_demo_writes_what_register_writes_and_the_images(demo):
    folder, _ = demo
    images = {"fixed.nii.gz", "moving.nii.gz", "fixed_labels.nii.gz", "moving_labels.nii.gz"}
    assert file_names(folder) == RESULTS | PAGES | images | {"warped_labels.nii.gz"}
    assert all(path.stat().st_size > 0 for path in folder.iterdir())
    assert list(folder.parent.iterdir()) == [folder]


def test_demo_shows_its_progress_apart_from_its_results(demo):
    folder, process = demo
    metrics = read_json(folder / "metrics.json")
    assert "100%" in process.stderr
    assert "100%" not in process.stdout
    for label, name in (("3", "LV"), ("2", "Myo"), ("1", "RV"), ("mean", "mean")):
        (line,) = [line for line in process.stdout.splitlines() if f"Dice {name} " in line.replace(",", "")]
        assert [f"{metrics['dice'][when][label]:.3f}" in line for when in ("before", "after")] == [True, True]
    assert "Look at out/report.html" in process.stdout
    assert "Distance from the true motion" in process.stdout


def test_a_folder_with_brackets_in_its_name_is_named_as_it_is(vrnet, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    status, out, _ = vrnet("demo", "--out", "run[red]", "--method", "Gaussian-L1")
    assert status == 0
    assert "Look at run[red]/report.html" in out


def test_the_demonstration_takes_weights(vrnet, tmp_path):
    """Those of an untrained network, whose registration fails."""
    status, out, err = vrnet("demo", "--out", tmp_path / "out", "--weights", saved(tmp_path))
    assert (status, "Verdict: failed" in out) == (3, True), err
    assert read_json(tmp_path / "out" / "metrics.json")["weights"] == "m.safetensors"


def test_the_demonstration_takes_parameters(vrnet, tmp_path):
    words = "--method", "TV-L1", "--set", "warps=1", "--set", "levels=1"
    status, _, err = vrnet("demo", "--out", tmp_path / "out", *words)
    assert status == 0, err
    assert read_json(tmp_path / "out" / "metrics.json")["method"] == "TV-L1(warps=1,levels=1)"
