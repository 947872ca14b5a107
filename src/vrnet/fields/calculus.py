"""Calculus of displacement fields u (b, d, *s), which displace voxel x to x + u(x), in voxels; u[:, i] is along spatial
axis i. Every function is pure, differentiable, and written once for any dimension d."""

from collections.abc import Sequence
from functools import lru_cache, reduce
from math import ceil

import torch
from jaxtyping import Float, Integer, Shaped
from torch import Tensor
from torch.nn import functional

from vrnet.devices import in_parts, make_rows
from vrnet.errors import BadInput

__all__ = [
    "RelativeSpacing", "compose", "convolve", "determinant", "divergence", "exp", "forward_gradient", "gradient",
    "jacobian", "minor", "position", "relative_spacing", "repeat_border", "resize", "resize_field", "sample", "scale",
    "shorten", "smooth", "squared_gradient", "squared_norm", "warp", "warp_labels", "zeros",
]  # fmt: skip
RelativeSpacing = tuple[float, ...]  # the edges of a voxel, the shortest counting as 1
LINEAR_MODE = {2: "bilinear", 3: "trilinear"}
SIGNED_TYPE = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}


def check_finite(u: Float[Tensor, "b d *s"], name: str) -> None:
    """BadInput if the field of this name has no meaning; measures would take NaN for no folds."""
    if not u.isfinite().all():
        raise BadInput(f"{name}: the displacements found are NaN or infinite; are its weights, or the images, damaged?")


def relative_spacing(spacing: tuple[float, ...] | None, d: int) -> RelativeSpacing:
    """The edges of a voxel in units of the shortest; a cube where no spacing is given."""
    return tuple(h / min(spacing) for h in spacing) if spacing else (1.0,) * d


def scale(u: Float[Tensor, "b d *s"], factors: RelativeSpacing) -> Float[Tensor, "b d *s"]:
    """Component i of u times factors[i]; u itself where all are 1."""
    if set(factors) == {1.0}:
        return u
    return torch.stack([component * factor for component, factor in zip(u.unbind(1), factors, strict=True)], dim=1)


def zeros(I: Float[Tensor, "b c *s"]) -> Float[Tensor, "b d *s"]:
    """The field that moves nothing, on the grid of I."""
    return I.new_zeros(I.shape[0], I.dim() - 2, *I.shape[2:])


def position(u: Float[Tensor, "b d *s"], axis: int, rows: slice = slice(None)) -> Float[Tensor, "b *t"]:
    """x + u(x) along one axis, inside the grid, in some rows of the first axis; half precision cannot count voxels."""
    n = u.shape[2 + axis]
    x = torch.arange(n, dtype=torch.float32, device=u.device)
    x = (x if axis else x[rows]).view(-1, *[1] * (u.dim() - 3 - axis))
    return (x + u[:, axis, rows]).clamp(0, n - 1)


def warp(I: Float[Tensor, "b c *s"], u: Float[Tensor, "b d *s"]) -> Float[Tensor, "b c *s"]:
    """I(x + u(x)), by linear interpolation, the border repeated; the identity is exact, unlike grid_sample's."""
    return make_rows(lambda rows: warp_rows(I, u, rows), I)


def warp_rows(I: Float[Tensor, "b c *s"], u: Float[Tensor, "b d *s"], rows: slice) -> Float[Tensor, "b c *t"]:
    """I(x + u(x)) in some rows of the first axis."""
    places = [position(u, i, rows).flatten(1) for i in range(u.shape[1])]
    return sample(I, places).view(*I.shape[:2], rows.stop - rows.start, *I.shape[3:])


