"""The worked examples of docs/architecture.md: what is added there in one place works in all of them."""

import json
import re

import numpy as np
import pytest
import torch

import vrnet as package
from tests.phantoms import phantom
from tests.test_docs import ROOT, snippets
from vrnet import app
from vrnet.app.main import COMMANDS
from vrnet.fields.calculus import warp
from vrnet.methods.names import names, parse, parse_trainable
from vrnet.paper.specs import TABLES, TableSpec
from vrnet.training.loss import loss_of
from vrnet.training.settings import Training
from vrnet.variational.regularizers import Diffusion

PAGE = "docs/architecture.md"
SOLVER = "Diffusion-Gradients(lam=0.01,theta=(0.01,0.05))"
PATIENT = phantom(7, (112, 112), 1.8)


@pytest.fixture
def added(registries, reader, as_users_run):
    """What the page adds: a data term, a regulariser, a network and a data set. It tries them on small hearts."""
    known = {}
    reader.setattr("vrnet.phantom.phantom", lambda seed, **_: phantom(seed, (40, 40), 5.8))
    for language, code in snippets(PAGE):
        if language == "python":
            exec(compile(code, PAGE, "exec"), known)
    return known


def squared_difference_of_gradients(a, b):
    """1/2 |∇a − ∇b|² by NumPy: central differences, as if the border were repeated."""
    padded = np.pad(np.asarray(a, float) - np.asarray(b, float), 1, mode="edge")
    across, down = (padded[2:, 1:-1] - padded[:-2, 1:-1]) / 2, (padded[1:-1, 2:] - padded[1:-1, :-2]) / 2
    return (across**2 + down**2) / 2


def test_a_new_data_term_is_a_solver_that_lowers_its_own_energy(added):
    fixed, moving, true = PATIENT.fixed[0, 0], PATIENT.moving[0, 0], PATIENT.field[0]
    found = package.register(fixed, moving, SOLVER)
    assert found.method == SOLVER
    assert (found.field - true).norm(dim=0).mean() < 0.7 * true.norm(dim=0).mean()
    rough = Diffusion().value(found.field[None], (1.0, 1.0)).mean().item()
    expected = squared_difference_of_gradients(found.warped, fixed).mean() + 0.01 * rough
    assert found.energies.min().item() == pytest.approx(expected, rel=1e-3)


def test_a_new_data_term_is_a_training_loss(added, random):
    I0, I1, u = random(1, 1, 20, 18), random(1, 1, 20, 18), random(1, 2, 20, 18)
    loss = loss_of(parse_trainable("VoxelMorph"), Training(alpha=0.0, similarity="Gradients"))
    expected = 2 * squared_difference_of_gradients(warp(I1, u.float())[0, 0], I0[0, 0]).mean()
    assert loss(I0, I1, u).item() == pytest.approx(expected, rel=1e-5)


def test_a_new_data_term_is_a_name_on_the_command_line(added, vrnet, tmp_path):
    status, _, _ = vrnet(
        "register", "ed.nii.gz", "es.nii.gz", "--method", "TV-Gradients", "--set", "warps=2", "--out", "x"
    )
    assert status == 0
    assert json.loads((tmp_path / "x" / "metrics.json").read_text())["method"] == "TV-Gradients(warps=2)"
    assert "squared differences of image gradients" in names()["Bending-Gradients"]
    status, _, _ = vrnet(
        "train",
        "R-Gradients-1x1-w2",
        "--data",
        "phantom",
        "--out",
        "run",
        "--similarity",
        "Gradients",
        "--device",
        "cpu",
    )
    assert status == 0
    assert json.loads((tmp_path / "run" / "config.json").read_text())["training"]["similarity"] == "Gradients"


def test_a_new_data_term_is_a_row_of_a_table(added, reader, vrnet, tmp_path):
    status, shown, _ = vrnet("evaluate", "TV-Gradients", "--data", "phantom", "--out", "row", "--device", "cpu")
    assert status == 0
    assert "TV-Gradients on 1 subject" in shown
    spec = TableSpec("Gradients", "phantom", ("identity", "TV-Gradients"))
    reader.setitem(TABLES, "gradients", spec)
    status, shown, _ = vrnet("paper", "table", "gradients", "--quick", "--out", "results", "--device", "cpu")
    assert status == 0
    assert "| TV-Gradients |" in (tmp_path / "results" / "tables" / "gradients_quick.md").read_text()


def test_a_new_regulariser_is_a_solver(added):
    fixed, moving = PATIENT.fixed[0, 0], PATIENT.moving[0, 0]
    found = package.register(fixed, moving, "Shortest-L1(lam=0.01)")
    assert found.energies[-1] < found.energies[0]


def test_a_new_network_is_trained_and_listed_by_its_name(added, vrnet):
    assert str(parse("Shallow")) == "Shallow"
    assert parse_trainable("Shallow").is_network
    with torch.no_grad():
        assert parse_trainable("Shallow").build(2)(PATIENT.fixed, PATIENT.moving).shape == PATIENT.field.shape
    assert vrnet("train", "Shallow", "--data", "phantom", "--out", "run", "--device", "cpu")[0] == 0
    assert "Shallow" in vrnet("methods")[1]


def test_a_new_method_is_used_by_its_name(added, vrnet):
    found = package.register(PATIENT.fixed[0, 0], PATIENT.moving[0, 0], "Shift(voxels=2.0)")
    assert (found.method, found.field[0].mean().item(), found.field[1].abs().max().item()) == (
        "Shift(voxels=2.0)",
        2.0,
        0.0,
    )
    assert "voxels" in vrnet("methods", "Shift")[1]


def test_a_new_command_is_run_by_its_name(registries, vrnet, tmp_path, monkeypatch):
    (code,) = (code for language, code in snippets(PAGE) if language == "py")
    (tmp_path / "hello.py").write_text(code)
    monkeypatch.setattr(app, "__path__", [*app.__path__, str(tmp_path)])
    name, place = re.search(r'`"(\w+)": "([\w.:]+)"`', (ROOT / PAGE).read_text()).groups()
    COMMANDS[name] = place
    assert vrnet("hello", "--name", "world")[:2] == (0, "Hello, world.\n")
    assert "hello" in vrnet("--help")[1]
