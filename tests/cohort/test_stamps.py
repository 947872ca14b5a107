import os

from vrnet.cohort.results import digest, stamp


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


def test_voxels_in_a_file_of_their_own_are_part_of_an_image(tmp_path):
    """The header stays as it is."""
    header, voxels = tmp_path / "x.mhd", tmp_path / "x.raw"
    header.write_text("NDims = 2\nDimSize = 2 2\nElementType = MET_UCHAR\nElementDataFile = x.raw\n")
    voxels.write_bytes(b"abcd")
    before, content = stamp(str(header)), digest(str(header))
    os.utime(voxels, (1, 1))
    assert (stamp(str(header)) != before, digest(str(header)) == content) == (True, True)
    voxels.write_bytes(b"abcx")
    assert digest(str(header)) != content
