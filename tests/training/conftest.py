"""Small splits of phantoms, short trainings, and ways to stop them."""

from contextlib import nullcontext
from dataclasses import replace
from functools import cache

import pytest
import torch
from scipy import ndimage
from torch import nn
from torch.optim import Adam

from tests.phantoms import phantom
from vrnet.data.prepared import PreparedSplit
from vrnet.data.protocols import Sample
from vrnet.training.settings import Augmentation, Training

QUICK = Training(steps=6, batch=2, rate=1e-3, validate_every=3, augmentation=Augmentation(tilt=5.0))
EVERYTHING = replace(
    QUICK,
    warm_up=3,
    clip=0.5,
    similarity="0.5*L1+0.05*LNCC(radii=4)",
    smoothness="0.1*Diffusion+Bending",
    consistency=0.1,
    labels_weight=1.0,
    batch_dice=0.5,
    augmentation=Augmentation(tilt=5.0, swap=0.3, contrast=0.2, brightness=0.1, noise=0.05, elastic=2.0),
)
"""All that a training can have."""
NAMES = {2: "C-L2-1x1-w4", 3: "R-L1-1x1-w2"}
"""A small network of each dimension."""
small_heart = cache(phantom)
SHAPES = {2: ((48, 48), 5.0), 3: ((16, 16, 16), 9.0)}


@pytest.fixture(scope="session")
def hearts():
    """Phantoms of one split, small: hearts(d, seeds, labels=True)."""

    def make(d, seeds, labels=True, pairs_across_subjects=False):
        shape, spacing = SHAPES[d]
        found = [small_heart(seed, shape, spacing) for seed in seeds]
        samples = tuple(
            Sample(
                f"patient{seed}",
                p.fixed,
                p.moving,
                p.spacing,
                p.fixed_labels if labels else None,
                p.moving_labels if labels else None,
            )
            for seed, p in zip(seeds, found, strict=True)
        )
        return PreparedSplit("phantom", "train", samples, {"LV": 3, "Myo": 2, "RV": 1}, pairs_across_subjects)

    return make


@pytest.fixture
def stop_at(monkeypatch):
    """A watch that asks for a stop, as Ctrl-C does, once a step is done: watch=stop_at(4)."""
    asked = []
    caught = nullcontext(lambda: bool(asked and asked.pop()))
    monkeypatch.setattr("vrnet.training.fit.catch_stop_signals", lambda: caught)
    return lambda step: lambda status: asked.append(step) if status.step == step else None


@pytest.fixture
def eager(monkeypatch):
    """Whoever watches hears of every step."""
    monkeypatch.setattr("vrnet.training.fit.REPORT_EVERY_SECONDS", -1.0)


@pytest.fixture
def turned(d, smooth_image):
    """An image, and the same turned by 25 degrees: too far for one data step."""
    shape, sigma = {2: ((32, 32), 3.0), 3: ((16, 16, 16), 2.0)}[d]
    fixed = smooth_image(shape, sigma, dtype=torch.float32)
    moving = ndimage.rotate(fixed[0, 0].numpy(), 25, reshape=False, order=1, mode="nearest")
    sample = Sample("texture", fixed, torch.from_numpy(moving)[None, None], (1.0,) * d)
    return PreparedSplit("textures", "train", (sample,), {}, False)


@pytest.fixture
def convolutions():
    """A small model and its optimiser, some steps into their training: convolutions(steps=3)."""

    def make(steps=3):
        model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2))
        optimizer = Adam(model.parameters(), lr=torch.tensor(0.1))
        for _ in range(steps):
            optimizer.zero_grad()
            model(torch.rand(2, 1, 6, 6)).square().mean().backward()
            optimizer.step()
        return model, optimizer

    return make
