"""`vrnet methods`: what there is to register with, and what can be set of each."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, get_args

import tyro
from rich.table import Table
from rich.text import Text

from vrnet.app.console import print_line, screen

if TYPE_CHECKING:
    from vrnet.methods.method import Method

SCALINGS = {
    "jointly": "1st to 99th percentile of both together to [0, 1]",
    "each": "1st to 99th percentile of each alone to [0, 1]",
}
"""What a method asks of the intensities of a pair, in words."""


@dataclass(frozen=True, kw_only=True)
class Methods:
    """List every method by its name, with what it is and whether it is ready; or the parameters of one method.

    Learned methods come as families: R-L1-3x2, say, is of the first. To their names may be added -w32 (channels of the
    first level), to those of the first family and of RC-Net -half (networks at half the resolution), and to those of
    the first -zeros or -noise (what it starts from), -Θ1 (all steps share their weights), -released (the order of steps
    in the authors' code), -frozen (θ is not learned), -he (weights start as those of U) and -odd (of C and D: equal
    images do not move). Any name may end with +average: the mean over flips and quarter turns of the pair,
    which networks trained without flips are refused.
    """

    name: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="[NAME]")] = None
    """List the parameters of this method, with their values and meanings, and what else it says of itself. Of a file of
    weights: what was trained, on what and how."""

    def run(self) -> None:
        if self.name is None:
            list_methods()
        else:
            describe_method(self.name)


def list_methods() -> None:
    """Print one line per method, then one per family of learned methods."""
    from vrnet.methods.bundled import BUNDLED
    from vrnet.methods.names import all_methods
    from vrnet.methods.weights import FAMILIES

    table = words_table("name", "what it is", "ready")
    for name, model in BUNDLED.items():
        table.add_row(name, model.summary, "yes")
    for method in all_methods():
        table.add_row(str(method), method.summary, readiness(method))
    for name, family in FAMILIES.items():
        table.add_row(name, family.summary, "with --weights FILE")
    screen.print(table)
    print_line("FILE is what `vrnet train` writes.")


def describe_method(name: str) -> None:
    """Print what a method says of itself, and one line per parameter."""
    from vrnet.methods.method import Images
    from vrnet.methods.names import parameters, parse, without_average
    from vrnet.methods.weights import FAMILIES, SUFFIX, load_method

    if name in FAMILIES and FAMILIES[name].parse(name) is None:
        print_line(f"{name}: {FAMILIES[name].summary}. Name one of them to see its parameters.")
        return
    method = load_method(name) if name.endswith(SUFFIX) else parse(name)
    print_line(f"{method}: {method.summary}.")
    named = {str(method.resolve(d, None, images)) for d in method.dimensions for images in get_args(Images)}
    if others := named - {str(method)}:
        print_line(f"What these are: {', '.join(f'`vrnet methods {each}`' for each in sorted(others))}.")
        return
    screen.print(properties_table(method))
    if name.endswith(SUFFIX):
        print_line(f"Register with it by --weights {name}.")
        return
    settable = parameters(method)
    if not settable:
        print_line("It has no parameters that can be set.")
        return
    table = words_table("parameter", "value", "meaning")
    for parameter in settable:
        table.add_row(parameter.name, Text(str(parameter.value)), Text(parameter.meaning))
    screen.print(table)
    where = "For vrnet train: set one" if method.is_trainable else "Set one"
    alone, first = without_average(str(method)), settable[0].name
    example = f"{alone.partition('(')[0]}({first}=VALUE){str(method).removeprefix(alone)}"
    print_line(f'{where} with --set {first}=VALUE, or in the name: "{example}".')


def properties_table(method: "Method") -> Table:
    """What others need to know of a method: one row per property."""
    table = Table(box=None, show_header=False)
    table.add_row("images", " and ".join(f"{d}D" for d in method.dimensions))
    table.add_row("intensities", Text(SCALINGS[method.scaling]))
    table.add_row("masks", Text(method.masks))
    table.add_row("devices", ", ".join(method.devices))
    for name, text in method.details.items() if method.weights else ():
        table.add_row(name, Text(text))
    table.add_row("package", method.package or "none but vrnet's own")
    table.add_row("ready", "with --weights FILE" if method.is_trainable else readiness(method))
    return table


def words_table(*columns: str) -> Table:
    """An empty table whose words wrap, and are never cut."""
    table = Table(box=None)
    for name in columns:
        table.add_column(name, overflow="fold")
    return table


def readiness(method: "Method") -> str:
    """Whether all that a method needs is installed."""
    from vrnet.methods.names import missing_package

    needed = missing_package(method)
    return f"no: needs {needed}" if needed else "yes"
