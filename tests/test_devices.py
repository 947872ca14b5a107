"""What a host program has set stays set, for all its threads; and its forks can register."""

import locale
import logging
import multiprocessing as mp
import os
import pickle
import signal
import warnings
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event, Thread, current_thread
from time import process_time, sleep, thread_time

import numpy as np
import pytest
import SimpleITK as sitk
import torch
from torch import nn

from tests.app.conftest import PARTS
from tests.models import trained
from tests.phantoms import phantom
from vrnet.devices import (
    CPU,
    LIBRARY,
    VOXELS_AT_ONCE,
    WARM_UP_CALLS,
    Lookahead,
    ModelOnDevices,
    capture_graph,
    channels_last,
    describe_device,
    find_device,
    in_batches,
    make_rows,
    own_stream,
    record_graph,
    set_threads,
    side_by_side,
    threads_for,
    use_threads,
)
from vrnet.errors import BadInput
from vrnet.images.grid import Grid
from vrnet.images.image import Image
from vrnet.images.io import write_image
from vrnet.images.resample import one_thread
from vrnet.methods.names import parse_trainable
from vrnet.registration.arrays import register

META = torch.device("meta")
"""Stands for a second device where there is no GPU: tensors there have shapes, and no numbers."""
WAIT_S = 60
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


@pytest.fixture
def two_threads():
    """The host program computes with two threads, and PyTorch has started them."""
    with use_threads(2):
        torch.rand(1 << 20).exp().sum()
        yield


