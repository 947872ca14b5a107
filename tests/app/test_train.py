import csv
import os
import signal
import subprocess
import sys
import time
from contextlib import redirect_stdout
from io import StringIO

import numpy as np
import pytest
import torch
from benchmarks import template
from safetensors.torch import load_file

from tests.app.outputs import file_names, read_json
from tests.data.conftest import heart, write_acdc, write_splits
from vrnet import read_image
from vrnet.app import main as cli
from vrnet.methods.weights import load_weights, read_card
from vrnet.training.settings import PRESETS

RUN = {"config.json", "weights.safetensors", "metrics.csv", "checkpoint.safetensors", "logs"}
QUICK = "--steps", 3, "--batch", 2, "--validate-every", 2, "--rate", 1e-3, "--device", "cpu"
EVERYTHING = "--preset", "labels", "--batch-dice", 0.5, "--consistency", 0.1, "--warm-up", 2, "--clip", 1e3
"""Every term of the loss, and every kind of augmentation. The clip does not act: a sum of gradients, shortened to the
length of their mean, would be the mean."""
METHOD = "C-L2-1x1-w4"
MAX_SECONDS = 300
"""How long a process may take on a busy machine."""


@pytest.fixture
def train(vrnet, data, tmp_path):
    """train("run", "--seed", 1) gives (folder, stdout), once it succeeded."""

    def run(name, *words, method=METHOD, data=data):
        status, out, err = vrnet("train", method, *data, "--out", tmp_path / name, *QUICK, *words)
        assert status == 0, err
        return tmp_path / name, out

    return run


def config(folder):
    return read_json(folder / "config.json")


def same(a, b, name="checkpoint.safetensors"):
    a, b = load_file(a / name), load_file(b / name)
    return a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)


def test_without_lightning_nothing_is_prepared(vrnet, hearts, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "lightning.fabric", None)
    words = "--data", "manifest", "--root", hearts, "--cache", tmp_path / "cache", "--out", tmp_path / "run"
    status, out, err = vrnet("train", METHOD, *words, *QUICK)
    assert (status, out) == (2, "")
    assert err.startswith("vrnet: training needs Lightning: ")
    assert not [*tmp_path.iterdir()]


def test_a_run_holds_what_the_help_says(train):
    folder, out = train("run")
    assert file_names(folder) == RUN
    rows = list(csv.DictReader((folder / "metrics.csv").open()))
    assert [row["step"] for row in rows] == ["2", "3"]
    assert set(rows[0]) == {"step", "loss", "rate", "val_loss", "val_dice"}
    model, card = load_weights(folder / "weights.safetensors")
    assert (card.method, card.dimension, card.spacing_mm) == (METHOD, 2, (8.0, 8.0))
    assert card.trained_on == "manifest, train: 3 subjects, 3 steps"
    assert not model.training
    best = max(rows, key=lambda row: (float(row["val_dice"]), -float(row["val_loss"])))
    assert f"Best on validation after {best['step']} steps: Dice {float(best['val_dice']):.3f} (unregistered 0." in out


@pytest.mark.release
@pytest.mark.parametrize(("rate", "is_no_better"), [(1e-30, True), (1e-3, False)])
def test_fine_tuning_tells_how_good_its_start_was(train, rate, is_no_better):
    """A rate that changes nothing ends where it began; a first run of a few steps leaves much to be learned."""
    folder, _ = train("first")
    start = folder / "weights.safetensors"
    rows = list(csv.DictReader((folder / "metrics.csv").open()))
    best = max(rows, key=lambda row: (float(row["val_dice"]), -float(row["val_loss"])))
    _, out = train("second", "--start-from", start, "--rate", rate, "--steps", 3 if is_no_better else 20)
    assert f", before fine-tuning {float(best['val_dice']):.3f})." in out
    assert (f"{start} itself is no worse" in out) == is_no_better


