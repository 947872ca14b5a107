"""What holds of every command: its help, and how it ends when something is wrong."""

import re
import subprocess
import sys
from pathlib import Path
from typing import get_args, get_type_hints

import nibabel
import numpy as np
import pytest
import torch

from vrnet import __version__
from vrnet.app.arguments import read_command
from vrnet.app.console import end_if_failed
from vrnet.app.main import COMMANDS, arguments_of, check_arguments
from vrnet.app.paper import known_names
from vrnet.data.dataset import DATASETS
from vrnet.errors import as_options
from vrnet.methods.parameters import field_docstrings
from vrnet.training.settings import PRESETS


@pytest.mark.parametrize("others", [(), ("register",)])
def test_the_version_is_printed(vrnet, others):
    assert vrnet("--version", *others) == (0, f"vrnet {__version__}\n", "")


def test_help_names_the_commands(vrnet):
    status, out, _ = vrnet("--help")
    assert status == 0
    assert all(command in out for command in COMMANDS)


def test_help_is_a_list_that_fits_on_a_screen(vrnet, monkeypatch):
    """The first sentence of each command, and no line wider than the terminal."""
    monkeypatch.setenv("COLUMNS", "80")
    status, out, _ = vrnet("--help")
    lines = out.splitlines()
    assert (status, vrnet("-h")[1]) == (0, out)
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 80
    assert [line.split()[0] for line in lines if re.match("  [a-z]", line)] == [*COMMANDS]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command_explains_its_options(vrnet, command):
    status, out, _ = vrnet(command, "--help")
    assert status == 0
    assert len(out.splitlines()) > 3
    assert "None" not in out


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


@pytest.mark.parametrize("command", ["train", "evaluate", "prepare"])
def test_help_names_every_data_set(command):
    """The names are written in the help, so that it is shown without importing the data sets."""
    listed = re.search(r"acdc.*manifest", field_docstrings(COMMANDS[command])["data"])[0]
    assert re.split(", | or ", listed) == list(DATASETS)


def test_help_names_every_table_and_figure():
    told = " ".join(COMMANDS["paper"].__doc__.split())
    tables, figures = re.search(r"Tables: (.*?)\. Figures: (.*?) \(", told).groups()
    assert tables.split(", ") == list(known_names("table"))
    assert figures.split(", ") == list(known_names("figure"))


def test_train_takes_every_preset():
    """The names are written at the option, where help reads them."""
    assert set(get_args(get_type_hints(COMMANDS["train"])["preset"])) == {"auto", *PRESETS}


def test_only_a_verdict_of_failure_has_status_3():
    for level in ("good", "look"):
        end_if_failed({"level": level})
    with pytest.raises(SystemExit, match=r"^3$"):
        end_if_failed({"level": "failed"})


def test_vrnet_alone_says_where_to_begin(vrnet):
    """Every command that it shows is one, with options that it has; it fits an ordinary terminal."""
    status, out, err = vrnet()
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert len(lines) <= 22
    assert max(map(len, lines)) <= 80
    shown = [line.split() for line in lines if line.startswith("  vrnet ")]
    assert [words[1] for words in shown] == ["demo", "register", "track", "doctor"]
    for _, command, *words in shown:
        _, said, _ = vrnet(command, "--help")
        assert all(word in said for word in words if word.startswith("--"))


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_shells_complete_commands(vrnet, shell):
    status, script, _ = vrnet("--tyro-print-completion", shell)
    assert status == 0
    assert all(command in script for command in COMMANDS)


