"""Seconds per pair, one pair at a time: networks need no trained weights for that."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import cast

import torch
from torch import nn

from vrnet.devices import capture_graph, channels_last, describe_device, few_threads, has_cuda, synchronise
from vrnet.files import read_json, write_json
from vrnet.methods.method import Method
from vrnet.paper.results import file_name
from vrnet.phantom import phantom
from vrnet.provenance import versions
from vrnet.schema import read_record
from vrnet.variational.cascade import Initializer
from vrnet.wording import shape_text

FOLDER = "runtime"
"""Where times are kept, below the folder of results."""
MAX_TIMED_PAIRS = 20
PHANTOM_SEED = 7


@dataclass(frozen=True)
class Timing:
    """What a file of the folder holds."""

    seconds: float
    hardware: str
    versions: dict[str, str | None]


def seconds_per_pair(
    out: Path, method: Method, shape: tuple[int, ...], spacing: float, device: str, timing_seconds: float = 2.0
) -> float | None:
    """As measured before on a device of that name, or else now; None where there is no such device here, or the method
    has no use for it."""
    path = out / FOLDER / device / f"{file_name(method)}_{shape_text(shape)}.json"
    if path.is_file():
        return read_timing(path).seconds
    if device == "cuda" and (not has_cuda() or "cuda" not in method.devices):
        return None
    place = torch.device(device)
    seconds = measure_seconds(method, shape, spacing, place, timing_seconds)
    write_json({"seconds": seconds, "hardware": describe_device(place), "versions": versions()}, path)
    return seconds


def read_timing(path: Path) -> Timing:
    """What was measured before."""
    return read_record(read_json(path), Timing, path, "remove it, and it is measured again")


def timing_hardware(out: Path, shapes: Sequence[Sequence[int]]) -> list[str]:
    """What images of these shapes were timed on."""
    paths = [path for shape in shapes for path in (out / FOLDER).glob(f"*/*_{shape_text(shape)}.json")]
    return sorted({in_singular(read_timing(path).hardware) for path in paths})


def in_singular(hardware: str) -> str:
    """The name of a machine as vrnet writes it now: files of version 0.4 and before have "1 threads"."""
    return hardware.replace("CPU, 1 threads", "CPU, 1 thread")


def measure_seconds(
    method: Method, shape: tuple[int, ...], spacing: float, device: torch.device, timing_seconds: float
) -> float:
    """Seconds per pair of phantom images, after one pair to warm up; the mean over what `timing_seconds` allow."""
    patient = phantom(PHANTOM_SEED, shape, spacing)
    pair = patient.fixed.to(device), patient.moving.to(device)
    with torch.inference_mode():
        register = prepare_registration(method, pair, patient.spacing)
        register()
        synchronise(device)
        done, start = 0, perf_counter()
        while done == 0 or (perf_counter() - start < timing_seconds and done < MAX_TIMED_PAIRS):
            register()
            synchronise(device)
            done += 1
        return (perf_counter() - start) / done


def prepare_registration(
    method: Method, pair: tuple[torch.Tensor, torch.Tensor], spacing: tuple[float, ...]
) -> Callable[[], torch.Tensor]:
    """What registers this pair when it is called; a network on a GPU is recorded first, as in use."""
    d, device = len(spacing), pair[0].device
    if not method.is_network:
        return partial(solve, method.build(d, device), pair, spacing)
    model = cast(nn.Module, method.build(d, device)).eval()
    if device.type == "cuda":
        return partial(capture_graph(lambda I0, I1: channels_last(model, d)(I0, I1, spacing), *pair), *pair)
    return partial(model, *pair, spacing)


def solve(find: Initializer, pair: tuple[torch.Tensor, torch.Tensor], spacing: tuple[float, ...]) -> torch.Tensor:
    """Register by an iterative method, with as many threads as in use."""
    with few_threads(pair[0].numel()):
        return find(*pair, spacing)
