"""`vrnet doctor` says what is there, and registers a heart of known motion; what is wrong is told, with status 3."""

import json
import sys
from importlib.metadata import requires, version
from types import SimpleNamespace

import pytest
import torch

from vrnet.app import doctor
from vrnet.provenance import how_to_install

pytestmark = pytest.mark.usefixtures("as_users_run")


@pytest.fixture
def quick(monkeypatch):
    """The self-test finds what it is told to find."""

    def found(before, after):
        still = SimpleNamespace(field=torch.zeros(2, 96, 96))
        monkeypatch.setattr("vrnet.registration.arrays.register", lambda *_, **__: still)
        error = {"end_point_error_mm_before": before, "end_point_error_mm_after": after}
        monkeypatch.setattr("vrnet.evaluation.pair.motion_error", lambda *_: error)

    found(4.0, 1.0)
    return found


def test_a_healthy_installation_is_said_to_be_one(vrnet):
    """With the real self-test: both methods find more than half of the true motion."""
    status, out, _ = vrnet("doctor", "--json")
    said = json.loads(out)
    assert (status, said["is_fine"]) == (0, True)
    assert [check["name"] for check in said["checks"]["self-test"]] == ["short-axis", "TV-L1"]
    assert {check["name"]: check["found"] for check in said["checks"]["versions"]}["torch"][0].isdigit()


def test_it_is_read_by_people_too(vrnet, quick):
    status, out, _ = vrnet("doctor")
    assert status == 0
    assert "Everything is as it should be." in out
    assert "short-axis: 4.00 mm from the true motion before, 1.00 mm after" in out


def test_a_registration_that_misses_the_motion_is_wrong(vrnet, quick):
    quick(4.0, 2.5)
    status, out, _ = vrnet("doctor")
    assert status == 3
    assert "WRONG short-axis" in out


def test_a_self_test_that_breaks_is_told_as_a_finding(vrnet, monkeypatch):
    def broken(*_, **__):
        raise RuntimeError("no weights")

    monkeypatch.setattr("vrnet.registration.arrays.register", broken)
    status, out, _ = vrnet("doctor")
    assert status == 3
    assert "WRONG self-test: RuntimeError: no weights → make that work, or install vrnet again" in out


def test_a_folder_that_cannot_be_written_is_wrong(vrnet, quick, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    status, out, _ = vrnet("doctor")
    assert status == 3
    assert "WRONG folders: " in out
    assert str(tmp_path / "file") in out


def test_an_extra_that_is_absent_is_no_fault(vrnet, quick, monkeypatch):
    there = doctor.installed
    absent = {"lightning": ""}
    monkeypatch.setattr(doctor, "installed", lambda extra=None: there(extra) | (absent if extra == "train" else {}))
    status, out, _ = vrnet("doctor")
    assert status == 0
    assert f"train: not installed: lacks lightning → {how_to_install('train')}" in out


def test_a_package_that_is_needed_and_absent_is(vrnet, quick, monkeypatch):
    there = doctor.installed
    monkeypatch.setattr(doctor, "installed", lambda extra=None: there(extra) | ({} if extra else {"scipy": ""}))
    status, out, _ = vrnet("doctor")
    assert status == 3
    assert "WRONG scipy: missing" in out


def test_what_is_needed_is_read_from_the_metadata(monkeypatch):
    listed = ["torch>=2.6", "numpy (>=2.0)", 'lightning>=2.5; extra == "train"', "vrnet[train]; extra == 'test'"]
    monkeypatch.setattr(doctor, "requires", lambda name: listed)
    assert doctor.installed() == {"torch": version("torch"), "numpy": version("numpy")}
    assert [*doctor.installed("train")] == ["lightning"]
    assert doctor.installed("test") == {}
    assert len(requires("vrnet")) > 10


def test_a_pytorch_that_cannot_be_loaded_is_told_as_a_finding(vrnet, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    status, out, _ = vrnet("doctor")
    assert status == 3
    assert "WRONG devices: ModuleNotFoundError" in out
