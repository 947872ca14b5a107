from pathlib import Path

import pytest

from tests.models import saved, trained
from vrnet import BadInput, parse
from vrnet.methods.names import choose, ready


@pytest.mark.parametrize("name", ["R-L1-3x2", "C-L2-2x1-w2", "VoxelMorph", "Siamese-w8", "4xRC-Net"])
def test_a_learned_method_without_weights_says_what_to_do(name):
    for method in (name, parse(name)):
        with pytest.raises(
            BadInput, match=rf"^{name} is learned .*vrnet\.load_method.*command line --weights FILE"
        ) as raised:
            ready(method)
        assert len(str(raised.value).splitlines()) == 1


def test_a_trained_method_is_as_good_as_a_name():
    model = trained()
    assert ready(model) is model


@pytest.mark.parametrize("name", ["default", "DEFAULT", "R-L2-2x1-Θ1-w2", "r-l2-2x1-w2-t1"])
def test_weights_are_of_the_method_named_however_it_is_spelled(name, tmp_path):
    path = saved(tmp_path, "R-L2-2x1-Θ1-w2")
    assert str(choose(name, path)) == "R-L2-2x1-Θ1-w2"


@pytest.mark.parametrize("name", ["R-L2-2x1-w2", "VoxelMorph", "TV-L1", "identity"])
def test_weights_of_another_method_are_refused(name, tmp_path):
    path = saved(tmp_path, "R-L2-2x1-Θ1-w2")
    with pytest.raises(BadInput, match=f"m.safetensors holds R-L2-2x1-Θ1-w2, not {name}") as raised:
        choose(name, path)
    assert len(str(raised.value).splitlines()) == 1


def test_without_weights_a_name_is_a_name():
    assert choose("TV-L1", None) == parse("TV-L1")
    with pytest.raises(BadInput, match="there is no"):
        choose("default", Path("absent.safetensors"))


def test_a_parameter_that_no_method_has_is_told_before_that_a_method_is_to_be_named():
    with pytest.raises(BadInput, match=r'^no method has a parameter "lamda": did you mean lam'):
        choose("default", settings=["warps=3", "lamda=3"])
    with pytest.raises(BadInput, match=r'^no method has a parameter "colour": vrnet methods NAME lists'):
        choose("default", settings=["colour=3"])
    with pytest.raises(BadInput, match="name it too"):
        choose("default", settings=["lam=3"])


def test_a_method_of_another_kind_is_refused():
    with pytest.raises(BadInput, match="give a name"):
        ready(None)
