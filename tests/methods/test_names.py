"""Names parse and print; what is asked for is loaded as it was asked for, in whatever process."""

import pickle
import re
from dataclasses import replace
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import numpy as np
import pytest

from tests.models import saved, trained
from vrnet.errors import BadInput, UnfitMachine
from vrnet.files import sha256
from vrnet.methods import bundled
from vrnet.methods.bundled import BUNDLED, SHORT_AXIS, Default, load_bundled
from vrnet.methods.names import (
    EXAMPLES,
    FAMILIES,
    MethodSpec,
    all_methods,
    check_pinned,
    load_once,
    missing_package,
    names,
    parameters,
    parse,
    parse_method,
    parse_trainable,
    resolve,
    with_parameters,
)
from vrnet.methods.parameters import PerDimension
from vrnet.methods.solvers import PRESETS
from vrnet.methods.weights import parse_learned
from vrnet.provenance import how_to_install


def test_every_name_can_be_listed_parsed_and_printed():
    external = {"FFD", "Demons", "SyN", "identity"}
    assert set(names()) == {str(preset) for preset in PRESETS} | external | {"default", *BUNDLED}
    for name in names():
        assert str(parse(name)) == name
        assert parse(name.lower()) == parse(name.upper()) == parse(name)
        assert missing_package(parse(name)) is None or name in external
    lines = list(names().values())
    assert len(set(lines)) == len(lines)
    assert not any("\n" in line or not line for line in lines)


def test_every_name_of_the_learned_methods_grammar_parses():
    others = "C-L2-3x1-w32", "D-L2-3x1-zeros-Θ1-w16", "U-L1-12x3-zeros-Θ1-released", "VoxelMorph-w32", "4xRC-Net"
    for name in (*others, *map(str, EXAMPLES)):
        assert str(parse(name)) == name
        assert parse(name.lower()) == parse(name) == parse_learned(name)
        assert parse(name).summary.startswith("learned: ")
    for family, member in zip(FAMILIES, ("R-L1-3x2", "VoxelMorph", "Siamese", "3xRC-Net"), strict=True):
        assert FAMILIES[family].parse(member) == parse(member)
        assert family == member or member in FAMILIES[family].summary


def test_every_method_is_built_for_a_dimension(d):
    for method in (*all_methods(), parse("R-L1-1x1-w2"), parse("Siamese-w2")):
        assert missing_package(method) or callable(method.build(d))


def test_bundled_models_are_read_once():
    assert parse("Short-Axis") is parse("short-axis") is load_bundled(SHORT_AXIS)
    assert parse("default") == Default()
    assert all(name in names()["default"] for name in (SHORT_AXIS, "Gaussian-LNCC"))


def test_a_method_whose_package_is_absent_says_what_to_install(monkeypatch):
    def absent(package):
        raise PackageNotFoundError(package)

    monkeypatch.setattr("vrnet.methods.external.version", absent)
    assert missing_package(parse("SyN")) == "antspyx"
    with pytest.raises(BadInput, match=f"needs antspyx.*{re.escape(how_to_install('baselines'))}"):
        parse("SyN").build(2)


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ("TVL1", "TV-L1"),
        ("difusion-l1", "Diffusion-L1"),
        ("R-L1-3:2", "R-L1-3x2"),
        ("voxelmorf", "VoxelMorph"),
        ("RC-Net", "3xRC-Net"),
        ("defalt", "default"),
        ("short-axis+averag", "short-axis"),
    ],
)
def test_a_slip_of_the_pen_is_answered_with_the_name_meant(wrong, meant):
    with pytest.raises(BadInput, match=f'^no method is called "{re.escape(wrong)}": did you mean {meant}\\?$'):
        parse(wrong)


