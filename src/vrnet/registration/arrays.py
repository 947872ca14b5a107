"""Two arrays in, the displacement field between them out."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from numbers import Integral
from time import perf_counter
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from vrnet.devices import find_device, in_batches, threads_for
from vrnet.errors import BadInput, Progress, check_progress
from vrnet.fields.calculus import check_finite, determinant, jacobian, relative_spacing, warp, warp_labels
from vrnet.fields.folds import Repair, repair_folds
from vrnet.fields.inverse import Inverse, invert
from vrnet.images.grid import Grid
from vrnet.images.image import Image, as_labels, as_tensor, as_tensors, check_spacing, rescale_each, rescale_jointly
from vrnet.images.transforms import Transform
from vrnet.methods.method import Method, Task
from vrnet.methods.names import SHORT_AXIS, SOLVER, load_bundled, parameters, parse_method
from vrnet.methods.parameters import value_in
from vrnet.methods.weights import warn_if_far
from vrnet.registration.channels import ImageChannels
from vrnet.registration.intensity import Remap, find_remap
from vrnet.registration.masks import (
    PairMasks,
    carry_on,
    check_masks,
    compared_box,
    content_box,
    cut,
    fade_out,
    heart_box,
    inpaint,
)  # fmt: skip
from vrnet.registration.pair import Names, PairResult, Reportable
from vrnet.variational.cascade import Initializer, Spacing
from vrnet.variational.linearize import Masks
from vrnet.variational.solver import Solver, fewest_voxels, watch
from vrnet.vocabulary import Brightness, Channels, DeviceChoice, Folds, RegistrationOptions

SLICES_APART = 1e6  # the distance between slices that have nothing to do with each other, in edges of a voxel
NO_HEART = (
    f"no short-axis heart was found in these images, and {SHORT_AXIS} registers nothing else: {SOLVER} was taken "
    f'(`method="{SHORT_AXIS}"` takes the network)'
)
Array = TypeVar("Array", NDArray[Any], Tensor)
Place = str | torch.device  # auto, cpu or cuda; or a device that is known to do


@dataclass(frozen=True, repr=False, eq=False)
class Registration(Reportable[Array], Generic[Array]):
    """The result of `register`: of arrays, arrays; of tensors, tensors on their device. It is measured and shown as a
    `PairResult` whose grid is the plain one."""

    field: Array
    """(d, *s), in voxels: the point at x in fixed is at x + field(x) in moving."""
    warped: Array
    """moving(x + field(x)), in the intensities of moving."""
    energies: Array
    """The energy of no motion, then after each linearisation at full resolution; none if no energy was watched.

    Of a volume, the mean over the box that shows anything."""
    fixed: Array
    """The images, as they were given."""
    moving: Array
    inside: PairMasks[Tensor]
    """Which voxels of each were compared."""
    spacing: Spacing
    fixed_labels: Array | None = None
    """The labels, as they were given."""
    moving_labels: Array | None = None

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

    def inverse(self) -> Inverse:
        """(field, residual): the field from moving to fixed, which takes points of moving to fixed, and brings fixed to
        the grid of moving; and how far, in voxels, each voxel ends from where it began. That is large where the
        registration folds; outside its grid it goes on as at the border."""
        with torch.inference_mode():
            found = invert(as_tensor(self.field)[None])
        parts: list[Any] = [part[0].clone() for part in found]
        return Inverse(*(parts if isinstance(self.field, Tensor) else [part.numpy() for part in parts]))

    def _on_batch(self, function: Callable[[Tensor, Tensor], Tensor], image: Array) -> Array:
        """function(image, field), both as batches of one, its result as an array or a tensor again."""
        if tuple(image.shape) != tuple(self.field.shape[1:]):
            raise BadInput(f"the image is {tuple(image.shape)}: give one of moving's shape, {tuple(self.warped.shape)}")
        result = function(as_tensor(image)[None, None], as_tensor(self.field)[None])[0, 0]
        return result if isinstance(self.field, Tensor) else result.numpy()

    @cached_property
    def in_space(self) -> PairResult:
        """The same as images on the plain grid."""
        grid = Grid.plain(tuple(self.fixed.shape), self.spacing or (1.0,) * self.fixed.ndim)
        names = "fixed", "moving", "warped"
        images: dict[str, Any] = {name: Image(as_array(getattr(self, name)), grid, name) for name in names}
        given = vars(self.inside).items()
        masks = (m if m is None else Image(as_array(m), grid, f"the mask of {role}") for role, m in given)
        how = {field.name: getattr(self, field.name) for field in fields(Reportable)}
        images |= {name: label_image(name, getattr(self, name), grid) for name in ("fixed_labels", "moving_labels")}
        return PairResult(
            **images, **how, masks=PairMasks(*masks), transform=Transform.from_voxels(as_array(self.field), grid),
            energies=as_array(self.energies), device=as_tensor(self.field).device.type,
            unit="voxels" if self.spacing is None else "mm",
        )  # fmt: skip

    def with_labels(self, fixed_labels: Array | None, moving_labels: Array | None, label_names: Names) -> PairResult:
        maps = {"fixed_labels": fixed_labels, "moving_labels": moving_labels}
        images = [label_image(name, given, self.in_space.grid) for name, given in maps.items()]
        return self.in_space.with_labels(images[0], images[1], label_names)


def as_array(given: Any) -> NDArray[Any]:
    """The values of an array, or of a tensor of any device."""
    return as_tensor(given).detach().cpu().numpy()


def label_image(name: str, given: object, grid: Grid) -> Image | None:
    """Labels that may be given as an array or a tensor, as a label map; BadInput if they are none."""
    if given is None:
        return None
    if not isinstance(given, (np.ndarray, Tensor)):
        raise BadInput(f"{name} are a {type(given).__name__}: give an array or a tensor, as the images were")
    if tuple(given.shape) != grid.shape:
        shape = tuple(given.shape)
        raise BadInput(f"{name} are {shape} and the images {grid.shape}: give label maps on their grid")
    return as_labels(Image(as_array(given), grid, name))


def register(
    fixed: Array, moving: Array, method: str | Method = "default", *, spacing: tuple[float, ...] | None = None,
    slice_axis: int | None = None, fixed_mask: Array | None = None, moving_mask: Array | None = None,
    folds: Folds = "repair", brightness: Brightness = "match", channels: Channels = "auto",
    fixed_labels: Array | None = None, moving_labels: Array | None = None, average: bool = False,
    device: str | None = None, progress: Progress | None = None,
) -> Registration[Array]:  # fmt: skip
    """Find u with moving(x + u(x)) ≈ fixed(x).

    Both are arrays or tensors of one shape, 2D or 3D; integers become floats. Where no method is named, a model that
    comes with vrnet registers 2D images and slices of short-axis hearts, and Gaussian-LNCC all else. A plain change of
    brightness does not matter, unless `brightness` is "keep"; whether another contrast does depends on the method.
    `spacing` is the distance between voxels along each axis, in mm; without it a trained model takes it to be its own,
    and other methods take voxels for cubes. With a `slice_axis`, each slice across it is registered by itself, and
    nothing moves across slices. With masks, nonzero inside, images are compared only where both are inside. `channels`
    says by what images are matched beside their intensities: "anatomy", the probabilities of structures in hearts that
    the segmenter in the box finds, or "labels", `fixed_labels` and `moving_labels`. Where the field folds it is changed
    a little, until no voxel of it (within any slice, of slices) is folded by the strict count; with `folds` "keep" it
    stays as it was found. With `average` it is the mean over flips and turns of the pair. The work is done in float32,
    on the device of the images unless one is named (auto, cpu, cuda). `progress` is told the part done."""
    start = perf_counter()
    check_progress(progress)
    options = RegistrationOptions(folds=folds, brightness=brightness, channels=channels)
    I0, I1 = as_tensors(fixed, moving)
    inside = check_masks(fixed_mask, moving_mask, I0, I1)
    check_spacing(spacing, I0.dim())
    maps, grid = (fixed_labels, moving_labels), Grid.plain(tuple(I0.shape), (1.0,) * I0.dim())
    labels = label_tensors(*map(label_image, ("fixed_labels", "moving_labels"), maps, (grid, grid)))
    chosen = parse_method(method, average=average).load()

    def shown() -> list[Image]:
        edges = spacing or (load_bundled(SHORT_AXIS).card.spacing_mm[0],) * I0.dim()
        seen = Grid.plain(grid.shape, tuple(SLICES_APART if axis == slice_axis else h for axis, h in enumerate(edges)))
        return [Image(as_array(I), seen, name) for I, name in ((I0, "fixed"), (I1, "moving"))]

    plan = Plan.of(chosen, grid.shape, spacing, slice_axis, device or I0.device, "pair", channels, shown)
    found = find_motion(I0, I1, inside, plan, options, progress, labels)
    with torch.inference_mode():
        warped = warp(I1[None, None], found.field.to(I1.device)[None])[0, 0]
    parts: list[Any] = [part.to(I1.device).clone() for part in (found.field, warped, found.energies)]
    u, I1w, E = parts if isinstance(fixed, Tensor) else [part.numpy() for part in parts]
    return Registration(
        field=u, warped=I1w, energies=E, fixed=fixed, moving=moving, inside=inside, spacing=spacing,
        fixed_labels=fixed_labels, moving_labels=moving_labels, **plan.of_method, slice_axis=slice_axis,
        repair=found.repair, remap=found.remap, options=options, seconds=perf_counter() - start,
    )  # fmt: skip


def label_tensors(fixed: Image | None, moving: Image | None) -> tuple[Tensor, Tensor] | None:
    """The labels of both images on one grid, if both have them."""
    if fixed is None or moving is None:
        return None
    first, second = (torch.from_numpy(labels.array.astype(np.int64)) for labels in (fixed, moving))
    return first, second


@dataclass(frozen=True)
class Plan:
    """By what images are registered, and where."""

    method: Method  # never `default`
    find: Initializer  # what the method is on the device
    device: torch.device
    spacing: Spacing
    slice_axis: int | None  # the axis across which slices are registered one by one, if they are
    within: Spacing  # that of the axes along which motion is sought
    d: int  # how many these axes are
    channels: ImageChannels  # by what images are matched beside their intensities
    notes: tuple[str, ...]  # why the default came to this method, where one may wonder

    @property
    def of_method(self) -> dict[str, Any]:
        """What a result says of its method: a name alone does not tell the weights that a file gave it."""
        method, values = self.method, {each.name: value_in(each.value, self.d) for each in parameters(self.method)}
        told = {"method": str(method), "weights": method.weights, "details": method.details, "parameters": values}
        kinds = {"compares_structure": method.scaling == "each", "channels": self.channels.kind}
        return {**told, **kinds, "notes": self.notes}

    @staticmethod
    def of(
        method: Method, shape: tuple[int, ...], spacing: Spacing, slice_axis: int | None, device: Place, images: Task,
        channels: Channels = "auto", shown: Callable[[], Sequence[Image]] | None = None,
    ) -> "Plan":  # fmt: skip
        """The plan for images of this shape; BadInput if anything is in the way, as a missing package. The images that
        are shown decide whether a default is for hearts; of others, they are not asked for."""
        is_axis = isinstance(slice_axis, Integral) and len(shape) == 3 and 0 <= slice_axis < 3
        if slice_axis is not None and not is_axis:
            known = "give 0, 1 or 2; only volumes have slices"
            raise BadInput(f"slice_axis is {slice_axis} for images of {shape}: {known}")
        axes = [axis for axis in range(len(shape)) if axis != slice_axis]
        if min(shape[axis] for axis in axes) < 2:
            raise BadInput(f"the images are {shape}: every axis but the one across slices needs at least 2 voxels")
        within = None if spacing is None else tuple(spacing[axis] for axis in axes)
        notes: list[str] = []

        def shows_heart() -> bool:
            from vrnet.cardiac.anatomy import has_heart_slice

            where: DeviceChoice = "cpu" if str(device) == "cpu" else "auto"
            is_heart = any(has_heart_slice(image, where) for image in (shown() if shown else ()))
            notes.extend([] if is_heart else [NO_HEART])
            return is_heart

        chosen = method.resolve(len(axes), within, images, shows_heart if shown else None)
        warn_if_far(chosen, within)
        place = find_device(device, chosen.devices) if isinstance(device, str) else device
        find, d = chosen.build(len(axes), place), len(axes)
        seen = ImageChannels.of(chosen, channels, d, within, images)
        return Plan(chosen, find, place, spacing, slice_axis, within, d, seen, tuple(notes))


class Motion(NamedTuple):
    """What is found between two images."""

    field: Float[Tensor, "d *s"]
    energies: Float[Tensor, " n"]
    repair: Repair | None
    remap: Remap | None


def find_motion(
    I0: Tensor, I1: Tensor, inside: PairMasks[Tensor], plan: Plan, options: RegistrationOptions,
    progress: Progress | None, labels: tuple[Tensor, Tensor] | None = None,
) -> Motion:  # fmt: skip
    """What a plan finds between two images (*s), made equally bright and in-painted outside their masks, with the
    labels of both."""
    as_given = options.match_intensities or options.brightness == "keep" or plan.method.scaling != "jointly"
    remap = None if as_given else find_remap(I0, I1, inside)
    edges = plan.spacing or (1.0,) * I0.dim()  # each slice is in-painted from itself, while anything of it is inside
    apart = tuple(SLICES_APART * max(edges) if axis == plan.slice_axis else h for axis, h in enumerate(edges))
    filled = inside.apply(lambda I, mask: inpaint(I, mask, apart), I0, remap.match(I1) if remap else I1)
    S0, S1 = (I.to(plan.device) for I in filled)
    field, energies = solve(S0, S1, inside.map(lambda mask: mask.to(plan.device)), plan, progress, labels)
    if options.folds == "keep":
        return Motion(field, energies, None, remap)
    repaired, repair = repair_folds(field, plan.spacing, plan.slice_axis)
    return Motion(repaired, energies, repair, remap)


def solve(
    I0: Tensor, I1: Tensor, inside: PairMasks[Tensor], plan: Plan, progress: Progress | None = None,
    labels: tuple[Tensor, Tensor] | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """(field, energies) of a pair of images (*s). Slices are a batch of 2D pairs, whose energies are averaged."""
    method, find, slice_axis = plan.method, plan.find, plan.slice_axis
    with torch.inference_mode(), threads_for(method.is_network, I0.numel()):
        rescale = rescale_each if method.scaling == "each" else rescale_jointly
        I0, I1 = (batch(I, slice_axis) for I in rescale(I0, I1, inside=inside.of_each))
        masks = None
        if not inside.is_everywhere:
            given = (m if m is None else batch(m, slice_axis).to(I0) for m in (inside.fixed, inside.moving))
            masks = Masks(*(torch.ones_like(I0) if weights is None else weights for weights in given))
        L = labels and (batch(labels[0].to(I0.device), slice_axis), batch(labels[1].to(I0.device), slice_axis))
        I0, I1 = plan.channels.beside_pair(I0, I1, plan.within, L)
        shape = tuple(I0.shape[2:])
        # Slices stay whole to solvers: they are quick, and what was published of them is what is found of all of each.
        box, h = tuple(slice(0, n) for n in shape), relative_spacing(plan.within, len(shape))
        spacing = plan.within or method.own_spacing
        if method.is_network and plan.channels.anatomy and len(shape) == 2 and spacing:
            box = heart_box(((I0[:, 1:].sum(1) > 0.5) | (I1[:, 1:].sum(1) > 0.5)).cpu().numpy(), spacing)
        if len(shape) == 3 and isinstance(find, Solver):
            box = content_box(I0, I1, fewest_voxels(find))
            box = compared_box(box, masks, h, fewest_voxels(find)) if masks else box
        I0, I1 = cut(I0, box), cut(I1, box)
        masks = masks and masks.map(lambda w: cut(w, box))
        if not isinstance(find, Solver):
            u = fade_out(find_each(plan, I0, I1, masks, progress), box, shape, h)
            check_finite(u, str(method))
            return unbatch(u, slice_axis), u.new_zeros(0)
        with watch(find, tuple(I0.shape[2:]), plan.within, progress):
            descent = find.descend(I0, I1, plan.within, masks)
        check_finite(descent.v, str(method))
        v = fade_out(descent.v, box, shape, h) if masks else carry_on(descent.v, box, shape)
        return unbatch(v, slice_axis), descent.energies.mean(1)


def find_each(plan: Plan, I0: Tensor, I1: Tensor, masks: Masks | None, progress: Progress | None = None) -> Tensor:
    """What a plan finds in each pair of a batch by itself: networks see a few at a time, other methods one."""

    def find(part: slice) -> Tensor:
        return plan.find(I0[part], I1[part], plan.within, masks and masks.map(lambda w: w[part]))

    one_by_one = (find(slice(k, k + 1)) for k in range(len(I0)))
    fields = []
    for u in in_batches(find, I0) if plan.method.is_network else one_by_one:
        fields.append(u)
        if progress:
            progress(sum(map(len, fields)) / len(I0))
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
