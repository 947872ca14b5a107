import csv
import json
import os
import subprocess
import sys

import numpy as np
import pytest
import SimpleITK as sitk
from numpy.testing import assert_allclose

from tests.data.test_acdc import root  # noqa: F401
from tests.models import saved
from vrnet import Grid, Image, Transform, __version__, names, read_image, write_image
from vrnet.methods.learned import FAMILIES
from vrnet.phantom import phantom

RESULTS = {"warped.nii.gz", "transform.nii.gz", "metrics.json"}
PAGES = {"report.html", "overview.png"}
METRICS = {
    "method",
    "weights",
    "device",
    "seconds",
    "slice_by_slice",
    "shape",
    "spacing_mm",
    "similarity",
    "folding_percent",
    "folding_strict_percent",
    "jacobian_gradient",
}
OVERLAPS = {"dice", "hausdorff_mm", "surface_hausdorff_mm", "hausdorff95_mm", "mean_surface_distance_mm"}


@pytest.fixture(scope="session")
def files(tmp_path_factory):
    """A folder with a phantom's images and labels, and a transform: fixed.nii.gz and so on."""
    folder, patient = tmp_path_factory.mktemp("files"), phantom(3, (64, 64), 4.0)
    grid = Grid((64, 64), (4.0, 4.0), (-50.0, 20.0), (0.8, -0.6, 0.6, 0.8))
    for name in ("fixed", "moving", "fixed_labels", "moving_labels"):
        write_image(Image(getattr(patient, name)[0, 0].numpy(), grid), folder / f"{name}.nii.gz")
    Transform.from_voxels(patient.field[0].numpy(), grid).save(folder / "true.nii.gz")
    return folder


@pytest.fixture
def register(vrnet, files, tmp_path):
    """register("--report") gives (folder, stdout) of a run on the files."""

    def run(*words):
        status, out, err = vrnet(
            "register", files / "fixed.nii.gz", files / "moving.nii.gz", "--out", tmp_path / "out", *words
        )
        assert status == 0, err
        return tmp_path / "out", out

    return run


def contents(folder):
    return {path.name for path in folder.iterdir()}


def test_register_writes_the_documented_files_and_no_other(register):
    folder, out = register()
    assert contents(folder) == RESULTS
    assert set(json.loads((folder / "metrics.json").read_text())) == METRICS
    assert all(name in out for name in RESULTS)


def test_register_with_labels_and_a_report_writes_those_too(register, files):
    labels = "--fixed-labels", files / "fixed_labels.nii.gz", "--moving-labels", files / "moving_labels.nii.gz"
    folder, out = register(*labels, "--report")
    assert contents(folder) == RESULTS | PAGES | {"warped_labels.nii.gz"}
    metrics = json.loads((folder / "metrics.json").read_text())
    assert set(metrics) == METRICS | OVERLAPS
    assert set(metrics["similarity"]) == {"mae_before", "mae_after", "ncc_before", "ncc_after"}
    for measure in OVERLAPS:
        assert set(metrics[measure]) == {"before", "after"}
        assert set(metrics[measure]["before"]) == set(metrics[measure]["after"]) == {"1", "2", "3", "mean"}
    assert metrics["dice"]["after"]["mean"] > metrics["dice"]["before"]["mean"] + 0.1
    assert f"{metrics['dice']['after']['mean']:.3f}" in out
    assert (metrics["shape"], metrics["spacing_mm"]) == ([64, 64], pytest.approx([4, 4]))
    assert read_image(folder / "warped_labels.nii.gz").array.dtype == read_image(labels[3]).array.dtype


def test_what_an_earlier_run_left_is_gone(register, files):
    folder, _ = register("--moving-labels", files / "moving_labels.nii.gz", "--report")
    (folder / "mine.txt").write_text("kept")
    register()
    assert contents(folder) == RESULTS | {"mine.txt"}


def test_a_label_that_cannot_be_measured_is_null(register, files, tmp_path):
    labels = read_image(files / "fixed_labels.nii.gz")
    write_image(labels.with_array(np.where(labels.array == 1, 9, labels.array)), tmp_path / "other.nii.gz")
    folder, _ = register("--fixed-labels", tmp_path / "other.nii.gz", "--moving-labels", files / "moving_labels.nii.gz")
    distances = json.loads((folder / "metrics.json").read_text())["hausdorff_mm"]["after"]
    assert distances["1"] is None
    assert distances["9"] is None
    assert distances["mean"] > 0


