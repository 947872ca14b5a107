import os

import pytest

from tests.images.conftest import picture
from vrnet.errors import BadInput
from vrnet.files import atomic_write, check_file, check_folder, exists
from vrnet.images.grid import Grid
from vrnet.images.io import WRITTEN, write_image

GRID = Grid.plain((12, 10, 8), (1.0, 1.5, 2.0))


def fail_at_writing(path, error):
    with atomic_write(path) as temporary:
        temporary.write_text("half of the n")
        raise error


@pytest.mark.parametrize(
    ("error", "raised"), [(RuntimeError("stop"), RuntimeError), (OSError(28, "disk full"), BadInput)]
)
def test_a_failed_writing_leaves_nothing_behind_and_keeps_the_old_file(tmp_path, error, raised):
    path = tmp_path / "metrics.json"
    path.write_text("old")
    with pytest.raises(raised):
        fail_at_writing(path, error)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_successful_writing_takes_the_old_file_s_place(tmp_path):
    path = tmp_path / "metrics.json"
    path.write_text("old")
    with atomic_write(path) as temporary:
        temporary.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_may_be_read_by_whoever_may_read_its_neighbours(tmp_path):
    """Whatever the library that wrote it had in mind: safetensors, for one, lets nobody else read."""
    (tmp_path / "neighbour").touch()
    with atomic_write(tmp_path / "x") as temporary:
        temporary.touch(mode=0o600)
    assert (tmp_path / "x").stat().st_mode == (tmp_path / "neighbour").stat().st_mode


def test_what_cannot_be_written_at_all_says_why(tmp_path):
    (tmp_path / "file").touch()
    with (
        pytest.raises(BadInput, match=r"cannot write .*: choose another place"),
        atomic_write(tmp_path / "file" / "x") as part,
    ):
        part.write_text("new")


def test_two_at_once_do_not_meet(tmp_path):
    path = tmp_path / "x.txt"
    with atomic_write(path) as first, atomic_write(path) as second:
        first.write_text("first")
        second.write_text("second")
    assert path.read_text() == "first", "the last to finish, whole"
    assert list(tmp_path.iterdir()) == [path]


def test_a_name_too_long_is_not_there(tmp_path):
    assert not exists(tmp_path / ("x" * 300))


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("x.unknown", "has no ending that can be written: choose one of"),
        ("x", "has no ending that can be written"),
        ("folder.nii.gz", "is a folder: name a file"),
        ("file/x.nii.gz", "cannot write to .*: choose another folder"),
    ],
)
def test_a_place_where_nothing_can_be_written_is_refused_before_the_work(tmp_path, name, why):
    (tmp_path / "folder.nii.gz").mkdir()
    (tmp_path / "file").touch()
    with pytest.raises(BadInput, match=why):
        check_file(tmp_path / name, WRITTEN)
    with pytest.raises(BadInput, match=why):
        write_image(picture(GRID), tmp_path / name)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder.nii.gz"]


def test_asking_makes_nothing(tmp_path):
    check_file(tmp_path / "a" / "b" / "x.nii.gz", WRITTEN)
    check_folder(tmp_path / "a" / "b")
    assert not list(tmp_path.iterdir())


def test_writing_makes_the_folder(tmp_path):
    write_image(picture(GRID), str(tmp_path / "a" / "b" / "x.nii.gz"))
    assert [path.name for path in (tmp_path / "a" / "b").iterdir()] == ["x.nii.gz"]


def test_a_folder_in_place_of_a_file_is_refused_before_the_work(tmp_path):
    (tmp_path / "metrics.json").mkdir()
    with pytest.raises(BadInput, match="would have to be a file"):
        check_folder(tmp_path, ("warped.nii.gz", "metrics.json"))


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write everywhere")
def test_a_folder_without_permission_is_refused(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(BadInput, match=r"cannot write to .*Permission denied"):
        check_file(tmp_path / "x.nii.gz", WRITTEN)


@pytest.mark.parametrize("name", ["probe", "metrics.json"])
def test_asking_leaves_what_is_in_the_folder_alone(tmp_path, name):
    (tmp_path / name).write_text("precious")
    check_folder(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == "precious"


@pytest.mark.parametrize("below", [".", "sub/folder"])
def test_a_file_is_no_folder(tmp_path, below):
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(BadInput, match=r"cannot write to .*: choose another folder") as raised:
        check_folder(file / below)
    assert len(str(raised.value).splitlines()) == 1
