"""`vrnet cohort`: every subject of a list, on this machine, stopped and started again."""

import csv
import json
import os
import shutil
import subprocess
import sys
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
import SimpleITK as sitk
from scipy import ndimage, stats

from tests.app import many_registrations
from tests.app.outputs import RESULTS
from tests.cardiac.hearts import stack
from tests.cohort.works import make_task, write_list
from tests.phantoms import cycle, phantom
from vrnet import Grid, Image, Transform, write_image
from vrnet.app import main as cli
from vrnet.app.cohort import scan_folder
from vrnet.app.subject import ending_lines, plan_lines, write_tables
from vrnet.cohort.results import CohortFolder, Plan
from vrnet.cohort.run import run_here, run_tasks
from vrnet.cohort.table import Subject, read_table
from vrnet.images.io import to_sitk

PARTS = "fixed", "moving", "fixed_labels", "moving_labels"
QUICK = "--method", "Gaussian-L2", "--set", "levels=1", "--set", "warps=2"
SOURCE = Path(__file__).parents[2] / "src"


@pytest.fixture(scope="session")
def small_hearts(tmp_path_factory):
    """The folder of a list, pairs.csv, of three hearts of 24 x 24 pixels, in two groups."""
    folder, lines = tmp_path_factory.mktemp("small_hearts"), [",".join(("subject", "group", *PARTS))]
    for seed in range(3):
        patient, files = phantom(seed, (24, 24), 10.0), [f"{seed}_{part}.nii.gz" for part in PARTS]
        for part, file in zip(PARTS, files, strict=True):
            write_image(Image(getattr(patient, part)[0, 0].numpy(), Grid.plain((24, 24), (10.0, 10.0))), folder / file)
        lines.append(",".join((f"heart{seed}", "ab"[seed % 2], *files)))
    (folder / "pairs.csv").write_text("\n".join(lines))
    return folder


@pytest.fixture
def pairs(small_hearts, tmp_path):
    """A copy of the list and its images."""
    shutil.copytree(small_hearts, tmp_path / "in")
    return tmp_path / "in" / "pairs.csv"


