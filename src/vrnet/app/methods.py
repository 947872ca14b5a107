"""`vrnet methods`: what there is to register with, and what can be set of each."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, get_args

import tyro
from rich.table import Table
from rich.text import Text

from vrnet.app.console import print_line, screen

if TYPE_CHECKING:
    from vrnet.methods.method import Method

WITH_WEIGHTS = "with --weights FILE"


@dataclass(frozen=True, kw_only=True)
class Methods:
    """List every method by its name, with what it is and whether it is ready; or the parameters of one method.

    Learned methods come as families: R-L1-3x2, say, is of the first. To their names may be added -w32 (channels of the
    first level), to those of the first family and of RC-Net -half (networks at half the resolution), and to those of
    the first -zeros or -noise (what it starts from), -Θ1 (all steps share their weights), -released (the order of steps
    in the authors' code), -frozen (θ is not learned) and -he (weights start as those of U). Any name may end with
    +average: the mean over flips and quarter turns of the pair, unless the network was trained without flips.
    """

    name: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="[NAME]")] = None
    """List the parameters of this method and what it says of itself; of a file of weights, how it was trained."""

    def run(self) -> None:
        from vrnet.methods.method import Task
        from vrnet.methods.names import BUNDLED, LICENCES, all_methods, parameters, parse, without_average
        from vrnet.methods.weights import FAMILIES, SUFFIX, load_method

        name = self.name
        if name is None:
            rows = [(name, summary, f"yes ({LICENCES[name]})") for name, summary in BUNDLED.items()]
            rows += [(str(method), method.summary, readiness(method)) for method in all_methods()]
            rows += [(name, family.summary, WITH_WEIGHTS) for name, family in FAMILIES.items()]
            print_table(rows, "name", "what it is", "ready")
            return print_line(
                "FILE is what `vrnet train` writes.",
                "For commercial use name a method not marked non-commercial, such as Gaussian-LNCC: the default of "
                "2D images and stacks, and `vrnet segment`, use marked weights. docs/methods.md has one table of all.",
            )
        if name in FAMILIES and FAMILIES[name].parse(name) is None:
            return print_line(f"{name}: {FAMILIES[name].summary}. Name one of them to see its parameters.")
        method = load_method(name) if name.endswith(SUFFIX) else parse(name)
        print_line(f"{method}: {method.summary}.")
        named = {str(method.resolve(d, None, images)) for d in method.dimensions for images in get_args(Task)}
        if others := named - {str(method)}:
            return print_line(f"What these are: {', '.join(f'`vrnet methods {other}`' for other in sorted(others))}.")
        scaled = {"jointly": "both together", "each": "each alone"}[method.scaling]
        print_table(
            [
                ("images", " and ".join(f"{d}D" for d in method.dimensions)),
                ("intensities", f"1st to 99th percentile of {scaled} to [0, 1]"),
                ("masks", method.masks),
                ("devices", ", ".join(method.devices)),
                *(method.details.items() if method.weights else ()),
                *([("licence", LICENCES[str(method)])] if str(method) in LICENCES else ()),
                ("package", method.package or "none but vrnet's own"),
                ("ready", WITH_WEIGHTS if method.is_trainable else readiness(method)),
            ]
        )
        settable = parameters(method)
        if name.endswith(SUFFIX):
            return print_line(f"Register with it by --weights {name}.")
        if not settable:
            return print_line("It has no parameters that can be set.")
        rows = [(parameter.name, str(parameter.value), parameter.meaning) for parameter in settable]
        print_table(rows, "parameter", "value", "meaning")
        where = "For vrnet train: set one" if method.is_trainable else "Set one"
        alone, first = without_average(str(method)), settable[0].name
        example = f"{alone.partition('(')[0]}({first}=VALUE){str(method).removeprefix(alone)}"
        print_line(f'{where} with --set {first}=VALUE, or in the name: "{example}".')


def print_table(rows: Iterable[tuple[str, ...]], *columns: str) -> None:
    """A table whose words wrap, and are never cut."""
    table = Table(box=None, show_header=bool(columns))
    for name in columns:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    screen.print(table)


def readiness(method: "Method") -> str:
    from vrnet.methods.names import missing_package

    needed = missing_package(method)
    return f"no: needs {needed}" if needed else "yes"
