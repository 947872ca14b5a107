"""Points in the world, as CSV files: a header with x, y (and z), one row per point, in millimetres."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from vrnet.errors import BadInput, shown
from vrnet.files import read_table, write_table
from vrnet.vocabulary import Space


@dataclass(frozen=True, eq=False)
class Points:
    """Points in LPS millimetres, with the table they came from, whose other columns are kept."""

    lps: Float[ndarray, "n d"]
    header: list[str]
    rows: list[list[str]]
    columns: list[int]  # the positions of x, y (and z) in a row


def read_points(path: Path, space: Space) -> Points:
    """The points of a table whose numbers are in this space; BadInput if it has no x and y."""
    header, rows = read_table(path, "a header x,y,z and one row per point")
    names = [name.strip().lower() for name in header]
    columns = [names.index(axis) for axis in "xyz" if axis in names]
    if names.count("x") != 1 or names.count("y") != 1 or names.count("z") > 1:
        raise BadInput(f"{path} has no columns x and y, or one twice: its first line must name them, such as x,y,z")
    found = []
    for count, row in enumerate(rows, start=1):
        name, said = f"point {count} of {path}", f"(its row: {shown(','.join(row))}): correct it"
        try:
            found.append([float(row[column]) for column in columns])
        except (ValueError, IndexError) as error:
            raise BadInput(f"the x, y or z of {name} is not a number {said}") from error
        if not np.isfinite(found[-1]).all():
            raise BadInput(f"{name} is NaN or infinite {said}")
    numbers = np.array(found).reshape(-1, len(columns))
    return Points(numbers * axis_signs(space, len(columns)), header, rows, columns)


def write_points(points: Points, path: Path, space: Space) -> None:
    """Write the table of the points with their positions in this space, to a millionth of a millimetre."""
    if not np.isfinite(points.lps).all():
        raise BadInput(f"some points go to places that are NaN or infinite: {path} is not written")
    rows = [list(row) for row in points.rows]
    for row, numbers in zip(rows, points.lps * axis_signs(space, points.lps.shape[1]), strict=True):
        for column, number in zip(points.columns, numbers, strict=True):
            row[column] = f"{number:.6f}"
    write_table(points.header, rows, path)


def axis_signs(space: Space, d: int) -> Float[ndarray, " d"]:
    """The factors that take positions in this space to LPS, and back: RAS runs the other way along x and y."""
    return np.array([-1.0, -1.0, 1.0][:d]) if space == "RAS" else np.ones(d)
