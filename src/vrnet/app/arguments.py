"""From the words of a command line to a command: tyro, told how our dataclasses of options read.

The docstring below a field is its help. An option that is off, empty or None unless it is given shows no default: its
help says what happens without it.
"""

import re
import typing
from collections.abc import Collection, Sequence
from contextlib import redirect_stderr
from dataclasses import MISSING, dataclass, fields, is_dataclass
from io import StringIO
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import tyro
from tyro import constructors

from vrnet.errors import BadInput
from vrnet.methods.parameters import field_docstrings
from vrnet.vocabulary import DeviceChoice

if TYPE_CHECKING:
    from vrnet.data.prepared import Source
    from vrnet.methods.method import Task
    from vrnet.methods.names import MethodSpec

registry = constructors.ConstructorRegistry()
OPTIONS: Any = {"config": (tyro.conf.FlagCreatePairsOff,), "registry": registry}  # what tyro is told in every call


def read_command(name: str, kind: type[Any], words: Sequence[str]) -> Any:
    """Parse the words. On an error, raise BadInput with tyro's message and its suggestion, without the box."""
    said = StringIO()
    try:
        with redirect_stderr(said):
            return tyro.cli(kind, args=words, prog=f"vrnet {name}", **OPTIONS)
    except SystemExit as end:
        if not end.code:
            raise
    _, *lines = (line.strip("│").rstrip() for line in said.getvalue().splitlines())
    is_rule = re.compile(r"\W*[─-]{4,}\W*").fullmatch
    box = takewhile(lambda line: not is_rule(line), lines[1 if is_rule(lines[0]) else 0 :])
    wrong = " ".join(line.strip() for line in box if line[:7].strip()).rstrip(".")
    meant = re.search(r"Perhaps you meant:\W+?(--[\w-]+)", "\n".join(lines))
    hint = f" (did you mean {meant[1]}?)" if meant else ""
    raise BadInput(f"{wrong}{hint}; `vrnet {name} --help` says more")


@registry.struct_rule
def dataclass_rule(info: constructors.StructTypeInfo) -> constructors.StructConstructorSpec | None:
    """A dataclass of ours as arguments, one per field; tyro has dataclasses of its own."""
    if not is_dataclass(info.type) or not info.type.__module__.startswith("vrnet."):
        return None
    hints, found = typing.get_type_hints(info.type, include_extras=True), []
    for field in fields(info.type):
        hint, default = hints[field.name], tyro.MISSING_NONPROP if field.default is MISSING else field.default
        if default is None or default is False or default is True or default == ():  # shown only if the type says so
            kind, *marks = typing.get_args(hint) if typing.get_origin(hint) is Annotated else [hint]
            hint = Annotated[kind, tyro.conf.DisallowNone, tyro.conf.arg(help_behavior_hint=""), *marks]
        help_text = lambda name=field.name: field_docstrings(info.type).get(name)  # noqa: E731  looked up when shown
        found.append(constructors.StructFieldSpec(field.name, hint, default, help_text))
    return constructors.StructConstructorSpec(info.type, tuple(found))


# What several commands share: kinds of arguments, and groups of options that belong together.

T = TypeVar("T")
Group = Annotated[T, tyro.conf.OmitArgPrefixes, tyro.conf.arg(name="")]
"""A dataclass of options, which become options of the command that has it as a field."""
Name = Annotated[str, tyro.conf.arg(metavar="NAME")]
File = Annotated[Path, tyro.conf.arg(metavar="FILE")]
OptionalFile = Annotated[Path | None, tyro.conf.arg(metavar="FILE")]
OptionalFolder = Annotated[Path | None, tyro.conf.arg(metavar="DIR")]
FixedFile = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FIXED")]
MovingFile = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="MOVING")]
ImageFile = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="IMAGE")]
CineFile = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="CINE")]
LabelsFile = Annotated[str, tyro.conf.arg(metavar="FILE|auto|none")]
LabelNamesText = Annotated[str | None, tyro.conf.arg(metavar="1=RV,2=Myo,3=LV|SET")]
TransformFile = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="TRANSFORM")]
NextTransforms = Annotated[tuple[Path, ...], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="FILE")]
Settings = Annotated[tuple[str, ...], tyro.conf.UseAppendAction, tyro.conf.arg(name="set", metavar="NAME=VALUE")]
Jobs = Annotated[int, tyro.conf.arg(metavar="N")]


