"""What the three planes of a page show of a volume: every voxel in 8 bits, and the motion on a coarser grid.

Bytes lie as in a NIfTI file, first axis fastest, compressed by gzip and written in base 85. Where they vary smoothly,
each is stored less its neighbours, b(x, y) − b(x − 1, y) − b(x, y − 1) + b(x − 1, y − 1) modulo 256."""

import gzip
from base64 import b64encode, b85encode
from importlib.resources import files
from itertools import count
from math import prod
from typing import Any

import numpy as np
from jaxtyping import Float, UInt8
from numpy import ndarray

from vrnet.images.grid import Grid
from vrnet.images.image import Image
from vrnet.report.drawing import quantise, rank_labels
from vrnet.report.pair import MAX_SIDE_PIXELS, PageSlices, View

MIN_SIDE_VOXELS, MAX_VOXELS = 16, 2**24  # thinner volumes are looked at slice by slice; few browsers open larger ones
MAX_MOTION_VOXELS, MAX_MOTION_BYTES = 2**20, 1_200_000  # of motion and determinants: if more, every n-th voxel alone
GREY_STEPS, MAX_GREY_BYTES = (1, 2, 4, 8), 3_300_000  # between greys, of 255, so that three images take so many bytes
DETERMINANTS = (-1.0, -1 + 255 / 64)  # their range, in steps of 1/64
FOREGROUND_PART = 0.1  # brighter than this part of the greys is no background


def is_volume(pair: View) -> bool:
    """Whether a pair is shown in three planes: no image, no stack of slices, and not too thin or too large."""
    shape = pair.fixed.shape
    if not pair.grid.is_volume:
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
    det, folded = slices.deformed
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

    # as many greys as MAX_GREY_BYTES allows, by what every eighth slice takes; black and white stay as they are
    images = {name: quantise(image, *windows[name]) for name, image in pair.images.items()}
    for step in GREY_STEPS:
        rounded = {name: (np.rint(image / np.float32(step)) * step).clip(0, 255) for name, image in images.items()}
        greys = {name: image.astype(np.uint8) for name, image in rounded.items()}
        if 8 * sum(len(compress_smooth(image[..., ::8])) for image in greys.values()) <= MAX_GREY_BYTES:
            break
    smooth = {name: compress_smooth(image) for name, image in greys.items()} | motion
    return {
        "shape": shape, "header": nifti_header(grid),
        "to_lps": np.column_stack([grid.to_world, grid.origin]).tolist(),
        "motion_factor": factor, "motion_shape": motion_shape, "motion_header": nifti_header(coarse),
        "largest": largest, "longest_mm": float(np.percentile(lengths, 99.9)) or 1.0,
        "extent": [shape[axis] * grid.spacing[axis] for axis in grid.order],  # left-right, back-front, foot-head
        # the middle of the structures of fixed, inside the mask; without any, of the mask, or the volume
        "start": [n // 2 for n in shape] if start is None else [int(np.median(at)) for at in np.nonzero(start)],
        "box": ([int(at.min()) for at in places], [int(at.max()) for at in places]),
        "peak": peak,  # the voxel that moves farthest, of those that are no background in fixed
        "peak_mm": float(lengths[peak]),
        "smooth": {name: write_text(data) for name, data in smooth.items()},
        "maps": {name: write_text(gzip.compress(map_.tobytes("F"), 6, mtime=0)) for name, map_ in maps.items()},
    }  # fmt: skip


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
    return b64encode(Image(np.zeros(grid.shape, np.uint8), grid).to_nibabel().to_bytes()[:352]).decode()
