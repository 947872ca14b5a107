import numpy as np
import pytest
import torch

from vrnet import Grid, Image
from vrnet.data.centred import centred
from vrnet.data.volumes import volume_pair

OWN = Grid.plain((20, 16, 6), (1.5, 1.5, 9.0))


@pytest.fixture
def pair():
    bright = np.random.default_rng(0).random(OWN.shape) * 100
    return [Image(bright, OWN), Image(0.5 * bright, OWN)]


def test_padding_repeats_the_border_of_images_and_is_no_label(pair):
    mask = Image(np.full(OWN.shape, 2, np.uint8), OWN)
    sample = volume_pair("x", pair, [mask, mask], centred(OWN, (20, 16, 10), OWN.spacing, OWN.axes))
    inner = sample.fixed[0, 0, ..., 2:8]
    assert torch.allclose(sample.fixed[0, 0, ..., :2], inner[..., :1].expand(-1, -1, 2), atol=1e-5)
    assert torch.allclose(sample.fixed[0, 0, ..., 8:], inner[..., -1:].expand(-1, -1, 2), atol=1e-5)
    assert sample.fixed_labels[0, 0, ..., 2:8].unique().tolist() == [2]
    assert sample.fixed_labels[0, 0, ..., [0, 1, 8, 9]].unique().tolist() == [0]


def test_both_images_share_one_scaling_whatever_is_padded(pair):
    """It ends at the percentiles of what the files hold, so that twice as bright stays twice as bright."""
    values = np.stack([image.array for image in pair])
    low, high = np.percentile(values, (1, 99))
    for size in (6, 30):
        sample = volume_pair("x", pair, [], centred(OWN, (20, 16, size), OWN.spacing, OWN.axes))
        seen = sample.moving[0, 0, ..., size // 2 - 3 : size // 2 + 3].numpy()
        np.testing.assert_allclose(seen, np.clip((pair[1].array - low) / (high - low), 0, 1), atol=1e-5)
    assert sample.fixed_labels is None
