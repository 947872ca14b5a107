"""The masks that a registration was run with, found again by metrics.json beside its transform."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vrnet.app.measured import MASK_PATHS
from vrnet.app.pair import METRICS, TRANSFORM
from vrnet.errors import warn_of_input
from vrnet.files import exists, read_json
from vrnet.schema import convert_record

MaskFiles = tuple[Path | None, Path | None]
"""The mask of fixed, and that of moving."""


@dataclass(frozen=True)
class ByRole:
    """What metrics.json says of the file of either image."""

    fixed: str | None = None
    moving: str | None = None

    @property
    def names(self) -> str:
        """Those that there are: "a and b"."""
        return " and ".join(filter(None, (self.fixed, self.moving)))

    @property
    def files(self) -> MaskFiles:
        return Path(self.fixed) if self.fixed else None, Path(self.moving) if self.moving else None


def masks_beside(transform: Path, fixed: Path, moving: Path) -> MaskFiles:
    """The masks that `vrnet register` found a transform with; none if there were none, one is gone, or the images are
    others. The user is told which masks are used, and why they are not."""
    paths, files = recorded(transform)
    if not paths.names:
        return None, None
    place = transform.with_name(METRICS)
    if (files.fixed, files.moving) != (fixed.name, moving.name):
        warn_of_input(f"{place} names masks, but of {files.names}: they are not used. If they are for these images, "
                      f"give --fixed-mask and --moving-mask ({paths.names})")  # fmt: skip
        return None, None
    gone = [str(path) for path in paths.files if path is not None and not exists(path)]
    if gone:
        warn_of_input(f"{transform} was found inside masks that are no longer there: {' and '.join(gone)}. The whole "
                      "images are compared, unless --fixed-mask and --moving-mask say where they are now")  # fmt: skip
        return None, None
    warn_of_input(f"the images are compared inside {paths.names}, as {place} names them (--ignore-masks compares all)")
    return paths.files


def recorded(transform: Path) -> tuple[ByRole, ByRole]:
    """(the paths of masks, the names of images) of metrics.json beside a transform; empty if it says nothing."""
    try:
        metrics = metrics_beside(transform)
        return convert_record(metrics[MASK_PATHS], ByRole), images_named(metrics)
    except (ValueError, KeyError, TypeError):  # a file of another program, or of a registration without masks
        return ByRole(), ByRole()


def metrics_beside(transform: Path) -> Any:
    """What metrics.json says, beside a transform that `vrnet register` wrote; KeyError where there is none."""
    place = transform.with_name(METRICS)
    if transform.name != TRANSFORM or not exists(place):
        raise KeyError(METRICS)
    return read_json(place)


def images_named(metrics: Any) -> ByRole:
    """The names of both images."""
    return convert_record({role: metrics["files"][role] for role in ("fixed", "moving")}, ByRole)
