"""`vrnet cohort`: every subject of a list, on this machine, stopped and started again."""

import csv
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from itertools import permutations
from pathlib import Path

import pytest
import SimpleITK as sitk
from scipy import stats

from tests.app import many_registrations
from tests.app.outputs import RESULTS
from vrnet import Grid, Image, write_image
from vrnet.app.layouts import scan_folder
from vrnet.app.subject import is_taken
from vrnet.cohort.results import CohortFolder
from vrnet.phantom import phantom

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
    assert [name for name in found[0] if not is_taken(name)] == ["group"], "a list cannot have columns of our names"
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
    out = tmp_path / "out"
    assert vrnet("cohort", pairs, "--out", out, *QUICK)[0] == 0
    before = {path: path.stat().st_mtime_ns for path in (out / "subjects").rglob("*")}
    status, said, _ = vrnet("cohort", pairs, "--out", out, *QUICK)
    assert (status, "3 subjects: 3 done already, 0 to do." in said) == (0, True)
    assert {path: path.stat().st_mtime_ns for path in (out / "subjects").rglob("*")} == before
    other = (*QUICK[:-1], "warps=3")
    status, said, _ = vrnet("cohort", pairs, "--out", out, *other, "--dry-run")
    assert (status, "0 done already, 3 to do (3 again)" in said, "Again, 3: method" in said) == (0, True, True)
    status, _, err = vrnet("cohort", pairs, "--out", out, *other, "--keep")
    assert (status, "3 results in" in err) == (2, True)
    assert {path: path.stat().st_mtime_ns for path in (out / "subjects").rglob("*")} == before
    status, said, _ = vrnet("cohort", pairs, "--out", out, *other)
    assert (status, "Again, 3: method" in said, "Earlier results of these are replaced" in said) == (0, True, True)
    assert "warps=3" in summary(out)["recipe"]["method"]


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


def test_a_preview_touches_nothing_of_what_is_there(vrnet, pairs, tmp_path):
    """Not even what a killed run left, which the next one removes."""
    folder = CohortFolder(tmp_path / "out")
    folder.make()
    (folder.path / ".partial-left").mkdir()
    (folder.path / ".partial-left" / ".ordinary").touch()
    (folder.working / "heart1~0~1~2").mkdir()
    before = {path: path.stat().st_mtime_ns for path in (folder.path, *folder.path.rglob("*"))}
    status, said, _ = vrnet("cohort", pairs, "--out", folder.path, "--dry-run", *QUICK)
    assert (status, "their process was killed: heart1." in said) == (0, True)
    assert {path: path.stat().st_mtime_ns for path in (folder.path, *folder.path.rglob("*"))} == before


def test_shards_do_the_list_together_and_find_what_one_run_finds(vrnet, pairs, tmp_path):
    out = tmp_path / "out"
    status, said, _ = vrnet("cohort", pairs, "--out", out, *QUICK, "--shard", "2/2")
    assert (status, "The last shard to end writes the tables" in said) == (0, True)
    assert not (out / "cohort.csv").exists()
    assert vrnet("cohort", pairs, "--out", out, *QUICK, "--shard", "1/2")[0] == 0
    assert summary(out)["done"] == 3
    tables = {path: path.stat().st_mtime_ns for path in out.iterdir() if path.is_file()}
    status, said, _ = vrnet("cohort", pairs, "--out", out, *QUICK, "--shard", "2/2")
    assert (status, "The tables of all shards are there." in said) == (0, True)
    assert {path: path.stat().st_mtime_ns for path in tables} == tables, "submitted again, they are left as they are"
    vrnet("cohort", pairs, "--out", tmp_path / "whole", *QUICK)
    assert fields(out) == fields(tmp_path / "whole")


def test_shards_of_another_method_write_no_table_before_the_last_of_them(vrnet, pairs, tmp_path):
    """Nor do the tables of the first method stay, whose results are going."""
    out, other = tmp_path / "out", (*QUICK[:-1], "warps=3")
    assert vrnet("cohort", pairs, "--out", out, *QUICK)[0] == 0
    status, said, _ = vrnet("cohort", pairs, "--out", out, *other, "--shard", "1/2")
    assert (status, "The last shard to end writes the tables" in said) == (0, True)
    assert not any((out / name).exists() for name in ("cohort.csv", "summary.json", "index.html"))
    assert vrnet("cohort", pairs, "--out", out, *other, "--shard", "2/2")[0] == 0
    assert (summary(out)["done"], "warps=3" in summary(out)["recipe"]["method"]) == (3, True)


