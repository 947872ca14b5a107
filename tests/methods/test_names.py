"""Names parse and print; what is asked for is loaded as it was asked for, in whatever process."""

import pickle
import re
from dataclasses import replace
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

import vrnet
from tests.models import saved, trained
from tests.phantoms import phantom
from vrnet.errors import BadInput, UnfitMachine
from vrnet.fields.calculus import warp
from vrnet.files import sha256
from vrnet.methods import names as names_of_methods
from vrnet.methods.names import (
    BUNDLED,
    EXAMPLES,
    SHORT_AXIS,
    Default,
    MethodSpec,
    all_methods,
    load_bundled,
    load_once,
    missing_package,
    names,
    parameters,
    parse,
    parse_method,
    parse_trainable,
    with_parameters,
)
from vrnet.methods.parameters import PerDimension
from vrnet.methods.solvers import PRESETS
from vrnet.methods.weights import FAMILIES, parse_learned
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
    for family, member in zip(
        FAMILIES, ("R-L1-3x2", "VoxelMorph", "Siamese", "3xRC-Net", "P-L2", "Segmenter"), strict=True
    ):
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
    [("TVL1", "TV-L1"), ("R-L1-3:2", "R-L1-3x2"), ("RC-Net", "3xRC-Net"), ("short-axis+averag", "short-axis")],
)
def test_a_slip_of_the_pen_is_answered_with_the_name_meant(wrong, meant):
    with pytest.raises(BadInput, match=f'^no method is called "{re.escape(wrong)}": did you mean {meant}\\?$'):
        parse(wrong)


def test_an_unknown_name_is_answered_with_all_known_ones():
    unknown = "Elastix"
    with pytest.raises(BadInput, match=f'^no method is called "{re.escape(unknown)}": choose one of ') as raised:
        parse(unknown)
    assert all(name in str(raised.value) for name in (*names(), *FAMILIES))
    with pytest.raises(BadInput, match=r'^no method is called "[^"(]*": choose one of ') as raised:
        parse_trainable(f"{unknown}(lam=2)")
    assert all(name in str(raised.value) for name in FAMILIES)


CANNOT = [
    (lambda: parse("w.safetensors"), r"to vrnet\.load_method, by --weights or, in .* `start_from`"),
    (lambda: parse_trainable("R-L1-3x"), r'"R-L1-3x": did you mean R-L1-3x2\?$'),
    (lambda: parse_trainable("TV-L1"), "has nothing to learn"),
    (lambda: parse_trainable("short-axis+average"), "^short-axis is trained already: .* train D-L2-.* `start_from"),
    (lambda: parse_trainable("hippocampus-template"), "has nothing to learn: benchmarks/template.py makes others"),
    (lambda: parse_method("R-L1-3x2"), r"^R-L1-3x2 is learned .*vrnet\.load_method.*command line --weights FILE"),
    (lambda: parse_method(parse("4xRC-Net")), "^4xRC-Net is learned .* needs weights"),
    (lambda: parse_method(3), "method is an int: give a name"),
    (lambda: parse_method("default", settings=["lam=0.15"]), 'name it too, such as `method="Gaussian-LNCC"`'),
    (lambda: parse_method("default", Path("absent.safetensors")), "there is no"),
]


def test_what_cannot_register_or_be_trained_says_what_to_do_in_one_line():
    for ask, words in CANNOT:
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
        ("TV-L1(lam=much)", r"lam of TV-L1 cannot be much: give a value such as 0\.075"),
        ("TV-L1(warps=True)", r"give a value such as \d+"),
        ("TV-L1(theta=(0.1,0.2,0.3))", r"give a value such as \(0\.\d+,0\.\d+\)"),
        ("TV-L1(data=L2)", r"data of TV-L1 is said by its name"),
        ("TV-L1(lam=-1)", r"lam is -1.0: give a number above 0"),
        ("TV-L1(lam=0.1", r"lacks a closing bracket"),
        ("TV-L1(lam=__import__('os'))", r"sets no parameter"),
        ("Demons(sigma={2:1.0})", r"sigma of Demons cannot be"),
        ("TV-L1(lam=1,lam=2)", r"sets a parameter twice"),
        ("TV-L1(lam=1e999)", r"lam of TV-L1 cannot be inf"),
        ("TV-L1(warps=99999999999)", r"give a number of 0 or more, 100,000 at most"),
        ("R-L1-3x2-zeros-noise", r"says one thing twice"),
        ("R-L2-1000000x1000", r"100 at most"),
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
    assert spec.load().resolve(2, (1.8, 1.8)) is load_bundled(SHORT_AXIS)
    assert spec.load().resolve(2, (9.0, 9.0)) == spec.load().resolve(3, None) == parse("Gaussian-LNCC")
    assert str(parse_method("default", images="cine").load().resolve(2, None, "cine")) == "short-axis-cine"
    assert str(parse_method("default", average=True).load().resolve(2, None)) == "short-axis+average"
    own = trained()
    assert parse_method(own).load().resolve(2, None) is own


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
    assert spec.load() is spec.load().resolve(2, None)
    saved(tmp_path, "VoxelMorph-w2")
    assert str(parse_method("default", path).load()) == "VoxelMorph-w2"


def forget():
    """Be as a process that begins."""
    load_once.cache_clear()


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


@pytest.mark.parametrize("name", ["Short-Axis+average", "default"])
def test_a_bundled_model_is_pinned_by_its_content(name, tmp_path, monkeypatch):
    file = tmp_path / "short_axis.safetensors"
    file.write_text("weights")
    forget()
    monkeypatch.setattr(names_of_methods, "FOLDER", tmp_path)
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


