from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from scipy import ndimage

from tests.conftest import SHAPES
from vrnet.errors import BadInput
from vrnet.fields.calculus import compose, warp
from vrnet.methods.names import parse_trainable
from vrnet.training.loss import (
    Loss,
    WeightedSum,
    inverse_consistency,
    label_overlaps,
    loss_of,
    one_minus_dice,
    parse_sum,
)
from vrnet.training.settings import Training
from vrnet.variational.data_terms import DATA_TERMS, L1, L2, LNCC
from vrnet.variational.regularizers import REGULARIZERS, Bending, Diffusion, Huber


def soft_dice_loss(overlaps):
    """L: the mean over the pairs."""
    return one_minus_dice(overlaps).mean()


def batch_dice_loss(overlaps):
    """B: all pairs as one."""
    return one_minus_dice(overlaps.sum(1))


def test_the_loss_is_the_paper_s(d, random):
    """mean |I1(x + u) − I0| + α · the mean over axes of the mean squared forward difference."""
    I0, I1, u = (random(2, n, *SHAPES[d]).float() for n in (1, 1, d))
    differences = [(u.narrow(i, 1, u.shape[i] - 1) - u.narrow(i, 0, u.shape[i] - 1)) ** 2 for i in range(2, 2 + d)]
    expected = (warp(I1, u) - I0).abs().mean() + 0.3 * sum(part.mean() for part in differences) / d
    torch.testing.assert_close(Loss(0.3)(I0, I1, u), expected)


def test_the_siamese_loss_is_squares_and_huber(d, random):
    I0, I1, u = (random(2, n, *SHAPES[d]).float() for n in (1, 1, d))
    siamese = parse_trainable("Siamese")
    expected = (warp(I1, u) - I0).square().mean() + 0.02 * Huber().loss(u)
    torch.testing.assert_close(loss_of(siamese, Training(alpha=siamese.loss.alpha))(I0, I1, u), expected)


def test_half_precision_fields_are_measured_in_single(random):
    I0, I1, u = (random(1, n, 24, 20).float() for n in (1, 1, 2))
    loss = Loss(0.1)(I0, I1, (30 * u).bfloat16())
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, Loss(0.1)(I0, I1, (30 * u).bfloat16().float()))


SMOOTHNESS = [(2, name) for name in ("TV", "CentralDiffusion", "Huber", "Folding")] + [(3, "Diffusion"), (3, "Bending")]


@pytest.mark.parametrize(("d", "smoothness"), SMOOTHNESS)
def test_every_penalty_has_a_gradient_where_nothing_moves(d, smoothness, random):
    """And smooths: a step against its gradient lowers it."""
    loss = loss_of(parse_trainable("VoxelMorph"), Training(smoothness=smoothness)).smoothness.loss
    still = torch.zeros(1, d, *SHAPES[d], requires_grad=True)
    loss(still).backward()
    assert still.grad.isfinite().all()
    u = random(1, d, *SHAPES[d]).requires_grad_()
    before = loss(u)
    before.backward()
    assert loss(u.detach() - 1e-2 * u.grad) < before


def test_terms_are_added_and_weighed(d, random):
    I0, I1 = (random(2, 1, *SHAPES[d]).float() for _ in range(2))
    total = parse_sum("0.5*L1+2e-1*LNCC(radii=(2,3),epsilon=0.1)+L2", DATA_TERMS)
    terms = (0.5, L1()), (0.2, LNCC((2.0, 3.0), 0.1)), (1.0, L2())
    assert total == WeightedSum(terms)
    torch.testing.assert_close(total.loss(I1, I0), sum(weight * term.loss(I1, I0) for weight, term in terms))
    assert parse_sum(" L1 ", DATA_TERMS) == parse_sum("1*L1", DATA_TERMS) == L1()
    assert parse_sum("0.1*Diffusion + 0.5*Bending", REGULARIZERS).parts == ((0.1, Diffusion()), (0.5, Bending()))


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("0.5*L3", 'there is no term "L3"'),
        ("half*L1", '"half" in "half\\*L1" is no weight'),
        ("nan*L1", "must be a number above 0"),
        ("LNCC(radius=4)", 'no parameter "radius"'),
    ],
)
def test_a_sum_that_is_not_one_is_refused(text, answer):
    with pytest.raises(BadInput, match=answer):
        parse_sum(text, DATA_TERMS)


