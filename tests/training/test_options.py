from dataclasses import fields

import pytest
import tyro

from vrnet.app.train import TrainingOptions
from vrnet.methods.parameters import field_docstrings
from vrnet.training.settings import Training


def read(*words):
    """The options of a command line."""
    return tyro.cli(TrainingOptions, args=words, config=(tyro.conf.FlagCreatePairsOff,))


def test_every_setting_is_an_option_that_its_docstring_explains(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "1000")
    with pytest.raises(SystemExit):
        read("--help")
    text = capsys.readouterr().out
    for field in fields(Training):
        name = "no-augment" if field.name == "augmentation" else field.name.replace("_", "-")
        assert f"--{name}" in text
        assert field_docstrings(Training)[field.name] in text


def test_without_options_nothing_is_changed():
    assert read() == TrainingOptions()
    assert read().changes() == {}


def test_options_are_read_as_the_types_of_the_settings():
    numbers, name = ("--steps", "7", "--rate", "1e-3", "--validate-every", "3"), ("--similarity", "L2")
    choices = "--precision", "float32", "--recompute", "no"
    changes = {"steps": 7, "rate": 1e-3, "precision": "float32", "recompute": False}
    assert read(*numbers, *name, *choices).changes() == changes | {"similarity": "L2", "validate_every": 3}
    assert read("--no-augment").changes() == {"augmentation": None}


@pytest.mark.parametrize("words", [("--steps", "many"), ("--precision", "bf8"), ("--recompute", "maybe")])
def test_what_is_no_value_of_a_setting_is_refused(words):
    with pytest.raises(SystemExit):
        read(*words)
