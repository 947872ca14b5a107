"""Tracking of phantom cines, whose motion is known: how far points, strain and volumes are from the truth.

    python benchmarks/cine.py [--seeds 0 20] [--methods short-axis-cine TV-L1] [--ways "both ways" direct composed]

A cine is one mid-ventricular slice of 128 x 128 pixels of 1.4 mm over 30 frames, with noise; each seed is seen with
each pathology. It is tracked both ways round the cycle, as `vrnet track` does; by registering each frame directly with
the reference; and by composing the motions from frame to frame. Both of the latter are the plain field of the method:
no start, no smoothing, no repair of folds.

Errors: of points, the mean distance in mm in the wall, over all frames and at end-systole; of peak strain, and of the
ejection fraction, found minus true in percentage points; of the volume of the LV, in percent of the true one, the mean
over frames of its size; of closure, as `vrnet track` defines it. An infarct is found if the segments of it have the
lowest |peak| of circumferential strain.

rows.csv in the folder of --out gets one row per cine, method and way as soon as it is measured. What is there is not
measured again: remove its lines to do so. table.md is made from it.
"""

import argparse
from itertools import product
from pathlib import Path
from time import process_time

import numpy as np
import torch

from rows import append_row, read_measured
from vrnet import BadInput, track
from vrnet.cardiac.strain import strain
from vrnet.cardiac.volumes import volumes
from vrnet.fields.calculus import compose
from vrnet.files import write_bytes
from vrnet.images.grid import Grid
from vrnet.images.image import Cine, Image
from vrnet.phantom.anatomy import MYO
from vrnet.phantom.cycle import ANTERIOR_SEGMENTS, PATHOLOGIES, cycle
from vrnet.registration.cine import plan_tracking, prepare, propagate_labels

SLICE, SPACING_MM, FRAMES = (128, 128), (1.4, 1.4), 30
INFARCTED = {f"segment {number}" for number in ANTERIOR_SEGMENTS if 7 <= number <= 12}
"""Those of a mid-ventricular slice."""
WAYS = "both ways", "direct", "composed"
KEY = "seed", "pathology", "method", "way"
ERRORS = {
    "points_mm": "points, mm",
    "systole_mm": "points at end-systole, mm",
    "circumferential": "peak Ecc, points",
    "radial": "peak Err, points",
    "ejection": "EF, points",
    "volume_percent": "LV volume, %",
    "closure_mm": "closure, mm",
}
"""{column: its title in the table}"""
COLUMNS = *KEY, *ERRORS, "circumferential_true", "radial_true", "ejection_true", "infarct_found", "cpu_seconds"


def as_cine(beat):
    """A phantom's cycle as a cine, and the labels of its reference."""
    grid = Grid.plain(tuple(beat.labels.shape), beat.spacing)
    return Cine(beat.frames.numpy(), grid, beat.times_ms), Image(beat.labels.numpy(), grid, "labels")


def found_by(beat, method, way):
    """Fields in voxels, and the closure error in mm, where there is one: as `track` finds them; of every frame
    registered with the reference; or of motions from frame to frame, composed."""
    cine, labels = as_cine(beat)
    if way == "both ways":
        found = track(cine, method, labels=labels, device="cpu")
        return found.fields, max(found.closure_mm.values())
    plan = plan_tracking(cine, method, "auto", "cpu")
    with torch.inference_mode():
        frames = prepare(cine, plan, 0)[:, 0]
        fields = [torch.zeros_like(frames[:1]).expand(-1, plan.d, -1, -1)]
        before = frames[:1].expand_as(frames[1:]) if way == "direct" else frames[:-1]
        for step in plan.find(before.contiguous(), frames[1:], plan.within):
            fields.append(step[None] if way == "direct" else compose(step[None], fields[-1]))
        return torch.cat(fields).numpy(), np.nan


