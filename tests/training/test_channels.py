from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from tests.models import card
from tests.training.conftest import QUICK
from vrnet.errors import BadInput
from vrnet.methods.names import parse_trainable
from vrnet.methods.weights import load_method, load_weights, save_weights
from vrnet.training.channels import Segmenters, add_channels, half_of, make_channels, take_channels
from vrnet.training.fit import fit
from vrnet.training.loss import Loss
from vrnet.training.pairs import Pairs

CPU = torch.device("cpu")
NAME = {2: "P-L2-c3-w2", 3: "P-L1-c3-w1"}


def sure_of(structure, path, d=2, spacing=(5.0, 5.0)):
    """A segmenter that finds one structure everywhere: whoever made a channel can be told."""
    model = parse_trainable("Segmenter-w2").build(d)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        list(model.parameters())[-1][structure] = 20.0
    save_weights(model, card("Segmenter-w2", d, spacing), path)
    return path


@pytest.fixture
def segmenters(tmp_path):
    """The first half's finds structure 1, the second's 2, that of all 3."""
    files = [sure_of(k, tmp_path / f"{k}.safetensors") for k in (1, 2, 3)]
    return Segmenters(files[2], (files[0], files[1]))


def with_channels(hearts, segmenters, folder, d=2):
    train, val = hearts(d, [4, 3, 7, 5, 9]), replace(hearts(d, [1]), split="val")
    make_channels(train, val, segmenters, folder / "p.npz", CPU)
    return add_channels(train, val, folder / "p.npz")


def found_in(sample):
    return {int(side[:, 1:].flatten(2).mean((0, 2)).argmax()) + 1 for side in (sample.fixed, sample.moving)}


def test_no_subject_is_seen_by_the_network_that_makes_its_channels(hearts, segmenters, tmp_path):
    train, val = with_channels(hearts, segmenters, tmp_path)
    for sample in train.samples:
        trained_on_it = 1 + half_of(sample.name, train.names)
        assert found_in(sample) == {3 - trained_on_it}
    assert found_in(val.samples[0]) == {3}


def test_halves_are_the_even_and_the_odd_places_of_the_sorted_subjects():
    names = ["d", "a", "c", "b", "e"]
    assert [name for name in sorted(names) if half_of(name, names) == 0] == ["a", "c", "e"]


def test_the_image_and_its_labels_stay_and_channels_are_probabilities(hearts, segmenters, tmp_path):
    train, _ = with_channels(hearts, segmenters, tmp_path)
    for plain in hearts(2, [4, 3, 7, 5, 9]).samples:
        sample = train.read(plain.name)
        assert sample.fixed.shape[1] == sample.moving.shape[1] == 4
        assert torch.equal(sample.fixed[:, :1], plain.fixed)
        assert torch.equal(sample.moving_labels, plain.moving_labels)
        assert 0.99 < sample.moving[:, 1:].sum(1).mean() <= 1.001


def test_channels_that_are_there_are_kept_and_those_of_others_refused(hearts, segmenters, tmp_path):
    with_channels(hearts, segmenters, tmp_path)
    before = (tmp_path / "p.npz").stat().st_mtime_ns
    with_channels(hearts, segmenters, tmp_path)
    assert (tmp_path / "p.npz").stat().st_mtime_ns == before
    with pytest.raises(BadInput, match="other subjects or by other segmenters"):
        with_channels(hearts, Segmenters(segmenters.all, segmenters.halves[::-1]), tmp_path)


def test_a_similarity_compares_the_image_alone(hearts, segmenters, tmp_path):
    train, _ = with_channels(hearts, segmenters, tmp_path)
    pairs = Pairs.from_split(train, with_labels=True)
    I0, I1, *labels = pairs.batch(torch.arange(3), with_labels=True)
    u, loss = torch.randn(3, 2, *pairs.shape), Loss(0.1, labels_weight=1.0, labels=(1, 2, 3))
    assert loss(I0, I1, u, *labels) == loss(I0[:, :1], I1[:, :1], u, *labels)


