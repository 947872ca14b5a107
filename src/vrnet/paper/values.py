"""One number of a table: a mean and, over several subjects, a standard deviation, printed as ".873(.050)"."""

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vrnet.files import read_rows

DECIMALS = {"dice": 3, "hd": 2, "folding": 2, "jacobian": 3, "end": 2}
"""Decimals of a measure, by the first word of its name."""


@dataclass(frozen=True)
class Value:
    """mean(std), printed to so many decimals."""

    mean: float
    std: float | None = None
    decimals: int = 3

    def __str__(self) -> str:
        mean = format_number(self.mean, self.decimals)
        return mean if self.std is None else f"{mean}({format_number(self.std, self.decimals)})"

    @classmethod
    def parse(cls, text: str) -> "Value":
        """The value that is printed so."""
        found = re.fullmatch(r"(\d*\.\d+)(?:\((\d*\.\d+)\))?", text)
        if found is None:
            raise ValueError(f'"{text}" is not a mean and a standard deviation')
        mean, std = found.groups()
        return cls(float(mean), None if std is None else float(std), len(mean.split(".")[1]))

    @classmethod
    def over_subjects(cls, numbers: list[float], measure: str) -> "Value":
        """Mean and standard deviation of the numbers that are not NaN, to the decimals of the measure."""
        present = [x for x in numbers if not np.isnan(x)] or [np.nan]
        return cls(float(np.mean(present)), float(np.std(present)), DECIMALS.get(measure.split("_")[0], 3))


def format_number(number: float, decimals: int) -> str:
    """.873: numbers below one have no zero before the point, as in the paper."""
    return f"{number:.{decimals}f}".removeprefix("0") if 0 <= number < 1 else f"{number:.{decimals}f}"


PublishedValues = dict[str, dict[str, Value]]
"""{method: {measure: value}}"""


def published_values(name: str) -> PublishedValues:
    """The numbers of one of the paper's tables, published/NAME.csv; none where it has no such table."""
    path = Path(__file__).parent / "published" / f"{name}.csv"
    if not path.is_file():
        return {}
    return {
        row.pop("method"): {measure: Value.parse(text) for measure, text in row.items() if text}
        for row in read_rows(path, "one row per method")
    }
