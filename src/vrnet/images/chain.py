"""Transforms one after another: x ↦ last(… second(first(x))), in the order that points take."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from vrnet.errors import BadInput
from vrnet.images.affine import Affine
from vrnet.images.grid import Grid
from vrnet.images.itk_transforms import read_itk
from vrnet.images.meeting import warn_of_order
from vrnet.images.transform import Transform, holds_itk_transform, sample_transform

if TYPE_CHECKING:
    import SimpleITK as sitk


def compose(first: Transform | Affine, *others: Transform | Affine, grid: Grid | None = None) -> Transform:
    """x ↦ last(… second(first(x))): a point goes through the first, then through each in the order given.

    If A to B and B to C are known, `compose(a_to_b, b_to_c)` is A to C: an image of C comes to A by its `apply`, and is
    interpolated once. The result is on the grid given, or on that of the first. (A CompositeTransform of SimpleITK
    lists the same transforms the other way round.)"""
    for given in (first, *others):
        if not isinstance(given, (Transform, Affine)):
            raise BadInput(f"a {type(given).__name__} is no transform: give a Transform, such as that of a result")
    target = grid or getattr(first, "grid", None)
    if target is None:
        raise BadInput("the first of the transforms is affine and has no grid: give the `grid` of its fixed image")
    maps = [transform.itk for transform in (first, *others)]
    if len(dimensions := {found.GetDimension() for found in maps} | {len(target.shape)}) > 1:
        raise BadInput(f"the transforms and the grid are {sorted(dimensions)} dimensional: give all of one dimension")
    warn_of_order([f"transform {k + 1}" for k in range(len(maps))], maps, target)
    return sample_transform(in_order(maps), target)


def read_point_map(*paths: Path) -> "sitk.Transform":
    """The transform of a file, to map points, which needs no grid; of several files, x ↦ last(… second(first(x)))."""
    return in_order(read_maps(paths))


def read_maps(paths: Sequence[Path]) -> "list[sitk.Transform]":
    """The transforms of files, all of one dimension."""
    maps = [read_itk(path) if holds_itk_transform(path) else Transform.load(path).itk for path in paths]
    for path, found in zip(paths, maps, strict=True):
        if found.GetDimension() != maps[0].GetDimension():
            d, first = found.GetDimension(), maps[0].GetDimension()
            raise BadInput(f"{path} is {d}D and {paths[0]} {first}D: give transforms of one dimension")
    return maps


def in_order(maps: "list[sitk.Transform]") -> "sitk.Transform":
    """x ↦ last(… second(first(x))); ITK applies the last one first."""
    import SimpleITK as sitk

    return maps[0] if len(maps) == 1 else sitk.CompositeTransform(maps[::-1])


def load_chain(paths: Sequence[Path], grid: Grid) -> Transform:
    """x ↦ last(… second(first(x))), at the voxels of a grid; of one transform that has a grid, on that."""
    if len(paths) == 1:
        only = Transform.load(paths[0], grid)
        only.check_dimension(len(grid.shape), "the reference")
        warn_of_order([str(paths[0])], [only.itk], grid)
        return only
    maps = read_maps(paths)
    if maps[0].GetDimension() != len(grid.shape):
        raise BadInput(
            f"{paths[0]} is {maps[0].GetDimension()}D and the reference {len(grid.shape)}D: give one of its kind"
        )
    warn_of_order(list(map(str, paths)), maps, grid)
    return sample_transform(in_order(maps), grid)
