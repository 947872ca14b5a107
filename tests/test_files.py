"""Files are written whole or not at all, nobody else's are touched, and tables, JSON and records read as they went."""

import json
import os
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Literal

import numpy as np
import pytest

from tests.images.conftest import picture
from vrnet.errors import BadInput
from vrnet.files import (
    RECORD,
    atomic_write,
    check_file,
    check_folder,
    check_set,
    columns_of,
    json_ready,
    read_json,
    read_lines,
    read_record,
    read_rows,
    replace_set,
    sha256,
    write_json,
    write_rows,
    write_table,
)
from vrnet.images.grid import Grid
from vrnet.images.io import IMAGE_SUFFIXES, write_image

FORM = "two columns, a and b"
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


def test_two_at_once_do_not_meet_and_the_last_one_takes_the_old_file_s_place(tmp_path):
    path = tmp_path / "x.txt"
    path.write_text("old")
    with atomic_write(path) as first, atomic_write(path) as second:
        first.write_text("first")
        second.write_text("second")
        assert path.read_text() == "old"
    assert path.read_text() == "first"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_may_be_read_by_whoever_may_read_its_neighbours(tmp_path):
    """Some libraries, such as safetensors, write files that nobody else may read."""
    (tmp_path / "neighbour").touch()
    with atomic_write(tmp_path / "x") as temporary:
        temporary.touch(mode=0o600)
    assert (tmp_path / "x").stat().st_mode == (tmp_path / "neighbour").stat().st_mode


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
        check_file(tmp_path / name, IMAGE_SUFFIXES)
    with pytest.raises(BadInput, match=why):
        write_image(picture(GRID), tmp_path / name)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder.nii.gz"]


def test_asking_makes_nothing(tmp_path):
    check_file(tmp_path / "a" / "b" / "x.nii.gz", IMAGE_SUFFIXES)
    check_folder(tmp_path / "a" / "b")
    assert not list(tmp_path.iterdir())
    write_image(picture(GRID), str(tmp_path / "a" / "b" / "x.nii.gz"))
    assert [path.name for path in (tmp_path / "a" / "b").iterdir()] == ["x.nii.gz"]


def test_a_folder_in_place_of_a_file_and_a_file_in_place_of_a_folder_are_refused(tmp_path):
    (tmp_path / "metrics.json").mkdir()
    (tmp_path / "both").write_text("a file")
    with pytest.raises(BadInput, match="would have to be a file"):
        check_folder(tmp_path, ("warped.nii.gz", "metrics.json"))
    with pytest.raises(BadInput, match=r"x\.txt is a folder, or in a file"):
        check_set(tmp_path, ["both/x.txt"])
    with pytest.raises(BadInput, match=r"cannot write to .*: choose another folder") as raised:
        check_folder(tmp_path / "both" / "sub" / "folder")
    assert len(str(raised.value).splitlines()) == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write everywhere")
