"""What holds of every command: its help, what is said of wrong words, and how it ends when something goes wrong."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import get_args, get_type_hints

import nibabel
import numpy as np
import pytest
import torch

from vrnet import __version__
from vrnet.app.main import COMMANDS, load_command

SOURCE = str(Path(__file__).parents[2] / "src")
NUMBERS = "-1", "9" * 5000, "nan", "-inf", "1e308", "0x10"


def test_the_version_is_printed(vrnet):
    assert vrnet("--version") == (0, f"vrnet {__version__}\n", "")


def test_help_lists_each_command_with_its_first_sentence_on_one_screen(vrnet, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    status, out, _ = vrnet("--help")
    lines = out.splitlines()
    assert (status, vrnet("-h")[1]) == (0, out)
    assert len(lines) <= 45
    assert max(map(len, lines)) <= 80
    assert [line.split()[0] for line in lines if re.match("  [a-z]", line)] == [*COMMANDS]
    words = " ".join(out.split())
    for name in COMMANDS:
        assert " ".join(load_command(name).__doc__.split("\n\n")[0].split()) in words


def test_help_of_a_command_explains_its_options(vrnet):
    for command in COMMANDS:
        status, out, _ = vrnet(command, "--help")
        assert status == 0
        assert len(out.splitlines()) > 3
        assert "None" not in out
        assert load_command(command).__name__.lower() == command


def test_the_help_of_track_is_read_at_a_glance(vrnet, monkeypatch):
    """In an ordinary terminal every option has one line, below its name where that is long, and docs have the rest."""
    monkeypatch.setenv("COLUMNS", "80")
    _, out, _ = vrnet("track", "--help")
    assert "docs/cine.md" in out
    options = re.split(r"^\W*(?=--|-h)", out.partition(" options ")[2], flags=re.M)[1:]
    assert [words.split()[0] for words in options[:5]] == ["-h,", "--out", "--labels", "--report", "--frame"]
    for words in options:
        lines = [line for line in words.splitlines() if re.search(r"\w", line)]
        assert len(lines) <= (2 if re.match(r"--\S+( \S+)?\W*$", lines[0]) else 1), words


def test_vrnet_alone_says_where_to_begin(vrnet):
    """Every command that it shows is one, with options that it has; it fits an ordinary terminal."""
    status, out, err = vrnet()
    assert (status, err) == (0, "")
    assert len(out.splitlines()) <= 22
    assert max(map(len, out.splitlines())) <= 80
    shown = [line.split() for line in out.splitlines() if line.startswith("  vrnet ")]
    assert [words[1] for words in shown] == ["demo", "register", "track", "doctor"]
    for _, command, *words in shown:
        _, said, _ = vrnet(command, "--help")
        assert all(word in said for word in words if word.startswith("--"))


def test_help_names_what_the_package_has(vrnet):
    """Names of data sets, tables and presets are written in the help, so that it is shown without loading them."""
    from vrnet.data.dataset import DATASETS
    from vrnet.methods.parameters import field_docstrings
    from vrnet.paper.pictures import FIGURES
    from vrnet.paper.specs import TABLES
    from vrnet.paper.tables import OTHER_TABLES
    from vrnet.training.settings import PRESETS

    for command in ("train", "evaluate", "prepare"):
        listed = re.search(r"acdc.*manifest", field_docstrings(load_command(command))["data"])[0]
        assert re.split(", | or ", listed) == list(DATASETS)
    told = " ".join(load_command("paper").__doc__.split())
    tables, figures = re.search(r"Tables: (.*?)\. Figures: (.*?)\.", told).groups()
    assert tables.split(", ") == [*TABLES, *OTHER_TABLES]
    assert figures.split(", ") == list(FIGURES)
    assert set(get_args(get_type_hints(load_command("train"))["preset"])) == {"auto", *PRESETS}


@pytest.mark.release
def test_bash_completes_a_command_an_option_and_a_choice(vrnet, tmp_path):
    assert all(command in vrnet("--tyro-print-completion", "zsh")[1] for command in COMMANDS)
    (tmp_path / "completion").write_text(vrnet("--tyro-print-completion", "bash")[1])
    ask = """source completion
    complete_words() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=(); _tyro_vrnet; echo "${COMPREPLY[@]}"; }
    complete_words vrnet reg; complete_words vrnet register --fol; complete_words vrnet register --folds ''"""
    said = subprocess.run(["bash", "-c", ask], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert said.splitlines() == ["register", "--folds", "repair keep"]


REFUSING = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("numpy", "jaxtyping", "torch", "scipy", "SimpleITK", "nibabel", "matplotlib"):
            raise ImportError(f"{{name}} is refused")

sys.meta_path.insert(0, Refuse())
from vrnet.app.main import main
for words in {calls}:
    sys.argv = ["vrnet", *words]
    try:
        main()
        status = 0
    except SystemExit as stop:
        status = stop.code or 0
    print("status", status)
    print("done", file=sys.stderr)
"""


