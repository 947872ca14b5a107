import re
from dataclasses import replace
from importlib.metadata import PackageNotFoundError
from itertools import product

import numpy as np
import pytest

from vrnet.errors import BadInput
from vrnet.methods.bundled import BUNDLED, SHORT_AXIS, Default, load_bundled
from vrnet.methods.names import (
    all_methods,
    choose,
    missing_package,
    names,
    parameters,
    parse,
    parse_trainable,
    ready,
    with_parameters,
)
from vrnet.methods.parameters import PerDimension
from vrnet.methods.solvers import PRESETS
from vrnet.methods.vrnet import PAPER
from vrnet.methods.weights import FAMILIES, parse_learned
from vrnet.provenance import how_to_install
from vrnet.variational.solver import Solver


def test_every_pair_of_a_regulariser_and_a_data_term_has_a_name():
    terms = ("TV", "Diffusion", "Bending", "Gaussian"), ("L1", "L2", "LNCC", "MIND", "NMI", "Remap")
    expected = {f"{R}-{data}" for R, data in product(*terms)}
    assert {str(preset) for preset in PRESETS} == expected
    assert len(PRESETS) == len(expected)


def test_every_name_can_be_listed_parsed_and_printed():
    outside = {"FFD", "Demons", "SyN", "identity"}
    assert set(names()) == {str(preset) for preset in PRESETS} | outside | {"default", *BUNDLED}
    for name in set(names()):
        assert str(parse(name)) == name
        assert parse(name.lower()) == parse(name.upper()) == parse(name)


LEARNED = [
    "R-L1-3x2",
    "C-L2-3x1-w32",
    "D-L2-3x1-zeros-Θ1-w16",
    "D-L2-3x1-odd-w16",
    "U-L1-12x3-zeros-Θ1-released",
    "VoxelMorph-w32",
    "Siamese",
    "4xRC-Net",
]


@pytest.mark.parametrize("name", [*LEARNED, *map(str, PAPER)])
def test_every_name_of_the_learned_methods_grammar_parses(name):
    assert str(parse(name)) == name
    assert parse(name.lower()) == parse(name) == parse_learned(name)


@pytest.mark.parametrize("method", [*all_methods(), parse("R-L1-1x1-w2"), parse("Siamese-w2")], ids=str)
def test_every_method_is_built_for_a_dimension(d, method):
    assert callable(method.build(d))


def test_a_family_has_members_of_its_own():
    members = {
        "R|U|C|D-L1|L2-NxM": "R-L1-3x2",
        "VoxelMorph": "VoxelMorph",
        "Siamese": "Siamese",
        "NxRC-Net": "3xRC-Net",
    }
    assert set(FAMILIES) == set(members)
    for family, member in members.items():
        assert FAMILIES[family].summary.startswith("learned: ")
        assert family == member or member in FAMILIES[family].summary
        assert parse(member).summary.startswith("learned: ")


def test_the_default_is_a_choice_between_listed_methods():
    assert parse("default") == Default()
    assert all(name in names()["default"] and name in names() for name in (SHORT_AXIS, "Gaussian-LNCC"))


@pytest.mark.parametrize("name", BUNDLED)
def test_a_model_in_the_box_has_a_name_that_needs_no_weights(name):
    assert parse(name.title()) is parse(name) is load_bundled(name)
    assert missing_package(load_bundled(name)) is None
    assert str(load_bundled(name)) == name
    assert "in the box" in names()[name]


@pytest.mark.parametrize("preset", PRESETS, ids=str)
def test_solvers_build_solvers(preset):
    assert str(preset) == f"{preset.regularizer}-{preset.data}"
    assert isinstance(preset.build(2), Solver)


def test_a_method_whose_package_is_absent_says_what_to_install(monkeypatch):
    assert missing_package(parse("TV-L1")) is None
    monkeypatch.setattr("vrnet.methods.external.version", absent)
    assert missing_package(parse("SyN")) == "antspyx"
    with pytest.raises(BadInput, match=f"needs antspyx.*{re.escape(how_to_install('baselines'))}"):
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
    ("short-axis+averag", "short-axis+average"),
    ("SHORT-AXIS + Averaged", "SHORT-AXIS+average"),
    ("shrt-axis+avg", "short-axis+average"),
    ("TV-L1 average", "TV-L1+average"),
    ("R-L1-3x1-w32+averge", "R-L1-3x1-w32+average"),
    ("TV-L1(lam=0.15)+averag", "TV-L1(lam=0.15)+average"),
]