def test_a_folder_without_permission_is_refused(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(BadInput, match=r"cannot write to .*Permission denied"):
        check_file(tmp_path / "x.nii.gz", IMAGE_SUFFIXES)


# Rows of CSV files


@pytest.fixture
def table(tmp_path):
    """table(text): the path of a CSV file with this text."""

    def write(text, encoding="utf-8"):
        (tmp_path / "table.csv").write_bytes(text.encode(encoding))
        return tmp_path / "table.csv"

    return write


def test_rows_have_a_value_for_every_column(table):
    """Without spaces around names and cells; what a line lacks at its end is empty; empty lines are none."""
    rows = read_rows(table(' a,b ,c\n1, 2 ,"x, y"\n\n3\n4,,5,\n'), FORM)
    assert rows == [{"a": "1", "b": "2", "c": "x, y"}, {"a": "3", "b": "", "c": ""}, {"a": "4", "b": "", "c": "5"}]


@pytest.mark.parametrize(
    ("text", "encoding"), [("a,b\r\n1,é\r\n", "utf-8"), ("\na,b\n\n1,é", "utf-8-sig")], ids=["Windows", "Excel"]
)
def test_marks_and_line_ends_do_not_matter(table, text, encoding):
    assert read_rows(table(text, encoding), FORM) == [{"a": "1", "b": "é"}]


@pytest.mark.parametrize(("read", "mark", "name"), [(read_rows, ";", "semicolons"), (read_lines, "\t", "tabs")])
def test_cells_separated_otherwise_are_refused(table, read, mark, name):
    with pytest.raises(BadInput, match=f"separated by {name}: separate them by commas"):
        list(read(table(f"a{mark}b\n1{mark}2\n"), FORM))
    assert list(read(table(f"a{mark}b,c\n1,2\n"), FORM)), "it may be part of a name"


def test_a_table_comes_back_as_it_was_written(tmp_path):
    """Every column that any row has, every digit, any text; without a value the cell is empty."""
    cell, numbers = 'a,b; say "x"\nin two lines Θ ', np.random.default_rng(0).standard_normal(3).tolist()
    rows = [{"subject": cell, "x": numbers[0]}, {"subject": "b, c", "y": np.nan, "x": None}, {"y": numbers[1]}]
    assert columns_of(rows) == ["subject", "x", "y"]
    write_rows(rows, tmp_path / "new" / "rows.csv")
    expected = [[cell, str(numbers[0]), ""], ["b, c", "", ""], ["", "", str(numbers[1])]]
    assert list(read_lines(tmp_path / "new" / "rows.csv", FORM)) == [["subject", "x", "y"], *expected]
    write_table([" a", "b "], [["a\udcff", " 2"]], tmp_path / "x.csv")  # a name may hold bytes that are no text
    assert list(read_lines(tmp_path / "x.csv", FORM)) == [[" a", "b "], ["a\\udcff", " 2"]]


# JSON


def test_json_is_strict_and_reads_back(tmp_path):
    metrics = {
        "nan": [np.nan, float("inf"), -np.inf, np.float32("nan")],
        "numpy": (np.float32(0.5), np.int64(3), np.bool_(True), np.uint8(7)),
        "arrays": {"inside": np.array([[1.0, np.nan], [np.inf, 2.0]])},
        "plain": ["R-L2-2x1-Θ1", "weights\udcff.safetensors", 1, 2.5, None, False],
        4: "a label",
    }
    expected = {
        "nan": [None] * 4,
        "numpy": [0.5, 3, True, 7],
        "arrays": {"inside": [[1.0, None], [None, 2.0]]},
        "plain": ["R-L2-2x1-Θ1", "weights\udcff.safetensors", 1, 2.5, None, False],
        "4": "a label",
    }
    assert json_ready(metrics) == expected
    write_json(metrics, tmp_path / "x.json")
    assert json.loads((tmp_path / "x.json").read_text(encoding="utf-8"), parse_constant=pytest.fail) == expected
    assert read_json(tmp_path / "x.json") == expected


def test_what_is_no_json_is_refused_in_one_line(tmp_path):
    for text in ("{", "[" * 100_000):
        (tmp_path / "x.json").write_text(text)
        with pytest.raises(BadInput, match=f"cannot read {tmp_path / 'x.json'}: it should be a JSON file"):
            read_json(tmp_path / "x.json")


@pytest.mark.parametrize("read", [read_json, lambda path: read_rows(path, "rows"), sha256], ids=["JSON", "CSV", "hash"])
def test_what_could_block_is_refused_rather_than_waited_for(tmp_path, read):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero"), tmp_path):
        with pytest.raises(BadInput, match="no ordinary file"):
            read(path)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"subject,split,subject\na,train,b\n", 'has two columns "subject": give each a name of its own'),
        (b'a,b\n1,"' + b"x\n" * 200_000, f"should be a text file in UTF-8 with {FORM}"),
        (b"a,b\n1,\0\n", "should be a text file"),
        (b"\xff\xfea,b\n", "should be a text file"),
        (b"a,b\nx.nii,1, 2\n", r'more cells than columns in "x\.nii, \.\.\.": quote'),
        (None, f"there is no .*: write one with {FORM}"),
    ],
    ids=["column twice", "quote", "NUL", "UTF-16", "a comma too many", "nothing"],
)
def test_what_is_no_table_is_refused(tmp_path, content, words):
    if content is not None:
        (tmp_path / "t.csv").write_bytes(content)
    with pytest.raises(BadInput, match=words) as raised:
        read_rows(tmp_path / "t.csv", FORM)
    assert len(str(raised.value).splitlines()) == 1


# The files of a result

NAMES = ("a.txt", "b.txt", "c.txt", "both/x.txt", "both/y.txt", "before/x.txt", "after/all/x.txt")
OLD = {"a.txt": "old a", "b.txt": "old b", "both/x.txt": "old x", "before/x.txt": "old"}
NEW = {"a.txt": "new a", "c.txt": "new c", "both/x.txt": "new x", "both/y.txt": "new y", "after/all/x.txt": "new"}


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
    recorded = json.loads((tmp_path / RECORD).read_text())["files"]
    assert recorded == {name: sha256(tmp_path / name) for name in NEW}


def test_a_folder_that_others_use_too_stays(tmp_path):
    write_set(tmp_path, OLD)
    (tmp_path / "before" / "mine.txt").write_text("mine")
    write_set(tmp_path, NEW)
    assert contents(tmp_path) == NEW | {"before/mine.txt": "mine"}


