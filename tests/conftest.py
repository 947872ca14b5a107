"""Shapes and types are enforced while the tests run; each worker keeps to one thread.

What takes seconds to import is imported by the workers alone: they start once the first process has read this file."""

import gc
import signal
import sys
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from shutil import copytree

import numpy as np
import pytest

from tests import type_checks

sys.dont_write_bytecode = False  # what is compiled for the checks, and for asserts, is kept: else 10 s a worker

type_checks.install()

pytest_plugins = ["tests.skips"]
signal.signal(signal.SIGINT, signal.default_int_handler)  # a script's background job is started without it

SHAPES = {2: (24, 20), 3: (12, 10, 9)}
ONE_WORKER = ("tests/paper/test_request.py", "tests/methods/test_external.py")
"""Files whose tests share what takes long to make: networks trained for several tables, and elastix, once loaded."""
OF_TOOLS = "[FFD(", "[SyN(", "_ants"
"""What tests of other files have in their names that load elastix or ANTs, which takes seconds too."""
MADE_ONCE = "@cache", 'scope="module"'
"""What a file has in it whose tests share something: two workers would make it twice."""


@cache
def is_shared(file):
    """Whether the tests of a file share something."""
    text = (Path(__file__).parents[1] / file).read_text()
    return any(word in text for word in MADE_ONCE)


def pytest_xdist_make_scheduler(config, log):
    """The tests of ONE_WORKER and OF_TOOLS go to one worker, and those of each file that share something to one.

    Any other test goes wherever there is room, at the end, since xdist begins with what has the most tests."""
    from xdist.scheduler import LoadScopeScheduling

    class ShareWork(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            file = nodeid.split("::")[0]
            if nodeid.startswith(ONE_WORKER) or any(word in nodeid for word in OF_TOOLS):
                return "one worker"
            return file if is_shared(file) else nodeid

    return ShareWork(config, log)


def pytest_collection_finish():
    """In each worker: one thread, and what is loaded by now stays, so that Python need not look through it for garbage
    again and again."""
    import torch

    from vrnet.devices import set_threads

    torch.set_num_threads(1)
    set_threads(1)  # for the libraries below PyTorch
    gc.collect()
    gc.freeze()


@pytest.fixture(params=[2, 3], ids=["2D", "3D"])
def d(request):
    """The dimension: every theorem is tested in both."""
    return request.param


@pytest.fixture
def h(d):
    """The edges of a voxel relative to the shortest: unequal ones, of which equal ones are a special case."""
    return (2.5, 1.0, 1.6)[:d]


@pytest.fixture(autouse=True)
def begin_anew():
    """No test depends on those before it: random numbers, and the calls that are checked, begin anew."""
    import torch

    torch.manual_seed(0)
    np.random.seed(0)
    type_checks.begin()


IN_FULL = "tests/verdict/test_placement.py", "tests/verdict/test_rules.py"
"""Tests of how images lie, and of the limits of the verdict."""


@pytest.fixture(autouse=True)
def judge_coarsely(request, monkeypatch):
    """Whether an image lies turned or mirrored is tried on fewer voxels: else this takes most of the time of a verdict.

    But not by tests IN_FULL, nor before a release."""
    if not request.node.nodeid.startswith(IN_FULL) and request.node.get_closest_marker("release") is None:
        monkeypatch.setattr("vrnet.verdict.placement.MAX_COARSE_VOXELS", 1_000)


@pytest.fixture
def as_users_run():
    """Without any check of shapes and types.

    For tests of whole registrations and runs, whose parts are tested with the checks elsewhere."""
    from jaxtyping import config

    config.update("jaxtyping_disable", True)
    yield
    config.update("jaxtyping_disable", False)


@pytest.fixture
def random():
    """A seeded source of tensors: random(2, 1, 8, 8)."""
    import torch

    generator = torch.Generator().manual_seed(0)
    return lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)


@pytest.fixture
def smooth_image():
    """A seeded smooth image in [0, 1]: smooth_image((32, 32), sigma=3, seed=0), shape (1, 1, *s)."""
    import torch
    from scipy import ndimage

    def make(shape, sigma=2.0, seed=0, dtype=torch.float64):
        noise = np.random.default_rng(seed).standard_normal(shape)
        image = ndimage.gaussian_filter(noise, sigma, mode="nearest")
        return torch.tensor((image - image.min()) / np.ptp(image), dtype=dtype)[None, None]

    return make


@pytest.fixture
def vrnet(monkeypatch, capsys):
    """Run the command line in this process: vrnet("demo", "--out", folder) gives (status, stdout, stderr)."""

    from vrnet.app import main as cli

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["vrnet", *map(str, words)])
        try:
            cli.main()
            status = 0
        except SystemExit as stop:
            status = stop.code or 0
        return status, *capsys.readouterr()

    return run


@pytest.fixture
def registries():
    """Terms, networks, methods, data sets and commands that a test adds are gone after it."""
    from vrnet.app.main import COMMANDS
    from vrnet.data.dataset import DATASETS
    from vrnet.methods.names import METHODS
    from vrnet.methods.weights import FAMILIES
    from vrnet.variational.data_terms import DATA_TERMS
    from vrnet.variational.regularizers import REGULARIZERS

    kept = [(registry, dict(registry)) for registry in (DATA_TERMS, REGULARIZERS, FAMILIES, DATASETS, COMMANDS)]
    methods = list(METHODS)
    yield
    METHODS[:] = methods
    for registry, before in kept:
        registry.clear()
        registry.update(before)


@pytest.fixture(scope="session")
def data_root():
    """The folder of real images; without it the test is skipped, with a line that says how to name one."""
    from tests.skips import DATA

    if not (DATA / "acdc").is_dir():
        pytest.skip(f"no real images at {DATA}: set VRNET_DATA to the folder that holds acdc/")
    return DATA


@pytest.fixture
def stop_after(monkeypatch):
    """stop_after(steps): as if Ctrl-C were pressed once that many more steps of training are done."""

    def after(steps):
        left = iter([False] * (steps - 1))
        caught = nullcontext(lambda: next(left, True))
        monkeypatch.setattr("vrnet.training.fit.catch_stop_signals", lambda: caught)

    return after


@pytest.fixture(scope="session")
def reader_files(tmp_path_factory):
    """The folder of the files that the documents speak of, made once."""
    from tests.reader import write_files

    folder = tmp_path_factory.mktemp("reader")
    write_files(folder)
    return folder


@pytest.fixture
def reader(reader_files, tmp_path, monkeypatch):
    """Work in a copy of the files that the documents speak of; training takes one step, and there are few phantoms."""
    from tests.reader import SHAPE, SPACING, fit_briefly
    from vrnet.data.dataset import DATASETS, Phantoms

    copytree(reader_files, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("vrnet.training.fit.fit", fit_briefly)
    few = Phantoms(shape=SHAPE, spacing=SPACING, counts={"train": 2, "val": 1, "test": 1})
    monkeypatch.setitem(DATASETS, "phantom", DATASETS["phantom"]._replace(build=lambda: few))
    return monkeypatch