@pytest.mark.parametrize(("wrong", "meant"), SLIPS)
def test_a_slip_of_the_pen_is_answered_with_the_name_meant(wrong, meant):
    with pytest.raises(
        BadInput, match=f'^no method is called "{re.escape(wrong)}": did you mean {re.escape(meant)}\\?$'
    ):
        parse(wrong)


@pytest.mark.parametrize("unknown", ["", "Elastix", "42", "Elastix+averag"])
def test_an_unknown_name_is_answered_with_all_known_ones(unknown):
    with pytest.raises(BadInput, match=f'^no method is called "{re.escape(unknown)}": choose one of ') as raised:
        parse(unknown)
    assert all(name in str(raised.value) for name in (*names(), *FAMILIES))
    assert len(str(raised.value).splitlines()) == 1


@pytest.mark.parametrize("unknown", ["", "R-L9", "TVL1", "Elastix(lam=2)"])
def test_where_a_name_to_train_is_unknown_only_what_can_be_trained_is_told(unknown):
    with pytest.raises(BadInput, match=r'^no method is called "[^"(]*": choose one of ') as raised:
        parse_trainable(unknown)
    assert all(name in str(raised.value) for name in FAMILIES)
    assert not any(name in str(raised.value) for name in names())


@pytest.mark.parametrize(("wrong", "meant"), [("R-L1-3x", "R-L1-3x2"), ("shrt-axis", "short-axis")])
def test_a_slip_in_a_name_to_train_is_answered_with_the_name_meant(wrong, meant):
    with pytest.raises(BadInput, match=f'"{wrong}": did you mean {meant}\\?$'):
        parse_trainable(wrong)


def test_a_file_to_train_is_answered_with_what_tells_its_method():
    with pytest.raises(BadInput, match=r"methods run/w\.safetensors tells, and give the file by `start_from="):
        parse_trainable("run/w.safetensors")


def test_a_file_for_a_name_is_answered_with_how_to_give_it():
    with pytest.raises(BadInput, match=r"to vrnet\.load_method, or on the command line by --weights"):
        parse("weights.safetensors")


CHANGED = [
    "TV-L1(lam=0.15)",
    "TV-L1(lam=0.15,theta=(0.2,0.9),warps=20)",
    "Gaussian-L2(tolerance=0.01)",
    "FFD(spacing=40.0,levels=1)",
    "Demons(sigma={2:1.0,3:2.0},iterations=(5,))",
    "SyN(iterations={2:(10,),3:(5,2)})",
    "R-L1-3x2-w16(theta=0.05)",
]


@pytest.mark.parametrize("name", CHANGED)
def test_what_was_changed_is_in_the_name_which_parses_back(name):
    method = parse(name)
    assert str(method) == name
    assert parse(str(method)) == method
    assert method != parse(name.partition("(")[0])


def test_a_changed_parameter_is_printed_and_one_of_the_preset_is_not():
    assert str(replace(parse("TV-L1"), lam=0.2)) == "TV-L1(lam=0.2)"
    assert str(replace(parse("TV-L2"), lam=0.01)) == "TV-L2"
    assert parse(" TV-L1 ( lam = 0.075 )") == parse("TV-L1")
    assert str(replace(parse("TV-L1"), lam=np.float64(0.2))) == "TV-L1(lam=0.2)"


@pytest.mark.parametrize("method", [*all_methods(), *map(parse, ("R-L2-2x1", "Siamese", "2xRC-Net"))], ids=str)
def test_every_parameter_can_be_set_by_its_name(method):
    """To what it is, which gives the method itself; and every one is explained."""
    given = {parameter.name: parameter.value for parameter in parameters(method)}
    plain = {
        name: {2: value.plane, 3: value.volume} if isinstance(value, PerDimension) else value
        for name, value in given.items()
    }
    assert with_parameters(method, plain) == method
    assert all(parameter.meaning or parameter.name == "levels" for parameter in parameters(method))