def sample(I: Float[Tensor, "b c *s"], positions: list[Float[Tensor, "b n"]]) -> Float[Tensor, "b c n"]:
    """I at n points inside the grid, given along each axis in voxels, by linear interpolation."""
    corner: Tensor = torch.zeros(1, dtype=torch.long, device=I.device)
    axes = []
    for i, (n, x) in enumerate(zip(I.shape[2:], positions, strict=True)):
        if n > 1:
            x, stride = x[:, None], I.shape[i + 3 :].numel()
            # A voxel at the far border belongs to the cell before it; a NaN gets some legal cell, and stays a NaN.
            cell = x.detach().long().clamp_(0, n - 2)
            axes.append((stride, (x - cell).to(I.dtype)))
            corner = corner + cell.mul_(stride)
    points = positions[0].shape[1]
    return interpolate(I.flatten(2), corner.expand(len(I), 1, points), 0, axes)


def interpolate(
    I: Float[Tensor, "b c m"], corner: Integer[Tensor, "b 1 n"], offset: int, axes: list[tuple[int, Tensor]]
) -> Float[Tensor, "b c n"]:
    """I inside the cells that start at flat index corner + offset; each axis has its stride and its fractions."""
    if not axes:
        corner = corner.expand(-1, I.shape[1], -1)
        return I[:, :, offset:].gather(2, corner) if in_parts(I) else I.gather(2, corner + offset if offset else corner)
    (stride, fraction), *rest = axes
    near, far = (interpolate(I, corner, offset + step, rest) for step in (0, stride))
    return near.lerp_(far, fraction) if in_parts(I) else near.lerp(far, fraction)


def warp_labels(L: Shaped[Tensor, "b c *s"], u: Float[Tensor, "b d *s"]) -> Shaped[Tensor, "b c *s"]:
    """L(x + u(x)) at the nearest voxel; every value and type is kept."""
    nearest = [(position(u, i) + 0.5).long() * L.shape[i + 3 :].numel() for i in range(u.shape[1])]
    index = reduce(torch.add, nearest).clamp(0, L.shape[2:].numel() - 1).flatten(1)[:, None]
    signed = SIGNED_TYPE.get(L.dtype, L.dtype)  # torch cannot gather these types, but it can their bits
    return L.view(signed).flatten(2).gather(2, index.expand(*L.shape[:2], -1)).view(L.shape).view(L.dtype)


def gradient(I: Float[Tensor, "b c *s"]) -> Float[Tensor, "b c d *s"]:
    """∇I by central differences, as if the border voxels were repeated outside."""
    g = I.new_zeros(*I.shape[:2], I.dim() - 2, *I.shape[2:])
    for i, n in enumerate(I.shape[2:]):
        step, component = torch.diff(I, dim=2 + i), g[:, :, i]
        component.narrow(2 + i, 0, n - 1).add_(step, alpha=0.5)
        component.narrow(2 + i, 1, n - 1).add_(step, alpha=0.5)
    return g


def forward_gradient(u: Float[Tensor, "b c *s"]) -> Float[Tensor, "b c d *s"]:
    """∇u by forward differences, zero across the far border."""
    g = u.new_zeros(*u.shape[:2], u.dim() - 2, *u.shape[2:])
    for i, n in enumerate(u.shape[2:]):
        g[:, :, i].narrow(2 + i, 0, n - 1).copy_(torch.diff(u, dim=2 + i))
    return g


def divergence(p: Float[Tensor, "b c d *s"]) -> Float[Tensor, "b c *s"]:
    """div p = -∇ᵀp, the negative adjoint of the forward gradient."""
    return add_divergence(torch.zeros_like(p[:, :, 0]), p, (1.0,) * p.shape[2])


def add_divergence(
    u: Float[Tensor, "b c *s"], p: Float[Tensor, "b c d *s"], weights: RelativeSpacing, out: Tensor | None = None
) -> Float[Tensor, "b c *s"]:
    """u + Σ_i weights[i] ∂_i p_i, where ∂ is that of the divergence; in the memory of `out` where that is given."""
    out = u.clone() if out is None else out.copy_(u)
    for i, (component, weight, n) in enumerate(zip(p.unbind(2), weights, p.shape[3:], strict=True)):
        inner = component.narrow(2 + i, 0, n - 1)
        out.narrow(2 + i, 0, n - 1).add_(inner, alpha=weight)
        out.narrow(2 + i, 1, n - 1).sub_(inner, alpha=weight)
    return out


