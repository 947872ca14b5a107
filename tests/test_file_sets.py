"""All of the old set or all of the new, and nothing of anybody else's."""

import errno
import json
import os
from contextlib import suppress
from pathlib import PurePosixPath
from threading import Event, Thread
from time import sleep

import pytest

from vrnet.errors import BadInput
from vrnet.files import RECORD, SWAP, check_set, replace_set, sha256

NAMES = ("a.txt", "b.txt", "c.txt", "both/x.txt", "both/y.txt", "before/x.txt", "after/all/x.txt")
OLD = {"a.txt": "old a", "b.txt": "old b", "both/x.txt": "old x", "before/x.txt": "old"}
NEW = {"a.txt": "new a", "c.txt": "new c", "both/x.txt": "new x", "both/y.txt": "new y", "after/all/x.txt": "new"}
STEPS = ("symlink", "link", "rename", "replace", "unlink", "mkdir", "rmdir", "chmod")
"""The calls of the system by which a swap is done."""


def write_set(folder, texts):
    with replace_set(folder, NAMES) as staged:
        for name, text in texts.items():
            (staged / name).parent.mkdir(parents=True, exist_ok=True)
            (staged / name).write_text(text)


def stop_while_writing(folder):
    with replace_set(folder, NAMES) as staged:
        (staged / "a.txt").write_text("half")
        raise KeyboardInterrupt


def contents(folder):
    """{name: text} of what can be opened there by its name, but for the record."""
    return {
        path.relative_to(folder).as_posix(): path.read_text()
        for path in folder.rglob("*")
        if path.exists() and path.is_file() and not path.relative_to(folder).parts[0].startswith(".")
    }


def files_of(folder):
    """{name: bytes} of every file, the record's too."""
    return {name: (folder / name).read_bytes() for name in names_there(folder) if (folder / name).is_file()}


def names_there(folder):
    """The names of all that a folder and those below it hold."""
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*")}


def with_folders(names):
    """The names, and those of the folders on the way."""
    places = (parent.as_posix() for name in names for parent in PurePosixPath(name).parents)
    return {*names, *places} - {"."}