def test_help_and_wrong_words_are_told_without_what_computes():
    """They are shown at once, and also where PyTorch cannot be imported; no command is run then."""
    helps = [["--help"], *([command, "--help"] for command in ("register", "cohort", "track", "paper"))]
    calls = [*helps, ["register", "--nonsense"], ["methods"]]
    done = subprocess.run([sys.executable, "-c", REFUSING.format(calls=calls)], capture_output=True, text=True)
    assert re.findall(r"^status (.*)$", done.stdout, re.MULTILINE) == ["0"] * len(helps) + ["2", "2"], done.stderr
    said = done.stderr.split("done\n")
    assert [len(each.splitlines()) for each in said] == [0] * len(helps) + [1, 1, 0]
    assert ["is refused" in each for each in said] == [False] * (len(helps) + 1) + [True, False]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("regsiter", "there is no command regsiter: did you mean register?"),
        ("xyzzy --out x", "there is no command xyzzy: `vrnet --help` lists all"),
        ("register a b --out x --fixed-lables=c", "--fixed-lables=c (did you mean --fixed-labels?)"),
        ("register a b --folds kep --out x", "'kep'.*--folds.*'repair', 'keep'"),
        ("register a", "MOVING|moving"),
        ("register a b --out", "--out"),
        ("register a b c --out x", "Unrecognized options: c"),
        ("cohort a --jobs two --out x", "--jobs.*'two'"),
        ("register a b --out x.nii.gz", "--out: this is a folder, not a file: give a name without .nii.gz"),
        ("methods a \x1b[2Jb", r"\\x1b\[2Jb"),
    ],
)  # fmt: skip
def test_wrong_words_are_told_in_one_line_with_what_was_meant(vrnet, tmp_path, monkeypatch, words, told):
    monkeypatch.chdir(tmp_path)
    status, out, err = vrnet(*words.split(" "))
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("vrnet: ")
    assert told in err or re.search(told, err), err
    assert "\x1b" not in err
    assert not [*tmp_path.iterdir()]


def test_files_whose_names_begin_with_a_dash_follow_two(vrnet):
    assert "there is no -a.nii" in vrnet("register", "--out", "x", "--", "-a.nii", "b.nii")[2]


def numeric_options(kind):
    """The names of the options of a command, or of a group of options, that take numbers."""
    hints = get_type_hints(kind)
    for field in fields(kind):
        if is_dataclass(hints[field.name]):
            yield from numeric_options(hints[field.name])
        elif {int, float} & {hints[field.name], *get_args(hints[field.name])}:
            yield f"--{field.name.replace('_', '-')}"


