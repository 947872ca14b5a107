import gzip
import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.data.conftest import Toy, assert_same, heart, write, write_acdc, write_splits
from vrnet import BadInput
from vrnet.data.acdc import ACDC
from vrnet.data.prepared import LABEL_VALUES, arrays_of, load_sample, prepare_split


def test_a_subject_is_made_once_and_recalled_to_the_bit(toy, cache):
    first, again = (prepare_split(toy, "train", "evaluation", cache) for _ in range(2))
    assert Toy.made == ["s0", "s1", "s2"]
    assert [sample.name for sample in first.samples] == Toy.made
    for a, b in zip(first.samples, again.samples, strict=True):
        assert_same(a, b)
    assert (first.data, first.split, first.structures, first.pairs_across_subjects) == (
        "toy",
        "train",
        {"all": 1},
        False,
    )
    assert sorted(path.name[:14] for path in (cache / "toy").iterdir()) == [f"s{k}-evaluation-" for k in range(3)]


def test_what_changed_is_made_anew(toy, cache):
    prepare_split(toy, "train", "training", cache)
    (toy.root / "s1.txt").write_text("17")
    changed = prepare_split(toy, "train", "training", cache)
    assert Toy.made == ["s0", "s1", "s2", "s1"]
    assert_same(changed.samples[1], prepare_split(toy, "train", "training", cache.with_name("new")).samples[1])
    Toy.made.clear()
    prepare_split(replace(toy, shift=1), "train", "training", cache)
    prepare_split(toy, "train", "evaluation", cache)
    assert len(Toy.made) == 6


def test_an_interrupted_run_goes_on_where_it_stopped(toy, cache):
    def interrupt(part):
        if part > 0.5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare_split(toy, "train", "training", cache, progress=interrupt)
    prepare_split(toy, "train", "training", cache)
    assert Toy.made == ["s0", "s1", "s2"]


@pytest.mark.parametrize("harm", ["cut", "garbled", "empty", "wrong"])
def test_a_damaged_file_is_made_again(toy, cache, harm):
    first = prepare_split(toy, "train", "training", cache).samples[1]
    path = next((cache / "toy").glob("s1-*"))
    data = path.read_bytes()
    half = len(data) // 2
    ways = {"cut": data[:half], "garbled": data[:half] + b"x" * 20 + data[half + 20 :], "empty": b""}
    if harm == "wrong":
        np.savez(path, fixed=np.zeros((1, 1, 4, 4), np.float32))
    else:
        path.write_bytes(ways[harm])
    again = prepare_split(toy, "train", "training", cache)
    assert_same(again.samples[1], first)
    assert Toy.made == ["s0", "s1", "s2", "s1"]
    assert_same(load_sample(path), first)


def test_opening_a_split_again_opens_no_file(toy, cache, monkeypatch):
    """Neither the sources nor the samples: only names, sizes and times are looked at."""
    prepare_split(toy, "train", "training", cache)
    monkeypatch.setattr("vrnet.data.prepared.load_sample", lambda path: pytest.fail(f"{path} was read"))
    monkeypatch.setattr(Path, "open", lambda path, *_: pytest.fail(f"{path} was opened"))
    again = prepare_split(toy, "train", "training", cache)
    assert (again.names, len(again.samples), len(Toy.made)) == (["s0", "s1", "s2"], 3, 3)


def test_samples_are_read_one_by_one_and_not_held(toy, cache):
    split = prepare_split(toy, "train", "training", cache)
    assert split.samples[0] is not split.samples[0]
    kept = split.load()
    assert kept.samples[0] is kept.samples[0]
    assert kept.names == split.names == ["s0", "s1", "s2"]


def test_a_sample_that_cannot_be_made_again_is_named_when_it_is_read(toy, cache):
    split = prepare_split(toy, "train", "training", cache)
    next((cache / "toy").glob("s1-*")).unlink()
    (toy.root / "s1.txt").write_text("rubbish")
    with pytest.raises(BadInput, match=r"^s1: s1.txt holds rubbish"):
        list(split.samples)


def test_a_prepared_split_can_be_sent_to_another_process(toy, cache):
    split = prepare_split(toy, "train", "evaluation", cache)
    sent = pickle.loads(pickle.dumps(split))
    assert (sent.names, sent.structures) == (split.names, split.structures)
    for a, b in zip(split.samples, sent.samples, strict=True):
        assert_same(a, b)


