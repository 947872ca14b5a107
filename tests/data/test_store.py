import json
import os
import pickle
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from shutil import copy2
from zipfile import ZipFile

import numpy as np
import pytest
import torch

from tests.data.conftest import Toy, assert_same, parts_of, random_sample
from vrnet import BadInput
from vrnet.data.prepared import (
    StoredSamples,
    arrays_of,
    cache_folder,
    cache_name,
    load_pack,
    load_sample,
    prepare_split,
    sample_of,
    save_pack,
    save_sample,
)

READ = """
import sys
for name in ("nibabel", "SimpleITK", "scipy", "matplotlib", "itk", "ants"):
    sys.modules[name] = None  # importing it fails
from vrnet.data.prepared import load_pack
parts = load_pack(__import__("pathlib").Path(sys.argv[1])).values()
print([len(list(part.samples)) for part in parts])
"""
READS = 100


@pytest.mark.parametrize("has_labels", [False, True])
def test_images_come_back_to_half_a_step_and_all_else_to_the_bit(tmp_path, d, has_labels):
    sample = random_sample("é/1", 0, shape=(8, 6, 5)[:d], labels=has_labels, field=has_labels)
    save_sample(sample, tmp_path / "x.npz")
    back = load_sample(tmp_path / "x.npz")
    assert (back.name, back.spacing) == (sample.name, sample.spacing)
    for name, part in parts_of(sample).items():
        if part is None:
            assert getattr(back, name) is None
        elif name in ("fixed", "moving"):
            assert (getattr(back, name) - part).abs().max() <= 0.51 / 65535
        else:
            assert torch.equal(getattr(back, name), part)


def test_what_was_in_steps_stays_as_it_is():
    once = sample_of(arrays_of(random_sample("x", 1)))
    assert_same(sample_of(arrays_of(once)), once)
    steps = torch.arange(65536, dtype=torch.float64) / 65535
    images = {"fixed": steps.float()[None, None], "moving": steps.float()[None, None]}
    sample = type(once)("x", spacing=(1.0,), **images)
    assert (arrays_of(sample)["fixed"][0, 0] == np.arange(65536)).all()


def harm_arrays(arrays, harm):
    changes = {
        "kind": {"fixed": arrays["fixed"].astype(np.float32)},
        "shape": {"moving": arrays["moving"][:1]},
        "labels": {"fixed_labels": arrays["fixed_labels"][..., :-1]},
        "field": {"field": arrays["field"][:, :1]},
        "spacing": {"spacing": np.ones(3)},
        "scalar": {"fixed": np.uint16(1)},
        "no images": {name: array[:0] for name, array in arrays.items() if array.ndim > 1},
        "no voxels": {name: array[..., :0] for name, array in arrays.items() if array.ndim > 1},
        "negative": {"spacing": np.array([1.8, -1.8])},
        "tiny": {"spacing": np.array([1.8, 1e-30])},
        "infinite": {"field": np.full_like(arrays["field"], np.inf)},
        "more": {"more": np.ones(3)},
    }
    kept = {name: array for name, array in arrays.items() if name != harm}
    return kept | changes.get(harm, {})


HARMS = ["kind", "shape", "labels", "field", "spacing", "scalar", "moving", "name", "no images", "no voxels",
         "negative", "tiny", "infinite", "more"]  # fmt: skip


@pytest.mark.parametrize("harm", HARMS)
def test_other_arrays_are_no_sample(tmp_path, harm):
    np.savez(tmp_path / "x.npz", **harm_arrays(arrays_of(random_sample("x", 0)), harm))
    assert load_sample(tmp_path / "x.npz") is None


