import json
from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from vrnet.errors import BadInput
from vrnet.methods.learned import learned
from vrnet.methods.weights import load_weights
from vrnet.training.augmentation import Augmentation
from vrnet.training.fit import fit
from vrnet.training.settings import Training

QUICK = Training(steps=6, batch=2, rate=1e-3, validate_every=3, augmentation=Augmentation(tilt=5.0))
NAMES = {2: "C-L2-1x1-w2", 3: "R-L1-1x1-w2"}


def weights_of(folder):
    return load_file(folder / "checkpoint.safetensors")


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)


@pytest.fixture
def stop_at(monkeypatch):
    """A watch that asks for a stop, as Ctrl-C does, once a step is done."""
    asked = []
    monkeypatch.setattr("vrnet.training.fit.asked_to_stop", lambda: nullcontext(lambda: bool(asked and asked.pop())))
    return lambda step: lambda moment: asked.append(step) if moment.step == step else None


@pytest.fixture
def eager(monkeypatch):
    """Look after every step."""
    monkeypatch.setattr("vrnet.training.fit.LOOK_EVERY", -1.0)


@pytest.mark.parametrize("denoiser", ["R", "C"])
@pytest.mark.parametrize("data", ["L1", "L2"])
@pytest.mark.slow
def test_a_network_learns_one_pair_by_heart(d, data, denoiser, hearts, tmp_path):
    one = hearts(d, [7])
    settings = Training(steps=150, batch=1, rate=2e-3, alpha=0.01, augmentation=None, validate_every=50)
    fit(learned(f"{denoiser}-{data}-1x1-w8"), one, one, settings, tmp_path / "run", device="cpu")
    rows = [line.split(",") for line in (tmp_path / "run" / "metrics.csv").read_text().splitlines()]
    dice = [float(row[rows[0].index("val_dice")]) for row in rows[1:]]
    from vrnet.training.validation import dices

    sample = one.samples[0]
    before = dices(sample.fixed_labels, sample.moving_labels, [1, 2, 3]).mean().item()
    assert dice[-1] > before + 0.5 * (1 - before)


@pytest.mark.parametrize("stop", [2, 3, 4])
def test_a_run_that_was_stopped_goes_on_as_if_it_had_not_been(d, stop, hearts, tmp_path, eager, stop_at):
    train, val, method = hearts(d, [0, 1, 2]), hearts(d, [5]), learned(NAMES[d])
    whole = fit(method, train, val, QUICK, tmp_path / "whole", device="cpu")
    half = fit(method, train, val, QUICK, tmp_path / "parts", device="cpu", watch=stop_at(stop))
    assert (half.step, half.is_finished) == (stop, False)
    rest = fit(method, train, val, QUICK, tmp_path / "parts", device="cpu", resume=True)
    assert rest == whole
    assert rest.is_finished
    assert same(weights_of(tmp_path / "whole"), weights_of(tmp_path / "parts"))
    assert (tmp_path / "whole" / "metrics.csv").read_text() == (tmp_path / "parts" / "metrics.csv").read_text()
    assert same(
        load_file(tmp_path / "whole" / "weights.safetensors"), load_file(tmp_path / "parts" / "weights.safetensors")
    )


def test_the_same_seed_gives_the_same_run_and_another_another(hearts, tmp_path):
    train, val, method = hearts(2, [0, 1, 2]), hearts(2, [5]), learned(NAMES[2])
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        fit(method, train, val, replace(QUICK, seed=seed), tmp_path / name, device="cpu")
    assert same(weights_of(tmp_path / "a"), weights_of(tmp_path / "b"))
    assert not same(weights_of(tmp_path / "a"), weights_of(tmp_path / "c"))


def test_recomputing_changes_nothing_but_memory(d, hearts, tmp_path):
    train, val, method = hearts(d, [0, 1, 2]), hearts(d, [5]), learned("R-L1-2x2-w2")
    for name, recompute in (("plain", False), ("again", True)):
        fit(method, train, val, replace(QUICK, recompute=recompute), tmp_path / name, device="cpu")
    a, b = weights_of(tmp_path / "plain"), weights_of(tmp_path / "again")
    for key in a:
        torch.testing.assert_close(a[key], b[key])


def test_a_run_folder_says_what_was_done_and_holds_the_best_model(hearts, tmp_path):
    train, val = hearts(2, [0, 1]), hearts(2, [5])
    result = fit(learned("R-L1-1x1-w2"), train, val, QUICK, tmp_path / "run", device="cpu")
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["method"] == "R-L1-1x1-w2"
    assert config["training"]["alpha"] == QUICK.alpha
    assert config["subjects"]["train"] == ["patient0", "patient1"] or config["subjects"]["train"] == ["patient5"]
    model, card = load_weights(tmp_path / "run" / "weights.safetensors")
    assert card.method == "R-L1-1x1-w2"
    assert card.spacing_mm == (5.0, 5.0)
    assert result.best["val_dice"] == max(
        float(line.split(",")[-1]) for line in (tmp_path / "run" / "metrics.csv").read_text().splitlines()[1:]
    )
    assert model(val.samples[0].fixed, val.samples[0].moving).shape == (1, 2, 48, 48)
    assert list((tmp_path / "run" / "logs").glob("events*"))


def test_a_folder_with_a_run_is_not_overwritten(hearts, tmp_path):
    one = hearts(2, [0])
    fit(learned(NAMES[2]), one, one, QUICK, tmp_path, device="cpu")
    with pytest.raises(BadInput, match="--resume"):
        fit(learned(NAMES[2]), one, one, QUICK, tmp_path, device="cpu")
    with pytest.raises(BadInput, match="another method"):
        fit(learned("R-L2-1x1-w2"), one, one, QUICK, tmp_path, device="cpu", resume=True)
    with pytest.raises(BadInput, match="another training"):
        fit(learned(NAMES[2]), one, one, replace(QUICK, alpha=0.2), tmp_path, device="cpu", resume=True)
    assert fit(learned(NAMES[2]), one, one, QUICK, tmp_path, device="cpu", resume=True).is_finished