def test_bash_completes_a_command_an_option_and_a_choice(vrnet, tmp_path):
    (tmp_path / "completion").write_text(vrnet("--tyro-print-completion", "bash")[1])
    ask = """source completion
    complete_words() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=(); _tyro_vrnet; echo "${COMPREPLY[@]}"; }
    complete_words vrnet reg; complete_words vrnet register --fol; complete_words vrnet register --folds ''"""
    said = subprocess.run(["bash", "-c", ask], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert said.splitlines() == ["register", "--folds", "repair keep"]


@pytest.mark.parametrize("words", [("regster",), ("demo", "--seed", "many"), ("demo", "--nonsense")])
def test_a_command_that_makes_no_sense_has_status_2(vrnet, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    status, _, err = vrnet(*words)
    assert status == 2
    assert err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("command", COMMANDS)
def test_an_option_without_its_value_is_told_in_one_line(vrnet, command):
    """At the end of the line, and before another option, whichever the parser says needs a value."""
    _, told, _ = vrnet(command, "--help")
    with_value = re.findall(r"^\W*(--[a-z-]+) (?=[A-Z{\d])(?!.* \.\.\.)", told, flags=re.M)
    assert with_value or command in ("methods", "doctor")
    for option in with_value:
        underscored = option.replace("-", "_").replace("__", "--")
        for words in ([option], [underscored, option], [option, f"{option}=1"]):
            line = f"vrnet: {words[0]} has no value: `vrnet {command} --help` says what it takes\n"
            assert vrnet(command, *words) == (2, "", line)


def test_flags_empty_lists_and_help_need_no_value(vrnet):
    for words in (("--alphas", "--measured-only"), ("--quick",)):
        assert "has no value" not in vrnet("paper", "table", *words)[2]
    assert vrnet("track", "--help", "--method")[0] == 0


def test_interrupting_ends_in_one_line(vrnet, files, tmp_path, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("vrnet.app.pair.register_image_pair", interrupted)
    status, _, err = vrnet("register", files / "fixed.nii.gz", files / "moving.nii.gz", "--out", tmp_path / "out")
    assert status == 130
    assert err.strip() == "vrnet: interrupted; nothing is half-written"
    assert not list(tmp_path.iterdir())


def test_every_command_is_in_the_folder_of_commands():
    """A class named as the command, in a file of the folder; no file there is without one, but for the options."""
    folder = Path(sys.modules["vrnet.app.commands"].__file__).parent
    modules = {path.stem for path in folder.glob("*.py")} - {"__init__", "options"}
    assert {kind.__module__ for kind in COMMANDS.values()} == {f"vrnet.app.commands.{name}" for name in modules}
    assert [kind.__name__.lower() for kind in COMMANDS.values()] == list(COMMANDS)


TOO_LITTLE_MEMORY = [
    MemoryError(),
    RuntimeError(
        "[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory: you tried to allocate"
    ),
    RuntimeError("Exception thrown in SimpleITK: itk::MemoryAllocationError: Failed to allocate memory for image."),
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
    OSError(12, "Cannot allocate memory"),
]


@pytest.mark.parametrize(
    "error", [*TOO_LITTLE_MEMORY, OSError(28, "No space left on device"), PermissionError(13, "no")]
)
def test_what_the_machine_lacks_ends_in_one_line_with_status_2(vrnet, files, tmp_path, monkeypatch, error):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr("vrnet.app.pair.register_image_pair", fail)
    status, _, err = vrnet("register", files / "fixed.nii.gz", files / "moving.nii.gz", "--out", tmp_path / "out")
    (line,) = err.strip().splitlines()
    assert status == 2
    assert ("too little memory" in line) == (error in TOO_LITTLE_MEMORY)


@pytest.mark.parametrize("error", [RuntimeError("one\ntwo"), KeyError("name")])
def test_what_nobody_expected_ends_in_one_line_that_says_where_the_traceback_is(
    vrnet, files, tmp_path, monkeypatch, error
):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("vrnet.app.pair.register_image_pair", fail)
    status, out, err = vrnet("register", files / "fixed.nii.gz", files / "moving.nii.gz", "--out", tmp_path / "out")
    (path,) = tmp_path.iterdir()
    assert (status, out) == (1, "")
    (line,) = err.strip().splitlines()
    assert line.startswith(f"vrnet: {type(error).__name__}: ")
    assert line.endswith(str(path))
    assert "Traceback (most recent call last)" in path.read_text()


@pytest.mark.parametrize("command", [name for name in COMMANDS if name != "doctor"])  # which reads no files
def test_no_command_shows_a_traceback_where_its_files_are_missing(vrnet, command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = {
        "register": ("a.nii", "b.nii", "--out", "out"),
        "track": ("a.nii", "--out", "out"),
        "demo": ("--method", "none"),
        "cohort": ("pairs.csv", "--out", "out"),
        "apply": ("t.nii", "a.nii", "--reference", "b.nii", "--out", "c.nii"),
        "invert": ("t.nii", "--out", "u.nii"),
        "points": ("t.nii", "p.csv", "--out", "q.csv"),
        "evaluate": ("t.nii", "--fixed", "a.nii", "--moving", "b.nii"),
        "prepare": ("--data", "acdc", "--root", "none", "--out", "p.npz"),
        "train": ("R-L1-1x1", "--data", "none.npz", "--out", "run"),
        "template": ("--data", "none.npz", "--out", "t"),
        "paper": ("table", "none"),
        "methods": ("none",),
        "report": ("t.nii", "--fixed", "a.nii", "--moving", "b.nii", "--out", "page.html"),
    }
    status, out, err = vrnet(command, *words[command])
    assert (status, out) == (2, "")
    assert err.strip().startswith("vrnet: ")
    assert len(err.strip().splitlines()) == 1
    assert not list(tmp_path.iterdir())


LIGHT = """
import sys
sys.argv = ["vrnet", *{words}]
from vrnet.app.main import main
try:
    main()
except SystemExit:
    pass
print(*{{name.partition(".")[0] for name in sys.modules}}, file=sys.stderr)
"""


@pytest.mark.parametrize("words", [["--version"], ["--help"], ["train", "--help"], ["methods"]])
def test_help_and_lists_are_shown_without_the_large_libraries(words):
    done = subprocess.run([sys.executable, "-c", LIGHT.format(words=words)], capture_output=True, text=True, check=True)
    heavy = {
        "matplotlib",
        "SimpleITK",
        "nibabel",
        "lightning",
        "scipy",
        "skimage",
        "itk",
        "ants",
        "tensorboard",
        "dask",
    }
    assert not heavy & set(done.stderr.split())


REFUSING = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("numpy", "jaxtyping", "torch", "scipy", "SimpleITK", "nibabel", "matplotlib"):
            raise ImportError(f"{{name}} is refused")

sys.meta_path.insert(0, Refuse())
import vrnet.app.main
from vrnet.__main__ import main
sys.argv = ["vrnet", *{words}]
main()
"""


@pytest.mark.parametrize(
    ("words", "status", "refused"),
    [
        (["--version"], 0, 0),
        (["--help"], 0, 0),
        (["register", "--help"], 0, 0),
        (["train", "--help"], 0, 0),
        (["register", "--nonsense"], 2, 0),
        (["methods"], 2, 1),
    ],
)
def test_the_command_line_is_loaded_without_what_computes(words, status, refused):
    """Help, and what is wrong with the words, are shown where PyTorch cannot be imported; no command is run then."""
    done = subprocess.run([sys.executable, "-c", REFUSING.format(words=words)], capture_output=True, text=True)
    assert (done.returncode, done.stderr.count("is refused")) == (status, refused), done.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("regsiter",), "there is no command regsiter: did you mean register?"),
        (("xyzzy", "--out", "x"), "there is no command xyzzy: `vrnet --help` lists all"),
        (("--verison",), "there is no command --verison: did you mean --version?"),
        (("register", "--fixed-lables", "c"), "register has no option --fixed-lables: did you mean --fixed-labels?"),
        (("register", "a", "b", "--frme=c"), "register has no option --frme: `vrnet register --help` lists all"),
        (("track", "a", "--label_name=c"), "track has no option --label-name: did you mean --label-names?"),
        (("register", "a", "b", "-o", "x"), "register has no option -o: did you mean --out?"),
        (("register", "a", "b", "-out", "x"), "register has no option -out: did you mean --out?"),
        (("REGISTER",), "there is no command REGISTER: did you mean register?"),
        (("register", "--fixed", "a"), "register has no option --fixed: give FIXED without it"),
        (("points", "--in", "a"), "points has no option --in: give IN.csv without it"),
        (("train", "--augment"), "train has no option --augment: did you mean --no-augment?"),
        (("track", "--nonsense"), "track has no option --nonsense: `vrnet track --help` lists all"),
        (("register", "a", "b", "--folds", "kep"),
         "--folds is 'kep': give repair or keep. `vrnet register --help` says what each means"),
        (("points", "a", "--space=MNI"),
         "--space is 'MNI': give LPS or RAS. `vrnet points --help` says what each means"),
        (("paper", "tabel", "acdc"),
         "paper has no 'tabel': give table or figure. `vrnet paper --help` says what each means"),
        (("cohort", "a", "--jobs", "two"), "--jobs is 'two': give a whole number"),
        (("paper", "table", "acdc", "--alphas", "0.1", "x"), "--alphas is 'x': give a number"),
        (("demo", "--average=yes"), "--average has no value: leave out '=yes'"),
    ],
)  # fmt: skip
def test_a_misspelt_word_is_answered_in_one_line_with_what_was_meant(vrnet, words, told):
    assert vrnet(*words) == (2, "", f"vrnet: {told}\n")


@pytest.mark.parametrize(
    ("words", "lacking", "usage"),
    [
        ("register a", "MOVING and --out", "register FIXED MOVING --out DIR"),
        ("register --out x -- -a.nii", "MOVING", "register FIXED MOVING --out DIR"),
        ("apply a --labels", "MOVING, --reference and --out", "apply TRANSFORM MOVING --reference FILE --out FILE"),
        ("cohort --dry-run", "--out", "cohort LIST.csv --out DIR"),
        ("paper --seeds 2", "table or figure and NAME", "paper table|figure NAME"),
    ],
)  # fmt: skip
def test_what_a_command_lacks_is_named_in_one_line_with_how_it_is_written(vrnet, words, lacking, usage):
    command = words.split()[0]
    told = f"{command} lacks {lacking}: write `vrnet {usage}`. `vrnet {command} --help` says more"
    assert vrnet(*words.split()) == (2, "", f"vrnet: {told}\n")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("register a b --out {}.nii.gz", "a folder: give a name without .nii.gz"),
        ("track a --out={}.NII", "a folder: give a name without .nii"),
        ("demo --out {}.mha/", "a folder: give a name without .mha"),
        ("cohort a.csv --out {}.nrrd", "a folder: give a name without .nrrd"),
        ("cohort --scan a --out {}.png", "a folder: give a name without .png"),
        ("train R-L1-1x1 --data phantom --out {}.h5", "a folder: give a name without .h5"),
        ("paper table acdc --out {}.tfm", "a folder: give a name without .tfm"),
        ("evaluate TV-L1 --data phantom --out {}.nii.gz", "a .json file or a folder: give a name without .nii.gz"),
        ("report a --fixed b --moving c --out {}.nii", "a page (.html) or a folder: give a name without .nii"),
    ],
)  # fmt: skip
def test_a_folder_of_results_is_not_called_as_an_image_or_a_transform(vrnet, tmp_path, words, told):
    """Not even where there is such a folder: what was meant is a file."""
    place = tmp_path / "x"
    assert vrnet(*words.format(place).split()) == (2, "", f"vrnet: --out is {told}\n")
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("words", ["register a b c --out x", "doctor c", "register a b --report c", "methods a c"])
def test_a_word_too_many_is_named_in_one_line(vrnet, words):
    status, out, err = vrnet(*words.split())
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("vrnet: 'c' is one word too many: ")


@pytest.mark.parametrize(
    "words",
    [
        "paper table --alphas 0.05 0.1 acdc",
        "paper --alphas 0.05 0.1 table acdc",
        "paper --alphas 0.1 --seeds=3 table acdc",
        "paper --alphas=0.05 0.1 --seeds 3 table acdc",
        "paper table acdc --alphas 0.05 0.1 --seeds 3 --alphas",
        "register a b --out=x --set lam=1 --set=lam=2 --report --label_names 1=RV",
        "register --out x -- -a --report",
        "demo --seed -1",
    ],
)
def test_what_tyro_takes_is_not_refused_before(words):
    check_arguments(COMMANDS[words.split()[0]], words.split())
    assert read_command(COMMANDS, words.split())


@pytest.mark.parametrize("command", COMMANDS)
def test_the_options_that_are_known_are_those_of_the_help(vrnet, command):
    _, shown, _ = vrnet(command, "--help")
    listed = set(re.findall(r"^\W*(--[a-z][a-z-]*)", shown, flags=re.M)) - {"--help"}
    assert {each.name for each in arguments_of(COMMANDS[command]) if not each.is_positional} == listed


def test_files_whose_names_begin_with_a_dash_follow_two(vrnet):
    assert "there is no -a.nii" in vrnet("register", "--out", "x", "--", "-a.nii", "b.nii")[2]


@pytest.mark.parametrize(
    "words",
    ["register {} --nonsense", "register a b c {}", "register --nonsense {}", "register --folds kep {}",
     "register --out {}", "apply a b c {}", "points a {} b c", "paper tabel {}"],
)  # fmt: skip
@pytest.mark.parametrize("asked", ["-h", "--help"])
def test_help_is_shown_whatever_stands_about_it(vrnet, words, asked):
    command = words.split()[0]
    assert vrnet(*words.format(asked).split()) == vrnet(command, "--help")
    assert vrnet(command, "--help")[0] == 0


def test_after_two_dashes_help_is_a_file(vrnet):
    assert "there is no -h" in vrnet("register", "--out", "x", "--", "-h", "b.nii")[2]


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("leave `slices` out", "leave --slices out"),
        ('choose `device="cpu"`, or auto', "choose --device cpu, or auto"),
        ("name it with `split_file`", "name it with --split-file"),
        ("a_file-name.nii is 3D", "a_file-name.nii is 3D"),
    ],
)
def test_arguments_in_a_message_are_shown_as_options(message, expected):
    assert as_options(message) == expected


@pytest.mark.parametrize(
    ("command", "message", "expected"),
    [
        ("register", '`affine="affine"`, if far away', "--affine affine, if far away"),
        ("evaluate", '`affine="affine"`, if far away', "vrnet register --affine affine, if far away"),
        ("register", "`match_intensities=True`", "--match-intensities"),
        ("demo", '`brightness="keep"`', "vrnet register --brightness keep"),
        ("evaluate", '`folds="repair"`', "--folds repair"),
        ("evaluate", '`method="Gaussian-MIND"` or Gaussian-NMI', "vrnet evaluate Gaussian-MIND or Gaussian-NMI"),
        ("evaluate", "`fixed_mask` and `moving_mask`, if", "--fixed-mask and --moving-mask, if"),
        ("report", "`fixed_mask` and `moving_mask`, if", "vrnet register --fixed-mask and --moving-mask, if"),
        ("evaluate FILE", '`folds="repair"`', "vrnet register --folds repair"),
        ("evaluate FILE", '`method="TV-L1(lam=1)"`', 'vrnet register --method "TV-L1(lam=1)"'),
    ],
)
def test_a_command_without_an_option_names_the_one_that_has_it(command, message, expected):
    assert as_options(message, command) == expected


@pytest.fixture
def two_places(files, tmp_path):
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
    return tmp_path


@pytest.mark.parametrize(
    ("words", "count"),
    [("register fixed.nii.gz moving.nii.gz --method identity --out out", 2),
     ("apply true.nii.gz moving.nii.gz --reference fixed.nii.gz --out w.nii.gz", 3),
     ("invert true.nii.gz --reference moving.nii.gz --out i.nii.gz", 2), ("points true.nii.gz p.csv --out q.csv", 1),
     ("evaluate identity --fixed fixed.nii.gz --moving moving.nii.gz", 2),
     ("evaluate identity --data manifest --root pairs.csv --cache cache --out out", 4),
     ("prepare --data manifest --root pairs.csv --cache cache --out p.npz", 4)],
)  # fmt: skip
def test_commands_note_once_what_is_odd_about_each_image(vrnet, two_places, monkeypatch, words, count):
    monkeypatch.chdir(two_places)
    (two_places / "p.csv").write_text("x,y\n1,2\n")
    status, out, err = vrnet(*words.split())
    assert status == 0, err
    notes = [line for line in out.splitlines() if line.startswith("Note: ") and "mm apart" in line]
    assert len(notes) == len(set(notes)) == count
