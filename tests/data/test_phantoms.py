import pytest
import torch

from vrnet import BadInput
from vrnet.data.phantoms import Phantoms, phantoms3d
from vrnet.fields.calculus import warp_labels
from vrnet.phantom import phantom


def test_a_subject_is_the_phantom_of_its_seed():
    data = Phantoms()
    assert data.subjects("val") == [f"phantom-{seed}" for seed in range(1000, 1010)]
    sample, made = data.prepare("phantom-1003", "evaluation"), phantom(1003)
    for name in ("fixed", "moving", "fixed_labels", "moving_labels", "field"):
        assert torch.equal(getattr(sample, name), getattr(made, name))
    assert sample.spacing == (1.8, 1.8)
    assert data.sources("phantom-1003", "evaluation") == []


def test_the_field_brings_the_moving_labels_onto_the_fixed(d):
    data = Phantoms(shape=(96,) * d, spacing=2.4)
    sample = data.prepare("phantom-0001", "evaluation")
    inside = sample.fixed_labels > 0
    warped = warp_labels(sample.moving_labels, sample.field)
    assert (warped == sample.fixed_labels)[inside].float().mean() > 0.9


@pytest.mark.parametrize("data", [Phantoms(), phantoms3d()])
def test_no_patient_is_in_two_splits(data):
    splits = [data.subjects(split) for split in ("train", "val", "test")]
    assert [len(split) for split in splits] == list(data.counts.values())
    assert len({name for split in splits for name in split}) == sum(data.counts.values())
    with pytest.raises(BadInput, match="choose one of train, val, test"):
        data.subjects("tset")