def rows(out):
    with (out / "cohort.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def summary(out):
    return json.loads((out / "summary.json").read_text())


def fields(out):
    """The bytes of what was found, by subject."""
    names = "transform.nii.gz", "warped.nii.gz", "warped_labels.nii.gz"
    return {(path.parent.name, path.name): path.read_bytes() for name in names for path in out.rglob(name)}


def test_a_cohort_gives_a_folder_per_subject_a_table_and_a_page(vrnet, pairs, tmp_path):
    out = tmp_path / "out"
    status, said, err = vrnet("cohort", pairs, "--out", out, *QUICK)
    assert status == 0, err
    assert "3 of 3 subjects are done" in said
    for k in range(3):
        names = {path.name for path in (out / "subjects" / f"heart{k}").iterdir()}
        assert names == RESULTS | {"warped_labels.nii.gz", "thumbnail.png", "done.json"}
    found = rows(out)
    assert [row["subject"] for row in found] == ["heart0", "heart1", "heart2"]
    assert [row["group"] for row in found] == ["a", "b", "a"]
    metrics = json.loads((out / "subjects" / "heart1" / "metrics.json").read_text())
    assert float(found[1]["dice_before"]) == metrics["dice"]["before"]["mean"]
    assert float(found[1]["dice_after"]) == metrics["dice"]["after"]["mean"]
    assert found[1]["verdict"] == metrics["verdict"]["level"]
    assert (summary(out)["done"], summary(out)["failed"]) == (3, 0)
    assert "heart2" in (out / "index.html").read_text()
    assert list((out / ".working").iterdir()) == []


def test_notes_are_those_of_register_and_tell_of_repaired_folds(vrnet, pairs, tmp_path):
    """A weak regulariser folds; labels of one image alone are noted, too."""
    pairs.write_text("subject,fixed,moving,fixed_labels\none,1_fixed.nii.gz,1_moving.nii.gz,1_fixed_labels.nii.gz\n")
    loose = "--method", "TV-L2", "--set", "lam=0.0001"
    assert vrnet("cohort", pairs, "--out", tmp_path / "out", *loose)[0] == 0
    images = [pairs.parent / f"1_{part}.nii.gz" for part in PARTS[:3]]
    said = vrnet("register", *images[:2], "--fixed-labels", images[2], "--out", tmp_path / "one", *loose)[1]
    notes = [line.removeprefix("Note: ") for line in said.splitlines() if line.startswith("Note: ")]
    (row,) = rows(tmp_path / "out")
    assert row["notes"] == " ".join(notes)
    assert "were folded" in row["notes"]
    assert "Labels of one image alone" in row["notes"]


def test_names_of_labels_are_on_the_pages_and_the_columns_keep_the_numbers(vrnet, pairs, tmp_path):
    out = tmp_path / "out"
    assert vrnet("cohort", pairs, "--out", out, *QUICK, "--label-names", "acdc")[0] == 0
    assert float(rows(out)[0]["dice_3"]) > 0
    assert '"dice_3": "Dice of LV after"' in (out / "index.html").read_text()
    metrics = json.loads((out / "subjects" / "heart0" / "metrics.json").read_text())
    assert metrics["label_names"] == summary(out)["recipe"]["label_names"] == {"1": "RV", "2": "Myo", "3": "LV"}
    status, said, _ = vrnet("cohort", pairs, "--out", out, *QUICK, "--label-names", "3=left", "--dry-run")
    assert (status, "Again, 3: label names" in said) == (0, True)
    assert vrnet("cohort", pairs, "--out", out, *QUICK, "--label-names", "3")[0] == 2


def test_labels_in_files_of_acdc_are_called_as_there(vrnet, pairs, tmp_path):
    """Unless one file of the list is called otherwise: then nobody knows."""
    text = pairs.read_text()
    for part, frame in (("fixed_labels", "01"), ("moving_labels", "12")):
        (pairs.parent / f"0_{part}.nii.gz").rename(pairs.parent / f"patient000_frame{frame}_gt.nii.gz")
        text = text.replace(f"0_{part}", f"patient000_frame{frame}_gt")
    for count, heading in ((2, "Dice of LV after"), (3, "Dice of label 3 after")):
        pairs.write_text("\n".join(text.splitlines()[:count]))
        status, said, _ = vrnet("cohort", pairs, "--out", tmp_path / str(count), *QUICK)
        assert (status, "called as in ACDC" in said) == (0, count == 2)
        assert f'"dice_3": "{heading}"' in (tmp_path / str(count) / "index.html").read_text()


def test_a_second_run_does_nothing_and_another_parameter_does_all_again(vrnet, pairs, tmp_path):
    """And a preview of it says so, and touches nothing."""
    out = tmp_path / "out"
    assert vrnet("cohort", pairs, "--out", out, *QUICK)[0] == 0
    (out / ".working" / "heart1~left").mkdir()  # as a killed process leaves it
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*")}
    other = (*QUICK[:-1], "warps=3")
    status, said, _ = vrnet("cohort", pairs, "--out", out, *other, "--dry-run")
    assert (status, "0 done already, 3 to do (3 again)" in said, "Again, 3: method" in said) == (0, True, True)
    assert "their process was killed: heart1." in said
    status, _, err = vrnet("cohort", pairs, "--out", out, *other, "--keep")
    assert (status, "3 results in" in err) == (2, True)
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*")} == before
    status, said, _ = vrnet("cohort", pairs, "--out", out, *QUICK)
    assert (status, "3 subjects: 3 done already, 0 to do." in said) == (0, True)
    assert all(path.stat().st_mtime_ns == before[path] for path in (out / "subjects").rglob("*"))


@pytest.mark.release
def test_shards_do_the_list_together_and_the_last_writes_the_tables(vrnet, pairs, tmp_path):
    """The tables of another method, whose results are going, do not stay meanwhile."""
    out, other = tmp_path / "out", (*QUICK[:-1], "warps=3")
    assert vrnet("cohort", pairs, "--out", out, *other)[0] == 0
    status, said, _ = vrnet("cohort", pairs, "--out", out, *QUICK, "--shard", "2/2")
    assert (status, "The last shard to end writes the tables" in said) == (0, True)
    assert ("Again, 1: method" in said, "Earlier results of these are replaced" in said) == (True, True)
    assert not any((out / name).exists() for name in ("cohort.csv", "summary.json", "index.html"))
    assert vrnet("cohort", pairs, "--out", out, *QUICK, "--shard", "1/2")[0] == 0
    assert (summary(out)["done"], "warps=2" in summary(out)["recipe"]["method"]) == (3, True)


def test_whoever_stops_a_run_is_told_how_to_go_on(vrnet, pairs, tmp_path, monkeypatch):
    def stop(*given):
        raise KeyboardInterrupt

    monkeypatch.setattr("vrnet.app.subject.SubjectWork.__call__", stop)
    status, said, _ = vrnet("cohort", pairs, "--out", tmp_path / "out", *QUICK)
    assert (status, "Stopped: 0 of 3 subjects are done. To go on: vrnet cohort" in said) == (130, True)
    assert not list((tmp_path / "out" / ".working").iterdir())


def test_a_failure_is_a_row_with_its_reason_is_named_at_the_end_and_tried_again_when_asked(vrnet, pairs, tmp_path):
    out, broken = tmp_path / "out", pairs.parent / "1_moving.nii.gz"
    good = broken.read_bytes()
    broken.write_bytes(b"no image")
    status, said, _ = vrnet("cohort", pairs, "--out", out, *QUICK)
    assert (status, "2 of 3 subjects are done" in said, "Could not be done, heart1: " in said) == (3, True, True)
    row = rows(out)[1]
    assert (row["status"], "1_moving.nii.gz" in row["reason"]) == ("failed", True)
    assert "Traceback" in (out / "failures" / "heart1.txt").read_text()
    stamp = broken.stat()
    status, said, _ = vrnet("cohort", pairs, "--out", out, *QUICK)
    assert (status, "3 subjects: 2 done already, 1 failed, 0 to do." in said) == (3, True)
    assert "1 to do (1 that failed before)" in vrnet("cohort", pairs, "--out", out, *QUICK, "--retry")[1]
    broken.write_bytes(good)
    os.utime(broken, ns=(stamp.st_atime_ns, stamp.st_mtime_ns + 1))
    status, said, _ = vrnet("cohort", pairs, "--out", out, *QUICK)
    assert (status, "2 done already, 1 to do" in said) == (0, True)
    assert not list((out / "failures").iterdir())


def test_a_preview_says_what_is_missing_and_writes_nothing(vrnet, pairs, tmp_path):
    (pairs.parent / "2_fixed.nii.gz").unlink()
    status, said, _ = vrnet("cohort", pairs, "--out", tmp_path / "out", "--dry-run", *QUICK)
    assert status == 0
    assert "0 done already, 3 to do (3 new)" in said
    assert "Missing, of heart2" in said
    assert not (tmp_path / "out").exists()
    status, _, err = vrnet("cohort", pairs, "--out", tmp_path / "out", *QUICK)
    assert (status, "heart2" in err) == (2, True)
    assert vrnet("cohort", pairs, "--out", tmp_path / "out", *QUICK, "--skip-broken")[0] == 3
    assert [row["status"] for row in rows(tmp_path / "out")] == ["done", "done", "failed"]


def test_a_column_of_the_list_that_has_the_name_of_a_measure_gets_another(vrnet, pairs, tmp_path):
    pairs.write_text(pairs.read_text().replace("group", "dice_after"))
    status, said, _ = vrnet("cohort", pairs, "--out", tmp_path / "out", *QUICK)
    assert (status, "The column dice_after of the list is dice_after_given" in said) == (0, True)
    found = rows(tmp_path / "out")
    assert [row["dice_after_given"] for row in found] == ["a", "b", "a"]
    assert all(0 < float(row["dice_after"]) <= 1 for row in found)


@pytest.mark.release
def test_two_jobs_find_to_the_bit_what_one_finds(vrnet, pairs, tmp_path):
    assert vrnet("cohort", pairs, "--out", tmp_path / "one", *QUICK)[0] == 0
    status, _, err = vrnet("cohort", pairs, "--out", tmp_path / "two", *QUICK, "--jobs", 2)
    assert status == 0, err
    assert fields(tmp_path / "one") == fields(tmp_path / "two") != {}


def test_the_list_is_never_overwritten_nor_are_files_of_others(vrnet, pairs, tmp_path):
    mine = pairs.rename(pairs.with_name("cohort.csv"))
    status, _, err = vrnet("cohort", mine, "--out", mine.parent, *QUICK)
    assert (status, "would be lost" in err) == (2, True)
    assert not CohortFolder(mine.parent).subjects.exists()


def test_a_folder_in_a_known_layout_becomes_a_list_that_can_be_run(vrnet, acdc, tmp_path):
    status, said, _ = vrnet("cohort", "--scan", acdc, "--out", tmp_path / "out")
    assert (status, "2 subjects" in said) == (0, True)
    status, said, err = vrnet("cohort", tmp_path / "out" / "pairs.csv", "--out", tmp_path / "out", "--dry-run")
    assert (status, "2 to do" in said) == (0, True), err
    status, _, err = vrnet("cohort", "--scan", acdc, "--out", tmp_path / "out")
    assert (status, "may have been edited" in err) == (2, True)


def test_a_scan_tells_of_missing_images(vrnet, acdc, tmp_path):
    shutil.copytree(acdc, tmp_path / "acdc")
    _, second = scan_folder(tmp_path / "acdc")
    second["moving"].unlink()
    status, said, err = vrnet("cohort", "--scan", tmp_path / "acdc", "--out", tmp_path / "out")
    assert status == 0, err
    lines = said.splitlines()
    assert lines[-2].startswith("Missing, of patient002: ")
    assert lines[-2].endswith(second["moving"].name)
    assert "--skip-broken" in lines[-1]


def test_results_can_have_the_names_of_bids_in_which_a_transform_brings_its_first_space_to_its_second(
    vrnet, pairs, tmp_path
):
    out = tmp_path / "out"
    for part in ("fixed", "moving"):
        name = f"0_{ {'fixed': 'ED', 'moving': 'ES'}[part] }.nii.gz"
        (pairs.parent / f"0_{part}.nii.gz").rename(pairs.parent / name)
        pairs.write_text(pairs.read_text().replace(f"0_{part}.nii.gz", name))
    status, _, err = vrnet("cohort", pairs, "--out", out, *QUICK, "--bids")
    assert status == 0, err
    assert {path.name for path in (out / "sub-heart0").iterdir()} == {
        "sub-heart0_from-ES_to-ED_mode-image_xfm.nii.gz",
        "sub-heart0_from-ED_to-ES_mode-image_xfm.nii.gz",
        "sub-heart0_space-ED_desc-warped_image.nii.gz",
        "sub-heart0_space-ED_desc-warped_dseg.nii.gz",
        "sub-heart0_desc-registration_metrics.json",
        "sub-heart0_thumbnail.png",
        "done.json",
    }
    images = {part: sitk.ReadImage(str(pairs.parent / f"1_{part}.nii.gz"), sitk.sitkFloat32) for part in PARTS[:2]}
    for start, end in permutations(images):  # as SimpleITK applies it, which is how fMRIPrep and ANTs take the names
        name = f"sub-heart1_from-{start}_to-{end}_mode-image_xfm.nii.gz"
        field = sitk.ReadImage(str(out / "sub-heart1" / name), sitk.sitkVectorFloat64)
        moved = sitk.Resample(images[start], images[end], sitk.DisplacementFieldTransform(field))
        unlike = [abs(sitk.GetArrayFromImage(one - images[end])).mean() for one in (moved, images[start])]
        assert unlike[0] < 0.9 * unlike[1]
    described = json.loads((out / "dataset_description.json").read_text())
    assert "failures/" in (out / ".bidsignore").read_text().splitlines()
    assert (described["DatasetType"], described["GeneratedBy"][0]["Name"]) == ("derivative", "vrnet")
    assert "3 done already" in vrnet("cohort", pairs, "--out", out, *QUICK, "--bids")[1]


GOOD = "subject,fixed,moving\np,0_fixed.nii.gz,0_moving.nii.gz\n"
BAD = {
    "no list": (None, ()),
    "missing files": (GOOD.replace("0_fixed", "none"), ()),
    "a cine with an affine start": ("subject,cine\np,0_fixed.nii.gz\n", ("--affine", "rigid")),
    "cines of a list": (GOOD, ("--cines",)),
    "a shard beyond the last": (GOOD, ("--shard", "3/2")),
    "no jobs": (GOOD, ("--jobs", "0")),
    "jobs and a scheduler": (GOOD, ("--jobs", "2", "--scheduler", "tcp://127.0.0.1:1")),
}


@pytest.mark.parametrize(("text", "options"), BAD.values(), ids=BAD)
def test_bad_input_ends_in_one_line_and_writes_nothing(vrnet, small_hearts, tmp_path, text, options):
    path = small_hearts / "bad.csv"
    path.unlink(missing_ok=True)
    if text is not None:
        path.write_text(text, newline="")
    status, _, err = vrnet("cohort", path, "--out", tmp_path / "out", "--method", "identity", *options)
    assert status == 2
    assert len(err.strip().splitlines()) == 1
    assert err.startswith("vrnet: ")
    assert not (tmp_path / "out").exists()


@pytest.mark.release
def test_the_memory_of_a_worker_does_not_grow(small_hearts):
    """After what is loaded once, a registration leaves less than 3 kB behind; and 20 kB of what the system counts, in
    which files that stay mapped are, too, and what the C library keeps for later."""
    command = [sys.executable, many_registrations.__file__, str(small_hearts), "120"]
    in_one_place = {"PYTHONMALLOC": "malloc", "MALLOC_ARENA_MAX": "1"}  # where the C library counts it
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1", **in_one_place}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    used, counted = zip(*json.loads(done.stdout)[40:], strict=True)
    assert stats.theilslopes(used).slope < 3_000, "the median of all slopes: a table that grows once is no leak"
    assert stats.theilslopes(counted).slope < 20_000


def test_a_folder_given_as_the_list_is_answered_by_scan(vrnet, tmp_path):
    status, _, err = vrnet("cohort", tmp_path, "--out", tmp_path / "out")
    assert (status, err) == (2, f"vrnet: {tmp_path} is a folder: --scan {tmp_path} writes the list of its subjects\n")


# Cines: each is tracked as `vrnet track` does it, and the table has its numbers.

GRID = Grid.plain((32, 32, 2), (4.0, 4.0, 10.0))
FRAMES = 4


@pytest.fixture(scope="module")
def cines(tmp_path_factory):
    """A list of two cines; the labels of the second belong to its frame 1."""
    folder, lines = tmp_path_factory.mktemp("cines"), ["subject,cine,labels,frame,group"]
    for seed, first in ((1, 0), (2, 1)):
        beat = cycle(seed, GRID.shape, GRID.spacing, frames=FRAMES)
        frames = [to_sitk(frame, GRID) for frame in np.roll(beat.frames.numpy(), first, axis=0)]
        sitk.WriteImage(sitk.JoinSeries(frames, 0.0, 0.2), str(folder / f"{seed}.nii.gz"))
        write_image(Image(beat.labels.numpy(), GRID), folder / f"{seed}_gt.nii.gz")
        lines.append(f"heart{seed},{seed}.nii.gz,{seed}_gt.nii.gz,{first},{'ab'[first]}")
    (folder / "cines.csv").write_text("\n".join(lines))
    return folder / "cines.csv"


@pytest.fixture(scope="module")
def tracked(cines, tmp_path_factory):
    """The folder of a cohort."""
    out = tmp_path_factory.mktemp("out")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["vrnet", "cohort", str(cines), "--out", str(out), *QUICK])
        cli.main()
    return out


