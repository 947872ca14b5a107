"""The paper's figures that show images: all methods on one subject, and the field after each cascade."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import torch
from numpy import ndarray
from torch import Tensor

from vrnet.data.protocols import Sample
from vrnet.fields.calculus import warp, warp_labels
from vrnet.files import Row
from vrnet.methods.method import Method
from vrnet.methods.names import missing_package, parse
from vrnet.networks.denoisers import Noise
from vrnet.paper import figures
from vrnet.paper.figures import COMPARED_METHODS
from vrnet.paper.results import Study
from vrnet.report.drawing import label_colours, motion_colours
from vrnet.report.figures import draw_contours, show_grid, show_jacobian
from vrnet.report.pair import Deformation, deformation
from vrnet.variational.cascade import Cascade

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ROWS = ("warped", "its mask, fixed outlined", "displacement", "grid", "Jacobian, folds green", "difference from fixed")
INPUT_ROWS = ("fixed", "its mask", "moving", "its mask", "", "difference before")


class RegisteredSlice(NamedTuple):
    """Slice k of a subject after a registration, (w, h); of an image the whole of it."""

    k: int
    image: ndarray
    labels: ndarray
    u: ndarray
    """(2, w, h), in voxels: motion within the slice."""
    deformed: Deformation


def draw_comparison(study: Study) -> "tuple[Figure, list[Row]]":
    """ROWS of each method in a column, and INPUT_ROWS, before registration, in the first."""
    names = [name for name in COMPARED_METHODS[study.d] if missing_package(parse(name)) is None]
    sample = study.test.samples[len(study.test.samples) // 2]
    pair, found = len(sample.fixed) // 2, {}
    one = slice(pair, pair + 1)
    for name, method in zip(names, ready_methods(study, names), strict=True):
        with torch.inference_mode():
            u = method.build(study.d)(sample.fixed[one], sample.moving[one], sample.spacing).cpu()
        found[name] = cut_slice(sample, pair, u)
    before = cut_slice(sample, pair, torch.zeros(1, study.d, *sample.fixed.shape[2:]))
    fixed, mask = (slice_of(part[pair], before.k)[0] for part in (sample.fixed, cast(Tensor, sample.fixed_labels)))
    figure, axes = new_grid(len(ROWS), len(found) + 1, 2.2, f"{study.data}, {sample.name}")
    grey: dict[str, Any] = {"cmap": "gray", "vmin": 0, "vmax": 1}
    axes[0, 0].imshow(fixed.T, **grey)
    show_mask(axes[1, 0], mask)
    axes[2, 0].imshow(before.image.T, **grey)
    show_mask(axes[3, 0], before.labels)
    axes[4, 0].set_axis_off()
    scale = max(float(np.abs(after.u).max()) for after in found.values()) or 1.0  # one for all: voxels of full colour
    for column, (name, after) in zip(axes.T[1:], found.items(), strict=True):
        column[0].imshow(after.image.T, **grey)
        show_mask(column[1], after.labels, mask)
        column[2].imshow(motion_colours(after.u[0], after.u[1], scale).swapaxes(0, 1))
        show_grid(column[3], after.u)
        show_jacobian(column[4], after.deformed, bar=False)
        for ax in column:
            ax.set_title("")
        column[0].set_title(name, fontsize=10)
    for ax, shown in zip(axes[5], [before, *found.values()], strict=True):
        ax.imshow(np.abs(shown.image - fixed).T, cmap="inferno", vmin=0, vmax=0.5)
    for column, titles in zip(axes.T[:2], (INPUT_ROWS, ROWS), strict=True):
        for ax, title in zip(column, titles, strict=True):
            ax.set_ylabel(title, fontsize=8)
    return figure, [
        {"method": name, "mean_difference": float(np.abs(after.image - fixed).mean())} for name, after in found.items()
    ]


def ready_methods(study: Study, names: Iterable[str]) -> list[Method]:
    """The methods, ready to register; learned ones are trained if their weights are not there."""
    entries = [study.results.entry(name) for name in names]
    list(study.train(entries))
    return [study.choose(entry).load() for entry in entries]


def new_grid(rows: int, columns: int, height: float, title: str) -> "tuple[Figure, Any]":
    """A figure of rows x columns axes without ticks, each row so many inches high."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(2.1 * columns, height * rows), layout="constrained")
    axes = figure.subplots(rows, columns)
    for ax in axes.flat:
        ax.set(xticks=[], yticks=[])
    figure.suptitle(title)
    return figure, axes


