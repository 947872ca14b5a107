"""Figures that show themselves in a notebook, without pyplot, which would keep every figure until it is told not to."""

import re
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from io import BytesIO
from math import ceil, sqrt
from typing import Any

import matplotlib as mpl
import numpy as np
from jaxtyping import Float, Integer, UInt8
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from matplotlib.colors import hsv_to_rgb, to_hex
from matplotlib.figure import Figure
from numpy import ndarray
from PIL import Image

from vrnet.verdict.evidence import MAX_OFFSET, MAX_RANGE_RATIO
from vrnet.verdict.rules import WORDS


class Picture(Figure):
    """A figure of matplotlib; in a notebook it is drawn where it is the last value of a cell."""

    def png(self, dpi: int = 80) -> bytes:
        file = BytesIO()
        self.savefig(file, dpi=dpi, format="png")
        return file.getvalue()

    _repr_png_ = png


def data_address(file: bytes, kind: str = "png") -> str:
    return f"data:image/{kind};base64,{b64encode(file).decode()}"


# The colours of figures and pages: one source, so that both read alike. Colour maps are matplotlib's.

DIFFERENCE_MAP = "inferno"
JACOBIAN_MAP = "RdBu_r"
STRAIN_MAP = "RdYlBu_r"  # no strain is pale yellow: among greys, a white wall would seem to have no value
JACOBIAN_RANGE = (0.0, 2.0)  # the determinants at both ends of the colour map
FOLD = "#00d000"  # no mixture of blue, white and red comes near it
GRID = "#5fb3ff"
MASK = "#ff7ac6"  # none of the labels that are chosen by hand has it
LABELS = ("#4cc9f0", "#f9c74f", "#f94144", "#90be6d", "#d65db1", "#f3722c")


def label_colours(labels: list[int]) -> dict[int, str]:
    """A colour for each label: the first few are chosen by hand, the others by turning the hue by the golden ratio."""
    hsv = [(i * 0.618034 % 1, 0.55 + 0.3 * (i % 2), 0.95) for i in range(len(LABELS), len(labels))]
    return dict(zip(labels, [*LABELS, *(to_hex(tuple(hsv_to_rgb(colour))) for colour in hsv)], strict=False))


def motion_colours(across: Float[ndarray, "*s"], down: Float[ndarray, "*s"], scale: float) -> Float[ndarray, "*s 3"]:
    """RGB of a motion in the picture: direction is hue (right red, then clockwise), length up to `scale` saturation."""
    hue = np.arctan2(down, across) / (2 * np.pi) % 1
    saturation = np.clip(np.hypot(across, down) / scale, 0, 1)
    return hsv_to_rgb(np.stack([hue, saturation, np.ones_like(hue)], axis=-1))


def colour_stops(name: str) -> list[str]:
    """Eleven equally spaced colours of one of matplotlib's maps, as #rrggbb: a page interpolates between them."""
    return [to_hex(colour) for colour in mpl.colormaps[name](np.linspace(0, 1, 11))]


Window = tuple[float, float]  # which intensities are black and which are white
WINDOW_PERCENTILES = (0.5, 99.5)  # which they are in the pictures of a pair and of a film


def grey_windows(images: Mapping[str, Float[ndarray, "*s"]]) -> dict[str, Window]:
    """By percentiles of fixed and moving: one window for all images, unless one would be all black or all white."""
    own = {name: window_of([images[name]], WINDOW_PERCENTILES) for name in ("fixed", "moving")}
    narrow, wide = sorted(high - low for low, high in own.values())
    middles = [(low + high) / 2 for low, high in own.values()]
    if wide > MAX_RANGE_RATIO * narrow or abs(middles[0] - middles[1]) > MAX_OFFSET * wide:
        return {name: own["fixed" if name == "fixed" else "moving"] for name in images}
    return dict.fromkeys(images, window_of([images["fixed"], images["moving"]], WINDOW_PERCENTILES))