def test_a_damaged_file_is_no_sample(tmp_path):
    """Cut at any of 40 places, or with a byte changed at any of 40: nothing but the whole sample, or none."""
    sample = sample_of(arrays_of(random_sample("x", 0)))
    save_sample(sample, path := tmp_path / "x.npz")
    whole = path.read_bytes()
    assert load_sample(tmp_path / "none.npz") is None
    for at in range(0, len(whole), len(whole) // 40):
        path.write_bytes(whole[:at])
        assert load_sample(path) is None
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 255]) + whole[at + 1 :])
        if (found := load_sample(path)) is not None:  # the byte was one that a zip file holds twice, or not at all
            assert_same(found, sample)


def test_a_pickle_is_not_opened(tmp_path):
    np.savez(tmp_path / "x.npz", fixed=np.array([{}], dtype=object))
    assert load_sample(tmp_path / "x.npz") is None


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
    source.write_text("23")
    others.append(cache_name(toy, "a", "training", [source]))
    assert len({first, *others}) == 6
    assert first.startswith("a-training-")


def test_a_cache_name_does_not_change_with_where_the_files_are(source, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    copy = Path(copy2(source, tmp_path / "elsewhere"))
    names = [cache_name(Toy(path.parent), "a", "training", [path]) for path in (source, copy)]
    assert names[0] == names[1]


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


def test_any_subject_makes_a_file_name(tmp_path):
    assert cache_name(Toy(tmp_path), "../a b/c", "training", []).startswith(".._a_b_c-training-")


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
        assert (other.data, other.split, other.structures, other.pairs_across_subjects) == (
            "toy",
            key[0],
            {"all": 1},
            False,
        )
        for a, b in zip(part.samples, other.samples, strict=True):
            assert_same(a, b)


def test_a_split_is_unpacked_under_the_names_that_it_was_packed_under(parts, tmp_path):
    """Also where two names are of one split."""
    one = parts["val", "evaluation"]
    save_pack({("val", "evaluation"): one, ("again", "evaluation"): one}, tmp_path / "pack.npz")
    back = load_pack(tmp_path / "pack.npz")
    assert [(*use, part.split) for use, part in back.items()] == [
        ("val", "evaluation", "val"),
        ("again", "evaluation", "again"),
    ]
    assert_same(back["again", "evaluation"].samples[1], one.samples[1])


def test_a_pack_is_read_where_no_images_can_be(parts, tmp_path):
    save_pack(parts, tmp_path / "pack.npz")
    found = subprocess.run([sys.executable, "-c", READ, tmp_path / "pack.npz"], capture_output=True, text=True)
    assert found.stdout.strip() == "[3, 3]", found.stderr


def test_a_pack_is_an_npz_file(parts, tmp_path):
    with pytest.raises(BadInput, match=r"choose one of \.npz"):
        save_pack(parts, tmp_path / "pack.zip")


@pytest.mark.parametrize("opened", [False, True])
def test_a_split_of_a_pack_can_be_sent_to_another_process(parts, tmp_path, opened):
    save_pack(parts, tmp_path / "pack.npz")
    split = load_pack(tmp_path / "pack.npz")["val", "evaluation"]
    if opened:
        assert split.samples[0].name == "s0"
    sent = pickle.loads(pickle.dumps(split))
    assert (sent.names, sent.structures) == (split.names, split.structures)
    for a, b in zip(split.samples, sent.samples, strict=True):
        assert_same(a, b)


def test_forks_of_a_process_that_has_opened_a_pack_read_it_all_at_once(parts, tmp_path):
    """An open file has one place of reading, which a process and its forks share."""
    save_pack(parts, tmp_path / "pack.npz")
    samples = load_pack(tmp_path / "pack.npz")["val", "evaluation"].samples
    expected = [sample.fixed.sum().item() for sample in samples]

    def read(number):
        return [samples[number].fixed.sum().item() for _ in range(READS)] == READS * [expected[number]]

    children = [fork_and_exit(read, number) for number in range(3)]
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0, 0, 0]


def fork_and_exit(function, *given):
    """The number of a forked process that ends with status 0 if a function returns True there."""
    if child := os.fork():
        return child
    status = 1
    with suppress(BaseException):
        status = 0 if function(*given) else 1
    os._exit(status)


