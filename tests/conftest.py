"""Shapes and types are enforced while the tests run; each worker keeps to one thread."""

import os
import sys
from contextlib import nullcontext
from pathlib import Path

from jaxtyping import install_import_hook

install_import_hook("vrnet", "beartype.beartype")

import numpy as np  # noqa: E402
import pytest  # noqa: E402
import torch  # noqa: E402
from scipy import ndimage  # noqa: E402

torch.set_num_threads(1)

DATA = Path(os.environ.get("VRNET_DATA", Path(__file__).parents[2] / "shared" / "data"))
SHAPES = {2: (24, 20), 3: (12, 10, 9)}


@pytest.fixture(params=[2, 3], ids=["2D", "3D"])
def d(request):
    """The dimension: every theorem is tested in both."""
    return request.param


@pytest.fixture(params=["cubes", "bricks"])
def h(d, request):
    """The edges of a voxel, the shortest being 1."""
    return (1.0,) * d if request.param == "cubes" else (2.5, 1.0, 1.6)[:d]


@pytest.fixture
def random():
    """A seeded source of tensors: random(2, 1, 8, 8)."""
    generator = torch.Generator().manual_seed(0)
    return lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)


@pytest.fixture
def smooth_image():
    """A seeded smooth image in [0, 1]: smooth_image((32, 32), sigma=3, seed=0), shape (1, 1, *s)."""

    def make(shape, sigma=2.0, seed=0, dtype=torch.float64):
        noise = np.random.default_rng(seed).standard_normal(shape)
        image = ndimage.gaussian_filter(noise, sigma, mode="nearest")
        return torch.tensor((image - image.min()) / np.ptp(image), dtype=dtype)[None, None]

    return make


@pytest.fixture
def vrnet(monkeypatch, capsys):
    """Run the command line in this process: vrnet("demo", "--out", folder) gives (status, stdout, stderr)."""

    from vrnet.app import cli

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["vrnet", *map(str, words)])
        try:
            cli.main()
            status = 0
        except SystemExit as stop:
            status = stop.code or 0
        return status, *capsys.readouterr()

    return run


@pytest.fixture(scope="session")
def data_root():
    """The folder of real images, or a skip that says how to name it."""
    if not (DATA / "acdc").is_dir():
        pytest.skip(f"no real images at {DATA}: set VRNET_DATA to the folder that holds acdc/")
    return DATA


@pytest.fixture
def stop_after(monkeypatch):
    """Ctrl-C once so many rounds of runs that are trained together are done."""

    def after(rounds):
        left = iter([False] * rounds)
        caught = nullcontext(lambda: next(left, True))
        monkeypatch.setattr("vrnet.training.concurrent.catch_stop_signals", lambda: caught)

    return after
