"""The scores of a subject of a cohort, one row each, then the mean and standard deviation of every column."""

from collections.abc import Iterable, Mapping
from time import perf_counter
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from vrnet.choices import Folds
from vrnet.data.sample import Sample
from vrnet.devices import CPU, capture_graph
from vrnet.evaluation.metrics import contour_hausdorff, dice
from vrnet.evaluation.pair import batch_regularity
from vrnet.fields import check_finite, warp_labels, zeros
from vrnet.files import Row, columns_of
from vrnet.methods.method import Method
from vrnet.repair import unfold
from vrnet.variational.cascade import Initializer


def build_for_shape(method: Method, sample: Sample, device: torch.device) -> Initializer:
    """What finds the field of a pair that has the shape and spacing of this sample's.

    A network on a GPU is recorded as a CUDA graph, which works for one shape alone."""
    find = method.build(len(sample.spacing), device)
    if device.type != "cuda" or not method.is_network or method.is_random:
        return find
    I0, I1 = sample.fixed[:1].to(device), sample.moving[:1].to(device)
    with torch.inference_mode():
        replay = capture_graph(lambda I0, I1: find(I0, I1, sample.spacing), I0, I1)
    return lambda I0, I1, spacing=None, masks=None: replay(I0, I1).clone()


def measure_subject(
    sample: Sample,
    find: Initializer,
    structures: Mapping[str, int],
    device: torch.device = CPU,
    folds: Folds = "keep",
) -> Row:
    """The scores of one subject, each the mean over its pairs, and the seconds per pair, one pair at a time.

    Overlaps where both images have labels, the end-point error where the motion is known."""
    start = perf_counter()
    with torch.inference_mode():
        pairs = zip(sample.fixed.to(device), sample.moving.to(device), strict=True)
        u = torch.cat([find(I0[None], I1[None], sample.spacing) for I0, I1 in pairs])
        check_finite(u, sample.name)
        u = (unfold(u).field if folds == "repair" else u).cpu()
    seconds = (perf_counter() - start) / len(sample.fixed)
    scores = subject_overlaps(sample, u, structures) | batch_regularity(u) | end_point_error(sample, u)
    return {"subject": sample.name, **scores, "seconds": seconds}


def measure_unregistered(sample: Sample, structures: Mapping[str, int]) -> Row:
    """The overlaps of one subject before registration."""
    return {"subject": sample.name, **subject_overlaps(sample, zeros(sample.fixed), structures)}


def subject_overlaps(sample: Sample, u: Float[Tensor, "b d *s"], structures: Mapping[str, int]) -> dict[str, float]:
    """The overlaps of one subject once its moving labels are warped by the fields u; none without labels."""
    if sample.fixed_labels is None or sample.moving_labels is None:
        return {}
    masks = sample.fixed_labels[:, 0].numpy(), warp_labels(sample.moving_labels, u)[:, 0].numpy()
    return mean_overlaps(list(zip(*masks, strict=True)), sample.spacing, structures)


def mean_overlaps(pairs: list[Any], spacing: tuple[float, ...], structures: Mapping[str, int]) -> dict[str, float]:
    """dice_NAME and hd_NAME of each structure, each the mean over pairs of label maps, and the means over structures.

    Pairs where a structure is absent do not count."""
    found = {}
    for kind, measure in (("dice", dice), ("hd", lambda a, b: contour_hausdorff(a, b, spacing))):
        for name, label in structures.items():
            values = [measure(a == label, b == label) for a, b in pairs]
            found[f"{kind}_{name}"] = nan_mean(values)
        found[f"{kind}_mean"] = nan_mean([found[f"{kind}_{name}"] for name in structures])
    return found


def end_point_error(sample: Sample, u: Float[Tensor, "b d *s"]) -> dict[str, float]:
    """Mean |u − field| in mm where fixed has a label, or everywhere if it has none; nothing without a true field."""
    if sample.field is None:
        return {}
    h = u.new_tensor(sample.spacing).view(1, -1, *[1] * len(sample.spacing))
    errors = ((u - sample.field) * h).norm(dim=1, keepdim=True)
    inside = torch.ones_like(errors, dtype=torch.bool) if sample.fixed_labels is None else sample.fixed_labels > 0
    return {"end_point_error_mm": errors[inside].mean().item()}


def summarise(rows: list[Row]) -> dict[str, dict[str, float]]:
    """{column: {"mean", "std"}} over the subjects that have a value there."""
    scores = [{key: value for key, value in row.items() if key != "subject"} for row in rows]
    values = {key: without_nan(row.get(key, np.nan) for row in scores) or [np.nan] for key in columns_of(scores)}
    return {key: {"mean": float(np.mean(column)), "std": float(np.std(column))} for key, column in values.items()}


def nan_mean(values: Iterable[float]) -> float:
    """The mean of the values that are not NaN; NaN if there are none."""
    found = without_nan(values)
    return float(np.mean(found)) if found else np.nan


def without_nan(values: Iterable[float]) -> list[float]:
    return [value for value in values if not np.isnan(value)]