def test_opening_a_pack_reads_its_index_alone(parts, tmp_path):
    """With every byte overwritten that comes before it, names are there, and samples are refused."""
    save_pack(parts, path := tmp_path / "pack.npz")
    with ZipFile(path) as file:
        start = file.getinfo("index.npy").header_offset
    whole = path.read_bytes()
    path.write_bytes(b"x" * start + whole[start:])
    split = load_pack(path)["val", "evaluation"]
    assert split.names == ["s0", "s1", "s2"]
    with pytest.raises(BadInput, match=r"^s1: .*pack.npz is damaged"):
        split.samples[1]


@pytest.mark.parametrize("at", range(1, 8))
def test_a_sample_of_a_pack_is_whole_or_refused(parts, tmp_path, at):
    save_pack(parts, path := tmp_path / "pack.npz")
    split = load_pack(path)["train", "training"]
    whole = path.read_bytes()
    place = len(whole) * at // 8
    path.write_bytes(whole[:place] + bytes([whole[place] ^ 255]) + whole[place + 1 :])
    for number, sample in enumerate(parts["train", "training"].samples):
        with suppress(BadInput):
            assert_same(split.samples[number], sample)


def rewrite_pack(path, change):
    """The pack after `change` has changed its arrays, {name: array}, and its index; formally in order."""
    with np.load(path) as file:
        arrays = dict(file)
    index = json.loads(arrays.pop("index").item())
    index = change(arrays, index) or index
    np.savez(path, **arrays, index=np.array(json.dumps(index)))


def test_a_sample_that_was_exchanged_for_another_is_refused(parts, tmp_path):
    """All of its arrays are whole, and they are a sample; but not that of the index."""
    save_pack(parts, path := tmp_path / "pack.npz")
    rewrite_pack(path, lambda arrays, index: arrays.update({"0/0/fixed": arrays["0/1/fixed"]}))
    split = load_pack(path)["train", "training"]
    assert_same(split.samples[1], parts["train", "training"].samples[1])
    with pytest.raises(BadInput, match=r"^s0: .*pack.npz is damaged"):
        split.samples[0]


def test_labels_that_lost_their_name_are_missed(parts, tmp_path):
    """A sample may have no labels, but only if the index says so."""
    save_pack(parts, path := tmp_path / "pack.npz")
    path.write_bytes(path.read_bytes().replace(b"fixed_labels", b"fixed_label_"))
    with pytest.raises(BadInput, match=r"^s0: .*pack.npz is damaged"):
        load_pack(path)["val", "evaluation"].samples[0]


def test_labels_that_lost_their_name_in_the_cache_are_made_again(tmp_path):
    save_sample(random_sample("x", 0, labels=True), path := tmp_path / "x.npz")
    assert load_sample(path) is not None
    path.write_bytes(path.read_bytes().replace(b"fixed_labels", b"fixed_label_"))
    assert load_sample(path) is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda part: part.update(subjects=["s0", "s0", "s1"]), "named twice"),
        (lambda part: part.update(subjects=[], checksums=[]), "the subjects are none"),
        (lambda part: part.update(checksums=part["checksums"][1:]), "not as many as the checksums"),
        (lambda part: part["checksums"][0].pop("fixed"), "a sample has the arrays name, spacing, moving"),
        (lambda part: part["checksums"][0].update(more=1), "a sample has the arrays .*more"),
        (lambda part: part.update(purpose="fun"), "purpose is 'fun' and should be one of training, evaluation"),
        (lambda part: part.update(split="val", purpose="evaluation"), "a split is there twice"),
        (lambda part: part.update(structures={"LV": 256}), "labels from 1 to 255"),
        (lambda part: part.update(structures=[3]), r"in parts structures is \[3\] and should be"),
        (lambda part: part.update(subjects=["a\x1b[31m", "s1", "s2"]), "in parts subjects is .* and should be"),
        (lambda part: part.pop("data"), "in parts data is missing"),
        (lambda part: part.update(more=1), "in parts the key 'more' is not known"),
    ],
)
def test_an_index_of_another_form_is_refused_by_its_key(parts, tmp_path, change, words):
    save_pack(parts, path := tmp_path / "pack.npz")
    rewrite_pack(path, lambda arrays, index: change(index["parts"][0]) and None)
    with pytest.raises(BadInput, match=f"pack.npz is not as vrnet writes it, .*{words}.*: prepare it again") as raised:
        load_pack(path)
    assert len(str(raised.value).splitlines()) == 1


