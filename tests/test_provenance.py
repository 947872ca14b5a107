import re
import subprocess
from pathlib import Path

import pytest
import torch

from vrnet import provenance as module
from vrnet.devices import describe_device
from vrnet.provenance import __version__, commit, how_to_install, may_be_same_commit, provenance

ROOT = Path(__file__).parents[1]


@pytest.fixture
def fresh_commit():
    """Forget the commit that was found, before and after."""
    commit.cache_clear()
    yield
    commit.cache_clear()


def test_what_made_a_result_is_the_versions_the_commit_and_the_device():
    found = provenance(torch.device("cpu"))
    assert (found["vrnet"], found["commit"], found["torch"]) == (__version__, commit(), torch.__version__)
    assert found["device"] == describe_device(torch.device("cpu"))
    assert re.fullmatch(r".+ CPU, \d+ threads?", found["device"])


def test_the_commit_is_that_of_the_checkout(fresh_commit):
    if not (ROOT / ".git").exists():
        assert commit() is None
        return
    head = subprocess.run(["git", "-C", ROOT, "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout
    assert commit() in (head.strip(), head.strip() + "+")


def test_an_installed_package_has_no_commit(fresh_commit, monkeypatch, tmp_path):
    monkeypatch.setattr(module, "__file__", str(tmp_path / "lib" / "vrnet" / "provenance.py"))
    assert commit() is None


def test_without_git_there_is_no_commit(fresh_commit, monkeypatch, tmp_path):
    (tmp_path / ".git").mkdir()
    monkeypatch.setattr(module, "__file__", str(tmp_path / "src" / "vrnet" / "provenance.py"))
    monkeypatch.setenv("PATH", "")
    assert commit() is None


def test_commits_differ_only_where_both_are_known():
    for one, other, expected in (("a", "a", True), ("a", "b", False), ("a", None, True), ("a", "a+", False)):
        assert may_be_same_commit(one, other) == may_be_same_commit(other, one) == expected


def test_an_extra_is_added_by_the_name_of_the_package(monkeypatch, tmp_path):
    monkeypatch.setattr(module, "__file__", str(tmp_path / "lib" / "vrnet" / "provenance.py"))
    assert how_to_install("train") == "pip install 'vrnet[train]'"


@pytest.mark.parametrize("has_own", [True, False])
def test_in_a_checkout_an_extra_is_added_as_its_readme_has_it(monkeypatch, tmp_path, has_own):
    """From another folder, with the whole path; into another environment than its own, by the pip of that."""
    monkeypatch.setattr(module, "__file__", str(tmp_path / "src" / "vrnet" / "provenance.py"))
    monkeypatch.setattr("sys.prefix", str(tmp_path / (".venv" if has_own else "other")))
    (tmp_path / "constraints.txt").touch()
    pip, own = (".venv/bin/pip", f"{tmp_path}/.venv/bin/pip") if has_own else ("pip", "pip")
    assert how_to_install("train") == f"{own} install -c {tmp_path}/constraints.txt -e '{tmp_path}[train]'"
    monkeypatch.chdir(tmp_path)
    assert how_to_install("train") == f"{pip} install -c constraints.txt -e '.[train]'"
    if has_own:
        assert how_to_install("train") in (ROOT / "README.md").read_text(encoding="utf-8")
