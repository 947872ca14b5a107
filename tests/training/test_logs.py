import numpy as np
import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from vrnet.training.pictures import TILES

from vrnet.methods.learned import learned
from vrnet.training.logs import Logs, thetas

ROW = {"step": 4, "loss": 0.25, "rate": 1e-4, "val_loss": 0.5, "val_dice": 0.75}


def events(folder):
    found = EventAccumulator(str(folder / "logs"), size_guidance={"scalars": 0, "images": 0})
    return found.Reload()


def curve(found, name):
    return [(event.step, pytest.approx(event.value)) for event in found.Scalars(name)]


def test_every_theta_is_listed_in_the_order_of_the_steps():
    model = learned("R-L1-2x2-w1").build(2)
    with torch.no_grad():
        for number, step in enumerate(step for inner in model.steps for step in inner):
            step.data.log_theta.fill_(np.log(0.1 * (number + 1)))
    assert thetas(model) == pytest.approx([0.1, 0.2, 0.3, 0.4])
    assert thetas(learned("R-L2-3x1-Θ1-w1").build(2)) == pytest.approx([0.1])
    assert thetas(learned("VoxelMorph-w1").build(2)) == []


def test_a_row_becomes_curves_and_a_picture(d, hearts, tmp_path):
    sample = hearts(d, [3]).samples[0]
    Logs(tmp_path, 0).write(ROW, learned("R-L1-2x1-w1").build(d), sample)
    found = events(tmp_path)
    assert set(found.Tags()["scalars"]) == {"loss", "rate", "val_loss", "val_dice", "theta/1", "theta/2"}
    assert curve(found, "val_dice") == [(4, 0.75)]
    assert curve(found, "theta/2") == [(4, 0.1)]
    assert found.Tags()["images"] == [f"pair/{TILES}"]


def test_what_came_after_the_step_that_is_resumed_from_is_hidden(hearts, tmp_path):
    sample, model = hearts(2, [3]).samples[0], learned("VoxelMorph-w1").build(2)
    for step in (2, 4, 6):
        Logs(tmp_path, step - 2).write(ROW | {"step": step}, model, sample)
    Logs(tmp_path, 4).write(ROW | {"step": 6, "loss": 0.5}, model, sample)
    assert curve(events(tmp_path), "loss") == [(2, 0.25), (4, 0.25), (6, 0.5)]


def test_drawing_a_picture_teaches_the_model_nothing(hearts, tmp_path):
    """A network that normalises by batch keeps averages of what it sees while it is trained."""
    model = learned("Siamese-w1").build(2)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    Logs(tmp_path, 0).write(ROW, model, hearts(2, [3]).samples[0])
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert model.training
