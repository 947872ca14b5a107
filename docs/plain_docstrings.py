"""Docstrings as they are read in the code: their mathematics, (b, d, *s) or ∂_i u_j, is no Markdown emphasis."""

import re

from griffe import Extension

MARKS = re.compile(r"(`[^`]*`)|([*_<])")


def escape(text):
    """The text with a backslash before each mark of Markdown that is not in backquotes."""
    return MARKS.sub(lambda found: found[1] or f"\\{found[2]}", text)


class PlainDocstrings(Extension):
    """Escape every docstring as it is collected."""

    def on_instance(self, *, obj, **options):
        if obj.docstring:
            obj.docstring.value = escape(obj.docstring.value)
