import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from tests.app.outputs import file_names, read_json
from vrnet import read_image
from vrnet.methods.weights import read_card


@pytest.fixture
def made(vrnet, data, tmp_path):
    """(folder, stdout) of a template of three hearts."""
    status, out, err = vrnet("template", *data, "--out", tmp_path / "t", "--rounds", 1, "--device", "cpu")
    assert status == 0, err
    return tmp_path / "t", out


def test_a_template_is_a_method_an_image_and_a_picture(made):
    folder, out = made
    assert file_names(folder) == {"weights.safetensors", "template.nii.gz", "template.png", "config.json"}
    card = read_card(folder / "weights.safetensors")
    assert card.trained_on == "manifest, train: 3 subjects, 1 round"
    image = read_image(folder / "template.nii.gz")
    assert image.grid.spacing == card.spacing_mm
    (template, weight), shape = load_file(folder / "weights.safetensors").values(), image.grid.shape
    assert {template.dtype, weight.dtype} == {torch.float16}
    np.testing.assert_allclose(image.array, template[0, 0].float(), atol=1e-3)
    middle = [o + h * (n - 1) / 2 for o, h, n in zip(image.grid.origin, image.grid.spacing, shape, strict=True)]
    assert middle == pytest.approx([0] * len(shape), abs=1e-5)
    assert f"--weights {folder / 'weights.safetensors'}" in out


def test_register_evaluate_and_methods_take_it(made, vrnet, hearts, data, tmp_path):
    folder, _ = made
    weights = "--weights", folder / "weights.safetensors"
    fixed, moving = (hearts.parent / f"4_{part}.nii.gz" for part in ("fixed", "moving"))
    assert vrnet("register", fixed, moving, "--out", tmp_path / "r", *weights)[0] in (0, 3)
    status, _, err = vrnet("evaluate", "default", *data, "--split", "test", "--out", tmp_path / "e", *weights)
    assert status == 0, err
    status, out, _ = vrnet("methods", folder / "weights.safetensors")
    assert (status, "Template-32x32" in out) == (0, True)


def test_the_template_is_of_the_subjects_and_the_split_that_are_named(vrnet, data, tmp_path):
    how = "--rounds", 1, "--device", "cpu"
    status, _, err = vrnet("template", *data, "--out", tmp_path / "t", "--subjects", 2, *how)
    assert status == 0, err
    assert read_card(tmp_path / "t" / "weights.safetensors").trained_on == "manifest, train: 2 subjects, 1 round"
    status, _, err = vrnet("template", *data, "--out", tmp_path / "v", "--split", "val", *how)
    assert (status, "and not of 1" in err) == (2, True), err


def test_fewer_subjects_than_asked_for_are_told(vrnet, data, tmp_path):
    status, _, err = vrnet("template", *data, "--out", tmp_path / "t", "--subjects", 9)
    assert (status, "has 3 subjects, and not 9" in err) == (2, True)
    status, _, err = vrnet("template", *data, "--out", tmp_path / "t", "--rounds", 0)
    assert (status, "--rounds is 0: give 1 to 20" in err) == (2, True)
    assert not (tmp_path / "t").exists()


def test_a_template_says_who_is_in_it(made):
    found = read_json(made[0] / "config.json")
    assert (found["subjects"], found["split"], found["rounds"]) == (["heart0", "heart1", "heart2"], "train", 1)


def test_weights_that_are_there_are_kept(made, vrnet, data):
    """A run that was trained there, or a template, is not lost by a slip of the pen."""
    before = (made[0] / "weights.safetensors").read_bytes()
    status, _, err = vrnet("template", *data, "--out", made[0])
    assert (status, "holds weights already" in err) == (2, True)
    assert (made[0] / "weights.safetensors").read_bytes() == before


def test_a_template_is_not_averaged_over_flips(made, vrnet, hearts, tmp_path):
    fixed, moving = (hearts.parent / f"4_{part}.nii.gz" for part in ("fixed", "moving"))
    words = "--weights", made[0] / "weights.safetensors", "--average"
    status, _, err = vrnet("register", fixed, moving, "--out", tmp_path / "r", *words)
    assert (status, "flips" in err) == (2, True)
