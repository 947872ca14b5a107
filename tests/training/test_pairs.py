from dataclasses import replace

import pytest
import torch

from vrnet.errors import BadInput
from vrnet.training.pairs import Pairs


def test_within_subjects_each_fixed_image_goes_with_its_moving_one(d, hearts):
    prepared = hearts(d, [0, 1, 2])
    pairs = Pairs.from_split(prepared)
    I0, I1 = pairs.batch(torch.tensor([2, 0]))
    assert torch.equal(I0[0], prepared.samples[2].fixed[0])
    assert torch.equal(I1[0], prepared.samples[2].moving[0])
    assert torch.equal(I1[1], prepared.samples[0].moving[0])
    assert len(pairs.index) == 3
    assert pairs.shape == tuple(prepared.samples[0].fixed.shape[2:])


def test_an_image_that_many_go_with_is_held_once(hearts):
    """As all frames of a cine go with its first."""
    one, other = hearts(2, [0, 1], labels=False).samples
    cine = replace(one, fixed=one.fixed.expand(3, -1, -1, -1), moving=torch.cat([other.fixed, one.moving, one.fixed]))
    prepared = replace(hearts(2, [0]), samples=(cine, other))
    pairs = Pairs.from_split(prepared)
    assert len(pairs.images) == 2 + 4
    I0, I1 = pairs.batch(torch.arange(4))
    assert torch.equal(I0, torch.cat([cine.fixed, other.fixed]))
    assert torch.equal(I1, torch.cat([cine.moving, other.moving]))


def test_between_subjects_every_image_goes_with_every_other(hearts):
    prepared = hearts(2, [0, 1, 2, 3], pairs_across_subjects=True)
    pairs = Pairs.from_split(prepared)
    assert len(pairs.images) == 4
    assert sorted(map(tuple, pairs.index.tolist())) == [(i, j) for i in range(4) for j in range(4) if i != j]


@pytest.mark.parametrize("pairs_across_subjects", [False, True])
def test_labels_go_with_their_images(d, pairs_across_subjects, hearts):
    prepared = hearts(d, [0, 1, 2], pairs_across_subjects=pairs_across_subjects)
    pairs, chosen = Pairs.from_split(prepared, with_labels=True), torch.tensor([2, 0, 1])
    I0, I1, L0, L1 = pairs.batch(chosen, with_labels=True)
    samples = prepared.samples
    known = [(s.fixed, s.fixed_labels) for s in samples] + [(s.moving, s.moving_labels) for s in samples]
    for image, labels in ((I0, L0), (I1, L1)):
        for k in range(3):
            (own,) = [L[0] for I, L in known if torch.equal(I[0], image[k])]
            assert torch.equal(labels[k], own)
    assert pairs.structures == (3, 2, 1)
    assert Pairs.from_split(prepared).labels is None


def test_one_image_with_two_maps_of_labels_is_two(hearts):
    one = hearts(2, [0]).samples[0]
    other = replace(one, fixed_labels=torch.zeros_like(one.fixed_labels))
    split = replace(hearts(2, [0]), samples=(one, other, one))
    assert len(Pairs.from_split(split).images) == 1 + 3
    pairs = Pairs.from_split(split, with_labels=True)
    assert len(pairs.images) == len(pairs.labels) == 2 + 3
    _, _, L0, _ = pairs.batch(torch.arange(3), with_labels=True)
    assert torch.equal(L0, torch.cat([one.fixed_labels, other.fixed_labels, one.fixed_labels]))


def test_subjects_without_labels_are_refused_where_these_are_to_be_trained_on(hearts):
    split = replace(hearts(2, [0]), samples=(*hearts(2, [0]).samples, *hearts(2, [4], labels=False).samples))
    with pytest.raises(BadInput, match="patient4, in train of phantom, has no labels to train on: "):
        Pairs.from_split(split, with_labels=True)


def test_images_of_different_grids_are_refused(hearts):
    mixed = hearts(2, [0])
    other = hearts(3, [1])
    with pytest.raises(BadInput, match="differ in shape"):
        Pairs.from_split(type(mixed)("phantom", "train", (*mixed.samples, *other.samples), {}, False))


def test_across_subjects_one_image_makes_no_pair(hearts):
    with pytest.raises(BadInput, match="one image, and two are needed: add subjects"):
        Pairs.from_split(hearts(2, [0], pairs_across_subjects=True))
