import pytest

from vrnet import names, parse
from vrnet.methods.names import BUNDLED, LICENCES, SEGMENTERS, bundled_file, parameters
from vrnet.methods.weights import FAMILIES


def test_methods_lists_every_name_with_what_it_is(vrnet):
    status, out, err = vrnet("methods")
    assert (status, err) == (0, "")
    listed = {line.split()[0]: line for line in out.splitlines()[1:] if line.strip()}
    assert {*names(), *FAMILIES} <= set(listed)
    assert listed["TV-L1"].rstrip().endswith("yes")
    assert all(listed[family].rstrip().endswith("with --weights FILE") for family in FAMILIES)
    assert "vrnet train" in out
    assert {*LICENCES} == {*BUNDLED, *SEGMENTERS}


def test_weights_that_are_not_for_commercial_use_are_marked_in_the_list(vrnet, monkeypatch):
    monkeypatch.setattr("vrnet.app.console.screen.width", 400)
    _, out, _ = vrnet("methods")
    marked = {line.split()[0] for line in out.splitlines() if "NC-SA" in line}
    assert marked == {"short-axis", "short-axis-cine"}
    assert "For commercial use" in out


@pytest.mark.parametrize("name", ["TV-L1", "SyN", "R-L1-3x2", "short-axis"])
def test_a_method_lists_its_parameters_with_value_and_meaning(vrnet, monkeypatch, name):
    monkeypatch.setattr("vrnet.app.console.screen.width", 200)
    status, out, err = vrnet("methods", name)
    assert (status, err) == (0, "")
    rows = {line.split()[0]: " ".join(line.split()) for line in out.splitlines()[1:] if line.strip()}
    for parameter in parameters(parse(name)):
        assert f"{parameter.name} {parameter.value} {parameter.meaning}"[:100] in rows[parameter.name]
    assert parse(name).summary in out
    assert {"images", "intensities", "masks", "devices", "package", "ready"} <= set(rows)
    assert ("--set" in out) == bool(parameters(parse(name)))


def test_a_file_of_weights_tells_what_was_trained_and_how_to_use_it(vrnet, monkeypatch):
    monkeypatch.setattr("vrnet.app.console.screen.width", 400)
    path = str(bundled_file("hippocampus"))
    status, out, err = vrnet("methods", path)
    assert (status, err) == (0, "")
    words = " ".join(out.split())
    assert "D-L2-2x1-w8" in words
    assert "labels in training yes" in words
    assert "flips in training no" in words
    assert f"--weights {path}" in words


def test_an_averaged_method_says_a_name_that_can_be_given(vrnet):
    _, out, _ = vrnet("methods", "TV-L1(lam=0.15)+average")
    assert "lam 0.15 " in " ".join(out.split())
    assert '"TV-L1(lam=VALUE)+average"' in out


def test_a_method_that_is_none_is_refused(vrnet):
    status, out, err = vrnet("methods", "TVL1")
    assert (status, out) == (2, "")
    assert "did you mean TV-L1?" in err


def test_the_default_says_what_it_comes_to_and_nothing_that_depends_on_that(vrnet):
    _, out, _ = vrnet("methods", "default")
    assert "`vrnet methods Gaussian-LNCC`, `vrnet methods short-axis`, `vrnet methods short-axis-cine`" in " ".join(
        out.split()
    )
    assert "percentile" not in out
