"""Tables that show every number at any width: names wrap, numbers never do, and where all else fails rows are lists."""

from collections.abc import Iterable, Iterator

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

MIN_NAME_COLUMNS = 10
"""Below this width, names in the first column would be hard to read."""
BORDER_COLUMNS = 3
"""What a column takes beside its cells: a line, and a blank on either side."""


class FittingTable(Table):
    """A table whose first column holds names, which wrap, and whose others hold numbers, which do not.

    In a terminal too narrow for that, each row is a name, and below it a line per number."""

    @classmethod
    def of(cls, title: str, first: RenderableType, *columns: RenderableType) -> "FittingTable":
        """An empty table with these headings."""
        table = cls(title=Text(title))
        table.add_column(first, overflow="fold")
        for name in columns:
            table.add_column(name, justify="right", no_wrap=True)
        return table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterable[RenderableType | Segment]:
        if self.least_width(console) <= options.max_width:
            yield from super().__rich_console__(console, options)
        else:
            yield from self.lists()

    def least_width(self, console: Console) -> int:
        """The columns of a terminal that all numbers need beside narrow names."""
        numbers = [
            max(console.measure(cell).maximum for cell in (column.header, *column.cells)) for column in self.columns[1:]
        ]
        return MIN_NAME_COLUMNS + sum(numbers) + BORDER_COLUMNS * len(self.columns) + 1

    def lists(self) -> Iterator[RenderableType]:
        """The rows, one below the other, each value after the heading of its column."""
        if self.title:
            yield self.title
        names, *others = self.columns
        for name, *values in zip(names.cells, *(column.cells for column in others), strict=True):
            yield name
            for column, value in zip(others, values, strict=True):
                if str(value):
                    yield Text.assemble("  ", as_text(column.header), ": ", as_text(value))


def as_text(cell: RenderableType) -> Text:
    """A cell as text that can be joined with other text."""
    return cell if isinstance(cell, Text) else Text(str(cell))
