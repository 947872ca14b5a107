"""Runs of one recipe share a folder; one of another recipe is refused while they are at it."""

import pytest

from tests.cohort.works import make_task
from vrnet import BadInput
from vrnet.cohort.runs import open_folder


def names_in(task):
    return [path.name for path in task.folder.working.iterdir()]


def test_runs_of_one_recipe_share_a_folder_and_leave_nothing(tmp_path):
    one, other = make_task(tmp_path), make_task(tmp_path)
    with open_folder(one.folder, one.recipe):
        with open_folder(other.folder, other.recipe):
            pass
        assert len(names_in(one)) == 1, "the first is still at it"
    assert names_in(one) == []


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


def test_a_run_that_was_killed_keeps_nobody_out(tmp_path):
    one = make_task(tmp_path)
    one.folder.lock(".run-0123456789abcdef").touch()
    with open_folder(one.folder, one.recipe):
        assert len(names_in(one)) == 1
    assert names_in(one) == []
