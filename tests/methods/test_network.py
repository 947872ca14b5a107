import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

import vrnet
from vrnet.errors import BadInput
from vrnet.fields.calculus import warp
from vrnet.methods.bundled import SHORT_AXIS, load_bundled
from vrnet.phantom import phantom

NAMES = ["D-L2-1x1-w2", "R-L1-1x1-w2", "VoxelMorph-w2", "2xRC-Net-w2"]


def phantoms(count, d=2):
    """As a data loader of MONAI or TorchIO gives them: dictionaries of channels-first images."""
    patients = [phantom(seed, (32, 28, 20)[:d], 8.0) for seed in range(count)]
    return [{"fixed": patient.fixed[0], "moving": patient.moving[0]} for patient in patients]


@pytest.mark.parametrize("name", NAMES)
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


@pytest.mark.parametrize(
    ("ask", "reason"),
    [
        (lambda path: vrnet.network(), "nothing says which network"),
        (lambda path: vrnet.network("TV-L1"), "has nothing to learn"),
        (lambda path: vrnet.network("R-L1-1x1", 4), "give 2 or 3"),
        (lambda path: vrnet.network("R-L1-1x1", weights=path), "holds VoxelMorph-w2, not R-L1-1x1"),
        (lambda path: vrnet.network(weights="nowhere.safetensors"), "there is no nowhere"),
        (lambda path: vrnet.save_network(vrnet.network("VoxelMorph-w2"), path, "VoxelMorph-w4", (1.0, 1.0)), "is not"),
    ],
)
def test_what_makes_no_sense_is_refused_in_words(tmp_path, ask, reason):
    vrnet.save_network(vrnet.network("VoxelMorph-w2"), tmp_path / "v.safetensors", "VoxelMorph-w2", (1.0, 1.0))
    with pytest.raises(BadInput, match=reason):
        ask(tmp_path / "v.safetensors")
