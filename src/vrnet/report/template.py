"""The templates of pages: what is put into them is text, and never becomes code."""

from typing import Any

from vrnet.evaluation.levels import WORDS


def render_template(file: str, /, **values: Any) -> str:
    """The page that a file of `web` makes of these values."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    loader = PackageLoader("vrnet.report", "web")
    page = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    page.globals["verdict_words"] = WORDS
    return page.get_template(file).render(**values)
