from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from tests.training.conftest import QUICK
from vrnet.errors import BadInput
from vrnet.files import read_json, write_json
from vrnet.methods.vrnet import Segmenter
from vrnet.training.channels import Segmenters, crossfit, make_channels, subjects_of, take_over

HOW = replace(QUICK, steps=2, labels_weight=1.0)
SMALL = Segmenter(width=2)
PARTS = "0", "1", "all"


@pytest.fixture
def splits(hearts):
    return hearts(2, [3, 0, 2]), replace(hearts(2, [5]), split="val")


def train(splits, folder, watch=lambda status: None, **options):
    return crossfit(SMALL, *splits, HOW, folder, bar=lambda title: nullcontext(watch), device="cpu", **options)


@pytest.fixture
def other(splits, tmp_path):
    """The folder of segmenters of another run, without their numbers."""
    for part in PARTS:
        subjects = {"train": subjects_of(part, splits[0]).names, "val": splits[1].names}
        about = {"method": str(SMALL), "dimension": 2, "data": "phantom", "training": {}, "provenance": []}
        write_json(about | {"subjects": subjects}, tmp_path / "other" / part / "config.json")
        (tmp_path / "other" / part / "weights.safetensors").write_text(part)
    return tmp_path / "other"


def test_each_subject_is_in_one_half_and_in_all(splits):
    first, second, everyone = (set(subjects_of(part, splits[0]).names) for part in PARTS)
    assert (first, second) == ({"patient0", "patient3"}, {"patient2"})
    assert everyone == first | second


def test_one_subject_cannot_be_halved(hearts):
    with pytest.raises(BadInput, match="cannot be halved"):
        subjects_of("0", hearts(2, [0]))


@pytest.mark.release
def test_each_segmenter_is_trained_on_its_half_and_none_sees_whose_channels_it_makes(splits, tmp_path):
    found = train(splits, tmp_path)
    assert found == Segmenters.of_folder(tmp_path)
    for subject in splits[0].names:
        maker = found.file_for(subject, splits[0].names)
        assert subject not in read_json(maker.parent / "config.json")["subjects"]["train"]
    assert found.file_for("patient5", splits[0].names) == tmp_path / "all" / "weights.safetensors"


@pytest.mark.release
def test_a_stopped_cross_fitting_goes_on_to_the_same_bits(splits, tmp_path, eager, stop_at):
    device = torch.device("cpu")
    make_channels(*splits, train(splits, tmp_path / "a"), tmp_path / "a.npz", device)
    for _ in range(3):  # each is stopped after its first step
        stopped = train(splits, tmp_path / "b", watch=stop_at(1), resume=True)
        assert stopped is None
    make_channels(*splits, train(splits, tmp_path / "b", resume=True), tmp_path / "b.npz", device)
    for part in PARTS:
        a, b = (load_file(tmp_path / run / part / "checkpoint.safetensors") for run in "ab")
        assert a.keys() == b.keys()
        assert all(torch.equal(a[key], b[key]) for key in a)


def test_segmenters_of_another_run_are_copied_once(splits, other, tmp_path):
    found = take_over(other, tmp_path / "run", *splits)
    assert [path.read_text() for path in (*found.halves, found.all)] == [*PARTS]
    assert take_over(tmp_path / "run", tmp_path / "third", *splits)
    (other / "1" / "weights.safetensors").write_text("others")
    with pytest.raises(BadInput, match="has other segmenters than"):
        take_over(other, tmp_path / "run", *splits)


def test_segmenters_that_have_seen_what_they_are_shown_are_refused(splits, other, hearts, tmp_path):
    """Another list of subjects has other halves; and validation is unseen."""
    one_more = hearts(2, [3, 0, 2, 1])
    with pytest.raises(BadInput, match=r"was trained on patient[023], whose channels it is to make"):
        take_over(other, tmp_path / "run", one_more, splits[1])
    with pytest.raises(BadInput, match="was trained on patient0"):
        take_over(other, tmp_path / "run", hearts(2, [2, 3]), replace(hearts(2, [0]), split="val"))
    assert not (tmp_path / "run").exists()


def test_a_folder_without_segmenters_is_named(tmp_path):
    with pytest.raises(BadInput, match=r"there is no .*weights\.safetensors: give the folder anatomy of a run"):
        Segmenters.of_folder(tmp_path)
