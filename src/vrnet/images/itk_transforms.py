"""ITK transform files: text (.tfm, .txt), Matlab 4 (.mat), MNI (.xfm) and HDF5 (.h5), written, and read without trust.

The numbers of a file are parsed and checked here; ITK is given only what passed, so that no reader of it sees the file.
"""

import re
import struct
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from vrnet.errors import BadInput
from vrnet.files import atomic_write, check_written, exists
from vrnet.images.checks import check_grid, check_memory, check_regular, unreadable
from vrnet.images.exchange import to_sitk
from vrnet.images.grid import Grid
from vrnet.images.io import check_name
from vrnet.images.sandbox import ask_sandbox

if TYPE_CHECKING:
    import SimpleITK as sitk

NOT_A_TRANSFORM = "it is not an ITK transform, or damaged"
TEXT_MAGIC, XFM_MAGIC, HDF5_MAGIC = b"#Insight Transform File", b"MNI Transform File", b"\x89HDF\r\n\x1a\n"
MATLAB_NUMBERS = {0: "<f8", 10: "<f4", 1000: ">f8", 1010: ">f4"}
NAME = re.compile(r"([A-Z][A-Za-z0-9]{1,60})_(?:double|float)_([23])_([23])(?:_([0-3]))?")
NUMBER_COUNTS = {
    "Euler2DTransform": (3, 2), "Similarity2DTransform": (4, 2), "Euler3DTransform": (6, 3),
    "VersorTransform": (3, 3), "VersorRigid3DTransform": (6, 3), "Similarity3DTransform": (7, 3),
    "ScaleVersor3DTransform": (9, 3), "ScaleSkewVersor3DTransform": (15, 3),
}  # fmt: skip
"""How many parameters, and fixed ones, a transform has whose name says its dimension."""
AFFINE = "AffineTransform", "MatrixOffsetTransformBase"
ON_A_GRID = "DisplacementFieldTransform", "BSplineTransform"
RESULT = "transform.nii.gz"
"""The transform in the folder of a result."""
MAX_PARAMETER = 1e9
MAX_PARTS = 64
MIN_DETERMINANT, MAX_DETERMINANT = 1e-9, 1e9


class Part(NamedTuple):
    """One transform of a file: its kind, its dimension and its numbers."""

    name: str
    d: int
    parameters: Float[ndarray, "n"]
    fixed: Float[ndarray, "m"]
    order: int = 3
    """The degree of a B-spline."""


def is_itk_transform(path: Path) -> bool:
    """Whether the first bytes of a file are those of a transform that is no image."""
    check_name(path)
    check_holds_no_result(path)
    check_regular(path)
    with path.open("rb") as file:
        head = file.read(64)
    return head.startswith((TEXT_MAGIC, XFM_MAGIC, HDF5_MAGIC)) or is_matlab(head)


def check_holds_no_result(path: Path) -> None:
    """BadInput for the folder of a result, which names its transform."""
    if exists(path / RESULT):
        raise BadInput(f"{path} is a folder: give its transform, {path / RESULT}")


def is_matlab(head: bytes) -> bool:
    """Whether a file begins as a column of numbers in Matlab's version 4 whose name is that of a transform."""
    return any(head[:4] == struct.pack(form[0] + "i", code) for code, form in MATLAB_NUMBERS.items()) and (
        NAME.match(head[20:].decode("latin-1")) is not None
    )


def read_itk(path: Path) -> "sitk.Transform":
    """The transform in an ITK transform file, as an object of SimpleITK; or BadInput."""
    if not is_itk_transform(path):
        raise unreadable(path, NOT_A_TRANSFORM)
    check_memory(path, path.stat().st_size)
    try:
        parts = read_parts(path)
        for part in parts:
            check_part(part, path)
        return assemble([build(part, path) for part in parts])
    except MemoryError as error:
        raise BadInput(f"{path} needs more memory than is free: use a machine with more memory") from error
    except (RuntimeError, ValueError, KeyError, TypeError, OSError, struct.error) as error:
        raise error if isinstance(error, BadInput) else unreadable(path, NOT_A_TRANSFORM) from error


def read_parts(path: Path) -> list[Part]:
    """The transforms of a file, those of a composite one by one."""
    with path.open("rb") as file:
        head = file.read(64)
    if head.startswith(HDF5_MAGIC):
        return read_hdf5(path)
    data = path.read_bytes()
    read = parse_xfm if head.startswith(XFM_MAGIC) else parse_text if head.startswith(TEXT_MAGIC) else parse_matlab
    parts = read(data, path)
    if parts and parts[0].name == "CompositeTransform":
        parts = parts[1:]
    elif len(parts) > 1:
        raise BadInput(f"{path} holds {len(parts)} transforms and does not say how they combine: give one per file")
    if not 1 <= len(parts) <= MAX_PARTS or len({part.d for part in parts}) != 1:
        raise unreadable(path, NOT_A_TRANSFORM)
    return parts


