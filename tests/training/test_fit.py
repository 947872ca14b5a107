import json
from dataclasses import replace
from functools import cache
from json import loads

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import nn

from tests.models import saved
from tests.training.conftest import EVERYTHING, NAMES, QUICK
from vrnet.data.prepared import PreparedSplit
from vrnet.data.protocols import Sample
from vrnet.errors import BadInput
from vrnet.evaluation.metrics import dice
from vrnet.fields.calculus import zeros
from vrnet.methods.names import parse_trainable
from vrnet.methods.weights import load_method, load_weights, read_card, save_weights
from vrnet.provenance import provenance
from vrnet.training.fit import Trainer, fit, thetas, validate
from vrnet.training.loss import Loss
from vrnet.training.settings import Training


def weights_of(folder):
    return load_file(folder / "checkpoint.safetensors")


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)


@pytest.mark.parametrize(("d", "denoiser", "data"), [(2, "R", "L1"), (3, "C", "L2")])
@pytest.mark.release
@pytest.mark.usefixtures("as_users_run")
def test_a_network_learns_one_pair_by_heart(d, data, denoiser, turned, tmp_path):
    """Beside the same network at a rate of nearly 0, since a data step alone brings the images closer."""
    name, steps, fast = {2: (f"{denoiser}-{data}-1x1-w4", 80, 5e-3), 3: (f"{denoiser}-{data}-1x1-w2", 40, 1e-2)}[d]
    loss = {}
    for rate in (1e-12, fast):
        settings = Training(steps if rate > 1e-6 else 1, 1, rate, alpha=1e-3, augmentation=None)
        run = fit(parse_trainable(name), turned, turned, settings, tmp_path / str(rate), device="cpu")
        loss[rate] = run.best["val_loss"]
    assert loss[fast] < 0.5 * loss[1e-12]


@pytest.mark.release
def test_the_same_seed_gives_the_same_run_and_another_another(hearts, tmp_path):
    train, val, method = hearts(2, [0, 1, 2]), hearts(2, [5]), parse_trainable(NAMES[2])
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        fit(method, train, val, replace(QUICK, seed=seed), tmp_path / name, device="cpu")
    assert same(weights_of(tmp_path / "a"), weights_of(tmp_path / "b"))
    assert not same(weights_of(tmp_path / "a"), weights_of(tmp_path / "c"))


def test_a_run_folder_says_what_was_done_and_holds_the_best_model(hearts, tmp_path):
    train, val = hearts(2, [0, 1]), replace(hearts(2, [5]), split="val")
    result = fit(parse_trainable("R-L1-1x1-w2"), train, val, QUICK, tmp_path / "run", device="cpu")
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["method"] == "R-L1-1x1-w2"
    assert config["training"]["alpha"] == QUICK.alpha
    assert config["subjects"] == {"train": ["patient0", "patient1"], "val": ["patient5"]}
    model, card = load_weights(tmp_path / "run" / "weights.safetensors")
    assert card.method == "R-L1-1x1-w2"
    assert card.spacing_mm == (5.0, 5.0)
    assert result.best["val_dice"] == max(
        float(line.split(",")[-1]) for line in (tmp_path / "run" / "metrics.csv").read_text().splitlines()[1:]
    )
    assert model(val.samples[0].fixed, val.samples[0].moving).shape == (1, 2, 48, 48)
    curves = EventAccumulator(str(tmp_path / "run" / "logs"), size_guidance={"scalars": 0}).Reload()
    assert set(curves.Tags()["scalars"]) == {"loss", "rate", "val_loss", "val_dice", "theta/1"}
    assert [event.step for event in curves.Scalars("val_dice")] == [3, 6]


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        ({"devices": 3}, "3 devices cannot share a batch of 2"),
        ({"nodes": 0}, "of 1 or more"),
        ({}, 'there is no term "L3"'),
    ],
)
def test_what_cannot_be_trained_is_refused_before_anything_is_written(asked, answer, hearts, tmp_path):
    one, how = hearts(2, [0]), QUICK if asked else replace(QUICK, similarity="L3")
    with pytest.raises(BadInput, match=answer):
        fit(parse_trainable(NAMES[2]), one, one, how, tmp_path / "run", device="cpu", **asked)
    assert not list(tmp_path.iterdir())


def test_what_made_a_run_is_in_its_configuration_and_on_its_card(hearts, tmp_path):
    one, made_by = hearts(2, [0]), provenance(torch.device("cpu"))
    fit(parse_trainable(NAMES[2]), one, one, replace(QUICK, steps=1), tmp_path, device="cpu")
    assert json.loads((tmp_path / "config.json").read_text())["provenance"] == [made_by]
    card = read_card(tmp_path / "weights.safetensors")
    found = {"vrnet": card.version, "commit": card.commit, "torch": card.torch, "device": card.device}
    assert found == {name: made_by[name] or "" for name in found}


