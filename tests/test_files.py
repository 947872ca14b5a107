import csv
import json
import os
import time
import tracemalloc
from io import StringIO
from pathlib import Path

import numpy as np
import pytest

from tests.images.conftest import picture
from vrnet.errors import BadInput
from vrnet.files import (
    atomic_write,
    check_file,
    check_folder,
    columns_of,
    csv_text,
    exists,
    json_ready,
    read_json,
    read_rows,
    read_table,
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


def test_a_successful_writing_takes_the_old_file_s_place(tmp_path):
    path = tmp_path / "metrics.json"
    path.write_text("old")
    with atomic_write(path) as temporary:
        temporary.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_may_be_read_by_whoever_may_read_its_neighbours(tmp_path):
    """Some libraries, such as safetensors, write files that nobody else may read."""
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
        check_file(tmp_path / name, IMAGE_SUFFIXES)
    with pytest.raises(BadInput, match=why):
        write_image(picture(GRID), tmp_path / name)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder.nii.gz"]


def test_asking_makes_nothing(tmp_path):
    check_file(tmp_path / "a" / "b" / "x.nii.gz", IMAGE_SUFFIXES)
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
        check_file(tmp_path / "x.nii.gz", IMAGE_SUFFIXES)


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


@pytest.mark.parametrize("text", ["a,b\n1,é\n", "a,b\r\n1,é\r\n", "a,b\n1,é", "\na,b\n\n1,é\n\n"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_marks_and_line_ends_do_not_matter(table, text, encoding):
    assert read_rows(table(text, encoding), FORM) == [{"a": "1", "b": "é"}]


def test_a_table_is_read_as_it_is(table):
    assert read_table(table(" a,b ,c\n1, 2 ,3\n\n4\n"), FORM) == ([" a", "b ", "c"], [["1", " 2 ", "3"], ["4"]])


def test_an_empty_file_has_no_rows(table):
    assert read_rows(table(""), FORM) == []
    assert read_table(table("\n"), FORM) == ([], [])


@pytest.mark.parametrize("read", [read_rows, read_table])
def test_what_is_no_table_is_refused_in_one_line_that_says_how_it_should_look(table, tmp_path, read):
    for path, why in ((tmp_path / "absent.csv", "there is no"), (tmp_path, "cannot read")):
        with pytest.raises(BadInput, match=f"^{why} .*{FORM}$"):
            read(path, FORM)
    (tmp_path / "image.csv").write_bytes(bytes(range(256)))
    with pytest.raises(BadInput, match=f"^cannot read .*{FORM}$"):
        read(tmp_path / "image.csv", FORM)


@pytest.mark.parametrize("read", [read_rows, read_table])
@pytest.mark.parametrize(("mark", "name"), [(";", "semicolons"), ("\t", "tabs")])
def test_cells_separated_otherwise_are_refused(table, read, mark, name):
    with pytest.raises(BadInput, match=f"separated by {name}: separate them by commas"):
        read(table(f"a{mark}b\n1{mark}2\n"), FORM)
    assert read(table(f"a{mark}b,c\n1,2\n"), FORM), "it may be part of a name"


def test_a_line_with_a_comma_too_many_is_refused(table):
    with pytest.raises(BadInput, match=r'more cells than columns in the line "x\.nii, \.\.\.": quote'):
        read_rows(table("a,b\nx.nii,1, 2\n"), FORM)


def test_a_hundred_thousand_rows_are_read_quickly_and_without_copies(table):
    """Two seconds at most; and little more memory than the rows take themselves, traced for 10,000 of them."""
    lines = [f"subject{k:06d}/fixed.nii.gz,subject{k:06d}/moving.nii.gz,train" for k in range(100_000)]
    path = table("\n".join(["fixed,moving,split", *lines]))
    start = time.process_time()
    rows = read_rows(path, FORM)
    assert time.process_time() - start < 2
    assert (len(rows), rows[-1]["moving"]) == (100_000, "subject099999/moving.nii.gz")
    path = table("\n".join(["fixed,moving,split", *lines[:10_000]]))
    tracemalloc.start()
    rows = read_rows(path, FORM)
    kept, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1.1 * kept
    assert kept < 600 * len(rows)


def test_rows_are_written_with_every_column_that_any_of_them_has(tmp_path):
    rows = [{"subject": "a", "x": 0.1}, {"subject": "b, c", "y": np.nan, "x": None}]
    assert columns_of(rows) == ["subject", "x", "y"]
    write_rows(rows, tmp_path / "new" / "rows.csv")
    with (tmp_path / "new" / "rows.csv").open(newline="") as file:
        assert list(csv.DictReader(file)) == [
            {"subject": "a", "x": "0.1", "y": ""},
            {"subject": "b, c", "x": "", "y": ""},
        ]


def test_numbers_in_a_csv_file_lose_no_digit(tmp_path):
    numbers = np.random.default_rng(0).standard_normal(50).tolist()
    write_rows([{"x": x} for x in numbers], tmp_path / "x.csv")
    assert [float(row["x"]) for row in read_rows(tmp_path / "x.csv", FORM)] == numbers


@pytest.mark.parametrize("cell", ["a,b", 'say "x"', "two\nlines", " spaces ", "Θ", "x;y", "", "'"])
def test_any_text_in_a_cell_comes_back(tmp_path, cell):
    write_table(["name", "text"], [["first", cell], [cell, "last"]], tmp_path / "x.csv")
    assert read_table(tmp_path / "x.csv", FORM) == (["name", "text"], [["first", cell], [cell, "last"]])
    assert list(csv.reader(StringIO(csv_text([["first", cell]]), newline=""))) == [["first", cell]]


# JSON


def test_json_is_strict_and_reads_back(tmp_path):
    write_json({"x": np.float32(0.5), "missing": float("nan"), "rows": np.arange(3)}, tmp_path / "x.json")
    found = {"x": 0.5, "missing": None, "rows": [0, 1, 2]}
    assert json.loads((tmp_path / "x.json").read_text(encoding="utf-8"), parse_constant=pytest.fail) == found
    assert read_json(tmp_path / "x.json") == found


@pytest.mark.parametrize("name", ["R-L2-2x1-Θ1", "weights\udcff.safetensors"], ids=["text", "bytes that are no text"])
def test_any_name_is_kept_in_json(tmp_path, name):
    write_json({"method": name}, tmp_path / "x.json")
    assert read_json(tmp_path / "x.json") == {"method": name}


def test_text_in_json_is_readable(tmp_path):
    write_json({"method": "R-L2-2x1-Θ1"}, tmp_path / "x.json")
    assert "R-L2-2x1-Θ1" in (tmp_path / "x.json").read_text(encoding="utf-8")


@pytest.mark.parametrize("text", ["", "{", "nothing"])
def test_what_is_no_json_is_refused_in_one_line(tmp_path, text):
    (tmp_path / "x.json").write_text(text)
    for path in (tmp_path / "x.json", tmp_path / "absent.json", tmp_path):
        with pytest.raises(BadInput, match=f"cannot read {path}: it should be a JSON file"):
            read_json(path)


def test_what_is_ready_for_json_survives_strict_json():
    metrics = {
        "nan": [np.nan, float("inf"), -np.inf, np.float32("nan")],
        "numpy": (np.float32(0.5), np.int64(3), np.bool_(True), np.uint8(7)),
        "arrays": {"inside": np.array([[1.0, np.nan], [np.inf, 2.0]])},
        "plain": ["text", 1, 2.5, None, False],
        4: "a label",
    }
    ready = json_ready(metrics)
    assert ready == json.loads(json.dumps(ready, allow_nan=False))
    assert ready == {
        "nan": [None] * 4,
        "numpy": [0.5, 3, True, 7],
        "arrays": {"inside": [[1.0, None], [None, 2.0]]},
        "plain": ["text", 1, 2.5, None, False],
        "4": "a label",
    }


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"subject,split,subject\na,train,b\n", 'has two columns "subject": give each a name of its own'),
        (b",".join(b"c%d" % k for k in range(1001)) + b"\n1\n", "has 1001 columns: it may have 1,000 at most"),
        (b"a,b\n1," + b"x" * 2_000_000, "should be a text file"),
        (b'a,b\n1,"' + b"x\n" * 200_000, "should be a text file"),
        (b"a,b\n1,\0\n", "should be a text file"),
        (b"\xff\xfea,b\n", "should be a text file"),
    ],
    ids=["column twice", "columns", "line", "quote", "NUL", "UTF-16"],
)
def test_what_is_no_table_is_refused(tmp_path, content, words):
    (tmp_path / "t.csv").write_bytes(content)
    with pytest.raises(BadInput, match=words) as raised:
        read_rows(tmp_path / "t.csv", "rows")
    assert len(str(raised.value).splitlines()) == 1


