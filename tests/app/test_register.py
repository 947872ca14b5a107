"""`vrnet register`, `vrnet demo` and `vrnet report`: what they write, say and refuse."""

import re
from dataclasses import replace

import numpy as np
import pytest
import SimpleITK as sitk
from numpy.testing import assert_allclose
from scipy import ndimage
from scipy.spatial.transform import Rotation

from tests.app.outputs import METRICS, OVERLAPS, PAGES, RESULTS, file_names, read_json
from tests.models import saved
from tests.phantoms import phantom
from vrnet import Grid, Image, Transform, __version__, read_image, write_image
from vrnet.provenance import commit, versions


def test_register_writes_the_documented_files_and_no_other(register):
    folder, out = register()
    assert file_names(folder) == RESULTS
    assert set(read_json(folder / "metrics.json")) == METRICS
    assert all(name in out for name in RESULTS)


@pytest.mark.release
def test_register_with_labels_and_a_report_writes_those_too(register, files):
    labels = "--fixed-labels", files / "fixed_labels.nii.gz", "--moving-labels", files / "moving_labels.nii.gz"
    folder, out = register(*labels, "--report")
    assert file_names(folder) == RESULTS | PAGES | {"warped_labels.nii.gz"}
    metrics = read_json(folder / "metrics.json")
    assert set(metrics) == METRICS | OVERLAPS | {"heart"}
    assert set(metrics["similarity"]) == {"mae_before", "mae_after", "ncc_before", "ncc_after"}
    for measure in OVERLAPS:
        assert set(metrics[measure]) == {"before", "after"}
        assert set(metrics[measure]["before"]) == set(metrics[measure]["after"]) == {"1", "2", "3", "mean"}
    assert metrics["dice"]["after"]["mean"] > metrics["dice"]["before"]["mean"] + 0.1
    assert f"{metrics['dice']['after']['mean']:.3f}" in out
    assert (metrics["shape"], metrics["spacing_mm"]) == ([64, 64], pytest.approx([4, 4]))
    assert read_image(folder / "warped_labels.nii.gz").array.dtype == read_image(labels[3]).array.dtype


@pytest.mark.release
def test_an_average_is_named_and_another_field(register):
    fields = []
    for words in ((), ("--average",)):
        folder, _ = register(*words)
        name = f"short-axis{'+average' if words else ''}"
        assert read_json(folder / "metrics.json")["method"] == name
        fields.append(Transform.load(folder / "transform.nii.gz").in_voxels())
    assert 0.01 < np.abs(fields[0] - fields[1]).max() < 5


def test_an_affine_start_is_written_on_its_own_and_is_part_of_the_transform(register, vrnet, files, tmp_path):
    folder, out = register("--affine", "rigid", "--method", "identity")
    assert file_names(folder) == RESULTS | {"affine.tfm"}
    assert "affine.tfm" in out
    start, whole = sitk.ReadTransform(str(folder / "affine.tfm")), Transform.load(folder / "transform.nii.gz")
    point = whole.grid.points(np.array([[30.0, 31.0]]))
    assert_allclose(whole.points(point)[0], start.TransformPoint(point[0].tolist()), atol=1e-3)
    affine = read_json(folder / "metrics.json")["affine"]
    assert set(affine) == {"kind", "rotation_deg", "translation_mm", "scale"}
    assert (affine["kind"], affine["scale"]) == ("rigid", pytest.approx(1))
    register()
    assert file_names(folder) == RESULTS, "it goes with the run that it is of"
    assert read_json(folder / "metrics.json")["affine"] is None


@pytest.mark.release
def test_images_far_apart_are_registered_given_an_affine_start(vrnet, files, tmp_path):
    moving = read_image(files / "moving.nii.gz")
    write_image(replace(moving, grid=replace(moving.grid, origin=(7e3, 0.0))), tmp_path / "away.nii.gz")
    words = "register", files / "fixed.nii.gz", tmp_path / "away.nii.gz", "--out", tmp_path / "out"
    status, _, err = vrnet(*words)
    assert status == 2
    assert "do not overlap in space: check their headers, or ask for --affine rigid" in err
    status, _, err = vrnet(*words, "--affine", "rigid", "--report")
    assert status == 0, err
    alike = read_json(tmp_path / "out" / "metrics.json")["similarity"]
    assert alike["ncc_before"] is None
    assert alike["ncc_after"] > 0.9
    pair = "--fixed", files / "fixed.nii.gz", "--moving", tmp_path / "away.nii.gz"
    status, _, err = vrnet("evaluate", tmp_path / "out" / "transform.nii.gz", *pair)
    assert status == 0, err