def test_soft_dice_is_that_of_numpy(d, random):
    """Every pair by itself: labels of neither image do not count, those of one image alone do, 0 never does."""
    generator, shape = np.random.default_rng(0), SHAPES[d]
    L0, L1 = (generator.choice([0, 1, 2, 7], (3, *shape)).astype(np.uint8) for _ in range(2))
    L0[0][L0[0] == 7], L1[0][L1[0] == 7], L1[1][L1[1] == 2] = 0, 0, 1
    L0[2], L1[2] = 0, 0
    u = 2 * random(3, d, *shape).float()
    places = np.stack(np.meshgrid(*map(np.arange, shape), indexing="ij")) + u.double().numpy()
    found = []
    for a, b, at in zip(L0, L1, places, strict=True):
        dice = []
        for label in {*np.unique(a).tolist(), *np.unique(b).tolist()} - {0}:
            p, q = (a == label).astype(float), ndimage.map_coordinates((b == label) * 1.0, at, order=1, mode="nearest")
            dice.append(2 * (p * q).sum() / (p.sum() + q.sum()))
        found.append(1 - np.mean(dice) if dice else 0.0)
    tensors = (torch.from_numpy(L)[:, None] for L in (L0, L1))
    assert soft_dice_loss(label_overlaps(*tensors, u, (1, 2, 7))).item() == pytest.approx(np.mean(found), rel=1e-4)


def test_batch_dice_is_that_of_numpy(d, random):
    """Sums over all pairs and voxels, before they are divided; a label that no image has, here 9, does not count."""
    generator, shape = np.random.default_rng(0), SHAPES[d]
    L0, L1 = (generator.choice([0, 1, 2, 7], (3, *shape), p=[0.5, 0.3, 0.15, 0.05]).astype(np.uint8) for _ in range(2))
    L0[0][L0[0] == 7], L1[:][L1 == 7] = 0, 0
    u = 2 * random(3, d, *shape).float()
    places = np.stack(np.meshgrid(*map(np.arange, shape), indexing="ij")) + u.double().numpy()
    at = partial(ndimage.map_coordinates, order=1, mode="nearest")
    dice = []
    for label in (1, 2, 7):
        p, q = L0 == label, np.stack([at((one == label) * 1.0, to) for one, to in zip(L1, places, strict=True)])
        dice.append(2 * (p * q).sum() / (p.sum() + q.sum()))
    assert dice[0] > dice[1] > dice[2] == 0
    tensors = [torch.from_numpy(L)[:, None] for L in (L0, L1)]
    for labels in ((1, 2, 7), (1, 2, 7, 9)):
        found = batch_dice_loss(label_overlaps(*tensors, u, labels))
        assert found.item() == pytest.approx(1 - np.mean(dice), rel=1e-4)
    assert batch_dice_loss(label_overlaps(*tensors, u, (9,))) == 0


def test_in_batch_dice_a_structure_counts_by_its_size():
    """A pair whose structure has a twentieth of the voxels of another's is half of soft Dice, and hardly any here."""
    L0, L1 = (torch.zeros(2, 1, 24, 24, dtype=torch.uint8) for _ in range(2))
    L0[0, 0, 2:12, 2:12], L1[0, 0, 2:12, 2:12] = 1, 1
    L0[1, 0, 2:3, 2:7], L1[1, 0, 20:21, 2:7] = 1, 1
    overlaps = label_overlaps(L0, L1, torch.zeros(2, 2, 24, 24), (1,))
    assert soft_dice_loss(overlaps) == 0.5
    assert batch_dice_loss(overlaps).item() == pytest.approx(1 - 200 / 210)


