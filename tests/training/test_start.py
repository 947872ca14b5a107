from dataclasses import replace
from json import loads

import pytest
import torch

from tests.models import saved
from tests.training.conftest import QUICK
from vrnet.errors import BadInput
from vrnet.methods.bundled import SHORT_AXIS, load_bundled
from vrnet.methods.names import parse_trainable
from vrnet.methods.weights import load_method, load_weights, save_weights
from vrnet.training.fit import fit

NAME = "C-L2-1x1-w2"
STILL = replace(QUICK, steps=1, rate=1e-30)
"""A step that changes no weight but zeros, and these by 1e-30."""


def states(*paths):
    return [load_weights(path)[0].state_dict() for path in paths]


def same(a, b):
    return all(torch.allclose(a[name], b[name], rtol=0, atol=1e-20) for name in a)


@pytest.fixture
def every_step(monkeypatch):
    """Reports come after every step, so that a test can stop at any."""
    monkeypatch.setattr("vrnet.training.fit.REPORT_EVERY_SECONDS", 0)


def test_training_begins_with_the_weights_that_are_named(d, hearts, tmp_path):
    """And with others where none are."""
    start, one, method = saved(tmp_path, NAME, d), hearts(d, [0]), parse_trainable(NAME)
    fit(method, one, one, STILL, tmp_path / "tuned", start_from=start, device="cpu")
    fit(method, one, one, STILL, tmp_path / "fresh", device="cpu")
    given, tuned, fresh = states(start, *(tmp_path / name / "weights.safetensors" for name in ("tuned", "fresh")))
    assert same(tuned, given)
    assert not same(fresh, given)


def test_a_run_that_goes_on_does_not_begin_again(hearts, stop_at, every_step, tmp_path):
    start, one, method = saved(tmp_path, NAME), hearts(2, [0]), parse_trainable(NAME)
    options = {"start_from": start, "device": "cpu"}
    fit(method, one, one, QUICK, tmp_path / "whole", **options)
    assert not fit(method, one, one, QUICK, tmp_path / "parts", watch=stop_at(2), **options).is_finished
    assert fit(method, one, one, QUICK, tmp_path / "parts", resume=True, **options).is_finished
    whole, parts = states(*(tmp_path / name / "weights.safetensors" for name in ("whole", "parts")))
    assert same(whole, parts)
    with pytest.raises(BadInput, match="begun with start_from"):
        fit(method, one, one, QUICK, tmp_path / "parts", resume=True, device="cpu")


def test_weights_of_another_method_are_refused_before_anything_is_written(hearts, tmp_path):
    one, flat, deep = hearts(2, [0]), saved(tmp_path, NAME, 2), tmp_path / "deep"
    deep.mkdir()
    cases = {
        "D-L2-3x1-half-w32 in 2D, which cannot start C-L2-1x1-w2 in 2D: train D-L2-3x1-half-w32": (NAME, "short-axis"),
        "C-L2-1x1-w2 in 2D, which cannot start D-L2-1x1-w2": ("D-L2-1x1-w2", flat),
        "C-L2-1x1-w2 in 3D, which cannot start": (NAME, saved(deep, NAME, 3)),
        "Template-48x64x48 in 3D, which cannot start .* in 2D: give other weights": (NAME, "hippocampus-template"),
        "there is no": (NAME, tmp_path / "absent.safetensors"),
    }
    for words, (name, start) in cases.items():
        with pytest.raises(BadInput, match=words):
            fit(parse_trainable(name), one, one, QUICK, tmp_path / "run", start_from=start, device="cpu")
    assert not (tmp_path / "run").exists()


def test_the_model_in_the_box_can_be_tuned(hearts, tmp_path):
    one, name = hearts(2, [0]), load_bundled(SHORT_AXIS).card.method
    fit(parse_trainable(name), one, one, STILL, tmp_path, start_from="short-axis", device="cpu")
    (tuned,) = states(tmp_path / "weights.safetensors")
    assert same(tuned, load_bundled(SHORT_AXIS).model.state_dict())


def test_the_run_and_its_weights_say_what_they_began_with(hearts, tmp_path):
    """Where labels were trained on before, they still count."""
    model, card = load_weights(saved(tmp_path, NAME))
    start = tmp_path / "with_labels.safetensors"
    save_weights(model, replace(card, labels_in_training=True), start)
    one = hearts(2, [0])
    fit(parse_trainable(NAME), one, one, STILL, tmp_path / "run", start_from=start, device="cpu")
    assert loads((tmp_path / "run" / "config.json").read_text())["start_from"] == str(start)
    tuned = load_method(tmp_path / "run" / "weights.safetensors")
    assert tuned.card.started_from == f"with_labels.safetensors ({card.trained_on})"
    assert tuned.card.labels_in_training
    assert tuned.details["started from"] == tuned.card.started_from
