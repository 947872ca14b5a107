from dataclasses import dataclass

from vrnet.methods.parameters import field_docstrings


@dataclass
class Example:
    """The class itself."""

    first: int
    """A line,
    and its end."""
    second: str = "plain"
    third: float = 1.0
    """Another line."""

    def method(self):
        """No field."""


def test_a_field_has_the_docstring_below_it_on_one_line():
    assert field_docstrings(Example) == {"first": "A line, and its end.", "third": "Another line."}


def test_a_class_written_at_a_prompt_has_none():
    written = {}
    exec("class Written:\n    first: int\n    'A line.'\n", written)
    assert field_docstrings(written["Written"]) == {}
