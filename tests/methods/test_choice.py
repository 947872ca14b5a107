"""A method as it is asked for is loaded as it was asked for, in whatever process."""

import pytest

from vrnet.errors import UnfitMachine
from vrnet.methods import choice
from vrnet.methods.choice import choose_method, load_once
from vrnet.methods.names import parse


@pytest.fixture
def chosen(tmp_path, monkeypatch):
    """A choice with a file of weights, which need not be those of a network here."""
    monkeypatch.setattr(choice, "choose", lambda name, weights, settings, average: parse("TV-L1"))
    load_once.cache_clear()
    (tmp_path / "w.safetensors").write_text("weights")
    yield choose_method("default", tmp_path / "w.safetensors")
    load_once.cache_clear()


def test_weights_that_were_replaced_since_they_were_chosen_are_not_loaded(chosen):
    chosen.weights.write_text("others")
    with pytest.raises(UnfitMachine, match=r"w\.safetensors is not the file of weights that this run began with"):
        chosen.load()
    chosen.weights.unlink()
    with pytest.raises(UnfitMachine):
        chosen.load()


def test_a_process_that_has_loaded_the_weights_goes_on_with_them(chosen):
    before = chosen.load()
    chosen.weights.unlink()
    assert chosen.load() is before
