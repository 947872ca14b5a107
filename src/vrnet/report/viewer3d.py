"""What the three planes of a page show of a volume: every voxel in 8 bits, and the motion on a coarser grid.

Bytes lie as in a NIfTI file, first axis fastest, compressed by gzip and written in base 85. Where they vary smoothly,
each is stored less its neighbours, b(x, y) − b(x − 1, y) − b(x, y − 1) + b(x − 1, y − 1) modulo 256."""

import gzip
from base64 import b64encode, b85encode
from collections.abc import Mapping
from importlib.resources import files
from itertools import count
from math import prod
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, UInt8
from numpy import ndarray

from vrnet.fields.calculus import determinant, jacobian
from vrnet.fields.folds import smallest_determinant
from vrnet.images.grid import Grid
from vrnet.report.drawing import quantise, rank_labels
from vrnet.report.pair import MAX_SIDE_PIXELS, Appearance, Deformation, View, world_axes

MIN_SIDE_VOXELS = 16
"""A thinner volume is looked at slice by slice."""
MAX_VOXELS = 2**24
"""A larger volume would make a page that few browsers open."""
MAX_MOTION_VOXELS = 2**20
"""Motion and determinants are smooth: of larger volumes, they are sampled at every second voxel, or fewer."""
MAX_MOTION_BYTES = 1_200_000
"""Of motion and determinants together, when compressed: those of a rough field are sampled at fewer voxels."""
GREY_STEPS = (1, 2, 4, 8)
"""How far apart the greys of a page are, of 255: as near as MAX_GREY_BYTES lets them be."""
MAX_GREY_BYTES = 3_300_000
"""Of the three images together, when compressed: so that the page of a brain, also a ruined one, stays below 8 MB."""
DETERMINANTS = (-1.0, -1 + 255 / 64)
"""The range of the determinants, in steps of 1/64."""
SLAB_SLICES = 16
"""How many slices are deformed at once."""
FOREGROUND_PART = 0.1
"""Brighter than this part of the greys is no background."""


def is_volume(pair: View) -> bool:
    """Whether a pair is shown in three planes: no image, no stack of slices, and not too thin or too large."""
    shape = pair.fixed.shape
    if len(shape) != 3 or pair.grid.stacked_across is not None:
        return False
    return min(shape) >= MIN_SIDE_VOXELS and max(shape) <= MAX_SIDE_PIXELS and prod(shape) <= MAX_VOXELS


def volume_data(pair: View, look: Appearance) -> dict[str, Any]:
    """What the planes of a page hold of a volume, which is oriented for viewing."""
    lengths = motion_lengths(pair)
    peak = find_peak(pair, lengths, look)
    det, folded = deform_volume(pair.field)
    factor, largest, motion = compress_motion(pair.field, det)
    coarse = pair.grid if factor == 1 else coarser_grid(pair.grid, factor)
    smooth = compress_greys(pair, look) | motion
    maps = rank_maps(pair, look) | {"folded": folded.astype(np.uint8)}
    return {
        "shape": pair.grid.shape,
        "header": nifti_header(pair.grid),
        "to_lps": np.column_stack([pair.grid.to_world, pair.grid.origin]).tolist(),
        "motion_factor": factor,
        "motion_shape": coarse.shape,
        "motion_header": nifti_header(coarse),
        "largest": largest,
        "longest_mm": float(np.percentile(lengths, 99.9)) or 1.0,
        "extent": [n * h for n, h in zip(*in_world_order(pair.grid), strict=True)],
        "start": find_start(pair),
        "box": find_box(pair),
        "peak": peak,
        "peak_mm": float(lengths[peak]),
        "smooth": {name: write_text(data) for name, data in smooth.items()},
        "maps": {name: write_text(gzip.compress(to_bytes(map_), 6, mtime=0)) for name, map_ in maps.items()},
    }