@pytest.mark.parametrize("unknown", ["", "Elastix", "42"])
def test_an_unknown_name_is_answered_with_all_known_ones(unknown):
    with pytest.raises(BadInput, match=f'^no method is called "{re.escape(unknown)}": choose one of ') as raised:
        parse(unknown)
    assert all(name in str(raised.value) for name in (*names(), *FAMILIES))
    with pytest.raises(BadInput, match=r'^no method is called "[^"(]*": choose one of ') as raised:
        parse_trainable(f"{unknown}(lam=2)")
    assert all(name in str(raised.value) for name in FAMILIES)
    assert not any(name in str(raised.value) for name in names())


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda: parse("w.safetensors"), r"to vrnet\.load_method, or on the command line by --weights"),
        (lambda: parse_trainable("w.safetensors"), r"methods w\.safetensors tells, and give .* `start_from="),
        (lambda: parse_trainable("R-L1-3x"), r'"R-L1-3x": did you mean R-L1-3x2\?$'),
        (lambda: parse_trainable("TV-L1"), "has nothing to learn"),
        (lambda: parse_trainable("short-axis+average"), "^short-axis is trained already: .* train D-L2-.* `start_from"),
        (lambda: parse_trainable("hippocampus-template"), "has nothing to learn: `vrnet template` makes others"),
        (lambda: parse_method("R-L1-3x2"), r"^R-L1-3x2 is learned .*vrnet\.load_method.*command line --weights FILE"),
        (lambda: parse_method(parse("4xRC-Net")), "^4xRC-Net is learned .* needs weights"),
        (lambda: parse_method(3), "method is an int: give a name"),
        (lambda: parse_method("default", settings=["lam=0.15"]), 'name it too, such as `method="Gaussian-LNCC"`'),
        (lambda: parse_method("default", Path("absent.safetensors")), "there is no"),
    ],
)
def test_what_cannot_register_or_be_trained_says_what_to_do_in_one_line(ask, words):
    with pytest.raises(BadInput, match=words) as raised:
        ask()
    assert len(str(raised.value).splitlines()) == 1


CHANGED = [
    "TV-L1(lam=0.15,theta=(0.2,0.9),warps=20)",
    "Gaussian-L2(tolerance=0.01)",
    "Demons(sigma={2:1.0,3:2.0},iterations=(5,))",
    "SyN(iterations={2:(10,),3:(5,2)})",
    "R-L1-3x2-w16(theta=0.05)",
]


def test_what_was_changed_is_in_the_name_which_parses_back():
    for name in CHANGED:
        method = parse(name)
        assert str(method) == name
        assert parse(str(method)) == method != parse(name.partition("(")[0])
    assert str(replace(parse("TV-L1"), lam=np.float64(0.2))) == "TV-L1(lam=0.2)"
    assert str(replace(parse("TV-L2"), lam=0.01)) == "TV-L2"
    assert parse(" TV-L1 ( lam = 0.075 )") == parse("TV-L1")


def test_every_parameter_can_be_set_by_its_name():
    """To what it is, which gives the method itself; and every one is explained."""
    for method in (*all_methods(), *map(parse, ("R-L2-2x1", "Siamese", "2xRC-Net"))):
        own = {parameter.name: parameter.value for parameter in parameters(method)}
        plain = {name: {2: x.plane, 3: x.volume} if isinstance(x, PerDimension) else x for name, x in own.items()}
        assert with_parameters(method, plain) == method
        assert all(parameter.meaning or parameter.name == "levels" for parameter in parameters(method))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("TV-L1(lm=0.1)", r'TV-L1 has no parameter "lm": did you mean lam\? It has finest_warps, fluid, iterations'),
        ("TV-L1(lam=much)", r"lam of TV-L1 cannot be much: give a number"),
        ("TV-L1(warps=2.5)", r"warps of TV-L1 cannot be 2.5: give a whole number"),
        ("TV-L1(warps=True)", r"give a whole number"),
        ("TV-L1(theta=(0.1,0.2,0.3))", r"give \(a number, a number\)"),
        ("TV-L1(data=L2)", r"data of TV-L1 is said by its name"),
        ("TV-L1(lambda=0.1)", r'TV-L1 has no parameter "lambda": did you mean lam\?'),
        ("TV-L1(lam=-1)", r"lam is -1.0: it must be above zero"),
        ("TV-L1(lam=0.1", r"lacks a closing bracket"),
        ("TV-L1(lam=__import__('os'))", r"sets no parameter"),
        ("Demons(sigma={2:1.0})", r"sigma of Demons cannot be"),
        ("TV-L1(**{'lam':1})", r"write NAME=VALUE, each once"),
        ("TV-L1(lam=0.1)#)", r"holds what is no value"),
        ("TV-L1(lam=1,lam=2)", r"sets a parameter twice"),
        ("TV-L1(lam=1e999)", r"lam of TV-L1 cannot be inf"),
        ("TV-L1(lam=1" + 400 * "0" + ")", r"lam of TV-L1 cannot be"),
        ("TV-L1(warps=99999999999)", r"it may be 100,000 at most"),
        ("R-L1-3x2-zeros-noise", r"says one thing twice"),
        ("R-L2-1000000x1000", r"100 at most"),
        ("VoxelMorph-w100000", r"4,096 at most"),
        ("short-axis(theta=1)", r'short-axis has no parameter "theta": it has none'),
    ],
)
def test_a_wrong_parameter_is_answered_with_what_there_is(name, words):
    with pytest.raises(BadInput, match=words) as raised:
        parse(name)
    assert len(str(raised.value).splitlines()) == 1


