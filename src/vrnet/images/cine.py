"""A cine: images of one beating heart on one grid, in the order of time."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Shaped
from numpy import ndarray

from vrnet.errors import BadInput
from vrnet.images.grid import Grid
from vrnet.images.image import Image
from vrnet.views import viewer

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MIN_FRAMES = 2


@dataclass(frozen=True, repr=False, eq=False)
class Cine:
    """A cycle of 2D images, stacks or volumes; the last frame is followed by the first of the next beat."""

    frames: Shaped[ndarray, "t *s"]
    grid: Grid
    """That of each frame."""
    times_ms: tuple[float, ...] | None = None
    """When each frame was taken, in ms after the R wave; None where the files do not say."""
    name: str = "the cine"
    """What messages call the cine: the file or folder it came from."""
    doubt: str = ""
    """Why it may be no cine, where its file leaves that open."""

    def __post_init__(self) -> None:
        check_shape(self)
        for k, frame in enumerate(self.frames):
            check_frame(frame, f"frame {k} of {self.name}")
        if self.times_ms is not None:
            check_times(self.times_ms, len(self.frames), self.name)

    def __repr__(self) -> str:
        spacing = " x ".join(f"{h:.4g}" for h in self.grid.spacing)
        return f"Cine({self.name}: {len(self.frames)} frames of {self.grid.shape}, {spacing} mm)"

    def __len__(self) -> int:
        """How many frames it has."""
        return len(self.frames)

    def image(self, k: int) -> Image:
        """Frame k."""
        return Image(self.frames[k], self.grid, f"frame {k} of {self.name}")

    def show(self) -> "Figure":
        """A figure of matplotlib: the middle slice at a few frames, evenly through the cycle."""
        return viewer().draw(self)

    def _repr_html_(self) -> str:
        return viewer().card(self)


def check_shape(cine: Cine) -> None:
    """BadInput unless there are several frames, each on the grid."""
    if cine.frames.ndim < 1 or cine.frames.shape[1:] != cine.grid.shape or len(cine.grid.shape) not in (2, 3):
        raise BadInput(
            f"{cine.name} is {cine.frames.shape} on a grid of {cine.grid.shape}: give (t, *shape), its frames 2D or 3D"
        )
    if len(cine.frames) < MIN_FRAMES:
        raise BadInput(f"{cine.name} holds one frame only: give a cine, or register two images with `vrnet register`")


def check_frame(frame: Shaped[ndarray, "*s"], name: str) -> None:
    """BadInput unless a frame holds real, finite numbers that differ."""
    if frame.dtype.kind not in "iufb":
        raise BadInput(f"{name} holds {frame.dtype}: give images of real numbers")
    if frame.dtype.kind == "f" and not np.isfinite(frame).all():
        raise BadInput(f"{name} contains NaN or infinite values: replace them, or leave the frame out")
    if frame.size == 0 or (frame == frame.flat[0]).all():
        raise BadInput(f"{name} is the same everywhere: it shows nothing; leave it out of the cine")


def check_times(times_ms: tuple[float, ...], frames: int, name: str) -> None:
    """BadInput unless there is a time for every frame, each later than the one before."""
    if len(times_ms) != frames:
        raise BadInput(f"{name} has {frames} frames and {len(times_ms)} times: give one time per frame")
    steps = np.diff(times_ms)
    if not (np.isfinite(times_ms).all() and (steps > 0).all()):
        late = int(np.argmin(steps > 0)) + 1 if np.isfinite(times_ms).all() else int(np.argmin(np.isfinite(times_ms)))
        raise BadInput(f"the times of {name} do not increase at frame {late} ({times_ms[late]:g} ms): mend their order")
