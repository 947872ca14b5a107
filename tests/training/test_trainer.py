from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from tests.training.conftest import EVERYTHING, QUICK
from vrnet.methods.names import parse_trainable
from vrnet.training.fit import Trainer, loss_of, sum_over_processes
from vrnet.training.loss import Loss
from vrnet.training.pairs import Pairs
from vrnet.variational.data_terms import L2
from vrnet.variational.regularizers import Bending, Huber

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


@pytest.mark.parametrize("base", [QUICK, EVERYTHING])
@pytest.mark.parametrize("devices", [2, 4])
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


def test_without_augmentation_the_pairs_are_those_of_the_data(hearts):
    I0, I1 = trainer(hearts, augmentation=None).draw(0)
    samples = hearts(2, [0, 1, 2]).samples
    for a, b in zip(I0, I1, strict=True):
        assert any(torch.equal(a, one.fixed[0]) and torch.equal(b, one.moving[0]) for one in samples)


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
    whose devices must hear of each other (test_processes.py)."""
    gradients = []
    for rank, devices in ((0, 1), (0, 2), (1, 2)):
        one = trainer(hearts, rank=rank, devices=devices, base=base)
        one.step(0)
        gradients.append([parameter.grad for parameter in one.model.parameters()])
    for whole, *parts in zip(*gradients, strict=True):
        torch.testing.assert_close(whole, sum(parts) / 2, rtol=1e-4, atol=1e-9)


def test_on_several_devices_the_loss_of_a_step_is_summed_over_them_and_that_of_validation_is_not(hearts):
    """Validation is that of one process alone: it would wait for the others for ever."""
    alone, shared = trainer(hearts, base=EVERYTHING), trainer(hearts, devices=2, base=EVERYTHING)
    assert alone.step_loss == alone.loss == shared.loss
    assert shared.step_loss == replace(shared.loss, total=sum_over_processes)


def test_a_method_is_trained_by_its_own_loss_unless_the_settings_name_other_terms():
    siamese = parse_trainable("Siamese")
    assert loss_of(siamese, replace(QUICK, alpha=1e-4)) == Loss(1e-4, L2(), Huber())
    assert loss_of(siamese, replace(QUICK, smoothness="Bending")) == Loss(QUICK.alpha, L2(), Bending())
    for name in ("R-L1-3x2", "R-L2-3x2", "VoxelMorph", "3xRC-Net"):
        assert loss_of(parse_trainable(name), QUICK) == Loss(QUICK.alpha)
        assert loss_of(parse_trainable(name), replace(QUICK, similarity="L2")).similarity == L2()


@pytest.mark.parametrize("weight", ["labels_weight", "batch_dice"])
def test_labels_of_a_step_lie_on_their_images(weight, hearts):
    """Each is drawn with its image: without augmentation, from the same sample."""
    I0, I1, L0, L1 = trainer(hearts, augmentation=None, **{weight: 1.0}).draw(0)
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
