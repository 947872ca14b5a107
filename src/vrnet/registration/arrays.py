"""Two arrays in, the displacement field between them out."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, wraps
from inspect import signature
from numbers import Integral
from os import PathLike
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from vrnet.devices import CPU, few_threads, find_device, side_by_side, threads_for
from vrnet.errors import BadInput, Progress, did_you_mean, is_slight, small_percent
from vrnet.fields.calculus import check_finite, determinant, jacobian, relative_spacing, warp, warp_labels
from vrnet.fields.folds import MARGIN, Unfolded, unfold
from vrnet.fields.inverse import describe_residual, invert
from vrnet.images.image import as_tensor, as_tensors, check_spacing, rescale_each, rescale_jointly
from vrnet.methods.method import Method
from vrnet.methods.names import method_with, ready
from vrnet.methods.weights import warn_if_far
from vrnet.registration.intensity import Remap, find_remap
from vrnet.registration.masks import Inside, carry_on, check_masks, compared_box, content_box, cut, fade_out
from vrnet.registration.options import RegistrationOptions
from vrnet.variational.cascade import Initializer, Spacing, initialize
from vrnet.variational.linearize import Masks
from vrnet.variational.solver import Solver, fewest_voxels, watch
from vrnet.views import Names, viewer
from vrnet.vocabulary import Brightness, Folds

if TYPE_CHECKING:
    from matplotlib.figure import Figure


# What can be registered, as far as shapes go.


def check_axes(shape: tuple[int, ...], slice_axis: int | None) -> None:
    """BadInput unless every axis along which motion is sought has at least two voxels."""
    if slice_axis is not None and not (isinstance(slice_axis, Integral) and len(shape) == 3 and 0 <= slice_axis < 3):
        raise BadInput(f"slice_axis is {slice_axis} for images of {shape}: give 0, 1 or 2; only volumes have slices")
    if min(n for axis, n in enumerate(shape) if axis != slice_axis) < 2:
        raise BadInput(f"the images are {shape}: every axis but the one across slices needs at least 2 voxels")


# The repair of a registration's folds, and what is said of it.


@dataclass(frozen=True)
class Repair:
    """How much of a field was changed to free it of folds. Moves are means and maxima over the changed voxels."""

    folded_percent: float
    """Voxels that were folded, by the strict count."""
    changed_percent: float
    mean_move_voxels: float
    max_move_voxels: float
    mean_move_mm: float | None
    """None where no spacing is known."""
    max_move_mm: float | None

    farthest_voxel: tuple[int, ...]
    """The voxel of fixed whose end was moved the most."""
    drawn_percent: float = 0.0
    """Voxels about folds that could not be opened: their motion was drawn towards that of what lies around."""

    @property
    def is_slight(self) -> bool:
        """Whether next to nothing was changed, which nobody needs to be told at once."""
        most = self.max_move_voxels if self.max_move_mm is None else self.max_move_mm
        return is_slight(self.changed_percent, most)

    def __str__(self) -> str:
        unit = "voxels" if self.mean_move_mm is None else "mm"
        mean, most = (getattr(self, f"{which}_move_{unit}") for which in ("mean", "max"))
        place = ", ".join(map(str, self.farthest_voxel))
        moves = f"{mean:.2g} {unit} on average and {most:.2g} {unit} at most, at voxel ({place})"
        mended = f"{small_percent(self.changed_percent)} of the voxels were moved to mend that, by {moves}"
        return f"{self.cause}: {mended}{self.loss}"

    @property
    def loss(self) -> str:
        """What was lost, in words to go on with; nothing where every fold could be opened."""
        if not self.drawn_percent:
            return ""
        return f"; about folds that did not open, {small_percent(self.drawn_percent)} of them lost much of their motion"

    @property
    def cause(self) -> str:
        """What was wrong with the field."""
        if self.folded_percent:
            return f"{small_percent(self.folded_percent)} of the voxels were folded, which no tissue does"
        return f"No voxel was folded, but some were squeezed to less than {100 * MARGIN:.0f} % of their size"

    def mirrored(self, shape: tuple[int, ...], axes: tuple[int, ...]) -> "Repair":
        """The repair of images that are mirrored along these axes."""
        place = (
            n - 1 - i if axis in axes else i for axis, (i, n) in enumerate(zip(self.farthest_voxel, shape, strict=True))
        )
        return replace(self, farthest_voxel=tuple(place))

    def reordered(self, order: Sequence[int]) -> "Repair":
        """The repair of images that have axis order[i] as axis i."""
        return replace(self, farthest_voxel=tuple(self.farthest_voxel[axis] for axis in order))


@torch.inference_mode()
def repair_folds(
    field: Float[Tensor, "d *s"], spacing: tuple[float, ...] | None, slice_axis: int | None
) -> tuple[Float[Tensor, "d *s"], Repair | None]:
    """A field in voxels without folds, and what was changed, if anything was. Slices are repaired each by itself."""
    within = [axis for axis in range(len(field)) if axis != slice_axis]
    u = field[None] if slice_axis is None else field[within].movedim(1 + slice_axis, 0)
    with few_threads(field[0].numel()):
        found = unfold(u)
    if found.field is u:
        return field, None
    repaired = field.clone()
    repaired[within] = found.field[0] if slice_axis is None else found.field.movedim(0, 1 + slice_axis)
    return repaired, describe_repair(repaired - field, found, spacing)


def describe_repair(move: Float[Tensor, "d *s"], found: Unfolded, spacing: tuple[float, ...] | None) -> Repair:
    """What a repair did, from how it moved the ends of the displacements, in voxels."""
    changed = move.abs().amax(0) > 0
    lengths = move[:, changed].double()
    edges = lengths.new_tensor(spacing or (1.0,) * len(move))
    mm = lengths * edges[:, None]
    farthest = torch.linalg.vector_norm(mm, dim=0).argmax()
    return Repair(
        percent_of_voxels(found.folded),
        percent_of_voxels(changed),
        *mean_and_max(lengths),
        mean_move_mm=None if spacing is None else mean_and_max(mm)[0],
        max_move_mm=None if spacing is None else mean_and_max(mm)[1],
        farthest_voxel=tuple(changed.nonzero()[farthest].tolist()),
        drawn_percent=percent_of_voxels(found.drawn),
    )


def percent_of_voxels(mask: Tensor) -> float:
    return 100 * mask.double().mean().item()


def mean_and_max(vectors: Float[Tensor, "d n"]) -> tuple[float, float]:
    """The mean and the greatest of the lengths of n vectors."""
    lengths = torch.linalg.vector_norm(vectors, dim=0)
    return lengths.mean().item(), lengths.max().item()


# What anyone who holds a registration may ask of it: what it is worth, its measures, its page, its picture.
#
# The answers come from the viewer, a layer above: see `vrnet.views`.

Labels = TypeVar("Labels")


class RegistrationResult(Generic[Labels]):
    """A registration of arrays, whose labels are arrays, or of images, whose labels are images or files."""

    @cached_property
    def verdict(self) -> Any:
        """What the registration is worth, by the images alone: a `vrnet.Verdict`, good, look or failed."""
        return viewer().verdict(self._measured)

    def metrics(
        self, fixed_labels: Labels | None = None, moving_labels: Labels | None = None, label_names: Names = None
    ) -> dict[str, Any]:
        """What `vrnet register` writes in metrics.json: similarity, folds, verdict; with the labels of both images,
        each on the grid of its image, Dice and distances too. Lengths are in mm; of arrays without a spacing, in
        voxels. `label_names` are texts such as 1=RV,2=Myo,3=LV, or {1: "RV"}. What to try is said in arguments, not in
        options."""
        return self._measure(fixed_labels, moving_labels, label_names).metrics

    def show(
        self, fixed_labels: Labels | None = None, moving_labels: Labels | None = None, label_names: Names = None
    ) -> "Figure":
        """A figure of matplotlib: images, differences, grid, motion and Jacobian determinant of the main slice."""
        return viewer().draw_measured(self._measure(fixed_labels, moving_labels, label_names))

    def report(
        self,
        path: str | PathLike[str],
        fixed_labels: Labels | None = None,
        moving_labels: Labels | None = None,
        label_names: Names = None,
    ) -> Path:
        """Write the page that `vrnet register --report` writes, as one HTML file; returns its path."""
        return viewer().report(self, self._measure(fixed_labels, moving_labels, label_names), Path(path))

    @cached_property
    def _measured(self) -> Any:
        """What is measured without labels, once for all who ask."""
        return viewer().measure(self)

    def _measure(self, fixed_labels: Labels | None, moving_labels: Labels | None, names: Names) -> Any:
        """What is measured, with labels and their names where there are any."""
        if fixed_labels is None and moving_labels is None and names is None:
            return self._measured
        return viewer().measure(self, fixed_labels, moving_labels, names)

    def _repr_html_(self) -> str:
        return viewer().card(self)


# What is said of an argument that a function does not have: what it is called elsewhere, or where it belongs.

P = ParamSpec("P")
T = TypeVar("T")
OF_IMAGES = "affine", "slices", "match_intensities"
"""What `register_images` alone can be asked for, since arrays have no place in space."""


def explain_bad_keyword(function: Callable[P, T]) -> Callable[P, T]:
    """The function, whose TypeError for an argument that it does not have says what to write instead."""
    known = list(signature(function).parameters)

    @wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> T:
        for name, value in kwargs.items():
            if name not in known:
                raise TypeError(f"{function.__name__}() has no argument {name}: {instead(name, value, known)}")
        return function(*args, **kwargs)

    return called


def instead(name: str, value: object, known: list[str]) -> str:
    """What to write instead of an argument that is none."""
    if name in OF_IMAGES and "spacing" in known:
        return f"arrays have no place in space; register_images(fixed, moving, {name}={value!r}) takes images"
    if "label" in name and "moving" in known:
        return "labels are compared afterwards, by result.metrics(fixed_labels, moving_labels)"
    if name in ("out", "report") and "affine" in known:
        return 'results are written afterwards, by result.report("page.html") and result.transform.save(file)'
    near, owner = did_you_mean(name, known), method_with(name)
    if owner and not near:
        return f'it is a parameter of methods: write method="{owner}({name}={value})"'
    return f"{near} It has {', '.join(known)}" if near else f"it has {', '.join(known)}"


SLICES_APART = 1e6
"""The distance between slices that have nothing to do with each other, in edges of a voxel."""
Array = TypeVar("Array", NDArray[Any], Tensor)


@dataclass(frozen=True, repr=False, eq=False)
class InverseField(Generic[Array]):
    """The way back from moving to fixed, and how far from where it began each voxel of moving ends, there and back."""

    field: Array
    """(d, *s), in voxels: the point at y in moving is at y + field(y) in fixed."""
    residual: Array
    """(*s), in voxels; large where the registration folds. Outside its grid that goes on as at the border."""

    def __iter__(self) -> Iterator[Array]:
        """Both, in this order: field, residual = result.inverse()."""
        return iter((self.field, self.residual))

    def __repr__(self) -> str:
        return f"InverseField(field {tuple(self.field.shape)}, {describe_residual(self.residual, 'voxels')})"


@dataclass(frozen=True, repr=False, eq=False)
class Registration(RegistrationResult[Array], Generic[Array]):
    """The result of `register`: of arrays, arrays; of tensors, tensors on their device."""

    field: Array
    """(d, *s), in voxels: the point at x in fixed is at x + field(x) in moving."""
    warped: Array
    """moving(x + field(x)), in the intensities of moving."""
    energies: Array
    """The energy of no motion, then after each linearisation at full resolution; none if no energy was watched.

    Of a volume, the mean over the box that shows anything."""
    method: str
    """The name of the method that was used; never `default`."""
    seconds: float
    repair: Repair | None
    """What was changed to free the field of folds: None where nothing was."""
    remap: Remap | None
    """What made moving as bright as fixed while they were compared: None where nothing had to."""
    fixed: Array
    """The images, as they were given."""
    moving: Array
    inside: Inside
    """Which voxels of each were compared."""
    spacing: Spacing
    slice_axis: int | None
    weights: str | None
    """The file that the weights of a trained model came from."""
    details: dict[str, str]
    """What a page says of the method beside its name."""
    options: RegistrationOptions
    """What was asked for beside the method."""

    def __repr__(self) -> str:
        return f"Registration({self.method}, field {tuple(self.field.shape)}, {self.seconds:.2f} s)"

    def warp(self, image: Array) -> Array:
        """image(x + field(x)), linear: any image on the grid of moving, (*s)."""
        return self._on_batch(lambda I, u: warp(I if I.is_floating_point() else I.to(u), u), image)

    def warp_labels(self, labels: Array) -> Array:
        """labels(x + field(x)) at the nearest voxel: a label map on the grid of moving, every value and type kept."""
        return self._on_batch(warp_labels, labels)

    def determinant(self) -> Array:
        """det(I + ∇field): below 1 where fixed is larger than moving, negative where the field folds."""
        return self._on_batch(lambda _, u: determinant(jacobian(u))[:, None], self.warped)

    def inverse(self) -> InverseField[Array]:
        """(field, residual): the field from moving to fixed, which takes points of moving to fixed, and brings fixed to
        the grid of moving; and how far, in voxels, each voxel ends from where it began."""
        with torch.inference_mode():
            found = invert(as_tensor(self.field)[None])
        parts: list[Any] = [part[0].clone() for part in found]
        return InverseField(*(parts if isinstance(self.field, Tensor) else [part.numpy() for part in parts]))

    def _on_batch(self, function: Callable[[Tensor, Tensor], Tensor], image: Array) -> Array:
        """function(image, field), both as batches of one, its result as an array or a tensor again."""
        if tuple(image.shape) != tuple(self.field.shape[1:]):
            raise BadInput(f"the image is {tuple(image.shape)}: give one of moving's shape, {tuple(self.warped.shape)}")
        result = function(as_tensor(image)[None, None], as_tensor(self.field)[None])[0, 0]
        return result if isinstance(self.field, Tensor) else result.numpy()


@explain_bad_keyword
def register(
    fixed: Array,
    moving: Array,
    method: str | Method = "default",
    *,
    spacing: tuple[float, ...] | None = None,
    slice_axis: int | None = None,
    fixed_mask: Array | None = None,
    moving_mask: Array | None = None,
    folds: Folds = "repair",
    brightness: Brightness = "match",
    average: bool = False,
    device: str | None = None,
    progress: Progress | None = None,
) -> Registration[Array]:
    """Find u with moving(x + u(x)) ≈ fixed(x).

    Both are arrays or tensors of one shape, 2D or 3D; integers become floats. Where no method is named, a model that
    comes with vrnet registers 2D images and slices, and Gaussian-LNCC volumes. A plain change of brightness does not
    matter, unless `brightness` is "keep"; whether another contrast does depends on the method. `spacing` is the
    distance between voxels along each axis, in mm; without it a trained model takes it to be its own, and other methods
    take voxels for cubes. With a `slice_axis`, each slice across it is registered by itself, and nothing moves across
    slices. With masks, nonzero inside, images are compared only where both are inside. Where the field folds it is
    changed a little, until no voxel of it (within any slice, of slices) is folded by the strict count; with `folds`
    "keep" it stays as it was found. With `average` it is the mean over flips and turns of the pair. The work is done in
    float32, on the device of the images unless one is named (auto, cpu, cuda). `progress` is told the part done."""
    start, options = perf_counter(), RegistrationOptions(folds=folds, brightness=brightness)
    I0, I1 = as_tensors(fixed, moving)
    inside = check_masks(fixed_mask, moving_mask, I0, I1)
    check_request(tuple(I0.shape), spacing, slice_axis)
    there, within = find_device(device) if device else I0.device, spacing_within(spacing, slice_axis)
    chosen = ready(method, average).resolve(I0.dim() - (slice_axis is not None), within)
    warn_if_far(chosen, within)
    remap = find_remap(I0, I1, inside) if brightness == "match" and chosen.scaling == "jointly" else None
    S0, S1 = inside.inpaint(I0, remap.match(I1) if remap else I1, slices_apart(spacing, I0.dim(), slice_axis))
    field, energies = solve(S0.to(there), S1.to(there), inside.to(there), chosen, within, slice_axis, progress)
    field, repair = repair_folds(field, spacing, slice_axis) if folds == "repair" else (field, None)
    u, I1w, E = results(I1, field, energies, as_arrays=not isinstance(fixed, Tensor))
    run, of_method = (str(chosen), perf_counter() - start, repair, remap), (chosen.weights, chosen.details)
    return Registration(u, I1w, E, *run, fixed, moving, inside, spacing, slice_axis, *of_method, options)


def check_request(shape: tuple[int, ...], spacing: object, slice_axis: int | None) -> None:
    """BadInput unless images of this shape can be registered as it is asked for."""
    check_spacing(spacing, len(shape))
    check_axes(shape, slice_axis)


@torch.inference_mode()
def results(I1: Tensor, field: Tensor, energies: Tensor, as_arrays: bool) -> list[Any]:
    """The field, moving warped by it, and the energies, on the device of moving; as clones, usable in autograd."""
    warped = warp(I1[None, None], field.to(I1.device)[None])[0, 0]
    with torch.inference_mode(False):
        parts: list[Any] = [part.to(I1.device).clone() for part in (field, warped, energies)]
    return [part.numpy() for part in parts] if as_arrays else parts


def solve(
    I0: Tensor,
    I1: Tensor,
    inside: Inside,
    method: Method,
    spacing: Spacing,
    slice_axis: int | None,
    progress: Progress | None,
) -> tuple[Tensor, Tensor]:
    """(field, energies) of a pair of images (*s), of which slices are a batch of 2D pairs, their energies averaged.

    The spacing is that of the axes along which there is motion."""
    find = method.build(I0.dim() - (slice_axis is not None), I0.device)
    in_threads = method.is_network and I0.device == CPU
    with torch.inference_mode(), threads_for(method.is_network, I0.numel()):
        rescale = rescale_each if method.scaling == "each" else rescale_jointly
        I0, I1 = (batch(I, slice_axis) for I in rescale(I0, I1, inside=inside.of_each))
        masks = as_weights(inside, I0, slice_axis)
        if not isinstance(find, Solver):
            u = find_each(find, I0, I1, spacing, masks, in_threads, progress)
            check_finite(u, str(method))
            return unbatch(u, slice_axis), u.new_zeros(0)
        shape = tuple(I0.shape[2:])
        # Slices stay whole: they are quick, and what was published of them is what solvers find of all of each.
        box, h = tuple(slice(0, n) for n in shape), relative_spacing(spacing, len(shape))
        if len(shape) == 3:
            box = content_box(I0, I1, fewest_voxels(find))
            box = compared_box(box, masks, h, fewest_voxels(find)) if masks else box
        I0, I1, masks = cut(I0, box), cut(I1, box), masks and masks.map(lambda w: cut(w, box))
        with watch(find, tuple(I0.shape[2:]), spacing, progress):
            descent = find.descend(I0, I1, spacing, masks)
        check_finite(descent.v, str(method))
        v = fade_out(descent.v, box, shape, h) if masks else carry_on(descent.v, box, shape)
        return unbatch(v, slice_axis), descent.energies.mean(1)


def as_weights(inside: Inside, like: Tensor, slice_axis: int | None) -> Masks | None:
    """The masks as weights of a batch of images like this; None where everything is inside."""
    if inside.is_everywhere:
        return None
    parts = inside.fixed, inside.moving
    return Masks(*(torch.ones_like(like) if mask is None else batch(mask, slice_axis).to(like) for mask in parts))


def spacing_within(spacing: Spacing, slice_axis: int | None) -> Spacing:
    """The spacing of the axes within a slice; of all axes, where there are no slices."""
    return None if spacing is None else tuple(h for axis, h in enumerate(spacing) if axis != slice_axis)


def slices_apart(spacing: Spacing, d: int, slice_axis: int | None) -> tuple[float, ...]:
    """The spacing with slices so far apart that each is in-painted from itself, while anything of it is inside."""
    edges = spacing or (1.0,) * d
    return tuple(SLICES_APART * max(edges) if axis == slice_axis else h for axis, h in enumerate(edges))


def find_each(
    find: Initializer,
    I0: Tensor,
    I1: Tensor,
    spacing: Spacing,
    masks: Masks | None,
    in_threads: bool,
    progress: Progress | None,
) -> Tensor:
    """find(I0, I1) of each pair of a batch by itself: all at once would need the memory of the whole stack."""

    @torch.inference_mode()  # which holds for the thread that enters it alone
    def find_one(k: int) -> Tensor:
        one = masks and masks.map(lambda w: w[k : k + 1])
        return initialize(find, I0[k : k + 1], I1[k : k + 1], spacing, one)

    numbers, fields = range(len(I0)), []
    for u in side_by_side(find_one, numbers) if in_threads else map(find_one, numbers):
        fields.append(u)
        if progress:
            progress(len(fields) / len(numbers))
    return torch.cat(fields)


def batch(I: Tensor, slice_axis: int | None) -> Tensor:
    """An image (*s) as a batch of one, or its slices as a batch (n, 1, h, w)."""
    return I[None, None] if slice_axis is None else I.movedim(slice_axis, 0)[:, None].contiguous()


def unbatch(u: Tensor, slice_axis: int | None) -> Tensor:
    """The field (d, *s) of a batch of one, or of a batch of slices; motion across slices is zero."""
    if slice_axis is None:
        return u[0]
    within = u.movedim(0, 1 + slice_axis)
    across = torch.zeros_like(within[:1])
    return torch.cat([within[:slice_axis], across, within[slice_axis:]])