def test_little_overlap_suggests_an_affine_start(vrnet, files, tmp_path):
    moving = read_image(files / "moving.nii.gz")
    corner = moving.grid.points(np.array([[40.0, 0.0]]))[0].tolist()
    write_image(replace(moving, grid=replace(moving.grid, origin=tuple(corner))), tmp_path / "beside.nii.gz")
    words = "register", files / "fixed.nii.gz", tmp_path / "beside.nii.gz", "--out", tmp_path / "out"
    assert "try --affine rigid" in vrnet(*words)[1]
    pair = "--fixed", files / "fixed.nii.gz", "--moving", tmp_path / "beside.nii.gz"
    assert "try vrnet register --affine rigid" in vrnet("evaluate", "TV-L1", *pair)[1]


def test_what_moving_covers_is_said_to_be_after_the_affine_start(vrnet, files, tmp_path):
    moving = read_image(files / "moving.nii.gz")
    half = Image(moving.array[:, 32:], replace(moving.grid, shape=(64, 32)))
    write_image(half, tmp_path / "half.nii.gz")
    words = "register", files / "fixed.nii.gz", tmp_path / "half.nii.gz", "--method", "identity"
    said = vrnet(*words, "--affine", "rigid", "--out", tmp_path / "a")[1]
    assert re.search(r"half.nii.gz covers \d+ % of fixed.nii.gz, after the rigid start: elsewhere", said)
    assert "headers' fault" not in said
    assert "% of fixed.nii.gz: elsewhere" in vrnet(*words, "--out", tmp_path / "b")[1]


@pytest.mark.release
def test_structures_have_names_wherever_they_are_shown_and_numbers_where_programs_read(register, files):
    labels = "--fixed-labels", files / "fixed_labels.nii.gz", "--moving-labels", files / "moving_labels.nii.gz"
    folder, out = register(*labels, "--label-names", "1=right,2=wall,3=left", "--report")
    metrics = read_json(folder / "metrics.json")
    assert metrics["label_names"] == {"1": "right", "2": "wall", "3": "left"}
    assert set(metrics["dice"]["after"]) == {"1", "2", "3", "mean"}
    assert all(f"Dice {name}" in out for name in ("right", "wall", "left"))
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert all(f"</i>{name}</" in page for name in ("right", "wall", "left"))
    assert "label_names" not in read_json(register(*labels)[0] / "metrics.json")


