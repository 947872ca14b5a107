import pytest
import torch

import vrnet
from vrnet import BadInput
from vrnet.fields.calculus import warp
from vrnet.methods.bundled import load_bundled
from vrnet.methods.names import find_base
from vrnet.methods.template import Template, make_solver, parse_template
from vrnet.methods.weights import Card, load_weights, save_weights
from vrnet.variational.data_terms import LNCC

SHAPE = {2: (32, 28), 3: (32, 28, 30)}


@pytest.fixture
def saved(smooth_image, tmp_path, d):
    """(path, model): a template on disk."""
    method = Template(SHAPE[d])
    model = method.build(d)
    model.image = ((smooth_image(SHAPE[d], sigma=3).float() - 0.5) * 20).sigmoid()
    card = Card(
        str(method), d, (1.0,) * d, "each", "blobs, train: 5 subjects, 2 rounds", "0.5.0", flips_in_training=False
    )
    save_weights(model, card, tmp_path / "t.safetensors")
    return tmp_path / "t.safetensors", model


@pytest.mark.parametrize("name", ["Template-48x64x48", "template-9x7"])
def test_names_parse_and_print(name):
    assert str(parse_template(name)).casefold() == name.casefold()


@pytest.mark.parametrize(
    "name",
    [
        "Template",
        "Template-5",
        "Template-5x5x5x5",
        "Template-12345x5",
        "Template-0x5",
        "Template-05x5",
        "Template-٥x5",
        "Template-axb",
        "TV-L1",
    ],
)
def test_other_names_are_not_of_a_template(name):
    assert parse_template(name) is None


def test_a_template_is_not_named_but_read_from_a_file():
    assert find_base("Template-48x64x48") is None


def test_it_comes_back_as_it_was(saved, smooth_image, d):
    path, model = saved
    again, _ = load_weights(path)
    I0, I1 = (smooth_image(SHAPE[d], seed=k).float() for k in (1, 2))
    assert torch.equal(again(I0, I1), model(I0, I1))


def test_a_file_of_another_shape_is_refused(saved, d):
    path, model = saved
    other = Card(f"Template-{'x'.join(['9'] * d)}", d, (1.0,) * d, "each", "blobs", "0.5.0")
    save_weights(model, other, path)
    with pytest.raises(BadInput, match="do not fit"):
        load_weights(path)


def test_what_a_file_holds_is_a_method_without_a_network(saved, d):
    found = vrnet.load_method(saved[0])
    assert found.dimensions == (d,)
    assert (found.is_network, found.takes_flips, found.scaling) == (False, False, "each")
    assert found.masks == vrnet.parse("Gaussian-LNCC").masks


def test_what_one_way_finds_the_other_takes_back(saved, d):
    """An image registered to itself hardly moves away from its border, however far it lies from the template."""
    path, model = saved
    image = warp(model.image, torch.full((1, d, *SHAPE[d]), 1.5))
    inside = (..., *[slice(8, -8)] * d)
    onward = model.fields_to(image)[inside].abs().mean()
    found = vrnet.register(image[0, 0], image[0, 0], method=vrnet.load_method(path))
    assert onward > 0.3
    assert found.field[inside].abs().mean() < onward / 4


def test_the_solver_is_that_of_local_correlation_with_smaller_boxes(d):
    plain, own = vrnet.parse("Gaussian-LNCC").build(d), make_solver(d)
    assert own.energy.data == LNCC(radii=(2.0, 4.0))
    assert own.energy.lam == {2: 0.7, 3: 0.65}[d]
    steps = [[type(part) for part in solver.modules()] for solver in (plain, own)]
    assert steps[0] == steps[1]
    assert {step.first.data.term for level in own.cascade.steps for step in level} == {own.energy.data}


def test_the_template_in_the_box_registers_volumes():
    found = load_bundled("hippocampus-template")
    assert found.dimensions == (3,)
    assert not found.card.labels_in_training


@pytest.mark.slow
def test_through_the_template_in_the_box_hippocampi_meet_better_than_directly(data_root, as_users_run):
    from vrnet.data.dataset import find_dataset
    from vrnet.evaluation.metrics import mean_dice
    from vrnet.fields.calculus import warp_labels

    pairs = find_dataset("hippocampus", data_root / "hippocampus")
    dice = {"hippocampus-template": 0.0, "Gaussian-LNCC": 0.0}
    names = pairs.subjects("val")[:6]
    for sample in (pairs.prepare(name, "evaluation") for name in names):
        for method in dice:
            found = vrnet.register(sample.fixed[0, 0], sample.moving[0, 0], method=method, spacing=sample.spacing)
            warped = warp_labels(sample.moving_labels, found.field[None])
            dice[method] += mean_dice(sample.fixed_labels[0, 0].numpy(), warped[0, 0].numpy()) / len(names)
    assert dice["hippocampus-template"] > dice["Gaussian-LNCC"] + 0.005
