"""The report of a registration: one page that opens from disk, with everything it shows inside it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path, PurePath
from typing import Any

from vrnet.files import atomic_write
from vrnet.report import colours, measures
from vrnet.report.embedding import embedded
from vrnet.report.pair import Pair, upright

CURVE = (320, 150)  # size of the plot of energies


def write_report(
    path: Path, pair: Pair, metrics: dict[str, Any], energies: Sequence[float], run: Mapping[str, str]
) -> None:
    """Write the page. `metrics` is what metrics.json holds; `run` says what was run, in order, and by its entries
    "fixed" and "moving" which files; `energies` may be empty."""
    text = rendered(pair, metrics, energies, run)
    with atomic_write(path) as temporary:
        temporary.write_text(text, encoding="utf-8", errors="replace")


def rendered(pair: Pair, metrics: dict[str, Any], energies: Sequence[float], run: Mapping[str, str]) -> str:
    """The page as text."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    loader = PackageLoader("vrnet.report", "web")
    page = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    data = embedded(upright(pair))
    return page.get_template("page.html").render(
        method=metrics.get("method", run.get("method", "")),
        files={role: PurePath(run.get(role, role)).name for role in ("fixed", "moving")},
        headline=measures.headline(metrics),
        summary=measures.summary(metrics),
        blocks=measures.by_structure(metrics),
        curve=curve([float(energy) for energy in energies if isfinite(energy)]),
        run=run,
        colours=colours,
        data=data,
        swatches={str(label["value"]): label["colour"] for label in data["labels"]},
    )


@dataclass(frozen=True)
class Curve:
    """Energies as points of a plot."""

    points: list[tuple[float, float]]
    first: str
    last: str
    steps: int


def curve(energies: list[float]) -> Curve | None:
    """The energies from left to right, the largest on top; no curve of fewer than two."""
    if len(energies) < 2:
        return None
    low, high = min(energies), max(energies)
    across, down = CURVE[0] / (len(energies) - 1), CURVE[1] / ((high - low) or 1.0)
    points = [(round(i * across, 1), round((high - energy) * down, 1)) for i, energy in enumerate(energies)]
    return Curve(points, f"{energies[0]:.4g}", f"{energies[-1]:.4g}", len(energies) - 1)
