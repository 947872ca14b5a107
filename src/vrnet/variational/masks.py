"""w(x) = w0(x) · w1(x + u): where two images are compared, as a weight in the data term.

min_u w D(ρ(u)) + θ/2 |u − v|² is the u-subproblem of D itself with θ/w in place of θ, and u = v where w is zero. So a
data term needs to know nothing of masks.
"""

from collections.abc import Callable
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from vrnet.fields import warp

SMALLEST_WEIGHT = 1e-6
"""Where the weight is less, the data term counts for nothing: θ/w would overflow."""
Weight = Float[Tensor, "b 1 *s"] | None
"""w(x): how much each voxel counts; None where all count alike."""


@dataclass(frozen=True)
class Masks:
    """How much each voxel of either image counts: 1 inside its mask, 0 outside, between them on coarser grids; in a
    template, as much as it is heeded there."""

    fixed: Float[Tensor, "b 1 *s"]
    moving: Float[Tensor, "b 1 *s"]

    def weight(self, u: Float[Tensor, "b d *s"]) -> Float[Tensor, "b 1 *s"]:
        """w(x) = w0(x) · w1(x + u(x))."""
        return self.fixed * warp(self.moving, u)

    def fill(
        self, I0: Float[Tensor, "b 1 *s"], I1: Float[Tensor, "b 1 *s"]
    ) -> tuple[Float[Tensor, "b 1 *s"], Float[Tensor, "b 1 *s"]]:
        """Each image, outside its own mask, as the other is, which asks for no motion: for what takes no weight.

        Outside both masks, where they are in-painted, both are shown as their mean."""
        w0, w1 = self.fixed + SMALLEST_WEIGHT, self.moving + SMALLEST_WEIGHT
        common = (w0 * I0 + w1 * I1) / (w0 + w1)
        return common.lerp(I0, self.fixed), common.lerp(I1, self.moving)

    def map(self, change: Callable[[Tensor], Tensor]) -> "Masks":
        """Both masks changed alike."""
        return Masks(change(self.fixed), change(self.moving))


def weight_at(u: Float[Tensor, "b d *s"], masks: Masks | None) -> Weight:
    """w at the field u; None, where everything counts, without masks."""
    return None if masks is None else masks.weight(u)