def squared_norm(p: Float[Tensor, "b c *s"]) -> Float[Tensor, "b *s"]:
    """Σ p² over the components, by fused products, which are faster than a strided sum."""
    first, *rest = p.unbind(1)
    total = first.square()
    for component in rest:
        total.addcmul_(component, component)
    return total


def shorten(u: Float[Tensor, "b d *s"], longest: float) -> Float[Tensor, "b d *s"]:
    """u, its vectors cut to a length."""

    def make(rows: slice) -> Tensor:
        part = u[:, :, rows]
        return part * (longest / squared_norm(part).sqrt().clamp(min=longest)[:, None])

    return make_rows(make, u)


def squared_gradient(u: Float[Tensor, "b c *s"], h: RelativeSpacing) -> Float[Tensor, "b *s"]:
    """|∇u|² by forward differences on voxels with edges h, axis by axis, so that no gradient is held whole."""
    total = torch.zeros_like(u[:, 0])
    for i, n in enumerate(u.shape[2:]):
        total.narrow(1 + i, 0, n - 1).add_(squared_norm(torch.diff(u, dim=2 + i)), alpha=h[i] ** -2)
    return total


def jacobian(u: Float[Tensor, "b d *s"]) -> Float[Tensor, "b d d *s"]:
    """∂(x + u)_i / ∂x_j = δ_ij + ∂_j u_i: central differences, one-sided at the border; none along a single voxel."""
    d = u.shape[1]
    columns = [torch.gradient(u, dim=2 + j)[0] if n > 1 else torch.zeros_like(u) for j, n in enumerate(u.shape[2:])]
    identity = torch.eye(d, dtype=u.dtype, device=u.device).view(1, d, d, *[1] * d)
    return torch.stack(columns, dim=2) + identity


def determinant(J: Float[Tensor, "b d d *s"]) -> Float[Tensor, "b *s"]:
    """det J at each voxel, by expansion along the first row."""
    axes = tuple(range(J.shape[1]))
    return minor(J, axes, axes)


def minor(J: Float[Tensor, "b d d *s"], rows: tuple[int, ...], columns: tuple[int, ...]) -> Float[Tensor, "b *s"]:
    """The determinant of the part of J in these rows and columns, at each voxel."""
    if len(rows) < 2:
        return J[:, rows[0], columns[0]] if rows else torch.ones_like(J[:, 0, 0])
    first, *rest = rows
    total = J[:, first, columns[0]] * minor(J, tuple(rest), columns[1:])
    for j in range(1, len(columns)):
        term = J[:, first, columns[j]] * minor(J, tuple(rest), (*columns[:j], *columns[j + 1 :]))
        total = total - term if j % 2 else total + term
    return total


def compose(u: Float[Tensor, "b d *s"], w: Float[Tensor, "b d *s"]) -> Float[Tensor, "b d *s"]:
    """Displacement of (id + u) ∘ (id + w): warping by it is warping by u, then the result by w."""
    return make_rows(lambda rows: w[:, :, rows] + warp_rows(u, w, rows), u)


def exp(v: Float[Tensor, "b d *s"]) -> Float[Tensor, "b d *s"]:
    """Displacement of the flow of the velocity v (voxels per unit of time) after one unit: ∂φ/∂t = v ∘ φ, φ(0) = id. A
    midpoint step of 2⁻⁶ units, composed with itself six times: of up to 16 voxels, it is no longer than a quarter of
    one."""
    size = v.shape[2:]
    edges = tuple(2 / max(n - 1, 1) for n in size)  # grid_sample counts from -1 to 1, and the last axis first
    x = torch.meshgrid(*(torch.linspace(-1, 1, n, dtype=v.dtype, device=v.device) for n in size), indexing="ij")
    identity = torch.stack(x[::-1], dim=-1)

    def moved(I: Tensor, u: Tensor) -> Tensor:  # faster to differentiate than `warp`, and nearly as exact
        places = identity + u.movedim(1, -1)
        return functional.grid_sample(I, places, mode="bilinear", padding_mode="border", align_corners=True)

    step = scale(v, edges).flip(1) / 2**6
    u = moved(step, step / 2)
    for _ in range(6):
        u = u + moved(u, u)
    return scale(u.flip(1), tuple(1 / edge for edge in edges))


