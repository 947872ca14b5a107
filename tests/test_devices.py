import pickle
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from threading import Barrier, Thread, current_thread
from time import sleep

import pytest
import torch
from torch import nn

from tests.data.conftest import random_sample
from tests.models import trained
from vrnet.devices import (
    CPU,
    WARM_UP_CALLS,
    ModelOnDevices,
    capture_graph,
    channels_last,
    check_gpus,
    describe_device,
    few_threads,
    find_device,
    free_memory,
    hand_over,
    in_main_thread,
    limit_lookahead,
    on_stream,
    own_stream,
    record_graph,
    side_by_side,
    thread_library,
    threads_for,
    use_threads,
)
from vrnet.errors import BadInput
from vrnet.evaluation.split import build_for_shape
from vrnet.methods.names import parse_trainable

META = torch.device("meta")
"""Stands for a second device where there is no GPU: tensors there have shapes, and no numbers."""
WAIT_S = 10
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


@pytest.fixture
def two_threads():
    """PyTorch uses two threads during the test."""
    with use_threads(2):
        yield


def in_another_thread(function):
    """What a function returns in a thread that is not the main one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result(WAIT_S)


# A model kept for reuse


class Layers(nn.Module):
    """Two layers; between them every call waits until all calls are there."""

    def __init__(self, meeting):
        super().__init__()
        self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3)
        self.wait = meeting.wait

    def __deepcopy__(self, memo):
        copy = Layers.__new__(Layers)
        nn.Module.__init__(copy)
        copy.first, copy.second, copy.wait = deepcopy(self.first), deepcopy(self.second), self.wait
        return copy

    def forward(self, x):
        y = self.first(x)
        self.wait(WAIT_S)
        return self.second(y)


def test_threads_on_two_devices_use_one_model_at_once_and_each_gets_its_own_answer():
    """Both are in the middle of the model at the same time: whoever moved it there would break the other's call."""
    meeting = Barrier(2)
    model, x = Layers(meeting), torch.ones(5, 3)
    models, answers = ModelOnDevices(model), {}

    def use(device):
        meeting.wait(WAIT_S)  # both ask at the same time
        answers[device] = models.on(device)(x.to(device))

    threads = [Thread(target=use, args=(device,)) for device in (CPU, META)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    expected = model.second(model.first(x))
    torch.testing.assert_close(answers[CPU], expected)
    assert (answers[META].device, answers[META].shape) == (META, expected.shape)


class SlowToCopy(nn.Linear):
    """A layer that counts its copies, and takes so long over each that all threads ask meanwhile."""

    def __init__(self, copies):
        super().__init__(2, 2)
        self.copies = copies

    def __deepcopy__(self, memo):
        self.copies.append(self)
        sleep(0.05)
        return nn.Linear(2, 2)


def test_a_device_gets_one_copy_however_many_ask_at_once():
    copies, threads = [], 8
    models, start = ModelOnDevices(SlowToCopy(copies)), Barrier(threads)

    def ask(_):
        start.wait(WAIT_S)
        return models.on(META)

    with ThreadPoolExecutor(threads) as pool:
        found = list(pool.map(ask, range(threads)))
    assert len(copies) == 1
    assert all(model is found[0] for model in found)
    assert models.on(META) is found[0]


def test_the_model_that_is_kept_never_changes_its_device():
    model = channels_last(parse_trainable("VoxelMorph-w4").build(2), 2)
    models, weights = ModelOnDevices(model), [parameter.clone() for parameter in model.parameters()]
    copy = models.on(META)
    assert models.on(CPU) is model
    assert copy is not model
    assert {parameter.device for parameter in copy.parameters()} == {META}
    assert {parameter.device for parameter in model.parameters()} == {CPU}
    for parameter, weight in zip(model.parameters(), weights, strict=True):
        assert torch.equal(parameter, weight)


def test_a_copy_has_the_layout_of_the_model():
    model = channels_last(parse_trainable("VoxelMorph-w4").build(2), 2)
    pairs = zip(model.parameters(), ModelOnDevices(model).on(META).parameters(), strict=True)
    assert all(copy.stride() == own.stride() for own, copy in pairs)


def test_a_model_without_weights_is_on_the_cpu():
    model = nn.Identity()
    assert ModelOnDevices(model).on(CPU) is model


def test_a_model_sent_to_another_process_is_whole_there():
    models = ModelOnDevices(nn.Linear(2, 2))
    models.on(META)
    there, x = pickle.loads(pickle.dumps(models)), torch.ones(1, 2)
    torch.testing.assert_close(there.on(CPU)(x), models.on(CPU)(x))
    assert next(there.on(META).parameters()).device == META


@needs_cuda
def test_cuda_and_its_current_device_are_one_place():
    models = ModelOnDevices(nn.Linear(2, 2))
    assert models.on(torch.device("cuda")) is models.on(torch.device("cuda", torch.cuda.current_device()))


@needs_cuda
def test_threads_on_the_cpu_and_on_a_gpu_register_with_one_model():
    method, pair = trained(), torch.rand(2, 1, 1, 64, 64)
    expected = method.build(2)(*pair)

    def find(device):
        with torch.inference_mode():
            return [method.build(2, device)(*pair.to(device)).cpu() for _ in range(10)]

    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(find, [CPU, torch.device("cuda")] * 4):
            for u in found:
                torch.testing.assert_close(u, expected, rtol=1e-2, atol=1e-2)
    assert {parameter.device for parameter in method.model.parameters()} == {CPU}


# Devices


def test_devices_have_names():
    assert find_device("cpu") == CPU
    assert find_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")
    with pytest.raises(BadInput, match='there is no device "gpu": choose auto, cpu or cuda'):
        find_device("gpu")


def test_more_gpus_than_there_are_is_bad_input():
    check_gpus(torch.cuda.device_count())
    with pytest.raises(BadInput, match=r"there are \d+ GPUs here, not 99: choose fewer `devices`"):
        check_gpus(99)


def test_a_cpu_is_described_by_its_threads(two_threads):
    assert describe_device(CPU).endswith("CPU, 2 threads")
    with use_threads(1):
        assert describe_device(CPU).endswith("CPU, 1 thread")
    assert free_memory(CPU) == float("inf")


@needs_cuda
def test_a_gpu_is_described_by_its_name():
    assert describe_device(torch.device("cuda")) == torch.cuda.get_device_name()
    assert 0 < free_memory(torch.device("cuda")) < float("inf")


# Threads


def test_a_small_image_has_one_thread_and_a_large_one_or_a_network_all(two_threads):
    seen = {}
    for is_network, voxels in ((False, 64 * 64), (False, 2000 * 2000), (True, 64 * 64)):
        with threads_for(is_network, voxels):
            seen[is_network, voxels] = torch.get_num_threads()
    assert seen == {(False, 64 * 64): 1, (False, 2000 * 2000): 2, (True, 64 * 64): 2}
    assert torch.get_num_threads() == 2


@pytest.mark.skipif(thread_library() is None, reason="PyTorch without OpenMP")
@pytest.mark.parametrize(("is_network", "voxels"), [(True, 64 * 64), (False, 2000 * 2000)])
def test_where_several_threads_are_asked_for_openmp_may_not_give_fewer(two_threads, is_network, voxels):
    """Whatever the host program has set: a product of matrices would wait for ever for those that it does not get."""
    library = thread_library()
    library.omp_set_dynamic(True)
    with threads_for(is_network, voxels):
        assert not library.omp_get_dynamic()
    assert library.omp_get_dynamic()


def test_a_small_image_has_one_thread_in_any_thread_of_the_host_program(two_threads):
    def threads_for_a_small_image():
        with few_threads(10):
            return torch.get_num_threads(), in_main_thread()

    assert in_another_thread(threads_for_a_small_image) == (1, False)
    assert threads_for_a_small_image() == (1, True)
    assert torch.get_num_threads() == 2


def test_after_a_fork_cuda_is_refused_in_words_and_auto_takes_the_cpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "_is_in_bad_fork", lambda: True)
    assert find_device("auto") == CPU
    with pytest.raises(BadInput, match="forked from one that had used CUDA"):
        find_device("cuda")


