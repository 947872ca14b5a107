"""The docstrings below the fields of a dataclass: they are the help of commands and of parameters."""

import ast
import inspect
from functools import cache
from textwrap import dedent


@cache
def field_docstrings(cls: type) -> dict[str, str]:
    """{field: the docstring below it}, on one line each."""
    try:
        (definition,) = ast.parse(dedent(inspect.getsource(cls))).body
    except (OSError, TypeError):  # a class written at a prompt has no source file
        return {}
    assert isinstance(definition, ast.ClassDef)
    found = {}
    for line, below in zip(definition.body, definition.body[1:], strict=False):
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name) and is_text(below):
            found[line.target.id] = " ".join(below.value.value.split())  # type: ignore[attr-defined]
    return found


def is_text(line: ast.stmt) -> bool:
    """Whether a line of code is nothing but a string."""
    return isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant) and isinstance(line.value.value, str)
