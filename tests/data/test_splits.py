import pytest

from vrnet import BadInput
from vrnet.data.splits import SubjectFolder


@pytest.mark.parametrize("column", ["patient", "subject"])
def test_a_split_is_listed_in_the_order_of_the_file(tmp_path, column):
    (tmp_path / "split.csv").write_text(f"\ufeff{column},group,split\nb,NOR,test\nc,NOR,train\na,DCM, test\n", "utf-8")
    assert SubjectFolder(tmp_path).subjects("test") == ["b", "a"]


def test_an_unknown_split_is_answered_with_those_there(tmp_path):
    (tmp_path / "split.csv").write_text("subject,split\na,train\nb,test\n")
    with pytest.raises(BadInput, match=r'"val" of .*split\.csv.*\(test, train\)'):
        SubjectFolder(tmp_path).subjects("val")


@pytest.mark.parametrize("text", [None, "", "a,b\n1,2\n", "subject\na\n", b"\xff\xfe\x00"])
def test_a_file_that_is_missing_or_of_another_form_is_answered_with_the_form(tmp_path, text):
    path = tmp_path / "split.csv"
    if text is not None:
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(BadInput, match='two columns, the lines "subject,split", "patient001,train"') as error:
        SubjectFolder(tmp_path).subjects("train")
    assert "\n" not in str(error.value)


def test_nobody_is_in_two_splits(tmp_path):
    (tmp_path / "split.csv").write_text("subject,split\na,train\nb,test\na,test\n")
    with pytest.raises(BadInput, match='lists "a" 2 times'):
        SubjectFolder(tmp_path).subjects("train")


def test_a_subject_without_a_split_is_named(tmp_path):
    (tmp_path / "split.csv").write_text("subject,split\na,train\nb,\n")
    with pytest.raises(BadInput, match="does not say in which split b is: fill the column in"):
        SubjectFolder(tmp_path).subjects("train")


ODD_LINES = ['"a\nb",train\n"a\nb",test\n', '"a\nb",\n', '"a\nb",train,more\n', 'a,"b\x1b[31m\nc"\n']


@pytest.mark.parametrize("text", ODD_LINES)
def test_names_of_several_lines_are_told_in_one(tmp_path, text):
    (tmp_path / "split.csv").write_text("subject,split\n" + text)
    with pytest.raises(BadInput, match=r"\\n") as error:
        SubjectFolder(tmp_path).subjects("train")
    assert str(error.value).isprintable()
