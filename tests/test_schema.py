import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest

from vrnet.errors import BadInput
from vrnet.schema import convert, describe_type, read_record

FILE = Path("some") / "file.json"


@dataclass(frozen=True)
class Wheel:
    inches: float


@dataclass(frozen=True)
class Bicycle:
    name: str
    gears: int
    wheels: tuple[Wheel, ...]
    colour: Literal["red", "blue"] = "red"
    stickers: dict[str, int] = field(default_factory=dict)
    owner: str | None = None
    more: Any = None
    is_old: bool = False

    def __post_init__(self):
        if self.gears < 1:
            raise BadInput(f"a bicycle has a gear, not {self.gears}")


GOOD = {"name": "Hercules", "gears": 3, "wheels": [{"inches": 28}, {"inches": 26.5}]}


def test_what_fits_becomes_the_dataclass_through_json():
    given = GOOD | {"stickers": {"star": 2}, "owner": "Θ", "more": [1, "x"], "is_old": True}
    expected = Bicycle("Hercules", 3, (Wheel(28.0), Wheel(26.5)), "red", {"star": 2}, "Θ", [1, "x"], True)
    assert read_record(json.loads(json.dumps(given)), Bicycle, FILE, "buy another") == expected


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (3, "it holds 3 where keys and values should be"),
        ({"name": "x", "gears": 3}, "wheels is missing"),
        (GOOD | {"bell": 1}, "the key 'bell' is not known"),
        (GOOD | {"gears": "3"}, "gears is '3' and should be a whole number"),
        (GOOD | {"gears": True}, "gears is True and should be a whole number"),
        (GOOD | {"gears": 0}, "a bicycle has a gear, not 0"),
        (GOOD | {"name": "a\x1b[31m"}, r"name is 'a\x1b[31m' and should be a word"),
        (GOOD | {"name": "a\ud800"}, r"name is 'a\ud800' and should be a word"),
        (GOOD | {"name": "a\nb"}, r"name is 'a\nb' and should be a word"),
        (GOOD | {"wheels": 2}, "wheels is 2 and should be (keys and values, ...)"),
        (GOOD | {"wheels": [{"inches": 28}, {"inches": None}]}, "in wheels inches is None and should be a number"),
        (GOOD | {"wheels": [{"inches": float("inf")}]}, "in wheels inches is inf and should be a number"),
        (GOOD | {"wheels": [{"inches": 10**400}]}, "and should be a number"),
        (GOOD | {"colour": "green"}, "colour is 'green' and should be one of red, blue"),
        (GOOD | {"colour": []}, "colour is [] and should be one of red, blue"),
        (GOOD | {"stickers": {"a": "b"}}, "stickers is {'a': 'b'} and should be {a word: a whole number, ...}"),
        (GOOD | {"owner": 1}, "owner is 1 and should be a word or None"),
        (GOOD | {"is_old": 1}, "is_old is 1 and should be true or false"),
    ],
)  # fmt: skip
def test_what_does_not_is_named_by_file_and_key(given, words):
    with pytest.raises(BadInput) as raised:
        read_record(given, Bicycle, FILE, "buy another")
    message = str(raised.value)
    assert message.startswith("some/file.json is not as vrnet writes it, ")
    assert message.endswith(f"{words}: buy another")
    assert message.isprintable()


def test_long_values_are_shown_short():
    with pytest.raises(BadInput) as raised:
        read_record(GOOD | {"gears": "9" * 100_000, "name": "x" * 900}, Bicycle, FILE, "buy another")
    assert len(str(raised.value)) < 200


@pytest.mark.parametrize("value", ["x" * 1001, "", 3])
def test_text_is_a_line_of_it(value):
    if value == "":
        assert convert(value, str) == value
    else:
        with pytest.raises(TypeError):
            convert(value, str)


def test_types_are_described_in_words():
    assert describe_type(tuple[int, float]) == "(a whole number, a number)"
    assert describe_type(dict[str, tuple[int, ...]]) == "{a word: (a whole number, ...), ...}"