def test_evaluate_measures_what_register_measured(register, vrnet, files, tmp_path):
    labels = "--fixed-labels", files / "fixed_labels.nii.gz", "--moving-labels", files / "moving_labels.nii.gz"
    folder, _ = register(*labels)
    pair = "--fixed", files / "fixed.nii.gz", "--moving", files / "moving.nii.gz"
    ours = json.loads((folder / "metrics.json").read_text())
    for what in (folder / "transform.nii.gz", "default", "short-axis"):
        assert vrnet("evaluate", what, *pair, *labels, "--out", tmp_path / "m.json")[0] == 0
        theirs = json.loads((tmp_path / "m.json").read_text())
        for key in OVERLAPS | {"similarity"}:
            flat = [part if isinstance(part, dict) else {"": part} for part in ours[key].values()]
            other = [part if isinstance(part, dict) else {"": part} for part in theirs[key].values()]
            for a, b in zip(flat, other, strict=True):
                assert a == pytest.approx(b, abs=1e-3)
    assert vrnet("evaluate", "identity", *pair, *labels, "--out", tmp_path / "m.json")[0] == 0
    nothing = json.loads((tmp_path / "m.json").read_text())
    assert nothing["dice"]["before"] == nothing["dice"]["after"] == pytest.approx(ours["dice"]["before"])


def test_evaluate_measures_landmarks(vrnet, files, tmp_path):
    """The true motion takes landmarks to their targets; no motion leaves them as far as they were."""
    true, x = Transform.load(files / "true.nii.gz"), np.argwhere(read_image(files / "fixed_labels.nii.gz").array == 2)
    x = true.grid.points(x[::20].astype(float))
    for name, values in (("fixed", x), ("moving", true.points(x))):
        rows = [["name", "X", "Y"], *([f"p{i}", *row] for i, row in enumerate(-values))]
        with (tmp_path / f"{name}.csv").open("w", newline="") as file:
            csv.writer(file).writerows(rows)
    pair = "--fixed", files / "fixed.nii.gz", "--moving", files / "moving.nii.gz"
    points = "--fixed-points", tmp_path / "fixed.csv", "--moving-points", tmp_path / "moving.csv", "--space", "RAS"
    status, out, err = vrnet("evaluate", files / "true.nii.gz", *pair, *points, "--out", tmp_path / "m.json")
    assert status == 0, err
    error = json.loads((tmp_path / "m.json").read_text())["target_registration_error_mm"]
    assert_allclose(error["before"], np.linalg.norm(true.points(x) - x, axis=1).mean(), rtol=1e-5)
    assert error["after"] < 1e-3 < 1 < error["before"]
    assert "Target registration error" in out


def test_apply_brings_moving_and_its_labels_to_fixed(register, vrnet, files, tmp_path):
    folder, _ = register("--moving-labels", files / "moving_labels.nii.gz")
    for words, name in (((), "moving"), (("--labels",), "moving_labels")):
        out = tmp_path / f"{name}.mha"
        applied = "apply", folder / "transform.nii.gz", files / f"{name}.nii.gz"
        assert vrnet(*applied, "--reference", files / "fixed.nii.gz", "--out", out, *words)[0] == 0
        expected = read_image(folder / f"{name.replace('moving', 'warped')}.nii.gz").array
        assert_allclose(read_image(out).array, expected, atol=1e-3)
        assert read_image(out).array.dtype == expected.dtype


@pytest.mark.parametrize("words", [("--labels", "--smooth"), ("--interpolation", "bspline")])
def test_apply_has_other_interpolations(vrnet, files, tmp_path, words):
    moving = files / ("moving_labels.nii.gz" if "--labels" in words else "moving.nii.gz")
    words = *words, "--reference", files / "fixed.nii.gz", "--out", tmp_path / "out.nrrd"
    assert vrnet("apply", files / "true.nii.gz", moving, *words)[0] == 0
    transform, image = Transform.load(files / "true.nii.gz"), read_image(moving)
    expected = (
        transform.apply_labels(image, smooth=True)
        if "--labels" in words
        else transform.apply(image, interpolation="bspline")
    )
    assert_allclose(read_image(tmp_path / "out.nrrd").array, expected.array, atol=1e-5)


def test_invert_says_how_exact_it_is(vrnet, files, tmp_path):
    status, out, _ = vrnet("invert", files / "true.nii.gz", "--out", tmp_path / "back.h5")
    assert status == 0
    there, back = Transform.load(files / "true.nii.gz"), Transform.load(tmp_path / "back.h5")
    x = there.grid.points(np.argwhere(np.ones((40, 40))) + 12.0)
    error = np.linalg.norm(there.points(back.points(x)) - x, axis=1)
    assert np.median(error) < 0.1
    assert "half of the points end within 0.0" in out


