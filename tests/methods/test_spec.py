"""A method as it is asked for is loaded as it was asked for, in whatever process."""

import pytest

from vrnet.errors import UnfitMachine
from vrnet.files import sha256
from vrnet.methods import bundled
from vrnet.methods import names as choice
from vrnet.methods.names import choose_method, load_once, parse


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


@pytest.fixture
def short_axis(tmp_path, monkeypatch):
    """A file that stands for the weights of short-axis, which need not be those of a network here."""
    file = tmp_path / "short_axis.safetensors"
    file.write_text("weights")
    monkeypatch.setattr(choice, "choose", lambda name, weights, settings, average: parse("TV-L1"))
    monkeypatch.setitem(bundled.BUNDLED, "short-axis", bundled.BundledModel(file, ""))
    forget()
    yield file
    forget()


def forget():
    """Be as a process that begins."""
    load_once.cache_clear()
    bundled.bundled_sha256.cache_clear()


@pytest.mark.parametrize("name", ["short-axis", "Short-Axis+average", "default"])
def test_a_model_in_the_box_is_chosen_by_its_content_and_one_of_another_vrnet_is_not_loaded(short_axis, name):
    chosen = choose_method(name)
    assert (chosen.weights, chosen.weights_sha256) == (None, sha256(short_axis))
    forget()
    assert str(chosen.load()) == "TV-L1", "another process that has the same"
    short_axis.write_text("others")
    forget()
    assert choose_method(name) != chosen
    with pytest.raises(UnfitMachine, match="install the same vrnet everywhere"):
        chosen.load()


def test_methods_without_weights_have_none_to_compare(short_axis):
    assert choose_method("TV-L1(lam=0.2)").weights_sha256 is None


def test_the_default_of_cines_is_known_by_the_weights_of_their_own_model():
    """A cohort of cines is done again when that model is another, not when the model of pairs is."""
    of_pairs, of_cines = (choose_method("default", images=images) for images in ("pair", "cine"))
    assert of_pairs.weights_sha256 == choose_method("short-axis").weights_sha256
    assert of_cines.weights_sha256 == choose_method("short-axis-cine").weights_sha256 != of_pairs.weights_sha256
