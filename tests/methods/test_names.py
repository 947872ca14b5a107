from dataclasses import replace
from importlib.metadata import PackageNotFoundError
from itertools import product

import pytest

from vrnet.errors import BadInput
from vrnet.methods.default import Default, short_axis
from vrnet.methods.learned import FAMILIES, PAPER, learned
from vrnet.methods.names import METHODS, SHORT_AXIS, missing, names, parse
from vrnet.methods.variational import PRESETS
from vrnet.variational.descent import Solver


def test_every_pair_of_a_regulariser_and_a_data_term_has_a_name():
    expected = {f"{R}-{data}" for R, data in product(("TV", "Diffusion", "Bending", "Gaussian"), ("L1", "L2"))}
    assert {str(preset) for preset in PRESETS} == expected
    assert len(PRESETS) == len(expected)


def test_every_name_can_be_listed_parsed_and_printed():
    outside = {"FFD", "Demons", "SyN", "identity"}
    assert set(names()) == {str(preset) for preset in PRESETS} | outside | {"default", SHORT_AXIS}
    for name in set(names()) - {SHORT_AXIS}:
        assert str(parse(name)) == name
        assert parse(name.lower()) == parse(name.upper()) == parse(name)


LEARNED = ["R-L1-3x2", "C-L2-3x1-w32", "U-L1-12x3-zeros-Θ1-released", "VoxelMorph-w32", "Siamese", "4xRC-Net"]


@pytest.mark.parametrize("name", [*LEARNED, *map(str, PAPER)])
def test_every_name_of_the_learned_methods_grammar_parses(name):
    assert str(parse(name)) == name
    assert parse(name.lower()) == parse(name) == learned(name)


@pytest.mark.parametrize("method", [*METHODS, parse("R-L1-1x1-w2"), parse("Siamese-w2")], ids=str)
def test_every_method_is_built_for_a_dimension(d, method):
    assert callable(method.build(d))


def test_a_family_has_members_of_its_own():
    members = {"R|U|C-L1|L2-NxM": "R-L1-3x2", "VoxelMorph": "VoxelMorph", "Siamese": "Siamese", "NxRC-Net": "3xRC-Net"}
    assert set(FAMILIES) == set(members)
    for family, member in members.items():
        assert FAMILIES[family].startswith("learned: ")
        assert family == member or member in FAMILIES[family]
        assert parse(member).what.startswith("learned: ")


def test_the_default_is_a_choice_between_listed_methods():
    assert parse("default") == Default()
    assert all(name in names()["default"] and name in names() for name in (SHORT_AXIS, "TV-L1"))


def test_the_model_in_the_box_has_a_name_that_needs_no_weights():
    assert parse("Short-Axis") is parse(SHORT_AXIS) is short_axis()
    assert missing(SHORT_AXIS) is None
    assert "in the box" in names()[SHORT_AXIS]


@pytest.mark.parametrize("preset", PRESETS, ids=str)
def test_solvers_build_solvers(preset):
    assert str(preset) == f"{preset.regularizer}-{preset.data}"
    assert isinstance(preset.build(2), Solver)


def test_a_method_whose_package_is_absent_says_what_to_install(monkeypatch):
    assert missing("TV-L1") is None
    monkeypatch.setattr("vrnet.methods.outside.version", absent)
    assert missing("SyN") == "antspyx"
    with pytest.raises(BadInput, match=r"needs antspyx.*pip install 'vrnet\[baselines\]'"):
        parse("SyN").build(2)


def absent(package):
    raise PackageNotFoundError(package)


def test_every_name_has_a_line_of_its_own_on_what_it_is():
    lines = list(names().values())
    assert len(set(lines)) == len(lines)
    assert not any("\n" in line or not line for line in lines)


SLIPS = [
    ("TVL1", "TV-L1"),
    ("tv_l2", "TV-L2"),
    ("difusion-l1", "Diffusion-L1"),
    ("R-L1-3:2", "R-L1-3x2"),
    ("c-l2-2x2x", "C-L2-2x2"),
    ("voxelmorf", "VoxelMorph"),
    ("RC-Net", "3xRC-Net"),
    ("Siamse", "Siamese"),
    ("defalt", "default"),
    ("shortaxis", "short-axis"),
]


@pytest.mark.parametrize(("wrong", "meant"), SLIPS)
def test_a_slip_of_the_pen_is_answered_with_the_name_meant(wrong, meant):
    with pytest.raises(BadInput, match=rf'^no method is called "{wrong}": did you mean "{meant}"\?$'):
        parse(wrong)


@pytest.mark.parametrize("unknown", ["", "Elastix", "42"])
def test_an_unknown_name_is_answered_with_all_known_ones(unknown):
    with pytest.raises(BadInput, match=f'^no method is called "{unknown}": choose one of ') as raised:
        parse(unknown)
    assert all(name in str(raised.value) for name in (*names(), *FAMILIES))
    assert len(str(raised.value).splitlines()) == 1


def test_a_file_for_a_name_is_answered_with_how_to_give_it():
    with pytest.raises(BadInput, match=r"by --weights, or to vrnet\.load_method"):
        parse("weights.safetensors")


def test_a_preset_with_another_parameter_keeps_its_name():
    assert str(replace(parse("TV-L1"), lam=0.2)) == "TV-L1"
