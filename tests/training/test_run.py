import json

import pytest
import torch
from torch import nn
from torch.optim import Adam

from vrnet.devices import channels_last
from vrnet.errors import BadInput
from vrnet.training.run import Run

CONFIG = {"method": "R-L1-1x1", "training": {"steps": 5, "rates": (1.0, 2.0)}}
ROWS = [{"step": 2, "loss": 0.1, "val_loss": 1e-7}, {"step": 4, "loss": 1 / 3, "val_loss": 0.25}]


def trained(steps=3):
    """A model and its optimiser, some steps on their way."""
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2))
    optimizer = Adam(model.parameters(), lr=torch.tensor(0.1))
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.rand(2, 1, 6, 6)).square().mean().backward()
        optimizer.step()
    return model, optimizer


@pytest.fixture
def run(tmp_path):
    """One that was begun, and left after 3 steps."""
    found = Run(tmp_path / "deep" / "run")
    found.begin(CONFIG)
    found.write_rows(ROWS)
    found.save(3, *trained(), torch.tensor(0.7), ROWS)
    return found


def test_what_is_saved_comes_back_to_the_bit(run):
    model, optimizer = trained()
    run.save(3, model, optimizer, torch.tensor(0.7), ROWS)
    torch.manual_seed(1)
    other, its = trained(steps=0)
    assert run.restore(other, its) == (3, torch.tensor(0.7), ROWS)
    for a, b in zip(model.state_dict().values(), other.state_dict().values(), strict=True):
        assert torch.equal(a, b)
    for number, state in optimizer.state_dict()["state"].items():
        assert all(torch.equal(state[name], its.state_dict()["state"][number][name]) for name in state)


def test_a_run_that_has_not_begun_starts_at_nothing(tmp_path):
    run = Run(tmp_path / "run")
    run.check(resume=True)
    run.check_same(CONFIG)
    assert run.restore(*trained()) == (0, torch.zeros(()), [])
    assert not list(tmp_path.iterdir())


def test_a_row_is_a_line_of_numbers_that_lose_no_digit(run):
    lines = (run.folder / "metrics.csv").read_text().splitlines()
    assert lines == ["step,loss,val_loss", "2,0.1,1e-07", "4,0.3333333333333333,0.25"]


@pytest.mark.parametrize("text", [None, "", "step,loss\nthree,0.1", "step,loss,val_loss\n2,0.0,0.0\n"])
def test_what_became_of_the_metrics_since_does_not_matter(run, text):
    (run.folder / "metrics.csv").unlink()
    if text is not None:
        (run.folder / "metrics.csv").write_text(text)
    assert run.restore(*trained())[2] == ROWS


def test_a_run_is_gone_on_with_only_if_asked_and_only_as_it_was_begun(run):
    with pytest.raises(BadInput, match="holds a run: add --resume"):
        run.check(resume=False)
    run.check(resume=True)
    run.check_same(CONFIG)
    with pytest.raises(BadInput, match=r"begun with steps .*, not 6"):
        run.check_same(CONFIG | {"training": {"steps": 6}})
    run.begin(CONFIG | {"method": "another"})
    assert json.loads((run.folder / "config.json").read_text())["method"] == CONFIG["method"]


def test_part_of_a_run_is_not_taken_for_a_new_one(run):
    (run.folder / "config.json").unlink()
    with pytest.raises(BadInput, match="holds a run"):
        run.check(resume=False)
    with pytest.raises(BadInput, match=r"config\.json cannot be read"):
        run.check_same(CONFIG)


def shorten(path):
    path.write_bytes(path.read_bytes()[:-40])


def empty(path):
    path.write_bytes(b"")


def scribble(path):
    path.write_text("step,loss\nthree,0.1")


@pytest.mark.parametrize("damage", [shorten, empty, scribble])
def test_a_damaged_checkpoint_is_named(run, damage):
    damage(run.folder / "checkpoint.safetensors")
    with pytest.raises(BadInput, match=r"checkpoint\.safetensors is damaged.*another folder") as error:
        run.restore(*trained())
    assert "\n" not in str(error.value)


def test_a_checkpoint_of_another_model_is_named(run):
    other = nn.Conv2d(1, 3, 3)
    with pytest.raises(BadInput, match="is damaged"):
        run.restore(other, Adam(other.parameters()))


def test_a_folder_that_cannot_be_written_in_is_refused(tmp_path):
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(BadInput, match="choose another folder"):
            Run(folder).check(resume=False)
    (tmp_path / "run" / "weights.safetensors").mkdir(parents=True)
    with pytest.raises(BadInput, match=r"weights\.safetensors is a folder"):
        Run(tmp_path / "run").check(resume=False)


def test_what_the_optimiser_keeps_lies_in_memory_as_its_parameter_does(tmp_path):
    model = channels_last(nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 2, 3)), 2)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.rand(1, 3, 8, 8)).sum().backward()
    optimizer.step()
    Run(tmp_path).save(1, model, optimizer, torch.zeros(()), [])
    Run(tmp_path).restore(model, optimizer)
    for parameter, kept in optimizer.state.items():
        assert kept["exp_avg"].stride() == kept["exp_avg_sq"].stride() == parameter.stride()
    assert not model[0].weight.is_contiguous()
