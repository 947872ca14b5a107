"""A method on a cohort: a row a subject, then the mean and standard deviation of every column."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from vrnet.data.prepared import PreparedSplit
from vrnet.data.sample import Sample
from vrnet.devices import capture_graph, find_device, threads_for
from vrnet.evaluation.metrics import contour_hausdorff, dice
from vrnet.evaluation.pair import regularity_of
from vrnet.fields import warp_labels, zeros
from vrnet.files import Row, check_folder, columns_of, write_json, write_rows
from vrnet.methods.method import Method
from vrnet.progress import Stage
from vrnet.variational.cascade import Initializer


def measured(sample: Sample, find: Initializer, structures: Mapping[str, int], device: str = "cpu") -> Row:
    """The scores of one subject: the mean over its pairs; the mean of its structures; seconds a pair, one at a time.

    Overlaps where both images have labels, the end-point error where the motion is known."""
    start = perf_counter()
    with torch.inference_mode():
        pairs = zip(sample.fixed.to(device), sample.moving.to(device), strict=True)
        u = torch.cat([find(I0[None], I1[None], sample.spacing) for I0, I1 in pairs]).cpu()
    seconds = (perf_counter() - start) / len(sample.fixed)
    scores = overlaps_of(sample, u, structures) | regularity_of(u) | end_point_error_of(sample, u)
    return {"subject": sample.name, **scores, "seconds": seconds}


def unregistered(sample: Sample, structures: Mapping[str, int]) -> Row:
    """The overlaps of one subject as it is."""
    return {"subject": sample.name, **overlaps_of(sample, zeros(sample.fixed), structures)}


def overlaps_of(sample: Sample, u: Float[Tensor, "b d *s"], structures: Mapping[str, int]) -> dict[str, float]:
    """The overlaps that fields leave; none without labels."""
    if sample.fixed_labels is None or sample.moving_labels is None:
        return {}
    masks = sample.fixed_labels[:, 0].numpy(), warp_labels(sample.moving_labels, u)[:, 0].numpy()
    return overlaps(list(zip(*masks, strict=True)), sample.spacing, structures)


def end_point_error_of(sample: Sample, u: Float[Tensor, "b d *s"]) -> dict[str, float]:
    """Mean |u − field| in mm where fixed has a label, or everywhere if it has none; nothing without a true field."""
    if sample.field is None:
        return {}
    h = u.new_tensor(sample.spacing).view(1, -1, *[1] * len(sample.spacing))
    errors = ((u - sample.field) * h).norm(dim=1, keepdim=True)
    inside = torch.ones_like(errors, dtype=torch.bool) if sample.fixed_labels is None else sample.fixed_labels > 0
    return {"end_point_error_mm": errors[inside].mean().item()}


def overlaps(pairs: list[Any], spacing: tuple[float, ...], structures: Mapping[str, int]) -> dict[str, float]:
    """dice_NAME and hd_NAME of each structure, and their means; pairs where a structure is absent do not count."""
    found = {}
    for kind, measure in (("dice", dice), ("hd", lambda a, b: contour_hausdorff(a, b, spacing))):
        for name, label in structures.items():
            values = [measure(a == label, b == label) for a, b in pairs]
            found[f"{kind}_{name}"] = nan_mean(values)
        found[f"{kind}_mean"] = nan_mean([found[f"{kind}_{name}"] for name in structures])
    return found


def nan_mean(values: Iterable[float]) -> float:
    found = present(values)
    return float(np.mean(found)) if found else np.nan


def present(values: Iterable[float]) -> list[float]:
    """Those that could be measured."""
    return [value for value in values if not np.isnan(value)]


def summarise(found: list[Row]) -> dict[str, dict[str, float]]:
    """{column: {"mean", "std"}} over the subjects that have a value there."""
    rows = [{key: value for key, value in row.items() if key != "subject"} for row in found]
    values = {key: present(row.get(key, np.nan) for row in rows) or [np.nan] for key in columns_of(rows)}
    return {key: {"mean": float(np.mean(column)), "std": float(np.std(column))} for key, column in values.items()}


def run_cohort(stage: Stage, method: Method, pairs: PreparedSplit, folder: Path, device: str = "cpu") -> dict[str, Any]:
    """Measure a method on every subject of a split; write metrics.csv and summary.json, and return the latter."""
    check_folder(folder, ("metrics.csv", "summary.json"))
    there, first, found, before = find_device(device), pairs.samples[0], [], []
    ready = method.resolve(len(first.spacing), first.spacing)
    find = quick(ready, first, there)
    tick = stage(f"{ready} on {len(pairs.samples)} subjects")
    for done, sample in enumerate(pairs.samples, start=1):
        with threads_for(ready.is_network, sample.fixed[0].numel()):
            found.append(measured(sample, find, pairs.structures, there.type))
            before.append(unregistered(sample, pairs.structures))
        tick(done / len(pairs.samples))
    what = {"method": str(ready), "weights": ready.weights, "data": pairs.data, "split": pairs.split}
    summary: dict[str, Any] = {**what, "subjects": len(found), "metrics": summarise(found)}
    summary["before"] = summarise(before)
    write_rows(found, folder / "metrics.csv")
    write_json(summary, folder / "summary.json")
    return summary


def quick(method: Method, sample: Sample, device: torch.device) -> Initializer:
    """What finds the field of a pair; a network on a GPU is recorded once, since all pairs have one shape."""
    find = method.build(len(sample.spacing), device)
    if device.type != "cuda" or not method.is_network or method.is_random:
        return find
    I0, I1 = sample.fixed[:1].to(device), sample.moving[:1].to(device)
    with torch.inference_mode():
        replay = capture_graph(lambda I0, I1: find(I0, I1, sample.spacing), I0, I1)
    return lambda I0, I1, spacing: replay(I0, I1).clone()
