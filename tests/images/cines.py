"""Cines in DICOM, written for the tests: a file per slice and frame, or one enhanced multi-frame file."""

import struct

import numpy as np
import SimpleITK as sitk

from tests.images.test_io import keep_locale
from vrnet.images.io import to_sitk

STEP_MS = 31.5


def write_slices(folder, cine, grid, series="1.2.3", folders=False, times=True, skip=(), numbers=True, **more):
    """One file per slice and frame, (t, x, y, z); `series` of a list: one per slice. Names say nothing of the order.
    `more` are further elements, as {"x0008103e": "cine_sa"}."""
    n, writer = len(cine), sitk.ImageFileWriter()
    writer.KeepOriginalImageUIDOn()
    orientation = "\\".join(f"{x:.10f}" for x in grid.axes[:, :2].T.ravel())
    for t, frame in enumerate(cine):
        image = to_sitk(frame, grid)
        for k in range(grid.shape[2]):
            if (t, k) in skip:
                continue
            part, uid, number = image[:, :, k : k + 1], series if isinstance(series, str) else series[k], k * n + t
            position = "\\".join(f"{x:.8f}" for x in image.TransformIndexToPhysicalPoint((0, 0, k)))
            tags = {"0008|0060": "MR", "0020|000d": "1.2", "0020|000e": uid, "0008|0018": f"1.2.9.{number + 1}"}
            tags |= {"0020|0032": position, "0020|0037": orientation, "0018|0050": "6.0"}
            tags |= {"0018|1060": f"{STEP_MS * t + 5:.2f}"} if times else {}
            tags |= {"0020|0013": str(number)} if numbers else {}
            tags |= {f"{tag[1:5]}|{tag[5:]}": value for tag, value in more.items()}
            for tag, value in tags.items():
                part.SetMetaData(tag, value)
            place = folder / f"slice{k}" if folders else folder
            place.mkdir(parents=True, exist_ok=True)
            writer.SetFileName(str(place / f"{(7 * number) % 1013:04d}.dcm"))
            with keep_locale():
                writer.Execute(part)
    return folder


def element(group, number, kind, value):
    """One element in explicit, little endian form; values of odd length are filled up."""
    raw = value if isinstance(value, bytes) else value.encode()
    raw += (b"\0" if kind in ("UI", "OB", "OW") else b" ") * (len(raw) % 2)
    if kind in ("SQ", "OB", "OW", "UN"):
        return struct.pack("<HH2sHI", group, number, kind.encode(), 0, len(raw)) + raw
    return struct.pack("<HH2sH", group, number, kind.encode(), len(raw)) + raw


def sequence(group, number, *items, marks=False):
    """A sequence of items, each bytes; with end marks, or with lengths."""
    if not marks:
        parts = b"".join(struct.pack("<HHI", 0xFFFE, 0xE000, len(item)) + item for item in items)
        return element(group, number, "SQ", parts)
    mark, ends = 0xFFFFFFFF, struct.pack("<HHI", 0xFFFE, 0xE00D, 0)
    parts = b"".join(struct.pack("<HHI", 0xFFFE, 0xE000, mark) + item + ends for item in items)
    head = struct.pack("<HH2sHI", group, number, b"SQ", 0, mark)
    return head + parts + struct.pack("<HHI", 0xFFFE, 0xE0DD, 0)


def write_enhanced(path, cine, grid, order, marks=False, frames=None):
    """One enhanced MR file of uint16, its frames in the given order of (t, k)."""
    uid, items, planes = "1.2.840.10008.5.1.4.1.1.4.1", [], []
    for t, k in order[:frames]:
        origin = grid.points(np.array([[0.0, 0.0, k]]))[0]
        content = element(0x20, 0x9128, "UL", struct.pack("<I", t + 1))
        position = element(0x20, 0x32, "DS", "\\".join(f"{x:.6f}" for x in origin))
        heart = element(0x20, 0x9153, "FD", struct.pack("<d", STEP_MS * t))
        items.append(
            sequence(0x18, 0x9118, heart, marks=marks)
            + sequence(0x20, 0x9111, content, marks=marks)
            + sequence(0x20, 0x9113, position, marks=marks)
        )
    planes = [cine[t][..., k].T.astype("<u2").tobytes() for t, k in order]
    axes = "\\".join(f"{x:.10f}" for x in grid.axes[:, :2].T.ravel())
    measures = element(0x18, 0x50, "DS", "6.0") + element(0x28, 0x30, "DS", f"{grid.spacing[1]}\\{grid.spacing[0]}")
    shared = sequence(0x20, 0x9116, element(0x20, 0x37, "DS", axes)) + sequence(0x28, 0x9110, measures)
    meta = element(2, 2, "UI", uid) + element(2, 3, "UI", "1.2.9.1") + element(2, 0x10, "UI", "1.2.840.10008.1.2.1")
    meta = element(2, 0, "UL", struct.pack("<I", len(meta))) + meta
    shorts = {2: 1, 0x10: grid.shape[1], 0x11: grid.shape[0], 0x100: 16, 0x101: 16, 0x102: 15, 0x103: 0}
    image = element(0x28, 2, "US", struct.pack("<H", shorts.pop(2))) + element(0x28, 4, "CS", "MONOCHROME2")
    image += element(0x28, 8, "IS", str(len(order)))
    image += b"".join(element(0x28, number, "US", struct.pack("<H", value)) for number, value in shorts.items())
    body = element(8, 0x16, "UI", uid) + element(8, 0x18, "UI", "1.2.9.1") + element(8, 0x60, "CS", "MR")
    body += element(0x20, 0xD, "UI", "1.2") + element(0x20, 0xE, "UI", "1.2.3") + image
    body += sequence(0x5200, 0x9229, shared, marks=marks) + sequence(0x5200, 0x9230, *items, marks=marks)
    path.write_bytes(b"\0" * 128 + b"DICM" + meta + body + element(0x7FE0, 0x10, "OW", b"".join(planes)))
    return path
