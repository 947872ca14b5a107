"""The rules of the house: small files, small functions, and methods that are asked, not told apart by their types."""

import ast
import re
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "vrnet"
FILES = sorted(SOURCE.rglob("*.py"))
MAX_LINES_OF_FILE = 300
MAX_LINES_OF_FUNCTION = 40
MAX_FILES_OF_DATA = 16
FUNCTIONS = ast.FunctionDef, ast.AsyncFunctionDef


def test_no_file_is_longer_than_one_can_read():
    lengths = {str(path.relative_to(SOURCE)): len(path.read_text(encoding="utf-8").splitlines()) for path in FILES}
    assert {name: lines for name, lines in lengths.items() if lines > MAX_LINES_OF_FILE} == {}


def test_no_function_is_longer_than_one_can_read():
    """From the line of its `def` to its last, docstring included; decorators do not count."""
    too_long = {}
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, FUNCTIONS) and node.end_lineno - node.lineno + 1 > MAX_LINES_OF_FUNCTION:
                too_long[f"{path.relative_to(SOURCE)}:{node.lineno} {node.name}"] = node.end_lineno - node.lineno + 1
    assert too_long == {}


def test_data_sets_do_not_bring_a_crowd_of_files():
    """One file per data set, and what they share in few: a new one should need no other file."""
    assert len(list((SOURCE / "data").rglob("*.py"))) <= MAX_FILES_OF_DATA


@pytest.mark.parametrize(("word", "room"), [("method", "methods"), ("dataset", "data")])
def test_nobody_outside_its_room_asks_for_a_type(word, room):
    asking = []
    for path in FILES:
        lines = path.read_text(encoding="utf-8").splitlines()
        asked = [line.strip() for line in lines if re.search(rf"isinstance.*{word}", line, flags=re.IGNORECASE)]
        asking += [f"{path.relative_to(SOURCE)}: {line}" for line in asked if path.relative_to(SOURCE).parts[0] != room]
    assert asking == []


def test_messages_outside_the_commands_speak_python():
    """Options are named between backticks, which the command line shows as its own; or as those of the command line."""
    found = []
    for path in FILES:
        if path.relative_to(SOURCE).parts[0] == "app":
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            text = node.value if isinstance(node, ast.Constant) and id(node) not in docstrings else None
            if isinstance(text, str) and re.search(r"(^|[\s(])--[a-z]", text) and "command line" not in text:
                found.append(f"{path.relative_to(SOURCE)}: {text}")
    assert found == ["provenance.py: --porcelain"]


def test_what_is_cached_takes_no_lock():
    """That of Python 3.11's cached_property is held for ever in a process that was forked meanwhile."""
    asks = re.compile(r"^from functools import .*cached_property", flags=re.MULTILINE)
    assert [str(path.relative_to(SOURCE)) for path in FILES if asks.search(path.read_text(encoding="utf-8"))] == []
