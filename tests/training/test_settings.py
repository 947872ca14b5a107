from dataclasses import asdict, fields, replace

import pytest
import tyro

from vrnet.app.train import TrainingOptions
from vrnet.errors import BadInput
from vrnet.methods.names import parse_trainable
from vrnet.methods.parameters import field_docstrings
from vrnet.training.settings import PRESETS, Augmentation, Training, fill_settings, settings


@pytest.mark.parametrize(
    ("preset", "steps", "batch", "alpha", "rates"),
    [  # as the paper prints them: steps, batch, α, and the rate at the start, half-way, and at three quarters
        ("ukbb", 50_000, 10, 0.1, (1e-4, 1e-4, 0.5e-4)),
        ("acdc", 20_000, 10, 0.05, (1e-4, 1e-4, 0.5e-4)),
        ("cmr3d", 30_000, 2, 1e-4, (1e-4, 1e-4, 1e-4)),
    ],
)
def test_the_presets_are_the_paper_s(preset, steps, batch, alpha, rates):
    settings = PRESETS[preset]
    assert (settings.steps, settings.batch, settings.alpha) == (steps, batch, alpha)
    found = [settings.rate_at(round(part * steps)) for part in (0, 0.5, 0.75)]
    assert found == pytest.approx(rates)


def test_the_rate_falls_to_nothing():
    assert Training(steps=100).rate_at(100) == 0
    assert Training(steps=100).rate_at(99) == pytest.approx(1e-4 / 50)
    assert Training(steps=100, hold=0.0).rate_at(25) == pytest.approx(0.75e-4)


def test_the_rate_rises_while_warming_up():
    slow = Training(steps=100, warm_up=10)
    assert [slow.rate_at(step) for step in (0, 4, 9, 10)] == pytest.approx([1e-5, 5e-5, 1e-4, 1e-4])
    assert [slow.rate_at(step) for step in range(9, 101)] == [
        Training(steps=100).rate_at(step) for step in range(9, 101)
    ]


def test_labels_are_needed_where_either_of_their_weights_is_above_0():
    of_labels = ["labels", "hippocampus-labels", "segmenter", "segmenter-volumes", "pyramid-labels"]
    assert [name for name, preset in PRESETS.items() if preset.uses_labels] == of_labels
    assert Training(labels_weight=0.1).uses_labels
    assert Training(batch_dice=0.1).uses_labels


def test_a_setting_that_a_file_does_not_know_is_at_its_default():
    known = {"steps": 7, "augmentation": {"swap": 0.2}}
    assert fill_settings(known)["augmentation"] == asdict(Augmentation(swap=0.2))
    assert fill_settings(known)["clip"] is None
    assert fill_settings(known)["batch_dice"] == 0
    assert fill_settings({"steps": 7, "augmentation": None}) == asdict(Training(steps=7, augmentation=None))


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    "wrong",
    [{"steps": 0}, {"rate": 0.0}, {"alpha": INF}, {"hold": NAN}, {"seed": 2**31}, {"clip": NAN}, {"batch_dice": -0.1}],
)
def test_settings_that_make_no_sense_are_refused(wrong):
    with pytest.raises(BadInput, match=f"{next(iter(wrong))} is "):
        Training(**wrong)


@pytest.mark.parametrize(("data", "preset"), [("acdc", "acdc"), ("hippocampus", "hippocampus"), ("manifest", None)])
def test_left_to_itself_the_preset_is_that_of_the_data_or_of_its_dimension(d, data, preset, hearts):
    train = replace(hearts(d, [0]), data=data)
    found = settings(parse_trainable("VoxelMorph"), "auto", train, TrainingOptions().changes())
    assert found == PRESETS[preset or {2: "acdc", 3: "cmr3d"}[d]]


def test_what_is_given_changes_the_preset(hearts):
    options = TrainingOptions(steps=7, alpha=0.3, augment=False, recompute="yes", smoothness="Bending")
    found = settings(parse_trainable("VoxelMorph"), "short", hearts(2, [0]), options.changes())
    changes = {"steps": 7, "alpha": 0.3, "augmentation": None, "recompute": True, "smoothness": "Bending"}
    assert options.changes() == changes
    assert found == replace(PRESETS["short"], **changes)


def test_the_weight_of_smoothness_of_siamese_is_its_own_unless_given(hearts):
    one = hearts(2, [0])
    assert settings(parse_trainable("Siamese"), "acdc", one, TrainingOptions().changes()).alpha == 0.02
    assert settings(parse_trainable("Siamese"), "acdc", one, TrainingOptions(alpha=0.2).changes()).alpha == 0.2


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


def test_options_are_read_as_the_types_of_the_settings():
    numbers, name = ("--steps", "7", "--rate", "1e-3", "--validate-every", "3"), ("--similarity", "L2")
    choices = "--precision", "float32", "--recompute", "no"
    changes = {"steps": 7, "rate": 1e-3, "precision": "float32", "recompute": False}
    assert read(*numbers, *name, *choices).changes() == changes | {"similarity": "L2", "validate_every": 3}
    assert read("--no-augment").changes() == {"augmentation": None}
    assert read().changes() == {}
