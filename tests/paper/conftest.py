from dataclasses import dataclass, field, replace

import pytest

from vrnet.app.paper import PaperRequest
from vrnet.data.prepared import Source, prepare_split
from vrnet.paper.budget import BUDGETS, small_phantoms
from vrnet.paper.results import Results
from vrnet.paper.study import Study


@dataclass
class Reader:
    """What a reader is told: stages of the work, and lines."""

    stages: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    def stage(self, name):
        self.stages.append(name)
        return lambda part: None

    def say(self, line):
        self.lines.append(line)


@pytest.fixture
def reader():
    return Reader()


@pytest.fixture(scope="session")
def cache(tmp_path_factory):
    """The folder that phantoms are cached in."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def study(tmp_path, cache, reader):
    """study(budget) of small hearts, in a folder of its own."""

    def make(budget=BUDGETS["quick"], d=2):
        hearts = small_phantoms(d)
        split = lambda name, purpose: prepare_split(hearts, name, purpose, cache, say=reader.say)  # noqa: E731
        results = Results(tmp_path / "results", hearts.name, budget)
        return Study(results, split, reader.stage, reader.say, "cpu")

    return make


@pytest.fixture(scope="session")
def quick(tmp_path_factory, cache):
    """A request within the quick budget; one folder for all tests of a worker, so that networks are trained once."""
    return PaperRequest(Source("", cache=cache), tmp_path_factory.mktemp("results"), "quick", "cpu")


@pytest.fixture
def steps():
    """steps(3) is the quick budget with 3 steps of training."""
    quick = BUDGETS["quick"]
    return lambda n: replace(quick, training={name: replace(how, steps=n) for name, how in quick.training.items()})
