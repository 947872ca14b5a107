"""Initialisers that the solvers start from: a coarser level of a pyramid, relearned contrasts, and a template T,
through which u = b ∘ a: from fixed to T by a, and on to moving by b. T is the mean of many images, each warped so that
all lie alike: what only one of them shows is gone. w says how much T is to be heeded at a voxel: as far as the images
are alike there."""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from vrnet.errors import BadInput, shape_text
from vrnet.fields.calculus import compose, relative_spacing, resize, resize_field, warp, zeros
from vrnet.variational.cascade import Initializer, Spacing
from vrnet.variational.contrast import learn_curves
from vrnet.variational.linearize import Field, Images, Masks

SMALLEST_AXIS = 16  # voxels that an axis keeps at least


def coarser_shape(shape: tuple[int, ...], spacing: Spacing = None, smallest: int = SMALLEST_AXIS) -> tuple[int, ...]:
    """Half the voxels along each axis that keeps enough of them and is about as finely sampled as any: of thick slices,
    1.5 times the shortest edge, the voxels within grow first; a little more than 1.5, since headers round spacings."""
    h = spacing or (1.0,) * len(shape)
    finest = min((edge for n, edge in zip(shape, h, strict=True) if n >= 2 * smallest), default=0.0)
    keep = [n < 2 * smallest or edge > 1.501 * finest for n, edge in zip(shape, h, strict=True)]
    return tuple(n if kept else (n + 1) // 2 for n, kept in zip(shape, keep, strict=True))


def coarser_spacing(spacing: Spacing, old: tuple[int, ...], new: tuple[int, ...]) -> tuple[float, ...]:
    """The spacing of a grid of another shape over the same extent, corner on corner."""
    h = spacing or (1.0,) * len(old)
    return tuple(edge * (n - 1) / max(m - 1, 1) if n != m else edge for edge, n, m in zip(h, old, new, strict=True))


class CoarseToFine(nn.Module):
    """The field that `solve` finds on the pair at half the resolution, brought back to the full one."""

    def __init__(self, solve: Initializer) -> None:
        super().__init__()
        self.solve = solve

    def forward(self, I0: Images, I1: Images, spacing: Spacing = None, masks: Masks | None = None) -> Field:
        fine = tuple(I0.shape[2:])
        coarse = coarser_shape(fine, spacing)
        if coarse == fine:
            return zeros(I0)
        h = coarser_spacing(spacing, fine, coarse)
        small = masks and masks.map(lambda w: resize(w, coarse))
        return resize_field(self.solve(resize(I0, coarse), resize(I1, coarse), h, small), fine)


class RelearnContrast(nn.Module):
    """Rounds of: by the field found so far, learn each contrast from the other, and find the field of both anew.
    `solve` gets two channels, (E[I1 | I0], I0) and (I1, E[I0 | I1]), before the further ones, remapped at the full
    resolution, since a remapped mean is not the mean of what was remapped."""

    def __init__(self, solve: Initializer, rounds: int) -> None:
        super().__init__()
        self.solve, self.rounds = solve, rounds

    def forward(self, I0: Images, I1: Images, spacing: Spacing = None, masks: Masks | None = None) -> Field:
        v, h = zeros(I0), relative_spacing(spacing, I0.dim() - 2)
        (A0, others0), (A1, others1) = ((I[:, :1], I[:, 1:]) for I in (I0, I1))
        for _ in range(self.rounds):
            curves = learn_curves(A0, warp(A1, v), h, masks and masks.weight(v))
            seen0, seen1 = curves.apply(A0, A1)
            v = self.solve(torch.cat([seen0, others0], 1), torch.cat([seen1, others1], 1), spacing, masks)
        return v


MakeSolver = Callable[[int, torch.device], Initializer]  # finds a field in d dimensions on a device; takes masks
MAX_TIMES_LARGER = 2  # than the template an image may be along an axis: most of a larger one is not compared


class ThroughTemplate(nn.Module):
    """A template as an initialiser: two images meet on it. It has no parameters, only T and w."""

    image: Tensor
    weight: Tensor

    def __init__(self, image: Float[Tensor, "1 1 *s"], weight: Float[Tensor, "1 1 *s"], make: MakeSolver) -> None:
        super().__init__()
        self.make = make
        self.register_buffer("image", image)
        self.register_buffer("weight", weight)

    def forward(self, I0: Images, I1: Images, spacing: Spacing = None, masks: Masks | None = None) -> Field:
        (T, w), everywhere = self.on_grid(I0), torch.ones_like(I0)
        w0, w1 = (masks.fixed, masks.moving) if masks else (everywhere, everywhere)
        found = self.solve(torch.cat([I0, T]), torch.cat([T, I1]), spacing, torch.cat([w0, w]), torch.cat([w, w1]))
        a, b = found.chunk(2)
        return compose(b, a)

    def solve(self, I0: Tensor, I1: Tensor, spacing: Spacing, w0: Tensor, w1: Tensor) -> Tensor:
        return self.make(I0.dim() - 2, I0.device)(I0, I1, spacing, Masks(w0, w1))

    def on_grid(self, like: Float[Tensor, "b 1 *s"]) -> tuple[Float[Tensor, "b 1 *s"], Float[Tensor, "b 1 *s"]]:
        """T and w on the grid of images, about the same centre. Beyond T nothing is known, and nothing counts."""
        shape, own = tuple(like.shape[2:]), tuple(self.image.shape[2:])
        if any(n > MAX_TIMES_LARGER * m for n, m in zip(shape, own, strict=True)):
            told = f"the images have {shape_text(shape)} voxels at the template's spacing, and that {shape_text(own)}"
            raise BadInput(f"{told}: cut them to what it shows, or register without it")
        T, w = recentre(self.image, shape), recentre(self.weight, shape, beyond=0.0)
        return T.expand_as(like).contiguous(), w.expand_as(like).contiguous()


def recentre(I: Images, shape: tuple[int, ...], beyond: float | None = None) -> Float[Tensor, "b c *t"]:
    """I on a grid of another shape about the same centre: cut, or filled with one value; without one, its border."""
    sides = []
    for have, n in zip(reversed(I.shape[2:]), reversed(shape), strict=True):
        before = int((n - have) / 2)  # negative where it is cut
        sides += [before, n - have - before]
    return functional.pad(I, sides, mode="replicate") if beyond is None else functional.pad(I, sides, value=beyond)
