import pytest
import torch

from tests.models import trained
from vrnet.methods.names import parse_trainable
from vrnet.training.fit import RecomputedCascade
from vrnet.variational.cascade import Cascade, DataStep, Denoise, Step, no_motion
from vrnet.variational.data_terms import L1
from vrnet.variational.regularizers import TV


@pytest.mark.parametrize("name", ["R-L1-2x2-w4", "C-L2-2x1-w4", "R-L2-2x1-Θ1-zeros-w4", "2xRC-Net-w4", "VoxelMorph-w4"])
def test_fields_and_gradients_are_those_of_the_cascade(d, name, smooth_image):
    shape = (16,) * d
    I0, I1 = (smooth_image(shape, 2, seed, torch.float32) for seed in (0, 1))
    model = trained(name, d).model  # whose heads are not near zero, which would hide what is behind them
    found = []
    for network in (model, RecomputedCascade(model)):
        model.zero_grad()
        u = network(I0, I1, (1.0, 1.5, 2.0)[:d])
        u.square().mean().backward()
        found.append([u.detach(), *(parameter.grad.clone() for parameter in model.parameters())])
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b)
    alive = [part.abs().max() > 0 for part in found[0]]  # narrow networks have units that are off
    assert sum(alive) > len(alive) / 2


def test_what_lies_between_the_rows_is_not_kept(smooth_image):
    """The tensors that are kept for the way back: fewer than without, and no more for a longer row."""
    I0, I1 = (smooth_image((16, 16), 2, seed, torch.float32) for seed in (0, 1))

    def kept(network):
        sizes = []
        with torch.autograd.graph.saved_tensors_hooks(lambda x: sizes.append(x.numel()) or x, lambda x: x):
            network(I0, I1)
        return sum(sizes)

    short, long = (parse_trainable(name).build(2) for name in ("R-L2-2x1-w2", "R-L2-2x3-w2"))
    assert kept(RecomputedCascade(short)) < kept(short) / 5
    assert kept(RecomputedCascade(long)) == kept(RecomputedCascade(short))


def test_what_a_regulariser_remembers_goes_from_row_to_row(d, smooth_image):
    """Three linearisations of two steps with the TV prox, whose dual variable is kept."""
    I0, I1 = (smooth_image((16,) * d, 2, seed, torch.float32) for seed in (0, 1))
    cascade = Cascade(no_motion, [[Step(DataStep(L1(), 0.1), Denoise(TV(), 0.75))] * 2] * 3)
    assert cascade(I0, I1).abs().max() > 0.1
    torch.testing.assert_close(RecomputedCascade(cascade)(I0, I1), cascade(I0, I1))
