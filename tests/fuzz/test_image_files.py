"""Whatever is in an image or transform file: it is read, or refused in one line; quickly, in little memory, and no
other file's content comes out."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.image_seeds import SEEDS

ROOT = Path(__file__).parents[2]
MAX_PEAK_BYTES = 1_000_000_000


def fuzz(kind, count, folder, first=0):
    """The findings of that many seeded cases, in a process of their own."""
    words = [sys.executable, "-m", "tests.fuzz.image_worker", kind, str(first), str(count), str(folder)]
    places = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    done = subprocess.run(words, cwd=ROOT, env=os.environ | {"PYTHONPATH": places}, capture_output=True, text=True)
    lines = done.stdout.splitlines()
    assert done.returncode == 0, (
        f"case {lines[-1] if lines else '?'} ended with {done.returncode}: {done.stderr[-2000:]}"
    )
    return json.loads(lines[-1]), done.stderr


def check(kind, count, folder):
    found, said = fuzz(kind, count, folder)
    assert found["failures"] == {}
    assert found["peak_bytes"] < MAX_PEAK_BYTES
    assert 0 < found["read"] < count, "some damage does no harm, and some does"
    assert said == "", "neither ITK nor anything else writes to the terminal"


@pytest.mark.parametrize("kind", SEEDS)
def test_a_thousand_damaged_files_crash_nothing(kind, tmp_path):
    check(kind, 1000, tmp_path)


@pytest.mark.fuzz
@pytest.mark.parametrize("kind", SEEDS)
def test_ten_thousand_damaged_files_crash_nothing(kind, tmp_path):
    check(kind, 10_000, tmp_path)