def files_in(folder):
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.release
def test_a_subject_has_to_the_bit_what_track_writes(tracked, cines, vrnet, tmp_path):
    words = cines.parent / "2.nii.gz", "--labels", cines.parent / "2_gt.nii.gz", "--frame", 1
    assert vrnet("track", *words, "--out", tmp_path, *QUICK)[0] == 0
    of_cohort = tracked / "subjects" / "heart2"
    theirs = {name for name in files_in(tmp_path) if not name.startswith(".")}
    assert files_in(of_cohort) == theirs | {"done.json", "thumbnail.png"}
    for name in theirs - {"summary.json"}:  # which tells the time
        assert (of_cohort / name).read_bytes() == (tmp_path / name).read_bytes(), name


def test_the_table_has_the_numbers_of_each_summary(tracked):
    for row in rows(tracked):
        summary = json.loads((tracked / "subjects" / row["subject"] / "summary.json").read_text())
        assert float(row["lv_ejection_fraction_percent"]) == summary["volumes"]["lv_ejection_fraction_percent"]
        assert float(row["lv_largest_ml"]) == summary["volumes"]["lv_largest_ml"]
        peak = summary["strain"]["peaks"]["global"]["green_circumferential"]["percent"]
        assert float(row["peak_green_circumferential_percent"]) == peak < 0
        assert float(row["closure_forward_mm"]) == summary["closure_mm"]["forward"]
        assert (row["verdict"], row["frames"], row["status"]) == (summary["verdict"]["level"], str(FRAMES), "done")
        assert float(row["seconds"]) > 0
        assert row["method"] == summary["method"]
    assert [row["group"] for row in rows(tracked)] == ["a", "b"]


