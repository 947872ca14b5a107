"""The figures that show images: all methods on one subject, and the field after each step of denoising."""

from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np
import torch
from numpy import ndarray
from torch import Tensor

from vrnet.data.sample import Sample
from vrnet.fields import warp, warp_labels
from vrnet.files import Row
from vrnet.methods.method import Method
from vrnet.networks.adaptors import Noise
from vrnet.paper.study import Study
from vrnet.report.colours import label_colours, motion_colours
from vrnet.report.figures import draw_contours, show_grid, show_jacobian
from vrnet.report.pair import deformation
from vrnet.variational.cascade import Cascade

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COMPARED_METHODS = {
    2: ("FFD", "TV-L1", "Siamese", "VoxelMorph", "2xRC-Net", "R-L1-3x2", "C-L2-3x1"),
    3: ("Demons", "SyN", "FFD", "VoxelMorph", "2xRC-Net", "R-L1-2x1", "C-L1-2x1"),
}
ROWS = ("warped", "its mask, fixed outlined", "displacement", "grid", "Jacobian, folds green", "difference from fixed")
"""What the column of a method shows."""
INPUT_ROWS = ("fixed", "its mask", "moving", "its mask", "", "difference before")
"""What the first column shows."""
NOISE_VOXELS = 1.0
"""Standard deviation of the noise that is added to a guess."""
NOISE_SEED = 1


class RegisteredSlice(NamedTuple):
    """One slice of a subject after a registration, (w, h)."""

    image: ndarray
    labels: ndarray | None
    u: ndarray
    """(2, w, h), in voxels: motion within the slice."""
    field: ndarray
    """The whole field, (d, *s)."""
    k: int
    """The number of the slice; in 2D 0."""


