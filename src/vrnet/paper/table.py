"""A table as it is printed: rows of cells, in Markdown, LaTeX and CSV."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from vrnet.files import csv_text, write_bytes
from vrnet.paper.values import Value

Cell = str | Value | None
T = TypeVar("T")


@dataclass(frozen=True)
class Table:
    """A header and rows; the best cells are bold; notes say what the numbers depend on."""

    title: str
    header: list[str]
    rows: list[list[Cell]]
    notes: list[str] = field(default_factory=list)
    best: set[tuple[int, int]] = field(default_factory=set)
    """(row, column) of bold cells."""
    csv_only: set[int] = field(default_factory=set)
    """Columns that are in the CSV file alone: a page has no room for them."""

    @property
    def columns(self) -> list[int]:
        """The columns that are printed."""
        return [j for j in range(len(self.header)) if j not in self.csv_only]

    def lines(self, plain: Callable[[str], T], bold: Callable[[str], T]) -> list[list[T]]:
        """The printed cells, line by line with the header first, each formatted by `plain` or, if best, by `bold`."""
        head = [plain(self.header[j]) for j in self.columns]
        return [head] + [
            [(bold if (i, j) in self.best else plain)(cell_text(row[j])) for j in self.columns]
            for i, row in enumerate(self.rows)
        ]

    def without_deviations(self) -> "Table":
        """The table with means alone."""
        rows = [[replace(cell, std=None) if isinstance(cell, Value) else cell for cell in row] for row in self.rows]
        return replace(self, rows=rows)

    def markdown(self) -> str:
        """Title, table and notes in Markdown."""
        head, *rows = self.lines(escape_markdown, lambda text: f"**{escape_markdown(text)}**")
        lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
        table = "\n".join("| " + " | ".join(line) + " |" for line in lines)
        return f"**{self.title}**\n\n{table}\n\n" + "".join(f"{note}\n" for note in self.notes)

    def latex(self) -> str:
        """A tabular for LaTeX, with no package but the basic ones; title and notes are comments."""
        lines = self.lines(escape_latex, lambda text: rf"\textbf{{{escape_latex(text)}}}")
        head, *rows = (" & ".join(line) + r" \\" for line in lines)
        comments = "".join(f"% {note}\n" for note in [self.title, *self.notes])
        alignment = "l" + "r" * (len(self.columns) - 1)
        body = "\n".join([r"\hline", rf"{head} \hline", *rows, r"\hline"])
        return comments + f"\\begin{{tabular}}{{{alignment}}}\n{body}\n\\end{{tabular}}\n"

    def comma_separated(self) -> str:
        """All columns as CSV, to six digits; standard deviations have columns of their own."""
        with_std = [has_deviation([row[j] for row in self.rows]) for j in range(len(self.header))]
        return csv_text([csv_header(self.header, with_std), *(csv_line(row, with_std) for row in self.rows)])

    def write(self, folder: Path, name: str) -> list[Path]:
        """Write NAME.md, NAME.csv and NAME.tex."""
        texts = {".md": self.markdown(), ".csv": self.comma_separated(), ".tex": self.latex()}
        for suffix, text in texts.items():
            write_bytes(text.encode(), folder / f"{name}{suffix}")
        return [folder / f"{name}{suffix}" for suffix in texts]


def cell_text(cell: Cell) -> str:
    return "–" if cell is None else str(cell)


def has_deviation(cells: list[Cell]) -> bool:
    return any(isinstance(cell, Value) and cell.std is not None for cell in cells)


def csv_header(header: list[str], with_std: list[bool]) -> list[str]:
    """Each title, followed by a second one for its standard deviation where the column has any."""
    return [text for title, std in zip(header, with_std, strict=True) for text in [title] + [f"{title} std"] * std]


def csv_line(row: list[Cell], with_std: list[bool]) -> list[str]:
    """Each cell, followed by its standard deviation where the column has any."""
    return [text for cell, std in zip(row, with_std, strict=True) for text in csv_cells(cell, std)]


def csv_cells(cell: Cell, std: bool) -> list[str]:
    if not isinstance(cell, Value):
        return [cell or ""] + [""] * std
    return [f"{cell.mean:.6g}"] + ["" if cell.std is None else f"{cell.std:.6g}"] * std


LATEX = {
    "|∇J|": r"$|\nabla J|$", "Θ1": r"$\Theta^1$", "α": r"$\alpha$", "<": "$<$", "|": "$|$", "–": "--",
    "%": r"\%", "_": r"\_", "&": r"\&", "#": r"\#",
}  # fmt: skip
"""What LaTeX spells otherwise."""


def escape_markdown(text: str) -> str:
    return text.replace("|", "\\|")


def escape_latex(text: str) -> str:
    return re.sub("|".join(map(re.escape, LATEX)), lambda found: LATEX[found[0]], text)