def test_a_pack_of_0_1_0_is_refused_by_what_to_do(tmp_path):
    index = [3, [{"purpose": "training", "prepared": {"data": "toy"}, "subjects": ["s0"]}]]
    np.savez(tmp_path / "pack.npz", index=np.array(json.dumps(index)))
    with pytest.raises(BadInput, match="was written by another version of vrnet: prepare it again"):
        load_pack(tmp_path / "pack.npz")


def test_a_name_that_a_pack_could_not_give_back_is_refused_when_it_is_written(parts, tmp_path):
    odd = replace(parts["train", "training"], samples=(random_sample("a\nb", 0),))
    with pytest.raises(BadInput, match=r"subjects is .* and should be .*: name subjects"):
        save_pack({("train", "training"): odd}, tmp_path / "pack.npz")
    assert not (tmp_path / "pack.npz").exists()


def test_too_little_memory_is_not_called_damage(parts, tmp_path, monkeypatch):
    save_pack(parts, path := tmp_path / "pack.npz")
    split = load_pack(path)["train", "training"]
    monkeypatch.setattr("vrnet.images.checks.available_memory", lambda: 10.0)
    for use in (lambda: load_pack(path), lambda: split.samples[0]):
        with pytest.raises(BadInput, match="GB are free"):
            use()


def test_a_pack_that_has_gone_is_told_by_the_subject(parts, tmp_path):
    save_pack(parts, path := tmp_path / "pack.npz")
    split = load_pack(path)["train", "training"]
    path.unlink()
    with pytest.raises(BadInput, match=r"^s0: .*no longer there"):
        split.samples[0]


@pytest.mark.parametrize("harm", ["cut", "text", "other"])
def test_a_damaged_pack_is_refused(parts, tmp_path, harm):
    path = tmp_path / "pack.npz"
    save_pack(parts, path)
    whole = path.read_bytes()
    half = len(whole) // 2
    ways = {"cut": whole[:half], "text": b"hello"}
    np.savez(path, a=np.ones(3)) if harm == "other" else path.write_bytes(ways[harm])
    with pytest.raises(BadInput, match="damaged, or no pack"):
        load_pack(path)
    with pytest.raises(BadInput, match="there is no"):
        load_pack(tmp_path / "none.npz")


def test_a_pack_of_another_version_is_refused(parts, tmp_path, monkeypatch):
    monkeypatch.setattr("vrnet.data.prepared.FORMAT", 0)
    save_pack(parts, tmp_path / "pack.npz")
    monkeypatch.undo()
    with pytest.raises(BadInput, match="written by another version"):
        load_pack(tmp_path / "pack.npz")


def test_stored_samples_are_a_sequence_that_reads_what_is_asked_for():
    read = []

    def reader(name):
        read.append(name)
        return random_sample(name, 0)

    samples = StoredSamples("abcd", reader)
    assert (len(samples), len(samples[1:3]), samples[1:].names) == (4, 2, ("b", "c", "d"))
    assert read == []
    assert [samples[-1].name, samples[1:3][0].name] == ["d", "b"]
    assert [sample.name for sample in samples] == list("abcd")
    assert read == [*"db", *"abcd"]
    with pytest.raises(IndexError):
        samples[4]