def draw_comparison(study: Study) -> "tuple[Figure, list[Row]]":
    """Warped image, warped mask, displacement, grid, Jacobian and difference, one column per method."""
    names = [name for name in COMPARED_METHODS[study.d] if study.can_run(name)]
    sample = study.test.samples[len(study.test.samples) // 2]
    pair = len(sample.fixed) // 2
    methods = study.methods([study.results.entry(name) for name in names])
    found = {
        name: cut_slice(sample, pair, find_field(method, sample, pair))
        for name, method in zip(names, methods, strict=True)
    }
    before = cut_slice(sample, pair, torch.zeros(1, study.d, *sample.fixed.shape[2:]))
    fixed, labels = slice_of(sample.fixed[pair, 0], before.k), sample.fixed_labels
    mask = None if labels is None else slice_of(labels[pair, 0], before.k)
    figure = draw_methods(fixed, mask, before, found, f"{study.data}, {sample.name}")
    return figure, [
        {"method": name, "mean_difference": float(np.abs(after.image - fixed).mean())} for name, after in found.items()
    ]


def draw_methods(
    fixed: ndarray, mask: ndarray | None, before: RegisteredSlice, found: dict[str, RegisteredSlice], title: str
) -> "Figure":
    """The images before registration in the first column, then one column per method."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(2.1 * (len(found) + 1), 2.2 * len(ROWS)), layout="constrained")
    axes = figure.subplots(len(ROWS), len(found) + 1)
    show_inputs(list(axes[:, 0]), fixed, mask, before)
    scale = max(float(np.abs(after.u).max()) for after in found.values())
    for column, (name, after) in zip(axes.T[1:], found.items(), strict=True):
        column[0].set_title(name, fontsize=10)
        show_method(list(column), fixed, mask, after, scale)
    for ax in axes.flat:
        ax.set(xticks=[], yticks=[])
    for column, labels in zip(axes.T[:2], (INPUT_ROWS, ROWS), strict=True):
        for ax, label in zip(column, labels, strict=True):
            ax.set_ylabel(label, fontsize=8)
    figure.suptitle(title)
    return figure


def find_field(method: Method, sample: Sample, pair: int) -> Tensor:
    """The field that a method finds for one pair of a subject, (1, d, *s)."""
    with torch.inference_mode():
        find = method.build(len(sample.spacing))
        return find(sample.fixed[pair : pair + 1], sample.moving[pair : pair + 1], sample.spacing).cpu()


def cut_slice(sample: Sample, pair: int, u: Tensor) -> RegisteredSlice:
    """The slice of a registered pair that shows most of the heart."""
    d, one = len(sample.spacing), slice(pair, pair + 1)
    labels = None if sample.fixed_labels is None else sample.fixed_labels[pair, 0].numpy()
    k = 0
    if d == 3:
        k = u.shape[-1] // 2 if labels is None else int(np.argmax((labels > 0).sum((0, 1))))
    warped_labels = None
    if sample.moving_labels is not None:
        warped_labels = slice_of(warp_labels(sample.moving_labels[one], u)[0, 0], k)
    warped = slice_of(warp(sample.moving[one], u)[0, 0], k)
    return RegisteredSlice(warped, warped_labels, motion_in_slice(u, k), u[0].numpy(), k)


def slice_of(array: Tensor, k: int) -> ndarray:
    """Slice k of a volume; an image as it is."""
    return (array if array.dim() == 2 else array[..., k]).numpy()


def motion_in_slice(u: Tensor, k: int) -> ndarray:
    """The motion in the plane of an image, or of slice k of a volume, (2, w, h)."""
    return (u[0] if u.dim() == 4 else u[0, :2, ..., k]).numpy()


def show_inputs(axes: "list[Axes]", fixed: ndarray, mask: ndarray | None, before: RegisteredSlice) -> None:
    """Fixed and its mask, moving and its mask, and their difference."""
    for ax, image in ((axes[0], fixed), (axes[2], before.image)):
        ax.imshow(image.T, cmap="gray", vmin=0, vmax=1)
    for ax, labels in ((axes[1], mask), (axes[3], before.labels)):
        show_mask(ax, labels, None)
    axes[4].set_axis_off()
    axes[5].imshow(np.abs(before.image - fixed).T, cmap="inferno", vmin=0, vmax=0.5)


def show_method(axes: "list[Axes]", fixed: ndarray, mask: ndarray | None, after: RegisteredSlice, scale: float) -> None:
    """What a method finds; `scale` is the motion of full colour in voxels, one for all methods."""
    axes[0].imshow(after.image.T, cmap="gray", vmin=0, vmax=1)
    show_mask(axes[1], after.labels, mask)
    axes[2].imshow(motion_colours(after.u[0], after.u[1], scale or 1.0).swapaxes(0, 1))
    show_grid(axes[3], after.u)
    axes[3].set_title("")
    show_jacobian(axes[4], deformation(after.field, after.k), bar=False)
    axes[4].set_title("")
    axes[5].imshow(np.abs(after.image - fixed).T, cmap="inferno", vmin=0, vmax=0.5)


def show_mask(ax: "Axes", labels: ndarray | None, truth: ndarray | None) -> None:
    """A label map in grey, and the outlines of the true one in green."""
    if labels is not None:
        ax.imshow(labels.T, cmap="gray", vmin=0, interpolation="nearest")
    if truth is not None:
        draw_contours(ax, truth, dict.fromkeys(label_colours(np.unique(truth[truth > 0]).tolist()), "lime"), "solid")


def draw_denoising(study: Study) -> "tuple[Figure, list[Row]]":
    """The field after each cascade of R-L2-6x1, from a noisy start: its own guess with noise added, and noise alone."""
    names = ("R-L2-6x1", "R-L2-6x1-noise") if study.d == 2 else ("R-L2-2x1", "R-L2-2x1-noise")
    sample, methods = study.test.samples[0], study.methods([study.results.entry(name) for name in names])
    found = {name: field_states(method, sample) for name, method in zip(names, methods, strict=True)}
    figure = draw_states(found, f"{study.data}, {sample.name}: the field after each cascade")
    numbers = [
        {"method": name, "cascade": k, "roughness": roughness(u)}
        for name, states in found.items()
        for k, u in enumerate(states)
    ]
    return figure, numbers


def field_states(method: Method, sample: Sample) -> list[ndarray]:
    """The noisy start, and the field after each cascade: motion within the image, or the middle slice, (2, w, h).

    Noise is added to a guess; a start that is noise stays as it is."""
    I0, I1, model = sample.fixed[:1], sample.moving[:1], cast(Cascade, method.model)
    with torch.inference_mode():
        first = model.init(I0, I1, sample.spacing)
        if not isinstance(model.init, Noise):
            first = first + NOISE_VOXELS * torch.randn(first.shape, generator=torch.Generator().manual_seed(NOISE_SEED))
        after = [state.v for state in model.refine(first, I0, I1, sample.spacing) if not state.is_fresh]
    return [motion_in_slice(v, first.shape[-1] // 2) for v in (first, *after)]


def draw_states(found: dict[str, list[ndarray]], title: str) -> "Figure":
    """Two rows per method, colours above grids; one column per state."""
    from matplotlib.figure import Figure

    count = len(next(iter(found.values())))
    figure = Figure(figsize=(2.1 * count, 4.5 * len(found)), layout="constrained")
    axes = figure.subplots(2 * len(found), count)
    for place, (name, states) in enumerate(found.items()):
        for k, u in enumerate(states):
            show_state(axes[2 * place, k], axes[2 * place + 1, k], u, float(np.abs(states[-1]).max()) or 1.0)
            axes[2 * place, k].set_title("start" if k == 0 else f"cascade {k}", fontsize=9)
        axes[2 * place, 0].set_ylabel(name)
    figure.suptitle(title)
    return figure


def show_state(above: "Axes", below: "Axes", u: ndarray, scale: float) -> None:
    """A field in colours, and as a grid."""
    above.imshow(motion_colours(u[0], u[1], scale).swapaxes(0, 1))
    show_grid(below, u)
    below.set_title("")
    for ax in (above, below):
        ax.set(xticks=[], yticks=[])


def roughness(u: ndarray) -> float:
    """Mean |∇u|, in voxels per voxel."""
    return float(np.mean([np.abs(np.diff(u, axis=axis)).mean() for axis in (1, 2)]))
