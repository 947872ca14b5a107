"""The report of a tracked cine: one page that opens from disk, on which the heart beats."""

from collections.abc import Mapping
from pathlib import Path, PurePath

from vrnet.files import write_bytes
from vrnet.report.cine_data import cine_colours, cine_data
from vrnet.report.cine_numbers import Tracked, definitions, headline, look_at, tables
from vrnet.report.film import Film
from vrnet.report.template import render_template


def write_cine_page(path: Path, film: Film, tracked: Tracked, run: Mapping[str, str]) -> None:
    """Write the page; `run` says what was run, in order, by its entries "cine" and "method" on which file and how."""
    text = render_template(
        "cine.html",
        method=run.get("method", ""),
        configuration=run.get("configuration", ""),
        name=PurePath(run.get("cine", "cine")).name,
        verdict=tracked.verdict,
        look_at=look_at(film, tracked),
        no_strain=film.no_strain,
        doubt=film.doubt,
        headline=headline(film, tracked),
        tables=tables(film, tracked),
        definitions=definitions(film, tracked),
        run=run,
        colours=cine_colours(),
        data=cine_data(film),
    )
    write_bytes(text.encode(errors="replace"), path)
