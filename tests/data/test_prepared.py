import gzip
import json
import os
import pickle
from dataclasses import dataclass, replace
from pathlib import Path
from shutil import copy2
from typing import ClassVar

import numpy as np
import pytest
import torch

from tests.data.conftest import Toy, assert_same, heart, parts_of, random_sample, write, write_acdc, write_splits
from vrnet import BadInput
from vrnet.data.dataset import ACDC, DATASETS, Entry, Phantoms
from vrnet.data.prepared import (
    MORE_USES,
    USES,
    Source,
    cache_folder,
    cache_name,
    load_pack,
    pack,
    prepare_split,
    save_pack,
)
from vrnet.data.protocols import Sample


@dataclass(frozen=True)
class Given:
    """A data set of one sample that is given."""

    sample: Sample
    name = "given"
    structures: ClassVar[dict[str, int]] = {}
    pairs_across_subjects = False
    parameters: ClassVar[dict[str, int]] = {}

    def subjects(self, split):
        return [self.sample.name]

    def sources(self, subject, purpose):
        return []

    def prepare(self, subject, purpose):
        return self.sample


@pytest.mark.parametrize("has_labels", [False, True])
def test_images_come_back_to_half_a_step_and_all_else_to_the_bit(tmp_path, d, has_labels):
    sample = random_sample("é/1", 0, shape=(8, 6, 5)[:d], labels=has_labels, field=has_labels)
    (back,) = prepare_split(Given(sample), "train", "training", tmp_path).samples
    assert (back.name, back.spacing) == (sample.name, sample.spacing)
    for name, part in parts_of(sample).items():
        if part is None:
            assert getattr(back, name) is None
        elif name in ("fixed", "moving"):
            assert (getattr(back, name) - part).abs().max() <= 0.51 / 65535
        else:
            assert torch.equal(getattr(back, name), part)


@pytest.fixture
def source(tmp_path):
    (tmp_path / "a.txt").write_text("1")
    return tmp_path / "a.txt"


def test_a_cache_name_changes_with_all_that_a_sample_depends_on(source):
    toy = Toy(source.parent)
    first = cache_name(toy, "a", "training", [source])
    others = [
        cache_name(replace(toy, shift=1), "a", "training", [source]),
        cache_name(toy, "b", "training", [source]),
        cache_name(toy, "a", "evaluation", [source]),
        cache_name(toy, "a", "training", [source, source]),
    ]
    (source.parent / "elsewhere").mkdir()
    copy = Path(copy2(source, source.parent / "elsewhere"))
    assert cache_name(Toy(copy.parent), "a", "training", [copy]) == first  # it is the same wherever the files are
    source.write_text("23")
    others.append(cache_name(toy, "a", "training", [source]))
    assert len({first, *others}) == 6
    assert first.startswith("a-training-")
    assert cache_name(toy, "../a b/c", "training", []).startswith(".._a_b_c-training-")


