"""Continuous integration fails on a skip that it does not expect, and says which."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SKIPPING = """
import pytest

def test_expected():
    pytest.skip("no CUDA device")

@pytest.mark.skipif(True, reason="nobody looked")
def test_marked():
    pass

def test_without_data():
    pytest.skip("no real images at /nowhere")

@pytest.mark.xfail(reason="a failure that is expected is no skip")
def test_failing():
    assert False
"""


def run_pytest(folder, text, **environment):
    """What pytest says of a file of tests, run by itself under the list of expected skips."""
    (folder / "test_some.py").write_text(text)
    (folder / "pytest.ini").write_text("[pytest]\n")
    kept = {name: value for name, value in os.environ.items() if name not in ("CI", "VRNET_STRICT_SKIPS")}
    words = "-p", "tests.skips", "-p", "no:cacheprovider", "-c", folder / "pytest.ini", "-ra", folder
    command = [sys.executable, "-m", "pytest", *map(str, words)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env={**kept, **environment})


@pytest.mark.parametrize("variable", ["CI", "VRNET_STRICT_SKIPS"])
def test_a_skip_that_is_not_expected_fails_and_is_named(tmp_path, variable):
    done = run_pytest(tmp_path, SKIPPING, **{variable: "1", "VRNET_DATA": str(tmp_path)})
    assert done.returncode == 1
    assert "1 failed, 1 skipped, 1 xfailed, 1 error" in done.stdout
    assert "test_some.py::test_marked was skipped" in done.stdout
    assert "nobody looked" in done.stdout
    assert "test_some.py::test_without_data was skipped" in done.stdout


def test_real_images_may_be_missing_only_where_their_folder_is(tmp_path):
    done = run_pytest(tmp_path, SKIPPING, CI="1", VRNET_DATA=str(tmp_path / "nowhere"))
    assert "2 skipped, 1 xfailed, 1 error" in done.stdout


def test_a_file_that_skips_itself_fails_and_is_named(tmp_path):
    done = run_pytest(tmp_path, "import pytest\npytest.importorskip('no_such_module')\n", CI="1")
    assert done.returncode != 0
    assert "test_some.py was skipped" in done.stdout
    assert "no_such_module" in done.stdout


def test_anyone_else_may_skip(tmp_path):
    done = run_pytest(tmp_path, SKIPPING)
    assert done.returncode == 0
    assert "3 skipped, 1 xfailed" in done.stdout
