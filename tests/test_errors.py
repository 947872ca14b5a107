"""A warning of an input points at the line of the caller, not into the package."""

import warnings

from vrnet.errors import InputWarning, warn_of_input


def function_of(module, text, **names):
    """A function f, as if it stood in a module of that name."""
    exec(compile(text, f"{module}.py", "exec"), names := {"__name__": module, **names})
    return names["f"]


def test_a_warning_points_at_the_first_line_outside_the_package():
    warn = getattr(warn_of_input, "__wrapped__", warn_of_input)  # without the check of types, which is outside too
    inner = function_of("vrnet.images.inner", "def f(): warn('beware')", warn=warn)
    outer = function_of("vrnet.app.outer", "def f(): inner()", inner=inner)
    users = function_of("vrnet_of_mine", "\n\ndef f(): outer()", outer=outer)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        users()
        outer()
    assert [(each.filename, str(each.message), each.category) for each in caught] == [
        ("vrnet_of_mine.py", "beware", InputWarning),
        (__file__, "beware", InputWarning),
    ]
    assert caught[0].lineno == 3