def test_the_card_says_how_it_was_trained(hearts, tmp_path):
    """Whether with labels, whether with mirrored images, and how intensities were scaled."""
    ways = {"plain": ({}, False), "other": ({"batch_dice": 0.5, "augmentation": None}, True)}
    for name, (changes, across) in ways.items():
        two = hearts(2, [0, 1], pairs_across_subjects=across)
        fit(parse_trainable(NAMES[2]), two, two, replace(QUICK, steps=1, **changes), tmp_path / name, device="cpu")
    plain, other = (load_method(tmp_path / name / "weights.safetensors") for name in ways)
    assert (plain.card.labels_in_training, other.card.labels_in_training) == (False, True)
    assert (plain.card.flips_in_training, other.card.flips_in_training) == (True, False)
    assert (plain.card.normalisation, other.card.normalisation) == ("jointly", "each")
    assert (other.details["labels in training"], other.details["flips in training"]) == ("yes", "no")


def test_labels_that_are_not_there_are_missed_before_anything_is_written(hearts, tmp_path):
    """Those of training, if they have a weight; with a weight of 0 nobody asks for them."""
    train, val, method = hearts(2, [0], labels=False), hearts(2, [5]), parse_trainable(NAMES[2])
    with pytest.raises(BadInput, match="patient0, in train of phantom, has no labels to train on"):
        fit(method, train, val, replace(QUICK, labels_weight=0.5), tmp_path / "run", device="cpu")
    assert not list(tmp_path.iterdir())
    how = replace(QUICK, steps=1)
    assert fit(method, train, val, how, tmp_path / "run", device="cpu").is_finished


@pytest.mark.release
def test_a_run_of_before_a_setting_was_known_goes_on_at_its_default(hearts, tmp_path, eager, stop_at):
    one, method = hearts(2, [0]), parse_trainable(NAMES[2])
    fit(method, one, one, QUICK, tmp_path, device="cpu", watch=stop_at(2))
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    del config["training"]["batch_dice"]
    path.write_text(json.dumps(config))
    with pytest.raises(BadInput, match=r"begun with batch_dice 0\.0, not 0\.5"):
        fit(method, one, one, replace(QUICK, batch_dice=0.5), tmp_path, device="cpu", resume=True)
    assert fit(method, one, one, QUICK, tmp_path, device="cpu", resume=True).is_finished


@pytest.mark.release
@pytest.mark.usefixtures("as_users_run")
@pytest.mark.parametrize("name", ["labels_weight", "batch_dice"])
def test_labels_teach_what_images_do_not_show(name, tmp_path):
    """A square whose label moves and whose image does not: only a network that sees labels in training moves it."""
    image, L0, L1 = torch.rand(1, 1, 32, 32), *(torch.zeros(1, 1, 32, 32, dtype=torch.uint8) for _ in range(2))
    L0[..., 10:20, 10:20], L1[..., 13:23, 10:20] = 1, 1
    split = PreparedSplit("squares", "train", (Sample("one", image, image, (1.0, 1.0), L0, L1),), {"square": 1}, False)
    dice = {}
    for weight in (0.0, 10.0):
        how = Training(60, 1, 5e-3, alpha=1e-3, augmentation=None, validate_every=60, **{name: weight})
        folder = tmp_path / str(weight)
        dice[weight] = fit(parse_trainable("VoxelMorph-w4"), split, split, how, folder, device="cpu").best["val_dice"]
    assert dice[10.0] > 0.9 > 0.75 > dice[0.0]


BETTER = "step,loss,rate,val_loss,val_dice\n3,9.0,0.1,9.0,0.999\n"
"""metrics.csv of a run that did better."""


def same_files(a, b):
    """Whether two files of tensors are equal to the bit."""
    one, other = load_file(a), load_file(b)
    return one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)


@pytest.fixture(scope="module")
def whole(hearts, tmp_path_factory):
    """whole(d, how) is a run that nobody stopped, made once: (what it came to, its folder)."""

    @cache
    def run(d, how):
        folder = tmp_path_factory.mktemp("whole") / "run"
        torch.manual_seed(0)
        train, val, method = hearts(d, [0, 1, 2]), hearts(d, [5]), parse_trainable(NAMES[d])
        return fit(method, train, val, how, folder, device="cpu"), folder

    return run


