"""The templates of pages: what is put into them is text, and never becomes code."""

from functools import cache
from typing import TYPE_CHECKING, Any

from vrnet.evaluation.levels import WORDS

if TYPE_CHECKING:
    from jinja2 import Environment


def render_template(file: str, /, **values: Any) -> str:
    """The page that a file of `web` makes of these values."""
    return templates().get_template(file).render(**values)


@cache
def templates() -> "Environment":
    """The files of `web`, each compiled once: that takes as long as many a page."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    loader = PackageLoader("vrnet.report", "web")
    found = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    found.globals["verdict_words"] = WORDS
    return found
