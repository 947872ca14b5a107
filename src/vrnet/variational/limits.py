"""What the numbers of a term may be, said beside them and checked when one is made."""

from collections.abc import Mapping
from typing import ClassVar

from vrnet.errors import BadInput


class Limited:
    """A term whose numbers, or each of several, lie between a least and a greatest."""

    limits: ClassVar[Mapping[str, tuple[float, float]]] = {}

    def __post_init__(self) -> None:
        for name, (least, greatest) in self.limits.items():
            given = getattr(self, name)
            values = given if isinstance(given, tuple) else (given,)
            if not values or not all(least <= value <= greatest for value in values):
                kind = "one or more numbers" if isinstance(given, tuple) else "a number"
                raise BadInput(
                    f"{name} of {type(self).__name__} is {given}: give {kind} from {least:g} to {greatest:g}"
                )
