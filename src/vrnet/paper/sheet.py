"""A table as rows of cells, in Markdown, LaTeX and CSV."""

import csv
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from io import StringIO
from typing import TypeVar

from vrnet.paper.values import Value

Cell = str | Value | None
T = TypeVar("T")


@dataclass(frozen=True)
class Sheet:
    """A header and rows; cells that are best are bold; notes say what the numbers depend on."""

    title: str
    header: list[str]
    rows: list[list[Cell]]
    notes: list[str] = field(default_factory=list)
    best: set[tuple[int, int]] = field(default_factory=set)
    """(row, column) of bold cells."""
    aside: set[int] = field(default_factory=set)
    """Columns for the CSV file alone: a page has no room for them."""

    @property
    def columns(self) -> list[int]:
        """Those that are printed."""
        return [j for j in range(len(self.header)) if j not in self.aside]

    def lines(self, plain: Callable[[str], T], bold: Callable[[str], T]) -> list[list[T]]:
        """What is printed, the header first; what is best in bold."""
        head = [plain(self.header[j]) for j in self.columns]
        return [head] + [
            [(bold if (i, j) in self.best else plain)(text(row[j])) for j in self.columns]
            for i, row in enumerate(self.rows)
        ]

    def means(self) -> "Sheet":
        """The same without standard deviations."""
        rows = [[replace(cell, std=None) if isinstance(cell, Value) else cell for cell in row] for row in self.rows]
        return replace(self, rows=rows)

    def markdown(self) -> str:
        head, *rows = self.lines(piped, lambda words: f"**{piped(words)}**")
        lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
        table = "\n".join("| " + " | ".join(line) + " |" for line in lines)
        return f"**{self.title}**\n\n{table}\n\n" + "".join(f"{note}\n" for note in self.notes)

    def latex(self) -> str:
        """A tabular for LaTeX, with no package but the basic ones."""
        lines = self.lines(escaped, lambda words: rf"\textbf{{{escaped(words)}}}")
        head, *rows = (" & ".join(line) + r" \\" for line in lines)
        words = "".join(f"% {note}\n" for note in [self.title, *self.notes])
        kinds = "l" + "r" * (len(self.columns) - 1)
        body = "\n".join([r"\hline", rf"{head} \hline", *rows, r"\hline"])
        return words + f"\\begin{{tabular}}{{{kinds}}}\n{body}\n\\end{{tabular}}\n"

    def comma_separated(self) -> str:
        """All columns, means and standard deviations in columns of their own, to six digits."""
        with_std = [has_std([row[j] for row in self.rows]) for j in range(len(self.header))]
        out = StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow([n for name, std in zip(self.header, with_std, strict=True) for n in spread(name, std)])
        for row in self.rows:
            writer.writerow([n for cell, std in zip(row, with_std, strict=True) for n in numbers(cell, std)])
        return out.getvalue()


def has_std(cells: list[Cell]) -> bool:
    return any(isinstance(cell, Value) and cell.std is not None for cell in cells)


def text(cell: Cell) -> str:
    return "–" if cell is None else str(cell)


def spread(name: str, std: bool) -> list[str]:
    return [name, f"{name} std"] if std else [name]


def numbers(cell: Cell, std: bool) -> list[str]:
    """The cell, and its standard deviation in columns that have one."""
    if not isinstance(cell, Value):
        return [cell or ""] + [""] * std
    return [f"{cell.mean:.6g}"] + ["" if cell.std is None else f"{cell.std:.6g}"] * std


TEX = {
    "|∇J|": r"$|\nabla J|$", "Θ1": r"$\Theta^1$", "α": r"$\alpha$", "<": "$<$", "|": "$|$", "–": "--",
    "%": r"\%", "_": r"\_", "&": r"\&", "#": r"\#",
}  # fmt: skip
"""What LaTeX has other words for."""


def piped(words: str) -> str:
    """Safe in a table of Markdown."""
    return words.replace("|", "\\|")


def escaped(words: str) -> str:
    """Safe in LaTeX."""
    return re.sub("|".join(map(re.escape, TEX)), lambda found: TEX[found[0]], words)
