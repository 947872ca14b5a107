"""The report of a registration: one page that opens from disk, with everything it shows inside it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import isfinite
from pathlib import Path, PurePath
from typing import Any

from vrnet.files import write_bytes
from vrnet.report import measures
from vrnet.report.appearance import appearance
from vrnet.report.page_data import edge_letters, page_colours, page_data
from vrnet.report.pair import Pair, orient_for_viewing
from vrnet.report.slice_table import slice_table
from vrnet.report.slices import slice_pair
from vrnet.report.template import render_template
from vrnet.report.volumes import viewer_script

CURVE_WIDTH, CURVE_HEIGHT = 320, 150
"""Size of the plot of energies, in the units of page.html."""


def write_report(
    path: Path, pair: Pair, metrics: dict[str, Any], energies: Sequence[float], run: Mapping[str, str]
) -> None:
    """Write the page. `metrics` is what metrics.json holds; `run` says what was run, in order, and by its entries
    "fixed" and "moving" which files; `energies` may be empty."""
    text = render_page(pair, metrics, energies, run)
    write_bytes(text.encode(errors="replace"), path)


def render_page(pair: Pair, metrics: dict[str, Any], energies: Sequence[float], run: Mapping[str, str]) -> str:
    """The page as text; the arguments are those of `write_report`."""
    shown, names = orient_for_viewing(pair), metrics.get("label_names") or {}
    slices, look = slice_pair(shown), appearance(shown)
    data = page_data(shown, slices, look, edge_letters(pair.grid), names)
    return render_template(
        "page.html",
        method=metrics.get("method", run.get("method", "")),
        files={role: PurePath(run.get(role, role)).name for role in ("fixed", "moving")},
        verdict=metrics.get("verdict"),
        headline=measures.headline(metrics, pair.unit),
        repair=measures.repair_note(metrics),
        is_opposite=measures.is_contrast_opposite(metrics),
        had_many_folds=measures.had_many_folds(metrics),
        summary=measures.summary(metrics, pair.unit),
        blocks=measures.by_structure(metrics, pair.unit),
        curve=energy_curve([float(energy) for energy in energies if isfinite(energy)]),
        configuration=run.get("configuration", ""),
        run=run,
        strip=slice_table(shown, slices, look.colours, names),
        colours=page_colours(),
        data=data,
        niivue=viewer_script() if data["volume"] else "",
        is_aligned=pair.is_aligned,
        swatches={str(label["value"]): label["colour"] for label in data["labels"]},
    )


@dataclass(frozen=True)
class Curve:
    """Energies as points of a plot, and the least of them so far, with the labels of the first and the least."""

    points: list[tuple[float, float]]
    least_so_far: list[tuple[float, float]]
    first: str
    least: str
    steps: int


def energy_curve(energies: list[float]) -> Curve | None:
    """The energies from left to right, the largest on top; None for fewer than two."""
    if len(energies) < 2:
        return None
    low, high = min(energies), max(energies)
    across, down = CURVE_WIDTH / (len(energies) - 1), CURVE_HEIGHT / ((high - low) or 1.0)

    def place(values: Iterable[float]) -> list[tuple[float, float]]:
        return [(round(i * across, 1), round((high - value) * down, 1)) for i, value in enumerate(values)]

    points, least = place(energies), place(accumulate(energies, min))
    return Curve(points, least, f"{energies[0]:.4g}", f"{low:.4g}", len(energies) - 1)