@pytest.mark.parametrize(
    ("given", "said"), [("1=RV,4=LA", "no voxel has the label 4"), ("RV", "give them as 1=RV,2=Myo,3=LV"), (None, "")]
)
def test_names_that_name_nothing_end_in_one_line(vrnet, files, tmp_path, given, said):
    """Also names without labels, which would be names of nothing."""
    images = files / "fixed.nii.gz", files / "moving.nii.gz"
    labels = "--fixed-labels", files / "fixed_labels.nii.gz", "--moving-labels", files / "moving_labels.nii.gz"
    words = (*labels, "--label-names", given) if given else ("--label-names", "acdc")
    status, _, err = vrnet("register", *images, *words, "--out", tmp_path / "out")
    assert status == 2
    assert (said or "give --fixed-labels and --moving-labels too") in err
    assert len(err.strip().splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_a_transform_has_the_same_measures_from_register_and_from_evaluate(vrnet, tmp_path):
    """Slices registered one by one in an oblique stack: the file alone says that nothing moves across them."""
    patient, direction = phantom(3, (40, 40, 6), 4.0), Rotation.from_euler("zyx", [0.5, 0.4, -0.3]).as_matrix()
    grid = Grid((40, 40, 6), (4.0, 4.0, 12.0), (5.0, 6.0, 7.0), tuple(direction.ravel().tolist()))
    files = tmp_path / "a.nii.gz", tmp_path / "b.nii.gz"
    for image, file in zip((patient.fixed, patient.moving), files, strict=True):
        write_image(Image(image[0, 0].numpy(), grid), file)
    assert vrnet("register", *files, "--method", "TV-L1", "--out", tmp_path / "out")[0] == 0
    words = "--fixed", files[0], "--moving", files[1], "--out", tmp_path / "again.json"
    assert vrnet("evaluate", tmp_path / "out" / "transform.nii.gz", *words)[0] == 0
    once, again = (read_json(path) for path in (tmp_path / "out" / "metrics.json", tmp_path / "again.json"))
    assert once["slice_by_slice"]
    for name in ("folding_percent", "jacobian_gradient"):
        assert_allclose(again[name], once[name], rtol=1e-3, atol=1e-3)
    assert once["jacobian_gradient"] > 0


def test_after_matching_differences_are_those_of_matched_intensities(register, files, tmp_path, vrnet):
    """Moving ten times as bright: what is left is as if it had not been."""
    bright = read_image(files / "moving.nii.gz")
    write_image(bright.with_array(10 * bright.array), tmp_path / "bright.nii.gz")
    scores = []
    for moving in (files / "moving.nii.gz", tmp_path / "bright.nii.gz"):
        words = "--method", "TV-L1", "--match-intensities", "--out", tmp_path / moving.name.partition(".")[0]
        assert vrnet("register", files / "fixed.nii.gz", moving, *words)[0] == 0
        scores.append(read_json(tmp_path / moving.name.partition(".")[0] / "metrics.json"))
    assert scores[1]["intensities_matched"]
    assert_allclose(scores[1]["similarity"]["mae_before"], scores[0]["similarity"]["mae_before"], rtol=0.01)
    assert_allclose(scores[1]["similarity"]["mae_after"], scores[0]["similarity"]["mae_after"], rtol=0.05)
    assert read_image(tmp_path / "bright" / "warped.nii.gz").array.max() > 5 * bright.array.max()


def test_masks_are_given_as_files_and_named_in_what_is_written(register, files):
    """Labels are masks: what is not zero is inside. Without them the result is another."""
    masks = "--fixed-mask", files / "fixed_labels.nii.gz", "--moving-mask", files / "moving_labels.nii.gz"
    folder, _ = register()
    plain = (folder / "transform.nii.gz").read_bytes()
    folder, out = register(*masks)
    metrics = read_json(folder / "metrics.json")
    assert set(metrics) == METRICS | {"masks", "mask_paths"}
    assert metrics["masks"] == {"fixed": "fixed_labels.nii.gz", "moving": "moving_labels.nii.gz"}
    assert metrics["mask_paths"] == {"fixed": str(masks[1]), "moving": str(masks[3])}
    assert "inside the masks" in " ".join(out.split())
    assert (folder / "transform.nii.gz").read_bytes() != plain
    assert file_names(folder) == RESULTS


@pytest.mark.release
def test_what_an_earlier_run_left_is_gone(register, files):
    folder, _ = register("--moving-labels", files / "moving_labels.nii.gz", "--report")
    (folder / "mine.txt").write_text("kept")
    register()
    assert file_names(folder) == RESULTS | {"mine.txt"}


def test_a_label_that_cannot_be_measured_is_null(register, files, tmp_path):
    labels = read_image(files / "fixed_labels.nii.gz")
    write_image(labels.with_array(np.where(labels.array == 1, 9, labels.array)), tmp_path / "other.nii.gz")
    folder, _ = register("--fixed-labels", tmp_path / "other.nii.gz", "--moving-labels", files / "moving_labels.nii.gz")
    distances = read_json(folder / "metrics.json")["hausdorff_mm"]["after"]
    assert distances["1"] is None
    assert distances["9"] is None
    assert distances["mean"] > 0


@pytest.mark.release
def test_slices_can_be_told_to_go_together(vrnet, tmp_path):
    rng = np.random.default_rng(0)
    for name in ("a", "b"):
        image = Image(rng.random((24, 20, 5)).astype(np.float32), Grid.plain((24, 20, 5), (1.0, 1.0, 9.0)), name)
        write_image(image, tmp_path / f"{name}.nii.gz")
    for slices, expected in (("auto", True), ("together", False), ("each", True)):
        pair = tmp_path / "a.nii.gz", tmp_path / "b.nii.gz"
        assert vrnet("register", *pair, "--out", tmp_path / "out", "--slices", slices)[0] == 3  # it is noise
        assert read_json(tmp_path / "out" / "metrics.json")["slice_by_slice"] == expected


@pytest.mark.release
def test_weights_are_a_method_of_their_own(register, vrnet, files, tmp_path):
    """By register, with and without the name, and by evaluate, under the name or as the default.

    The network is untrained, so that its registration fails."""
    weights = "--weights", saved(tmp_path, "VoxelMorph-w2")
    pair = "--fixed", files / "fixed.nii.gz", "--moving", files / "moving.nii.gz"
    found = []
    for words in ((), ("--method", "voxelmorph-w2")):
        folder, _ = register(*weights, *words, expected=3)
        found.append(read_json(folder / "metrics.json"))
    for name in ("default", "VoxelMorph-w2"):
        status, out, err = vrnet("evaluate", name, *pair, *weights, "--out", tmp_path / "m.json")
        assert status == 3, err
        assert "VoxelMorph-w2" in out
        found.append(read_json(tmp_path / "m.json"))
    for metrics in found:
        assert (metrics["method"], metrics["weights"]) == ("VoxelMorph-w2", "m.safetensors")
        assert metrics["similarity"] == pytest.approx(found[0]["similarity"], rel=1e-5)
    assert found[0]["similarity"]["mae_after"] != found[0]["similarity"]["mae_before"]


@pytest.mark.release
def test_parameters_can_be_set_and_are_in_the_name_that_results_carry(register):
    folder, out = register("--method", "TV-L1", "--set", "lam=0.15", "--set", "warps=2", "--report")
    name = "TV-L1(lam=0.15,warps=2)"
    assert read_json(folder / "metrics.json")["method"] == name
    assert name in out
    assert name in (folder / "report.html").read_text(encoding="utf-8")
    weaker, _ = register("--method", name)
    assert read_json(weaker / "metrics.json")["method"] == name


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (
            ("TV-L1", "--set", "weight=0.15"),
            'TV-L1 has no parameter "weight": it has finest_warps, fluid, iterations, lam,',
        ),
        (("TV-L1", "--set", "lam=much"), "lam of TV-L1 cannot be much: give a value such as"),
        (("TV-L1", "--set", "lam"), '"lam" sets no parameter: write NAME=VALUE'),
    ],
)
def test_what_cannot_be_set_is_refused_before_anything_is_read(vrnet, tmp_path, words, answer):
    status, _, err = vrnet("register", "a.nii", "b.nii", "--out", tmp_path / "out", "--method", *words)
    assert (status, answer in err) == (2, True), err
    assert not list(tmp_path.iterdir())