def compress_motion(
    field: Float[ndarray, "3 x y z"], det: Float[ndarray, "x y z"]
) -> tuple[int, list[float], dict[str, bytes]]:
    """Motion and determinants at every n-th voxel, for the least n that MAX_MOTION_VOXELS and MAX_MOTION_BYTES allow:
    n, the largest motion along each axis, in voxels, and the compressed arrays."""
    for factor in count(motion_factor(det.shape)):
        motion = field[:, ::factor, ::factor, ::factor]
        largest = [float(np.abs(u).max()) or 1.0 for u in motion]
        scaled = enumerate(zip(motion, largest, strict=True))
        sampled = {f"u{i}": quantise(u, -128 / 127 * m, m) for i, (u, m) in scaled}
        sampled["det"] = quantise(det[::factor, ::factor, ::factor], *DETERMINANTS)
        found = {name: compress_smooth(array) for name, array in sampled.items()}
        if sum(map(len, found.values())) <= MAX_MOTION_BYTES or factor >= min(det.shape):
            break
    return factor, largest, found


def compress_greys(pair: View, look: Appearance) -> dict[str, bytes]:
    """The three images in as many greys as MAX_GREY_BYTES allows."""
    images = {name: quantise(getattr(pair, name), *look.windows[name]) for name in ("fixed", "moving", "warped")}
    step = next((step for step in GREY_STEPS[:-1] if expected_bytes(images, step) <= MAX_GREY_BYTES), GREY_STEPS[-1])
    return {name: compress_smooth(round_greys(image, step)) for name, image in images.items()}


def expected_bytes(images: Mapping[str, UInt8[ndarray, "x y z"]], step: int, sample: int = 8) -> int:
    """About how many bytes images take when compressed, by every so many slices of them."""
    return sample * sum(len(compress_smooth(round_greys(image[..., ::sample], step))) for image in images.values())


def rank_maps(pair: View, look: Appearance) -> dict[str, UInt8[ndarray, "x y z"]]:
    """The label maps that there are, by the ranks of their labels; and the mask."""
    found = {name: getattr(pair, name) for name in ("fixed_labels", "moving_labels", "warped_labels")}
    ranked = {name: rank_labels(map_, [*look.colours]) for name, map_ in found.items() if map_ is not None}
    return ranked if pair.mask is None else {**ranked, "mask": pair.mask.astype(np.uint8)}


def deform_volume(field: Float[ndarray, "3 x y z"]) -> Deformation:
    """The determinants of a field and its folds, a few slices at a time: all at once would take much memory."""
    parts = []
    for first in range(0, field.shape[3], SLAB_SLICES):
        low, high = max(first - 1, 0), first + SLAB_SLICES + 1
        u = torch.from_numpy(np.ascontiguousarray(field[..., low:high]))[None]
        kept = slice(first - low, first - low + SLAB_SLICES)
        det, least = determinant(jacobian(u))[0, ..., kept], smallest_determinant(u)[0, ..., kept]
        parts.append((det.numpy(), (least <= 0).numpy()))
    return Deformation(*(np.concatenate(maps, axis=-1) for maps in zip(*parts, strict=True)))


def compress_smooth(array: UInt8[ndarray, "x y z"]) -> bytes:
    """The bytes of a volume less their neighbours, compressed."""
    across = np.diff(array, axis=0, prepend=np.uint8(0))
    return gzip.compress(to_bytes(np.diff(across, axis=1, prepend=np.uint8(0))), 9, mtime=0)


def to_bytes(array: UInt8[ndarray, "x y z"]) -> bytes:
    """The bytes of a volume as a NIfTI file has them."""
    return array.tobytes(order="F")


def write_text(data: bytes) -> str:
    """Bytes in base 85, without the characters that HTML gives a meaning to."""
    return b85encode(data).translate(bytes.maketrans(b"&<>", b",.:")).decode()


