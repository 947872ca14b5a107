from dataclasses import replace
from pathlib import Path

import pytest

from tests.data.making import Toy
from vrnet import BadInput
from vrnet.data.cache import cache_folder, kept_as


@pytest.fixture
def source(tmp_path):
    (tmp_path / "a.txt").write_text("1")
    return tmp_path / "a.txt"


def test_the_name_changes_with_all_that_a_sample_depends_on(source):
    toy = Toy(source.parent)
    first = kept_as(toy, "a", "training", [source])
    others = [
        kept_as(replace(toy, shift=1), "a", "training", [source]),
        kept_as(toy, "b", "training", [source]),
        kept_as(toy, "a", "evaluation", [source]),
        kept_as(toy, "a", "training", [source, source]),
    ]
    source.write_text("2")
    others.append(kept_as(toy, "a", "training", [source]))
    assert len({first, *others}) == 6
    assert first.startswith("a-training-")


def test_it_does_not_change_with_where_the_files_are(source, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "b.txt").write_text("1")
    moved = kept_as(Toy(tmp_path / "elsewhere"), "a", "training", [tmp_path / "elsewhere" / "b.txt"])
    assert moved == kept_as(Toy(source.parent), "a", "training", [source])


def test_the_bytes_of_a_folder_are_those_of_its_files(tmp_path):
    (tmp_path / "series").mkdir()
    (tmp_path / "series" / "1.dcm").write_text("1")
    before = kept_as(Toy(tmp_path), "a", "training", [tmp_path / "series"])
    (tmp_path / "series" / "2.dcm").write_text("2")
    assert kept_as(Toy(tmp_path), "a", "training", [tmp_path / "series"]) != before


def test_any_name_makes_a_file_name(tmp_path):
    assert kept_as(Toy(tmp_path), "../a b/c", "training", []).startswith(".._a_b_c-training-")


def test_every_missing_source_is_named(source):
    paths = [source, source.with_name("b.txt"), source.with_name("c.txt")]
    with pytest.raises(BadInput, match=r"^there is no b\.txt, c\.txt$"):
        kept_as(Toy(source.parent), "a", "training", paths)


def test_the_folder_is_the_desktop_s(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "vrnet"
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    assert cache_folder() == Path.home() / ".cache" / "vrnet"
