"""A number of a table: a mean and, over several subjects, a standard deviation. ".873(.050)" reads and prints."""

import csv
import re
from dataclasses import dataclass
from importlib.resources import files

import numpy as np

DIGITS = {"dice": 3, "hd": 2, "folding": 2, "jacobian": 3, "end": 2}
"""Decimals of the columns whose names begin so."""


@dataclass(frozen=True)
class Value:
    """mean(std), to so many decimals."""

    mean: float
    std: float | None = None
    digits: int = 3

    def __str__(self) -> str:
        mean = short(self.mean, self.digits)
        return mean if self.std is None else f"{mean}({short(self.std, self.digits)})"

    @classmethod
    def read(cls, text: str) -> "Value":
        """What is printed so."""
        found = re.fullmatch(r"(\d*\.\d+)(?:\((\d*\.\d+)\))?", text)
        if found is None:
            raise ValueError(f'"{text}" is not a mean and a standard deviation')
        mean, std = found.groups()
        return cls(float(mean), None if std is None else float(std), len(mean.split(".")[1]))

    @classmethod
    def of(cls, numbers: list[float], column: str) -> "Value":
        """Over subjects, to the decimals of the column."""
        present = [x for x in numbers if not np.isnan(x)] or [np.nan]
        return cls(float(np.mean(present)), float(np.std(present)), DIGITS.get(column.split("_")[0], 3))


def short(number: float, digits: int) -> str:
    """.873, as the paper prints what is below one."""
    return f"{number:.{digits}f}".removeprefix("0") if 0 <= number < 1 else f"{number:.{digits}f}"


Published = dict[str, dict[str, Value]]
"""{method: {column: value}}"""


def published(name: str) -> Published:
    """The numbers of one of the paper's tables; none where it has no such table."""
    place = files("vrnet.paper") / "published" / f"{name}.csv"
    if not place.is_file():
        return {}
    with place.open(encoding="utf-8") as file:
        return {
            row.pop("method"): {key: Value.read(text) for key, text in row.items() if text}
            for row in csv.DictReader(file)
        }
