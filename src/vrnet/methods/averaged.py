"""A method averaged over flips and quarter turns of the pair: u = mean of g⁻¹ · method(g · I0, g · I1).

No voxel is interpolated. Iterative methods hardly change by it; a network, which knows no symmetry, may gain.
"""

from dataclasses import dataclass
from itertools import permutations, product
from operator import attrgetter

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vrnet.errors import BadInput
from vrnet.fields.calculus import zeros
from vrnet.methods.method import CPU, Method, Question, Task
from vrnet.variational.cascade import Initializer, Spacing, initialize
from vrnet.variational.linearize import Field, Images, Masks

AVERAGED = "+average"
"""What the name of a method ends with if it is averaged."""
WORDS = "averaged over flips and quarter turns of the pair"


def turn(I: Float[Tensor, "b c *s"], order: tuple[int, ...], flipped: tuple[int, ...]) -> Float[Tensor, "b c *t"]:
    """The image with its axes in another order, some of them then reversed."""
    return I.permute(0, 1, *(2 + axis for axis in order)).flip([2 + axis for axis in flipped]).contiguous()


def turn_back(u: Float[Tensor, "b d *t"], order: tuple[int, ...], flipped: tuple[int, ...]) -> Float[Tensor, "b d *s"]:
    """Undo `turn` for a field."""
    back = [order.index(axis) for axis in range(len(order))]
    u = u.flip([2 + axis for axis in flipped])
    u[:, list(flipped)] *= -1
    return u[:, back].permute(0, 1, *(2 + axis for axis in back))


class AverageOverTurns(nn.Module):
    """What finds a field, asked once for each of the 8 flips of a volume; or of the 4 of a picture and, of square
    pixels, 4 with axes exchanged. Without a spacing, voxels have `own_spacing`."""

    def __init__(self, find: Initializer, own_spacing: Spacing = None) -> None:
        super().__init__()
        self.find, self.own_spacing = find, own_spacing

    def forward(self, I0: Images, I1: Images, spacing: Spacing = None, masks: Masks | None = None) -> Field:
        d, total, own = I0.dim() - 2, zeros(I0), spacing or self.own_spacing
        is_square = own is None or abs(own[0] / own[1] - 1) < 1e-3
        orders = list(permutations(range(d))) if d == 2 and is_square else [tuple(range(d))]
        flips = [tuple(axis for axis in range(d) if chosen[axis]) for chosen in product((False, True), repeat=d)]
        for g in product(orders, flips):
            seen = masks and Masks(turn(masks.fixed, *g), turn(masks.moving, *g))
            h = spacing and tuple(spacing[axis] for axis in g[0])
            total = total + turn_back(initialize(self.find, turn(I0, *g), turn(I1, *g), h, seen), *g)
        return total / (len(orders) * len(flips))


@dataclass(frozen=True)
class Averaged(Method):
    """Another method, averaged; in all else it is that method. BadInput where flips are not for it."""

    method: Method

    def __post_init__(self) -> None:
        card = self.method.card
        if card and card.flips_in_training is False:
            raise without_flips(self.method)

    def __str__(self) -> str:
        return f"{self.method}{AVERAGED}"

    def build(self, d: int, device: torch.device = CPU) -> Initializer:
        return AverageOverTurns(self.method.build(d, device), self.method.own_spacing)

    def resolve(
        self, d: int, spacing: Spacing, images: Task = "pair", shows_heart: Question | None = None
    ) -> "Averaged":
        return Averaged(self.method.resolve(d, spacing, images, shows_heart))

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