def test_a_label_that_is_moved_out_of_the_image_counts_as_missed():
    """Else moving everything away would be the best that can be done where fixed lacks a label."""
    L0, L1 = torch.zeros(1, 1, 8, 8, dtype=torch.uint8), torch.zeros(1, 1, 8, 8, dtype=torch.uint8)
    L1[..., 4:6, 4:6] = 1
    away = torch.full((1, 2, 8, 8), 100.0)
    found = label_overlaps(L0, L1, away, (1,))
    assert found[1].sum() == 0
    assert soft_dice_loss(found) == batch_dice_loss(found) == 1


def test_labels_that_meet_cost_nothing_and_pull_together_where_they_do_not():
    L0 = torch.zeros(1, 1, 16, 16, dtype=torch.uint8)
    L1 = L0.clone()
    L0[..., 4:9, 4:9], L1[..., 6:11, 4:9] = 3, 3
    u = torch.zeros(1, 2, 16, 16)
    u[:, 0] = 2.0
    assert soft_dice_loss(label_overlaps(L0, L1, u, (3,))) == 0
    still = torch.zeros(1, 2, 16, 16, requires_grad=True)
    soft_dice_loss(label_overlaps(L0, L1, still, (3,))).backward()
    assert still.grad[:, 0].sum() < 0  # the way to lower it is along the first axis, forward
    assert (still.grad[:, 0] <= 0).all()


def permutation(shape):
    """A field that sends the voxels of a grid to each other, each to another, and its exact inverse."""
    order = torch.randperm(int(np.prod(shape)))
    voxels = torch.stack(torch.meshgrid(*map(torch.arange, shape), indexing="ij")).flatten(1).float()
    return tuple((voxels[:, to] - voxels).view(1, len(shape), *shape) for to in (order, order.argsort()))


def test_fields_that_undo_each_other_are_consistent(d):
    u, inverse = permutation(SHAPES[d])
    assert u.abs().max() > 3
    assert inverse_consistency(torch.cat([u, inverse])) == 0
    assert inverse_consistency(torch.cat([u, u])) > 1


def test_inconsistency_is_the_roughness_of_what_is_left_after_both(d, random):
    a, b, c, e = (random(1, d, *SHAPES[d]).float() for _ in range(4))
    left = [Diffusion().loss(compose(*two)) for two in ((a, c), (c, a), (b, e), (e, b))]
    torch.testing.assert_close(inverse_consistency(torch.cat([a, b, c, e])), torch.stack(left).mean())


def test_the_loss_is_the_sum_of_its_parts_and_the_mean_of_both_directions(d, random):
    I0, I1 = (random(2, 1, *SHAPES[d]).float() for _ in range(2))
    L0, L1 = (torch.randint(3, (2, 1, *SHAPES[d]), dtype=torch.uint8) for _ in range(2))
    forth, back = (random(2, d, *SHAPES[d]).float() for _ in range(2))
    whole = Loss(0.3, L2(), Bending(), 0.2, 0.7, 0.4, (1, 2))
    J0, J1, *labels = whole.arrange(I0, I1, L0, L1)
    assert torch.equal(J0, torch.cat([I0, I1]))
    assert torch.equal(labels[1], torch.cat([L1, L0]))
    part = Loss(0.3, L2(), Bending(), labels_weight=0.7, labels=(1, 2))
    both = (part(I0, I1, forth, L0, L1) + part(I1, I0, back, L1, L0)) / 2
    u = torch.cat([forth, back])
    as_one = batch_dice_loss(label_overlaps(*labels, u, (1, 2)))
    torch.testing.assert_close(whole(J0, J1, u, *labels), both + 0.2 * inverse_consistency(u) + 0.4 * as_one)
    alone = replace(part, labels_weight=0.0, batch_dice=0.4)(J0, J1, u, *labels)
    torch.testing.assert_close(alone, replace(part, labels_weight=0.0)(J0, J1, u, *labels) + 0.4 * as_one)
    assert part.arrange(I0, I1) == (I0, I1)