# What is asked for, and what it comes to for the images at hand.


def test_settings_of_a_command_are_those_in_the_name():
    assert parse_method("TV-L1", settings=["lam=0.15", "warps=20"]).load() == parse("TV-L1(lam=0.15,warps=20)")
    assert parse_method("TV-L1(lam=0.3)", settings=["warps=20"]).load() == parse("TV-L1(lam=0.3,warps=20)")


def test_a_spec_comes_to_a_method_for_the_images_at_hand():
    spec = parse_method("default")
    assert resolve(spec, 2, (1.8, 1.8)) is load_bundled(SHORT_AXIS)
    assert resolve(spec, 2, (9.0, 9.0)) == resolve(spec, 3, None) == parse("Gaussian-LNCC")
    assert str(resolve(parse_method("default", images="cine"), 2, None)) == "short-axis-cine"
    assert str(resolve(parse_method("default", average=True), 2, None)) == "short-axis+average"
    own = trained()
    assert resolve(parse_method(own), 2, None) is own


@pytest.mark.parametrize("name", ["DEFAULT", "r-l2-2x1-w2-t1"])
def test_weights_are_of_the_method_named_however_it_is_spelled(name, tmp_path):
    path = saved(tmp_path, "R-L2-2x1-Θ1-w2")
    assert str(parse_method(name, path).load()) == "R-L2-2x1-Θ1-w2"
    for other in ("R-L2-2x1-w2", "TV-L1"):
        with pytest.raises(BadInput, match=f"m.safetensors holds R-L2-2x1-Θ1-w2, not {other}"):
            parse_method(other, path)


def test_weights_are_read_once_and_again_when_they_are_asked_for_again(tmp_path):
    path = saved(tmp_path)
    spec = parse_method("default", path)
    assert spec.load() is resolve(spec, 2, None) is spec.pin().load()
    saved(tmp_path, "VoxelMorph-w2")
    assert str(parse_method("default", path).load()) == "VoxelMorph-w2"


def forget():
    """Be as a process that begins."""
    load_once.cache_clear()
    check_pinned.cache_clear()
    bundled.bundled_sha256.cache_clear()


def test_another_process_refuses_weights_that_were_replaced_since_they_were_pinned(tmp_path):
    spec = parse_method("default", saved(tmp_path)).pin()
    forget()
    there = pickle.loads(pickle.dumps(spec))
    model = there.load()
    spec.weights.unlink()
    assert there.load() is model, "a process that has loaded the weights goes on with them"
    for replaced in (False, True):
        forget()
        if replaced:
            saved(tmp_path, "VoxelMorph-w2")
        with pytest.raises(UnfitMachine, match=r"m\.safetensors is not the file of weights that this run began with"):
            spec.load()


@pytest.mark.parametrize("name", ["short-axis", "Short-Axis+average", "default"])
def test_a_bundled_model_is_pinned_by_its_content(name, tmp_path, monkeypatch):
    file = tmp_path / "short_axis.safetensors"
    file.write_text("weights")
    forget()
    monkeypatch.setitem(bundled.BUNDLED, SHORT_AXIS, bundled.BundledModel(file, ""))
    spec = MethodSpec(name).pin()
    assert spec.weights_sha256 == sha256(file)
    file.write_text("others")
    forget()
    assert MethodSpec(name).pin() != spec
    with pytest.raises(UnfitMachine, match="install the same vrnet everywhere"):
        spec.load()
    forget()


def test_specs_without_weights_have_none_to_compare_and_those_of_cines_their_own():
    """A cohort of cines is done again when their model is another, not when the model of pairs is."""
    assert parse_method("TV-L1(lam=0.2)").pin().weights_sha256 is None
    of_pairs, of_cines = (parse_method("default", images=images).pin() for images in ("pair", "cine"))
    assert of_pairs.weights_sha256 == parse_method("short-axis").pin().weights_sha256
    assert of_cines.weights_sha256 == parse_method("short-axis-cine").pin().weights_sha256 != of_pairs.weights_sha256
