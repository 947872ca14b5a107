"""The list of a cohort is read whole, or refused by one line that names the rows."""

import pytest

from vrnet import BadInput
from vrnet.cohort.table import CINES, check_files, find_missing, is_folder_name, read_table


def write(folder, text, name="pairs.csv"):
    (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return folder / name


@pytest.mark.parametrize(("end", "mark"), [("\n", b""), ("\r\n", b"\xef\xbb\xbf")])
def test_ends_of_lines_and_byte_order_marks_do_not_matter(tmp_path, end, mark):
    text = end.join(["subject, fixed ,moving,group", "p1,a.nii,sub/b.nii,x", "", "p2,/c.nii,../d.nii,"])
    table = read_table(write(tmp_path, mark + text.encode()))
    assert [one.name for one in table.subjects] == ["p1", "p2"]
    assert table.carried == ("group",)
    assert [one.carried for one in table.subjects] == [("x",), ("",)]
    first, second = (one.files for one in table.subjects)
    assert first == {"fixed": str(tmp_path / "a.nii"), "moving": str(tmp_path / "sub" / "b.nii")}
    assert second == {"fixed": "/c.nii", "moving": str(tmp_path.parent / "d.nii")}


HEAD = "subject,fixed,moving"
BAD = {
    HEAD: "lists no subjects",
    "subject,fixed\np,a": "lacks the column moving",
    f"{HEAD},moving_label\np,a,b,c": "did you mean moving_labels",
    f"{HEAD}\np,a,b\nq,a,b\np,a,b": 'rows with the subject of another (row 1 "p"; 3 "p")',
    f"{HEAD}\np,a,b\nP,a,b": "not only by capitals",
    f"{HEAD}\ncaf\u00e9,a,b\ncafe\u0301,a,b": "2 rows with the subject of another",
    f"{HEAD}\n../x,a,b": 'cannot be the name of a folder (row 1 "../x")',
    f"{HEAD}\np,a,b\nq,a,": 'without a fixed image or a moving image (row 2 "q")',
    "subject,cine,moving\np,a,b": "make a list of each",
    "subject,cine,frame\np,a,1\nq,b,x\nr,c,-1": 'whose frame is no number (row 2 "q"; 3 "r")',
    f"{HEAD},frame\np,a,b,1": "column frame of a list of cines",
}


@pytest.mark.parametrize(("text", "words"), BAD.items(), ids=BAD.values())
def test_a_list_that_cannot_be_used_is_refused_in_one_line_that_names_its_rows(tmp_path, text, words):
    with pytest.raises(BadInput) as refused:
        read_table(write(tmp_path, text))
    assert words in str(refused.value)
    assert "pairs.csv" in str(refused.value)
    assert len(str(refused.value).splitlines()) == 1


def test_a_list_of_cines_has_labels_and_the_frame_that_they_belong_to(tmp_path):
    table = read_table(write(tmp_path, "subject,cine,labels,frame,group\np,a.nii,b.nii,07,x\nq,/c,,,"))
    first, second = table.subjects
    assert table.kind is CINES
    assert first.files == {"cine": str(tmp_path / "a.nii"), "labels": str(tmp_path / "b.nii")}
    assert (first.values, second.values, first.carried) == ({"frame": "7"}, {}, ("x",))


def test_of_a_long_path_the_end_is_shown_which_names_the_file(tmp_path):
    place = "/".join(["a_folder_with_a_long_name"] * 6)
    table = read_table(write(tmp_path, f"{HEAD}\np,{place}/the_file.nii.gz,{place}/other.nii.gz"))
    with pytest.raises(BadInput, match=r"\(p: \.\.\.[^;]*/the_file\.nii\.gz\)"):
        check_files(table.path, table.subjects, find_missing(table.subjects), skip_broken=False)


def test_files_that_are_not_there_are_named_with_their_subjects(tmp_path):
    lines = [f"p{k},a.nii,missing{k}.nii" for k in range(8)]
    (tmp_path / "a.nii").touch()
    table = read_table(write(tmp_path, "\n".join([HEAD, "p9,a.nii,a.nii", *lines])))
    with pytest.raises(BadInput, match=r"8 subjects \(p0: .*; p1: .* and 3 more\)"):
        check_files(table.path, table.subjects, find_missing(table.subjects), skip_broken=False)


def test_broken_subjects_can_be_skipped_but_not_all_of_them(tmp_path):
    """Where no file is there at all, it is the file system that is not, and not each subject that is broken."""
    table = read_table(write(tmp_path, f"{HEAD}\np,a.nii,a.nii\nq,a.nii,b.nii\nr,a.nii,b.nii"))
    with pytest.raises(BadInput, match="is the file system of the images mounted"):
        check_files(table.path, table.subjects, find_missing(table.subjects), skip_broken=True)
    (tmp_path / "a.nii").touch()
    check_files(table.path, table.subjects, find_missing(table.subjects), skip_broken=True)


def test_names_that_some_file_system_does_not_take_are_no_names():
    assert not any(map(is_folder_name, ["a/b", "..", "-x", "a:b", "a~b", "x" * 201, "a\tb", "a."]))