def in_another_thread(function):
    """What a function returns in a thread that is not the main one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result(WAIT_S)


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
    pairs = zip(model.parameters(), copy.parameters(), strict=True)
    assert all(own.stride() == other.stride() for own, other in pairs)
    assert {parameter.device for parameter in model.parameters()} == {CPU}
    for parameter, weight in zip(model.parameters(), weights, strict=True):
        assert torch.equal(parameter, weight)


def test_a_model_sent_to_another_process_is_whole_there():
    models = ModelOnDevices(nn.Linear(2, 2))
    models.on(META)
    there, x = pickle.loads(pickle.dumps(models)), torch.ones(1, 2)
    torch.testing.assert_close(there.on(CPU)(x), models.on(CPU)(x))
    assert next(there.on(META).parameters()).device == META


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


def test_devices_have_names():
    assert find_device("cpu") == CPU
    assert find_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")
    with pytest.raises(BadInput, match='there is no device "gpu": choose auto, cpu or cuda'):
        find_device("gpu")


def test_a_cpu_is_described_by_its_threads(two_threads):
    assert describe_device(CPU).endswith("CPU, 2 threads")
    with use_threads(1):
        assert describe_device(CPU).endswith("CPU, 1 thread")


def test_a_small_image_has_one_thread_and_a_large_one_or_a_network_all(two_threads):
    seen = {}
    for is_network, voxels in ((False, 64 * 64), (False, 2000 * 2000), (True, 64 * 64)):
        with threads_for(is_network, voxels):
            seen[is_network, voxels] = torch.get_num_threads()
    assert seen == {(False, 64 * 64): 1, (False, 2000 * 2000): 2, (True, 64 * 64): 2}
    assert torch.get_num_threads() == 2
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


@pytest.mark.parametrize("n", [1, 2, 3, 7, 28])
def test_a_batch_has_the_same_parts_however_many_threads_there_are(n, two_threads):
    """Of two slices at least where there are two; volumes go one by one."""
    slices, volumes, parts = torch.rand(n, 1, 20, 20), torch.rand(n, 1, 6, 6, 6), []
    for threads in (1, 2):
        with use_threads(threads):
            found = torch.cat([*in_batches(lambda part: slices[part], slices)])
            parts.append([len(each) for each in in_batches(lambda part: slices[part], slices)])
        assert torch.equal(found, slices)
    assert parts[0] == parts[1]
    assert min(parts[0]) >= min(n, 2)
    assert [len(each) for each in in_batches(lambda part: volumes[part], volumes)] == [1] * n


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


@needs_cuda
def test_what_is_made_ahead_of_the_current_stream_is_finished_there():
    device = torch.device("cuda")
    ahead, x = Lookahead(device), torch.randn(4000, 4000, device=device)
    for scale in (1, 2):
        (found,) = ahead.call(lambda k: ((k * x @ x @ x).sum(),), scale)
        torch.testing.assert_close(found.clone(), (scale * x @ x @ x).sum())


def pairs(d, n):
    """n pairs of random images on the GPU."""
    torch.manual_seed(0)
    return [torch.rand(2, 1, 1, *(32,) * d, device="cuda").unbind() for _ in range(n)]


@needs_cuda
def test_a_network_replayed_is_the_network(d):
    model = channels_last(parse_trainable("C-L1-2x1-w4").build(d).cuda().eval(), d)
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


def test_channels_come_last_in_memory(d):
    model = channels_last(parse_trainable("VoxelMorph-w4").build(d), d)
    form = {2: torch.channels_last, 3: torch.channels_last_3d}[d]
    weights = [parameter for parameter in model.parameters() if parameter.dim() == d + 2]
    assert weights
    assert all(weight.is_contiguous(memory_format=form) for weight in weights)


LOOK_EVERY_S = 0.01
FORK = mp.get_context("fork")


def pair(d):
    """The images of a small heart."""
    patient = phantom(3, (48, 48) if d == 2 else (24, 24, 12), 4.0)
    return patient.fixed[0, 0].numpy(), patient.moving[0, 0].numpy()


def in_fork(function, *given):
    """What a function returns in a forked process; it fails where that does not end."""
    ours, theirs = FORK.Pipe(duplex=False)
    process = FORK.Process(target=lambda: theirs.send(function(*given)))
    process.start()
    answer = ours.recv() if ours.poll(WAIT_S) else None
    process.kill()
    process.join()
    assert answer is not None
    return answer


@pytest.fixture
def itk_of_a_host():
    """The host program has set ITK to three threads."""
    before = sitk.ProcessObject.GetGlobalDefaultNumberOfThreads()
    sitk.ProcessObject.SetGlobalDefaultNumberOfThreads(3)
    yield
    sitk.ProcessObject.SetGlobalDefaultNumberOfThreads(before)


@pytest.mark.release
def test_a_fork_registers_as_its_parent_does(as_users_run, two_threads):
    expected = register(*pair(3), "TV-L1").field
    np.testing.assert_allclose(in_fork(lambda: register(*pair(3), "TV-L1").field), expected, atol=1e-3)


def test_a_fork_computes_with_one_thread(two_threads):
    assert in_fork(torch.get_num_threads) == 1
    assert torch.get_num_threads() == 2


def test_one_thread_is_one_for_convolutions_too():
    """Those of ARM's library take all cores whatever PyTorch is told; only OpenMP can give them fewer."""
    convolution, image = torch.nn.Conv2d(32, 32, 3), torch.rand(2, 32, 96, 96)
    with torch.inference_mode(), use_threads(2):
        convolution(image)
    ratios = []
    with torch.inference_mode(), use_threads(1):
        for _ in range(5):
            all_threads, this_thread = process_time(), thread_time()
            for _ in range(8):
                convolution(image)
            ratios.append((process_time() - all_threads) / (thread_time() - this_thread))
    assert min(ratios) < 1.1  # threads of other libraries may wake up now and then


def state():
    """All that is set for the whole process, or for this thread, that a library might change."""
    import matplotlib as mpl

    return {
        "threads": torch.get_num_threads(),
        "gradients": torch.is_grad_enabled(),
        "inference": torch.is_inference_mode_enabled(),
        "type": torch.get_default_dtype(),
        "precision": torch.get_float32_matmul_precision(),
        "random": torch.get_rng_state().numpy().tobytes(),
        "numpy": str(np.random.get_state()),
        "itk": sitk.ProcessObject.GetGlobalWarningDisplay(),
        "itk threads": sitk.ProcessObject.GetGlobalDefaultNumberOfThreads(),
        "loggers": [logging.getLogger(name).level for name in ("", "nibabel", "matplotlib", "lightning")],
        "warnings": list(warnings.filters),
        "matplotlib": (mpl.get_backend(), dict(mpl.rcParams)),
        "signals": [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)],
        "place": (os.getcwd(), locale.setlocale(locale.LC_ALL), dict(os.environ)),  # noqa: PTH109
    }


