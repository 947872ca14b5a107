from dataclasses import replace
from importlib.metadata import PackageNotFoundError
from itertools import product

import pytest

from vrnet.errors import BadInput
from vrnet.methods.names import DEFAULT, missing, names, parse
from vrnet.methods.variational import PRESETS
from vrnet.variational.descent import Solver


def test_every_pair_of_a_regulariser_and_a_data_term_has_a_name():
    expected = {f"{R}-{data}" for R, data in product(("TV", "Diffusion", "Bending", "Gaussian"), ("L1", "L2"))}
    assert {str(preset) for preset in PRESETS} == expected
    assert len(PRESETS) == len(expected)


def test_every_name_can_be_listed_parsed_and_printed():
    outside = {"FFD", "Demons", "SyN", "identity"}
    assert set(names()) == {str(preset) for preset in PRESETS} | outside | {"default"}
    for name in set(names()) - {"default"}:
        assert str(parse(name)) == name
        assert parse(name.lower()) == parse(name.upper()) == parse(name)


def test_the_default_is_a_method_with_a_name_of_its_own():
    assert parse("default") == DEFAULT
    assert str(DEFAULT) in names()


@pytest.mark.parametrize("preset", PRESETS, ids=str)
def test_solvers_build_solvers(preset):
    assert str(preset) == f"{preset.regularizer}-{preset.data}"
    assert isinstance(preset.build(), Solver)


def test_a_method_whose_package_is_absent_says_what_to_install(monkeypatch):
    assert missing("TV-L1") is None
    monkeypatch.setattr("vrnet.methods.outside.version", absent)
    assert missing("SyN") == "antspyx"
    with pytest.raises(BadInput, match=r"needs antspyx.*pip install 'vrnet\[baselines\]'"):
        parse("SyN").build()


def absent(package):
    raise PackageNotFoundError(package)


def test_every_name_has_a_line_of_its_own_on_what_it_is():
    lines = list(names().values())
    assert len(set(lines)) == len(lines)
    assert not any("\n" in line or not line for line in lines)


@pytest.mark.parametrize(("wrong", "meant"), [("TVL1", "TV-L1"), ("tv_l2", "TV-L2"), ("difusion-l1", "Diffusion-L1")])
def test_a_slip_of_the_pen_is_answered_with_the_name_meant(wrong, meant):
    with pytest.raises(BadInput, match=rf'^no method is called "{wrong}": did you mean "{meant}"\?$'):
        parse(wrong)


@pytest.mark.parametrize("unknown", ["", "Elastix", "42"])
def test_an_unknown_name_is_answered_with_all_known_ones(unknown):
    with pytest.raises(BadInput, match=f'^no method is called "{unknown}": choose one of ') as raised:
        parse(unknown)
    assert all(name in str(raised.value) for name in names())


def test_a_preset_with_another_parameter_keeps_its_name():
    assert str(replace(parse("TV-L1"), lam=0.2)) == "TV-L1"
