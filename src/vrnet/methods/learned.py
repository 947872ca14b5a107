"""What all learned methods have in common: they are trained, and their networks have a width."""

from dataclasses import replace
from typing import Protocol, runtime_checkable

from vrnet.errors import BadInput
from vrnet.methods.method import MASKS_OF_NETWORKS, LossTerms, Trainable
from vrnet.methods.parameters import check_at_most

PAPER_WIDTH = {2: 64, 3: 8}
MAX_CASCADES, MAX_WIDTH = 100, 4_096
"""More of either is a slip of the pen, or a file that is not to be trusted."""
COUNT = r"(\d{1,99})"
"""A number in a name: Python refuses to read one of thousands of digits."""
SHORTHAND = (
    "denoiser", "data", "warps", "iterations", "cascades",
    "init", "parameters", "order", "penalty", "exchange", "resolution", "start_weights", "width",
)  # fmt: skip
"""The fields that the shorthand of a network says."""


@runtime_checkable
class Learned(Trainable, Protocol):
    """What all learned methods have in common."""

    @property
    def is_network(self) -> bool:
        return True

    @property
    def masks(self) -> str:
        return MASKS_OF_NETWORKS

    @property
    def is_trainable(self) -> bool:
        return True

    @property
    def fixed_parameters(self) -> tuple[str, ...]:
        return SHORTHAND

    @property
    def loss(self) -> LossTerms:
        return LossTerms("L1", "Diffusion")

    @property
    def network_count(self) -> int:
        """How many networks it has at least; the file of a model has more tensors."""
        return 1

    def with_width(self, width: int | None) -> "Learned":
        return replace(self, width=width) if self.width is None else self  # type: ignore[type-var]


def check_width(width: int | None) -> None:
    if width is not None and width < 1:
        raise BadInput(f"a network of width {width} has no channels: give at least w1")
    check_at_most("the width of a network", width or 0, MAX_WIDTH)


def suffix(width: int | None) -> str:
    """How a name says the width, where it is not the paper's."""
    return "" if width is None else f"-w{width}"


def parse_width(digits: str | None) -> int | None:
    return int(digits) if digits else None
