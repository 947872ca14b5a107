import numpy as np
import pytest
import torch
from scipy import ndimage

from vrnet import BadInput
from vrnet.data.prepared import PreparedSplit
from vrnet.data.sample import Sample
from vrnet.fields import warp
from vrnet.training.template import how_alike, images_of, learn_template, make_template

CPU = torch.device("cpu")


def blob(centre, shape=(32, 32), sigma=3.0):
    """A bright ball in [0, 1], with a smaller one beside it."""
    found = np.zeros(shape)
    found[tuple(centre)] = 1
    found[(centre[0] + 8, *centre[1:])] = 0.5
    found = ndimage.gaussian_filter(found, sigma)
    return torch.tensor(found / found.max(), dtype=torch.float32)[None, None]


def split_of(images, spacing=None, names=None):
    """Subjects with these images, as a data set has them."""
    d = images[0].dim() - 2
    samples = [Sample(f"{k}", image, image, spacing or (1.0,) * d) for k, image in enumerate(images)]
    return PreparedSplit("blobs", "train", tuple(samples), {}, True)


def test_of_images_moved_apart_the_template_lies_between_them_and_is_sharp():
    """The mean of one image moved by four displacements, whose mean is none, is that image where it was."""
    middle, moves = blob((12, 16)), [(3, 0), (-3, 0), (0, 3), (0, -3)]
    images = torch.cat([middle.roll(move, (2, 3)) for move in moves])
    found = learn_template(images, rounds=3)
    before = (images.mean(0) - middle[0]).abs().max()
    after = (found.image[0] - middle[0]).abs().max()
    assert before > 0.15
    assert after < before / 4


def test_the_mean_displacement_to_the_images_is_none():
    images = torch.cat([blob((12, 16)).roll(move, (2, 3)) for move in [(4, 1), (1, -2), (2, 3)]])
    found = learn_template(images, rounds=3)
    u = found.fields_to(images)
    bright = found.image[0, 0] > 0.3
    assert u.mean(0)[:, bright].mean(1).abs().max() < 0.3
    mean = warp(images, u).mean(0)
    assert (mean - found.image[0]).abs().max() < 0.1


def test_what_differs_between_images_is_heeded_less(random):
    alike = blob((12, 16)).expand(6, -1, -1, -1).clone()
    alike[:, :, :, 20:] += 0.3 * random(6, 1, 32, 12).float()
    w = how_alike(alike, alike.mean(0, keepdim=True), None)
    assert w.mean() == pytest.approx(1, abs=1e-5)
    assert w[..., :16].mean() > 3 * w[..., 24:].mean()


def test_batches_change_nothing(monkeypatch):
    images = torch.cat([blob((12, 16)).roll(move, (2, 3)) for move in [(2, 1), (1, -2), (-2, 0)]])
    whole = learn_template(images, rounds=1)
    monkeypatch.setattr("vrnet.training.template.BATCH", 2)
    parts = learn_template(images, rounds=1)
    torch.testing.assert_close(parts.image, whole.image)
    torch.testing.assert_close(parts.weight, whole.weight)


def test_progress_runs_to_the_end():
    told = []
    learn_template(torch.cat([blob((12, 16))] * 3), rounds=2, progress=told.append)
    assert told == sorted(told)
    assert told[-1] == 1


def test_the_card_says_what_the_template_is_of():
    _, card = make_template(split_of([blob((12, 16)) for _ in range(3)], (1.5, 1.5)), 1, CPU, lambda part: None)
    assert (card.method, card.dimension, card.spacing_mm) == ("Template-32x32", 2, (1.5, 1.5))
    assert card.trained_on == "blobs, train: 3 subjects, 1 round"
    assert (card.labels_in_training, card.flips_in_training, card.normalisation) == (False, False, "each")


def test_images_that_make_no_template_are_refused():
    one = blob((12, 16))
    with pytest.raises(BadInput, match="2 images or more: train has 1"):
        images_of(split_of([one]))
    with pytest.raises(BadInput, match="0, in train of blobs, has 2 images, as slices are"):
        images_of(split_of([torch.cat([one, one])] * 3))
    with pytest.raises(BadInput, match="differ in shape"):
        images_of(split_of([one, one, blob((12, 16), (32, 30))]))


def test_more_images_than_memory_holds_are_refused(monkeypatch):
    monkeypatch.setattr("vrnet.training.template.available_memory", lambda: 1000.0)
    with pytest.raises(BadInput, match="choose fewer `subjects`"):
        images_of(split_of([blob((12, 16))] * 3))