@pytest.mark.release
def test_what_is_not_labelled_has_empty_cells(cines, vrnet, tmp_path):
    """A subject whose labels have no wall, beside one who has all, and one whose labels the network finds."""
    folder = cines.parent
    labels = sitk.ReadImage(str(folder / "1_gt.nii.gz"))
    sitk.WriteImage(labels * sitk.Cast(labels != 2, labels.GetPixelID()), str(folder / "cavities.nii.gz"))
    other = cines.with_name("parts.csv")
    given = {"all": "1_gt.nii.gz", "cavities": "cavities.nii.gz", "none": ""}
    other.write_text("\n".join(["subject,cine,labels", *(f"{name},1.nii.gz,{file}" for name, file in given.items())]))
    status, _, err = vrnet("cohort", other, "--out", tmp_path, *QUICK)
    assert status == 0, err
    found = {row["subject"]: row for row in rows(tmp_path)}
    for column, known in {"mass_g": {"all", "none"}, "lv_largest_ml": {*given}}.items():
        assert {name for name, row in found.items() if row[column]} == known
    assert [found[name]["volumes_by"] for name in given] == ["given labels", "given labels", "network"]
    volumes = list(csv.DictReader((tmp_path / "subjects" / "cavities" / "volumes.csv").open(newline="")))
    assert {row["wall_ml"] for row in volumes} == {""}
    assert all(float(row["lv_ml"]) > 0 for row in volumes)


