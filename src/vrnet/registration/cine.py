"""A cine in, for every frame t the transform from the reference to t out."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import pairwise
from math import ceil
from time import perf_counter
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Integer
from numpy import ndarray
from numpy.typing import NDArray
from torch import Tensor

from vrnet.devices import CPU, few_threads, find_device, side_by_side, threads_for
from vrnet.errors import BadInput, Progress
from vrnet.fields.calculus import check_finite, compose, scale, smooth, warp
from vrnet.fields.inverse import invert
from vrnet.images.grid import Grid
from vrnet.images.image import Cine, rescale_jointly
from vrnet.methods.method import Method
from vrnet.methods.names import ready
from vrnet.methods.solvers import Variational, preset
from vrnet.methods.weights import warn_if_far
from vrnet.registration.arrays import Repair, batch, check_axes, find_each, repair_folds, spacing_within, unbatch
from vrnet.registration.images import choose_slice_axis, mirror_field
from vrnet.variational.solver import Solver
from vrnet.vocabulary import Slices

# Two chains of registrations round a cycle I_0, I_1, …, I_n = I_0, one forwards and one backwards, and their blend.
#
# A chain takes the field of the frame before, smoothed and a little smaller, as a start s of the registration of the
# reference with frame k. A solver iterates from s. Any other method registers the reference with what s leaves:
#
#     w = find(I_0, I_k ∘ (id + s)) − find(I_0, I_0),   id + u_k = (id + s) ∘ (id + w).
#
# What a network finds between an image and itself is no motion: a tenth of a voxel, which would add up from frame to
# frame. Of methods that find nothing there, nothing is taken off.
#
# Every frame is compared with the reference itself, so that errors do not add up as they do when motions from frame to
# frame are composed; only what is left of the motion is sought, which is little in fast phases too. Smoothing the start
# forgets what the images do not show of a motion, along edges and within even tissue, and what would otherwise grow from
# frame to frame; making it smaller forgets what smoothing does not, such as a turn of the whole heart. What the images do
# show is found again. With forward fields f and backward fields b, the blend is
#
#     u_k = (1 − k/n) f_k + (k/n) b_k,
#
# so that the last frame closes on the first.

SMOOTHING_MM = (6.0, 1.5)
"""Standard deviations of the Gaussians by which a start and what is found from it are smoothed: about the thickness of
the wall of a ventricle, and a voxel, since two motions that are composed are rougher than either."""
SOLVER_SMOOTHING_MM = (2.0, 1.0)
"""Likewise for a solver, whose result hardly depends on its start."""
KEPT_OF_START = 0.8
"""The part of a start that is kept, by methods other than solvers. On phantoms whose every frame was seen, chains close
within 0.1 mm; with all of it 0.4 mm off, and with 0.6 points at end-systole are half as far again from the truth."""
Find = Callable[[Tensor, Tensor], Tensor]
"""(I0, I1) -> the field of a batch of pairs."""
FindFrom = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(I0, I1, start) -> the field of a batch of pairs, found from a start."""


class Link(NamedTuple):
    """The fields that the k-th step finds: of frame k by the forward chain, of frame n − k by the backward chain."""

    forward: Float[Tensor, "b d *s"]
    backward: Float[Tensor, "b d *s"]


class Smoothing(NamedTuple):
    """What is done to a start and to a result: standard deviations in voxels along each axis."""

    start: tuple[float, ...]
    result: tuple[float, ...]
    kept: float = 1.0
    """The part of a start that is kept."""

    @classmethod
    def on(cls, spacing: tuple[float, ...], is_solver: bool) -> "Smoothing":
        """What starts and results are smoothed by, on voxels of these edges in mm."""
        start, result = SOLVER_SMOOTHING_MM if is_solver else SMOOTHING_MM
        kept = 1.0 if is_solver else KEPT_OF_START
        return cls(tuple(start / h for h in spacing), tuple(result / h for h in spacing), kept)


