from dataclasses import dataclass, field, replace

import pytest

from vrnet.data.prepared import prepare_split
from vrnet.data.source import Source
from vrnet.paper.budget import BUDGETS, small
from vrnet.paper.making import PaperRequest
from vrnet.paper.study import Study


@dataclass
class Heard:
    """What a reader was told: what is being done, and lines."""

    stages: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    def stage(self, name):
        self.stages.append(name)
        return lambda part: None

    def say(self, line):
        self.lines.append(line)


@pytest.fixture
def heard():
    return Heard()


@pytest.fixture(scope="session")
def cache(tmp_path_factory):
    """Where phantoms are kept."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def study(tmp_path, cache, heard):
    """study(budget) of small hearts, in a folder of its own."""

    def make(budget=BUDGETS["quick"], d=2, at_once=4):
        hearts = small(d)
        split = lambda name, purpose: prepare_split(hearts, name, purpose, cache, say=heard.say)  # noqa: E731
        return Study(tmp_path / "results", hearts.name, budget, split, heard.stage, heard.say, "cpu", at_once)

    return make


@pytest.fixture(scope="session")
def quick(tmp_path_factory, cache):
    """What is asked for quickly, all in one folder: networks are trained once for all tests of a worker."""
    return PaperRequest(Source("", cache=cache), tmp_path_factory.mktemp("results"), "quick", "cpu")


@pytest.fixture
def steps():
    """The quick budget with so many steps: steps(3)."""
    quick = BUDGETS["quick"]
    return lambda n: replace(quick, training={name: replace(how, steps=n) for name, how in quick.training.items()})