def named_part(full_name: str, parameters: Float[ndarray, "n"], fixed: Float[ndarray, "m"], path: Path) -> Part:
    """The transform that a name such as AffineTransform_double_3_3 and numbers describe."""
    found = NAME.fullmatch(full_name)
    if found is None or found[2] != found[3]:
        raise unreadable(path, NOT_A_TRANSFORM)
    return Part(found[1], int(found[2]), parameters, fixed, int(found[4] or 3))


def parse_text(data: bytes, path: Path) -> list[Part]:
    """The transforms of ITK's text format."""
    parts, name, found = [], "", {"Parameters": np.zeros(0), "FixedParameters": np.zeros(0)}
    for line in [*data.decode("ascii").splitlines(), "Transform: "]:
        key, _, value = line.partition(":")
        if key == "Transform":
            if name:
                parts.append(named_part(name, found["Parameters"], found["FixedParameters"], path))
            name, found = value.strip(), {"Parameters": np.zeros(0), "FixedParameters": np.zeros(0)}
        elif key in found and name:
            found[key] = np.array(value.split(), np.float64)
        elif line.strip() and not line.startswith("#"):
            raise unreadable(path, NOT_A_TRANSFORM)
    return parts


def parse_matlab(data: bytes, path: Path) -> list[Part]:
    """The transforms of a Matlab file: the parameters of each, under its name, and then the fixed ones."""
    columns: list[tuple[str, Any]] = []
    place = 0
    while place < len(data) and len(columns) <= 2 * MAX_PARTS:
        forms = (f for c, f in MATLAB_NUMBERS.items() if data[place : place + 4] == struct.pack(f[0] + "i", c))
        form = next(forms, "<f8")
        rows, count, is_complex, length = struct.unpack_from(form[0] + "4i", data, place + 4)
        start, width = place + 20 + length, int(form[2])
        if count != 1 or is_complex or rows < 0 or not 1 <= length < 80 or start + rows * width > len(data):
            raise unreadable(path, NOT_A_TRANSFORM)
        name = data[place + 20 : start - 1].decode("ascii")
        columns.append((name, np.frombuffer(data, form, rows, start).astype(np.float64)))
        place = start + rows * width
    if len(columns) % 2:
        raise unreadable(path, NOT_A_TRANSFORM)
    pairs = zip(columns[::2], columns[1::2], strict=True)
    return [named_part(name, parameters, fixed, path) for (name, parameters), (_, fixed) in pairs]


def parse_xfm(data: bytes, path: Path) -> list[Part]:
    """The one linear transform of an MNI file; other kinds would name another file."""
    text = re.sub(r"(?m)^%.*$", "", data.decode("ascii"))
    found = re.fullmatch(
        r"\s*MNI Transform File\s+Transform_Type\s*=\s*Linear;\s+Linear_Transform\s*=([^;]*);\s*", text
    )
    if found is None:
        raise unreadable(path, "it is not one linear MNI transform, or damaged")
    rows = np.array(found[1].split(), np.float64).reshape(3, 4)
    return [Part("AffineTransform", 3, np.concatenate([rows[:, :3].ravel(), rows[:, 3]]), np.zeros(3))]


def read_hdf5(path: Path) -> list[Part]:
    """The transforms of an HDF5 file, read in another process that can open no second file."""
    found, data = ask_sandbox("transform", path, [path], open_files=1, name=str(path.absolute()))
    parts, place = [], 0
    for kind in found["parts"]:
        parameters = np.frombuffer(data, np.float64, kind["count"], place)
        place += parameters.nbytes
        fixed = np.array(kind["fixed"], np.float64)
        parts.append(Part(kind["name"], kind["dimension"], parameters, fixed, kind["order"]))
    return parts