@pytest.mark.release
@pytest.mark.parametrize("command", ["track", "train", "paper", "cohort"])
def test_no_number_that_makes_no_sense_ends_in_a_bug(vrnet, data, tmp_path, monkeypatch, command):
    """The options are found by their types: a new one is tested too."""
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    nibabel.save(nibabel.Nifti1Image(random.random((8, 8, 1, 3)).astype(np.float32), np.eye(4)), "cine.nii")
    small = {"--steps": "1", "--batch": "2", "--method": "identity", "--preset": "phantom"}
    words = {
        "track": ["cine.nii", "--out", "run", "--method", "identity"],
        "train": ["R-L2-1x1-w2", *data, "--out", "run", "--preset", "phantom"],
        "paper": ["table", "none"],
        "cohort": ["none.csv", "--out", "out"],
    }[command]
    for option in numeric_options(load_command(command)):
        others = [word for name in ("--steps", "--batch") if name != option for word in (name, small[name])]
        for value in NUMBERS:
            shutil.rmtree("run", ignore_errors=True)
            given = [*words, *(others if command == "train" else []), f"{option}={value}"]
            status, _, err = vrnet(command, *given)
            assert status in (0, 2), (option, value, err)
            assert "Traceback" not in err
            if value == "0x10":
                assert status == 2
                assert option in err


@pytest.fixture
def failing(vrnet, files, tmp_path, monkeypatch):
    """failing(error) registers, where reading an image raises that error; gives (status, stdout, stderr)."""

    def run(error):
        def fail(*_, **__):
            raise error

        monkeypatch.setattr("vrnet.images.io.read_image", fail)
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        return vrnet("apply", "t.nii", files / "moving.nii.gz", "--reference", "a.nii", "--out", tmp_path / "x.nii")

    return run


LACK = [
    RuntimeError("[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory: you tried to"),
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
    OSError(12, "Cannot allocate memory"),
]


@pytest.mark.parametrize("error", [*LACK, OSError(28, "No space left on device")])
def test_what_the_machine_lacks_ends_in_one_line_with_status_2(failing, tmp_path, error):
    status, out, err = failing(error)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert ("too little memory" in err) == (error in LACK)
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(("code", "status", "said"), [(None, 0, ""), ("no such thing", 2, "vrnet: no such thing\n")])
def test_an_end_is_a_success_only_without_a_reason(failing, code, status, said):
    assert failing(SystemExit(code)) == (status, "", said)


def test_interrupting_ends_in_one_line(failing):
    assert failing(KeyboardInterrupt()) == (130, "", "vrnet: interrupted; nothing is half-written\n")


def test_a_bug_ends_in_one_line_that_says_where_the_traceback_is(failing, tmp_path):
    status, out, err = failing(RuntimeError("one\ntwo"))
    (path,) = tmp_path.iterdir()
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert err.startswith("vrnet: RuntimeError: one: ")
    assert err.strip().endswith(str(path))
    assert "Traceback (most recent call last)" in path.read_text()


MISSING = {
    "register": "a.nii b.nii --out out",
    "cohort": "pairs.csv --out out",
    "apply": "t.nii a.nii --reference b.nii --out c.nii",
    "points": "t.nii p.csv --out q.csv",
    "evaluate": "t.nii --fixed a.nii --moving b.nii",
    "prepare": "--data acdc --root none --out p.npz",
    "train": "R-L1-1x1 --data none.npz --out run",
    "report": "t.nii --fixed a.nii --moving b.nii --out page.html",
}