def test_a_column_of_the_list_that_has_the_name_of_a_measure_gets_another_before_the_work(vrnet, pairs, tmp_path):
    pairs.write_text(pairs.read_text().replace("group", "dice_after"))
    status, said, _ = vrnet("cohort", pairs, "--out", tmp_path / "out", *QUICK)
    assert (status, said.startswith("The column dice_after of the list is dice_after_given")) == (0, True)
    found = rows(tmp_path / "out")
    assert [row["dice_after_given"] for row in found] == ["a", "b", "a"]
    assert all(0 < float(row["dice_after"]) <= 1 for row in found)


def test_two_jobs_find_to_the_bit_what_one_finds(vrnet, pairs, tmp_path):
    assert vrnet("cohort", pairs, "--out", tmp_path / "one", *QUICK)[0] == 0
    status, _, err = vrnet("cohort", pairs, "--out", tmp_path / "two", *QUICK, "--jobs", 2)
    assert status == 0, err
    assert fields(tmp_path / "one") == fields(tmp_path / "two") != {}


def listen_to_interrupts():
    """In a new process: one that a shell starts in the background, and all that it starts, are deaf to SIGINT."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM)])
def test_a_run_that_is_stopped_says_how_to_go_on_and_loses_nothing(number, status, pairs, tmp_path):
    slow = "--method", "TV-L1", "--set", "warps=3000", "--set", "tolerance=0"
    words = "cohort", pairs, "--out", tmp_path / "out", *slow
    command = [sys.executable, "-m", "vrnet", *map(str, words)]
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, preexec_fn=listen_to_interrupts
    ) as run:
        while not list((tmp_path / "out").glob(".working/*~*")):
            assert run.poll() is None, run.stderr.read()
            time.sleep(0.05)
        run.send_signal(number)
        said = b"".join(run.communicate(timeout=300))
    assert run.returncode == status
    assert b"Stopped: 0 of 3 subjects are done" in said
    assert shlex.join(["vrnet", *command[3:]]).encode() in said
    assert number != signal.SIGINT or not (tmp_path / "out").exists(), "nothing was done, and nothing is left behind"


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


def test_a_scan_tells_of_missing_images_and_of_subjects_without_the_labels_that_others_have(vrnet, acdc, tmp_path):
    shutil.copytree(acdc, tmp_path / "acdc")
    first, second = scan_folder(tmp_path / "acdc")
    first["moving_labels"].unlink()
    second["moving"].unlink()
    status, said, err = vrnet("cohort", "--scan", tmp_path / "acdc", "--out", tmp_path / "out")
    assert status == 0, err
    lines = said.splitlines()
    assert "Without labels, which others have: patient001." in lines
    assert lines[-2].startswith("Missing, of patient002: ")
    assert lines[-2].endswith(second["moving"].name)
    assert "--skip-broken" in lines[-1]


def test_a_scan_of_whole_subjects_tells_of_nothing_missing(vrnet, acdc, tmp_path):
    _, said, _ = vrnet("cohort", "--scan", acdc, "--out", tmp_path / "out")
    assert len(said.splitlines()) == 2
    assert "Wrote" in said.splitlines()[0]
    assert "With --report" in said.splitlines()[1]


def test_results_can_have_the_names_of_bids(vrnet, pairs, tmp_path):
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
    assert (out / "sub-heart1" / "sub-heart1_from-moving_to-fixed_mode-image_xfm.nii.gz").exists()
    described = json.loads((out / "dataset_description.json").read_text())
    assert "failures/" in (out / ".bidsignore").read_text().splitlines()
    assert (described["DatasetType"], described["GeneratedBy"][0]["Name"]) == ("derivative", "vrnet")
    assert "3 done already" in vrnet("cohort", pairs, "--out", out, *QUICK, "--bids")[1]


def test_in_bids_a_transform_brings_images_from_its_first_space_to_its_second(vrnet, pairs, tmp_path):
    """As SimpleITK applies it, which is how fMRIPrep and ANTs take the names."""
    assert vrnet("cohort", pairs, "--out", tmp_path / "out", *QUICK, "--bids")[0] == 0
    images = {part: sitk.ReadImage(str(pairs.parent / f"1_{part}.nii.gz"), sitk.sitkFloat32) for part in PARTS[:2]}
    for start, end in permutations(images):
        name = f"sub-heart1_from-{start}_to-{end}_mode-image_xfm.nii.gz"
        field = sitk.ReadImage(str(tmp_path / "out" / "sub-heart1" / name), sitk.sitkVectorFloat64)
        moved = sitk.Resample(images[start], images[end], sitk.DisplacementFieldTransform(field))
        unlike = [abs(sitk.GetArrayFromImage(one - images[end])).mean() for one in (moved, images[start])]
        assert unlike[0] < 0.9 * unlike[1]


HEAD = "subject,fixed,moving\n"
GOOD = f"{HEAD}p,0_fixed.nii.gz,0_moving.nii.gz\n"
BAD = {
    "no list": (None, ()),
    "empty": ("", ()),
    "only a header": (HEAD, ()),
    "semicolons": (GOOD.replace(",", ";"), ()),
    "a missing column": ("subject,fixed\np,0_fixed.nii.gz\n", ()),
    "a misspelt column": (GOOD.replace("moving\n", "moving,moving_lables\n"), ()),
    "duplicate subjects": (GOOD + "p,0_fixed.nii.gz,0_moving.nii.gz\n", ()),
    "a path for a name": (GOOD.replace("\np,", "\n../x,"), ()),
    "no name": (GOOD.replace("\np,", "\n,"), ()),
    "missing files": (GOOD.replace("0_fixed", "none"), ()),
    "a byte order mark before an empty list": ("\ufeff", ()),
    "a cine and a pair": ("subject,cine,moving\np,0_fixed.nii.gz,0_moving.nii.gz\n", ()),
    "a cine with an affine start": ("subject,cine\np,0_fixed.nii.gz\n", ("--affine", "rigid")),
    "a frame that is no number": ("subject,cine,frame\np,0_fixed.nii.gz,last\n", ()),
    "cines of a list": (GOOD, ("--cines",)),
    "carriage returns and a duplicate": ((GOOD + "P,0_fixed.nii.gz,0_moving.nii.gz\n").replace("\n", "\r\n"), ()),
    "an unknown method": (GOOD, ("--method", "nonsense")),
    "a shard beyond the last": (GOOD, ("--shard", "3/2")),
    "a shard that is none": (GOOD, ("--shard", "x")),
    "no jobs": (GOOD, ("--jobs", "0")),
    "jobs and a scheduler": (GOOD, ("--jobs", "2", "--scheduler", "tcp://127.0.0.1:1")),
    "a scheduler's file that is not there": (GOOD, ("--scheduler", "none.json")),
    "a list and a folder to scan": (GOOD, ("--scan", ".")),
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
    assert not (tmp_path / "out" / "cohort.csv").exists()


def test_a_folder_that_cannot_be_written_is_told(vrnet, pairs, tmp_path):
    (tmp_path / "file").touch()
    status, _, err = vrnet("cohort", pairs, "--out", tmp_path / "file" / "out", *QUICK)
    assert (status, "cannot write to" in err) == (2, True)


@pytest.mark.release
@pytest.mark.slow
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


def test_neither_a_list_nor_a_folder_is_told(vrnet, tmp_path):
    status, _, err = vrnet("cohort", "--out", tmp_path)
    assert (status, "there is no list of subjects" in err) == (2, True)


def test_a_folder_given_as_the_list_is_answered_by_scan(vrnet, tmp_path):
    status, _, err = vrnet("cohort", tmp_path, "--out", tmp_path / "out")
    assert (status, err) == (2, f"vrnet: {tmp_path} is a folder: --scan {tmp_path} writes the list of its subjects\n")
