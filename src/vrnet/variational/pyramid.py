"""Coarse to fine: a level of the pyramid is an initialiser for the next."""

from torch import nn

from vrnet.fields.calculus import relative_spacing, resize, resize_field, warp, zeros
from vrnet.variational.cascade import Initializer, Spacing, initialize
from vrnet.variational.contrast import learn_curves
from vrnet.variational.linearize import Field, Images, Masks, weight_at

SMALLEST_AXIS = 16  # voxels that an axis keeps at least
MAX_ASPECT = 1.501
"""An axis is halved if its edge is at most so many times the shortest: a little more than 1.5, which spacings rounded
in a header may or may not reach."""


def coarser_shape(shape: tuple[int, ...], spacing: Spacing = None, smallest: int = SMALLEST_AXIS) -> tuple[int, ...]:
    """Half the voxels along each axis that keeps enough of them and is about as finely sampled as any.

    Thick slices are left alone until the voxels within them have grown as wide."""
    h = spacing or (1.0,) * len(shape)
    finest = min((edge for n, edge in zip(shape, h, strict=True) if n >= 2 * smallest), default=0.0)
    keep = [n < 2 * smallest or edge > MAX_ASPECT * finest for n, edge in zip(shape, h, strict=True)]
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
        return resize_field(initialize(self.solve, resize(I0, coarse), resize(I1, coarse), h, small), fine)


class RelearnContrast(nn.Module):
    """Rounds of: by the field found so far, learn each contrast from the other, and find the field of both anew.

    `solve` is given images with two channels, (E[I1 | I0], I0) and (I1, E[I0 | I1]). They are remapped at the full
    resolution, since a remapped mean is not the mean of what was remapped."""

    def __init__(self, solve: Initializer, rounds: int) -> None:
        super().__init__()
        self.solve, self.rounds = solve, rounds

    def forward(self, I0: Images, I1: Images, spacing: Spacing = None, masks: Masks | None = None) -> Field:
        v, h = zeros(I0), relative_spacing(spacing, I0.dim() - 2)
        for _ in range(self.rounds):
            curves = learn_curves(I0, warp(I1, v), h, weight_at(v, masks))
            v = initialize(self.solve, *curves.apply(I0, I1), spacing, masks)
        return v