def test_a_set_replaces_all_of_the_earlier_one_and_nothing_else(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    write_set(tmp_path, OLD)
    assert contents(tmp_path) == OLD | {"mine.txt": "mine"}
    write_set(tmp_path, NEW)
    assert contents(tmp_path) == NEW | {"mine.txt": "mine"}
    assert names_there(tmp_path) == {*with_folders(NEW), "mine.txt", RECORD}
    assert not any(path.is_symlink() for path in tmp_path.rglob("*"))
    recorded = json.loads((tmp_path / RECORD).read_text())["files"]
    assert recorded == {name: sha256(tmp_path / name) for name in NEW}


def test_a_folder_that_others_use_too_stays(tmp_path):
    write_set(tmp_path, OLD)
    (tmp_path / "before" / "mine.txt").write_text("mine")
    write_set(tmp_path, NEW)
    assert contents(tmp_path) == NEW | {"before/mine.txt": "mine"}


@pytest.mark.parametrize("is_link", [False, True])
def test_a_folder_that_is_none_is_refused_before_the_work(tmp_path, is_link):
    (tmp_path / "else").mkdir()
    if is_link:
        (tmp_path / "both").symlink_to(tmp_path / "else")
    else:
        (tmp_path / "both").write_text("a file")
    with pytest.raises(BadInput, match="is no folder"):
        check_set(tmp_path, NAMES)


@pytest.mark.parametrize(("name", "twin"), [("t.nii.gz", "t.nii"), ("t.nii", "t.nii.gz")])
def test_a_set_never_lies_beside_what_itk_would_read_for_it(tmp_path, name, twin):
    """Not even if that was put there while the set was written: the old set stays, and the new one is refused."""
    with replace_set(tmp_path, [name]) as staged:
        (staged / name).write_text("old")

    def write_while_a_twin_comes():
        with replace_set(tmp_path, [name]) as staged:
            (staged / name).write_text("new")
            (tmp_path / twin).write_text("mine")

    with pytest.raises(BadInput, match="ITK takes it for"):
        write_while_a_twin_comes()
    assert contents(tmp_path) == {name: "old", twin: "mine"}


def test_a_set_that_fails_leaves_the_earlier_one(tmp_path):
    write_set(tmp_path, OLD)
    before = files_of(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        stop_while_writing(tmp_path)
    assert before == files_of(tmp_path)


@pytest.mark.parametrize("spoil", [lambda path: path.write_text("by somebody else"), lambda path: path.mkdir()])
def test_a_file_of_somebody_else_is_refused_before_the_work_and_kept(tmp_path, spoil):
    spoil(tmp_path / "a.txt")
    with pytest.raises(BadInput, match=r"a\.txt .*: (move it away, or )?choose another folder"):
        check_set(tmp_path, NAMES)
    with pytest.raises(BadInput):
        write_set(tmp_path, NEW)
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


@pytest.mark.parametrize("name", OLD)
def test_a_file_that_was_changed_since_is_somebody_else_s(tmp_path, name):
    """If the new set has its name it is refused; if not, it stays."""
    write_set(tmp_path, OLD)
    (tmp_path / name).write_text("changed by hand")
    if name in NEW:
        with pytest.raises(BadInput, match="would be lost"):
            write_set(tmp_path, NEW)
        assert contents(tmp_path) == OLD | {name: "changed by hand"}
    else:
        write_set(tmp_path, NEW)
        assert contents(tmp_path) == NEW | {name: "changed by hand"}


def test_a_link_of_somebody_else_s_is_not_followed(tmp_path):
    write_set(tmp_path / "out", OLD)
    (tmp_path / "elsewhere").write_text("old a")
    (tmp_path / "out" / "a.txt").unlink()
    (tmp_path / "out" / "a.txt").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BadInput, match="would be lost"):
        check_set(tmp_path / "out", NAMES)


def test_a_set_that_another_run_is_swapping_is_never_taken_for_files_of_others(tmp_path):
    write_set(tmp_path, OLD)

    swaps, enough = [], Event()

    def swap_again_and_again():
        while not enough.wait(0.02):  # each pauses, so that the other gets the lock
            for files in (NEW, OLD):
                write_set(tmp_path, files)
                swaps.append(files)

    writer = Thread(target=swap_again_and_again)
    writer.start()
    looks = 0
    try:
        while writer.is_alive() and (len(swaps) < 40 or looks < 6):
            check_set(tmp_path, NAMES)
            looks += 1
            sleep(0.02)
    finally:
        enough.set()
        writer.join()
    assert len(swaps) >= 40
    assert looks >= 6
    assert contents(tmp_path) == OLD


@pytest.mark.parametrize("record", ["", "[]", '{"files": 3}', '{"files": {"a.txt": 1, "../x": "y"}}', "\x00"])
def test_a_damaged_record_makes_nothing_ours(tmp_path, record):
    write_set(tmp_path, OLD)
    (tmp_path / RECORD).write_text(record)
    with pytest.raises(BadInput, match="would be lost"):
        write_set(tmp_path, NEW)
    assert contents(tmp_path) == OLD


class Killed(BaseException):
    """Stands for SIGKILL: nothing is tidied up after it."""


@pytest.fixture
def stop_at(monkeypatch):
    """stop_at(n): every call of the system from the n-th on fails as if the process had been killed before it."""
    calls = []

    def stop_at(limit):
        calls.clear()

        def counting(call):
            def counted(*args, **options):
                calls.append(call.__name__)
                if len(calls) > limit:
                    raise Killed
                return call(*args, **options)

            return counted

        for step in STEPS:
            monkeypatch.setattr(os, step, counting(getattr(os, step)))
        return calls

    return stop_at


@pytest.mark.parametrize("before", [OLD, {}], ids=["over an old set", "in an empty folder"])
def test_whenever_a_swap_is_stopped_all_names_are_of_one_set(tmp_path, stop_at, monkeypatch, before):
    seen = []
    for limit in range(1000):
        folder = tmp_path / str(limit)
        folder.mkdir()
        (folder / "mine.txt").write_text("mine")
        if before:
            write_set(folder, before)
        calls = stop_at(limit)
        with suppress(Killed):
            write_set(folder, NEW)
        is_done = len(calls) <= limit
        monkeypatch.undo()
        found = contents(folder)
        assert found in (before | {"mine.txt": "mine"}, NEW | {"mine.txt": "mine"}), calls
        seen.append("c.txt" in found)
        write_set(folder, OLD)
        assert names_there(folder) == {*with_folders(OLD), "mine.txt", RECORD}
        assert contents(folder) == OLD | {"mine.txt": "mine"}
        if is_done:
            break
    assert len(seen) > 20
    assert seen == sorted(seen), "once the new set is there, it stays"
    assert sum(seen) > 5, "there are steps after the one that shows the new set"


def test_where_there_are_no_links_files_are_renamed(tmp_path, monkeypatch):
    def no_links(*_, **__):
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "symlink", no_links)
    monkeypatch.setattr(os, "link", no_links)
    write_set(tmp_path, OLD)
    write_set(tmp_path, NEW)
    assert names_there(tmp_path) == {*with_folders(NEW), RECORD}
    assert contents(tmp_path) == NEW


def test_a_file_that_somebody_puts_there_meanwhile_is_kept(tmp_path, monkeypatch):
    write_set(tmp_path, OLD)
    rename = os.rename

    def put_file(source, target):
        rename(source, target)
        if str(target).endswith(SWAP):
            (tmp_path / "c.txt").write_text("by somebody else")

    monkeypatch.setattr(os, "rename", put_file)
    with pytest.raises(BadInput, match="nothing was replaced"):
        write_set(tmp_path, NEW)
    assert contents(tmp_path) == OLD | {"c.txt": "by somebody else"}


@pytest.mark.parametrize(("there", "asked"), [("x.nii", "x.nii.gz"), ("x.nii.gz", "x.nii")])
def test_no_image_is_written_beside_one_that_itk_takes_for_it(tmp_path, there, asked):
    (tmp_path / there).touch()
    with pytest.raises(BadInput, match="ITK takes it for"):
        check_set(tmp_path, [asked])