def test_threads_are_restored_after_an_error(two_threads):
    with pytest.raises(RuntimeError, match="stop"), use_threads(1):
        raise RuntimeError("stop")
    assert torch.get_num_threads() == 2


def test_side_by_side_two_calls_run_at_once_and_answers_keep_their_order(two_threads):
    meeting = Barrier(2)

    def square(n):
        meeting.wait(WAIT_S)  # returns only if two calls are under way
        return torch.tensor(n * n)

    assert [int(x) for x in side_by_side(square, range(6))] == [0, 1, 4, 9, 16, 25]
    assert torch.get_num_threads() == 2


def test_outside_the_main_thread_nothing_runs_side_by_side(two_threads):
    threads = []

    def note(n):
        threads.append(current_thread())
        return torch.tensor(n)

    def work():
        return [int(x) for x in side_by_side(note, range(3))], current_thread()

    answers, caller = in_another_thread(work)
    assert answers == [0, 1, 2]
    assert threads == [caller] * 3


# Streams and graphs


def test_without_a_gpu_there_are_no_streams():
    with own_stream(CPU) as stream, on_stream(stream):
        assert stream is None
        hand_over((torch.zeros(2),), stream)
        assert limit_lookahead(stream, None) is None


@needs_cuda
def test_a_tensor_handed_over_to_another_stream_is_finished_there():
    device = torch.device("cuda")
    with own_stream(device) as source:
        x = torch.randn(4000, 4000, device=device)
        y = (x @ x @ x).sum()
    with own_stream(device):
        hand_over((y,), source)
        found = y.clone()
    torch.cuda.synchronize()
    torch.testing.assert_close(found, (x @ x @ x).sum())