WRONG = [
    ("TV-L1(lm=0.1)", r'TV-L1 has no parameter "lm": did you mean lam\? It has finest_warps, fluid, iterations'),
    ("TV-L1(lam=much)", r"lam of TV-L1 cannot be much: give a number"),
    ("TV-L1(warps=2.5)", r"warps of TV-L1 cannot be 2.5: give a whole number"),
    ("TV-L1(warps=True)", r"give a whole number"),
    ("TV-L1(theta=0.1)", r"give \(a number, a number\)"),
    ("TV-L1(theta=(0.1,0.2,0.3))", r"give \(a number, a number\)"),
    ("TV-L1(data=L2)", r"data of TV-L1 is said by its name"),
    ("R-L1-3x2(warps=2)", r"warps of R-L1-3x2 is said by its name"),
    ("TV-L1(lambda=0.1)", r'TV-L1 has no parameter "lambda": did you mean lam\? It has finest_warps, fluid'),
    ("TV-L1(lam=-1)", r"lam is -1.0: it must be above zero"),
    ("TV-L1(lam=0.1", r"lacks a closing bracket"),
    ("TV-L1(0.1)", r"sets no parameter: write NAME=VALUE"),
    ("TV-L1(lam=__import__('os'))", r"sets no parameter"),
    ("Demons(sigma={2:1.0})", r"sigma of Demons cannot be"),
    ("TV-L1(**{'lam':1})", r"write NAME=VALUE, each once"),
    ("TV-L1(lam=0.15)(warps=3)", r"sets no parameter"),
    ("TV-L1(lam=0.1)#)", r"holds what is no value"),
    ("TV-L1(lam=1,lam=2)", r"sets a parameter twice"),
    ("TV-L1()", r"sets no parameter"),
    ("TV-L1(lam=1e999)", r"lam of TV-L1 cannot be inf"),
    ("TV-L1(lam=1" + 400 * "0" + ")", r"lam of TV-L1 cannot be"),
    ("TV-L1(warps=99999999999)", r"it may be 100,000 at most"),
    ("TV-L1(tolerance=-1)", r"zero or more"),
    ("TV-L1(momentum=1)", r"momentum is 1.0: it must be zero or more, and below 1"),
    ("TV-L1(fluid=1,momentum={2:0.5,3:-0.5})", r"momentum is -0.5"),
    ("TV-L1(momentum=0.5)", r"momentum is 0.5 and fluid 0: only composed updates have a momentum"),
    (
        "Gaussian-LNCC(fluid=0)",
        r"momentum is 0.7 and fluid 0: only composed updates have a momentum; give momentum=0, too",
    ),
    ("Gaussian-LNCC(window=-1)", r"window is -1.0: it must be zero or more"),
    ("TV-L1(window=1)", r"window is 1.0, and L1 takes none: LNCC, MIND, NMI, Remap do"),
    ("TV-L1(finest_warps=-1)", r"finest_warps is -1: it must be zero or more"),
    ("TV-L1(finest_warps=99999999999)", r"it may be 100,000 at most"),
    ("FFD(spacing=0)", r"above zero"),
    ("FFD(levels=0)", r"above zero"),
    ("Demons(sigma=-1)", r"zero or more"),
    ("Demons(iterations=())", r"one number per level"),
    ("Demons(sigma={2:1,3:2,4:3})", r"sigma of Demons cannot be"),
    ("R-L1-3x2-zeros-noise", r"says one thing twice"),
    ("R-L2-1000000x1000", r"100 at most"),
    ("999999999999xRC-Net", r"100 at most"),
    ("VoxelMorph-w100000", r"4,096 at most"),
    ("short-axis(theta=1)", r'short-axis has no parameter "theta": it has none'),
    ("identity(x=1)", r"it has none"),
]


@pytest.mark.parametrize(("name", "words"), WRONG)
def test_a_wrong_parameter_is_answered_with_what_there_is(name, words):
    with pytest.raises(BadInput, match=words) as raised:
        parse(name)
    assert len(str(raised.value).splitlines()) == 1


def test_settings_of_a_command_are_those_in_the_name():
    assert choose("TV-L1", settings=["lam=0.15", "warps=20"]) == parse("TV-L1(lam=0.15,warps=20)")
    assert choose("TV-L1(lam=0.3)", settings=["warps=20"]) == parse("TV-L1(lam=0.3,warps=20)")
    with pytest.raises(BadInput, match='name it too, such as `method="Gaussian-LNCC"`'):
        choose("default", settings=["lam=0.15"])


def test_a_method_without_weights_cannot_register_and_one_with_them_cannot_be_trained():
    with pytest.raises(BadInput, match=r"needs weights, .* on the command line --weights FILE"):
        ready("R-L1-3x2")
    with pytest.raises(BadInput, match="has nothing to learn"):
        parse_trainable("TV-L1")
    for name in ("short-axis", "short-axis+average"):
        with pytest.raises(BadInput, match=r"^short-axis is trained already: .* train D-L2-.* with `start_from="):
            parse_trainable(name)
    with pytest.raises(BadInput, match=r"^hippocampus-template has nothing to learn: `vrnet template` makes others"):
        parse_trainable("hippocampus-template")
    with pytest.raises(BadInput, match="method is an int"):
        ready(3)
    assert ready(parse("TV-L1")) == parse("TV-L1")
