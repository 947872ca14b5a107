import pytest
import torch
from torch import nn
from torch.optim import Adam

from vrnet.devices import channels_last
from vrnet.errors import BadInput
from vrnet.training.checkpoint import RunState, load_checkpoint, save_checkpoint

ROWS = [
    {"step": 2, "loss": 0.1, "rate": 1e-3, "val_loss": 1e-7},
    {"step": 4, "loss": 1 / 3, "rate": 5e-4, "val_loss": 0.25, "val_dice": 0.9},
]
STATE = RunState(5, torch.tensor(0.7), ROWS)
STEPS = 6
"""After which the run ends."""


@pytest.fixture
def checkpoint(tmp_path, convolutions):
    """The file of a run that was left after 5 steps."""
    save_checkpoint(tmp_path / "checkpoint.safetensors", *convolutions(), STATE)
    return tmp_path / "checkpoint.safetensors"


def test_what_is_saved_comes_back_to_the_bit(checkpoint, convolutions):
    model, optimizer = convolutions()
    save_checkpoint(checkpoint, model, optimizer, STATE)
    torch.manual_seed(1)
    other, its_optimizer = convolutions(steps=0)
    assert load_checkpoint(checkpoint, other, its_optimizer, STEPS) == STATE
    for a, b in zip(model.state_dict().values(), other.state_dict().values(), strict=True):
        assert torch.equal(a, b)
    for number, state in optimizer.state_dict()["state"].items():
        assert all(torch.equal(state[name], its_optimizer.state_dict()["state"][number][name]) for name in state)


def test_a_run_without_a_checkpoint_is_at_its_beginning(tmp_path, convolutions):
    assert load_checkpoint(tmp_path / "none", *convolutions(), STEPS) == RunState(0, torch.zeros(()), [])
    assert not list(tmp_path.iterdir())


def test_the_optimiser_keeps_its_own_settings(checkpoint, convolutions):
    """Settings such as `foreach` belong to the device, and a run may go on on another."""
    model, _ = convolutions(steps=0)
    optimizer = Adam(model.parameters(), lr=torch.tensor(0.5), foreach=False)
    load_checkpoint(checkpoint, model, optimizer, STEPS)
    (group,) = optimizer.param_groups
    assert group["lr"] == 0.5
    assert group["foreach"] is False


def shorten(path):
    path.write_bytes(path.read_bytes()[:-40])


def empty(path):
    path.write_bytes(b"")


def scribble(path):
    path.write_text("step,loss\nthree,0.1")


def pickle(path):
    torch.save({"step": 3}, path)


@pytest.mark.parametrize("damage", [shorten, empty, scribble, pickle])
def test_a_damaged_checkpoint_is_named(checkpoint, damage, convolutions):
    damage(checkpoint)
    with pytest.raises(BadInput, match=r"checkpoint\.safetensors is damaged.*another folder") as error:
        load_checkpoint(checkpoint, *convolutions(), STEPS)
    assert "\n" not in str(error.value)


def test_a_checkpoint_of_another_model_is_named(checkpoint):
    other = nn.Conv2d(1, 3, 3)
    with pytest.raises(BadInput, match="holds another model than the run has: train again"):
        load_checkpoint(checkpoint, other, Adam(other.parameters()), STEPS)


def test_a_checkpoint_that_cannot_be_written_leaves_the_one_before(checkpoint, convolutions, monkeypatch):
    def fill_the_disk(tensors, path, metadata):
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    before = checkpoint.read_bytes()
    monkeypatch.setattr("safetensors.torch.save_file", fill_the_disk)
    with pytest.raises(BadInput, match="No space left"):
        save_checkpoint(checkpoint, *convolutions(), STATE)
    assert checkpoint.read_bytes() == before
    assert list(checkpoint.parent.iterdir()) == [checkpoint]


def test_what_the_optimiser_keeps_lies_in_memory_as_its_parameter_does(tmp_path):
    model = channels_last(nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 2, 3)), 2)
    optimizer = Adam(model.parameters())
    model(torch.rand(1, 3, 8, 8)).sum().backward()
    optimizer.step()
    save_checkpoint(tmp_path / "c.safetensors", model, optimizer, STATE)
    load_checkpoint(tmp_path / "c.safetensors", model, optimizer, STEPS)
    for parameter, kept in optimizer.state.items():
        assert kept["exp_avg"].stride() == kept["exp_avg_sq"].stride() == parameter.stride()
    assert not model[0].weight.is_contiguous()