def test_points_go_where_simpleitk_takes_them(vrnet, files, tmp_path):
    (tmp_path / "in.csv").write_text("label,x,y\napex,-20,120\nbase,30.5,140\n")
    status, out, _ = vrnet("points", files / "true.nii.gz", tmp_path / "in.csv", "--out", tmp_path / "out.csv")
    assert status == 0
    assert "2 points in LPS" in out
    transform = sitk.DisplacementFieldTransform(sitk.ReadImage(str(files / "true.nii.gz"), sitk.sitkVectorFloat64))
    rows = list(csv.DictReader((tmp_path / "out.csv").open()))
    for row, point in zip(rows, [(-20.0, 120.0), (30.5, 140.0)], strict=True):
        assert_allclose([float(row["x"]), float(row["y"])], transform.TransformPoint(point), atol=1e-3)
    assert [row["label"] for row in rows] == ["apex", "base"]


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """(folder, process): `vrnet demo` as a process of its own, in an empty folder."""
    folder = tmp_path_factory.mktemp("demo")
    command = [sys.executable, "-m", "vrnet.app.cli", "demo", "--out", "out"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "100"}
    process = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True)
    return folder / "out", process


def test_demo_writes_what_register_writes_and_the_images(demo):
    folder, _ = demo
    images = {"fixed.nii.gz", "moving.nii.gz", "fixed_labels.nii.gz", "moving_labels.nii.gz"}
    assert contents(folder) == RESULTS | PAGES | images | {"warped_labels.nii.gz"}
    assert all(path.stat().st_size > 0 for path in folder.iterdir())
    assert list(folder.parent.iterdir()) == [folder]


def test_demo_shows_its_progress_apart_from_its_results(demo):
    folder, process = demo
    metrics = json.loads((folder / "metrics.json").read_text())
    assert "100%" in process.stderr
    assert "100%" not in process.stdout
    for label, name in (("3", "LV"), ("2", "Myo"), ("1", "RV"), ("mean", "mean")):
        (line,) = [line for line in process.stdout.splitlines() if f"Dice {name} " in line.replace(",", "")]
        assert [f"{metrics['dice'][when][label]:.3f}" in line for when in ("before", "after")] == [True, True]
    assert "Look at out/report.html" in process.stdout
    assert "Distance from the true motion" in process.stdout


def test_methods_lists_every_name_with_what_it_is(vrnet):
    status, out, err = vrnet("methods")
    assert (status, err) == (0, "")
    listed = {line.split()[0]: line for line in out.splitlines()[1:] if line.strip()}
    assert {*names(), *FAMILIES} <= set(listed)
    assert listed["TV-L1"].rstrip().endswith("yes")
    assert all(listed[family].rstrip().endswith("with --weights FILE") for family in FAMILIES)
    assert "vrnet train" in out


def test_the_version_is_printed(vrnet):
    assert vrnet("--version") == (0, f"vrnet {__version__}\n", "")


COMMANDS = ("register", "demo", "apply", "invert", "points", "evaluate", "prepare", "train", "methods")


