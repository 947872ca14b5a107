import subprocess
import sys

import pytest

from vrnet import parse
from vrnet.methods.names import SHORT_AXIS, Default, load_bundled

SOLVER = parse("Gaussian-LNCC")


def test_2d_images_are_for_the_model_in_the_box_within_a_factor_of_three_from_its_spacing_and_the_rest_for_the_solver():
    model = load_bundled(SHORT_AXIS)
    assert all(Default().resolve(2, spacing) is model for spacing in (None, (0.7, 5.0)))
    assert all(Default().resolve(2, spacing) == SOLVER for spacing in ((0.5, 1.8), (1.8, 6.0)))
    assert all(Default().resolve(3, spacing) == SOLVER for spacing in (None, (1.8, 1.8, 10.0)))


def test_the_model_in_the_box_says_what_it_is():
    model = load_bundled(SHORT_AXIS)
    assert (str(model), model.file) == ("short-axis", "short_axis.safetensors")
    assert model.card.method == "D-L2-3x1-half-w32"
    assert (model.card.dimension, model.card.spacing_mm) == (2, (1.8, 1.8))
    assert "40 subjects" in model.summary
    assert model.card.labels_in_training
    assert sum(parameter.numel() for parameter in model.model.parameters()) == pytest.approx(7.77e6, rel=0.01)


def test_cines_have_a_model_of_their_own():
    """Labels of two phases, and the tissue between them, are not moved best by the same."""
    assert Default().resolve(2, None, "cine") is load_bundled("short-axis-cine") is not load_bundled(SHORT_AXIS)
    assert load_bundled("short-axis-cine").card.method == "D-L2-3x1-w16"
    assert str(parse("default+average").resolve(2, None, "cine")) == "short-axis-cine+average"
    assert Default().resolve(3, None, "cine") == SOLVER


def test_the_model_of_hippocampi_says_what_it_is():
    model = load_bundled("hippocampus")
    assert (model.card.method, model.file) == ("D-L2-2x1-w8", "hippocampus.safetensors")
    assert (model.card.dimension, model.card.spacing_mm, model.scaling) == (3, (1.0, 1.0, 1.0), "each")
    assert "140 subjects" in model.summary
    assert model.card.labels_in_training


USE = """
import sys, vrnet
from vrnet.methods.names import SHORT_AXIS, load_bundled
assert load_bundled.cache_info().currsize == 0
load_bundled(SHORT_AXIS)
print(*{name.split(".")[1] for name in sys.modules if name.startswith("torch.")}, "sympy" in sys.modules)
"""


@pytest.mark.release
def test_the_model_is_read_when_first_needed_and_without_the_compiler_of_torch():
    loaded = subprocess.run([sys.executable, "-c", USE], check=True, capture_output=True, text=True).stdout.split()
    assert not {"_dynamo", "_inductor", "True"} & set(loaded)