@pytest.mark.release
def test_a_failed_registration_writes_everything_says_why_and_ends_with_status_3(vrnet, files, tmp_path):
    """Moving turned by 90° and its contrast inverted."""
    moving = read_image(files / "moving.nii.gz")
    write_image(moving.with_array(1 - np.rot90(moving.array)), tmp_path / "turned.nii.gz")
    words = files / "fixed.nii.gz", tmp_path / "turned.nii.gz", "--method", "TV-L1", "--report"
    status, out, _ = vrnet("register", *words, "--out", tmp_path / "out")
    assert status == 3
    assert file_names(tmp_path / "out") == RESULTS | PAGES
    verdict = read_json(tmp_path / "out" / "metrics.json")["verdict"]
    assert verdict["level"] == "failed"
    assert any(advice.startswith("--") for advice in verdict["try"])
    assert "`" not in " ".join(verdict["try"])
    assert "Verdict: failed" in out
    for sentence in (*verdict["reasons"], *verdict["try"]):
        assert sentence in out
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert all(reason.replace("'", "&#39;") in page for reason in verdict["reasons"])


@pytest.mark.release
def test_results_say_which_code_made_them(register):
    folder, _ = register("--report")
    provenance = read_json(folder / "metrics.json")["provenance"]
    assert provenance | versions() == provenance
    assert f"vrnet {__version__}" in (folder / "report.html").read_text(encoding="utf-8")
    assert (commit() or "") in (folder / "report.html").read_text(encoding="utf-8")


@pytest.mark.release
def test_folds_are_repaired_and_said_to_be_unless_they_are_kept(vrnet, tmp_path):
    """Of images that have nothing in common, which bring the field to fold."""
    rng, grid = np.random.default_rng(0), Grid.plain((40, 36), (1.0, 1.5))
    for name in ("a", "b"):
        image = ndimage.gaussian_filter(rng.standard_normal((40, 36)), 1.5).astype(np.float32)
        write_image(Image(image, grid, name), tmp_path / f"{name}.nii.gz")
    words = tmp_path / "a.nii.gz", tmp_path / "b.nii.gz", "--method", "TV-L1(lam=0.02)", "--out", tmp_path / "out"
    status, out, err = vrnet("register", *words, "--report")
    assert status == 3, err
    repaired = read_json(tmp_path / "out" / "metrics.json")
    assert repaired["folding_strict_percent"] == 0
    assert "% of the voxels were folded" in out
    assert "% of the voxels were folded" in (tmp_path / "out" / "report.html").read_text()
    _, out, _ = vrnet("register", *words, "--folds", "keep")
    kept = read_json(tmp_path / "out" / "metrics.json")
    assert kept["folding_strict_percent"] == pytest.approx(repaired["repair"]["folded_percent"])
    assert kept["repair"] is None
    assert "were folded" not in out