def round_greys(image: UInt8[ndarray, "*s"], step: int) -> UInt8[ndarray, "*s"]:
    """The nearest multiples of a step; black and white stay as they are."""
    return np.minimum(np.rint(image / np.float32(step)) * step, 255).astype(np.uint8)


def motion_factor(shape: tuple[int, ...]) -> int:
    """The least n for which every n-th voxel along each axis makes no more than MAX_MOTION_VOXELS."""
    factor = 1
    while prod(-(-n // factor) for n in shape) > MAX_MOTION_VOXELS:
        factor += 1
    return factor


def coarser_grid(grid: Grid, factor: int) -> Grid:
    """The grid of every n-th voxel along each axis, from the first on."""
    shape = tuple(-(-n // factor) for n in grid.shape)
    return Grid(shape, tuple(factor * h for h in grid.spacing), grid.origin, grid.direction)


def motion_lengths(pair: View) -> Float[ndarray, "x y z"]:
    """How far each voxel moves, in mm."""
    return np.linalg.norm(np.einsum("ij,j...->i...", pair.grid.to_world.astype(np.float32), pair.field), axis=0)


def find_peak(pair: View, lengths: Float[ndarray, "x y z"], look: Appearance) -> tuple[int, ...]:
    """The voxel that moves farthest, of those that are no background in fixed; of all, if there are none."""
    low, high = look.windows["fixed"]
    is_seen = pair.fixed > low + FOREGROUND_PART * (high - low)
    shown = np.where(is_seen, lengths, -1.0) if is_seen.any() else lengths
    return tuple(int(i) for i in np.unravel_index(np.argmax(shown), shown.shape))


def find_start(pair: View) -> tuple[int, ...]:
    """The voxel in the middle of the structures of fixed, inside the mask; without any, of the mask, or the volume."""
    shown = pair.mask
    if pair.fixed_labels is not None and pair.fixed_labels.any():
        shown = pair.inside_mask(pair.fixed_labels) != 0
    if shown is None:
        return tuple(n // 2 for n in pair.fixed.shape)
    return tuple(int(np.median(places)) for places in np.nonzero(shown))


def find_box(pair: View) -> tuple[list[int], list[int]]:
    """The first and the last voxel of the box around the structures of fixed; without any, of the volume."""
    labels = pair.fixed_labels
    places = np.nonzero(labels if labels is not None and labels.any() else np.ones(pair.fixed.shape, bool))
    return [int(place.min()) for place in places], [int(place.max()) for place in places]


def in_world_order(grid: Grid) -> tuple[list[int], list[float]]:
    """Shape and spacing along the axes nearest to left-right, back-front and foot-head."""
    order = [world_axes(grid).index(axis) for axis in range(3)]
    return [grid.shape[axis] for axis in order], [grid.spacing[axis] for axis in order]


def viewer_script() -> str:
    """The script of NiiVue, which draws the planes, as `write_text` writes it."""
    file = files("vrnet.report") / "web" / "vendor" / "niivue.umd.js"
    return write_text(gzip.compress(file.read_bytes(), 9, mtime=0))


def nifti_header(grid: Grid) -> str:
    """The header of a NIfTI file of bytes on this grid: 352 bytes, in base64."""
    from nibabel.nifti1 import header_dtype

    header = np.zeros((), header_dtype.newbyteorder("<"))
    header["sizeof_hdr"], header["magic"], header["vox_offset"] = 348, b"n+1", 352
    header["datatype"], header["bitpix"], header["scl_slope"], header["xyzt_units"] = 2, 8, 1, 2  # bytes, in mm
    header["dim"], header["pixdim"] = (3, *grid.shape, 1, 1, 1, 1), (1, *grid.spacing, 0, 0, 0, 0)
    header["sform_code"] = 1
    rows = np.column_stack([grid.to_world, grid.origin]) * np.array([[-1], [-1], [1]])  # from LPS to RAS
    header["srow_x"], header["srow_y"], header["srow_z"] = rows
    return b64encode(header.tobytes() + bytes(4)).decode()
