"""What the package raises when the caller must act, and what it warns of when the caller should know."""

import re
import sys
import warnings
from collections.abc import Callable, Collection, Iterable, Sequence
from difflib import get_close_matches


class BadInput(ValueError):
    """The input cannot be used. The message is one line: what is wrong, and what to do.

    Arguments are written as in Python, between backticks: `slices` or `slices="each"`. On the command line one reads
    --slices and --slices each."""


class UnfitMachine(BadInput):
    """What is asked for can be done, but not by this process: it has another version, or does not see the files."""


class InputWarning(UserWarning):
    """The input is used, and something about it should be known. Commands print the message after "Note:"."""


def warn_of_input(said: str) -> None:
    """Warn of an input at the line, outside this package, that led here."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).partition(".")[0] == "vrnet":
        frame, level = frame.f_back, level + 1
    warnings.warn(said, InputWarning, stacklevel=level)


# How long work tells how far it is.

Progress = Callable[[float], None]
"""Called with the part that is done, from 0 to 1."""
Stage = Callable[[str], Progress]
"""Called with what is done next; what it returns is then told how far that is."""


# Numbers as sentences have them, and what may have been meant by a word that is none.

MIN_PART, MAX_NAMES = 4, 6
"""Letters of a word that names are searched for, and how many names that hold it are worth telling."""
MIN_SIMILARITY = 0.6
"""Of a word and the name that may have been meant, from 0 to 1."""


def in_runs(numbers: Sequence[int]) -> str:
    """Rising numbers, neighbours together: 4 to 19, 21."""
    starts = [n for n in numbers if n - 1 not in numbers]
    ends = [n for n in numbers if n + 1 not in numbers]
    return ", ".join(str(a) if a == b else f"{a} to {b}" for a, b in zip(starts, ends, strict=True))


def numbered(noun: str, numbers: Iterable[int]) -> str:
    """Slices or frames of an array as people count them, from 1: slice 12; slices 2 to 4, 12."""
    counted = [k + 1 for k in sorted(numbers)]
    return f"{noun}{'' if len(counted) == 1 else 's'} {in_runs(counted)}"


def counted(count: int, noun: str) -> str:
    """1 thread, 2 threads, 1,000 threads."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def shape_text(shape: Sequence[int]) -> str:
    """A number of voxels along each axis: 48x64x48."""
    return "x".join(map(str, shape))


def percent(part: float) -> str:
    """0.384 as "38 %"."""
    return f"{100 * part:.0f} %"


def small_percent(value: float) -> str:
    """A percentage to two digits; a very small one in words, not in powers of ten."""
    return f"{value:.2g} %" if value >= 1e-3 else "less than 0.001 %"


SLIGHT_PERCENT, SLIGHT_MOVE = 0.01, 0.1


def is_slight(changed_percent: float, most: float) -> bool:
    """Whether a repair is next to nothing: of how many voxels, and by how much, in mm, or voxels of unknown size."""
    return changed_percent < SLIGHT_PERCENT and most < SLIGHT_MOVE


def did_you_mean(word: str, known: Collection[str]) -> str:
    """ "did you mean fixed_mask or moving_mask?" of the word mask; nothing where no known name is near."""
    near = nearest(word, known)
    return f"did you mean {either(near)}?" if near else ""


def nearest(word: str, known: Collection[str]) -> list[str]:
    """The known names that hold a word, or begin with it if it is short, where those are few; or else the one most like
    it, if any is. Capitals and the dashes of options do not count."""
    part, names = bare(word), {bare(name): name for name in known}
    is_short = len(part) < MIN_PART
    found = [names[name] for name in names if part and (name.startswith(part) if is_short else part in name)]
    return found if 0 < len(found) <= MAX_NAMES else [*filter(None, [most_like(word, known)])]


def most_like(word: str, known: Collection[str], min_similarity: float = MIN_SIMILARITY) -> str | None:
    """The known name most like a word, if one is so similar: from 0, no letter in common, to 1, the word itself."""
    names = {bare(name): name for name in known}
    return next((names[name] for name in get_close_matches(bare(word), names, n=1, cutoff=min_similarity)), None)


def bare(name: str) -> str:
    """A name without capitals, and without the dashes of an option."""
    return name.strip("-").casefold()


def type_name(value: object) -> str:
    """The type of a value with its article: a list, an Image."""
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


def either(words: Sequence[str]) -> str:
    """a, b or c."""
    return " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


# Messages name arguments as Python has them, between backticks; commands show them as their options.

REGISTER = "vrnet register --{name} {value}"
OF_A_FILE = "method", "affine", "brightness", "match_intensities", "fixed_mask", "moving_mask", "folds"
"""What is advised of a transform in a file, and can only be had by a registration."""
FORMS = {
    "evaluate": {
        "method": "vrnet evaluate {value}",
        **dict.fromkeys(("affine", "brightness", "match_intensities"), REGISTER),
    },
    "evaluate FILE": dict.fromkeys(OF_A_FILE, REGISTER),
    "report": dict.fromkeys(OF_A_FILE, REGISTER),
    "demo": dict.fromkeys((*OF_A_FILE[1:], "slices"), REGISTER),
}
"""How commands that lack options of a registration say its arguments; `evaluate FILE` and `report` measure one."""
PYTHON = "python"
"""What stands for the command where there is none."""


def as_options(message: str, command: str = "") -> str:
    """A message with its arguments as options of a command: `slices="each"` is --slices each.

    An argument that the command does not have is told as an option of `vrnet register`, which has all of them. To those
    who ask in Python, arguments stay arguments."""
    if command == PYTHON:
        return message

    def option(found: re.Match[str]) -> str:
        name, value = found[1], shell_word(found[2] or "")
        form = FORMS.get(command, {}).get(name, "--{name} {value}")
        return form.format(name=name.replace("_", "-"), value=value).rstrip()

    words = re.sub("`([a-z_]+)(?:=([^`]*))?`", option, message)
    return re.sub("(vrnet register .*?) and vrnet register ", r"\1 and ", words)


def shell_word(value: str) -> str:
    """A value as Python has it, as a shell takes it: "each" without its quotes, and True as nothing, of a flag."""
    bare = value.strip('"')
    return "" if value == "True" else bare if re.fullmatch(r"[\w+./=,-]*", bare) else value


MAX_SHOWN_CHARACTERS = 80
"""Of a text from outside, in a message."""


def shown(text: str) -> str:
    """A text from outside as one line of a message can hold it."""
    line = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text[: MAX_SHOWN_CHARACTERS + 1])
    return line if len(text) <= MAX_SHOWN_CHARACTERS else f"{line[:MAX_SHOWN_CHARACTERS]}..."