def test_a_brighter_image_is_noted_with_how_to_keep_it(vrnet, files, tmp_path):
    bright = read_image(files / "moving.nii.gz")
    write_image(bright.with_array(10 * bright.array + 3), tmp_path / "bright.nii.gz")
    words = files / "fixed.nii.gz", tmp_path / "bright.nii.gz", "--method", "TV-L1", "--out", tmp_path / "out"
    assert "are not equally bright" in (said := " ".join(vrnet("register", *words)[1].split()))
    assert "(--brightness keep compares them as they are.)" in said
    metrics = read_json(tmp_path / "out" / "metrics.json")
    assert_allclose(metrics["brightness"]["gain"], 0.1, rtol=0.03)
    assert "equally bright" not in vrnet("register", *words, "--brightness", "keep")[1]


def test_labels_that_were_matched_are_told_as_no_evidence_also_of_the_recorded_transform(vrnet, files, tmp_path):
    pair = files / "fixed.nii.gz", files / "moving.nii.gz"
    labels = "--fixed-labels", files / "fixed_labels.nii.gz", "--moving-labels", files / "moving_labels.nii.gz"
    words = "--method", "TV-L1(levels=1,warps=2)", "--channels", "labels", "--out", tmp_path / "out"
    _, out, _ = vrnet("register", *pair, *labels, *words)
    told = "Labels of both images were matched: the overlap of these is what was asked for, and no evidence"
    assert told in " ".join(out.split())
    metrics = read_json(tmp_path / "out" / "metrics.json")
    assert (metrics["channels"], metrics["options"]["channels"]) == ("labels", "labels")
    transform, again = tmp_path / "out" / "transform.nii.gz", tmp_path / "again.json"
    _, out, _ = vrnet("evaluate", transform, "--fixed", pair[0], "--moving", pair[1], *labels, "--out", again)
    assert told in " ".join(out.split())
    assert read_json(again)["channels"] == "labels"
    status, _, err = vrnet("register", *pair, *words)
    assert status == 2
    assert "give --fixed-labels and --moving-labels" in " ".join(err.split())


def test_metrics_name_files_parameters_and_options(vrnet, files, tmp_path):
    words = "--method", "TV-L1", "--set", "lam=0.2", "--folds", "keep", "--out", tmp_path
    vrnet("register", files / "fixed.nii.gz", files / "moving.nii.gz", *words)
    metrics = read_json(tmp_path / "metrics.json")
    assert metrics["files"] == {"fixed": "fixed.nii.gz", "moving": "moving.nii.gz"}
    assert metrics["parameters"]["lam"] == 0.2
    assert metrics["parameters"].keys() >= {"warps", "levels", "theta"}
    assert metrics["options"] == {
        "affine": "none", "slices": "auto", "brightness": "match", "match_intensities": False, "channels": "auto",
        "folds": "keep", "device": "auto",
    }  # fmt: skip


