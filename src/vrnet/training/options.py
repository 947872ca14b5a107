"""The options of `vrnet train`: every field of `Training`, with its docstring as help. Apart, since only the command
line needs tyro."""

from dataclasses import make_dataclass
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import tyro

from vrnet.docstrings import field_docstrings
from vrnet.training.settings import Training

METAVARS = {int: "INT", float: "FLOAT", str: "NAME"}
YES_OR_NO = Literal["yes", "no"]


def option(name: str, kind: Any) -> tuple[str, Any, Any]:
    """Name, annotated type and default of the option for a field of `Training` of this type."""
    text = field_docstrings(Training)[name]
    if name == "augmentation":
        return "augment", Annotated[bool, tyro.conf.arg(help=text, help_behavior_hint="")], True
    default = "the method's" if str in get_args(kind) else "the preset's"
    (kind,) = set(get_args(kind)) - {type(None)} if type(None) in get_args(kind) else (kind,)
    kind = YES_OR_NO if kind is bool else kind
    metavar = f"{{{','.join(get_args(kind))}}}" if get_origin(kind) is Literal else METAVARS[kind]
    shown = tyro.conf.arg(metavar=metavar, help=text, help_behavior_hint=f"(default: {default})")
    return name, Annotated[kind | None, shown], None


OPTIONS = make_dataclass("Options", [option(*field) for field in get_type_hints(Training).items()], frozen=True)


class TrainingOptions(OPTIONS):  # type: ignore[misc, valid-type]
    """Changes of a preset; None where its value stays."""

    def changes(self) -> dict[str, Any]:
        """{field of Training: value} of the options that were given."""
        found = {name: value for name, value in vars(self).items() if value is not None}
        if not found.pop("augment"):
            found["augmentation"] = None
        if "recompute" in found:
            found["recompute"] = found["recompute"] == "yes"
        return found