def test_a_set_that_fails_leaves_the_earlier_one(tmp_path):
    write_set(tmp_path, OLD)
    before = files_of(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        stop_while_writing(tmp_path)
    assert before == files_of(tmp_path)


def test_a_file_that_is_missing_elsewhere_is_no_fault_of_the_folder_that_is_written(tmp_path):
    for writing in (replace_set(tmp_path / "out", ("a",)), atomic_write(tmp_path / "out" / "a")):
        with pytest.raises(FileNotFoundError, match="elsewhere"), writing:
            (tmp_path / "elsewhere").read_text()


@pytest.mark.parametrize("spoil", [lambda path: path.write_text("by somebody else"), lambda path: path.mkdir()])
def test_a_file_of_somebody_else_is_refused_before_the_work_and_kept(tmp_path, spoil):
    spoil(tmp_path / "a.txt")
    with pytest.raises(BadInput, match=r"a\.txt .*: (move it away, or )?choose another folder"):
        check_set(tmp_path, NAMES)
    with pytest.raises(BadInput):
        write_set(tmp_path, NEW)
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


@pytest.mark.parametrize("name", ["a.txt", "before/x.txt"])
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


@pytest.mark.parametrize("record", ["[]", '{"files": 3}', '{"files": {"a.txt": 1, "../x": "y"}}'])
def test_a_damaged_record_makes_nothing_ours(tmp_path, record):
    write_set(tmp_path, OLD)
    (tmp_path / RECORD).write_text(record)
    with pytest.raises(BadInput, match="would be lost"):
        write_set(tmp_path, NEW)
    assert contents(tmp_path) == OLD


class Killed(BaseException):
    """Stands for SIGKILL: nothing is tidied up after it."""


def test_whenever_a_run_is_killed_each_file_is_whole_and_the_run_can_be_repeated(tmp_path, monkeypatch):
    """Killed before its n-th rename, for every n: each name has its old file or its new one, and nothing is lost."""
    rename, done = os.replace, False
    for limit in range(100):
        if done:
            break
        folder = tmp_path / str(limit)
        folder.mkdir()
        (folder / "mine.txt").write_text("mine")
        write_set(folder, OLD)
        left = iter([None] * limit)

        def stop(*args, left=left):
            if next(left, "end") == "end":
                raise Killed
            rename(*args)

        monkeypatch.setattr(os, "replace", stop)
        monkeypatch.setattr(os, "rename", stop)
        with suppress(Killed):
            write_set(folder, NEW)
            done = True
        monkeypatch.undo()
        for name, text in contents(folder).items():
            assert text in (OLD.get(name), NEW.get(name), "mine")
        write_set(folder, NEW)
        assert contents(folder) == NEW | {"mine.txt": "mine"}
        assert names_there(folder) == {*with_folders(NEW), "mine.txt", RECORD}
    assert limit > 7


def test_no_image_is_written_beside_one_that_itk_takes_for_it(tmp_path):
    (tmp_path / "x.nii").touch()
    with pytest.raises(BadInput, match="ITK takes it for"):
        check_set(tmp_path, ["x.nii.gz"])


# What killed processes leave


def test_what_a_killed_process_left_goes_after_a_day(tmp_path):
    for name, age in ((".partial-old", 2 * 24 * 3600), (".partial-new", 60), ("mine", 2 * 24 * 3600)):
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (time.time() - age,) * 2)
    (tmp_path / ".partial-link").symlink_to(tmp_path / "mine")
    check_folder(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {".partial-new", ".partial-link", "mine"}


# Records

FILE = Path("some") / "file.json"


@dataclass(frozen=True)
class Wheel:
    inches: float


@dataclass(frozen=True)
class Bicycle:
    name: str
    gears: int
    wheels: tuple[Wheel, ...]
    colour: Literal["red", "blue"] = "red"
    stickers: dict[str, int] = field(default_factory=dict)
    owner: str | None = None
    more: Any = None
    is_old: bool = False

    def __post_init__(self):
        if self.gears < 1:
            raise BadInput(f"a bicycle has a gear, not {self.gears}")


GOOD = {"name": "Hercules", "gears": 3, "wheels": [{"inches": 28}, {"inches": 26.5}]}


def test_what_fits_becomes_the_dataclass_through_json():
    given = GOOD | {"stickers": {"star": 2}, "owner": "Θ", "more": [1, "x"], "is_old": True}
    expected = Bicycle("Hercules", 3, (Wheel(28.0), Wheel(26.5)), "red", {"star": 2}, "Θ", [1, "x"], True)
    assert read_record(json.loads(json.dumps(given)), Bicycle, FILE, "buy another") == expected


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"name": "x", "gears": 3}, "Object missing required field `wheels`"),
        (GOOD | {"bell": 1}, "the key 'bell' is not known"),
        (GOOD | {"gears": "3"}, "Expected `int`, got `str` - at `$.gears`"),
        (GOOD | {"gears": 0}, "a bicycle has a gear, not 0"),
        (GOOD | {"name": "a\x1b[31m"}, r"it holds 'a\x1b[31m', which is no line of text"),
        (GOOD | {"wheels": [{"inches": float("inf")}]}, "it holds inf, which is no finite number"),
        (GOOD | {"colour": "green"}, "Invalid enum value 'green' - at `$.colour`"),
    ],
)  # fmt: skip
def test_what_does_not_is_named_by_file_and_key(given, words):
    with pytest.raises(BadInput) as raised:
        read_record(given, Bicycle, FILE, "buy another")
    message = str(raised.value)
    assert message.startswith("some/file.json is not as vrnet writes it, ")
    assert message.endswith(f"{words}: buy another")
    assert message.isprintable()
    assert len(message) < 200
