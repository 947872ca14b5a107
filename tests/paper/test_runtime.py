import pytest
import torch

from vrnet.errors import BadInput
from vrnet.files import read_rows
from vrnet.methods.names import parse, parse_trainable
from vrnet.paper import tables as runtime
from vrnet.paper.tables import measure_seconds, seconds_per_pair, timing_hardware
from vrnet.provenance import versions

SHAPE_AND_SPACING = (16, 16), 9.0


def test_a_time_is_measured_once_then_read(tmp_path, monkeypatch):
    taken = iter([0.25])
    monkeypatch.setattr(runtime, "measure_seconds", lambda *words: next(taken))
    method = parse_trainable("VoxelMorph-w2")
    assert [seconds_per_pair(tmp_path, method, *SHAPE_AND_SPACING, "cpu") for _ in range(3)] == [0.25] * 3
    (kept,) = read_rows(tmp_path / "runtime" / "cpu.csv", "times")
    assert (kept["method"], kept["shape"], kept["seconds"]) == ("VoxelMorph-w2", "16x16", "0.25")
    assert kept["torch"] == versions()["torch"]


@pytest.mark.parametrize("name", ["TV-L1", "VoxelMorph-w2", "FFD"])
def test_there_is_no_time_on_a_gpu_where_there_is_none(name, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert seconds_per_pair(tmp_path, parse(name), *SHAPE_AND_SPACING, "cuda") is None
    assert not list(tmp_path.iterdir())


def test_a_time_measured_elsewhere_is_read_where_there_is_no_gpu(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    (tmp_path / "runtime").mkdir()
    (tmp_path / "runtime" / "cuda.csv").write_text("method,shape,seconds,hardware\nTV-L1,16x16,0.5,a GPU\n")
    assert seconds_per_pair(tmp_path, parse("TV-L1"), *SHAPE_AND_SPACING, "cuda") == 0.5
    assert timing_hardware(tmp_path, [(16, 16)]) == ["a GPU"]
    assert timing_hardware(tmp_path, [(16, 16, 16)]) == []


@pytest.mark.parametrize("text", ["method,shape\nTV-L1,16x16\n", "method,shape,seconds,hardware\nTV-L1,16x16,x,a\n"])
def test_a_damaged_time_is_named(tmp_path, text):
    (tmp_path / "runtime").mkdir()
    (tmp_path / "runtime" / "cpu.csv").write_text(text)
    with pytest.raises(BadInput, match=r"cpu\.csv"):
        seconds_per_pair(tmp_path, parse("TV-L1"), *SHAPE_AND_SPACING, "cpu")


@pytest.mark.parametrize(("timing_seconds", "pairs"), [(0.0, 1), (2.5, 3), (1e9, runtime.MAX_TIMED_PAIRS)])
def test_a_time_is_the_mean_over_pairs_after_one_to_warm_up(timing_seconds, pairs, monkeypatch):
    clock, calls = [0.0], []

    def find():
        calls.append(0)
        clock[0] += 100.0 if len(calls) == 1 else 1.0

    monkeypatch.setattr(runtime, "prepare_registration", lambda *words: find)
    monkeypatch.setattr(runtime, "perf_counter", lambda: clock[0])
    assert measure_seconds(
        parse_trainable("VoxelMorph-w2"), *SHAPE_AND_SPACING, torch.device("cpu"), timing_seconds
    ) == pytest.approx(1.0)
    assert len(calls) == 1 + pairs


@pytest.mark.parametrize("name", ["TV-L1", "VoxelMorph-w2", "Demons"])
def test_what_is_timed_is_the_registration_of_the_pair(name):
    pair = torch.rand(1, 1, 32, 32), torch.rand(1, 1, 32, 32)
    method = parse(name)
    torch.manual_seed(0)
    with torch.inference_mode():
        found = runtime.prepare_registration(method, pair, (9.0, 9.0))()
        torch.manual_seed(0)
        model = method.build(2)
        expected = (model.eval() if isinstance(model, torch.nn.Module) else model)(*pair, (9.0, 9.0))
    torch.testing.assert_close(found, expected)