def pairs(d, n):
    """n pairs of random images on the GPU."""
    torch.manual_seed(0)
    return [torch.rand(2, 1, 1, *(32,) * d, device="cuda").unbind() for _ in range(n)]


@needs_cuda
@pytest.mark.parametrize("name", ["C-L1-2x1-w4", "R-L2-2x1-w4", "VoxelMorph-w4"])
def test_a_network_replayed_is_the_network(d, name):
    model = channels_last(parse_trainable(name).build(d).cuda().eval(), d)
    first, *others = pairs(d, 3)
    with torch.inference_mode():
        replay = capture_graph(model, *first)
        for I0, I1 in others:
            torch.testing.assert_close(replay(I0, I1), model(I0, I1), rtol=1e-4, atol=1e-4)


@needs_cuda
def test_a_function_recorded_changes_what_it_changes_at_every_replay():
    """A training step changes the weights; recording it changes nothing."""
    x = torch.zeros((), device="cuda")
    with own_stream(torch.device("cuda")):
        for _ in range(WARM_UP_CALLS):
            x.add_(1)
        replay = record_graph(lambda y: x.add_(y), torch.tensor(5.0, device="cuda"))
        torch.cuda.synchronize()
        assert x == WARM_UP_CALLS
        for y in (10.0, 100.0):
            replay(torch.tensor(y, device="cuda"))
        torch.cuda.synchronize()
    assert x == WARM_UP_CALLS + 110


@needs_cuda
def test_a_method_built_for_a_shape_finds_what_it_finds_otherwise():
    sample, device = random_sample("a", 0), torch.device("cuda")
    method = trained(spacing=sample.spacing)
    pair = [images[:1].to(device) for images in (sample.fixed, sample.moving)]
    with torch.inference_mode():
        found = build_for_shape(method, sample, device)(*pair, sample.spacing)
        torch.testing.assert_close(found, method.build(2, device)(*pair, sample.spacing), rtol=1e-4, atol=1e-4)


def test_channels_come_last_in_memory(d):
    model = channels_last(parse_trainable("VoxelMorph-w4").build(d), d)
    form = {2: torch.channels_last, 3: torch.channels_last_3d}[d]
    weights = [parameter for parameter in model.parameters() if parameter.dim() == d + 2]
    assert weights
    assert all(weight.is_contiguous(memory_format=form) for weight in weights)
