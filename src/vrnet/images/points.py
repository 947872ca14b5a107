"""Points in the world, as CSV files: a header with x, y (and z), a row a point, millimetres."""

import csv
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from vrnet.errors import BadInput
from vrnet.files import atomic_write

Space = Literal["LPS", "RAS"]


@dataclass(frozen=True, eq=False)
class Points:
    """Points in LPS millimetres, with the table they came from, whose other columns are kept."""

    lps: Float[ndarray, "n d"]
    header: list[str]
    rows: list[list[str]]
    columns: list[int]
    """Where x, y (and z) are."""

    def moved(self, lps: Float[ndarray, "n d"]) -> "Points":
        return replace(self, lps=lps)


def read_points(path: Path, space: Space) -> Points:
    """The points of a table, whose numbers are in this space; BadInput if it has no x and y."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            header, *rows = [row for row in csv.reader(file) if row]
    except (OSError, ValueError, csv.Error) as error:
        raise BadInput(f"cannot read {path}: give a CSV file with a header x,y,z and a row a point") from error
    names = [name.strip().lower() for name in header]
    columns = [names.index(axis) for axis in "xyz" if axis in names]
    if names.count("x") != 1 or names.count("y") != 1 or names.count("z") > 1:
        raise BadInput(f"{path} has no columns x and y, or one twice: its first line must name them, such as x,y,z")
    try:
        numbers = np.array([[float(row[column]) for column in columns] for row in rows]).reshape(-1, len(columns))
    except (ValueError, IndexError) as error:
        raise BadInput(f"{path} has a row whose x, y or z is not a number: correct it") from error
    if not np.isfinite(numbers).all():
        raise BadInput(f"{path} has a point that is NaN or infinite: correct it")
    return Points(numbers * signs(space, len(columns)), header, rows, columns)


def write_points(points: Points, path: Path, space: Space) -> None:
    """The same table with the points where they are now, to a millionth of a millimetre."""
    rows = [list(row) for row in points.rows]
    for row, numbers in zip(rows, points.lps * signs(space, points.lps.shape[1]), strict=True):
        for column, number in zip(points.columns, numbers, strict=True):
            row[column] = f"{number:.6f}"
    with atomic_write(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([points.header, *rows])


def signs(space: Space, d: int) -> Float[ndarray, " d"]:
    """What takes this space to LPS and back: RAS runs the other way along x and y."""
    return np.array([-1.0, -1.0, 1.0][:d]) if space == "RAS" else np.ones(d)
