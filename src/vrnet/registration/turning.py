"""A motion that contracts as one field does, and turns as another: w = u + P(v − u).

Any field, in mm, is the gradient of a potential and a part P u without divergence, which keeps areas. By Fourier
transforms over the grid, whose wave vectors are k,

    (P u)^(k) = û(k) − k (k · û(k)) / |k|²,

and the mean, of k = 0, belongs to P u. A contraction is in the gradient; a turn, or a shift of the whole, in P u. Of
the shift of a part about half is in either. Fields go on periodically, so that this holds away from the borders: of a
contraction that a border cuts, much is in P u.

How far a wall has come in, its outlines show, and a network finds it best; how far it has turned along them, only the
texture within it shows. There a chain of a network's motions keeps too little, and a solver finds more."""

import torch
from jaxtyping import Float
from torch import Tensor

from vrnet.fields import scale


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
