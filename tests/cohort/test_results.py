"""What there is of a subject, by its record, its files and its inputs; what is to do is read from the folder alone."""

import json
import os

import pytest

from tests.cohort.works import Count, make_task, subject
from vrnet import BadInput
from vrnet.cohort.results import Survey, check_kept, digest, make_plan, stamp


@pytest.fixture
def done(tmp_path):
    """A task, and a subject that it has done."""
    task, one = make_task(tmp_path / "out", report=False), subject(tmp_path)
    assert task(one).status == "done"
    return task, one


@pytest.fixture
def four(tmp_path):
    """A task and four subjects: s0 and s1 are done, s2 has failed, s3 is new."""
    subjects = [subject(tmp_path, f"s{k}") for k in range(4)]
    task = make_task(tmp_path / "out", Count(failing=frozenset({"s2"})))
    for one in subjects[:3]:
        task(one)
    return task, subjects


def state(task, one):
    kind, why, _ = Survey(task.folder, task.recipe).state(one)
    return kind, why


def names(plan):
    return [[one.name for one in part] for part in (plan.done, plan.failed, plan.again, plan.new)]


def test_a_file_that_is_replaced_by_an_older_one_of_the_same_size_is_noticed(tmp_path):
    """An image, and a slice in a folder of DICOM."""
    for number in range(3):
        (tmp_path / f"{number}.dcm").write_text("abc")
        os.utime(tmp_path / f"{number}.dcm", (10 + number, 10 + number))
    image, folder = stamp(str(tmp_path / "0.dcm")), stamp(str(tmp_path))
    assert stamp(str(tmp_path)) == folder
    (tmp_path / "0.dcm").write_text("xyz")
    os.utime(tmp_path / "0.dcm", (5, 5))
    assert stamp(str(tmp_path / "0.dcm")) != image
    assert stamp(str(tmp_path)) != folder


def test_voxels_in_a_file_of_their_own_are_part_of_an_image(tmp_path):
    """The header stays as it is."""
    header, voxels = tmp_path / "x.mhd", tmp_path / "x.raw"
    header.write_text("NDims = 2\nDimSize = 2 2\nElementType = MET_UCHAR\nElementDataFile = x.raw\n")
    voxels.write_bytes(b"abcd")
    before, content = stamp(str(header)), digest(str(header))
    os.utime(voxels, (1, 1))
    assert (stamp(str(header)) != before, digest(str(header)) == content) == (True, True)
    voxels.write_bytes(b"abcx")
    assert digest(str(header)) != content


def test_a_result_counts_while_recipe_inputs_and_files_are_as_they_were(done, tmp_path):
    task, one = done
    assert state(task, one) == ("done", "")
    assert state(make_task(tmp_path / "out", report=False, method="x"), one) == ("changed", "method count → x")
    subject(tmp_path, text="another image")
    assert state(task, one) == ("changed", "newer or other inputs")
    (tmp_path / "s1.nii").unlink()
    assert state(task, one) == ("changed", "inputs are missing")
    subject(tmp_path)
    task(one)
    (task.folder.subjects / "s1" / "count.txt").unlink()
    assert state(task, one) == ("damaged", "files are missing")


@pytest.mark.parametrize("damage", ["", '{"recipe": 1}', "seconds"])
def test_a_result_whose_record_is_damaged_is_none_and_without_a_record_there_is_nothing(done, damage):
    task, one = done
    path = task.folder.subjects / "s1" / "done.json"
    whole = json.loads(path.read_text())
    path.write_text(json.dumps({k: v for k, v in whole.items() if k != damage}) if damage in whole else damage)
    assert state(task, one) == ("damaged", "done.json cannot be read")
    path.unlink()
    assert state(task, one) == ("to do", "")


def test_a_record_of_the_last_release_counts(tmp_path):
    """Written by hand, as version 0.5.0 wrote it."""
    one, task = subject(tmp_path), make_task(tmp_path / "out")
    file, place = tmp_path / "s1.nii", task.folder.subjects / "s1"
    place.mkdir()
    (place / "count.txt").write_text("s1")
    seen = file.stat()
    image = {"path": str(file), "stamp": [str(file), seen.st_size, seen.st_mtime_ns], "sha256": digest(str(file))}
    record = {
        "subject": "s1",
        "recipe": dict(task.recipe),
        "inputs": {"fixed": image, "moving": image},
        "row": {"verdict": "good", "length": 10, "machine": "node"},
        "seconds": 1.0,
        "finished": "2026-01-01T00:00:00+00:00",
        "files": {"count.txt": {"bytes": 2, "sha256": digest(str(place / "count.txt"))}},
    }
    (place / "done.json").write_text(json.dumps(record))
    (task.folder.working / "s1.lock").write_text("1")
    assert state(task, one) == ("done", "")
    failure = {"subject": "s2", "reason": "no image", "recipe": dict(task.recipe), "seconds": 1.0}
    (task.folder.failures / "s2.json").write_text(json.dumps(failure | {"inputs": {"fixed": {"stamp": None}}}))
    other = type(one)("s2", {"fixed": str(tmp_path / "none.nii")})
    assert state(task, other) == ("failed", "no image")