def test_help_names_the_commands(vrnet):
    status, out, _ = vrnet("--help")
    assert status == 0
    assert all(command in out for command in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command_explains_its_options(vrnet, command):
    status, out, _ = vrnet(command, "--help")
    assert status == 0
    assert len(out.splitlines()) > 3
    assert "None" not in out


@pytest.mark.parametrize("words", [(), ("regster",), ("demo", "--seed", "many"), ("demo", "--nonsense")])
def test_a_command_that_makes_no_sense_has_status_2(vrnet, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    status, _, err = vrnet(*words)
    assert status == 2
    assert err
    assert not list(tmp_path.iterdir())


def test_a_folder_with_brackets_in_its_name_is_named_as_it_is(vrnet, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    status, out, _ = vrnet("demo", "--out", "run[red]", "--method", "Gaussian-L1")
    assert status == 0
    assert "Look at run[red]/report.html" in out


def test_points_may_be_given_in_ras(vrnet, files, tmp_path):
    """The same points with x and y of the other sign go to the same places, with x and y of the other sign."""
    for space, sign in (("LPS", 1), ("RAS", -1)):
        (tmp_path / f"{space}.csv").write_text(f"x,y\n{-20 * sign},{120 * sign}\n")
        assert vrnet("points", files / "true.nii.gz", tmp_path / f"{space}.csv", "--out", tmp_path / f"{space}o.csv",
                     "--space", space)[0] == 0  # fmt: skip
    lps, ras = (next(csv.DictReader((tmp_path / f"{space}o.csv").open())) for space in ("LPS", "RAS"))
    assert_allclose([float(ras[axis]) for axis in "xy"], [-float(lps[axis]) for axis in "xy"])
    assert float(lps["x"]) != -20


def test_points_that_did_not_move_are_mentioned_and_affine_transforms_need_no_grid(vrnet, files, tmp_path):
    (tmp_path / "in.csv").write_text("x,y\n9999,120\n-20,120\n")
    _, out, _ = vrnet("points", files / "true.nii.gz", tmp_path / "in.csv", "--out", tmp_path / "out.csv")
    assert "1 of them did not move" in out
    affine = sitk.AffineTransform(2)
    affine.Translate((3.0, -4.0))
    sitk.WriteTransform(affine, str(tmp_path / "a.tfm"))
    assert vrnet("points", tmp_path / "a.tfm", tmp_path / "in.csv", "--out", tmp_path / "out.csv")[0] == 0
    assert next(csv.DictReader((tmp_path / "out.csv").open()))["x"] == "10002.000000"


def test_invert_may_take_the_grid_of_moving(vrnet, files, tmp_path):
    small = Grid((20, 24), (5.0, 5.0), (0.0, 90.0), (1.0, 0.0, 0.0, 1.0))
    write_image(Image(np.zeros(small.shape, np.float32), small), tmp_path / "small.nii.gz")
    words = "--reference", tmp_path / "small.nii.gz", "--out", tmp_path / "back.mha"
    assert vrnet("invert", files / "true.nii.gz", *words)[0] == 0
    assert Transform.load(tmp_path / "back.mha").grid.matches(small)


def test_slices_can_be_told_to_go_together(vrnet, tmp_path):
    rng = np.random.default_rng(0)
    for name in ("a", "b"):
        image = Image(rng.random((24, 20, 5)).astype(np.float32), Grid.plain((24, 20, 5), (1.0, 1.0, 9.0)), name)
        write_image(image, tmp_path / f"{name}.nii.gz")
    for slices, expected in (("auto", True), ("together", False), ("each", True)):
        pair = tmp_path / "a.nii.gz", tmp_path / "b.nii.gz"
        assert vrnet("register", *pair, "--out", tmp_path / "out", "--slices", slices)[0] == 0
        assert json.loads((tmp_path / "out" / "metrics.json").read_text())["slice_by_slice"] == expected


def test_identity_changes_nothing_on_any_grids(vrnet, files, tmp_path):
    """Moving on a coarser, shifted grid: before and after are measured alike."""
    moving = read_image(files / "moving.nii.gz")
    write_image(Image(moving.array[4:50:2, :40:2], Grid((23, 20), (8.0, 8.0), (-30.0, 25.0), moving.grid.direction)),
                tmp_path / "other.nii.gz")  # fmt: skip
    pair = "--fixed", files / "fixed.nii.gz", "--moving", tmp_path / "other.nii.gz"
    status, out, _ = vrnet("evaluate", "identity", *pair, "--out", tmp_path / "m.json")
    assert status == 0
    alike = json.loads((tmp_path / "m.json").read_text())["similarity"]
    assert alike["mae_before"] == pytest.approx(alike["mae_after"], rel=1e-3)
    assert alike["ncc_before"] == pytest.approx(alike["ncc_after"], abs=1e-3)
    assert "covers" in out


def test_evaluate_brings_a_transform_on_another_grid_to_fixed(vrnet, files, tmp_path):
    """The true motion sampled more finely has the folding and the Dice that it has on its own grid."""
    true = Transform.load(files / "true.nii.gz")
    fine = Grid((127, 127), (2.0, 2.0), true.grid.origin, true.grid.direction)
    true.on(fine).save(tmp_path / "fine.nii.gz")
    labels = "--fixed-labels", files / "fixed_labels.nii.gz", "--moving-labels", files / "moving_labels.nii.gz"
    pair = "--fixed", files / "fixed.nii.gz", "--moving", files / "moving.nii.gz", *labels
    found = []
    for name in (files / "true.nii.gz", tmp_path / "fine.nii.gz"):
        assert vrnet("evaluate", name, *pair, "--out", tmp_path / "m.json")[0] == 0
        found.append(json.loads((tmp_path / "m.json").read_text()))
    assert found[0]["dice"]["after"]["mean"] == pytest.approx(found[1]["dice"]["after"]["mean"], abs=0.02)
    assert found[0]["jacobian_gradient"] == pytest.approx(found[1]["jacobian_gradient"], rel=0.2)


def test_a_result_less_alike_and_labels_of_one_image_are_mentioned(vrnet, files, tmp_path):
    pair = "--fixed", files / "fixed.nii.gz", "--moving", files / "moving.nii.gz"
    back = Transform.load(files / "true.nii.gz")
    Transform(-3 * back.displacement, back.grid).save(tmp_path / "wrong.nii.gz")
    _, out, _ = vrnet("evaluate", tmp_path / "wrong.nii.gz", *pair, "--fixed-labels", files / "fixed_labels.nii.gz")
    assert "less alike after than before" in out
    assert "Labels of one image alone" in out


def test_names_in_brackets_are_shown_as_they_are(vrnet, files, tmp_path):
    folder = tmp_path / "d[/b]"
    Transform.load(files / "true.nii.gz").save(folder / "t.nii.gz")
    pair = "--fixed", files / "fixed.nii.gz", "--moving", files / "moving.nii.gz"
    status, out, _ = vrnet("evaluate", folder / "t.nii.gz", *pair)
    assert status == 0
    assert "[/b]" in out


def test_interrupting_ends_in_one_line(vrnet, files, tmp_path, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("vrnet.app.pair.register_images", interrupted)
    status, _, err = vrnet("register", files / "fixed.nii.gz", files / "moving.nii.gz", "--out", tmp_path / "out")
    assert status == 130
    assert err.strip() == "vrnet: interrupted; nothing is half-written"
    assert not list(tmp_path.iterdir())


def test_evaluate_measures_a_data_set(vrnet, tmp_path, data_root):
    words = "--data", "acdc", "--root", data_root / "acdc", "--split", "val", "--out", tmp_path / "out"
    status, out, err = vrnet("evaluate", "identity", *words)
    assert status == 0, err
    assert "identity on 10 subjects (acdc, val)" in out
    assert contents(tmp_path / "out") == {"metrics.csv", "summary.json"}


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        ((), "give --fixed and --moving, or --data"),
        (("--data", "acdc"), "give --out"),
        (("--data", "acdc", "--out", "out"), "name it with --root"),
        (("--data", "acdc", "--fixed", "a.nii"), "cannot be evaluated at once"),
        (("--data", "pairs.csv", "--out", "out"), "give --data manifest --root pairs.csv"),
        (("--data", "runs", "--out", "out"), "name the folder with --root runs, and what it holds with --data, one of"),
        (("--data", "phantom", "--out", "out", "--weights", "runs"), "runs is a folder: if it is that of a run, give"),
    ],
)
def test_evaluate_says_what_it_misses(vrnet, words, answer, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    status, _, err = vrnet("evaluate", *words)
    assert status == 2
    assert answer in err


def test_weights_are_a_method_of_their_own(register, vrnet, files, tmp_path):
    """By register, with and without the name, and by evaluate, under the name or as the default."""
    weights = "--weights", saved(tmp_path, "VoxelMorph-w2")
    pair = "--fixed", files / "fixed.nii.gz", "--moving", files / "moving.nii.gz"
    found = []
    for words in ((), ("--method", "voxelmorph-w2")):
        folder, _ = register(*weights, *words)
        found.append(json.loads((folder / "metrics.json").read_text()))
    for name in ("default", "VoxelMorph-w2"):
        status, out, err = vrnet("evaluate", name, *pair, *weights, "--out", tmp_path / "m.json")
        assert status == 0, err
        assert "VoxelMorph-w2" in out
        found.append(json.loads((tmp_path / "m.json").read_text()))
    for metrics in found:
        assert (metrics["method"], metrics["weights"]) == ("VoxelMorph-w2", "m.safetensors")
        assert metrics["similarity"] == pytest.approx(found[0]["similarity"], rel=1e-5)
    assert found[0]["similarity"]["mae_after"] != found[0]["similarity"]["mae_before"]


def test_weights_are_measured_on_a_data_set(vrnet, tmp_path, root):  # noqa: F811
    words = "--data", "acdc", "--root", root, "--out", tmp_path / "out"
    status, out, err = vrnet("evaluate", *words, "--weights", saved(tmp_path))
    assert status == 0, err
    assert "C-L2-2x1-w2 on 1 subjects (acdc, test)" in out
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["weights"] == "m.safetensors"


def test_the_demonstration_takes_weights(vrnet, tmp_path):
    status, _, err = vrnet("demo", "--out", tmp_path / "out", "--weights", saved(tmp_path))
    assert status == 0, err
    assert json.loads((tmp_path / "out" / "metrics.json").read_text())["weights"] == "m.safetensors"
