import pytest
import torch

from vrnet.data.prepared import PreparedSplit
from vrnet.data.sample import Sample
from vrnet.phantom import phantom

SHAPES = {2: ((48, 48), 5.0), 3: ((16, 16, 16), 9.0)}


@pytest.fixture(scope="session")
def hearts():
    """Phantoms of one split, small: hearts(d, seeds, labels=True)."""

    def make(d, seeds, labels=True, pairs_across_subjects=False):
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
        return PreparedSplit("phantom", "train", samples, {"LV": 3, "Myo": 2, "RV": 1}, pairs_across_subjects)

    return make


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)
