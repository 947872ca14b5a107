"""How results are looked at, measured and reported, by a layer above the one that makes them.

A person who holds a result asks it: `result.show()`. Imports run downward only, so a result cannot reach the rooms that
draw. It asks the viewer instead, and the public face, which knows all rooms, says which one that is.
"""

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast, runtime_checkable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Names = str | Mapping[int, str] | None
"""What labels are called: a text such as 1=RV,2=Myo,3=LV, a mapping, or the name of a data set or atlas."""


@runtime_checkable
class Viewer(Protocol):
    """What can be asked about a result. Labels are given as the result takes them, or None."""

    def measure(
        self, result: Any, fixed_labels: Any = None, moving_labels: Any = None, label_names: Names = None
    ) -> Any:
        """A registration with all that is measured of it."""
        ...

    def verdict(self, measured: Any) -> Any:
        """What it is worth: a `vrnet.Verdict`."""
        ...

    def report(self, result: Any, measured: Any, path: Path) -> Path:
        """Write the page of a registration; returns where."""
        ...

    def draw_measured(self, measured: Any) -> "Figure":
        """A picture of a registration."""
        ...

    def draw(self, shown: Any) -> "Figure":
        """A picture of an image, a cine or a transform."""
        ...

    def card(self, shown: Any) -> str:
        """HTML for a notebook: what it is, a small picture, and its verdict where it has one."""
        ...


def viewer() -> Viewer:
    """Who draws."""
    return cast(Viewer, import_module("vrnet.app.viewer"))
