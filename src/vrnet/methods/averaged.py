"""A method averaged over flips and quarter turns of the pair: u = mean of g⁻¹ · method(g · I0, g · I1).

No voxel is interpolated. Iterative methods hardly change by it; a network, which knows no symmetry, may gain.
"""

from dataclasses import dataclass
from itertools import permutations, product
from operator import attrgetter
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vrnet.errors import BadInput
from vrnet.fields.calculus import zeros
from vrnet.methods.method import CPU, Images, Method
from vrnet.variational.cascade import Initializer, Spacing, initialize
from vrnet.variational.linearize import Masks

AVERAGED = "+average"
"""What the name of a method ends with if it is averaged."""
WORDS = "averaged over flips and quarter turns of the pair"
SQUARE_TOLERANCE = 1e-3
"""Edges of a voxel that differ by less than this part are equally long."""


class Turn(NamedTuple):
    """A flip or a quarter turn of the grid: its axes in another order, some of them reversed."""

    order: tuple[int, ...]
    """Which axis comes to each place."""
    reversed: tuple[int, ...]
    """The places whose axis is then reversed."""

    def apply(self, I: Float[Tensor, "b c *s"]) -> Float[Tensor, "b c *t"]:
        """The image, turned."""
        exchanged = I.permute(0, 1, *(2 + axis for axis in self.order))
        return exchanged.flip([2 + axis for axis in self.reversed]).contiguous()

    def undo(self, u: Float[Tensor, "b d *t"]) -> Float[Tensor, "b d *s"]:
        """The field between images of which the turned ones have the field u."""
        back = [self.order.index(axis) for axis in range(len(self.order))]
        u = u.flip([2 + axis for axis in self.reversed])
        u[:, list(self.reversed)] *= -1
        return u[:, back].permute(0, 1, *(2 + axis for axis in back))


class AverageOverTurns(nn.Module):
    """What finds a field, asked once for each of the 8 flips of a volume; or of the 4 of a picture and, of square
    pixels, 4 with axes exchanged. Without a spacing, voxels have `own_spacing`."""

    def __init__(self, find: Initializer, own_spacing: Spacing = None) -> None:
        super().__init__()
        self.find, self.own_spacing = find, own_spacing

    def forward(
        self,
        I0: Float[Tensor, "b 1 *s"],
        I1: Float[Tensor, "b 1 *s"],
        spacing: Spacing = None,
        masks: Masks | None = None,
    ) -> Float[Tensor, "b d *s"]:
        d, total, own = I0.dim() - 2, zeros(I0), spacing or self.own_spacing
        is_square = own is None or abs(own[0] / own[1] - 1) < SQUARE_TOLERANCE
        orders = list(permutations(range(d))) if d == 2 and is_square else [tuple(range(d))]
        flips = [tuple(axis for axis in range(d) if chosen[axis]) for chosen in product((False, True), repeat=d)]
        turns = [Turn(order, reversed) for order in orders for reversed in flips]
        for turn in turns:
            seen = masks and masks.map(turn.apply)
            h = spacing and tuple(spacing[axis] for axis in turn.order)
            u = initialize(self.find, turn.apply(I0), turn.apply(I1), h, seen)
            total = total + turn.undo(u)
        return total / len(turns)


@dataclass(frozen=True)
class Averaged(Method):
    """Another method, averaged; in all else it is that method. BadInput where flips are not for it."""

    method: Method

    def __post_init__(self) -> None:
        if not self.method.takes_flips:
            raise without_flips(self.method)

    def __str__(self) -> str:
        return f"{self.method}{AVERAGED}"

    def build(self, d: int, device: torch.device = CPU) -> Initializer:
        return AverageOverTurns(self.method.build(d, device), self.method.own_spacing)

    def resolve(self, d: int, spacing: Spacing, images: Images = "pair") -> "Averaged":
        return Averaged(self.method.resolve(d, spacing, images))

    @property
    def summary(self) -> str:
        return f"{self.method.summary}; {WORDS}"

    @property
    def details(self) -> dict[str, str]:
        return {**self.method.details, "field": WORDS}

    @property
    def fixed_parameters(self) -> tuple[str, ...]:
        return ("method",)


for name in (*Method.__annotations__, *(key for key, value in vars(Method).items() if isinstance(value, property))):
    if name not in vars(Averaged):
        setattr(Averaged, name, property(attrgetter(f"method.{name}")))


def without_flips(method: Method) -> BadInput:
    """The error to raise where a network that never saw mirrored images is to be averaged."""
    return BadInput(
        f"{method} was trained without mirrored images and may go wrong in them, so that it is not averaged over flips "
        "and turns: leave out `average=True`, and +average in its name"
    )


def averaged(method: Method) -> Averaged:
    """The method averaged, once."""
    return method if isinstance(method, Averaged) else Averaged(method)
