"""Seconds a pair, one at a time: networks need no weights for that."""

import json
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

import torch

from vrnet.data.phantom import phantom
from vrnet.methods.learned import Learned
from vrnet.methods.names import Ready
from vrnet.methods.outside import FFD, Demons, SyN
from vrnet.networks.capture import captured, laid_out
from vrnet.paper.study import hardware, versions
from vrnet.registration import few_threads
from vrnet.workflow import write_json

ENOUGH, MOST = 2.0, 20
"""Seconds to measure for, and pairs at most."""


def seconds(out: Path, method: Ready | Learned, shape: tuple[int, ...], spacing: float, device: str) -> float | None:
    """As measured before on such a device, or else now; None where there is no such device, or the tool has no use of
    it."""
    place = out / "runtime" / device / f"{method}_{'x'.join(map(str, shape))}.json"
    if place.is_file():
        return float(json.loads(place.read_text(encoding="utf-8"))["seconds"])
    if device == "cuda" and (not torch.cuda.is_available() or isinstance(method, FFD | Demons | SyN)):
        return None
    took = timed(method, shape, spacing, torch.device(device))
    write_json({"seconds": took, "hardware": hardware(device), "versions": versions()}, place)
    return took


def timed(method: Ready | Learned, shape: tuple[int, ...], spacing: float, device: torch.device) -> float:
    """Seconds a pair of phantom images, after one to warm up."""
    patient = phantom(7, shape, spacing)
    pair = patient.fixed.to(device), patient.moving.to(device)
    with torch.inference_mode():
        find = ready(method, pair, patient.spacing, device)
        find()
        done, start = 0, perf_counter()
        while done == 0 or (perf_counter() - start < ENOUGH and done < MOST):
            find()
            done += 1
            if device.type == "cuda":
                torch.cuda.synchronize(device)
        return (perf_counter() - start) / done


def ready(
    method: Ready | Learned, pair: tuple[torch.Tensor, torch.Tensor], spacing: tuple[float, ...], device: torch.device
) -> Callable[[], torch.Tensor]:
    """The registration of this pair; a network on a GPU is recorded, as in use."""
    build = method.build(len(spacing))
    if not isinstance(method, Learned):

        def solve() -> torch.Tensor:
            with few_threads(pair[0].numel()):
                return build(*pair, spacing)

        return solve
    model = method.build(len(spacing)).to(device).eval()
    if device.type == "cuda":
        replay = captured(lambda I0, I1: laid_out(model, len(spacing))(I0, I1, spacing), *pair)
        return lambda: replay(*pair)
    return lambda: model(*pair, spacing)
