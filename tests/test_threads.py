"""What a host program has set stays set, for all its threads; and its forks can register."""

import locale
import logging
import multiprocessing as mp
import os
import signal
import warnings
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from threading import Event, Thread
from time import process_time, thread_time

import numpy as np
import pytest
import SimpleITK as sitk
import torch

from tests.app.conftest import PARTS
from vrnet.devices import set_threads, share, thread_library, use_threads
from vrnet.images.grid import Grid
from vrnet.images.image import Image
from vrnet.images.io import write_image
from vrnet.images.resample import one_thread
from vrnet.phantom import phantom
from vrnet.registration.arrays import register
from vrnet.registration.images import register_images

LOOK_EVERY_S = 0.01
WAIT_S = 60
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
def two_threads():
    """The host program computes with two threads, and PyTorch has started them."""
    with use_threads(2):
        torch.rand(1 << 20).exp().sum()
        yield


@pytest.fixture
def itk_of_a_host():
    """The host program has set ITK to three threads."""
    before = sitk.ProcessObject.GetGlobalDefaultNumberOfThreads()
    sitk.ProcessObject.SetGlobalDefaultNumberOfThreads(3)
    yield
    sitk.ProcessObject.SetGlobalDefaultNumberOfThreads(before)


# Forks


@pytest.mark.parametrize(
    ("method", "dimension"), [("TV-L1", 2), ("TV-L1", 3), ("Demons", 2), ("Demons", 3), ("short-axis", 2)]
)
def test_a_fork_registers_as_its_parent_does(as_users_run, two_threads, method, dimension):
    expected = register(*pair(dimension), method).field
    found = in_fork(lambda: register(*pair(dimension), method).field)
    np.testing.assert_allclose(found, expected, atol=1e-3)  # a network computes with one thread there


def test_a_fork_reads_pictures_and_registers_images(as_users_run, two_threads, tmp_path):
    """Pictures are read by another process, which belongs to the parent."""
    for name, array in zip(("fixed", "moving"), pair(2), strict=True):
        sitk.WriteImage(
            sitk.GetImageFromArray((255 * array.clip(0, 1)).astype(np.uint8)), str(tmp_path / f"{name}.png")
        )
    files = tmp_path / "fixed.png", tmp_path / "moving.png"
    expected = register_images(*files, "TV-L1").warped.array
    np.testing.assert_array_equal(in_fork(lambda: register_images(*files, "TV-L1").warped.array), expected)
    np.testing.assert_array_equal(register_images(*files, "TV-L1").warped.array, expected)  # the parent reads on


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


def test_a_fork_is_not_held_up_by_what_a_thread_of_its_parent_was_computing():
    started, end = Event(), Event()

    class Slow:
        @cached_property
        def value(self):
            started.set()
            end.wait(WAIT_S if mp.parent_process() is None else 0)
            return 1

    thread = Thread(target=lambda: Slow().value)
    thread.start()
    started.wait(WAIT_S)
    assert in_fork(lambda: Slow().value) == 1
    end.set()
    thread.join()


def test_what_is_cached_is_computed_once():
    class Counted:
        calls = 0

        @cached_property
        def value(self):
            self.calls += 1
            return self.calls

    counted = Counted()
    assert (counted.value, counted.value, counted.calls) == (1, 1, 1)


# Settings of the host program


def state():
    """All that is set for the whole process, or for this thread, that a library might change."""
    import matplotlib as mpl

    return {
        "threads": torch.get_num_threads(),
        "gradients": torch.is_grad_enabled(),
        "inference": torch.is_inference_mode_enabled(),
        "type": torch.get_default_dtype(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "precision": torch.get_float32_matmul_precision(),
        "random": torch.get_rng_state().numpy().tobytes(),
        "numpy": str(np.random.get_state()),
        "itk": sitk.ProcessObject.GetGlobalWarningDisplay(),
        "itk threads": sitk.ProcessObject.GetGlobalDefaultNumberOfThreads(),
        "loggers": [
            logging.getLogger(name).level for name in ("", "nibabel", "nibabel.global", "matplotlib", "lightning")
        ],
        "warnings": list(warnings.filters),
        "backend": mpl.get_backend(),
        "matplotlib": dict(mpl.rcParams),
        "signals": [
            signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, signal.SIGPIPE)
        ],
        "locale": locale.setlocale(locale.LC_ALL),
        "folder": os.getcwd(),  # noqa: PTH109
        "environment": dict(os.environ),
    }


def registrations(folder):
    """What a host program may do: arrays by each kind of method, and images from files, with pictures among them."""
    from vrnet.app.pair import read_pair, register_pair
    from vrnet.methods.names import ready

    for method in ("TV-L1", "Demons", "short-axis"):
        register(*pair(2), method)
    images = read_pair(*(folder / f"{name}.nii" for name in PARTS))
    register_pair(lambda name: lambda done: None, images, ready("TV-L1"), folder / "out", report=True)


@pytest.fixture
def heart_files(tmp_path):
    """A folder with the images and labels of a small heart."""
    patient = phantom(3, (48, 48), 4.0)
    for name in PARTS:
        write_image(
            Image(getattr(patient, name)[0, 0].numpy(), Grid.plain((48, 48), (4.0, 4.0))), tmp_path / f"{name}.nii"
        )
    return tmp_path


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


@pytest.mark.skipif(thread_library() is None, reason="PyTorch was built without OpenMP")
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

    def look(part):
        seen.append((part, torch.get_num_threads(), torch.is_grad_enabled(), torch.is_inference_mode_enabled()))

    with use_threads(count), torch.inference_mode():
        share(look, range(20))
        assert torch.get_num_threads() == count
    assert sorted(seen) == [(part, 1, False, True) for part in range(20)]


def test_an_error_in_a_shared_part_reaches_the_caller():
    with use_threads(2), torch.no_grad(), pytest.raises(ZeroDivisionError):
        share(lambda part: print(1 / part), range(3))