def slow(*values):
    return pytest.param(*values, marks=pytest.mark.release)


@pytest.mark.parametrize(
    ("d", "stop", "how"), [slow(2, 2, QUICK), slow(2, 3, QUICK), (2, 4, EVERYTHING), slow(3, 4, EVERYTHING)]
)
def test_a_run_that_was_stopped_goes_on_as_if_it_had_not_been(d, stop, how, whole, hearts, tmp_path, eager, stop_at):
    expected, folder = whole(d, how)
    train, val, method = hearts(d, [0, 1, 2]), hearts(d, [5]), parse_trainable(NAMES[d])
    half = fit(method, train, val, how, tmp_path, device="cpu", watch=stop_at(stop))
    assert (half.step, half.is_finished) == (stop, False)
    rest = fit(method, train, val, how, tmp_path, device="cpu", resume=True)
    assert rest == expected
    assert rest.is_finished
    for name in ("checkpoint.safetensors", "weights.safetensors"):
        assert same_files(folder / name, tmp_path / name)
    assert (folder / "metrics.csv").read_text() == (tmp_path / "metrics.csv").read_text()


@pytest.mark.release
def test_a_run_goes_on_the_same_whatever_became_of_its_metrics(whole, hearts, tmp_path, eager, stop_at):
    expected, folder = whole(2, QUICK)
    train, val, method = hearts(2, [0, 1, 2]), hearts(2, [5]), parse_trainable(NAMES[2])
    fit(method, train, val, QUICK, tmp_path, device="cpu", watch=stop_at(4))
    metrics = tmp_path / "metrics.csv"
    metrics.write_text(BETTER)
    assert fit(method, train, val, QUICK, tmp_path, device="cpu", resume=True) == expected
    assert metrics.read_text() == (folder / "metrics.csv").read_text()


def test_a_run_that_diverges_says_so(hearts, tmp_path, monkeypatch):
    one = hearts(2, [0])
    monkeypatch.setattr("vrnet.training.fit.Trainer.step", lambda *_: torch.tensor(torch.nan))
    with pytest.raises(BadInput, match=r"the loss is nan after 3 steps: .* smaller `rate`"):
        fit(parse_trainable("VoxelMorph-w2"), one, one, QUICK, tmp_path / "run", device="cpu")
    assert not (tmp_path / "run" / "weights.safetensors").exists()


@pytest.mark.release
def test_validations_do_not_count_as_slow_steps(hearts, tmp_path, eager, monkeypatch):
    now, one, heard, step = [0.0], hearts(2, [0]), [], Trainer.step
    wait = lambda seconds: now.append(now.pop() + seconds)  # noqa: E731
    monkeypatch.setattr("vrnet.training.fit.perf_counter", lambda: now[0])
    monkeypatch.setattr(Trainer, "step", lambda *given: wait(0.5) or step(*given))
    monkeypatch.setattr("vrnet.training.fit.validate", lambda *given: wait(90.0) or validate(*given))
    fit(parse_trainable(NAMES[2]), one, one, QUICK, tmp_path, device="cpu", watch=heard.append)
    assert [status.steps_per_second for status in heard] == pytest.approx([2.0] * 6)


TUNED = "C-L2-1x1-w2"
STILL = replace(QUICK, steps=1, rate=1e-30)
"""A step that changes no weight but zeros, and these by 1e-30."""


def states(*paths):
    return [load_weights(path)[0].state_dict() for path in paths]


def alike(a, b):
    return all(torch.allclose(a[name], b[name], rtol=0, atol=1e-20) for name in a)


@pytest.mark.release
def test_training_begins_with_the_weights_that_are_named(d, hearts, tmp_path):
    """And with others where none are."""
    start, one, method = saved(tmp_path, TUNED, d), hearts(d, [0]), parse_trainable(TUNED)
    fit(method, one, one, STILL, tmp_path / "tuned", start_from=start, device="cpu")
    fit(method, one, one, STILL, tmp_path / "fresh", device="cpu")
    given, tuned, fresh = states(start, *(tmp_path / name / "weights.safetensors" for name in ("tuned", "fresh")))
    assert alike(tuned, given)
    assert not alike(fresh, given)