@pytest.mark.release
def test_with_a_report_the_page_leads_to_the_pages_of_cines(cines, vrnet, tmp_path):
    one = cines.with_name("one.csv")
    one.write_text("\n".join(cines.read_text().splitlines()[:2]))
    assert vrnet("cohort", one, "--out", tmp_path, *QUICK, "--report")[0] == 0
    assert {"report.html", "cine.gif", "strain.png"} <= files_in(tmp_path / "subjects" / "heart1")
    page = (tmp_path / "index.html").read_text()
    assert '"page": "report.html"' in page
    assert "LV ejection fraction (%)" in page
    assert "the frame farthest from it" in page


def test_a_subject_that_is_measured_again_gets_its_page_and_stays_done(cines, vrnet, tmp_path):
    one = cines.with_name("again.csv")
    one.write_text("\n".join(cines.read_text().splitlines()[:2]))
    vrnet("cohort", one, "--out", tmp_path, *QUICK)
    before = {path.name: path.read_bytes() for path in (tmp_path / "subjects" / "heart1" / "transforms").iterdir()}
    status, *said = vrnet("measure", tmp_path / "subjects" / "heart1", "--report")
    assert status in (0, 3), said
    assert "1 done already" in vrnet("cohort", one, "--out", tmp_path, "--report", *QUICK)[1]
    assert (tmp_path / "subjects" / "heart1" / "report.html").exists()
    assert before == {
        path.name: path.read_bytes() for path in (tmp_path / "subjects" / "heart1" / "transforms").iterdir()
    }