# Networks as modules of PyTorch.

NETWORKS = [(2, "D-L2-1x1-w2"), (3, "R-L1-1x1-w2"), (2, "2xRC-Net-w2")]


def phantoms(count, d=2):
    """As a data loader of MONAI or TorchIO gives them: dictionaries of channels-first images."""
    patients = [phantom(seed, (32, 28, 20)[:d], 8.0) for seed in range(count)]
    return [{"fixed": patient.fixed[0], "moving": patient.moving[0]} for patient in patients]


@pytest.mark.release
@pytest.mark.parametrize(("d", "name"), NETWORKS)
def test_a_network_is_a_module_of_two_batches(d, name):
    torch.manual_seed(0)
    net = vrnet.network(name, d)
    assert isinstance(net, nn.Module)
    batch = next(iter(DataLoader(phantoms(2, d), batch_size=2)))
    field = net(batch["fixed"], batch["moving"])
    assert field.shape == (2, d, *batch["fixed"].shape[2:])
    (field - 1).square().mean().backward()
    assert any(p.grad is not None and p.grad.abs().max() > 0 for p in net.parameters())


def test_each_pair_of_a_batch_is_registered_by_itself():
    net = vrnet.network("D-L2-1x1-w2").eval()
    batch = next(iter(DataLoader(phantoms(2), batch_size=2)))
    with torch.inference_mode():
        both, second = net(batch["fixed"], batch["moving"]), net(batch["fixed"][1:], batch["moving"][1:])
    torch.testing.assert_close(both[1:], second)


def test_the_model_in_the_box_is_the_one_that_registers():
    """On images in [0, 1] at its own spacing, with nothing done to the result."""
    patient = phantom(7, (64, 64), 1.8)
    I0, I1 = patient.fixed, patient.moving
    with torch.inference_mode():
        field = vrnet.network("short-axis")(I0, I1)[0]
        expected = load_bundled(SHORT_AXIS).build(2)(I0, I1)[0]
    torch.testing.assert_close(field, expected)


@pytest.mark.release
def test_a_model_in_the_box_knows_its_dimension():
    patient = phantoms(1, 3)[0]
    I0, I1 = patient["fixed"][None], patient["moving"][None]
    with torch.inference_mode():
        assert vrnet.network("hippocampus")(I0, I1).shape == (1, 3, *I0.shape[2:])
    for name, other in (("short-axis", 3), ("hippocampus", 2)):
        with pytest.raises(BadInput, match=f"not {other}: leave out the dimension"):
            vrnet.network(name, other)


def test_every_call_gives_a_network_of_its_own():
    net = vrnet.network("short-axis")
    with torch.no_grad():
        next(net.parameters()).add_(1.0)
    assert not torch.equal(next(net.parameters()), next(load_bundled(SHORT_AXIS).model.parameters()))


@pytest.mark.release
def test_a_network_trained_elsewhere_registers_once_it_is_saved(tmp_path):
    """A few steps of a plain loop make the images more alike, and the file gives the very same field."""
    torch.manual_seed(0)
    net = vrnet.network("C-L2-1x1-w4")
    optimiser = torch.optim.Adam(net.parameters(), 1e-2)
    losses, loader = [], DataLoader(phantoms(2), batch_size=2)
    for _ in range(25):
        for batch in loader:
            loss = (warp(batch["moving"], net(batch["fixed"], batch["moving"])) - batch["fixed"]).abs().mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            losses.append(loss.item())
    assert losses[-1] < 0.99 * losses[0]
    vrnet.save_network(net, tmp_path / "mine.safetensors", "C-L2-1x1-w4", (8.0, 8.0), trained_on="two phantoms")
    batch = next(iter(DataLoader(phantoms(1))))
    again = vrnet.network(weights=tmp_path / "mine.safetensors")
    torch.testing.assert_close(again(**rename(batch)), net(**rename(batch)))
    method = vrnet.load_method(tmp_path / "mine.safetensors")
    assert (method.card.trained_on, method.card.spacing_mm) == ("two phantoms", (8.0, 8.0))
    found = vrnet.register(batch["fixed"][0, 0], batch["moving"][0, 0], method, folds="keep")
    assert found.method == "C-L2-1x1-w4"


def rename(batch):
    return {"I0": batch["fixed"], "I1": batch["moving"]}


SENSELESS = [
    (lambda path: vrnet.network(), "nothing says which network"),
    (lambda path: vrnet.network("TV-L1"), "has nothing to learn"),
    (lambda path: vrnet.network("R-L1-1x1", 4), "give 2 or 3"),
    (lambda path: vrnet.network("R-L1-1x1", weights=path), "holds VoxelMorph-w2, not R-L1-1x1"),
    (lambda path: vrnet.network(weights="nowhere.safetensors"), "there is no nowhere"),
    (lambda path: vrnet.save_network(vrnet.network("VoxelMorph-w2"), path, "VoxelMorph-w4", (1.0, 1.0)), "is not"),
]


def test_what_makes_no_sense_is_refused_in_words(tmp_path):
    vrnet.save_network(vrnet.network("VoxelMorph-w2"), tmp_path / "v.safetensors", "VoxelMorph-w2", (1.0, 1.0))
    for ask, reason in SENSELESS:
        with pytest.raises(BadInput, match=reason):
            ask(tmp_path / "v.safetensors")