def read_folder(words: list[str]) -> Path:
    """A folder; ValueError where it is named as a file: `register --out x.nii.gz` is meant to give one."""
    files = r"\.(nii(\.gz)?|mha|mhd|nrrd|nhdr|hdr|img|dcm|png|jpe?g|h5|tfm|txt|mat)$"
    if suffix := re.search(files, words[0], re.IGNORECASE):
        raise ValueError(f"this is a folder, not a file: give a name without {suffix[0]}")
    return Path(words[0])


is_path = lambda value: isinstance(value, Path)  # noqa: E731
Folder = Annotated[
    Path, constructors.PrimitiveConstructorSpec(1, "DIR", read_folder, is_path, lambda path: [str(path)])
]
OF_A_SPLIT = "root", "split_file", "cache", "skip_broken"  # the fields of SourceOptions


@dataclass(frozen=True, kw_only=True)
class MethodOptions:
    """What makes a method ready to register."""

    weights: OptionalFile = None
    """Weights that `vrnet train` wrote; they name their method."""
    average: bool = False
    """Average over flips and turns: slow, may gain a little."""
    settings: Settings = ()
    """As lam=0.15; repeatable. `vrnet methods METHOD` lists all."""

    def spec(self, name: str, images: "Task" = "pair") -> "MethodSpec":
        """The method of a name, or the one that the weights are of; BadInput if it cannot register."""
        from vrnet.methods.names import parse_method

        return parse_method(name, self.weights, self.settings, self.average, images)


@dataclass(frozen=True, kw_only=True)
class MaskOptions:
    """Which parts of the images are compared."""

    fixed_mask: OptionalFile = None
    """Mask on the grid of FIXED, nonzero inside: only there the images are compared. Leave a margin around a structure.
    An affine start also uses the whole images."""
    moving_mask: OptionalFile = None
    """Mask on the grid of MOVING. Exclude what only this image shows, such as an artefact."""


@dataclass(frozen=True, kw_only=True)
class LabelOptions:
    """The label maps of a pair."""

    fixed_labels: OptionalFile = None
    """Label map on the grid of FIXED; with both label maps, Dice and distances are measured, of hearts also volumes and
    ejection fractions."""
    moving_labels: OptionalFile = None
    """Label map on the grid of MOVING."""
    label_names: LabelNamesText = None
    """What the labels are called; SET: acdc, ukbb, hippocampus or freesurfer."""

    @property
    def files(self) -> dict[str, Path | None]:
        return {"fixed_labels": self.fixed_labels, "moving_labels": self.moving_labels}


@dataclass(frozen=True, kw_only=True)
class EvaluationOptions:
    """Under which conditions a transform is judged."""

    masks: Group[MaskOptions]
    ignore_recorded: bool = False
    """Ignore what metrics.json beside the transform records: masks, affine start and matched intensities."""


@dataclass(frozen=True, kw_only=True)
class DeviceOptions:
    """Where to compute."""

    device: DeviceChoice = "auto"
    """Compute there; auto takes CUDA where it is."""


@dataclass(frozen=True, kw_only=True)
class SourceOptions:
    """Where the pairs of a data set come from."""

    root: Annotated[Path | None, tyro.conf.arg(metavar="DIR|FILE")] = None
    """The folder of the data set, with split.csv; of a manifest, the CSV file; phantoms have none."""
    split_file: OptionalFile = None
    """Another split.csv than the folder's."""
    cache: OptionalFolder = None
    """Where prepared subjects are kept; ~/.cache/vrnet if not given."""
    skip_broken: bool = False
    """Continue without subjects that cannot be used; otherwise all of them are named, and nothing is done."""

    def source(self, data: str) -> "Source":
        """The data set of a name, or of a file that `vrnet prepare` wrote."""
        from vrnet.data.prepared import Source

        return Source(data, self.root, self.split_file, self.cache, self.skip_broken)


def refuse_options(command: object, names: Collection[str], where: str) -> None:
    """BadInput if any of these fields was given where it has no effect: a misunderstanding, which is told at once."""
    ignored = [name for name in changed_fields(command) if name in names]
    if ignored:
        words = ", ".join("--set" if name == "settings" else f"--{name.replace('_', '-')}" for name in ignored)
        raise BadInput(f"{words} would have no effect {where}")


def changed_fields(command: Any) -> list[str]:
    """The fields of a command, and of the groups of its options, that have another value than their default."""
    found = []
    for field in fields(command):
        value = getattr(command, field.name)
        if is_dataclass(value):
            found += changed_fields(value)
        elif value != field.default:
            found.append(field.name)
    return found
