"""Two chains of registrations round a cycle I_0, I_1, …, I_n = I_0, one forwards and one backwards, and their blend.

A chain takes the field of the frame before, smoothed and a little smaller, as a start s of the registration of the
reference with frame k. A solver iterates from s. Any other method registers the reference with what s leaves:

    w = find(I_0, I_k ∘ (id + s)) − find(I_0, I_0),   id + u_k = (id + s) ∘ (id + w).

What a network finds between an image and itself is no motion: a tenth of a voxel, which would add up from frame to
frame. Of methods that find nothing there, nothing is taken off.

Every frame is compared with the reference itself, so that errors do not add up as they do when motions from frame to
frame are composed; only what is left of the motion is sought, which is little in fast phases too. Smoothing the start
forgets what the images do not show of a motion, along edges and within even tissue, and what would otherwise grow from
frame to frame; making it smaller forgets what smoothing does not, such as a turn of the whole heart. What the images do
show is found again. With forward fields f and backward fields b, the blend is

    u_k = (1 − k/n) f_k + (k/n) b_k,

so that the last frame closes on the first."""

from collections.abc import Callable
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from vrnet.fields import compose, smooth, warp

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