@pytest.mark.release
def test_a_second_run_in_the_same_folder_is_refused_before_anything_is_read(train, vrnet, data, monkeypatch):
    folder, _ = train("run")
    before = {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    with monkeypatch.context() as patch:
        patch.setattr("vrnet.data.prepared.Source.split", lambda *_: pytest.fail("the data set was asked for"))
        status, _, err = vrnet("train", METHOD, *data, "--out", folder, *QUICK)
    assert (status, "holds a run: add --resume" in err) == (2, True)
    status, _, err = vrnet("train", METHOD, *data, "--out", folder, *QUICK, "--resume", "--alpha", 0.3)
    assert (status, "begun with alpha 0.05, not 0.3" in err) == (2, True)
    assert before == {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    _, out = train("run", "--resume")
    assert "Best on validation" in out
    assert before == {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@pytest.mark.release
def test_a_pack_gives_the_run_of_the_folder(train, vrnet, data, tmp_path):
    status, out, err = vrnet("prepare", *data, "--out", tmp_path / "hearts.npz")
    assert status == 0, err
    assert "train: 3 subjects, 3 pairs, for training" in out
    assert "val: 1 subject, 1 pair, for evaluation" in out
    (read, _), (packed, _) = train("read"), train("packed", data=("--data", tmp_path / "hearts.npz"))
    assert same(read, packed)
    assert same(read, packed, "weights.safetensors")
    for name in ("config.json", "metrics.csv"):
        assert (read / name).read_bytes() == (packed / name).read_bytes()


@pytest.mark.parametrize(
    ("method", "words", "answer"),
    [
        ("TV-L1", ("--data", "phantom"), "TV-L1 has nothing to learn"),
        ("short-axis", ("--data", "phantom"), "to fine-tune it, train D-L2-3x1-half-w32 with --start-from short-axis"),
        (METHOD, ("--data", "acdd"), 'there is no data set "acdd": choose one of acdc,'),
        (METHOD, ("--data", "acdc"), "acdc is read from a folder, and there is none: name it with --root"),
        (METHOD, ("--data", "none.npz"), "there is no none.npz"),
        (METHOD, ("--data", "phantom", "--out", "file/run"), "cannot write to file/run"),
        (METHOD, ("--data", "phantom", "--device", "cuda"), "no CUDA device"),
    ],
)
def test_what_cannot_be_trained_is_refused_and_leaves_nothing(vrnet, method, words, answer, tmp_path, monkeypatch):
    if "cuda" in words and torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    status, _, err = vrnet("train", method, "--out", "run", "--cache", "cache", *words)
    assert status == 2
    assert answer in err
    assert len(err.strip().splitlines()) == 1
    assert file_names(tmp_path) == {"file"}


@pytest.mark.parametrize(
    ("words", "answer"), [(("--steps", 0), "steps is 0"), (("--devices", 2, "--batch", 3), "share")]
)
def test_settings_that_make_no_sense_leave_nothing_behind(vrnet, data, words, answer, tmp_path):
    status, _, err = vrnet("train", METHOD, *data, "--out", tmp_path / "run", *QUICK, *words)
    assert (status, answer in err) == (2, True)
    assert not list(tmp_path.iterdir())


@pytest.fixture(scope="session")
def damaged(tmp_path_factory):
    """ACDC with three patients that cannot be used, one of them to validate on."""
    folder = tmp_path_factory.mktemp("acdc")
    names = [f"patient{number:03d}" for number in range(1, 6)]
    for seed, name in enumerate(names):
        write_acdc(folder, name, *heart(seed, slices=3, shown=range(3), size=(64, 64), spacing=3.0))
    corrupt = folder / names[1] / f"{names[1]}_frame01.nii.gz"
    corrupt.write_bytes(corrupt.read_bytes()[:500])
    (folder / names[2] / f"{names[2]}_frame12_gt.nii.gz").unlink()
    odd, even = (heart(3, slices, range(slices), (64, 64), 3.0) for slices in (4, 3))
    write_acdc(folder, names[3], (odd[0][0], even[0][1]), (odd[1][0], even[1][1]))
    write_splits(folder, train=names[:3], val=names[3:])
    return folder


def test_all_that_cannot_be_used_is_named_before_the_first_step(vrnet, damaged, tmp_path):
    words = "--data", "acdc", "--root", damaged, "--cache", tmp_path / "cache"
    status, _, err = vrnet("train", METHOD, *words, "--out", tmp_path / "run", *QUICK)
    assert status == 2
    assert "2 of 3 subjects of acdc cannot be used" in err
    (corrupt,) = [line for line in err.splitlines() if "patient002: " in line]
    assert "patient002_frame01.nii.gz" in corrupt
    assert "patient003: there is no patient003_frame12_gt.nii.gz" in err
    assert "--skip-broken" in err
    assert not (tmp_path / "run").exists()


def test_broken_subjects_may_be_left_out(vrnet, damaged, tmp_path):
    words = "--data", "acdc", "--root", damaged, "--cache", tmp_path / "cache", "--skip-broken"
    status, out, err = vrnet("train", "VoxelMorph-w4", *words, "--out", tmp_path / "run", *QUICK)
    assert status == 0, err
    assert [f"left out patient{number:03d}" in out for number in range(1, 6)] == [False, True, True, True, False]
    assert config(tmp_path / "run")["subjects"] == {"train": ["patient001"], "val": ["patient005"]}


@pytest.mark.release
def test_weights_are_measured_beside_no_registration(train, vrnet, data, tmp_path):
    folder, _ = train("run", method="VoxelMorph-w4")
    found = {}
    for method, *weights in (("identity",), ("VoxelMorph-w4", "--weights", folder / "weights.safetensors")):
        status, out, err = vrnet("evaluate", method, *weights, *data, "--out", tmp_path / method, "--device", "cpu")
        assert status == 0, err
        name = f"{method} (weights.safetensors)" if weights else method
        assert f"{name} on 1 subject (manifest, test)" in " ".join(out.split())
        assert {"metrics.csv", "summary.json"} < file_names(tmp_path / method)
        found[method] = read_json(tmp_path / method / "summary.json")
    columns = {f"{kind}_{name}" for kind in ("dice", "hd") for name in ("1", "2", "3", "mean")}
    assert columns < set(found["identity"]["metrics"])
    assert (found["identity"]["weights"], found["VoxelMorph-w4"]["weights"]) == (None, "weights.safetensors")
    (row,) = csv.DictReader((tmp_path / "VoxelMorph-w4" / "metrics.csv").open())
    assert float(row["dice_mean"]) == found["VoxelMorph-w4"]["metrics"]["dice_mean"]["mean"]
    status, _, err = vrnet(
        "evaluate", "identity", "--weights", folder / "weights.safetensors", *data, "--out", tmp_path / "no"
    )
    assert (status, "holds VoxelMorph-w4, not identity" in err) == (2, True)


def test_pairs_without_labels_are_trained_on_by_the_loss_alone(vrnet, hearts, tmp_path):
    lines = [line.split(",")[:4] for line in hearts.read_text().splitlines()]
    (hearts.parent / "plain.csv").write_text("\n".join(",".join(line) for line in lines))
    words = "--data", "manifest", "--root", hearts.parent / "plain.csv", "--cache", tmp_path / "cache"
    status, out, err = vrnet("train", METHOD, *words, "--out", tmp_path / "run", *QUICK)
    assert status == 0, err
    rows = list(csv.DictReader((tmp_path / "run" / "metrics.csv").open()))
    assert "val_dice" not in rows[0]
    best = min(rows, key=lambda row: float(row["val_loss"]))
    assert f"after {best['step']} steps: loss {float(best['val_loss']):.4f} (unregistered 0." in out


@pytest.mark.release
def test_a_preset_and_what_changes_it_are_written_down(train):
    words = "--precision", "float32", "--recompute", "yes", "--seed", 5
    training = config(train("run", "--preset", "ukbb", *words)[0])["training"]
    assert (training["alpha"], training["hold"]) == (PRESETS["ukbb"].alpha, PRESETS["ukbb"].hold)
    assert (training["steps"], training["batch"], training["rate"]) == (3, 2, 1e-3)
    assert (training["precision"], training["recompute"], training["seed"]) == ("float32", True, 5)
    assert config(train("plain", "--no-augment")[0])["training"]["augmentation"] is None


def test_parameters_of_a_method_can_be_set_and_are_in_its_name(train):
    folder, _ = train("run", "--set", "theta=0.3")
    assert config(folder)["method"] == f"{METHOD}(theta=0.3)"
    assert load_weights(folder / "weights.safetensors")[1].method == f"{METHOD}(theta=0.3)"


@pytest.mark.parametrize(("word", "answer"), [("steps=3", "it has theta"), ("width=8", "is said by its name")])
def test_what_the_name_or_an_option_says_is_no_parameter(vrnet, data, tmp_path, word, answer):
    status, _, err = vrnet("train", METHOD, *data, "--out", tmp_path / "run", "--set", word)
    assert (status, answer in err) == (2, True)


def process(*words):
    """The command line as a process of its own, on one thread, as these tests are."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "100"}
    command = [sys.executable, "-m", "vrnet", *map(str, words)]
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def wait_for(path, started, seconds=MAX_SECONDS):
    """Until the file is there."""
    limit = time.monotonic() + seconds
    while not path.exists():
        assert started.poll() is None, started.communicate()
        assert time.monotonic() < limit, f"{path} is not there after {seconds} s"
        time.sleep(0.01)


def is_alone(started, seconds=MAX_SECONDS):
    """Whether the process, which has ended, leaves none behind."""
    limit = time.monotonic() + seconds
    while time.monotonic() < limit:
        try:
            os.killpg(started.pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    os.killpg(started.pid, signal.SIGKILL)
    return False


LONG = "--steps", 30, "--batch", 2, "--validate-every", 5, "--device", "cpu"


@pytest.fixture(scope="module")
def whole(data, tmp_path_factory):
    """A run that nobody interrupts."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["vrnet", "train", METHOD, *map(str, (*data, "--out", folder, *LONG))])
        cli.main()
    return folder


@pytest.mark.release
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_run_that_is_interrupted_goes_on_as_if_it_had_not_been(number, vrnet, data, whole, tmp_path):
    words = "train", METHOD, *data, "--out", tmp_path / "run", *LONG
    started = process(*words)
    wait_for(tmp_path / "run" / "metrics.csv", started)
    started.send_signal(number)
    out, err = started.communicate(timeout=MAX_SECONDS)
    assert started.returncode == 130, err
    assert "Traceback" not in err
    (line,) = [line for line in out.splitlines() if "--resume" in line]
    assert line.startswith("Stopped after ")
    assert "checkpoint.safetensors" in file_names(tmp_path / "run")
    assert is_alone(started)
    assert not same(tmp_path / "run", whole)
    status, _, err = vrnet(*words, "--resume")
    assert status == 0, err
    assert same(tmp_path / "run", whole)
    assert same(tmp_path / "run", whole, "weights.safetensors")
    assert (tmp_path / "run" / "metrics.csv").read_text() == (whole / "metrics.csv").read_text()


@pytest.mark.release
def test_two_processes_train_as_one_does(train, data, tmp_path):
    """Each process takes half of each batch; after four steps the weights agree, and so do the mean gradients."""
    words = "--steps", 4, "--batch", 4, "--validate-every", 2, "--rate", 1e-3, *EVERYTHING
    one, _ = train("one", *words)
    started = process("train", METHOD, *data, "--out", tmp_path / "two", *QUICK, *words, "--devices", 2)
    out, err = started.communicate(timeout=MAX_SECONDS)
    assert (started.returncode, "Traceback" in err) == (0, False), err
    assert is_alone(started)
    assert out.count("Best on validation") == 1, "one of them speaks"
    a, b = (load_file(folder / "checkpoint.safetensors") for folder in (one, tmp_path / "two"))
    assert a.keys() == b.keys()
    for name in a:
        if name.startswith("model."):
            torch.testing.assert_close(b[name], a[name], rtol=0, atol=1e-5)
        if name.endswith("exp_avg"):
            assert (b[name] - a[name]).norm() <= 1e-4 * a[name].norm()
    rows = [list(csv.DictReader((folder / "metrics.csv").open())) for folder in (one, tmp_path / "two")]
    for mine, yours in zip(*rows, strict=True):
        assert {key: float(value) for key, value in yours.items()} == pytest.approx(
            {key: float(value) for key, value in mine.items()}, rel=1e-4
        )


@pytest.mark.release
def test_two_processes_stop_together(data, tmp_path):
    words = "--out", tmp_path / "run", "--devices", 2, "--steps", 2000, "--batch", 2, "--validate-every", 5
    started = process("train", METHOD, *data, *words, "--device", "cpu")
    wait_for(tmp_path / "run" / "metrics.csv", started)
    started.terminate()
    out, err = started.communicate(timeout=MAX_SECONDS)
    assert (started.returncode, "Traceback" in err) == (130, False), err
    assert out.count("--resume") == 1
    assert is_alone(started)
    assert load_file(tmp_path / "run" / "checkpoint.safetensors")


# `vrnet prepare`; a run on its file is the run on the folder: see above.


def test_a_pack_holds_the_splits_there_are(vrnet, hearts, tmp_path):
    lines = hearts.read_text().splitlines()
    (hearts.parent / "two.csv").write_text("\n".join(lines[:-1]))
    words = "--data", "manifest", "--root", hearts.parent / "two.csv", "--cache", tmp_path, "--out"
    status, out, err = vrnet("prepare", *words, tmp_path / "two.npz")
    assert status == 0, err
    assert "test: " not in out
    status, _, err = vrnet("evaluate", "identity", "--data", tmp_path / "two.npz", "--out", tmp_path / "out")
    assert status == 2
    assert "holds no split test for evaluation: it holds train (for training), val (for evaluation)" in err


# benchmarks/template.py, whose weights every command takes.


@pytest.fixture(scope="module")
def made(data, tmp_path_factory):
    """The folder of a template of three hearts, made once."""
    folder = tmp_path_factory.mktemp("template") / "t"
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(StringIO()):
        patch.setattr(
            sys, "argv", ["template.py", *map(str, (*data[:4], "--out", folder)), "--rounds=1", "--device=cpu"]
        )
        template.main()
    return folder


def test_a_template_is_a_method_an_image_and_a_picture(made):
    assert file_names(made) == {"weights.safetensors", "template.nii.gz", "template.png", "config.json"}
    card = read_card(made / "weights.safetensors")
    assert card.trained_on == "manifest, train: 3 subjects, 1 round"
    image = read_image(made / "template.nii.gz")
    assert image.grid.spacing == card.spacing_mm
    (template, weight), shape = load_file(made / "weights.safetensors").values(), image.grid.shape
    assert {template.dtype, weight.dtype} == {torch.float16}
    np.testing.assert_allclose(image.array, template[0, 0].float(), atol=1e-3)
    middle = [o + h * (n - 1) / 2 for o, h, n in zip(image.grid.origin, image.grid.spacing, shape, strict=True)]
    assert middle == pytest.approx([0] * len(shape), abs=1e-5)
    found = read_json(made / "config.json")
    assert (found["subjects"], found["split"], found["rounds"]) == (["heart0", "heart1", "heart2"], "train", 1)


@pytest.mark.release
def test_register_evaluate_and_methods_take_it(made, vrnet, hearts, data, tmp_path):
    weights = "--weights", made / "weights.safetensors"
    fixed, moving = (hearts.parent / f"4_{part}.nii.gz" for part in ("fixed", "moving"))
    assert vrnet("register", fixed, moving, "--out", tmp_path / "r", *weights)[0] in (0, 3)
    status, _, err = vrnet("evaluate", "default", *data, "--split", "test", "--out", tmp_path / "e", *weights)
    assert status == 0, err
    status, out, _ = vrnet("methods", made / "weights.safetensors")
    assert (status, "Template-32x32" in out) == (0, True)


def test_a_template_is_not_averaged_over_flips(made, vrnet, hearts, tmp_path):
    fixed, moving = (hearts.parent / f"4_{part}.nii.gz" for part in ("fixed", "moving"))
    words = "--weights", made / "weights.safetensors", "--average"
    status, _, err = vrnet("register", fixed, moving, "--out", tmp_path / "r", *words)
    assert (status, "flips" in err) == (2, True)


ANATOMY = "--channels", "anatomy", "--segmenter-steps", 1


@pytest.mark.release
def test_channels_are_cross_fitted_kept_and_used_again(train, vrnet, data, hearts, tmp_path):
    folder, out = train("run", *ANATOMY, method="P-L2-w2")
    assert "Wrote weights.safetensors, segmenter.safetensors, metrics.csv" in out
    assert file_names(folder) == RUN | {"anatomy", "segmenter.safetensors"}
    assert file_names(folder / "anatomy") == {"0", "1", "all", "probabilities.npz"}
    assert config(folder)["method"] == "P-L2-c3-w2"
    assert config(folder)["channels"] == "anatomy (cross-fitted)"
    halves = [config(folder / "anatomy" / part)["subjects"]["train"] for part in "01"]
    assert halves == [["heart0", "heart2"], ["heart1"]]
    card = read_card(folder / "weights.safetensors")
    assert (card.channels, card.segmenter, card.cross_fitted) == ("anatomy", "segmenter.safetensors", True)
    kept = {path: path.read_bytes() for path in folder.rglob("*.safetensors")}
    train("run", *ANATOMY, "--resume", method="P-L2-w2")
    assert kept == {path: path.read_bytes() for path in folder.rglob("*.safetensors")}

    again, _ = train("again", *ANATOMY[:2], "--segmenters", folder / "anatomy", method="P-L2-w2")
    assert same(folder, again)


@pytest.mark.release
def test_two_processes_share_channels(train, data, tmp_path):
    """They cross-fit together; with the same segmenters, whose batches they normalise apart, they train as one does."""
    started = process("train", "P-L2-w2", *data, "--out", tmp_path / "two", *QUICK, *ANATOMY, "--devices", 2)
    out, err = started.communicate(timeout=MAX_SECONDS)
    assert (started.returncode, "Traceback" in err) == (0, False), err
    assert out.count("Best on validation") == 1
    one, _ = train("one", *ANATOMY[:2], "--segmenters", tmp_path / "two" / "anatomy", method="P-L2-w2")
    a, b = (load_file(folder / "checkpoint.safetensors") for folder in (one, tmp_path / "two"))
    for name in a:
        torch.testing.assert_close(b[name], a[name], rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    ("method", "words", "answer"),
    [
        ("VoxelMorph-w2", ("--channels", "anatomy"), "VoxelMorph-w2 takes no further channels"),
        ("P-L2-c3-w2", (), "takes images with 3 further channels, and these have 0"),
        ("P-L2-w2", ("--segmenters", "runs"), "--segmenters"),
        ("P-L2-w2", ("--channels", "anatomy", "--segmenters", "nowhere"), "there is no nowhere"),
    ],
)
def test_channels_that_cannot_be_are_refused_before_anything_is_written(vrnet, data, tmp_path, method, words, answer):
    status, _, err = vrnet("train", method, *data, "--out", tmp_path / "run", *QUICK, *words)
    assert (status, answer in err) == (2, True), err
    assert not (tmp_path / "run").exists()
