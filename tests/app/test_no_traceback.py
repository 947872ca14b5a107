"""Whatever a user does, `vrnet` ends with status 0, 2 or 130, and with words instead of a traceback."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import nibabel
import numpy as np
import psutil
import pytest

from tests.app.numeric_options import ABSURD, DISTINCT, OPTIONS, WHOLE

SOURCE = str(Path(__file__).parents[2] / "src")
COMMAND = [sys.executable, "-m", "vrnet"]
MAX_SECONDS = 300
"""How long a process may take on a busy machine."""


def run(*words, **settings):
    """(status, stdout, stderr) of the command in a process of its own; the settings are subprocess.run's."""
    settings = {
        "env": environment(),
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
        "timeout": MAX_SECONDS,
    } | settings
    done = subprocess.run([*settings.pop("before", ()), *COMMAND, *map(str, words)], **settings)
    return done.returncode, (done.stdout or b"").decode(), (done.stderr or b"").decode()


def environment(**changes):
    """The environment of the tests with these changes, where None removes a variable."""
    given = os.environ | {"PYTHONPATH": SOURCE, "OMP_NUM_THREADS": "1"} | changes
    return {name: value for name, value in given.items() if value is not None}


def assert_one_line(result, words, status=2):
    """The command ended with that status, and with one line, which holds these words."""
    found, _, err = result
    assert found == status, result
    (line,) = err.strip().splitlines()
    assert line.startswith("vrnet: ")
    assert words in line


def write_tiny_cine(path):
    """Three frames of one slice."""
    array = np.random.default_rng(0).random((8, 8, 1, 3)).astype(np.float32)
    nibabel.save(nibabel.Nifti1Image(array, np.eye(4)), path)
    return path


# Numbers


def other_words(cine, data):
    """{command: what else each command is given}."""
    return {
        "demo": ("--method", "identity"),
        "track": (cine, "--out", "run", "--method", "identity"),
        "train": ("R-L2-1x1-w2", *data, "--out", "run", "--preset", "phantom"),
        "template": (*data, "--out", "run"),
        "paper": ("table", "none"),
        "cohort": ("none.csv", "--out", "out"),
        "evaluate": ("identity", "--data", "phantom", "--out", "out"),
    }


@pytest.mark.parametrize(("command", "name"), OPTIONS)
def test_what_is_no_number_is_told_in_one_line(vrnet, data, tmp_path, monkeypatch, command, name):
    monkeypatch.chdir(tmp_path)
    option, is_whole = f"--{name.replace('_', '-')}", (command, name) in WHOLE
    for value in ("one", "1,5", "", "0x10", "None", "1_0", *(("1.5", "1e3", "nan", "9" * 5000) if is_whole else ())):
        result = vrnet(command, *other_words("cine.nii", data)[command], f"{option}={value}")
        assert_one_line(result, f"{option} is '{value[:20]}")
        assert result[2].strip().endswith("give a whole number" if is_whole else "give a number")
        assert len(result[2]) < 100


@pytest.mark.parametrize(("command", "name"), OPTIONS)
def test_no_number_that_makes_no_sense_ends_in_a_bug(vrnet, data, tmp_path, monkeypatch, command, name):
    """The options are found by their types: a new one is tested too."""
    monkeypatch.chdir(tmp_path)
    given = other_words(write_tiny_cine(tmp_path / "cine.nii"), data)
    counts = [word for part in ("steps", "batch") if part != name for word in (f"--{part}", "2")]
    others = counts if command == "train" else []
    for value in ABSURD if (command, name) in WHOLE else DISTINCT:
        shutil.rmtree("run", ignore_errors=True)
        status, _, err = vrnet(command, *given[command], *others, f"--{name.replace('_', '-')}={value}")
        assert status in (0, 2), (value, err)
        assert "Traceback" not in err


def test_a_batch_beyond_all_memory_is_refused(vrnet, data, tmp_path):
    words = "train", "R-L2-1x1-w2", *data, "--out", tmp_path / "run", "--steps", "1"
    status, _, err = vrnet(*words, "--batch", "50000000")
    assert status == 2
    assert "a batch of 50000000 pairs needs" in err
    status, _, err = vrnet(*words, "--batch", "1000000000")
    assert (status, err.strip().splitlines()[-1][:24]) == (2, "vrnet: a run has at leas")


# Where it is started


