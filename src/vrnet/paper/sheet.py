"""A table as rows of cells, in Markdown, LaTeX and CSV."""

import csv
from dataclasses import dataclass, field
from io import StringIO

from vrnet.paper.values import Value

Cell = str | Value | None


@dataclass(frozen=True)
class Sheet:
    """A header and rows; cells that are best are bold; notes say what the numbers depend on."""

    title: str
    header: list[str]
    rows: list[list[Cell]]
    notes: list[str] = field(default_factory=list)
    best: set[tuple[int, int]] = field(default_factory=set)
    """(row, column) of bold cells."""

    def markdown(self) -> str:
        lines = [self.header, ["---"] + ["---:"] * (len(self.header) - 1)]
        lines += [
            [f"**{text(cell)}**" if (i, j) in self.best else text(cell) for j, cell in enumerate(row)]
            for i, row in enumerate(self.rows)
        ]
        table = "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
        return f"**{self.title}**\n\n{table}\n\n" + "".join(f"{note}\n" for note in self.notes)

    def latex(self) -> str:
        """A tabular for LaTeX, with no package but the basic ones."""
        lines = [" & ".join(escaped(name) for name in self.header) + r" \\ \hline"]
        lines += [
            " & ".join(
                rf"\textbf{{{escaped(text(cell))}}}" if (i, j) in self.best else escaped(text(cell))
                for j, cell in enumerate(row)
            )
            + r" \\"
            for i, row in enumerate(self.rows)
        ]
        head = "".join(f"% {note}\n" for note in [self.title, *self.notes])
        kinds = "l" + "r" * (len(self.header) - 1)
        return head + f"\\begin{{tabular}}{{{kinds}}}\n\\hline\n" + "\n".join(lines) + "\n\\hline\n\\end{tabular}\n"

    def comma_separated(self) -> str:
        """Means and standard deviations in columns of their own, in full precision."""
        with_std = [any(isinstance(row[j], Value) and row[j].std is not None for row in self.rows)  # type: ignore[union-attr]
                    for j in range(len(self.header))]  # fmt: skip
        out = StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow([n for name, std in zip(self.header, with_std, strict=True) for n in spread(name, std)])
        for row in self.rows:
            writer.writerow([n for cell, std in zip(row, with_std, strict=True) for n in numbers(cell, std)])
        return out.getvalue()


def text(cell: Cell) -> str:
    return "–" if cell is None else str(cell)


def spread(name: str, has_std: bool) -> list[str]:
    return [name, f"{name} std"] if has_std else [name]


def numbers(cell: Cell, has_std: bool) -> list[str]:
    """The cell, and its standard deviation in columns that have one."""
    if not isinstance(cell, Value):
        return [cell or ""] + [""] * has_std
    return [f"{cell.mean:.6g}"] + ([f"{cell.std:.6g}" if cell.std is not None else ""] if has_std else [])


def escaped(words: str) -> str:
    """Safe in LaTeX."""
    for plain, tex in (("%", r"\%"), ("_", r"\_"), ("<", "$<$"), ("|∇J|", r"$|\nabla J|$"), ("Θ1", r"$\Theta^1$"),
                       ("–", "--"), ("α", r"$\alpha$")):  # fmt: skip
        words = words.replace(plain, tex)
    return words
