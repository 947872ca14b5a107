"""Figures that show themselves in a notebook, without pyplot, which would keep every figure until it is told not to."""

from io import BytesIO

from matplotlib.figure import Figure

NOTEBOOK_DPI = 80


class Picture(Figure):
    """A figure of matplotlib; in a notebook it is drawn where it is the last value of a cell."""

    def _repr_png_(self) -> bytes:
        file = BytesIO()
        self.savefig(file, dpi=NOTEBOOK_DPI, format="png")
        return file.getvalue()
