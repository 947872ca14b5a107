"""Numbers as sentences have them."""

from collections.abc import Iterable, Sequence


def in_runs(numbers: Sequence[int]) -> str:
    """Rising numbers, neighbours together: 4 to 19, 21."""
    starts = [n for n in numbers if n - 1 not in numbers]
    ends = [n for n in numbers if n + 1 not in numbers]
    return ", ".join(str(a) if a == b else f"{a} to {b}" for a, b in zip(starts, ends, strict=True))


def in_slices(slices: Iterable[int]) -> str:
    """Slices of an array as people count them, from 1: slice 12; slices 2 to 4, 12."""
    numbers = [k + 1 for k in sorted(slices)]
    return f"slice{'' if len(numbers) == 1 else 's'} {in_runs(numbers)}"


def percent(part: float) -> str:
    """0.384 as "38 %"."""
    return f"{100 * part:.0f} %"


def small_percent(value: float) -> str:
    """A percentage to two digits; a very small one in words, not in powers of ten."""
    return f"{value:.2g} %" if value >= 1e-3 else "less than 0.001 %"
