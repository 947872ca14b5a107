"""A cine in, for every frame t the motion from the reference to t out: two chains of registrations round the cycle.

Each frame starts from the motion of its neighbour and is registered against the reference; see `go_round`. What a
network finds, one solver turns and another refines. docs/cine.md says how exact that is."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Integer
from numpy import ndarray
from torch import Tensor

from vrnet.devices import CPU, in_batches, side_by_side, threads_for
from vrnet.errors import Progress
from vrnet.fields.calculus import check_finite, compose, relative_spacing, scale, smooth, warp
from vrnet.fields.folds import Repair, repair_folds
from vrnet.fields.inverse import invert
from vrnet.images.grid import Grid
from vrnet.images.image import Cine, rescale_jointly
from vrnet.methods.method import Method
from vrnet.methods.names import parse_method
from vrnet.methods.solvers import Variational, preset
from vrnet.registration.arrays import Plan, batch, find_each, unbatch
from vrnet.registration.images import choose_slice_axis, mirror_field
from vrnet.registration.masks import Box, cut, fade_out
from vrnet.variational.cascade import Initializer
from vrnet.variational.solver import Solver
from vrnet.vocabulary import Channels, Slices

# Two chains of registrations round a cycle I_0, I_1, …, I_n = I_0, one forwards and one backwards, and their blend.
#
# A chain takes the field of the frame before, smoothed and a little smaller, as a start s of the registration of the
# reference with frame k. A solver iterates from s. Any other method registers the reference with what s leaves:
#
#     w = find(I_0, I_k ∘ (id + s)) − find(I_0, I_0),   id + u_k = (id + s) ∘ (id + w).
#
# What a network finds between an image and itself, a tenth of a voxel, would add up from frame to frame. Errors do not,
# since every frame is compared with the reference itself. Motion that images do not constrain is forgotten where the
# start is smoothed, or, as a turn of the whole heart, where it is made smaller; what they show is found again. With
# forward fields f and backward fields b, the blend is u_k = (1 − k/n) f_k + (k/n) b_k, so that the cycle closes.

SMOOTHING_MM = (6.0, 1.5)
"""σ of the Gaussians that smooth a start and what is found from it: about the wall of a ventricle, and a voxel."""
SOLVER_SMOOTHING_MM = (2.0, 1.0)  # likewise for a solver, whose result hardly depends on its start
KEPT_OF_START = 0.8
"""The part of a start that is kept, by methods other than solvers. On phantoms whose every frame was seen, chains close
within 0.1 mm; with all of it 0.4 mm off, and with 0.6 points at end-systole are half as far again from the truth."""
Frames = Float[Tensor, "t b c *s"]  # of a cycle; slices are a batch
FindFrom = Callable[[Tensor, Tensor, Tensor], Tensor]  # (I0, I1, start) -> the field of a batch of pairs


class Smoothing(NamedTuple):
    """What is done to a start and to a result: standard deviations in voxels along each axis."""

    start: tuple[float, ...]
    result: tuple[float, ...]
    kept: float = 1.0  # the part of a start that is kept

    @classmethod
    def on(cls, spacing: tuple[float, ...], is_solver: bool) -> "Smoothing":
        """That of starts and results on voxels of these edges in mm."""
        sigmas = SOLVER_SMOOTHING_MM if is_solver else SMOOTHING_MM
        start, result = (tuple(sigma / h for h in spacing) for sigma in sigmas)
        return cls(start, result, 1.0 if is_solver else KEPT_OF_START)


class Cycle(NamedTuple):
    """What two chains found."""

    fields: Float[Tensor, "t b d *s"]  # the blend, of every frame; the reference's is zero
    closing: Float[Tensor, "2 b d *s"]  # what each found for the reference itself, once round the cycle


def go_round(find: FindFrom, frames: Frames, sigma: Smoothing, after: Callable[[int], None] | None = None) -> Cycle:
    """Track every frame of a cycle whose first is the reference; `after` is told how many of n steps are done."""
    n, reference = len(frames), frames[0]
    fields = frames.new_zeros(n, reference.shape[0], reference.dim() - 2, *reference.shape[2:])
    found = torch.cat([fields[0], fields[0]])
    for step in range(1, n + 1):
        start = sigma.kept * smooth(found, sigma.start)
        pairs = torch.cat([reference, reference]), torch.cat([frames[step % n], frames[n - step]])
        found = smooth(find(*pairs, start), sigma.result)
        if step < n:
            forward, backward = found.chunk(2)
            fields[step] += (1 - step / n) * forward
            fields[n - step] += (1 - step / n) * backward
        if after is not None:
            after(step)
    return Cycle(fields, torch.stack(found.chunk(2)))


def start_by_warping(
    find: Callable[[Tensor, Tensor], Tensor], still: Float[Tensor, "b d *s"] | None = None
) -> FindFrom:
    """A method that knows of no start, given images warped by it; `still` is what it finds in two equal images."""

    def find_from(I0: Tensor, I1: Tensor, start: Tensor) -> Tensor:
        u = find(I0, warp(I1, start))
        return compose(start, u if still is None else u - torch.cat([still, still]))

    return find_from


# A motion that contracts as one field does, and turns as another: w = u + P(v − u).
#
# Any field, in mm, is the gradient of a potential, which holds a contraction, and a part P u without divergence, which
# holds a turn, or a shift of the whole. With wave vectors k, (P u)^(k) = û(k) − k (k · û(k)) / |k|²; the mean, of
# k = 0, belongs to P u. How far a wall has come in, a network finds best, since its outlines show it; how far it has
# turned along them only the texture within it shows, of which a chain of a network's motions keeps too little.


def without_divergence(u: Float[Tensor, "b d *s"], spacing: tuple[float, ...]) -> Float[Tensor, "b d *s"]:
    """P u of a field in voxels, as if it went on periodically; of a contraction that a border cuts, much is in P u."""
    axes = tuple(range(2, u.dim()))
    waves = [torch.fft.fftfreq(n, h, dtype=u.dtype, device=u.device) for n, h in zip(u.shape[2:], spacing, strict=True)]
    for wave in waves:  # the shortest wave of an even side runs either way: its k is 0, so that P u is real
        if len(wave) % 2 == 0:
            wave[len(wave) // 2] = 0
    k = torch.stack(torch.meshgrid(*waves, indexing="ij"))
    transformed = torch.fft.fftn(scale(u, spacing), dim=axes)
    along = (k * transformed).sum(1, keepdim=True) / k.square().sum(0).where(k.any(0), torch.ones_like(k[0]))
    kept = torch.fft.ifftn(transformed - k * along, dim=axes).real
    return scale(kept, tuple(1 / h for h in spacing))


ANEW = preset("Gaussian", "LNCC")  # what finds a frame whose start is worse than none
REFINEMENT = replace(ANEW, lam=1.0, levels=1, warps=5, finest_warps=0, momentum=0.0)
"""What refines the fields of a network, which adds a little at every step of a chain. With more warps it finds less
motion; with a smaller λ, noise."""
TURNING = preset("TV", "L1")  # what finds how slices turn; of a contraction it finds too little on real cines
FRAMES_OF_NETWORK = 20  # how many frames of a cine a network sees at most: between them motion is little
PART_OF_NETWORK, PART_OF_TURNING = 0.7, 0.2
"""Of the time that it takes to track a cine; the rest is the refinement. In volumes no solver finds turns."""


class TrackedMotion(NamedTuple):
    """The motion of every frame on the grid of the cine, in voxels."""

    fields: Float[ndarray, "t d *s"]  # the point at x in the reference is at x + fields[t](x) in frame t
    closing: Float[ndarray, "2 d *s"]  # what the forward and the backward chain find for the reference itself
    repairs: tuple[Repair | None, ...]  # of each frame's folds; None where there were none


@dataclass(frozen=True)
class TrackingPlan(Plan):
    """By what a cine is tracked, where, and how its arrays are turned for it."""

    within: tuple[float, ...]
    grid: Grid  # that of the frames with their axes in the world's order
    order: tuple[int, ...]

    def refinement(self, n: int) -> Variational | None:
        """What refines the fields of n frames: those of a network's chain, of more than one step."""
        return REFINEMENT if self.method.is_network and n > 2 else None

    def turning(self, n: int) -> Variational | None:
        """What finds how n frames turn, where the method finds how they contract: slices that are refined."""
        return TURNING if self.refinement(n) is not None and self.d == 2 else None

    def seen(self, n: int) -> list[int]:
        """Which of n frames, from the reference on, the method registers: a network some, evenly spread."""
        count = min(n, FRAMES_OF_NETWORK) if self.method.is_network else n
        return [k * n // count for k in range(count)]


def plan_tracking(
    cine: Cine, method: str | Method, slices: Slices, device: str, channels: Channels = "auto"
) -> TrackingPlan:
    """How a cine is to be tracked; BadInput if anything is in the way."""
    order = cine.grid.order
    grid, given = cine.grid.reordered(order), parse_method(method).load()
    axis = choose_slice_axis(grid, slices, given.dimensions)
    plan = Plan.of(given, grid.shape, grid.spacing, axis, device, "cine", channels)
    return TrackingPlan(**vars(plan), grid=grid, order=order)


def track_motion(
    cine: Cine, plan: TrackingPlan, frame: int = 0, progress: Progress | None = None, box: Box | None = None
) -> TrackedMotion:
    """Find u_t with I_t(x + u_t(x)) ≈ I_r(x) for every frame t, r being the reference `frame`; no field folds. All
    frames have one scaling of intensities. Slices of a stack move each within itself; what moves is looked for in a box
    of each slice, with its axes as the world's, and the motion ends beyond it."""
    with torch.inference_mode(), threads_for(plan.method.is_network, cine.frames[0].size):
        frames = prepare(cine, plan, frame)
        shape, h = tuple(frames.shape[3:]), relative_spacing(plan.within, plan.d)
        if box is not None and plan.d == 2:
            frames = torch.stack([cut(I, box) for I in frames])
        cycle = track_cycle(plan, frames, progress or (lambda part: None))
        if box is not None and plan.d == 2:
            cycle = Cycle(*(torch.stack([fade_out(u, box, shape, h) for u in part]) for part in cycle))
        blend, closing = ([unbatch(u, plan.slice_axis) for u in part] for part in cycle)
        with threads_for(False, cycle.fields[0, 0, 0].numel()):
            mended = [repair_folds(u, plan.grid.spacing, plan.slice_axis) for u in blend]  # it may fold
        fields = [field for field, _ in mended]
    for u in fields:
        check_finite(u[None], str(plan.method))
    back = np.argsort(plan.order)

    def as_stored(part: list[Tensor]) -> Float[ndarray, "n d *s"]:
        mirrored = (mirror_field(u.cpu().numpy(), plan.grid.backward) for u in part)
        return np.stack([u[back].transpose(0, *(1 + back)) for u in mirrored])

    repairs = [repair and repair.as_stored(plan.grid.shape, plan.grid.backward, back.tolist()) for _, repair in mended]
    in_order = tuple(repairs[k - frame] for k in range(len(cine)))
    return TrackedMotion(np.roll(as_stored(fields), frame, axis=0), as_stored(closing), in_order)


def prepare(cine: Cine, plan: TrackingPlan, frame: int) -> Frames:
    """The frames from the reference on, in [0, 1] by one scaling, axes as the world's run; slices are batches."""
    whole = np.roll(cine.frames, -frame, axis=0).transpose(0, *(1 + axis for axis in plan.order))
    turned = np.flip(whole, [1 + axis for axis in plan.grid.backward]).astype(np.float32)
    (scaled,) = rescale_jointly(torch.from_numpy(turned))
    return torch.stack([batch(I, plan.slice_axis) for I in scaled]).to(plan.device)


def track_cycle(plan: TrackingPlan, frames: Frames, progress: Progress) -> Cycle:
    """The motion of every frame: a network's of some, a solver's of how slices turn, and another's that refines all,
    both by intensities alone."""
    n = len(frames)
    turning, seen = plan.turning(n), plan.seen(n)
    shown = torch.stack([plan.channels.beside(I, plan.within) for I in frames[seen]])
    if plan.refinement(n) is None:
        return follow(plan, plan.find, shown, progress)
    of_chains = PART_OF_NETWORK + (PART_OF_TURNING if turning is None else 0)
    fields, closing = follow(plan, plan.find, shown, lambda part: progress(of_chains * part))
    fields, done = between(fields, seen, n), PART_OF_NETWORK + PART_OF_TURNING
    if turning is not None:  # in all frames: in fewer, the texture that shows turns is a longer way off
        find = turning.build(plan.d, plan.device)
        turns = follow(plan, find, frames, lambda part: progress(PART_OF_NETWORK + PART_OF_TURNING * part)).fields
        for u, turned in zip(fields[1:], turns[1:], strict=True):
            u += without_divergence(turned - u, plan.within)
    return refine(plan, frames, Cycle(fields, closing), lambda part: progress(done + (1 - done) * part))


def between(fields: Float[Tensor, "m b d *s"], seen: list[int], n: int) -> Float[Tensor, "n b d *s"]:
    """The fields of all n frames of a cycle, linear in time between those of the frames that were seen."""
    found = fields.new_zeros(n, *fields.shape[1:])
    for k, (first, last) in enumerate(pairwise([*seen, n])):
        for t in range(first, last):
            part = (t - first) / (last - first)
            found[t] = torch.lerp(fields[k], fields[(k + 1) % len(seen)], part)
    return found


def refine(plan: TrackingPlan, frames: Frames, cycle: Cycle, progress: Progress) -> Cycle:
    """The fields that a solver finds from those of a cycle; anew, where a start is worse than no motion."""
    find, anew = (solve_from(each.build(plan.d, plan.device), plan) for each in (REFINEMENT, ANEW))
    fields, others = cycle.fields, range(1, len(frames))

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
        progress(t / others[-1])
    return cycle


def follow(plan: TrackingPlan, find: Initializer, frames: Frames, progress: Progress) -> Cycle:
    """Both chains, by the method of the plan or by a solver."""
    n, done = len(frames), 0

    def find_all(I0: Tensor, I1: Tensor) -> Tensor:
        return find_each(plan, I0, I1, None, lambda part: progress((done + part) / n))

    def after(step: int) -> None:
        nonlocal done
        done = step
        progress(done / n)

    if isinstance(find, Solver):
        return go_round(solve_from(find, plan), frames, Smoothing.on(plan.within, is_solver=True), after)
    still = find_each(plan, frames[0], frames[0], None) if plan.method.is_network else None
    return go_round(start_by_warping(find_all, still), frames, Smoothing.on(plan.within, is_solver=False), after)


def solve_from(solver: Solver, plan: TrackingPlan) -> FindFrom:
    """A solver that iterates from a start, so that all of the motion is regular; without one, from coarse to fine."""

    def find(I0: Tensor, I1: Tensor, start: Tensor) -> Tensor:
        def solve(part: slice) -> Tensor:
            s = start[part]
            return (solver.starting_from(s) if s.any() else solver)(I0[part], I1[part], plan.within)

        return torch.cat([*in_batches(solve, I0)])

    return find


# Labels of the reference brought to every frame: L_t(y) = L(φ_t⁻¹(y)), φ_t = id + u_t.

TOLERANCE_VOXELS, MAX_ITERATIONS = 0.05, 30  # of the inverse: labels need no better
MARGIN_VOXELS = 2  # beyond where labels are moved to: their inverse is sought between voxels


def propagate_labels(
    labels: Integer[ndarray, "*s"], fields: Float[ndarray, "t d *s"], slice_axis: int | None
) -> Integer[ndarray, "t *s"]:
    """The label map of every frame, given that of the reference; the fields are in voxels. A voxel gets the label of
    greatest weight by linear interpolation; a slice without labels has none in any frame."""
    values, number = np.unique(np.append(labels, labels.dtype.type(0)), return_inverse=True)
    found = np.zeros((len(fields), *labels.shape), labels.dtype)
    whole = batch(torch.from_numpy(number[:-1].reshape(labels.shape)), slice_axis)
    shown = whole.flatten(1).any(1).nonzero()[:, 0].tolist()

    @torch.inference_mode()
    def carry(t: int) -> None:
        u, moved = motion_of(fields[t], slice_axis), torch.zeros_like(whole)
        for k in shown:
            box: list[Any] = [slice(k, k + 1), slice(None)]  # what holds all labels of a slice, before and after
            for axis, n in enumerate(whole.shape[2:]):
                there = whole[k, 0].movedim(axis, 0).flatten(1).any(1).nonzero()[:, 0]
                reach = ceil(u[k, axis].abs().max().item()) + MARGIN_VOXELS
                box.append(slice(max(0, int(there[0]) - reach), min(n, int(there[-1]) + reach + 1)))
            within, back = whole[*box], invert(u[*box].contiguous(), TOLERANCE_VOXELS, MAX_ITERATIONS).field
            moved[*box] = torch.stack([warp((within == n).to(back), back) for n in range(len(values))]).argmax(0)
        at = moved[0, 0] if slice_axis is None else moved[:, 0].movedim(0, slice_axis)
        found[t] = values[at.numpy()]

    list(side_by_side(carry, range(len(fields))))
    return found


def motion_of(field: Float[ndarray, "d *s"], slice_axis: int | None) -> Float[Tensor, "b e *within"]:
    """A field as a batch of one, or of slices, each with the motion within itself."""
    u: Any = torch.from_numpy(np.ascontiguousarray(field))
    if slice_axis is None:
        return u[None]
    within = [axis for axis in range(len(field)) if axis != slice_axis]
    return u[within].movedim(1 + slice_axis, 0)