def cut_slice(sample: Sample, pair: int, u: Tensor) -> RegisteredSlice:
    """The slice of a registered pair that shows most of the heart."""
    one, labels = slice(pair, pair + 1), cast(Tensor, sample.fixed_labels)[pair, 0]
    k = int((labels > 0).sum((0, 1)).numpy().argmax()) if labels.dim() == 3 else 0
    warped = warp(sample.moving[one], u), warp_labels(cast(Tensor, sample.moving_labels)[one], u)
    image, mask = (slice_of(part[0], k)[0] for part in warped)
    return RegisteredSlice(k, image, mask, slice_of(u[0], k)[:2], deformation(u[0].numpy(), k))


def slice_of(x: Tensor, k: int) -> ndarray:
    """Slice k of a volume; an image as it is."""
    return (x if x.dim() == 3 else x[..., k]).numpy()


def show_mask(ax: "Axes", labels: ndarray, truth: ndarray | None = None) -> None:
    """A label map in grey, and the outlines of the true one in green."""
    ax.imshow(labels.T, cmap="gray", vmin=0, interpolation="nearest")
    if truth is not None:
        draw_contours(ax, truth, dict.fromkeys(label_colours(np.unique(truth[truth > 0]).tolist()), "lime"), "solid")


def draw_denoising(study: Study) -> "tuple[Figure, list[Row]]":
    """The field after each cascade of R-L2-6x1 and its mean |∇u|, from a guess with noise and from noise alone."""
    names = ("R-L2-6x1", "R-L2-6x1-noise") if study.d == 2 else ("R-L2-2x1", "R-L2-2x1-noise")
    sample, methods = study.test.samples[0], ready_methods(study, names)
    found = {name: field_states(method, sample) for name, method in zip(names, methods, strict=True)}
    count = len(found[names[0]])
    figure, axes = new_grid(2 * len(found), count, 2.25, f"{study.data}, {sample.name}: the field after each cascade")
    numbers: list[Row] = []
    for place, (name, states) in enumerate(found.items()):
        scale = float(np.abs(states[-1]).max()) or 1.0
        for k, u in enumerate(states):
            above, below = axes[2 * place : 2 * place + 2, k]
            above.imshow(motion_colours(u[0], u[1], scale).swapaxes(0, 1))
            above.set_title("start" if k == 0 else f"cascade {k}", fontsize=9)
            show_grid(below, u)
            below.set_title("")
            roughness = float(np.mean([np.abs(np.diff(u, axis=axis)).mean() for axis in (1, 2)]))
            numbers.append({"method": name, "cascade": k, "roughness": roughness})
        axes[2 * place, 0].set_ylabel(name)
    return figure, numbers


def field_states(method: Method, sample: Sample) -> list[ndarray]:
    """The noisy start, and the field after each cascade: motion within the image, or the middle slice, (2, w, h)."""
    I0, I1, model = sample.fixed[:1], sample.moving[:1], cast(Cascade, method.model)
    with torch.inference_mode():
        first = model.init(I0, I1, sample.spacing)
        if not isinstance(model.init, Noise):  # a guess, to which noise of one voxel is added
            first = first + torch.randn(first.shape, generator=torch.Generator().manual_seed(1))
        after = [state.v for state in model.refine(first, I0, I1, sample.spacing) if not state.is_fresh]
    return [slice_of(v[0], first.shape[-1] // 2)[:2] for v in (first, *after)]


FIGURES = figures.FIGURES | {"visual": draw_comparison, "denoising": draw_denoising}
