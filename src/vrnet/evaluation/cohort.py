"""A method on a cohort: a row a subject, then the mean and standard deviation of every column."""

import csv
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vrnet.data.sample import Sample
from vrnet.evaluation.evaluate import regularity_of
from vrnet.evaluation.metrics import contour_hausdorff, dice
from vrnet.fields import warp_labels
from vrnet.images.files import written_whole
from vrnet.variational.cascade import Spacing

Row = dict[str, Any]
Find = Callable[[Tensor, Tensor, Spacing], Tensor]


def measured(sample: Sample, find: Find, structures: Mapping[str, int], device: str = "cpu") -> Row:
    """The scores of one subject: the mean over its pairs; the mean of its structures; seconds a pair, one at a time."""
    start = perf_counter()
    with torch.inference_mode():
        pairs = zip(sample.fixed.to(device), sample.moving.to(device), strict=True)
        u = torch.cat([find(I0[None], I1[None], sample.spacing) for I0, I1 in pairs]).cpu()
    seconds = (perf_counter() - start) / len(sample.fixed)
    masks = sample.fixed_labels[:, 0].numpy(), warp_labels(sample.moving_labels, u)[:, 0].numpy()
    scores = overlaps(list(zip(*masks, strict=True)), sample.spacing, structures)
    return {"subject": sample.name, **scores, **regularity_of(u), "seconds": seconds}


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
    present = [value for value in values if not np.isnan(value)]
    return float(np.mean(present)) if present else np.nan


def summarised(found: list[Row]) -> dict[str, dict[str, float]]:
    """{column: {"mean", "std"}} over the subjects that have a value there."""
    columns = [key for key in found[0] if key != "subject"]
    values = {key: [row[key] for row in found if not np.isnan(row[key])] or [np.nan] for key in columns}
    return {key: {"mean": float(np.mean(column)), "std": float(np.std(column))} for key, column in values.items()}


def write_rows(found: list[Row], path: Path) -> None:
    """metrics.csv: a row a subject."""
    with written_whole(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(found[0]))
        writer.writeheader()
        writer.writerows(found)