@pytest.fixture
def unnamed(toy, monkeypatch):
    """A data set, of labels 0 to 2, that does not say what its labels are."""
    monkeypatch.setattr(Toy, "structures", None)
    return toy


def test_labels_are_found_without_reading_an_image(unnamed, cache, monkeypatch):
    """Also when a subject is added; and the cache holds nothing but samples."""
    monkeypatch.setattr("vrnet.data.prepared.load_sample", lambda path: pytest.fail(f"{path} was read"))
    for _ in range(2):
        assert prepare_split(unnamed, "train", "evaluation", cache).structures == {"1": 1, "2": 2}
    assert prepare_split(unnamed, "train", "training", cache / "other").structures == {}
    (unnamed.root / "s3.txt").write_text("3")
    assert prepare_split(unnamed, "train", "evaluation", cache).structures == {"1": 1, "2": 2}
    assert sorted(path.name[:14] for path in (cache / "toy").iterdir()) == [f"s{k}-evaluation-" for k in range(4)]


@pytest.mark.parametrize("values", [None, np.float32([1]), np.uint8(1), np.array("null")])
def test_a_file_without_a_list_of_labels_is_made_again(unnamed, cache, values):
    first = prepare_split(unnamed, "train", "evaluation", cache)
    path = next((cache / "toy").glob("s1-*"))
    np.savez(path, **arrays_of(first.samples[1]), **({} if values is None else {LABEL_VALUES: values}))
    assert prepare_split(unnamed, "train", "evaluation", cache).structures == {"1": 1, "2": 2}
    assert Toy.made == ["s0", "s1", "s2", "s1"]
    with np.load(path) as file:
        assert file[LABEL_VALUES].tolist() == [0, 1, 2]


def test_progress_runs_to_one(toy, cache):
    heard = []
    prepare_split(toy, "train", "training", cache, progress=heard.append)
    assert heard == pytest.approx([1 / 3, 2 / 3, 1])


def test_without_a_cache_named_it_is_the_desktop_s(toy, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    prepare_split(toy, "train", "training")
    assert len(list((tmp_path / "xdg" / "vrnet" / "toy").glob("*.npz"))) == 3


def test_a_cache_that_cannot_be_written_is_no_subject_s_fault(toy, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match=r"^cannot write to"):
        prepare_split(toy, "train", "training", tmp_path / "file")
    assert Toy.made == []


def write_broken_acdc(folder):
    """Ten patients: each of the first nine is broken in another way, the last is whole."""
    images, labels = heart(3)
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
    2: "cannot read patient002_frame12.nii.gz",
    3: "cannot read patient003_frame01.nii.gz",
    4: "patient004_frame12_gt.nii.gz is not on the grid of patient004_frame12.nii.gz",
    5: "patient005_frame01.nii.gz and patient005_frame12.nii.gz differ in shape",
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
    with pytest.raises(BadInput, match=r"1 of 3 .*\n  s1: s1.txt holds rubbish"):
        prepare_split(toy, "train", "training", cache)
    (toy.root / "s1.txt").write_text("1")
    prepare_split(toy, "train", "training", cache)
    assert Toy.made == ["s0", "s1", "s2", "s1"]


def test_with_nobody_left_there_is_nothing_to_go_on_with(toy, cache):
    for path in toy.root.iterdir():
        path.write_text("rubbish")
    with pytest.raises(BadInput, match=r"3 of 3 subjects of toy(.|\n)*s2.*\nmend them; or is this the wrong folder\?$"):
        prepare_split(toy, "train", "training", cache, skip_broken=True)


def test_some_subjects_are_spread_over_the_list(toy, cache):
    split = prepare_split(toy, "train", "training", cache)
    for count, expected in ((1, ["s0"]), (2, ["s0", "s1"]), (3, ["s0", "s1", "s2"])):
        some = split.spread(count)
        assert some.names == [sample.name for sample in some.samples] == expected
        assert some.identity("s0") == split.identity("s0")
    assert split.load().spread(2).names == ["s0", "s1"]
    for count in (0, 4):
        with pytest.raises(BadInput, match="has 3 subjects"):
            split.spread(count)