def test_another_frame_is_noticed_and_that_subject_done_again(tracked, cines, vrnet):
    other = cines.with_name("other.csv")
    other.write_text(cines.read_text().replace("gt.nii.gz,1", "gt.nii.gz,2"))
    status, said, _ = vrnet("cohort", other, "--out", tracked, *QUICK, "--dry-run")
    assert (status, "1 done already" in said, "Again, 1: newer or other inputs" in said) == (0, True, True)
    assert "2 done already" in vrnet("cohort", cines, "--out", tracked, *QUICK, "--dry-run")[1]


def test_a_frame_beyond_the_end_is_the_failure_of_that_subject(cines, vrnet, tmp_path):
    other = cines.with_name("beyond.csv")
    other.write_text("subject,cine,frame\np,1.nii.gz,9\n")
    status, said, _ = vrnet("cohort", other, "--out", tmp_path, *QUICK)
    assert (status, "Could not be done, " in said, "9" in rows(tmp_path)[0]["reason"]) == (3, True, True)
    assert list((tmp_path / ".working").iterdir()) == []


def test_names_that_cannot_be_tracked_by_are_told_before_the_work(cines, vrnet, tmp_path):
    status, _, err = vrnet("cohort", cines, "--out", tmp_path / "out", *QUICK, "--label-names", "1=liver,3=scar")
    assert (status, "name a part of the heart" in err, (tmp_path / "out").exists()) == (2, True, False)