def test_columns_without_a_name_may_be_many(tmp_path):
    """As spreadsheets write them."""
    (tmp_path / "t.csv").write_text("a,,\n1,,\n")
    assert [row["a"] for row in read_rows(tmp_path / "t.csv", "rows")] == ["1"]


@pytest.mark.parametrize("read", [read_json, lambda path: read_rows(path, "rows")], ids=["JSON", "CSV"])
def test_a_pipe_is_refused_rather_than_waited_for(tmp_path, read):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(BadInput, match="no ordinary file"):
        read(tmp_path / "pipe")
    with pytest.raises(BadInput, match="no ordinary file"):
        read(Path("/dev/zero"))


def test_lists_within_lists_are_no_json_of_ours(tmp_path):
    (tmp_path / "deep.json").write_text("[" * 100_000)
    with pytest.raises(BadInput, match="should be a JSON file"):
        read_json(tmp_path / "deep.json")


@pytest.mark.parametrize(
    "cell",
    ["=1+1", "+a", "-a", "@SUM(A1)", "\tx", "\rx", "'=1", "''-x", "'-1.5", "'a", "-1.5", "+1e-3", "-", "＝1", "a"],
)
def test_a_formula_is_guarded_in_a_csv_file_and_read_back_as_it_was(tmp_path, cell):
    """Against the rules of spreadsheets: what begins with one of these marks, and is no number, is computed."""
    write_table([cell, "b"], [[cell, -1.5], [1, cell]], tmp_path / "t.csv")
    with (tmp_path / "t.csv").open(encoding="utf-8", newline="") as file:
        written = [text for line in csv.reader(file) for text in line]
    numbers = {"-1.5", "+1e-3"}
    assert not [text for text in written if text[0] in "=+-@\t\r＝" and text not in numbers]
    assert read_table(tmp_path / "t.csv", "anything") == ([cell, "b"], [[cell, "-1.5"], ["1", cell]])


def test_a_name_that_is_no_text_can_be_a_cell(tmp_path):
    write_rows([{"name": "a\udcff"}], tmp_path / "t.csv")
    assert (tmp_path / "t.csv").read_text(encoding="utf-8") == "name\na\\udcff\n"