def test_a_source_is_known_by_its_size_and_time_and_is_not_read(source):
    """Other contents of the same size and time are not noticed: no byte is read."""
    toy, before = Toy(source.parent), source.stat()
    first = cache_name(toy, "a", "training", [source])
    source.write_text("2")
    os.utime(source, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert cache_name(toy, "a", "training", [source]) == first
    os.utime(source, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    assert cache_name(toy, "a", "training", [source]) != first


def test_a_folder_is_known_by_its_files(tmp_path):
    (tmp_path / "series").mkdir()
    (tmp_path / "series" / "1.dcm").write_text("1")
    before = cache_name(Toy(tmp_path), "a", "training", [tmp_path / "series"])
    (tmp_path / "series" / "2.dcm").write_text("2")
    assert cache_name(Toy(tmp_path), "a", "training", [tmp_path / "series"]) != before


def test_every_missing_source_is_named(source):
    paths = [source, source.with_name("b.txt"), source.with_name("c.txt")]
    with pytest.raises(BadInput, match=r"^there is no b\.txt, c\.txt$"):
        cache_name(Toy(source.parent), "a", "training", paths)


def test_the_cache_is_in_the_folder_of_the_desktop(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "vrnet"
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    assert cache_folder() == Path.home() / ".cache" / "vrnet"


@pytest.fixture
def parts(tmp_path):
    for number in range(3):
        (tmp_path / f"s{number}.txt").write_text(str(number))
    purposes = ("train", "training"), ("val", "evaluation")
    return {(s, p): prepare_split(Toy(tmp_path), s, p, tmp_path / "cache") for s, p in purposes}


def test_what_was_packed_is_unpacked_to_the_bit(parts, tmp_path):
    save_pack(parts, tmp_path / "pack.npz")
    back = load_pack(tmp_path / "pack.npz")
    assert list(back) == list(parts)
    for key, part in parts.items():
        other = back[key]
        kept = other.data, other.split, other.structures, other.pairs_across_subjects
        assert kept == ("toy", key[0], {"all": 1}, False)
        for a, b in zip(part.samples, other.samples, strict=True):
            assert_same(a, b)


def test_a_split_of_a_pack_can_be_sent_to_another_process(parts, tmp_path):
    save_pack(parts, tmp_path / "pack.npz")
    split = load_pack(tmp_path / "pack.npz")["val", "evaluation"]
    sent = pickle.loads(pickle.dumps(split))
    assert (sent.names, sent.structures) == (split.names, split.structures)
    for a, b in zip(split.samples, sent.samples, strict=True):
        assert_same(a, b)


def rewrite_pack(path, change):
    """The pack after `change` has changed its arrays, {name: array}, and its index."""
    with np.load(path) as file:
        arrays = dict(file)
    index = json.loads(arrays.pop("index").item())
    change(arrays, index)
    np.savez(path, **arrays, index=np.array(json.dumps(index)))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda part: part.update(subjects=["s0", "s0", "s1"]), "named twice"),
        (lambda part: part.update(purpose="fun"), "purpose"),
        (lambda part: part.pop("data"), "data"),
    ],
)
def test_an_index_of_another_form_is_refused_by_its_key(parts, tmp_path, change, words):
    save_pack(parts, path := tmp_path / "pack.npz")
    rewrite_pack(path, lambda arrays, index: change(index["parts"][0]))
    with pytest.raises(BadInput, match=f"pack.npz is not as vrnet writes it, .*{words}.*: prepare it again") as raised:
        load_pack(path)
    assert len(str(raised.value).splitlines()) == 1


def test_a_pack_that_has_gone_is_told_by_the_subject(parts, tmp_path):
    save_pack(parts, path := tmp_path / "pack.npz")
    split = load_pack(path)["train", "training"]
    path.unlink()
    with pytest.raises(BadInput, match=r"^s0: .*no longer there"):
        split.samples[0]


def test_packs_of_the_last_release_are_read(parts, tmp_path):
    """Their index lists checksums of all arrays, which are not compared any more."""
    save_pack(parts, path := tmp_path / "pack.npz")
    sums = {"name": 1, "spacing": 2, "fixed": 3, "moving": 4}
    rewrite_pack(path, lambda arrays, index: [part.update(checksums=[sums] * 3) for part in index["parts"]])
    for use, part in load_pack(path).items():
        for a, b in zip(part.samples, parts[use].samples, strict=True):
            assert_same(a, b)


def test_what_a_subject_is_told_apart_by_changes_with_its_arrays_alone(parts, tmp_path):
    save_pack(parts, path := tmp_path / "pack.npz")
    before = load_pack(path)["train", "training"]
    known = [before.identity(name) for name in before.names]
    assert len(set(known)) == 3
    rewrite_pack(path, lambda arrays, index: arrays.update({"0/1/fixed": arrays["0/1/moving"]}))
    after = [load_pack(path)["train", "training"].identity(name) for name in before.names]
    assert [a == b for a, b in zip(known, after, strict=True)] == [True, False, True]


