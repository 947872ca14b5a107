import csv
from functools import cache

import pytest
import torch
from safetensors.torch import load_file

from tests.training.conftest import EVERYTHING, NAMES, QUICK
from vrnet.errors import BadInput
from vrnet.methods.names import parse_trainable
from vrnet.training.fit import Speedometer, fit

BETTER = "step,loss,rate,val_loss,val_dice\n3,9.0,0.1,9.0,0.999\n"
"""metrics.csv of a run that did better."""


def same(a, b):
    """Whether two files of tensors are equal to the bit."""
    one, other = load_file(a), load_file(b)
    return one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)


@pytest.fixture(scope="module")
def whole(hearts, tmp_path_factory):
    """whole(d, how) is a run that nobody stopped, made once: (what it came to, its folder)."""

    @cache
    def run(d, how):
        folder = tmp_path_factory.mktemp("whole") / "run"
        torch.manual_seed(0)
        train, val, method = hearts(d, [0, 1, 2]), hearts(d, [5]), parse_trainable(NAMES[d])
        return fit(method, train, val, how, folder, device="cpu"), folder

    return run


@pytest.mark.parametrize(
    ("d", "stop", "how"),
    [(2, 2, QUICK), (2, 3, QUICK), (2, 4, QUICK), (3, 4, QUICK), (2, 2, EVERYTHING), (3, 4, EVERYTHING)],
)
def test_a_run_that_was_stopped_goes_on_as_if_it_had_not_been(d, stop, how, whole, hearts, tmp_path, eager, stop_at):
    expected, folder = whole(d, how)
    train, val, method = hearts(d, [0, 1, 2]), hearts(d, [5]), parse_trainable(NAMES[d])
    half = fit(method, train, val, how, tmp_path, device="cpu", watch=stop_at(stop))
    assert (half.step, half.is_finished) == (stop, False)
    rest = fit(method, train, val, how, tmp_path, device="cpu", resume=True)
    assert rest == expected
    assert rest.is_finished
    for name in ("checkpoint.safetensors", "weights.safetensors"):
        assert same(folder / name, tmp_path / name)
    assert (folder / "metrics.csv").read_text() == (tmp_path / "metrics.csv").read_text()


@pytest.mark.parametrize("text", [None, BETTER])
def test_a_run_goes_on_the_same_whatever_became_of_its_metrics(text, whole, hearts, tmp_path, eager, stop_at):
    expected, folder = whole(2, QUICK)
    train, val, method = hearts(2, [0, 1, 2]), hearts(2, [5]), parse_trainable(NAMES[2])
    fit(method, train, val, QUICK, tmp_path, device="cpu", watch=stop_at(4))
    metrics = tmp_path / "metrics.csv"
    metrics.unlink() if text is None else metrics.write_text(text)
    assert fit(method, train, val, QUICK, tmp_path, device="cpu", resume=True) == expected
    assert metrics.read_text() == (folder / "metrics.csv").read_text()


def test_a_run_that_diverges_says_so(hearts, tmp_path, monkeypatch):
    one = hearts(2, [0])
    monkeypatch.setattr("vrnet.training.fit.Trainer.update", lambda *_: torch.tensor(torch.nan))
    with pytest.raises(BadInput, match=r"the loss is nan after 3 steps: .* smaller `rate`"):
        fit(parse_trainable("VoxelMorph-w2"), one, one, QUICK, tmp_path / "run", device="cpu")
    assert not (tmp_path / "run" / "weights.safetensors").exists()


def test_metrics_lose_no_digit(hearts, tmp_path):
    one = hearts(2, [0])
    best = fit(parse_trainable(NAMES[2]), one, one, QUICK, tmp_path, device="cpu").best
    with (tmp_path / "metrics.csv").open(newline="") as file:
        rows = {int(row["step"]): {key: float(cell) for key, cell in row.items()} for row in csv.DictReader(file)}
    assert list(rows) == [3, 6]
    assert rows[best["step"]] == best


def test_who_watches_hears_the_loss_the_scores_and_every_theta(hearts, tmp_path, eager):
    one, heard = hearts(2, [0]), []
    fit(parse_trainable(NAMES[2]), one, one, QUICK, tmp_path, device="cpu", watch=heard.append)
    assert [status.step for status in heard] == [1, 2, 3, 4, 5, 6]
    assert [status.scores.get("step") for status in heard] == [None, None, 3, 3, 3, 6]
    assert all(status.loss > 0 and len(status.thetas) == 1 and status.steps_per_second > 0 for status in heard)


def test_validations_do_not_count_as_slow_steps(monkeypatch):
    now = iter([0.0, 1.0, 91.0, 92.0])
    monkeypatch.setattr("vrnet.training.fit.perf_counter", lambda: next(now))
    speed = Speedometer(10)
    with speed.pause():
        pass
    assert speed.read(14) == 2.0