def test_demo_writes_what_register_writes_and_the_images_and_says_how_well_it_went(vrnet, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    status, out, err = vrnet("demo", "--out", "out")
    assert status == 0, err
    images = {"fixed.nii.gz", "moving.nii.gz", "fixed_labels.nii.gz", "moving_labels.nii.gz"}
    assert file_names(tmp_path / "out") == RESULTS | PAGES | images | {"warped_labels.nii.gz"}
    metrics = read_json(tmp_path / "out" / "metrics.json")
    assert "100%" in err
    assert "100%" not in out
    for label, name in (("3", "LV"), ("2", "Myo"), ("1", "RV"), ("mean", "mean")):
        (line,) = [line for line in out.splitlines() if f"Dice {name} " in line.replace(",", "")]
        assert [f"{metrics['dice'][when][label]:.3f}" in line for when in ("before", "after")] == [True, True]
    assert "Look at out/report.html" in out
    assert "Distance from the true motion" in out


@pytest.mark.release
def test_the_demonstration_takes_weights(vrnet, tmp_path):
    """Those of an untrained network, whose registration fails."""
    status, out, err = vrnet("demo", "--out", tmp_path / "out", "--weights", saved(tmp_path))
    assert (status, "Verdict: failed" in out) == (3, True), err
    assert read_json(tmp_path / "out" / "metrics.json")["weights"] == "m.safetensors"


LABELS = "fixed_labels", "moving_labels"


@pytest.fixture
def report(vrnet, files, tmp_path):
    """report("true.nii.gz", "page.html") gives (status, stdout, stderr); files are those of the folder `files`."""

    def run(transform, out, *words):
        labels = [word for name in LABELS for word in (f"--{name.replace('_', '-')}", files / f"{name}.nii.gz")]
        pair = "--fixed", files / "fixed.nii.gz", "--moving", files / "moving.nii.gz", *labels
        return vrnet("report", files / transform, *pair, "--out", tmp_path / out, *words)

    return run


@pytest.mark.release
def test_a_report_has_the_metrics_and_the_page_of_the_transform(report, vrnet, files, tmp_path):
    """Those that `vrnet evaluate` measures."""
    status, out, err = report("true.nii.gz", "pages", "--label-names", "acdc")
    assert (status, err.count("vrnet:")) == (0, 0)
    assert file_names(tmp_path / "pages") == {"report.html", "overview.png", "metrics.json"}
    ours = read_json(tmp_path / "pages" / "metrics.json")
    pair = "--fixed", files / "fixed.nii.gz", "--moving", files / "moving.nii.gz"
    labels = "--fixed-labels", files / "fixed_labels.nii.gz", "--moving-labels", files / "moving_labels.nii.gz"
    assert vrnet("evaluate", files / "true.nii.gz", *pair, *labels, "--out", tmp_path / "m.json")[0] == 0
    theirs = read_json(tmp_path / "m.json")
    for key in ("dice", "similarity", "folding_strict_percent", "verdict"):
        assert ours[key] == theirs[key]
    page = (tmp_path / "pages" / "report.html").read_text()
    assert "true.nii.gz" in page
    assert "Myo" in page
    assert "Verdict: good" in out


@pytest.mark.release
def test_a_chain_by_other_tools_is_one_transform(report, files, tmp_path):
    """An ITK field, then a shift in a .tfm file: as SimpleITK composes them."""
    Transform.load(files / "true.nii.gz").save(tmp_path / "field.h5")
    sitk.WriteTransform(sitk.TranslationTransform(2, (40.0, 0.0)), str(tmp_path / "far.tfm"))
    sitk.WriteTransform(sitk.TranslationTransform(2, (-40.0, 0.0)), str(tmp_path / "back.tfm"))
    words = "--then", tmp_path / "far.tfm", "--then", tmp_path / "back.tfm"
    assert report(tmp_path / "field.h5", "chain", *words)[0] == 0
    assert report("true.nii.gz", "plain")[0] == 0
    chain, plain = (read_json(tmp_path / name / "metrics.json") for name in ("chain", "plain"))
    assert chain["method"] == "field.h5, then far.tfm, then back.tfm"
    assert chain["dice"]["after"] == pytest.approx(plain["dice"]["after"], abs=1e-3)


def test_a_page_comes_alone_and_a_failed_transform_ends_with_3(report, tmp_path):
    sitk.WriteTransform(sitk.TranslationTransform(2, (60.0, 60.0)), str(tmp_path / "away.tfm"))
    status, out, _ = report(tmp_path / "away.tfm", "bad<b>.html")
    assert status == 3
    assert "Verdict: failed" in out
    assert "lam" not in out  # which nobody can set of a transform
    assert file_names(tmp_path) == {"away.tfm", "bad<b>.html"}


@pytest.mark.parametrize(
    ("transform", "out", "words", "message"),
    [("absent.h5", "page.html", (), "there is no"), ("fixed.nii.gz", "page.html", (), "is not a transform")],
)
def test_what_cannot_be_reported_is_told_in_one_line(report, tmp_path, transform, out, words, message):
    status, _, err = report(transform, out, *words)
    assert status == 2
    assert message in err
    assert err.strip().count("\n") == 0
    assert file_names(tmp_path) == set()


def test_the_files_of_a_registration_are_not_replaced(report, register):
    folder, _ = register()
    before = (folder / "metrics.json").read_bytes()
    status, _, err = report("true.nii.gz", folder)
    assert status == 2
    assert "holds a registration" in err
    assert (folder / "metrics.json").read_bytes() == before
