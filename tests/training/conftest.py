import pytest
import torch

from vrnet.data.phantom import phantom
from vrnet.data.prepared import Prepared
from vrnet.data.sample import Sample

SHAPES = {2: ((48, 48), 5.0), 3: ((16, 16, 16), 9.0)}


@pytest.fixture(scope="session")
def hearts():
    """Phantoms of one split, small: hearts(d, seeds, labels=True)."""

    def make(d, seeds, labels=True, between=False):
        shape, spacing = SHAPES[d]
        found = [phantom(seed, shape, spacing) for seed in seeds]
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
        return Prepared("phantom", "train", samples, {"LV": 3, "Myo": 2, "RV": 1}, between)

    return make


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)
