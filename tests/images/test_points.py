import csv
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose

from vrnet.errors import BadInput
from vrnet.images.io import read_points, write_points

TABLE = "x,y,z\n1.5,2,3\n-4,5e1,-6\n"


@pytest.fixture
def write(tmp_path):
    def write(text, encoding="utf-8"):
        (tmp_path / "in.csv").write_bytes(text.encode(encoding))
        return tmp_path / "in.csv"

    return write


@pytest.mark.parametrize(("space", "signs"), [("LPS", [1, 1, 1]), ("RAS", [-1, -1, 1])])
def test_points_are_lps_and_ras_runs_the_other_way_along_x_and_y(write, space, signs):
    assert_allclose(read_points(write(TABLE), space).lps, np.array([[1.5, 2, 3], [-4, 50, -6]]) * signs)


@pytest.mark.parametrize("space", ["LPS", "RAS"])
def test_points_come_back_in_the_space_in_which_they_went(write, tmp_path, space):
    points = read_points(write(TABLE), space)
    write_points(replace(points, lps=points.lps + 0.25), tmp_path / "out.csv", space)
    assert_allclose(read_points(tmp_path / "out.csv", space).lps, points.lps + 0.25, atol=1e-6)


def test_other_columns_and_the_order_of_all_are_kept(write, tmp_path):
    text = 'name,Z, y ,X,note\napex,3,2,1,"a, b"\nbase,6,5,4,é\n'
    points = read_points(write(text), "LPS")
    assert_allclose(points.lps, [[1, 2, 3], [4, 5, 6]])
    write_points(replace(points, lps=points.lps * 2), tmp_path / "out.csv", "LPS")
    with (tmp_path / "out.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["name", "Z", " y ", "X", "note"]
    assert rows[1:] == [
        ["apex", "6.000000", "4.000000", "2.000000", "a, b"],
        ["base", "12.000000", "10.000000", "8.000000", "é"],
    ]
    assert points.rows[0][1] == "3"  # the table read is as it was


def test_marks_line_ends_blank_lines_and_capitals_change_nothing(write):
    for text in (TABLE.replace("\n", "\r\n"), TABLE + "\n\n", TABLE.rstrip().upper()):
        assert_allclose(read_points(write(text, "utf-8-sig"), "LPS").lps, [[1.5, 2, 3], [-4, 50, -6]])


def test_points_without_z_are_2d(write, tmp_path):
    points = read_points(write("y,x\n1,2\n3,4\n"), "RAS")
    assert_allclose(points.lps, [[-2, -1], [-4, -3]])
    write_points(points, tmp_path / "out.csv", "RAS")
    assert (tmp_path / "out.csv").read_text().split() == ["y,x", "1.000000,2.000000", "3.000000,4.000000"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("1,2,3\n4,5,6\n", "has no columns x and y"),
        ("x;y;z\n1;2;3\n", "separated by semicolons: separate them by commas"),
        ("x,y,x\n1,2,3\n", "has no columns x and y"),
        ("x,y,z\n1,2,3\n1,,3\n", r"point 2 of .* is no finite number \(its row: 1,,3\)"),
        ("x,y,z\n1,2\n", "is no finite number"),
        ("x,y,z\n1,2,3\n1,2,nan\n", r"point 2 of .* is no finite number \(its row: 1,2,nan\)"),
    ],
)
def test_a_table_that_is_not_of_points_is_refused_in_one_line(write, text, why):
    path = write(text)
    with pytest.raises(BadInput, match=why) as raised:
        read_points(path, "LPS")
    assert str(path) in str(raised.value)
    assert len(str(raised.value).splitlines()) == 1


def test_a_table_is_written_whole_or_not_at_all(write, tmp_path):
    points = read_points(write(TABLE), "LPS")
    with pytest.raises(BadInput, match="cannot write"):
        write_points(points, tmp_path / "in.csv" / "out.csv", "LPS")
    with pytest.raises(ValueError, match="shorter"):
        write_points(replace(points, lps=points.lps[:1]), tmp_path / "out.csv", "LPS")
    assert [path.name for path in tmp_path.iterdir()] == ["in.csv"]