def test_weights_of_another_method_are_refused_before_anything_is_written(hearts, tmp_path):
    one, flat, deep = hearts(2, [0]), saved(tmp_path, TUNED, 2), tmp_path / "deep"
    deep.mkdir()
    cases = {
        "D-L2-3x1-half-w32 in 2D, which cannot start C-L2-1x1-w2 in 2D: train D-L2-3x1-half-w32": (TUNED, "short-axis"),
        "C-L2-1x1-w2 in 2D, which cannot start D-L2-1x1-w2": ("D-L2-1x1-w2", flat),
        "C-L2-1x1-w2 in 3D, which cannot start": (TUNED, saved(deep, TUNED, 3)),
        "Template-48x64x48 in 3D, which cannot start .* in 2D: give other weights": (TUNED, "hippocampus-template"),
        "there is no": (TUNED, tmp_path / "absent.safetensors"),
    }
    for words, (name, start) in cases.items():
        with pytest.raises(BadInput, match=words):
            fit(parse_trainable(name), one, one, QUICK, tmp_path / "run", start_from=start, device="cpu")
    assert not (tmp_path / "run").exists()


def test_the_run_and_its_weights_say_what_they_began_with(hearts, tmp_path):
    """Where labels were trained on before, they still count."""
    model, card = load_weights(saved(tmp_path, TUNED))
    start = tmp_path / "with_labels.safetensors"
    save_weights(model, replace(card, labels_in_training=True), start)
    one = hearts(2, [0])
    fit(parse_trainable(TUNED), one, one, STILL, tmp_path / "run", start_from=start, device="cpu")
    assert loads((tmp_path / "run" / "config.json").read_text())["start_from"] == str(start)
    tuned = load_method(tmp_path / "run" / "weights.safetensors")
    assert tuned.card.started_from == f"with_labels.safetensors ({card.trained_on})"
    assert tuned.card.labels_in_training
    assert tuned.details["started from"] == tuned.card.started_from


class Still(nn.Module):
    """No motion; it keeps whether it was training, and whether gradients were asked for."""

    def __init__(self):
        super().__init__()
        self.heard = []

    def forward(self, I0, I1, spacing=None):
        self.heard.append((self.training, torch.is_grad_enabled()))
        return zeros(I0)


def test_dice_is_that_of_the_metrics_and_the_model_learns_nothing(d, hearts):
    """By gradients, or by averages that a normalisation keeps; it goes on learning afterwards."""
    model, split = Still().train(), hearts(d, [3])
    sample = split.samples[0]
    scores = validate(model, split, Loss(0.1), torch.device("cpu"))
    masks = sample.fixed_labels[0, 0].numpy(), sample.moving_labels[0, 0].numpy()
    expected = np.mean([dice(masks[0] == label, masks[1] == label) for label in (1, 2, 3)])
    assert scores["val_dice"] == pytest.approx(expected, rel=1e-6)
    assert model.heard == [(False, False)]
    assert model.training


def squares(*rows):
    """Label maps of 8x8, one slice per row of values: that of each quarter."""
    corners = [torch.tensor(row, dtype=torch.uint8).view(2, 2) for row in rows]
    return torch.stack(corners)[:, None].repeat_interleave(4, 2).repeat_interleave(4, 3)


def test_dice_is_the_mean_over_pairs_then_over_structures_then_over_subjects():
    """Subject a: structure 1 has 1 and 0 in its two slices, 2 has 1 in the first alone: (1/2 + 1) / 2.
    Subject b: structure 1 has 0, and 2 is not there: 0."""
    images, h = torch.rand(2, 1, 8, 8), (1.0, 1.0)
    a = Sample("a", images, images, h, squares((1, 0, 2, 0), (1, 0, 0, 0)), squares((1, 0, 2, 0), (0, 1, 0, 0)))
    b = Sample("b", images[:1], images[:1], h, squares((1, 0, 0, 0)), squares((0, 0, 0, 1)))
    prepared = PreparedSplit("x", "val", (a, b), {"one": 1, "two": 2}, False)
    scores = validate(Still(), prepared, Loss(0.1), torch.device("cpu"))
    assert scores["val_dice"] == 0.375


def test_without_labels_there_is_only_the_loss(hearts):
    assert set(validate(Still(), hearts(2, [0], labels=False), Loss(0.1), torch.device("cpu"))) == {"val_loss"}


def test_every_theta_is_listed_in_the_order_of_the_steps():
    model = parse_trainable("R-L1-2x2-w1").build(2)
    with torch.no_grad():
        for number, step in enumerate(step for inner in model.steps for step in inner):
            step.first.log_theta.fill_(np.log(0.1 * (number + 1)))
    assert thetas(model) == pytest.approx([0.1, 0.2, 0.3, 0.4])
    assert thetas(parse_trainable("R-L2-3x1-Θ1-w1").build(2)) == pytest.approx([0.1])
    assert thetas(parse_trainable("VoxelMorph-w1").build(2)) == []
