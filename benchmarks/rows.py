"""Rows of a benchmark that are kept as they are measured: what a CSV file has is not measured again."""

import csv

from vrnet.files import read_rows

DIGITS = 6
"""Significant digits of numbers in the file."""


def read_measured(path):
    """The rows that were measured before; none where there is no file."""
    return read_rows(path, "the rows of this benchmark") if path.exists() else []


def append_row(row, path, columns):
    """Put a row, {column: value}, at the end of the file; a new file begins with the columns."""
    is_new = not path.exists()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns)
        if is_new:
            writer.writeheader()
        writer.writerow({key: f"{x:.{DIGITS}g}" if isinstance(x, float) else x for key, x in row.items()})
