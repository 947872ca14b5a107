from types import SimpleNamespace

import numpy as np
import pytest
import torch
from benchmarks.template import fields_to, how_alike, learn_template, make_template
from scipy import ndimage

from vrnet import BadInput
from vrnet.data.prepared import PreparedSplit
from vrnet.data.protocols import Sample
from vrnet.fields.calculus import warp

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


@pytest.mark.release
def test_of_images_moved_apart_the_template_lies_between_them_and_is_sharp():
    """The mean of one image moved by four displacements, whose mean is none, is that image where it was."""
    middle, moves = blob((12, 16)), [(3, 0), (-3, 0), (0, 3), (0, -3)]
    images = torch.cat([middle.roll(move, (2, 3)) for move in moves])
    found = learn_template(images, rounds=3)
    before = (images.mean(0) - middle[0]).abs().max()
    after = (found.image[0] - middle[0]).abs().max()
    assert before > 0.15
    assert after < before / 4


@pytest.mark.release
def test_the_mean_displacement_to_the_images_is_none():
    images = torch.cat([blob((12, 16)).roll(move, (2, 3)) for move in [(4, 1), (1, -2), (2, 3)]])
    found = learn_template(images, rounds=3)
    u = fields_to(found, images)
    bright = found.image[0, 0] > 0.3
    assert u.mean(0)[:, bright].mean(1).abs().max() < 0.3
    mean = warp(images, u).mean(0)
    assert (mean - found.image[0]).abs().max() < 0.1


class Finds:
    """A solver that finds the same fields whatever it is shown, and keeps the spacings it was told."""

    def __init__(self, fields):
        self.fields, self.spacings = fields, []

    def __call__(self, d, device):
        def solve(I0, I1, spacing=None, masks=None):
            self.spacings.append(spacing)
            return self.fields

        return solve


def test_whatever_fields_are_found_their_mean_moves_nothing(d, monkeypatch):
    """Of images that are all the ramp x_i, the template is mean_k (x + u_k(x))_i: the same ramp, if the mean of u_k is
    0. One that took the fields as they are, or only took off their mean, would be moved and bent."""
    shape = (24, 22, 20)[:d]
    axes = torch.meshgrid(*map(torch.arange, shape), indexing="ij")
    wave = [torch.sin(2 * np.pi * x / n) for x, n in zip(axes, shape, strict=True)]
    # each has a mean of about 1 voxel and slopes up to 0.4, and none goes far from the mean
    fields = torch.stack([torch.stack([0.6 + k * 0.5 + (1 + 0.2 * k) * w for w in wave[::-1]]) for k in range(3)])
    fields[:, 0] += torch.sin(2 * np.pi * axes[0] / shape[0])
    solver = Finds(fields)
    monkeypatch.setattr("benchmarks.template.make_solver", solver)
    inside = (slice(6, -6),) * d
    for ramp in axes:
        found = learn_template(ramp.float().expand(3, 1, *shape).contiguous(), (2.0,) * d, rounds=1)
        torch.testing.assert_close(found.image[0, 0][inside], ramp.float()[inside], atol=5e-3, rtol=0)
    assert set(solver.spacings) == {(2.0,) * d}


def test_the_weight_is_the_inverse_square_of_the_mean_square_between_bounds(monkeypatch):
    """σ² is 1 in half of the columns, then 1.5, 100 and 0; the median of w is 1, before its mean is made 1."""
    edges = []
    as_they_are = SimpleNamespace(channels=lambda I, h: edges.append(h) or I)
    monkeypatch.setattr("benchmarks.template.DETAIL", as_they_are)
    square = torch.tensor([1.0] * 32 + [1.5] * 12 + [100.0] * 12 + [0.0] * 12).expand(1, 1, 8, -1)
    w = how_alike(torch.cat([square.sqrt(), -square.sqrt()]), torch.zeros_like(square), (3.0, 1.5))
    assert set(edges) == {(2.0, 1.0)}
    expected = torch.tensor([1, 1 / 1.5**2, 0.2, 3.0])
    places = [16, 38, 50, 62]
    torch.testing.assert_close(w[0, 0, 4, places] / w[0, 0, 4, 16], expected, rtol=1e-3, atol=0)
    assert w.mean() == pytest.approx(1, abs=1e-5)


@pytest.mark.release
def test_batches_change_nothing(random, monkeypatch):
    images = torch.cat([blob((12, 16)).roll(move, (2, 3)) for move in [(2, 1), (1, -2), (-2, 0)]])
    images += 0.05 * random(3, 1, 32, 32).float()
    whole = learn_template(images, rounds=1)
    monkeypatch.setattr("benchmarks.template.BATCH", 2)
    parts = learn_template(images, rounds=1)
    torch.testing.assert_close(parts.image, whole.image)
    torch.testing.assert_close(parts.weight, whole.weight)
    assert whole.weight.std() > 0.1  # it is not heeded alike everywhere


def test_the_card_says_what_the_template_is_of():
    _, card = make_template(split_of([blob((12, k)) for k in (14, 16, 18)], (1.5, 1.5)), 1, CPU, lambda part: None)
    assert (card.method, card.dimension, card.spacing_mm) == ("Template-32x32", 2, (1.5, 1.5))
    assert card.trained_on == "blobs, train: 3 subjects, 1 round"
    assert (card.labels_in_training, card.flips_in_training, card.normalisation) == (False, False, "each")


def test_images_that_make_no_template_are_refused():
    one, other = blob((12, 16)), blob((10, 16))
    refused = {
        "train of blobs has one image": [one, one],
        "blobs has 2 images of 1 subjects, as slices are": [torch.cat([one, other])],
        "differ in shape": [one, blob((12, 16), (32, 30))],
    }
    for words, images in refused.items():
        with pytest.raises(BadInput, match=words):
            make_template(split_of(images), 1, CPU, lambda part: None)


def test_an_image_that_comes_again_counts_once():
    one, other = blob((12, 16)), blob((10, 16))
    twice, once = (
        make_template(split_of(images), 1, CPU, lambda part: None)[0]
        for images in ([one, other, one.clone()], [one, other])
    )
    assert torch.equal(twice.image, once.image)


def test_a_background_that_all_images_share_does_not_hide_where_they_differ(random):
    """More than half of the voxels are the same in all; w tells apart those that are not."""
    images = torch.zeros(6, 1, 32, 32)
    images[:, :, :, 20:] = blob((12, 16))[..., 10:22]
    images[:, :, 16:, 20:] += 0.3 * random(6, 1, 16, 12).float()
    w = how_alike(images, images.mean(0, keepdim=True), None)[0, 0]
    assert w[2:12, 24:].mean() > 3 * w[20:30, 24:].mean()
    assert torch.equal(how_alike(images[:1], images[:1], None), torch.ones(1, 1, 32, 32))