@pytest.mark.release
def test_in_bids_each_transform_brings_its_frame_to_the_reference(cines, vrnet, tracked, tmp_path):
    status, _, err = vrnet("cohort", cines, "--out", tmp_path, *QUICK, "--bids", "--label-names", "1=RV,2=Myo,3=LV")
    assert status == 0, err
    names = files_in(tmp_path / "sub-heart2")
    moved = {f"sub-heart2_from-frame0{k}_to-frame01_mode-image_xfm.nii.gz" for k in range(FRAMES)}
    assert names == moved | {
        "sub-heart2_desc-tracked_dseg.nii.gz",
        "sub-heart2_desc-segmented_dseg.nii.gz",
        "sub-heart2_desc-volumes_metrics.csv",
        "sub-heart2_desc-slices_metrics.csv",
        "sub-heart2_desc-strain_metrics.csv",
        "sub-heart2_desc-tracking_metrics.json",
        "sub-heart2_thumbnail.png",
        "done.json",
    }
    ours = Transform.load(tmp_path / "sub-heart2" / "sub-heart2_from-frame03_to-frame01_mode-image_xfm.nii.gz")
    theirs = Transform.load(tracked / "subjects" / "heart2" / "transforms" / "frame_03.nii.gz")
    assert np.array_equal(ours.displacement, theirs.displacement)


def test_the_volumes_of_a_pair_stand_in_the_terminal_the_page_the_table_and_metrics(vrnet, tmp_path):
    grid, maps = Grid.plain((72, 72, 3), (1.25, 1.25, 8.0)), [stack(), stack()]
    maps[1][(maps[1] == 3) & ~ndimage.binary_erosion(maps[1] == 3, np.ones((3, 3, 1)), 2)] = 2
    for name, labels in zip(("ed", "es"), maps, strict=True):
        write_image(Image(labels.astype(np.float32), grid), tmp_path / f"{name}.nii.gz")
        write_image(Image(labels.astype(np.uint8), grid), tmp_path / f"{name}_gt.nii.gz")
    list_file = tmp_path / "pairs.csv"
    list_file.write_text(",".join(("subject", *PARTS)) + "\ns1,ed.nii.gz,es.nii.gz,ed_gt.nii.gz,es_gt.nii.gz\n")
    vrnet("cohort", list_file, "--out", tmp_path / "out", "--method", "identity", "--report")
    folder = tmp_path / "out" / "subjects" / "s1"
    heart, [row] = json.loads((folder / "metrics.json").read_text())["heart"], rows(tmp_path / "out")
    assert float(row["lv_ejection_fraction_percent"]) == heart["ef_percent"]["LV"] > 20
    assert [float(row[f"lv_{size}_ml"]) for size in ("largest", "smallest")] == [*heart["lv_ml"].values()]
    assert (float(row["mass_g"]), row["volumes_by"]) == (heart["mass_g"], "given labels")
    files = zip(PARTS, ("ed", "es", "ed_gt", "es_gt"), strict=True)
    given = [word for part, name in files for word in (f"--{part.replace('_', '-')}", tmp_path / f"{name}.nii.gz")]
    _, out, _ = vrnet("report", folder / "transform.nii.gz", *given, "--out", tmp_path / "page.html")
    told = f"EF {heart['ef_percent']['LV']:.0f} %"
    for text in (out, (tmp_path / "page.html").read_text(), (folder / "report.html").read_text()):
        assert "Heart, by the given labels" in text
        assert told in text