@pytest.mark.parametrize("command", MISSING)
def test_missing_files_are_told_in_one_line_and_nothing_is_written(vrnet, command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    status, out, err = vrnet(command, *MISSING[command].split())
    assert (status, out, err.strip().count("\n")) == (2, "", 0)
    assert err.strip().startswith("vrnet: ")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "count"),
    [("register fixed.nii.gz moving.nii.gz --method identity --out out", 2),
     ("apply true.nii.gz moving.nii.gz --reference fixed.nii.gz --out w.nii.gz", 3),
     ("evaluate identity --data manifest --root pairs.csv --cache cache --out out", 4)],
)  # fmt: skip
def test_commands_note_once_what_is_odd_about_each_image(vrnet, files, tmp_path, monkeypatch, words, count):
    """A copy of the files, all of which have a qform half a millimetre from their sform."""
    for source in files.glob("*.nii.gz"):
        image = nibabel.load(source)
        affine = image.affine.copy()
        affine[0, 3] += 0.5
        image.header.set_qform(image.affine, 1)
        image.header.set_sform(affine, 2)
        nibabel.save(nibabel.Nifti1Image(np.asarray(image.dataobj), None, image.header), tmp_path / source.name)
    row = "fixed.nii.gz,moving.nii.gz,fixed_labels.nii.gz,moving_labels.nii.gz,test"
    (tmp_path / "pairs.csv").write_text(f"fixed,moving,fixed_labels,moving_labels,split\n{row}")
    monkeypatch.chdir(tmp_path)
    status, out, err = vrnet(*words.split())
    assert status == 0, err
    notes = [line for line in out.splitlines() if line.startswith("Note: ") and "mm apart" in line]
    assert len(notes) == len(set(notes)) == count


# As a process: where it writes to, and how it is stopped.


def process(*words, **settings):
    """The command in a process of its own."""
    environment = os.environ | {"PYTHONPATH": SOURCE, "OMP_NUM_THREADS": "1"} | settings.pop("env", {})
    command = [*settings.pop("before", ()), sys.executable, "-m", "vrnet", *map(str, words)]
    return subprocess.Popen(command, env=environment, text=True, stderr=subprocess.PIPE, **settings)


@pytest.mark.release
def test_an_output_that_is_full_is_told():
    with Path("/dev/full").open("w") as full:
        done = process("--help", stdout=full)
        _, err = done.communicate()
    assert (done.returncode, err.count("\n"), "No space left on device" in err) == (2, 1, True), err


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_whoever_stops_reading_is_not_told_of_it(unbuffered):
    unread, output = os.pipe()
    os.close(unread)
    with os.fdopen(output, "w") as nobody:
        done = process("--help", stdout=nobody, env={"PYTHONUNBUFFERED": unbuffered})
        _, err = done.communicate()
    assert (done.returncode, err) == (141 if unbuffered else 0, "")


def test_a_poor_terminal_shows_what_it_can():
    """One column wide, and without any letter beyond those of ASCII."""
    poor = {"TERM": "dumb", "COLUMNS": "1", "LC_ALL": "C", "PYTHONUTF8": "0"}
    done = process("register", "--help", env=poor, stdout=subprocess.PIPE)
    out, err = done.communicate()
    assert (done.returncode, err) == (0, "")
    assert out


@pytest.mark.release
@pytest.mark.parametrize("seconds", [0.3, 1.0, 2.5])
def test_ctrl_c_at_any_time_ends_in_one_line(tmp_path, seconds):
    done = process("demo", "--out", tmp_path / "out", stdout=subprocess.PIPE)
    time.sleep(seconds)
    done.send_signal(signal.SIGINT)
    _, err = done.communicate()
    assert done.returncode in (0, 130, -signal.SIGINT), err  # a shell tells both of the last as 130
    assert "Traceback" not in err


@pytest.mark.release
@pytest.mark.parametrize("megabytes", [700, 2000])
def test_too_little_memory_is_told_as_such(files, tmp_path, megabytes):
    words = "register", files / "fixed.nii.gz", files / "moving.nii.gz", "--out", tmp_path / "out"
    limit = "bash", "-c", f'ulimit -v {megabytes * 1024}; exec "$@"', "bash"
    done = process(*words, before=limit, stdout=subprocess.PIPE)
    _, err = done.communicate()
    assert done.returncode == 0 or (done.returncode == 2 and err.count("\n") == 1), err
