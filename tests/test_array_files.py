"""Arrays come back as NumPy reads them, or are refused without taking memory."""

import os
import tracemalloc
import zipfile
from io import BytesIO

import numpy as np
import pytest

from vrnet.tensors import DAMAGE, ArrayFile, parse_array, write_arrays

ARRAYS = {
    "name": np.array("é/1"),
    "spacing": np.array([1.8, 2.5]),
    "fixed": np.arange(24, dtype=np.uint16).reshape(2, 1, 3, 4),
    "turned": np.arange(24, dtype=np.float32).reshape(2, 12).T,
    "none": np.zeros(0, np.uint8),
    "a/b/c": np.uint8([3]),
}


@pytest.fixture
def path(tmp_path):
    write_arrays(ARRAYS.items(), tmp_path / "a.npz")
    return tmp_path / "a.npz"


def test_arrays_are_those_that_numpy_reads(path):
    file = ArrayFile(path)
    with np.load(path) as other:
        for name in ARRAYS:
            ours, theirs = file.read(name), other[name]
            assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
            assert ours.flags.c_contiguous == theirs.flags.c_contiguous
            assert (ours == theirs).all()
            assert ours.flags.writeable


def test_checksums_are_those_of_the_zip_file(path):
    with zipfile.ZipFile(path) as file:
        expected = {info.filename[:-4]: info.CRC for info in file.infolist()}
    assert ArrayFile(path).checksums == expected


def test_the_index_is_made_of_the_checksums_of_the_others(tmp_path):
    seen = []
    write_arrays([("x", np.uint8([1]))], tmp_path / "b.npz", lambda found: seen.append(found) or ("i", np.uint8([2])))
    assert seen[0] == {"x": ArrayFile(tmp_path / "b.npz").checksums["x"]}
    assert list(ArrayFile(tmp_path / "b.npz").checksums) == ["x", "i"]


def test_every_flipped_bit_is_refused_or_changes_nothing(path):
    whole, refused = path.read_bytes(), 0
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << place % 8]) + whole[place + 1 :])
        for name, expected in ARRAYS.items():
            try:
                found = ArrayFile(path).read(name)
            except DAMAGE:
                refused += 1
            else:
                assert (found == expected).all()
                assert found.shape == expected.shape
    assert refused > len(whole) / 2


def save_npy(array, **options):
    np.save(file := BytesIO(), array, **options)
    return file.getvalue()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        save_npy(np.array([{}], dtype=object), allow_pickle=True),
        save_npy(np.zeros(3, complex)),
        save_npy(np.zeros(3, [("a", "u2")])),
        save_npy(np.zeros(3, np.uint16))[:-1],
        save_npy(np.zeros(3, np.uint16)) + b"\0",
        save_npy(np.zeros(3, np.uint16)).replace(b"(3,)", b"(-3,)"),
        save_npy(np.zeros(3, np.uint16)).replace(b"(3,)", b"(" + b"9" * 90 + b",)"),
        save_npy(np.zeros(3, np.uint16)).replace(b"(3,)", b"(" + b"9" * 5000),
        save_npy(np.zeros(3, np.uint16)).replace(b"<u2", b"<u9"),
        save_npy(np.array("abc")).replace(b"<U3", b"<U9"),
    ],
    ids=["empty", "pickle", "complex", "record", "short", "long", "negative", "huge", "digits", "type", "text"],
)
def test_what_is_no_array_of_ours_is_refused(content):
    with pytest.raises(ValueError, match=r"no array|not the bytes"):
        parse_array(bytearray(content))


def set_field(path, offset, value, size):
    """Change a field of the only entry of a zip file's directory."""
    raw = bytearray(path.read_bytes())
    start = raw.find(b"PK\x01\x02") + offset
    raw[start : start + size] = value.to_bytes(size, "little")
    path.write_bytes(raw)


@pytest.mark.parametrize("announced", [1000, 2**32 - 2])
def test_a_bomb_is_not_inflated_further_than_it_announces(tmp_path, announced):
    """200 MB of zeros in 200 kB, announced as few bytes, or as more than there can be."""
    with zipfile.ZipFile(tmp_path / "b.npz", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("x.npy", bytes(200_000_000))
    set_field(tmp_path / "b.npz", 24, announced, 4)
    tracemalloc.start()
    try:
        with pytest.raises(DAMAGE):
            ArrayFile(tmp_path / "b.npz").read("x")
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("offset", "value"), [(8, 1), (10, 12), (10, 14), (10, 99)])
def test_passwords_and_other_compressions_are_refused(tmp_path, offset, value):
    write_arrays([("x", np.arange(99, dtype=np.uint16))], tmp_path / "b.npz")
    set_field(tmp_path / "b.npz", offset, value, 2)
    with pytest.raises(DAMAGE):
        ArrayFile(tmp_path / "b.npz").read("x")


def test_a_pipe_is_no_file_of_arrays(tmp_path):
    os.mkfifo(tmp_path / "b.npz")
    with pytest.raises(ValueError, match="no ordinary file"):
        ArrayFile(tmp_path / "b.npz").read("x")