def test_a_failure_counts_for_its_recipe_and_its_inputs_alone(tmp_path):
    task, one = make_task(tmp_path / "out", Count(failing=frozenset({"s1"}))), subject(tmp_path)
    task(one)
    assert state(task, one) == ("failed", "ValueError: s1 cannot be counted")
    assert state(make_task(tmp_path / "out", method="x"), one) == ("to do", "")
    subject(tmp_path, text="another image")
    assert state(task, one) == ("to do", "")


def test_a_page_that_is_not_asked_for_any_more_is_no_change(done, tmp_path):
    """Whoever leaves out --report when going on does not lose what is done; whoever adds it wants the pages."""
    task, one = done
    with_page = make_task(tmp_path / "out", report=True)
    assert state(with_page, one) == ("changed", "report False → True")
    with_page(one)
    assert state(with_page, one) == state(task, one) == ("done", "")


def test_a_commit_that_one_of_both_does_not_know_is_no_change(tmp_path):
    one, out = subject(tmp_path), tmp_path / "out"
    known, unknown, other = (make_task(out, commit=commit) for commit in ("a" * 40, None, "b" * 40))
    assert known(one).status == "done"
    assert state(known, one) == state(unknown, one) == ("done", "")
    assert state(other, one) == ("changed", f"commit {'a' * 40} → {'b' * 40}")
    changed = make_task(out, method="x", commit=None)
    assert state(changed, one) == ("changed", "method count → x"), "a commit that is not known is not told"


def test_a_result_of_what_the_images_chose_is_what_is_asked_for_by_its_name(tmp_path):
    """`default` came to a method; whoever asks for that one has its results, and whoever asks for `default` has not."""
    one, out = subject(tmp_path), tmp_path / "out"
    for asked, weights in (("default", "aa"), ("short-axis", "aa")):
        make_task(out / asked, lambda subject, folder: {"method": "short-axis"}, method=asked, weights=weights)(one)
    assert state(make_task(out / "default", method="short-axis", weights="aa"), one) == ("done", "")
    assert state(make_task(out / "default", method="TV-L1", weights="aa"), one)[1] == "method default → TV-L1"
    assert state(make_task(out / "default", method="default", weights="bb"), one)[1] == "weights aa → bb"
    assert state(make_task(out / "short-axis", method="default", weights="aa"), one)[0] == "changed"
    solver = lambda subject, folder: {"method": "Gaussian-LNCC"}  # noqa: E731
    make_task(out / "solver", solver, method="default", weights="aa")(one)
    assert state(make_task(out / "solver", method="Gaussian-LNCC", weights=None), one) == ("done", "")


def test_a_plan_sorts_subjects_by_what_the_folder_says(four):
    task, subjects = four
    (task.folder.working / "s3~abc").mkdir()  # as a killed process leaves it
    plan = make_plan(task.folder, subjects, task.recipe)
    assert names(plan) == [["s0", "s1"], ["s2"], [], ["s3"]]
    assert [one.name for one in plan.to_do(retry=False)] == ["s3"]
    assert [one.name for one in plan.to_do(retry=True)] == ["s2", "s3"], "that during which one was killed comes last"


def test_another_recipe_asks_for_everything_again_and_says_why(four, monkeypatch):
    task, subjects = four
    recipe = {**task.recipe, "method": "other"}
    plan = make_plan(task.folder, subjects, recipe)
    assert names(plan) == [[], [], ["s0", "s1"], ["s2", "s3"]]
    assert plan.changes == {"method count → other": 2}
    monkeypatch.setattr("vrnet.cohort.results.digest", None)  # inputs need not be read, which may be large
    with pytest.raises(BadInput, match=r"2 results in .* method count → other \(2\)"):
        check_kept(plan, task.folder, recipe)


def test_other_inputs_and_results_that_are_not_whole_are_noticed(four, tmp_path):
    task, subjects = four
    (tmp_path / "s0.nii").write_text("another image")
    (tmp_path / "s2.nii").write_text("repaired")
    (task.folder.subjects / "s1" / "count.txt").write_text("shorter")
    plan = make_plan(task.folder, subjects, task.recipe)
    assert names(plan) == [[], [], ["s0", "s1"], ["s2", "s3"]]
    assert plan.changes == {"newer or other inputs": 1, "files are cut short, or were changed": 1}


def test_inputs_of_another_time_and_the_same_content_are_kept_and_remembered(four, tmp_path):
    task, subjects = four
    os.utime(tmp_path / "s0.nii", (1, 1))
    plan = make_plan(task.folder, subjects, task.recipe)
    assert names(plan)[2] == ["s0"]
    check_kept(plan, task.folder, task.recipe)
    before = (task.folder.subjects / "s0" / "count.txt").stat()
    task(subjects[0])
    assert names(make_plan(task.folder, subjects, task.recipe))[0] == ["s0", "s1"]
    assert (task.folder.subjects / "s0" / "count.txt").stat() == before


def test_what_a_killed_process_left_of_a_subject_goes_once_the_subject_has_ended(four):
    task, subjects = four
    for name in ("s0", "s3"):
        (task.folder.working / f"{name}~abc").mkdir()
    task.folder.make(ended={"s0", "s2"})
    assert task.folder.begun() == {"s3"}
    (task.folder.working / "s4~abc").mkdir()
    os.utime(task.folder.working / "s4~abc", (1, 1))  # a day ago, and more
    task.folder.make()
    assert task.folder.begun() == {"s3"}
    assert task(subjects[3], is_last=True).status == "done"
    assert task.folder.begun() == set()
