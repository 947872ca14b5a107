import numpy as np
import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import nn

from vrnet.data.prepared import PreparedSplit
from vrnet.data.protocols import Sample
from vrnet.evaluation.metrics import dice
from vrnet.fields.calculus import zeros
from vrnet.methods.names import parse_trainable
from vrnet.training.loss import Loss
from vrnet.training.validation import Logs, dice_of_labels, evaluation_mode, thetas, validate


class Still(nn.Module):
    def forward(self, I0, I1, spacing=None):
        return zeros(I0)


def test_dice_on_tensors_is_that_of_the_metrics(d, hearts):
    sample = hearts(d, [3]).samples[0]
    found = dice_of_labels(sample.fixed_labels, sample.moving_labels, [1, 2, 3, 7])[0]
    masks = sample.fixed_labels[0, 0].numpy(), sample.moving_labels[0, 0].numpy()
    expected = [dice(masks[0] == label, masks[1] == label) for label in (1, 2, 3, 7)]
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-6)
    assert torch.isnan(found[3])


def squares(*rows):
    """Label maps of 8x8, one slice per row of values: that of each quarter."""
    corners = [torch.tensor(row, dtype=torch.uint8).view(2, 2) for row in rows]
    return torch.stack(corners)[:, None].repeat_interleave(4, 2).repeat_interleave(4, 3)


def test_dice_is_the_mean_over_pairs_then_over_structures_then_over_subjects():
    """Subject a: structure 1 has 1 and 0 in its two slices, 2 has 1 in the first alone: (1/2 + 1) / 2.
    Subject b: structure 1 has 0, and 2 is not there: 0."""
    images, h = torch.rand(2, 1, 8, 8), (1.0, 1.0)
    a = Sample("a", images, images, h, squares((1, 0, 2, 0), (1, 0, 0, 0)), squares((1, 0, 2, 0), (0, 1, 0, 0)))
    b = Sample("b", images[:1], images[:1], h, squares((1, 0, 0, 0)), squares((0, 0, 0, 1)))
    prepared = PreparedSplit("x", "val", (a, b), {"one": 1, "two": 2}, False)
    scores = validate(Still(), prepared, Loss(0.1), torch.device("cpu"))
    assert scores["val_dice"] == 0.375


def test_without_labels_there_is_only_the_loss(hearts):
    assert set(validate(Still(), hearts(2, [0], labels=False), Loss(0.1), torch.device("cpu"))) == {"val_loss"}


def test_a_model_in_use_learns_nothing_and_goes_on_learning_afterwards(random):
    """By gradients, or by averages that a normalisation keeps."""
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2)).double()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with evaluation_mode(model):
        assert not model(random(1, 1, 8, 8)).requires_grad
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert model.training
    assert model(random(1, 1, 8, 8)).requires_grad


ROW = {"step": 4, "loss": 0.25, "rate": 1e-4, "val_loss": 0.5, "val_dice": 0.75}


def events(folder):
    found = EventAccumulator(str(folder / "logs"), size_guidance={"scalars": 0, "images": 0})
    return found.Reload()


def curve(found, name):
    return [(event.step, pytest.approx(event.value)) for event in found.Scalars(name)]


def test_every_theta_is_listed_in_the_order_of_the_steps():
    model = parse_trainable("R-L1-2x2-w1").build(2)
    with torch.no_grad():
        for number, step in enumerate(step for inner in model.steps for step in inner):
            step.first.log_theta.fill_(np.log(0.1 * (number + 1)))
    assert thetas(model) == pytest.approx([0.1, 0.2, 0.3, 0.4])
    assert thetas(parse_trainable("R-L2-3x1-Θ1-w1").build(2)) == pytest.approx([0.1])
    assert thetas(parse_trainable("VoxelMorph-w1").build(2)) == []


def test_a_row_becomes_curves(d, tmp_path):
    Logs(tmp_path, 0).write(ROW, parse_trainable("R-L1-2x1-w1").build(d))
    found = events(tmp_path)
    assert set(found.Tags()["scalars"]) == {"loss", "rate", "val_loss", "val_dice", "theta/1", "theta/2"}
    assert curve(found, "val_dice") == [(4, 0.75)]
    assert curve(found, "theta/2") == [(4, 0.1)]
