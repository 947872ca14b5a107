import pytest

from tests.data.conftest import assert_same
from vrnet import BadInput
from vrnet.data.dataset import DATASETS, Entry
from vrnet.data.phantoms import Phantoms
from vrnet.data.prepared import MORE_USES, USES, Source, pack, splits


def silent(name):
    """A stage whose progress nobody watches."""
    return lambda part: None


@pytest.fixture
def source(monkeypatch, tmp_path):
    """Small phantoms, none of them to test on."""
    few = Phantoms("few", (32, 32), 8.0, {"train": 2, "val": 1})
    monkeypatch.setitem(DATASETS, "few", Entry("few phantoms", None, lambda: few))
    return Source("few", cache=tmp_path / "cache")


def test_a_source_is_a_data_set_by_name_or_one_packed_in_a_file(source, tmp_path):
    parts = pack(source, tmp_path / "few.npz", silent, print)
    assert list(parts) == list(USES[:2])
    packed = Source(str(tmp_path / "few.npz"))
    for use, part in parts.items():
        other = packed.split(*use, silent, print)
        assert (other.data, other.names) == ("few", part.names)
        for a, b in zip(part.samples, other.samples, strict=True):
            assert_same(a, b)
    with pytest.raises(BadInput, match=r'no split test .*: it holds train \(for training\), val .*`data="few"`'):
        packed.split("test", "evaluation", silent, print)
    with pytest.raises(BadInput, match="leave out `root`"):
        Source(str(tmp_path / "few.npz"), tmp_path).split("val", "evaluation", silent, print)


def test_a_pack_of_before_lacks_what_budgets_need_and_says_so(source, tmp_path, monkeypatch):
    pack(source, tmp_path / "old.npz", silent, print)
    monkeypatch.setitem(MORE_USES, "few", (("train", "evaluation"), ("test", "training")))
    with pytest.raises(BadInput, match=r"no split train for evaluation: .*make it again by `vrnet prepare`"):
        Source(str(tmp_path / "old.npz")).split("train", "evaluation", silent, print)
    assert ("train", "evaluation") in pack(source, tmp_path / "new.npz", silent, print)
    assert Source(str(tmp_path / "new.npz")).split("train", "evaluation", silent, print).names


def test_what_is_wrong_with_several_splits_is_told_at_once(source):
    assert [source.has(split) for split, _ in USES] == [True, True, False]
    with pytest.raises(BadInput, match=r'"test"(.|\n)*"other"'):
        splits(source, [*USES, ("other", "evaluation")], silent, print)
