"""What the package raises when the caller must act, and what it warns of when the caller should know."""

import re
import sys
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from difflib import get_close_matches


class BadInput(ValueError):
    """The input cannot be used. The message is one line: what is wrong, and what to do. Arguments are written as in
    Python, `slices` or `slices="each"`; on the command line one reads --slices each."""


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


Number = int | float
LARGEST = 1e30  # a number must be one in float32, too


def check_range(values: Mapping[str, Number], least: Number = 0, most: Number = LARGEST, above: bool = False) -> None:
    """BadInput unless every value, by its name, is a number from least to most; with `above`, above the least."""
    for name, value in values.items():
        if not least <= value <= most or (above and value == least):
            wanted = f"above {least:,}" if above else f"of {least:,} or more"
            limit = f", {most:,} at most" if most < LARGEST else ""
            raise BadInput(f"{name} is {value}: give a number {wanted}{limit}")


Progress = Callable[[float], None]  # called with the part of the work that is done, from 0 to 1
Stage = Callable[[str], Progress]  # called with what is done next; what it returns is then told how far that is


def check_progress(progress: object) -> None:
    if progress is not None and not callable(progress):
        raise BadInput(f"progress is {type_name(progress)}: give a function of the part that is done, from 0 to 1")


def in_runs(numbers: Sequence[int]) -> str:
    """Rising numbers, neighbours together: 4 to 19, 21."""
    starts = [n for n in numbers if n - 1 not in numbers]
    ends = [n for n in numbers if n + 1 not in numbers]
    return ", ".join(str(a) if a == b else f"{a} to {b}" for a, b in zip(starts, ends, strict=True))


def numbered(noun: str, numbers: Iterable[int]) -> str:
    """Slices or frames of an array as people count them, from 1: slice 12; slices 2 to 4, 12."""
    from_one = [k + 1 for k in sorted(numbers)]
    return f"{noun}{'' if len(from_one) == 1 else 's'} {in_runs(from_one)}"


def counted(count: int, noun: str) -> str:
    """1 thread, 2 threads, 1,000 threads."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def some(words: Sequence[str]) -> str:
    """The first five words, and how many more there are: p01; p02; p03; p04; p05 and 3 more."""
    more = f" and {len(words) - 5:,} more" if len(words) > 5 else ""
    return "; ".join(words[:5]) + more


def shape_text(shape: Sequence[int]) -> str:
    """A number of voxels along each axis: 48x64x48."""
    return "x".join(map(str, shape))


def percent(part: float) -> str:
    """0.384 as "38 %"."""
    return f"{100 * part:.0f} %"


def type_name(value: object) -> str:
    """The type of a value with its article: a list, an Image."""
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


def either(words: Sequence[str]) -> str:
    """a, b or c."""
    return " or ".join([*filter(None, [", ".join(words[:-1])]), words[-1]])


def did_you_mean(word: str, known: Collection[str]) -> str:
    """Which of the known names are meant: up to six that hold the word, or begin with one below four letters, or else
    the one most like it, as "did you mean fixed_mask or moving_mask?"; nothing where none is near."""
    part = bare(word)
    near = [name for name in known if part and (bare(name).startswith(part) if len(part) < 4 else part in bare(name))]
    if not 0 < len(near) <= 6:
        near = [*filter(None, [most_like(word, known)])]
    return f"did you mean {either(near)}?" if near else ""


def most_like(word: str, known: Collection[str], min_similarity: float = 0.6) -> str | None:
    """The known name most like a word, if one is so similar: from 0, no letter in common, to 1, the word itself."""
    names = {bare(name): name for name in known}
    return next((names[name] for name in get_close_matches(bare(word), names, n=1, cutoff=min_similarity)), None)


def bare(name: str) -> str:
    """A name without capitals, and without the dashes of an option."""
    return name.strip("-").casefold()


# Messages name arguments as Python has them, between backticks; commands show them as their options.

OF_A_RESULT = ("method", "affine", "brightness", "match_intensities", "fixed_mask", "moving_mask", "folds")
OF_REGISTER = {
    "evaluate": ("affine", "brightness", "match_intensities"),
    "evaluate FILE": OF_A_RESULT,
    "report": OF_A_RESULT,
    "demo": (*OF_A_RESULT[1:], "slices"),
}
"""{command: arguments that it tells as options of `vrnet register`, since it only measures or shows a result}"""


def as_options(message: str, command: str = "") -> str:
    """A message with its arguments as options, `slices="each"` as --slices each; or as those of `vrnet register`."""

    def option(found: re.Match[str]) -> str:
        name, value = found[1], (found[2] or "").strip('"')
        value = "" if value == "True" else value if re.fullmatch(r"[\w+./=,-]*", value) else found[2]
        if (command, name) == ("evaluate", "method"):
            return f"vrnet evaluate {value}"
        prefix = "vrnet register " if name in OF_REGISTER.get(command, ()) else ""
        return f"{prefix}--{name.replace('_', '-')} {value}".rstrip()

    words = re.sub("`([a-z_]+)(?:=([^`]*))?`", option, message)
    return re.sub("(vrnet register .*?) and vrnet register ", r"\1 and ", words)


MAX_SHOWN_CHARACTERS = 80


def shown(text: str) -> str:
    """A text from outside as one line of a message can hold it."""
    line = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text[: MAX_SHOWN_CHARACTERS + 1])
    return line if len(text) <= MAX_SHOWN_CHARACTERS else f"{line[:MAX_SHOWN_CHARACTERS]}..."
