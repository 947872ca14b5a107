import re
import signal
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from tests.models import trained
from tests.training.conftest import EVERYTHING, QUICK
from vrnet.errors import BadInput
from vrnet.methods.names import parse_trainable
from vrnet.provenance import how_to_install
from vrnet.training.fit import RecomputedCascade, Trainer, catch_stop_signals, is_first_process, launch_fabric
from vrnet.training.loss import Loss, loss_of
from vrnet.training.pairs import Pairs
from vrnet.variational.cascade import Cascade, DataStep, Denoise, Step, no_motion
from vrnet.variational.data_terms import L1, L2
from vrnet.variational.regularizers import TV, Bending, Huber

CPU = torch.device("cpu")


def one_of(rank, devices):
    """What Fabric tells a process about itself, of several."""
    backward = lambda value: value.backward()  # noqa: E731
    return SimpleNamespace(
        device=CPU, global_rank=rank, world_size=devices, setup=lambda *parts: parts, backward=backward
    )


def trainer(hearts, d=2, rank=0, devices=1, name="C-L2-1x1-w4", **settings):
    how = replace(settings.pop("base", QUICK), **{"batch": 4, **settings})
    pairs = Pairs.from_split(hearts(d, [0, 1, 2]), how.uses_labels)
    return Trainer(one_of(rank, devices), parse_trainable(name), pairs, how)


@pytest.mark.parametrize(("d", "devices", "base"), [(2, 4, QUICK), (3, 2, EVERYTHING)])
def test_what_devices_draw_are_the_parts_of_one_draw(d, devices, base, hearts):
    whole = trainer(hearts, d, base=base).draw(5)
    assert len(whole) == (4 if base.uses_labels else 2)
    for rank in range(devices):
        part = trainer(hearts, d, rank, devices, base=base).draw(5)
        assert all(torch.equal(mine, all_[rank::devices]) for mine, all_ in zip(part, whole, strict=True))
        assert len(part[0]) == 4 // devices


def test_what_a_step_draws_depends_on_its_number_and_the_seed_alone(hearts):
    one, other = trainer(hearts), trainer(hearts, seed=1)
    first = one.draw(3)
    one.draw(4)
    torch.rand(7)
    assert all(torch.equal(a, b) for a, b in zip(one.draw(3), first, strict=True))
    assert not torch.equal(one.draw(4)[0], first[0])
    assert not torch.equal(other.draw(3)[0], first[0])


def test_the_rate_of_a_step_is_that_of_the_settings(hearts):
    """Adam's first step moves every weight that has a gradient by the rate; so does each while gradients are alike."""
    steps = 10
    for number in (0, 5, 8):
        one = trainer(hearts, steps=steps, rate=1e-3, name="VoxelMorph-w4")
        before = [parameter.detach().clone() for parameter in one.model.parameters()]
        one.step(number)
        moved = torch.cat([(a - b).abs().flatten() for a, b in zip(one.model.parameters(), before, strict=True)])
        expected = {0: 1e-3, 5: 1e-3, 8: 0.4e-3}[number]
        assert moved.max().item() == pytest.approx(expected, rel=1e-2)


def test_the_loss_of_a_step_is_that_of_its_pairs_before_it(hearts):
    one, again = trainer(hearts), trainer(hearts)
    I0, I1 = again.draw(2)
    assert one.step(2) == Loss(QUICK.alpha)(I0, I1, again.model(I0, I1, again.pairs.spacing))


@pytest.mark.parametrize("base", [QUICK, replace(EVERYTHING, clip=None, batch_dice=0.0)])
def test_a_step_is_the_mean_of_the_devices_parts(base, hearts):
    """The gradient of the whole batch is the mean of those of its parts, which Lightning takes; not that of batch Dice,
    whose devices must hear of each other: see `vrnet train --devices 2` in tests/app."""
    gradients = []
    for rank, devices in ((0, 1), (0, 2), (1, 2)):
        one = trainer(hearts, rank=rank, devices=devices, base=base)
        one.step(0)
        gradients.append([parameter.grad for parameter in one.model.parameters()])
    for whole, *parts in zip(*gradients, strict=True):
        torch.testing.assert_close(whole, sum(parts) / 2, rtol=1e-4, atol=1e-9)