def measure(beat, fields):
    """The errors of fields, and what is true."""
    labels, spacing = beat.labels.numpy(), beat.spacing
    miss = np.linalg.norm((fields - beat.fields.numpy()) * np.reshape(spacing, (-1, 1, 1)), axis=1)
    of_frame = miss[:, labels == MYO].mean(1)
    curves, held = strain(fields, labels, spacing), volumes(propagate_labels(labels, fields, None), spacing)
    true = true_peaks(beat)
    found = {
        "circumferential": curves.peak("green_circumferential").percent,
        "radial": curves.peak("green_radial").percent,
        "ejection": held.lv_ejection_fraction_percent,
    }
    return {
        "points_mm": of_frame.mean(),
        "systole_mm": of_frame[beat.end_systole],
        "volume_percent": 100 * np.abs(held.lv_ml / beat.volumes.lv_ml.numpy() - 1).mean(),
        "infarct_found": int(lowest_segments(curves) == INFARCTED),
        **{key: value - true[key] for key, value in found.items()},
        **{f"{key}_true": value for key, value in true.items()},
    }


def true_peaks(beat):
    """Peaks of the mean strain over the wall, and the ejection fraction, in percent."""
    inside = beat.labels == MYO
    around, away = (E[:, inside].mean(1) for E in (beat.strain.circumferential, beat.strain.radial))
    return {
        "circumferential": float(around.min()),
        "radial": float(away.max()),
        "ejection": beat.volumes.ejection_fraction_percent,
    }


def lowest_segments(curves):
    """As many segments as an infarct has here: those whose circumferential strain has the smallest peaks."""
    peaks = {
        region: abs(peak.percent)
        for region in curves.regions
        if region.startswith("segment") and (peak := curves.peak("green_circumferential", region))
    }
    return set(sorted(peaks, key=peaks.__getitem__)[: len(INFARCTED)])


def run(seeds, pathologies, methods, ways, path, size=(SLICE, SPACING_MM, FRAMES)):
    """Measure what the file does not have."""
    known = {tuple(row[key] for key in KEY) for row in read_measured(path)}
    shape, spacing, frames = size
    for seed, pathology in product(seeds, pathologies):
        todo = [(m, way) for m, way in product(methods, ways) if (str(seed), pathology, m, way) not in known]
        if not todo:
            continue
        beat = cycle(seed, shape, spacing, pathology, frames=frames)
        for method, way in todo:
            start = process_time()
            fields, closure = found_by(beat, method, way)
            row = {"closure_mm": closure, "cpu_seconds": process_time() - start, **measure(beat, fields)}
            if pathology != "infarct":
                row["infarct_found"] = ""
            append_row(dict(zip(KEY, (seed, pathology, method, way), strict=True)) | row, path, COLUMNS)
            print(seed, pathology, method, way, *(f"{key} {row[key]:.2f}" for key in ERRORS), flush=True)


def table(rows):
    """A Markdown table: a row per method and way; of each error the mean of its size, and the largest."""
    titles = "method", "way", "cines", *ERRORS.values(), "infarcts found", "CPU s"
    lines = [f"| {' | '.join(titles)} |", "| --- " * len(titles) + "|"]
    for method, way in dict.fromkeys((row["method"], row["way"]) for row in rows):
        part = [row for row in rows if (row["method"], row["way"]) == (method, way)]
        errors = [np.abs([float(row[key]) for row in part]) for key in ERRORS]
        found = [int(row["infarct_found"]) for row in part if row["infarct_found"]]
        seconds = np.mean([float(row["cpu_seconds"]) for row in part])
        cells = ["" if np.isnan(e).any() else f"{e.mean():.2f} ({e.max():.2f})" for e in errors]
        texts = (method, way, str(len(part)), *cells, f"{sum(found)} of {len(found)}", f"{seconds:.1f}")
        lines.append(f"| {' | '.join(texts)} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", nargs=2, type=int, default=(0, 20), metavar=("FIRST", "END"))
    parser.add_argument("--pathologies", nargs="+", default=list(PATHOLOGIES), choices=list(PATHOLOGIES))
    parser.add_argument("--methods", nargs="+", default=("short-axis-cine", "TV-L1"), metavar="METHOD")
    parser.add_argument("--ways", nargs="+", default=WAYS, choices=WAYS)
    parser.add_argument("--out", type=Path, default=Path("results/cine"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    path = options.out / "rows.csv"
    try:
        run(range(*options.seeds), options.pathologies, options.methods, options.ways, path)
    except BadInput as error:
        parser.exit(2, f"{error}\n")
    text = table(read_measured(path))
    write_bytes(f"{text}\n".encode(), options.out / "table.md")
    print(f"\n{text}")


if __name__ == "__main__":
    main()
