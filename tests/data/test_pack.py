import subprocess
import sys

import numpy as np
import pytest

from tests.data.making import Toy, assert_same
from vrnet import BadInput
from vrnet.data.prepared import load_pack, prepared, save_pack

READ = """
import sys
for name in ("nibabel", "SimpleITK", "scipy", "matplotlib", "itk", "ants"):
    sys.modules[name] = None  # importing it fails
from vrnet.data.prepared import load_pack
print([len(part.samples) for part in load_pack(__import__("pathlib").Path(sys.argv[1])).values()])
"""


@pytest.fixture
def parts(tmp_path):
    for number in range(3):
        (tmp_path / f"s{number}.txt").write_text(str(number))
    purposes = ("train", "training"), ("val", "evaluation")
    return {(s, p): prepared(Toy(tmp_path), s, p, tmp_path / "cache") for s, p in purposes}


def test_what_was_packed_is_unpacked_to_the_bit(parts, tmp_path):
    save_pack(parts, tmp_path / "pack.npz")
    back = load_pack(tmp_path / "pack.npz")
    assert list(back) == list(parts)
    for key, part in parts.items():
        other = back[key]
        assert (other.data, other.split, other.structures, other.pairs_across_subjects) == (
            "toy",
            key[0],
            {"all": 1},
            False,
        )
        for a, b in zip(part.samples, other.samples, strict=True):
            assert_same(a, b)


def test_a_pack_is_read_where_no_images_can_be(parts, tmp_path):
    save_pack(parts, tmp_path / "pack.npz")
    found = subprocess.run([sys.executable, "-c", READ, tmp_path / "pack.npz"], capture_output=True, text=True)
    assert found.stdout.strip() == "[3, 3]", found.stderr


def test_a_pack_is_an_npz_file(parts, tmp_path):
    with pytest.raises(BadInput, match=r"choose one of \.npz"):
        save_pack(parts, tmp_path / "pack.zip")


@pytest.mark.parametrize("harm", ["cut", "garbled", "text", "other"])
def test_a_damaged_pack_is_refused(parts, tmp_path, harm):
    path = tmp_path / "pack.npz"
    save_pack(parts, path)
    whole = path.read_bytes()
    half = len(whole) // 2
    ways = {"cut": whole[:half], "garbled": whole[:half] + b"x" * 40 + whole[half + 40 :], "text": b"hello"}
    np.savez(path, a=np.ones(3)) if harm == "other" else path.write_bytes(ways[harm])
    with pytest.raises(BadInput, match="damaged, or no pack"):
        load_pack(path)
    with pytest.raises(BadInput, match="there is no"):
        load_pack(tmp_path / "none.npz")