def test_a_method_is_trained_by_its_own_loss_unless_the_settings_name_other_terms():
    siamese = parse_trainable("Siamese")
    assert loss_of(siamese, replace(QUICK, alpha=1e-4)) == Loss(1e-4, L2(), Huber())
    assert loss_of(siamese, replace(QUICK, smoothness="Bending")) == Loss(QUICK.alpha, L2(), Bending())
    for name in ("R-L1-3x2", "R-L2-3x2", "VoxelMorph", "3xRC-Net"):
        assert loss_of(parse_trainable(name), QUICK) == Loss(QUICK.alpha)
        assert loss_of(parse_trainable(name), replace(QUICK, similarity="L2")).similarity == L2()
    for wrong in ({"similarity": "L3"}, {"smoothness": "L1"}, {"smoothness": "Gaussian"}):
        with pytest.raises(BadInput, match="choose one of"):
            loss_of(siamese, replace(QUICK, **wrong))


def test_labels_of_a_step_lie_on_their_images(hearts):
    """Without augmentation images and labels are those of the data, each from the same sample."""
    I0, I1, L0, L1 = trainer(hearts, augmentation=None, batch_dice=1.0).draw(0)
    samples = hearts(2, [0, 1, 2]).samples
    for k in range(4):
        (own,) = [s for s in samples if torch.equal(s.fixed[0], I0[k]) and torch.equal(s.moving[0], I1[k])]
        assert torch.equal(own.fixed_labels[0], L0[k])
        assert torch.equal(own.moving_labels[0], L1[k])


def test_long_gradients_are_shortened_and_short_ones_stay(hearts):
    lengths, directions = {}, {}
    for clip in (None, 1e-3, 1e3):
        one = trainer(hearts, clip=clip)
        one.step(0)
        gradient = torch.cat([parameter.grad.flatten() for parameter in one.model.parameters()])
        lengths[clip], directions[clip] = gradient.norm().item(), gradient / gradient.norm()
    assert 1e-3 < lengths[None] < 1e3
    assert lengths[1e3] == lengths[None]
    assert lengths[1e-3] == pytest.approx(1e-3, rel=1e-2)
    torch.testing.assert_close(directions[1e-3], directions[None])


@pytest.mark.parametrize(
    ("told", "is_first"),
    [
        ({"LOCAL_RANK": "0", "NODE_RANK": "1"}, False),
        ({"SLURM_PROCID": "3", "LOCAL_RANK": "0"}, False),
        ({"RANK": "0", "LOCAL_RANK": "0", "SLURM_PROCID": "0"}, True),
    ],
)
def test_one_of_several_processes_is_the_first(told, is_first, monkeypatch):
    for name in ("RANK", "NODE_RANK", "LOCAL_RANK", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)
    for name, value in told.items():
        monkeypatch.setenv(name, value)
    assert is_first_process() == is_first


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_a_wish_to_stop_and_a_second_ctrl_c_is_not_waited_for(number):
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with catch_stop_signals() as stop_requested:
        assert not stop_requested()
        signal.raise_signal(number)
        assert stop_requested()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_without_lightning_training_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "lightning.fabric", None)
    with pytest.raises(BadInput, match=re.escape(f"training needs Lightning: {how_to_install('train')}")):
        launch_fabric("cpu", 1, 1, QUICK)


RECOMPUTED = [(2, "R-L1-2x2-w4"), (3, "C-L2-2x1-w4"), (2, "R-L2-2x1-Θ1-zeros-w4"), (2, "VoxelMorph-w4"),
              (2, "D-L2-2x1-c2-w4")]  # fmt: skip


@pytest.mark.parametrize(("d", "name"), RECOMPUTED)
def test_fields_and_gradients_are_those_of_the_cascade(d, name, smooth_image):
    shape = (16,) * d
    c = 1 + parse_trainable(name).channels
    I0, I1 = (
        torch.cat([smooth_image(shape, 2, seed, torch.float32) for seed in range(k, k + c)], dim=1) for k in (0, c)
    )
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
