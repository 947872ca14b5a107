import os
import signal
import subprocess
import sys
from threading import Timer

import pytest

from vrnet.files import (
    ORDINARY,
    acquire_lock,
    check_folder,
    hold_lock,
    is_locked,
    partial_folder,
    remove_leftovers,
    share_lock,
)

HOLDER = """
import sys, time
from pathlib import Path
from vrnet.files import hold_lock, partial_folder
with hold_lock(Path(sys.argv[1], "lock")), partial_folder(Path(sys.argv[1])) as folder:
    (folder / "half").write_text("half of the n")
    (folder / "new").mkdir()
    (folder / "new" / "x").touch()
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def holder(tmp_path):
    """Another process that holds a lock and writes in a temporary folder, until it is killed."""
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_a_lock_keeps_others_out_until_its_process_is_killed(tmp_path, holder):
    assert is_locked(tmp_path / "lock")
    with pytest.raises(BlockingIOError), hold_lock(tmp_path / "lock"):
        pass
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    assert not is_locked(tmp_path / "lock")
    with hold_lock(tmp_path / "lock"):
        assert is_locked(tmp_path / "lock")
    assert not (tmp_path / "lock").exists()


def test_what_a_living_process_writes_stays_and_what_a_dead_one_left_goes(tmp_path, holder):
    (partial,) = tmp_path.glob(".partial-*")
    check_folder(tmp_path)
    assert (partial / "half").read_text() == "half of the n"
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    check_folder(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["lock"]


def test_only_folders_of_our_own_are_taken_for_left_behind(tmp_path):
    (tmp_path / ".partial-mine").mkdir()
    (tmp_path / ".partial-mine" / "precious").touch()
    (tmp_path / ".partial-file").touch()
    (tmp_path / ".partial-link").symlink_to(tmp_path / ".partial-mine")
    (tmp_path / ".partial-killed-at-once").mkdir()
    remove_leftovers(tmp_path)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {".partial-mine", ".partial-file", ".partial-link"}
    assert (tmp_path / ".partial-mine" / "precious").exists()


def test_where_there_are_no_locks_work_goes_on_and_nothing_is_taken_for_left_behind(tmp_path, monkeypatch):
    def no_locks(*_):
        raise OSError(37, "No locks available")

    monkeypatch.setattr("fcntl.flock", no_locks)
    with hold_lock(tmp_path / "lock"), partial_folder(tmp_path) as folder:
        remove_leftovers(tmp_path)
        assert (folder / ORDINARY).exists()
    assert not list(tmp_path.iterdir())


def test_who_shares_a_lock_waits_for_who_holds_it_alone_for_a_moment(tmp_path):
    descriptor = acquire_lock(tmp_path / "lock")
    Timer(0.1, os.close, (descriptor,)).start()
    with share_lock(tmp_path / "lock"), share_lock(tmp_path / "lock"):
        assert is_locked(tmp_path / "lock")


def test_a_lock_that_its_holder_has_just_removed_is_taken_anew(tmp_path, monkeypatch):
    """Two wait for one lock: the first may get hold of the file that the second has removed."""
    import fcntl

    removed = []

    def slow_flock(descriptor, how):
        if not removed:
            removed.append((tmp_path / "lock").unlink())
        return flock(descriptor, how)

    flock = fcntl.flock
    monkeypatch.setattr("fcntl.flock", slow_flock)
    with hold_lock(tmp_path / "lock"):
        assert (tmp_path / "lock").exists()
        assert is_locked(tmp_path / "lock")
