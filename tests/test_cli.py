import json
import os
import subprocess
import sys

import pytest

from vrnet import __version__, cli, names

IMAGES = {"fixed", "moving", "warped", "fixed_labels", "moving_labels", "warped_labels", "transform"}
FILES = {f"{name}.nii.gz" for name in IMAGES} | {"metrics.json", "overview.png"}
METRICS = {
    "method",
    "device",
    "seconds",
    "shape",
    "spacing_mm",
    "similarity",
    "folding_percent",
    "folding_strict_percent",
    "jacobian_gradient",
    "dice",
    "hausdorff_mm",
}


@pytest.fixture
def vrnet(monkeypatch, capsys):
    """Run the command line in this process: vrnet("demo", "--out", folder) gives (status, stdout, stderr)."""

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["vrnet", *map(str, words)])
        try:
            cli.main()
            status = 0
        except SystemExit as stop:
            status = stop.code or 0
        return status, *capsys.readouterr()

    return run


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """(folder, process): `vrnet demo` as a process of its own, in an empty folder."""
    folder = tmp_path_factory.mktemp("demo")
    command = [sys.executable, "-m", "vrnet.cli", "demo", "--out", "out"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "100"}
    process = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True)
    return folder / "out", process


def test_demo_writes_the_documented_files_and_no_other(demo):
    folder, _ = demo
    assert {path.name for path in folder.iterdir()} == FILES
    assert all(path.stat().st_size > 0 for path in folder.iterdir())
    assert (folder / "overview.png").read_bytes().startswith(b"\x89PNG")
    assert list(folder.parent.iterdir()) == [folder]


def test_demo_s_metrics_json_has_the_documented_keys(demo):
    metrics = json.loads((demo[0] / "metrics.json").read_text())
    assert set(metrics) == METRICS
    assert set(metrics["similarity"]) == {"mae_before", "mae_after"}
    for measure in ("dice", "hausdorff_mm"):
        assert set(metrics[measure]) == {"before", "after"}
        assert set(metrics[measure]["before"]) == set(metrics[measure]["after"]) == {"1", "2", "3", "mean"}
    assert (metrics["method"], metrics["shape"], metrics["spacing_mm"]) == ("TV-L1", [160, 160], [1.8, 1.8])
    assert metrics["dice"]["after"]["mean"] > 0.9 > metrics["dice"]["before"]["mean"]


def test_demo_shows_its_progress_apart_from_its_results(demo):
    folder, process = demo
    metrics = json.loads((folder / "metrics.json").read_text())
    assert "100%" in process.stderr
    assert "100%" not in process.stdout
    for label, name in (("3", "LV"), ("2", "Myo"), ("1", "RV"), ("mean", "mean")):
        (line,) = [line for line in process.stdout.splitlines() if f"Dice {name} " in line]
        assert [f"{metrics['dice'][when][label]:.3f}" in line for when in ("before", "after")] == [True, True]
    assert "Look at out/overview.png" in process.stdout


def test_demo_s_folder_is_made_and_written_again(vrnet, tmp_path):
    folder = tmp_path / "a" / "b"
    for method in ("Gaussian-L1", "tv-l1"):
        status, out, _ = vrnet("demo", "--out", folder, "--method", method, "--seed", "2")
        assert status == 0
        assert f"{method} on a phantom heart".casefold() in out.casefold()
        assert {path.name for path in folder.iterdir()} == FILES
    assert json.loads((folder / "metrics.json").read_text())["method"] == "TV-L1"


def one_line(text):
    """Whether this is one line for a reader, not the trace of a crash."""
    return len(text.splitlines()) == 1 and text.startswith("vrnet: ") and "Traceback" not in text


@pytest.mark.parametrize("method", ["SyNN", "TVL1", "", "[/TV]", "[bold]"])
def test_an_unknown_method_ends_in_one_line_and_nothing_written(vrnet, tmp_path, method):
    status, out, err = vrnet("demo", "--out", tmp_path / "out", "--method", method)
    assert (status, out) == (2, "")
    assert one_line(err)
    assert f'no method is called "{method}"' in err
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_a_file_ends_in_one_line_and_keeps_it(vrnet, tmp_path):
    file = tmp_path / "out"
    file.write_text("mine")
    status, out, err = vrnet("demo", "--out", file)
    assert (status, out) == (2, "")
    assert err.splitlines()[-1].startswith("vrnet: cannot write to")
    assert one_line(err)
    assert file.read_text() == "mine"


def test_a_folder_with_brackets_in_its_name_is_named_as_it_is(vrnet, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    status, out, _ = vrnet("demo", "--out", "run[red]", "--method", "Gaussian-L1")
    assert status == 0
    assert "Look at run[red]/overview.png" in out


def test_a_seed_too_large_ends_in_one_line(vrnet, tmp_path):
    status, _, err = vrnet("demo", "--out", tmp_path / "out", "--seed", 10**30)
    assert status == 2
    assert "Traceback" not in err


def test_methods_lists_every_name_with_what_it_is(vrnet):
    status, out, err = vrnet("methods")
    assert (status, err) == (0, "")
    listed = {line.split()[0]: line for line in out.splitlines()[1:] if line.strip()}
    assert set(names()) <= set(listed)


def test_the_version_is_printed(vrnet):
    assert vrnet("--version") == (0, f"vrnet {__version__}\n", "")


def test_help_names_the_commands(vrnet):
    status, out, _ = vrnet("--help")
    assert status == 0
    assert "demo" in out
    assert "methods" in out


@pytest.mark.parametrize("option", ["--out", "--method", "--seed"])
def test_help_of_a_command_explains_its_options(vrnet, option):
    status, out, _ = vrnet("demo", "--help")
    assert status == 0
    assert option in out


@pytest.mark.parametrize("words", [(), ("regster",), ("demo", "--seed", "many"), ("demo", "--nonsense")])
def test_a_command_that_makes_no_sense_has_status_2(vrnet, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    status, _, err = vrnet(*words)
    assert status == 2
    assert err
    assert not list(tmp_path.iterdir())
