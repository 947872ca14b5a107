"""Runs of one recipe share a folder; one of another recipe is refused while they are at it."""

import os
from concurrent.futures import ThreadPoolExecutor
from threading import Timer

import pytest

from tests.cohort.works import make_task
from vrnet import BadInput
from vrnet.cohort.results import CohortFolder
from vrnet.cohort.run import open_folder
from vrnet.files import acquire_lock


def names_in(task):
    return [path.name for path in task.folder.working.iterdir()]


def test_runs_of_one_recipe_share_a_folder_and_leave_nothing(tmp_path):
    one, other = make_task(tmp_path), make_task(tmp_path)
    with open_folder(one.folder, one.recipe):
        with open_folder(other.folder, other.recipe):
            pass
        assert len(names_in(one)) == 1, "the first is still at it"
    assert names_in(one) == []


def test_many_runs_that_open_a_folder_at_once_are_all_let_in(tmp_path):
    """Each also looks whether the others are of another recipe, and tidies, for which it holds locks alone."""
    task = make_task(tmp_path)

    def open_often(_):
        for _ in range(15):
            with open_folder(task.folder, task.recipe):
                pass

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(open_often, range(8)))
    assert names_in(task) == []


def test_a_lock_that_is_tidied_away_at_this_moment_keeps_nobody_out(tmp_path):
    task = make_task(tmp_path)
    left = task.folder.lock(".run-0123456789abcdef")
    descriptor = acquire_lock(left)
    Timer(0.2, lambda: (left.unlink(), os.close(descriptor))).start()
    with open_folder(task.folder, task.recipe):
        assert len(names_in(task)) == 1


def test_a_run_of_another_recipe_is_refused_until_the_first_has_ended(tmp_path):
    one, other = make_task(tmp_path), make_task(tmp_path, method="other")
    with (
        open_folder(one.folder, one.recipe),
        pytest.raises(BadInput, match=r"another run is at .*, with another method or other options"),
        open_folder(other.folder, other.recipe),
    ):
        pass
    with open_folder(other.folder, other.recipe):
        pass
    assert names_in(one) == []


def test_runs_by_code_without_a_commit_share_a_folder_and_those_of_two_commits_do_not(tmp_path):
    """A node without git does not know which commit it runs."""
    first, unknown, other = (make_task(tmp_path, commit=commit) for commit in ("a" * 40, None, "b" * 40))
    with open_folder(first.folder, first.recipe):
        with open_folder(unknown.folder, unknown.recipe):
            pass
        with pytest.raises(BadInput, match="another run is at"), open_folder(other.folder, other.recipe):
            pass


def test_a_run_that_is_refused_before_anything_is_done_leaves_no_folder(tmp_path):
    folder = CohortFolder(tmp_path / "out")
    with pytest.raises(BadInput, match="no scheduler"), open_folder(folder, {}):
        raise BadInput("no scheduler")
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_is_refused_leaves_the_empty_folder_that_was_there(tmp_path):
    folder = CohortFolder(tmp_path / "out")
    folder.path.mkdir()
    with pytest.raises(BadInput, match="no scheduler"), open_folder(folder, {}):
        raise BadInput("no scheduler")
    assert [*tmp_path.rglob("*")] == [folder.path]


def test_a_run_that_was_killed_keeps_nobody_out(tmp_path):
    one = make_task(tmp_path)
    one.folder.lock(".run-0123456789abcdef").touch()
    with open_folder(one.folder, one.recipe):
        assert len(names_in(one)) == 1
    assert names_in(one) == []