def window_of(images: Sequence[Float[ndarray, "*s"]], percentiles: tuple[float, float]) -> Window:
    """These percentiles of the intensities of images of one shape."""
    low, high = np.percentile(np.stack(images), percentiles).tolist()
    return (low, high) if high > low else (low, low + 1)


# Stacks of slices in 8 bits, each as one picture: a file written out in the page itself.

MAX_LABELS = 255  # that 8 bits tell apart, beside the background


def quantise(array: Float[ndarray, "*s"], low: float, high: float) -> UInt8[ndarray, "*s"]:
    """Values from `low` to `high` as 0 to 255."""
    return np.rint((array - low) * (255 / (high - low))).clip(0, 255).astype(np.uint8)


def find_labels(maps: Iterable[Integer[ndarray, "*s"]]) -> list[int]:
    """The labels in these maps, without the background; the largest MAX_LABELS if there are more."""
    found = [labels[labels != 0].astype(np.int64) for labels in maps]
    labels, counts = np.unique(np.concatenate(found), return_counts=True)
    return sorted(labels[np.argsort(counts)[-MAX_LABELS:]].tolist())


def rank_labels(labels: Integer[ndarray, "*s"], values: list[int]) -> UInt8[ndarray, "*s"]:
    """1 + the rank of each voxel's label among the values; 0 for any other label."""
    if not values:
        return np.zeros(labels.shape, np.uint8)
    rank = np.searchsorted(values, labels.astype(np.int64)).clip(0, len(values) - 1)
    return np.where(np.take(values, rank) == labels, rank + 1, 0).astype(np.uint8)


def encode_sheet(slices: UInt8[ndarray, "w h n"], kind: str = "PNG") -> str:
    """All slices in one picture, row by row of `sheet_columns(n)`, as a data: address of a PNG or JPEG file."""
    w, h, n = slices.shape
    across = sheet_columns(n)
    tiles = np.zeros((ceil(n / across) * across, h, w), np.uint8)
    tiles[:n] = slices.transpose(2, 1, 0)
    picture = tiles.reshape(-1, across, h, w).swapaxes(1, 2).reshape(-1, across * w)
    file = BytesIO()
    Image.fromarray(picture).save(file, kind, quality=90)
    return data_address(file.getvalue(), kind.lower())


def sheet_columns(n: int) -> int:
    """How many of n slices stand side by side: about as many as rows, since browsers limit either side."""
    return ceil(sqrt(n))


# The templates of pages: what is put into them is text, and never becomes code.

TEMPLATES = Environment(
    loader=PackageLoader("vrnet.report", "web"),
    autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
)  # fmt: skip
TEMPLATES.globals["verdict_words"] = WORDS
# a text is broken behind its slashes and underscores rather than within the name of a folder
TEMPLATES.filters["break_at_slashes"] = lambda text: Markup(re.sub("([/_])", r"\1<wbr>", str(escape(text))))


def render_template(file: str, /, **values: Any) -> str:
    return TEMPLATES.get_template(file).render(**values)


Tile = UInt8[ndarray, "w h"] | UInt8[ndarray, "w h 3"]  # in grey or in colour: axis 0 runs across it, axis 1 down it


def join_tiles(tiles: Sequence[Tile], spacing: tuple[float, ...], side: int, gap: int = 0) -> bytes:
    """A PNG file of pictures of one size side by side, with square pixels, the longer side of each so many, and white
    gaps between them; in grey where all of them are."""
    width, height = (n * h for n, h in zip(tiles[0].shape[:2], spacing, strict=True))
    scale = side / max(width, height)
    size = max(1, round(width * scale)), max(1, round(height * scale))
    mode = "L" if all(tile.ndim == 2 for tile in tiles) else "RGB"
    joined = Image.new(mode, (len(tiles) * (size[0] + gap) - gap, size[1]), "white")
    for k, tile in enumerate(tiles):
        joined.paste(Image.fromarray(np.ascontiguousarray(tile.swapaxes(0, 1))).resize(size), (k * (size[0] + gap), 0))
    file = BytesIO()
    joined.save(file, "PNG")
    return file.getvalue()