@pytest.mark.parametrize("harm", ["cut", "text", "other", "version"])
def test_a_damaged_pack_is_refused(parts, tmp_path, harm):
    save_pack(parts, path := tmp_path / "pack.npz")
    whole = path.read_bytes()
    if harm == "version":
        rewrite_pack(path, lambda arrays, index: index.update(format=0))
    elif harm == "other":
        np.savez(path, a=np.ones(3))
    else:
        path.write_bytes(whole[: len(whole) // 2] if harm == "cut" else b"hello")
    with pytest.raises(BadInput, match="is damaged, no pack, or one of another version"):
        load_pack(path)
    with pytest.raises(BadInput, match="there is no"):
        load_pack(tmp_path / "none.npz")


def test_a_subject_is_made_once_and_recalled_to_the_bit(toy, cache):
    first, again = (prepare_split(toy, "train", "evaluation", cache) for _ in range(2))
    assert Toy.made == ["s0", "s1", "s2"]
    assert [sample.name for sample in first.samples] == Toy.made
    for a, b in zip(first.samples, again.samples, strict=True):
        assert_same(a, b)
    assert sorted(path.name[:14] for path in (cache / "toy").iterdir()) == [f"s{k}-evaluation-" for k in range(3)]


def test_an_interrupted_run_goes_on_where_it_stopped(toy, cache):
    def interrupt(part):
        if part > 0.5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare_split(toy, "train", "training", cache, progress=interrupt)
    prepare_split(toy, "train", "training", cache)
    assert Toy.made == ["s0", "s1", "s2"]


HARMS = {
    "kind": lambda a: {"fixed": a["fixed"].astype(np.float32)},
    "spacing": lambda a: {"spacing": np.array([1.8, -1.8])},
    "pickle": lambda a: {"fixed": np.array([{}], dtype=object)},
}


@pytest.mark.parametrize("harm", ["garbled", "lacking", *HARMS])
def test_a_damaged_file_is_refused_by_name(toy, cache, harm):
    prepare_split(toy, "train", "evaluation", cache)
    path = next((cache / "toy").glob("s1-*"))
    data, arrays = path.read_bytes(), dict(np.load(path))
    half = len(data) // 2
    if harm in HARMS:
        np.savez(path, **{**arrays, **HARMS[harm](arrays)})
    elif harm == "lacking":
        np.savez(path, **{name: array for name, array in arrays.items() if name != "moving"})
    else:
        path.write_bytes(data[:half] + b"x" * 20 + data[half + 20 :])
    samples = prepare_split(toy, "train", "evaluation", cache).samples
    with pytest.raises(BadInput, match=r"^s1: .*s1-evaluation.*\.npz is damaged, or no longer there: remove it"):
        list(samples)
    path.unlink()
    assert len(list(prepare_split(toy, "train", "evaluation", cache).samples)) == 3


def test_opening_a_split_again_opens_no_file(toy, cache, monkeypatch):
    """Neither the sources nor the samples: only names, sizes and times are looked at."""
    prepare_split(toy, "train", "training", cache)
    monkeypatch.setattr("vrnet.data.prepared.read_sample", lambda *_: pytest.fail("a sample was read"))
    monkeypatch.setattr(Path, "open", lambda path, *_: pytest.fail(f"{path} was opened"))
    again = prepare_split(toy, "train", "training", cache)
    assert (again.names, len(again.samples), len(Toy.made)) == (["s0", "s1", "s2"], 3, 3)


def test_samples_are_read_one_by_one_and_not_held(toy, cache):
    split = prepare_split(toy, "train", "training", cache)
    assert split.samples[0] is not split.samples[0]
    kept = split.load()
    assert kept.samples[0] is kept.samples[0]
    assert kept.names == split.names == ["s0", "s1", "s2"]


def test_labels_are_called_by_their_numbers_where_a_data_set_has_no_names(toy, cache, monkeypatch):
    monkeypatch.setattr(Toy, "structures", None)
    assert prepare_split(toy, "train", "evaluation", cache).structures == {"1": 1, "2": 2}
    assert prepare_split(toy, "train", "training", cache).structures == {}


def write_broken_acdc(folder):
    """Ten patients: each of the first nine is broken in another way, the last is whole."""
    images, labels = heart(3, slices=3, shown=range(3), size=(64, 60), spacing=2.8)
    names = [f"patient{number:03d}" for number in range(1, 11)]
    for name in names:
        write_acdc(folder, name, images, labels)
    write_splits(folder, train=names)
    plain = np.diag([1.5, 1.5, 10, 1])

    def file(number, end):
        name = f"patient{number:03d}"
        return folder / name / f"{name}_frame{end}.nii.gz"

    file(1, "01_gt").unlink()
    file(2, "12").write_bytes(file(2, "12").read_bytes()[:3000])
    file(3, "01").write_bytes(gzip.compress(b"no image"))
    write(file(4, "12_gt"), labels[1], np.diag([1.6, 1.5, 10, 1]), np.uint8)
    for end, part in (("12", images[1]), ("12_gt", labels[1])):
        write(file(5, end), part[:, :-1], plain)
    write(file(6, "01"), np.where(images[0] > 500, np.nan, images[0]), plain, np.float32)
    write(file(7, "12"), 0 * images[1] + 5, plain)
    write(file(8, "12_gt"), labels[1] * (labels[1] != 3), plain, np.uint8)
    (folder / "patient009" / "Info.cfg").unlink()
    return folder


REASONS = {
    1: "there is no patient001_frame01_gt.nii.gz",
    2: "patient002_frame12.nii.gz",
    3: "patient003_frame01.nii.gz",
    4: "patient004_frame12_gt.nii.gz is not on the grid of ",
    5: "patient005_frame12.nii.gz differ in shape",
    6: "patient006_frame01.nii.gz contains NaN",
    7: "patient007_frame12.nii.gz is constant (5)",
    8: "patient008 has no slice with LV and Myo at both phases",
    9: "has no Info.cfg",
}


def test_all_that_is_broken_is_named_at_once(tmp_path, cache):
    with pytest.raises(BadInput) as error:
        prepare_split(ACDC(write_broken_acdc(tmp_path)), "train", "evaluation", cache)
    head, *lines, way = str(error.value).split("\n")
    assert head == "9 of 10 subjects of acdc cannot be used:"
    assert way == "mend them, or go on without them: `skip_broken`"
    for line, (number, reason) in zip(lines, REASONS.items(), strict=True):
        assert line.startswith(f"  patient{number:03d}: ")
        assert reason in line


def test_to_be_trained_on_the_same_are_broken_but_those_whose_labels_show_too_little(tmp_path, cache):
    said = []
    data = ACDC(write_broken_acdc(tmp_path))
    found = prepare_split(data, "train", "training", cache, skip_broken=True, say=said.append)
    assert found.names == [sample.name for sample in found.samples] == ["patient008", "patient010"]
    assert [line.split(":")[0] for line in said] == [f"left out patient{number:03d}" for number in (*range(1, 8), 9)]


def test_what_is_whole_stays_in_the_cache_while_the_broken_are_mended(toy, cache):
    (toy.root / "s1.txt").write_text("rubbish")
    with pytest.raises(BadInput, match=r"1 of 3 .*\n  s1: .*s1.txt holds rubbish"):
        prepare_split(toy, "train", "training", cache)
    (toy.root / "s1.txt").write_text("1")
    prepare_split(toy, "train", "training", cache)
    assert Toy.made == ["s0", "s1", "s2", "s1"]


def test_with_nobody_left_there_is_nothing_to_go_on_with(toy, cache):
    for path in toy.root.iterdir():
        path.write_text("rubbish")
    with pytest.raises(BadInput, match=r"3 of 3 subjects of toy(.|\n)*s2.*\nmend them; or is this the wrong folder\?$"):
        prepare_split(toy, "train", "training", cache, skip_broken=True)


def silent(name):
    """A stage whose progress nobody watches."""
    return lambda part: None


@pytest.fixture
def few_source(monkeypatch, tmp_path):
    """Small phantoms, none of them to test on."""
    few = Phantoms("few", (32, 32), 8.0, {"train": 2, "val": 1})
    monkeypatch.setitem(DATASETS, "few", Entry("few phantoms", None, lambda: few))
    return Source("few", cache=tmp_path / "cache")


def test_a_source_is_a_data_set_by_name_or_one_packed_in_a_file(few_source, tmp_path):
    parts = pack(few_source, tmp_path / "few.npz", silent, print)
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


def test_a_pack_has_what_budgets_need_beside(few_source, tmp_path, monkeypatch):
    pack(few_source, tmp_path / "old.npz", silent, print)
    monkeypatch.setitem(MORE_USES, "few", (("train", "evaluation"), ("test", "training")))
    with pytest.raises(BadInput, match=r"no split train for evaluation: .*make it by `vrnet prepare`"):
        Source(str(tmp_path / "old.npz")).split("train", "evaluation", silent, print)
    assert ("train", "evaluation") in pack(few_source, tmp_path / "new.npz", silent, print)
