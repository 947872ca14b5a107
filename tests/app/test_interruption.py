"""A registration may be stopped at any moment: the folder then holds all of the old set, or all of the new."""

import json
import subprocess
import sys

import numpy as np
import pytest

from tests.app import interrupted_runs
from vrnet import Grid, Image, write_image
from vrnet.files import RECORD

MOMENTS = 120
GRID = Grid.plain((12, 10), (2.0, 2.0))


@pytest.mark.release
def test_after_a_stop_at_any_moment_all_files_are_of_one_set(tmp_path):
    random = np.random.default_rng(0)
    for name in ("fixed", "moving"):
        write_image(Image(random.random(GRID.shape).astype(np.float32), GRID), tmp_path / f"{name}.nii.gz")
    write_image(Image(random.integers(0, 3, GRID.shape).astype(np.uint8), GRID), tmp_path / "labels.nii.gz")
    command = [sys.executable, interrupted_runs.__file__, str(tmp_path), str(MOMENTS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(done.stdout)
    found = result["found"]
    assert len(found) == MOMENTS >= 100
    assert set(found) <= {"old", "new"}, [(k, what) for k, what in enumerate(found) if what not in ("old", "new")]
    assert set(found) == {"old", "new"}, "some were stopped before, and some after, the new set was there"
    assert result["left"] == sorted({RECORD, "mine.txt", *result["owned"]}), "leftovers of the dead are gone"
