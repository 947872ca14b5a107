"""The limits of the verdict on a cine: measures of tracked phantom cines, as they are and ruined on purpose.

    python benchmarks/cine_verdict.py measure --seeds 0 5 --cache results/cine/verdict.csv  # limits are chosen by these
    python benchmarks/cine_verdict.py measure --seeds 10 14 --cache others.csv              # and tried on these
    python benchmarks/cine_verdict.py table results/cine/verdict.csv

A cine is a mid-ventricular slice of 128 x 128 pixels of 1.4 mm over 16 frames, with noise. The motion of the phantom is
known, and says what came of it: *good* is a cine as it is whose points are within 1 mm, in the mean over the wall and
all frames; *ruined* one that was meddled with and whose points are more than 1.5 mm off, or half as far as without
tracking. The first four seeds of ten are stacks too, one of each pathology: 8 slices of 96 x 96 pixels of 1.8 mm,
10 mm apart, through which the heart moves as hearts do. Tracking within slices cannot see that: these count as good.
"""

import argparse
from pathlib import Path

import numpy as np
import torch

from cine import as_cine
from rows import append_row, read_measured
from vrnet import track
from vrnet.evaluation.cine_verdict import FINDINGS, judge_cine
from vrnet.images.cine import Cine
from vrnet.phantom.anatomy import MYO
from vrnet.phantom.cycle import cycle
from vrnet.phantom.pathology import PATHOLOGIES

FRAMES, GOOD_MM, RUINED_MM, RUINED_PART = 16, 1.0, 1.5, 0.5
METHODS = "short-axis-cine", "TV-L1"
AS_IS, STACK = "as it is", "stack, moving through its slices"
STACK_SHAPE, STACK_SPACING_MM = (96, 96, 8), (1.8, 1.8, 10.0)
CHANGES = "another heart", "moved", "flipped", "noise", "inverted", "half missing", "dropped frames"
KEY = "seed", "pathology", "method", "change"
COLUMNS = *KEY, "error_mm", "motion_mm", *(rule.name for rule in FINDINGS), "level"


def changed(change, frames, other, seed):
    """The frames after an intervention in the middle third of the cycle, or from there on."""
    n, out = len(frames), frames.copy()
    late = slice(n // 3, 2 * n // 3)
    match change:
        case "another heart":
            out[late] = other[late]
        case "moved":
            out[n // 3 :] = np.roll(frames[n // 3 :], 20, axis=1)
        case "flipped":
            out[late] = frames[late, :, ::-1]
        case "noise":
            out[late] = np.random.default_rng(seed).random(out[late].shape, np.float32)
        case "inverted":
            out[late] = frames.max() - frames[late]
        case "half missing":
            return frames[: n // 2]
        case "dropped frames":
            return frames[[k for k in range(n) if k == 0 or not n // 6 < k < n // 2]]
    return out


def kept(change, n):
    """Which frames of the truth those of a changed cine are."""
    if change == "half missing":
        return list(range(n // 2))
    return [k for k in range(n) if change != "dropped frames" or k == 0 or not n // 6 < k < n // 2]


def cases(seeds):
    """Every seed with one pathology as it is, by every method; each change once per seed, by methods in turn."""
    pathologies = list(PATHOLOGIES)
    for seed in range(*seeds):
        for method in METHODS:
            yield seed, pathologies[seed % len(pathologies)], method, AS_IS
            if seed % 10 < len(pathologies):
                yield seed, pathologies[seed % 10], method, STACK
        for k, change in enumerate(CHANGES):
            yield seed, pathologies[(seed + k) % len(pathologies)], METHODS[(seed + k) % len(METHODS)], change


def measure(seed, pathology, method, change):
    """The row of a case."""
    size = {"shape": STACK_SHAPE, "spacing": STACK_SPACING_MM, "through_plane": True} if change == STACK else {}
    beat = cycle(seed, pathology=pathology, frames=FRAMES, **size)
    cine, labels = as_cine(beat)
    frames = cine.frames
    if change in CHANGES:
        other = cycle(seed + 1000, pathology=pathology, frames=FRAMES).frames.numpy()
        frames = changed(change, frames, other, seed)
    times = None if len(frames) < FRAMES else cine.times_ms
    found = track(Cine(frames, cine.grid, times), method, labels=labels, device="cpu")
    true = beat.fields.numpy()[kept(change, FRAMES)]
    mm = np.reshape(beat.spacing, (-1, *[1] * labels.array.ndim))
    lengths = (np.linalg.norm(u * mm, axis=1)[:, labels.array == MYO] for u in (found.fields - true, true))
    miss, motion = (float(length.mean()) for length in lengths)
    evidence = found.evidence
    values = {rule.name: rule.measure(evidence) for rule in FINDINGS}
    row = dict(zip(KEY, (seed, pathology, method, change), strict=True)) | {"error_mm": miss, "motion_mm": motion}
    return row | values | {"level": judge_cine(evidence).level}


def measure_all(seeds, cache):
    """Append the rows of all cases that the cache lacks."""
    known = {tuple(row[name] for name in KEY) for row in read_measured(cache)}
    for case in cases(seeds):
        if tuple(map(str, case)) not in known:
            append_row(measure(*case), cache, COLUMNS)


def kind(row):
    """Good, ruined, or neither (None); what moves through the slices of a stack, no tracking within them sees."""
    error, motion = float(row["error_mm"]), float(row["motion_mm"])
    if row["change"] == STACK:
        return "good"
    if row["change"] == AS_IS:
        return "good" if error <= GOOD_MM else None
    return "ruined" if error > RUINED_MM or error > RUINED_PART * motion else None


def table(rows):
    """Limits and percentiles, in Markdown; then what the verdict says of each change."""
    lines = [
        "| finding | look | failed | good: 50, 97, 100 % | ruined: 3, 50 % | ruined beyond look |",
        "| --- " * 6 + "|",
    ]
    groups = {name: [row for row in rows if kind(row) == name] for name in ("good", "ruined")}
    for rule in FINDINGS:
        good, ruined = (np.array([float(row[rule.name]) for row in groups[name]]) for name in ("good", "ruined"))
        cells = [np.percentile(good, [50, 97, 100]), np.percentile(ruined, [3, 50])]
        told = (", ".join(f"{x:.2f}" for x in cell) for cell in cells)
        failed = "–" if np.isinf(rule.failed) else f"{rule.failed:g}"
        lines.append(
            f"| {rule.name} | {rule.look:g} | {failed} | {' | '.join(told)} | {(ruined > rule.look).mean():.0%} |"
        )
    lines += ["", "| | good | look | failed |", "| --- | --- | --- | --- |"]
    for change in (AS_IS, STACK, *CHANGES):
        of = [row["level"] for row in rows if row["change"] == change and kind(row)]
        lines.append(f"| {change} | {' | '.join(str(of.count(level)) for level in ('good', 'look', 'failed'))} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    of_measure = commands.add_parser("measure", help="track the cines of some seeds")
    of_measure.add_argument("--seeds", type=int, nargs=2, default=(0, 10), metavar=("FIRST", "END"))
    of_measure.add_argument("--cache", type=Path, required=True, help="CSV file that rows are added to")
    of_table = commands.add_parser("table", help="print the table of measured rows")
    of_table.add_argument("cache", type=Path)
    given = parser.parse_args()
    if given.command == "measure":
        torch.set_num_threads(1)
        measure_all(given.seeds, given.cache)
    else:
        print(table(read_measured(given.cache)))


if __name__ == "__main__":
    main()
