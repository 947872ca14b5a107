"""What a notebook shows of each kind of result."""

import numpy as np

from vrnet.app.measured import MeasuredTransform
from vrnet.evaluation.verdict import Verdict
from vrnet.images.image import Image
from vrnet.images.transform import Transform
from vrnet.report.card import CARD_SIDE_PIXELS, Card
from vrnet.report.greys import window_of
from vrnet.report.measures import Row, headline
from vrnet.report.object_figures import WINDOW_PERCENTILES, busiest_slice, middle_slice
from vrnet.report.sheets import quantise
from vrnet.report.thumbnail import image_tiles, main_cut, motion_tile
from vrnet.report.tiles import join_tiles

UNKNOWN = "–"


def registration_card(measured: MeasuredTransform, verdict: Verdict) -> Card:
    """Fixed, moving, warped and motion in the main slice, with the verdict and the few numbers that say how good."""
    flat = main_cut(measured.on_fixed_grid)
    size, metrics = " x ".join(map(str, metrics_shape(measured))), measured.metrics
    return Card(
        title=f"Registration by {metrics['method']}, {size} voxels",
        facts=[(row.name, value_of(row)) for row in headline(metrics, measured.on_fixed_grid.unit)],
        picture=join_tiles([*image_tiles(flat), motion_tile(flat)], flat.grid.spacing, CARD_SIDE_PIXELS, gap=3),
        caption="From left to right: fixed, moving, warped, motion (hue is direction).",
        verdict=verdict,
    )


def metrics_shape(measured: MeasuredTransform) -> list[int]:
    """How many voxels fixed has along each axis."""
    return list(measured.metrics["shape"])


def value_of(row: Row) -> str:
    """before → after; of what has no value before, that after."""
    return row.after if row.before == UNKNOWN else f"{row.before} → {row.after}"


def image_card(image: Image, title: str = "") -> Card:
    """The picture, or of a volume its middle slice."""
    flat, spacing = middle_slice(image.array, image.grid)
    return Card(
        title=title or repr(image),
        facts=[("range", f"{image.array.min():.4g} to {image.array.max():.4g}")],
        picture=join_tiles([quantise(flat, *window_of([flat], WINDOW_PERCENTILES))], spacing, CARD_SIDE_PIXELS),
        caption="" if image.array.ndim == 2 else "The middle slice.",
    )


def transform_card(transform: Transform) -> Card:
    """The motion in the slice that moves most, and how far and how much it deforms."""
    whole, k = busiest_slice(transform)
    flat = whole if whole.fixed.ndim == 2 else whole.cut(k)
    length, det = np.linalg.norm(transform.displacement, axis=0), transform.jacobian()
    return Card(
        title=repr(transform),
        facts=[
            ("displacement", f"{length.mean():.3g} mm in the mean, {length.max():.3g} mm at most"),
            ("Jacobian determinant", f"{det.min():.3g} to {det.max():.3g}"),
        ],
        picture=join_tiles([motion_tile(flat)], flat.grid.spacing, CARD_SIDE_PIXELS),
        caption="Motion (hue is direction)" + ("." if whole.fixed.ndim == 2 else f", slice {k + 1}."),
    )
