"""Seconds a pair, one at a time: networks need no weights for that."""

import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import cast

import torch
from torch import nn

from vrnet.devices import capture_graph, channels_last, few_threads, has_cuda, synchronise
from vrnet.files import write_json
from vrnet.methods.method import Method
from vrnet.paper.study import hardware, versions
from vrnet.phantom import phantom
from vrnet.variational.cascade import Initializer

FOLDER, MOST = "runtime", 20
"""Where times are kept; pairs at most."""


def seconds(
    out: Path, method: Method, shape: tuple[int, ...], spacing: float, device: str, enough: float = 2.0
) -> float | None:
    """As measured before on such a device, or else now; None where there is no such device, or the tool has no use of
    it."""
    place = out / FOLDER / device / f"{method}_{sized(shape)}.json"
    if place.is_file():
        return float(json.loads(place.read_text(encoding="utf-8"))["seconds"])
    if device == "cuda" and (not has_cuda() or "cuda" not in method.devices):
        return None
    took = timed(method, shape, spacing, torch.device(device), enough)
    write_json({"seconds": took, "hardware": hardware(device), "versions": versions()}, place)
    return took


def sized(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape))


def machines(out: Path, shapes: Sequence[Sequence[int]]) -> list[str]:
    """What images of these shapes were registered on."""
    places = [place for shape in shapes for place in (out / FOLDER).glob(f"*/*_{sized(shape)}.json")]
    return sorted({json.loads(place.read_text(encoding="utf-8"))["hardware"] for place in places})


def timed(method: Method, shape: tuple[int, ...], spacing: float, device: torch.device, enough: float) -> float:
    """Seconds a pair of phantom images, after one to warm up; measured for `enough` seconds."""
    patient = phantom(7, shape, spacing)
    pair = patient.fixed.to(device), patient.moving.to(device)
    with torch.inference_mode():
        find = ready(method, pair, patient.spacing)
        find()
        synchronise(device)
        done, start = 0, perf_counter()
        while done == 0 or (perf_counter() - start < enough and done < MOST):
            find()
            synchronise(device)
            done += 1
        return (perf_counter() - start) / done


def ready(
    method: Method, pair: tuple[torch.Tensor, torch.Tensor], spacing: tuple[float, ...]
) -> Callable[[], torch.Tensor]:
    """The registration of this pair; a network on a GPU is recorded, as in use."""
    d, device = len(spacing), pair[0].device
    if not method.is_network:
        return partial(solved, method.build(d, device), pair, spacing)
    model = cast(nn.Module, method.build(d, device)).eval()
    if device.type == "cuda":
        return partial(capture_graph(lambda I0, I1: channels_last(model, d)(I0, I1, spacing), *pair), *pair)
    return partial(model, *pair, spacing)


def solved(find: Initializer, pair: tuple[torch.Tensor, torch.Tensor], spacing: tuple[float, ...]) -> torch.Tensor:
    """By an iterative method, with as many threads as in use."""
    with few_threads(pair[0].numel()):
        return find(*pair, spacing)
