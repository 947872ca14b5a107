import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml

import vrnet

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "vrnet"
HEAVY = {"nibabel", "SimpleITK", "matplotlib", "tyro", "rich", "lightning", "scipy", "skimage", "itk", "ants"}
MEASURE = """
import sys, time
import torch
before, start = set(sys.modules), time.process_time()
import vrnet
print(time.process_time() - start, *sorted({name.partition(".")[0] for name in set(sys.modules) - before}))
"""


def fresh_import():
    """(seconds of processor time, modules) that `import vrnet` adds to `import torch`, in a new process."""
    seconds, *modules = subprocess.run([sys.executable, "-c", MEASURE], check=True, capture_output=True).stdout.split()
    return float(seconds), {module.decode() for module in modules}


def test_import_vrnet_is_light():
    """At most 0.2 s of processor time more than torch alone (the best of three), and none of the large libraries."""
    for _ in range(3):
        seconds, modules = fresh_import()
        assert "vrnet" in modules
        assert not modules & HEAVY
        if seconds <= 0.2:
            return
    raise AssertionError(f"import vrnet took {seconds:.2f} s more than import torch")


def test_the_version_is_the_installed_one():
    assert vrnet.__version__ == version("vrnet")


def test_the_version_is_that_of_the_changelog_and_of_the_citation():
    """The latest that has a date."""
    number, date = re.search(r"^## \[([\d.]+)\] - (\S+)$", (ROOT / "CHANGELOG.md").read_text(), flags=re.M).groups()
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert (cited["version"], str(cited["date-released"])) == (number, date)
    assert vrnet.__version__ == number or vrnet.__version__.endswith("dev0")


def test_every_public_name_exists_and_is_listed_once():
    assert all(hasattr(vrnet, name) for name in vrnet.__all__)
    assert len(set(vrnet.__all__)) == len(vrnet.__all__)


@pytest.mark.parametrize(("word", "room"), [("method", "methods"), ("dataset", "data")])
def test_nobody_outside_its_room_asks_for_a_type(word, room):
    asking = []
    for path in sorted(SOURCE.rglob("*.py")):
        lines = path.read_text(encoding="utf-8").splitlines()
        asked = [line.strip() for line in lines if re.search(rf"isinstance.*{word}", line, flags=re.IGNORECASE)]
        asking += [f"{path.relative_to(SOURCE)}: {line}" for line in asked if path.relative_to(SOURCE).parts[0] != room]
    assert asking == []