def check_part(part: Part, path: Path) -> None:
    """BadInput unless a transform has as many numbers as its kind needs, all finite and none absurd."""
    numbers, d = np.concatenate([part.parameters, part.fixed]), part.d
    if not np.isfinite(numbers).all():
        raise BadInput(f"{path} contains NaN or infinite numbers: it cannot be applied")
    if not (np.abs(numbers) <= MAX_PARAMETER).all():
        raise BadInput(f"{path} contains numbers above {MAX_PARAMETER:g}: it cannot be applied")
    counts = {"IdentityTransform": (0, 0), "TranslationTransform": (d, 0), "ScaleTransform": (d, d)}
    counts |= dict.fromkeys(AFFINE, (d * d + d, d)) | NUMBER_COUNTS
    if part.name in ON_A_GRID:
        expected = d * int(np.prod(place_of(part, path).shape, dtype=object)), d * (3 + d)
    elif part.name in counts:
        expected = counts[part.name]
    else:
        raise unreadable(path, f"it holds a {part.name}, a kind of transform that is not known")
    found = len(part.parameters), len(part.fixed)
    if found != expected and not (part.name == "Euler3DTransform" and found == (6, 4)):  # older files lack a flag
        raise unreadable(path, NOT_A_TRANSFORM)


def place_of(part: Part, path: Path) -> Grid:
    """The grid of a displacement field or of the control points of a spline."""
    d = part.d
    if len(part.fixed) != d * (3 + d) or (part.fixed[:d] < 1).any() or (part.fixed[:d] % 1).any():
        raise unreadable(path, NOT_A_TRANSFORM)
    shape, origin, spacing = (tuple(part.fixed[i * d : (i + 1) * d].tolist()) for i in range(3))
    grid = Grid(tuple(map(int, shape)), spacing, origin, tuple(part.fixed[3 * d :].tolist()))
    check_grid(grid, path)
    return grid


def build(part: Part, path: Path) -> "sitk.Transform":
    """One transform as an object of SimpleITK; BadInput if it is linear and has no inverse."""
    import SimpleITK as sitk

    if part.name == "DisplacementFieldTransform":
        grid = place_of(part, path)
        vectors = part.parameters.reshape(*reversed(grid.shape), part.d).T
        return sitk.DisplacementFieldTransform(to_sitk(vectors, grid, is_vector=True))
    order = f"_{part.order}" if part.name == "BSplineTransform" and part.order != 3 else ""
    lines = [TEXT_MAGIC.decode() + " V1.0", "#Transform 0", f"Transform: {part.name}_double_{part.d}_{part.d}{order}"]
    for key, values in (("Parameters", part.parameters), ("FixedParameters", part.fixed)):
        lines.append(f"{key}: {' '.join(map(repr, values.tolist()))}")
    with TemporaryDirectory() as folder:
        clean = Path(folder) / "clean.tfm"
        clean.write_text("\n".join([*lines, ""]), encoding="ascii")
        transform = sitk.ReadTransform(str(clean))
    if part.name not in ON_A_GRID:
        check_invertible(transform, path)
    return transform


def check_invertible(transform: "sitk.Transform", path: Path) -> None:
    """BadInput if a linear transform takes space to a plane, or to no finite place."""
    d = transform.GetDimension()
    zero, *steps = (np.array(transform.TransformPoint(point.tolist())) for point in [np.zeros(d), *np.eye(d)])
    determinant = abs(np.linalg.det(np.array(steps) - zero))
    if not MIN_DETERMINANT < determinant < MAX_DETERMINANT:
        raise BadInput(f"{path} has a matrix without an inverse: it cannot be applied")


def assemble(transforms: "list[sitk.Transform]") -> "sitk.Transform":
    """One transform, or the composite of several, in the order of the file."""
    import SimpleITK as sitk

    return transforms[0] if len(transforms) == 1 else sitk.CompositeTransform(transforms)


def write_itk(transform: "sitk.Transform", path: Path) -> None:
    """Write an ITK transform in the format of the file's ending, whole or not at all."""
    import SimpleITK as sitk

    with atomic_write(path) as temporary:
        try:
            sitk.WriteTransform(transform, str(temporary))
            check_written(is_transform(temporary, transform), path)
        except RuntimeError as error:
            raise BadInput(f"cannot write {path}: is the disk full?") from error


def is_transform(path: Path, transform: "sitk.Transform") -> bool:
    """Whether a file that ITK wrote holds every number of the transform."""
    import SimpleITK as sitk

    found = sitk.ReadTransform(str(path))
    numbers = [(np.array(each.GetFixedParameters()), np.array(each.GetParameters())) for each in (found, transform)]
    return all(np.array_equal(a, b) for a, b in zip(*numbers, strict=True))


def map_points(transform: "sitk.Transform", x: Float[ndarray, "n d"]) -> Float[ndarray, "n d"]:
    """Where points of fixed are in moving, in LPS millimetres, by a SimpleITK transform."""
    if transform.GetDimension() != x.shape[1]:
        raise BadInput(
            f"the transform is {transform.GetDimension()}D and the points {x.shape[1]}D: they do not belong together"
        )
    return np.array([transform.TransformPoint(point) for point in x.tolist()]).reshape(x.shape)