@pytest.mark.parametrize("d", [2, pytest.param(3, marks=pytest.mark.release)])
def test_a_run_with_channels_keeps_its_segmenter_and_says_so(d, hearts, tmp_path):
    file = sure_of(2, tmp_path / "s.safetensors", d, {2: (5.0,) * 2, 3: (9.0,) * 3}[d])
    train, val = with_channels(hearts, Segmenters(file, (file, file)), tmp_path, d)
    how, method = replace(QUICK, steps=1), parse_trainable(NAME[d])
    fit(method, train, val, how, tmp_path / "run", segmenters=Segmenters(file, (file, file)), device="cpu")
    found = load_method(tmp_path / "run" / "weights.safetensors").card
    assert (found.channels, found.segmenter, found.cross_fitted) == ("anatomy", "segmenter.safetensors", True)
    assert found.labels_in_training
    assert (tmp_path / "run" / found.segmenter).read_bytes() == file.read_bytes()


@pytest.mark.parametrize("name", ["P-L2-c3-w2", "D-L2-1x1-c3-w2"])
def test_the_weights_and_the_order_of_channels_survive(name, hearts, segmenters, tmp_path):
    train, _ = with_channels(hearts, segmenters, tmp_path)
    I0, I1 = train.samples[0].fixed, train.samples[0].moving + 0.1 * torch.rand(4, 1, 1)
    model = parse_trainable(name).build(2).eval()
    beta = dict(model.named_parameters())[("init.net." if name.startswith("P") else "init.") + "log_beta"]
    with torch.no_grad():
        beta.copy_(torch.tensor([0.1, 1.0, 10.0]).log())
        save_weights(model, card(name), tmp_path / "m.safetensors")
        again, _ = load_weights(tmp_path / "m.safetensors")
        assert torch.equal(model(I0, I1), again(I0, I1))
        beta.copy_(beta.flip(0))
        assert not torch.equal(model(I0, I1), again(I0, I1))


def test_a_method_and_its_images_have_as_many_channels(hearts, segmenters, tmp_path):
    train, val = with_channels(hearts, segmenters, tmp_path)
    assert str(take_channels(parse_trainable("P-L2"), 3)) == "P-L2-c3"
    assert str(take_channels(parse_trainable("P-L2-c3"), 3)) == "P-L2-c3"
    with pytest.raises(BadInput, match="takes 2 further channels, and there are 3"):
        take_channels(parse_trainable("P-L2-c2"), 3)
    with pytest.raises(BadInput, match="VoxelMorph takes no further channels"):
        take_channels(parse_trainable("VoxelMorph"), 3)
    for name, splits in (("P-L2-c3", (hearts(2, [0]), hearts(2, [1]))), ("P-L2", (train, val))):
        with pytest.raises(BadInput, match="further channels, and these have"):
            fit(parse_trainable(name), *splits, QUICK, tmp_path / "run", device="cpu")
    assert not (tmp_path / "run").exists()


@pytest.mark.release
def test_a_run_with_channels_goes_on_as_if_it_had_not_been_stopped(hearts, segmenters, tmp_path, eager, stop_at):
    train, val = with_channels(hearts, segmenters, tmp_path)
    how, method = replace(QUICK, steps=4), parse_trainable("P-L2-c3-w2")
    whole = fit(method, train, val, how, tmp_path / "a", segmenters=segmenters, device="cpu")
    fit(method, train, val, how, tmp_path / "b", segmenters=segmenters, device="cpu", watch=stop_at(2))
    assert fit(method, train, val, how, tmp_path / "b", segmenters=segmenters, device="cpu", resume=True) == whole
    for name in ("weights", "checkpoint", "segmenter"):
        a, b = (load_file(tmp_path / run / f"{name}.safetensors") for run in "ab")
        assert all(torch.equal(a[key], b[key]) for key in a.keys() | b.keys())
