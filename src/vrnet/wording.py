"""Numbers as sentences have them."""

from collections.abc import Iterable, Sequence


def in_runs(numbers: Sequence[int]) -> str:
    """Rising numbers, neighbours together: 4 to 19, 21."""
    starts = [n for n in numbers if n - 1 not in numbers]
    ends = [n for n in numbers if n + 1 not in numbers]
    return ", ".join(str(a) if a == b else f"{a} to {b}" for a, b in zip(starts, ends, strict=True))


def numbered(noun: str, numbers: Iterable[int]) -> str:
    """Slices or frames of an array as people count them, from 1: slice 12; slices 2 to 4, 12."""
    counted = [k + 1 for k in sorted(numbers)]
    return f"{noun}{'' if len(counted) == 1 else 's'} {in_runs(counted)}"


def percent(part: float) -> str:
    """0.384 as "38 %"."""
    return f"{100 * part:.0f} %"


def small_percent(value: float) -> str:
    """A percentage to two digits; a very small one in words, not in powers of ten."""
    return f"{value:.2g} %" if value >= 1e-3 else "less than 0.001 %"


SLIGHT_PERCENT, SLIGHT_MOVE = 0.01, 0.1


def is_slight(changed_percent: float, most: float) -> bool:
    """Whether a repair is next to nothing: of how many voxels, and by how much, in mm, or voxels of unknown size."""
    return changed_percent < SLIGHT_PERCENT and most < SLIGHT_MOVE
