"""The demonstration: register a phantom's end-systole to its end-diastole, and show how well that went."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from vrnet.data.phantom import Phantom
from vrnet.evaluation.evaluate import overlap, regularity, similarity
from vrnet.fields import warp_labels
from vrnet.images.grid import Grid
from vrnet.images.io import write_image, write_transform, written_whole
from vrnet.methods.names import Method
from vrnet.registration import Registration, register
from vrnet.report.figures import Pair, overview, save

STRUCTURES = {"3": "LV", "2": "Myo", "1": "RV"}


@dataclass(frozen=True)
class Demo:
    """What the demonstration found, and the folder it wrote."""

    pair: Pair
    metrics: dict[str, Any]
    end_point_error: dict[str, float]
    """Mean distance from the true motion inside the heart, in mm, before and after."""
    folder: Path


def run(patient: Phantom, folder: Path, method: Method, progress: Callable[[float], None] | None = None) -> Demo:
    """Register a phantom and write the pair, what became of it, the transform, the measures and a figure."""
    result = register(patient.fixed[0, 0], patient.moving[0, 0], method, progress)
    warped_labels = warp_labels(patient.moving_labels, result.field[None])
    images = {
        "fixed": patient.fixed,
        "moving": patient.moving,
        "warped": result.warped[None, None],
        "fixed_labels": patient.fixed_labels,
        "moving_labels": patient.moving_labels,
        "warped_labels": warped_labels,
    }
    pair = Pair(field=result.field.numpy(), **{name: image[0, 0].numpy() for name, image in images.items()})
    demo = Demo(pair, measured(pair, result, patient.spacing), end_point_error(patient, result.field), folder)
    write(demo, Grid.plain(pair.fixed.shape, patient.spacing))
    return demo


def measured(pair: Pair, result: Registration[Tensor], spacing: tuple[float, ...]) -> dict[str, Any]:
    """The contents of metrics.json."""
    return {
        "method": result.method,
        "device": result.field.device.type,
        "seconds": result.seconds,
        "shape": list(pair.fixed.shape),
        "spacing_mm": list(spacing),
        "similarity": similarity(pair.fixed, pair.moving, pair.warped),
        **regularity(pair.field),
        **overlap(pair.fixed_labels, pair.moving_labels, pair.warped_labels, spacing),
    }


def end_point_error(patient: Phantom, field: Float[Tensor, "d *s"]) -> dict[str, float]:
    """Mean |u − true u| over the labelled voxels, in mm, of no motion and of the field found."""
    heart = patient.fixed_labels[0, 0] > 0
    true = patient.field[0][:, heart]
    mm = torch.tensor(patient.spacing)[:, None]
    found = {"before": torch.zeros_like(true), "after": field[:, heart]}
    return {when: ((u - true) * mm).norm(dim=0).mean().item() for when, u in found.items()}


def write(demo: Demo, grid: Grid) -> None:
    """Every image, the transform, the measures and the figure."""
    demo.folder.mkdir(parents=True, exist_ok=True)
    for name, array in vars(demo.pair).items():
        if name != "field":
            write_image(array, grid, demo.folder / f"{name}.nii.gz")
    write_transform(demo.pair.field, grid, demo.folder / "transform.nii.gz")
    with written_whole(demo.folder / "metrics.json") as path:
        path.write_text(json.dumps(demo.metrics, indent=2) + "\n")
    dice = demo.metrics["dice"]
    title = f"{demo.metrics['method']}: mean Dice {dice['before']['mean']:.3f} → {dice['after']['mean']:.3f}"
    save(overview(demo.pair, title), demo.folder / "overview.png")