def smooth(I: Float[Tensor, "b c *s"], sigma: float | tuple[float, ...]) -> Float[Tensor, "b c *s"]:
    """Convolution with a Gaussian of sigma voxels (one for all axes, or one per axis), border repeated."""
    sigmas = sigma if isinstance(sigma, tuple) else (sigma,) * (I.dim() - 2)
    if not any(s > 0 for s in sigmas):
        return I
    first, *others = (gaussian(s) for s in sigmas)
    reach = len(first) // 2

    def make(rows: slice) -> Tensor:
        start, stop = rows.start - reach, rows.stop + reach
        inside = I[:, :, max(start, 0) : stop]
        part = convolve(repeat_border(inside, 2, max(-start, 0), max(stop - I.shape[2], 0)), 2, first)
        for axis, taps in enumerate(others, start=3):
            part = convolve(repeat_border(part, axis, *[len(taps) // 2] * 2), axis, taps)
        return part

    return make_rows(make, I)


@lru_cache
def gaussian(sigma: float) -> tuple[float, ...]:
    """The weights of a Gaussian of sigma voxels, three times as far to each side."""
    if not sigma > 0:
        return (1.0,)
    radius = ceil(3 * sigma)
    taps = torch.arange(-radius, radius + 1, dtype=torch.float64).div(sigma).square().mul(-0.5).exp()
    return tuple((taps / taps.sum()).tolist())


def convolve(I: Float[Tensor, "b c *s"], axis: int, taps: Sequence[float]) -> Float[Tensor, "b c *t"]:
    """Σ_k taps[k] I(x + k) along an axis, wherever all of them are inside."""
    if len(taps) == 1:
        return I
    n = I.shape[axis] - len(taps) + 1
    out = I.narrow(axis, 0, n) * taps[0]
    for k, tap in enumerate(taps[1:], start=1):
        out.add_(I.narrow(axis, k, n), alpha=tap)
    return out


def repeat_border(I: Shaped[Tensor, "b c *s"], axis: int, before: int, after: int) -> Shaped[Tensor, "b c *t"]:
    """I with its first and last voxels along an axis repeated so many times: by a plain copy, not voxel by voxel."""
    if not before and not after:
        return I
    sides = (0, before), (I.shape[axis] - 1, after)
    first, last = (I.narrow(axis, k, 1).expand(*I.shape[:axis], times, *I.shape[axis + 1 :]) for k, times in sides)
    return torch.cat([first, I, last], dim=axis)


def resize(I: Float[Tensor, "b c *s"], shape: tuple[int, ...]) -> Float[Tensor, "b c *t"]:
    """I on a grid of another shape over the same extent, corner on corner; low-passed along axes that shrink."""
    factors = [(n - 1) / max(m - 1, 1) for n, m in zip(I.shape[2:], shape, strict=True)]
    blurred = smooth(I, tuple(0.5 * max(f * f - 1, 0.0) ** 0.5 for f in factors))
    return functional.interpolate(blurred, size=shape, mode=LINEAR_MODE[len(shape)], align_corners=True)


def resize_field(u: Float[Tensor, "b d *s"], shape: tuple[int, ...]) -> Float[Tensor, "b d *t"]:
    """u on a grid of another shape over the same extent; displacements are counted in the new voxels."""
    factors = tuple((m - 1) / max(n - 1, 1) for n, m in zip(u.shape[2:], shape, strict=True))
    return scale(functional.interpolate(u, size=shape, mode=LINEAR_MODE[len(shape)], align_corners=True), factors)
