from dataclasses import dataclass, field, replace

import pytest

from vrnet.app.arguments import DeviceOptions, SourceOptions
from vrnet.app.paper import Paper
from vrnet.data.prepared import prepare_split
from vrnet.paper.results import Results, Study
from vrnet.paper.specs import BUDGETS


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


def make_study(out, cache, reader, budget=BUDGETS["quick"], d=2):
    """A study of small hearts."""
    hearts = BUDGETS["quick"].phantoms[d]
    split = lambda name, purpose: prepare_split(hearts, name, purpose, cache, say=reader.say)  # noqa: E731
    return Study(Results(out, hearts.name, budget), split, reader.stage, reader.say, "cpu")


@pytest.fixture
def study(tmp_path, cache, reader):
    """study(budget, d=2) of small hearts, in a folder of its own."""
    return lambda *budget, **options: make_study(tmp_path / "results", cache, reader, *budget, **options)


@pytest.fixture(scope="session")
def quick(tmp_path_factory, cache):
    """quick("table", "acdc") is asked within the quick budget; in one folder, so that networks are trained once."""
    given = {"budget": "quick", "out": tmp_path_factory.mktemp("results")}
    given |= {"source_options": SourceOptions(cache=cache), "device_options": DeviceOptions(device="cpu")}
    return lambda kind, name, **others: Paper(kind=kind, name=name, **given, **others)


@pytest.fixture
def steps():
    """steps(3) is the quick budget with 3 steps of training."""
    quick = BUDGETS["quick"]
    return lambda n: replace(quick, training={name: replace(how, steps=n) for name, how in quick.training.items()})
