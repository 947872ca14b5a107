"""The templates of pages: what is put into them is text, and never becomes code."""

import re
from functools import cache
from typing import TYPE_CHECKING, Any

from vrnet.evaluation.levels import WORDS

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup


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
    found.filters["break_at_slashes"] = break_at_slashes
    return found


def break_at_slashes(text: object) -> "Markup":
    """A text that is broken behind its slashes and underscores rather than within the name of a folder."""
    from markupsafe import Markup, escape

    return Markup(re.sub("([/_])", r"\1<wbr>", str(escape(text))))