@runtime_checkable
class LinkStore(Protocol):
    """What keeps links, so that a chain that was interrupted goes on where it stopped."""

    def load(self, step: int) -> Link | None:
        """The link of a step that was done before, if it was."""
        ...

    def save(self, step: int, link: Link) -> None:
        """Keep the link of a step."""
        ...


class Cycle(NamedTuple):
    """What two chains found."""

    fields: Float[Tensor, "t b d *s"]
    """The blend, of every frame; the reference's is zero."""
    closing: Link
    """The fields of the reference itself, once round the cycle, which would be zero if no chain drifted."""


def go_round(
    find: FindFrom,
    frames: Float[Tensor, "t b 1 *s"],
    sigma: Smoothing,
    store: LinkStore | None = None,
    after_step: Callable[[int], None] | None = None,
) -> Cycle:
    """Track every frame of a cycle whose first is the reference.

    `after_step` is called with how many of n steps are done."""
    n, reference = len(frames), frames[0]
    fields = frames.new_zeros(n, reference.shape[0], reference.dim() - 2, *reference.shape[2:])
    link = Link(fields[0], fields[0])
    for step in range(1, n + 1):
        known = None if store is None else store.load(step)
        if known is None:
            link = next_link(find, reference, frames[step % n], frames[n - step], link, sigma)
        else:
            link = Link(*(u.to(frames.device) for u in known))
        if store is not None and known is None:
            store.save(step, link)
        if step < n:
            fields[step] += (1 - step / n) * link.forward
            fields[n - step] += (1 - step / n) * link.backward
        if after_step is not None:
            after_step(step)
    return Cycle(fields, link)