def test_a_working_folder_that_is_gone_is_told(tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    result = run("demo", before=("sh", "-c", f'cd {gone} && rmdir {gone} && exec "$@"', "sh"))
    assert_one_line(result, "the working folder is gone")


@pytest.mark.parametrize("kind", ["a file", "no folder"])
def test_a_cache_that_cannot_be_is_told(vrnet, hearts, tmp_path, kind):
    (tmp_path / "file").write_text("")
    cache = tmp_path / "file" if kind == "a file" else "/proc/none"
    status, _, err = vrnet(
        "prepare", "--data", "manifest", "--root", hearts, "--cache", cache, "--out", tmp_path / "p.npz"
    )
    assert status == 2
    assert err.strip().splitlines()[-1].startswith("vrnet: cannot write")


def test_without_a_home_a_cache_must_be_named(vrnet, hearts, tmp_path, monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", lambda: (_ for _ in ()).throw(RuntimeError("Could not determine home")))
    status, _, err = vrnet("prepare", "--data", "manifest", "--root", hearts, "--out", tmp_path / "p.npz")
    assert status == 2
    assert "you have no home folder" in err


# Where it writes to


@pytest.mark.parametrize(("word", "is_buffered"), [("methods", True), ("--help", False)])
def test_an_output_that_is_full_is_told(word, is_buffered):
    with Path("/dev/full").open("w") as full:
        result = run(word, stdout=full, env=environment(PYTHONUNBUFFERED=None if is_buffered else "1"))
    assert_one_line(result, "No space left on device")


def test_errors_that_cannot_be_told_have_their_status():
    with Path("/dev/full").open("w") as full:
        assert run("methods", "none", stderr=full)[0] == 2
    assert run("methods", "none", before=("sh", "-c", 'exec "$@" 2>&-', "sh"))[0] == 2


def test_whoever_reads_one_line_alone_has_seen_enough():
    script = f"{' '.join(COMMAND)} methods | head -1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", script], env=environment(), capture_output=True, text=True, timeout=MAX_SECONDS
    )
    assert done.stdout.splitlines()[-1] == "0"
    assert done.stderr == ""


@pytest.mark.parametrize(("word", "is_buffered", "status"), [("methods", True, 0), ("--help", False, 141)])
def test_whoever_reads_nothing_is_not_told_of_it(word, is_buffered, status):
    unread, output = os.pipe()
    os.close(unread)
    with os.fdopen(output, "w") as nobody:
        found = run(word, stdout=nobody, env=environment(PYTHONUNBUFFERED=None if is_buffered else "1"))
    assert (found[0], found[2]) == (status, "")


@pytest.mark.parametrize("word", ["methods", "--help"])
def test_a_poor_terminal_shows_what_it_can(word):
    """One column wide, and without any letter beyond those of ASCII."""
    status, out, err = run(word, env=environment(TERM="dumb", COLUMNS="1", LC_ALL="C", PYTHONUTF8="0"))
    assert (status, err) == (0, "")
    assert out


def test_names_that_are_no_text_are_refused_or_written(files, tmp_path):
    """The byte 255 is never part of UTF-8."""
    odd = tmp_path / os.fsdecode(b"a\xff.nii.gz")
    shutil.copy(files / "fixed.nii.gz", odd)
    for settings in ({}, {"LC_ALL": "C", "PYTHONUTF8": "0"}):
        result = run("register", odd, files / "moving.nii.gz", "--out", tmp_path / "out", env=environment(**settings))
        assert_one_line((result[0], "", result[2].splitlines()[-1]), "has characters that cannot be written")


# Memory and interruption


@pytest.mark.parametrize("megabytes", [pytest.param(n, marks=pytest.mark.release) for n in (700, 1300, 1500)] + [1000])
def test_too_little_memory_is_told_as_such(files, tmp_path, megabytes):
    limit = f'ulimit -v {megabytes * 1024}; exec "$@"'
    words = "register", files / "fixed.nii.gz", files / "moving.nii.gz", "--out", tmp_path / "out"
    status, _, err = run(*words, before=("bash", "-c", limit, "bash"))
    assert status == 0 or (status == 2 and "memory" in err.splitlines()[-1]), (status, err)
    assert "damaged" not in err


def test_help_is_shown_where_memory_is_too_little_for_a_command():
    status, out, _ = run("--help", before=("bash", "-c", 'ulimit -v 700000; exec "$@"', "bash"))
    assert status == 0
    assert "register" in out


def compute_time(process):
    """How long it has computed, in seconds. By the clock, it may not have begun on a busy machine."""
    return sum(psutil.Process(process.pid).cpu_times()[:2])


def wait_until_loading(process, seconds):
    """Until the command has loaded what it needs for so many seconds of computing, or has ended.

    It begins once the module `resource` is there, which only `vrnet.app.loading` imports."""
    while process.poll() is None and not any(
        "resource." in file.path for file in psutil.Process(process.pid).memory_maps()
    ):
        time.sleep(0.005)
    began = compute_time(process)
    while process.poll() is None and compute_time(process) < began + seconds:
        time.sleep(0.005)


@pytest.mark.parametrize(
    "seconds", [0.2, *(pytest.param(s, marks=pytest.mark.release) for s in (0.05, 0.5, 0.75, 0.8, 0.85, 1.4))]
)
def test_ctrl_c_while_it_is_loaded_ends_in_one_line(seconds):
    """Before Python has reached the command, the words are Python's.

    Where Ctrl-C met a text that Python was executing (each dataclass has one), Python ends itself by the signal: 130 in
    a shell, as ever. So it does without a word where the command was done, and Python was about to end."""
    process = subprocess.Popen([*COMMAND, "methods"], env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    wait_until_loading(process, seconds)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=MAX_SECONDS)
    interrupted = "vrnet: interrupted; nothing is half-written\n"
    ends = {(0, ""), (130, interrupted), (-signal.SIGINT, interrupted)} | ({(-signal.SIGINT, "")} if out else set())
    assert (process.returncode, err.decode()) in ends


def test_a_script_that_ignores_ctrl_c_is_obeyed():
    words = ["sh", "-c", 'trap "" INT; exec "$@"', "sh", *COMMAND, "methods"]
    process = subprocess.Popen(words, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    wait_until_loading(process, 0.05)
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=MAX_SECONDS)[1] == b""
    assert process.returncode == 0
