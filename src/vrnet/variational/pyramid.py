"""Coarse to fine: a level of the pyramid is an initialiser for the next."""

from jaxtyping import Float
from torch import Tensor, nn

from vrnet.fields import resize, resize_field, zeros
from vrnet.variational.cascade import Initializer

SMALLEST = 16


def coarser(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Half the voxels along each axis that has enough of them."""
    return tuple((n + 1) // 2 if n >= 2 * SMALLEST else n for n in shape)


class CoarseToFine(nn.Module):
    """The field that `solve` finds on the pair at half the resolution, brought back to the full one."""

    def __init__(self, solve: Initializer) -> None:
        super().__init__()
        self.solve = solve

    def forward(self, I0: Float[Tensor, "b c *s"], I1: Float[Tensor, "b c *s"]) -> Float[Tensor, "b d *s"]:
        fine = tuple(I0.shape[2:])
        coarse = coarser(fine)
        if coarse == fine:
            return zeros(I0)
        return resize_field(self.solve(resize(I0, coarse), resize(I1, coarse)), fine)
