import os

from vrnet.cohort.stamps import stamp


def test_another_file_of_the_same_size_and_time_is_another_input(tmp_path):
    for name in ("ed.nii", "es.nii"):
        (tmp_path / name).write_text(name)
        os.utime(tmp_path / name, (1, 1))
    assert stamp(str(tmp_path / "ed.nii")) != stamp(str(tmp_path / "es.nii"))


def test_a_slice_of_a_folder_that_is_replaced_by_an_older_one_is_noticed(tmp_path):
    for number in range(3):
        (tmp_path / f"{number}.dcm").write_text("abc")
        os.utime(tmp_path / f"{number}.dcm", (10 + number, 10 + number))
    before = stamp(str(tmp_path))
    assert stamp(str(tmp_path)) == before
    (tmp_path / "0.dcm").write_text("xyz")
    os.utime(tmp_path / "0.dcm", (5, 5))
    assert stamp(str(tmp_path)) != before
