import json

import pytest
import torch

from vrnet.methods.learned import learned
from vrnet.methods.names import parse
from vrnet.paper import runtime
from vrnet.paper.runtime import machines, seconds, timed

SMALL = (16, 16), 9.0


def test_a_time_is_measured_once_then_read(tmp_path, monkeypatch):
    taken = iter([0.25])
    monkeypatch.setattr(runtime, "timed", lambda *words: next(taken))
    method = learned("VoxelMorph-w2")
    assert [seconds(tmp_path, method, *SMALL, "cpu") for _ in range(3)] == [0.25] * 3
    kept = json.loads((tmp_path / "runtime" / "cpu" / "VoxelMorph-w2_16x16.json").read_text())
    assert kept["seconds"] == 0.25
    assert kept["versions"]["torch"] == torch.__version__


@pytest.mark.parametrize("name", ["TV-L1", "VoxelMorph-w2", "FFD"])
def test_there_is_no_time_on_a_gpu_where_there_is_none(name, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert seconds(tmp_path, parse(name), *SMALL, "cuda") is None
    assert not list(tmp_path.iterdir())


def test_a_time_measured_elsewhere_is_read_where_there_is_no_gpu(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    place = tmp_path / "runtime" / "cuda" / "TV-L1_16x16.json"
    place.parent.mkdir(parents=True)
    place.write_text('{"seconds": 0.5, "hardware": "a GPU"}')
    assert seconds(tmp_path, parse("TV-L1"), *SMALL, "cuda") == 0.5
    assert machines(tmp_path, [(16, 16)]) == ["a GPU"]
    assert machines(tmp_path, [(16, 16, 16)]) == []


@pytest.mark.parametrize(("enough", "pairs"), [(0.0, 1), (2.5, 3), (1e9, runtime.MOST)])
def test_a_time_is_the_mean_over_pairs_after_one_to_warm_up(enough, pairs, monkeypatch):
    clock, calls = [0.0], []

    def find():
        calls.append(0)
        clock[0] += 100.0 if len(calls) == 1 else 1.0

    monkeypatch.setattr(runtime, "ready", lambda *words: find)
    monkeypatch.setattr(runtime, "perf_counter", lambda: clock[0])
    assert timed(learned("VoxelMorph-w2"), *SMALL, torch.device("cpu"), enough) == pytest.approx(1.0)
    assert len(calls) == 1 + pairs


@pytest.mark.parametrize("name", ["TV-L1", "VoxelMorph-w2", "Demons"])
def test_what_is_timed_is_the_registration_of_the_pair(name):
    pair = torch.rand(1, 1, 32, 32), torch.rand(1, 1, 32, 32)
    method = parse(name)
    torch.manual_seed(0)
    with torch.inference_mode():
        found = runtime.ready(method, pair, (9.0, 9.0))()
        torch.manual_seed(0)
        model = method.build(2)
        expected = (model.eval() if isinstance(model, torch.nn.Module) else model)(*pair, (9.0, 9.0))
    torch.testing.assert_close(found, expected)