# What is said, and written of all subjects together.

SHOWN = {"report": False, "bids": False, "label_names": {}}


def test_the_methods_that_ran_are_named_as_people_know_them_the_most_frequent_first(tmp_path):
    """What is asked for may be `default`, which comes to one method for stacks and to another for volumes."""
    table = read_table(write_list(tmp_path, 3))
    names = {"s00000": "Gaussian-LNCC", "s00001": "short-axis", "s00002": "short-axis"}
    task = make_task(tmp_path / "out", lambda subject, folder: {"method": names[subject.name]}, **SHOWN)
    run_tasks(task, table.subjects, run_here)
    write_tables(task.folder, table, task.recipe)
    assert "short-axis (D-L2-3x1-half-w32), Gaussian-LNCC" in (tmp_path / "out" / "index.html").read_text()


def subjects(count):
    return [Subject(f"s{k}", {}) for k in range(count)]


def test_the_numbers_of_a_plan_add_up_with_and_without_failures():
    plan = Plan(done=subjects(4), failed=subjects(2), again=subjects(3), new=subjects(1))
    plan.changes.update({"method A → B": 3})
    first, second, third, last = plan_lines(plan, retry=False)
    assert first == "10 subjects: 4 done already, 2 failed, 4 to do (1 new, 3 again)."
    assert (second, "are replaced" in third, "--retry" in last) == ("Again, 3: method A → B.", True, True)
    first, *_ = plan_lines(plan, retry=True)
    assert first == "10 subjects: 4 done already, 6 to do (1 new, 3 again, 2 that failed before)."


def test_the_end_names_failures_failed_verdicts_and_what_is_left():
    summary = {"done": 2, "subjects": 4, "verdicts": {"good": 1, "failed": 1}, "recipe": {}}
    rows = [
        {"subject": "a", "status": "done", "verdict": "good"},
        {"subject": "b", "status": "done", "verdict": "failed"},
        {"subject": "c", "status": "failed", "reason": "no image"},
        {"subject": "d", "status": "to do"},
    ]
    said = list(ending_lines(summary, rows))
    assert said[:3] == [
        "2 of 4 subjects are done; verdicts: 1 failed, 1 good.",
        "Verdict failed: b.",
        "Could not be done, c: no image",
    ]
    assert said[3].endswith("meanwhile: d.")
    assert said[4].startswith("To see to what is left: vrnet")


def test_the_end_names_the_three_that_are_farthest_out_and_in_what():
    summary = {"done": 5, "subjects": 6, "verdicts": {}, "recipe": {"label_names": {"3": "LV"}}}
    rows = [
        {"subject": name, "status": "done", "suspicion": suspicion, "suspicion_by": by}
        for name, suspicion, by in (("a", 2.1, "ncc_after"), ("b", 6, "dice_3"), ("c", 0.5, None), ("d", 3, "mass_g"),
                                    ("e", 4, "surface_mm_after"))
    ] + [{"subject": "f", "status": "failed", "suspicion": 300.0, "reason": "no image"}]  # fmt: skip
    assert [*ending_lines(summary, rows)][1] == (
        "Look first at what is farthest from the others: b (Dice of LV after); e (Surface distance after (mm)); "
        "d (LV mass (g))."
    )
    assert not any("Look first" in line for line in ending_lines(summary, [rows[2]]))
