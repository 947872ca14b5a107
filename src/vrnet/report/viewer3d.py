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
from vrnet.report.drawing import Window, quantise, rank_labels
from vrnet.report.pair import MAX_SIDE_PIXELS, Deformation, PageSlices, View, world_axes

MIN_SIDE_VOXELS = 16
"""A thinner volume is looked at slice by slice."""
MAX_VOXELS = 2**24
"""A larger volume would make a page that few browsers open."""
MAX_MOTION_VOXELS = 2**20
"""Motion and determinants are smooth: of larger volumes, they are sampled at every second voxel, or fewer."""
MAX_MOTION_BYTES = 1_200_000
"""For motion and determinants together, compressed: a rough field is sampled at fewer voxels."""
GREY_STEPS = (1, 2, 4, 8)
"""How far apart the greys of a page are, of 255: as near as MAX_GREY_BYTES lets them be."""
MAX_GREY_BYTES = 3_300_000
"""For the three images together, compressed: so the page of a brain, also a ruined one, stays below 8 MB."""
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


def volume_data(slices: PageSlices) -> dict[str, Any]:
    """What the planes of a page hold of a volume, in the greys and colours of its slices."""
    pair, windows = slices.pair, slices.windows
    grid, shape = pair.grid, pair.grid.shape
    lengths = np.linalg.norm(np.einsum("ij,j...->i...", grid.to_world.astype(np.float32), pair.field), axis=0)
    low, high = windows["fixed"]
    is_seen = pair.fixed > low + FOREGROUND_PART * (high - low)
    farthest = np.argmax(np.where(is_seen, lengths, -1.0) if is_seen.any() else lengths)
    peak = tuple(int(i) for i in np.unravel_index(farthest, shape))
    det, folded = deform_volume(pair.field)
    factor, largest, motion = compress_motion(pair.field, det)
    motion_shape = det[::factor, ::factor, ::factor].shape
    coarse = Grid(motion_shape, tuple(factor * h for h in grid.spacing), grid.origin, grid.direction)
    maps = {name: rank_labels(labels, [*slices.colours]) for name, labels in pair.label_maps.items()}
    maps |= {} if pair.mask is None else {"mask": pair.mask.astype(np.uint8)}
    maps["folded"] = folded.astype(np.uint8)
    start, box = pair.mask, np.ones(shape, bool)
    if pair.fixed_labels is not None and pair.fixed_labels.any():
        start, box = pair.inside_mask(pair.fixed_labels) != 0, pair.fixed_labels != 0
    places = np.nonzero(box)
    order = [world_axes(grid).index(axis) for axis in range(3)]  # left-right, back-front, foot-head
    return {
        "shape": shape,
        "header": nifti_header(grid),
        "to_lps": np.column_stack([grid.to_world, grid.origin]).tolist(),
        "motion_factor": factor,
        "motion_shape": motion_shape,
        "motion_header": nifti_header(coarse),
        "largest": largest,
        "longest_mm": float(np.percentile(lengths, 99.9)) or 1.0,
        "extent": [shape[axis] * grid.spacing[axis] for axis in order],
        # the middle of the structures of fixed, inside the mask; without any, of the mask, or the volume
        "start": [n // 2 for n in shape] if start is None else [int(np.median(at)) for at in np.nonzero(start)],
        "box": ([int(at.min()) for at in places], [int(at.max()) for at in places]),
        "peak": peak,  # the voxel that moves farthest, of those that are no background in fixed
        "peak_mm": float(lengths[peak]),
        "smooth": {name: write_text(data) for name, data in {**compress_greys(pair, windows), **motion}.items()},
        "maps": {name: write_text(gzip.compress(map_.tobytes("F"), 6, mtime=0)) for name, map_ in maps.items()},
    }


def compress_motion(
    field: Float[ndarray, "3 x y z"], det: Float[ndarray, "x y z"]
) -> tuple[int, list[float], dict[str, bytes]]:
    """Motion and determinants at every n-th voxel, for the least n that MAX_MOTION_VOXELS and MAX_MOTION_BYTES allow:
    n, the largest motion along each axis, in voxels, and the compressed arrays."""
    for factor in count(1):
        every = (slice(None, None, factor),) * 3
        motion, sparse_det = field[:, *every], det[every]
        if sparse_det.size > MAX_MOTION_VOXELS:
            continue
        largest = [float(np.abs(u).max()) or 1.0 for u in motion]
        scaled = enumerate(zip(motion, largest, strict=True))
        sampled = {f"u{i}": quantise(u, -128 / 127 * m, m) for i, (u, m) in scaled}
        sampled["det"] = quantise(sparse_det, *DETERMINANTS)
        found = {name: compress_smooth(array) for name, array in sampled.items()}
        if sum(map(len, found.values())) <= MAX_MOTION_BYTES or factor >= min(det.shape):
            break
    return factor, largest, found


def compress_greys(pair: View, windows: Mapping[str, Window]) -> dict[str, bytes]:
    """The three images in as many greys as MAX_GREY_BYTES allows, by what every eighth slice takes."""
    images = {name: quantise(image, *windows[name]) for name, image in pair.images.items()}

    def compress(image: UInt8[ndarray, "x y z"], step: int) -> bytes:
        """In the nearest multiples of a step; black and white stay as they are."""
        return compress_smooth(np.minimum(np.rint(image / np.float32(step)) * step, 255).astype(np.uint8))

    for step in GREY_STEPS:
        if 8 * sum(len(compress(image[..., ::8], step)) for image in images.values()) <= MAX_GREY_BYTES:
            break
    return {name: compress(image, step) for name, image in images.items()}


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
    return gzip.compress(np.diff(across, axis=1, prepend=np.uint8(0)).tobytes("F"), 9, mtime=0)


def write_text(data: bytes) -> str:
    """Bytes in base 85, without the characters that HTML gives a meaning to."""
    return b85encode(data).translate(bytes.maketrans(b"&<>", b",.:")).decode()


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