def start_by_warping(find: Find, still: Callable[[], Float[Tensor, "b d *s"]] | None = None) -> FindFrom:
    """A method that knows of no start, given moving images that are warped by it.

    `still` gives what it finds between the reference and itself, if that is not zero."""

    def find_from(I0: Tensor, I1: Tensor, start: Tensor) -> Tensor:
        u = find(I0, warp(I1, start))
        return compose(start, u if still is None else u - torch.cat([still()] * (len(u) // len(still()))))

    return find_from


def next_link(find: FindFrom, reference: Tensor, ahead: Tensor, behind: Tensor, before: Link, sigma: Smoothing) -> Link:
    """One step of both chains; their pairs are one batch."""
    start = sigma.kept * smooth(torch.cat(before), sigma.start)
    found = find(torch.cat([reference, reference]), torch.cat([ahead, behind]), start)
    return Link(*smooth(found, sigma.result).chunk(2))


# A motion that contracts as one field does, and turns as another: w = u + P(v − u).
#
# Any field, in mm, is the gradient of a potential and a part P u without divergence, which keeps areas. By Fourier
# transforms over the grid, whose wave vectors are k,
#
#     (P u)^(k) = û(k) − k (k · û(k)) / |k|²,
#
# and the mean, of k = 0, belongs to P u. A contraction is in the gradient; a turn, or a shift of the whole, in P u. Of
# the shift of a part about half is in either. Fields go on periodically, so that this holds away from the borders: of a
# contraction that a border cuts, much is in P u.
#
# How far a wall has come in, its outlines show, and a network finds it best; how far it has turned along them, only the
# texture within it shows. There a chain of a network's motions keeps too little, and a solver finds more.


def turned_as(
    u: Float[Tensor, "b d *s"], v: Float[Tensor, "b d *s"], spacing: tuple[float, ...]
) -> Float[Tensor, "b d *s"]:
    """u + P(v − u), of fields in voxels with these edges in mm."""
    return u + without_divergence(v - u, spacing)


def without_divergence(u: Float[Tensor, "b d *s"], spacing: tuple[float, ...]) -> Float[Tensor, "b d *s"]:
    """P u of a field in voxels, as if it went on periodically.

    The shortest wave of an even side runs either way: as in a derivative its k is 0, so that P u is real."""
    axes = tuple(range(2, u.dim()))
    waves = [torch.fft.fftfreq(n, h, dtype=u.dtype, device=u.device) for n, h in zip(u.shape[2:], spacing, strict=True)]
    for wave in waves:
        if len(wave) % 2 == 0:
            wave[len(wave) // 2] = 0
    k = torch.stack(torch.meshgrid(*waves, indexing="ij"))
    transformed = torch.fft.fftn(scale(u, spacing), dim=axes)
    along = (k * transformed).sum(1, keepdim=True) / k.square().sum(0).where(k.any(0), torch.ones_like(k[0]))
    kept = torch.fft.ifftn(transformed - k * along, dim=axes).real
    return scale(kept, tuple(1 / h for h in spacing))


Array = NDArray[Any]
ANEW = preset("Gaussian", "LNCC")
"""What finds a frame whose start is worse than none."""
REFINEMENT = replace(ANEW, lam=1.0, levels=1, warps=5, finest_warps=0, momentum=0.0)
"""What refines the fields of a network, which adds a little at every step of a chain: on a real cine, the inner
outline, which had ended within the cavity, then lies on its border. With more warps it finds less motion; with a
smaller λ, noise."""
TURNING = preset("TV", "L1")
"""What finds how slices turn, of which the chain of a network keeps too little. What it finds of a contraction is too
little on real cines, and is not taken."""
FRAMES_OF_NETWORK = 20
"""How many frames of a cine a network sees at most: between them motion is little."""
PART_OF_NETWORK, PART_OF_TURNING = 0.7, 0.2
"""Of the time that it takes to track a cine; the rest is that of the refinement. Volumes, which no solver turns, leave
their part to the network."""


@dataclass(frozen=True, repr=False, eq=False)
class TrackedFrames:
    """The result of `track_frames`."""

    fields: Float[ndarray, "t d *s"]
    """In voxels: the point at x in the reference is at x + fields[t](x) in frame t."""
    closing: Float[ndarray, "2 d *s"]
    """In voxels: what the forward and the backward chain find for the reference itself, once round the cycle."""
    method: str
    weights: str | None
    """The file that the weights of a trained model came from."""
    device: str
    slice_axis: int | None
    """The axis across which slices were registered one by one, if they were."""
    repairs: tuple[Repair | None, ...]
    """What was changed in each frame's field to free it of folds: None where nothing was."""
    seconds: float
    refined_by: str | None = None
    """The solver that refined what a network found."""
    turned_by: str | None = None
    """The solver that found how slices turn, where a network found how they contract."""


@dataclass(frozen=True)
class TrackingPlan:
    """How a cine is tracked: by what, where, and how its arrays are turned for it."""

    method: Method
    device: torch.device
    grid: Grid
    """That of the frames with their axes in the world's order."""
    order: tuple[int, ...]
    slice_axis: int | None
    """Of the frames in that order."""

    @property
    def d(self) -> int:
        """The dimension in which motion is sought."""
        return len(self.grid.shape) - (self.slice_axis is not None)

    @property
    def spacing(self) -> tuple[float, ...]:
        """That of the axes along which motion is sought, in mm."""
        within = spacing_within(self.grid.spacing, self.slice_axis)
        assert within is not None
        return within

    def refinement(self, n: int) -> Variational | None:
        """What refines that which the method finds of n frames. A network's chain is refined, and not its one step from
        the first to the second of two frames; what other methods find is not either."""
        return REFINEMENT if self.method.is_network and n > 2 else None

    def turning(self, n: int) -> Variational | None:
        """What finds how n frames turn, where the method finds how they contract: of slices that are refined."""
        return TURNING if self.refinement(n) is not None and self.d == 2 else None

    def part_of_steps(self, n: int) -> float:
        """Of the time that n frames take, that of the chains' steps, which are kept where a run is interrupted."""
        if self.refinement(n) is None:
            return 1.0
        return PART_OF_NETWORK + (PART_OF_TURNING if self.turning(n) is None else 0.0)

    def seen(self, n: int) -> list[int]:
        """Those of n frames, from the reference on, that the method registers: of a network some, evenly spread over
        the cycle."""
        count = min(n, FRAMES_OF_NETWORK) if self.method.is_network else n
        return [k * n // count for k in range(count)]


def plan_tracking(cine: Cine, method: str | Method, slices: Slices, device: str) -> TrackingPlan:
    """How a cine is to be tracked; BadInput if anything is in the way."""
    order = cine.grid.order
    grid, given = cine.grid.reordered(order), ready(method)
    axis = choose_slice_axis(grid, slices, given.dimensions)
    check_axes(grid.shape, axis)
    spacing = spacing_within(grid.spacing, axis)
    chosen = given.resolve(len(grid.shape) - (axis is not None), spacing, "cine")
    place = find_device(device, chosen.devices)
    plan = TrackingPlan(chosen, place, grid, order, axis)
    chosen.build(plan.d, place)  # BadInput where a package is missing, or the model has another dimension
    warn_if_far(chosen, spacing)
    return plan


def track_frames(
    cine: Cine, plan: TrackingPlan, frame: int = 0, store: LinkStore | None = None, progress: Progress | None = None
) -> TrackedFrames:
    """Find u_t with I_t(x + u_t(x)) ≈ I_r(x) for every frame t, r being the reference `frame`.

    All frames have one scaling of intensities. Slices of a stack move each within itself. No field folds by the strict
    count."""
    start = perf_counter()
    check_reference(cine, frame)
    with torch.inference_mode(), threads_for(plan.method.is_network, cine.frames[0].size):
        cycle = track_cycle(plan, prepare(cine, plan, frame), store, progress)
        fields, repairs = repair_each(cycle, plan)
        closing = torch.stack([unbatch(u, plan.slice_axis) for u in cycle.closing]).cpu().numpy()
    check_finite(torch.from_numpy(fields), str(plan.method))
    axis = None if plan.slice_axis is None else plan.order[plan.slice_axis]
    turned = np.roll(np.stack([turn_back(u, plan) for u in fields]), frame, axis=0)
    shifted = tuple(repairs[(k - frame) % len(cine)] for k in range(len(cine)))
    run = str(plan.method), plan.method.weights, plan.device.type, axis, shifted
    closed = np.stack([turn_back(u, plan) for u in closing])
    helpers = (plan.refinement(len(cine)), plan.turning(len(cine)))
    return TrackedFrames(
        turned, closed, *run, perf_counter() - start, *(None if each is None else str(each) for each in helpers)
    )


def check_reference(cine: Cine, frame: int) -> None:
    """BadInput unless there is a frame of this number."""
    if not 0 <= frame < len(cine):
        raise BadInput(f"{cine.name} has frames 0 to {len(cine) - 1}: the reference `frame` cannot be {frame}")


def prepare(cine: Cine, plan: TrackingPlan, frame: int) -> Float[Tensor, "t b 1 *s"]:
    """The frames from the reference on, in [0, 1] by one scaling, axes as the world's run; slices are batches."""
    whole = np.roll(cine.frames, -frame, axis=0).transpose(0, *(1 + axis for axis in plan.order))
    turned = np.flip(whole, [1 + axis for axis in plan.grid.backward]).astype(np.float32)
    (scaled,) = rescale_jointly(torch.from_numpy(turned))
    if plan.slice_axis is None:
        return scaled[:, None, None].to(plan.device)
    return scaled.movedim(1 + plan.slice_axis, 1)[:, :, None].contiguous().to(plan.device)


def track_cycle(plan: TrackingPlan, frames: Tensor, store: LinkStore | None, progress: Progress | None) -> Cycle:
    """The motion of every frame. A network finds that of some frames, a solver how slices turn, and another refines
    that of all."""
    n, tell = len(frames), progress or (lambda part: None)
    refinement = plan.refinement(n)
    if refinement is None:
        return follow(plan, frames, store, tell)
    seen, turning = plan.seen(n), plan.turning(n)
    cycle = follow(plan, frames[seen], store, partial(tell_part, tell, 0.0, plan.part_of_steps(n)))
    fields = between(cycle.fields, seen, n)
    if turning is not None:
        tell_turning = partial(tell_part, tell, PART_OF_NETWORK, PART_OF_TURNING)
        turns = follow(replace(plan, method=turning), frames, None, tell_turning).fields
        for t in range(1, n):
            fields[t] = turned_as(fields[t], turns[t], plan.spacing)
    return refine(plan, refinement, frames, cycle._replace(fields=fields), tell)


def tell_part(tell: Progress, done: float, share: float, part: float) -> None:
    """Tell how much of the whole is done when a part is of something that has this share in it."""
    tell(done + share * part)


def between(fields: Float[Tensor, "m b d *s"], seen: list[int], n: int) -> Float[Tensor, "n b d *s"]:
    """The fields of all n frames of a cycle, linear in time between those of the frames that were seen."""
    found = fields.new_zeros(n, *fields.shape[1:])
    for k, (first, last) in enumerate(pairwise([*seen, n])):
        for t in range(first, last):
            part = (t - first) / (last - first)
            found[t] = torch.lerp(fields[k], fields[(k + 1) % len(seen)], part)
    return found


def refine(
    plan: TrackingPlan, method: Variational, frames: Float[Tensor, "t b 1 *s"], cycle: Cycle, tell: Progress
) -> Cycle:
    """The cycle, whose fields are now those that a solver finds from them; that of the reference stays zero.

    A start that leads to something worse than no motion, as beside a frame that shows something else, is no start:
    there it is found anew, coarse to fine."""
    find, anew = (solve_from(each.build(plan.d, plan.device), plan) for each in (method, ANEW))
    fields, others, before = cycle.fields, range(1, len(frames)), PART_OF_NETWORK + PART_OF_TURNING

    @torch.inference_mode()  # which holds for the thread that enters it alone
    def refined(t: int) -> Tensor:
        u = find(frames[0], frames[t], fields[t])
        lost = ~u.flatten(1).any(1)
        if lost.any():
            u[lost] = anew(frames[0][lost], frames[t][lost], torch.zeros_like(u[lost]))
        return u

    in_threads = plan.d == 2 and plan.device == CPU
    for t, u in zip(others, side_by_side(refined, others) if in_threads else map(refined, others), strict=True):
        fields[t] = u
        tell_part(tell, before, 1 - before, t / others[-1])
    return cycle


def follow(plan: TrackingPlan, frames: Tensor, store: LinkStore | None, progress: Progress) -> Cycle:
    """Both chains, by the method of the plan."""
    find = plan.method.build(plan.d, plan.device)
    in_threads = plan.method.is_network and plan.device == CPU
    done, n = 0, len(frames)

    def tell(part: float) -> None:
        progress((done + part) / n)

    def find_all(I0: Tensor, I1: Tensor) -> Tensor:
        return find_each(find, I0, I1, plan.spacing, None, in_threads, tell)

    def after(step: int) -> None:
        nonlocal done
        done = step
        tell(0.0)

    @cache
    def find_still() -> Tensor:  # not where a run that was interrupted knows all links
        return find_each(find, frames[0], frames[0], plan.spacing, None, in_threads, None)

    if isinstance(find, Solver):
        find_from = solve_from(find, plan)
    else:
        find_from = start_by_warping(find_all, find_still if plan.method.is_network else None)
    return go_round(find_from, frames, Smoothing.on(plan.spacing, isinstance(find, Solver)), store, after)


def solve_from(solver: Solver, plan: TrackingPlan) -> FindFrom:
    """A solver that iterates from a start, so that the whole motion is regular, and not only what is added to it.

    The first frame of a chain has no neighbour, and may be far from the reference: it is found coarse to fine. Slices
    are quicker all at once; of volumes, one at a time is held in memory."""

    def begin(start: Tensor) -> Solver:
        return solver.starting_from(start) if start.any() else solver

    def find(I0: Tensor, I1: Tensor, start: Tensor) -> Tensor:
        size = len(I0) if plan.slice_axis is not None else 1
        parts = zip(*(torch.split(x, size) for x in (I0, I1, start)), strict=True)
        return torch.cat([begin(s)(J0, J1, plan.spacing) for J0, J1, s in parts])

    return find


def repair_each(cycle: Cycle, plan: TrackingPlan) -> tuple[Array, list[Repair | None]]:
    """The fields of all frames without folds, which a blend of two may have, and what was changed."""
    with few_threads(cycle.fields[0, 0, 0].numel()):
        found = [repair_folds(unbatch(u, plan.slice_axis), plan.grid.spacing, plan.slice_axis) for u in cycle.fields]
    return torch.stack([field for field, _ in found]).cpu().numpy(), [repair for _, repair in found]


def turn_back(u: Array, plan: TrackingPlan) -> Array:
    """A field on the grid of the cine, given that on the plan's, its axes turned as the world's run."""
    back = np.argsort(plan.order)
    return mirror_field(u, plan.grid.backward)[back].transpose(0, *(1 + axis for axis in back))


# Labels of the reference brought to every frame: L_t(y) = L(φ_t⁻¹(y)), φ_t = id + u_t.

TOLERANCE_VOXELS, MAX_ITERATIONS = 0.05, 30
"""Of the inverse: labels need no better, and are brought to many frames."""
MARGIN_VOXELS = 2
"""Beyond where labels are moved to: their inverse is sought between voxels."""


def propagate_labels(
    labels: Integer[ndarray, "*s"], fields: Float[ndarray, "t d *s"], slice_axis: int | None
) -> Integer[ndarray, "t *s"]:
    """The label map of every frame, given that of the reference; the fields are in voxels.

    A voxel gets the label of greatest weight by linear interpolation. Where the reference has no labels in a slice, no
    frame has."""
    values = np.unique(np.append(labels, labels.dtype.type(0)))
    number = torch.from_numpy(np.searchsorted(values, labels))
    found = np.zeros((len(fields), *labels.shape), labels.dtype)
    whole = batch(number, slice_axis)
    shown = whole.flatten(1).any(1).nonzero()[:, 0]
    with torch.inference_mode(), few_threads(whole[0].numel()):
        for t, field in enumerate(fields):
            u, moved = motion_of(field, slice_axis)[shown], torch.zeros_like(whole)
            box = (slice(None), slice(None), *box_of_motion(whole[shown], u))
            part = torch.zeros_like(whole[shown])
            part[box] = move_labels(whole[shown][box], u[box], len(values))
            moved[shown] = part
            at = moved[0, 0] if slice_axis is None else moved[:, 0].movedim(0, slice_axis)
            found[t] = values[at.numpy()]
    return found


def box_of_motion(number: Integer[Tensor, "b 1 *s"], u: Float[Tensor, "b d *s"]) -> tuple[slice, ...]:
    """The part of the grid that holds all labels, before the motion and after it."""
    slices = []
    for axis, n in enumerate(number.shape[2:]):
        others = [dim for dim in range(number.dim()) if dim != 2 + axis]
        there = (number != 0).sum(others).nonzero()[:, 0] if number.numel() else torch.zeros(1)
        reach = ceil(u[:, axis].abs().max().item()) + MARGIN_VOXELS if u.numel() else 0
        slices.append(slice(max(0, int(there[0]) - reach), min(n, int(there[-1]) + reach + 1)))
    return tuple(slices)


def motion_of(field: Float[ndarray, "d *s"], slice_axis: int | None) -> Float[Tensor, "b e *within"]:
    """A field as a batch of one, or of slices, each with the motion within itself."""
    u: Any = torch.from_numpy(np.ascontiguousarray(field))
    if slice_axis is None:
        return u[None]
    within = [axis for axis in range(len(field)) if axis != slice_axis]
    return u[within].movedim(1 + slice_axis, 0)


def move_labels(number: Integer[Tensor, "b 1 *s"], u: Float[Tensor, "b d *s"], count: int) -> Integer[Tensor, "b 1 *s"]:
    """Labels 0 to count − 1 through the inverse of a motion; labels are the same where nothing moves."""
    if not len(number) or not u.any():
        return number
    back = invert(u, TOLERANCE_VOXELS, MAX_ITERATIONS).field
    best, found = torch.full_like(back[:, :1], -1.0), torch.zeros_like(number)
    for value in range(count):
        weight = warp((number == value).to(back), back)
        found = torch.where(weight > best, value, found)
        best = torch.maximum(best, weight)
    return found