def registrations(folder):
    """What a host program may do: arrays by each kind of method, and images from files."""
    from vrnet.app.pair_files import read_pair, register_files
    from vrnet.methods.names import parse_method

    for method in ("TV-L1", "Demons", "short-axis"):
        register(*pair(2), method)
    images = read_pair(**{name: folder / f"{name}.nii" for name in PARTS})
    register_files(lambda name: lambda done: None, images, parse_method("TV-L1").load(), folder / "out", report=True)


@pytest.fixture
def heart_files(tmp_path):
    """A folder with the images and labels of a small heart."""
    patient = phantom(3, (48, 48), 4.0)
    for name in PARTS:
        write_image(
            Image(getattr(patient, name)[0, 0].numpy(), Grid.plain((48, 48), (4.0, 4.0))), tmp_path / f"{name}.nii"
        )
    return tmp_path


@pytest.mark.release
def test_a_registration_leaves_all_settings_as_they_were_and_other_threads_see_none_changed(
    as_users_run, two_threads, heart_files
):
    registrations(heart_files)  # imports what it needs
    before, changed, done = state(), [], Event()
    local = {"threads", "gradients", "inference"}

    def watch():
        first = state()
        while not done.wait(LOOK_EVERY_S):
            now = state()
            changed.extend(name for name in now if now[name] != first[name])
            changed.extend(name for name in now if name not in local and now[name] != before[name])

    watcher = Thread(target=watch)
    watcher.start()
    registrations(heart_files)
    done.set()
    watcher.join()
    assert changed == []
    assert state() == before


@pytest.mark.skipif(not hasattr(LIBRARY, "omp_set_num_threads"), reason="PyTorch was built without OpenMP")
def test_a_thread_that_starts_meanwhile_has_the_number_of_the_process():
    with ThreadPoolExecutor(1) as pool:
        expected = pool.submit(torch.get_num_threads).result(WAIT_S)
    with use_threads(expected + 1), ThreadPoolExecutor(1) as pool:
        assert torch.get_num_threads() == expected + 1
        assert pool.submit(torch.get_num_threads).result(WAIT_S) == expected


def test_a_thread_sets_its_own_number_alone():
    before = torch.get_num_threads()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(set_threads, before + 2).result(WAIT_S)
        assert pool.submit(torch.get_num_threads).result(WAIT_S) == before + 2
    assert torch.get_num_threads() == before


def test_the_threads_of_itk_are_as_they_were_however_threads_overlap(itk_of_a_host):
    """One thread leaves while another is within: whoever restored what it had found would leave it changed."""
    count = sitk.ProcessObject.GetGlobalDefaultNumberOfThreads
    before, first, second = count(), one_thread(), one_thread()
    assert before != 1
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert count() == 1
    second.__exit__(None, None, None)
    assert count() == before


@pytest.mark.parametrize("count", [1, 2])
def test_shared_parts_are_computed_once_each_by_threads_that_compute_alone(count):
    seen = []

    def look(rows):
        seen.append((rows.start, torch.get_num_threads(), torch.is_grad_enabled(), torch.is_inference_mode_enabled()))
        return torch.zeros(1, 1, 1, 1)

    with use_threads(count), torch.inference_mode():
        make_rows(look, torch.empty(1, 1, 20, VOXELS_AT_ONCE))
        assert torch.get_num_threads() == count
    assert sorted(seen) == [(row, 1, False, True) for row in range(20)]


def test_an_error_in_a_shared_part_reaches_the_caller():
    with use_threads(2), torch.no_grad(), pytest.raises(ZeroDivisionError):
        make_rows(lambda rows: torch.ones(1) / (1 // rows.start), torch.empty(1, 1, 3, VOXELS_AT_ONCE))
