"""Percentages as people read them."""


def percent(part: float) -> str:
    """0.384 as "38 %"."""
    return f"{100 * part:.0f} %"


def small_percent(value: float) -> str:
    """A percentage to two digits; a very small one in words, not in powers of ten."""
    return f"{value:.2g} %" if value >= 1e-3 else "less than 0.001 %"
