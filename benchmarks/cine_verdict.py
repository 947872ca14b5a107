"""The limits of the verdict on a cine: measures of tracked cines, as they are and ruined on purpose.

    python benchmarks/cine_verdict.py measure --seeds 0 5 --cache results/cine/verdict.csv  # limits are chosen by these
    python benchmarks/cine_verdict.py measure --seeds 10 14 --cache others.csv              # and tried on these
    python benchmarks/cine_verdict.py acdc DATA/acdc --cache acdc.csv                       # hearts of ACDC
    python benchmarks/cine_verdict.py table results/cine/verdict.csv acdc.csv

A cine is a mid-ventricular slice of 128 x 128 pixels of 1.4 mm over 16 frames, with noise. The motion of the phantom is
known, and says what came of it: *good* is a cine as it is whose points are within 1 mm, in the mean over the wall and
all frames; *ruined* one that was meddled with and whose points are more than 1.5 mm off, or half as far as without
tracking. The first four seeds of ten are stacks too, one of each pathology: 8 slices of 96 x 96 pixels of 1.8 mm,
10 mm apart, through which the heart moves as hearts do. Tracking within slices cannot see that: these count as good.

Each stack is then ruined, by TV-L1, in one slice (even seeds) or two: these show something else in the middle third of
the cycle, and are tracked anew; or their motion is not found at all. They count as ruined where their motion is now
more than 1.5 mm from what it was in the stack as it is, or half as far as that. A frozen slice shows one frame,
with new noise, over the whole cycle.

Hearts of ACDC, every fifth of the training and validation subjects, are tracked by the model, in one step from
end-diastole to end-systole, in the surroundings of their labels. *Good* is one whose wall and cavity have a mean Dice
of at least 0.75 with the labels of end-systole, and whose cavity has their volume to within a fifth. Two frames are no
chain: how well they close does not count.
"""

import argparse
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path

import numpy as np
import torch

from cine import as_cine
from rows import append_row, read_measured
from vrnet import track
from vrnet.data.dataset import ACDC
from vrnet.evaluation.metrics import dice
from vrnet.images.grid import Grid
from vrnet.images.image import Cine, Image
from vrnet.phantom.anatomy import LV, MYO
from vrnet.phantom.cycle import PATHOLOGIES, cycle
from vrnet.verdict.advice import MAX_REASONS
from vrnet.verdict.cine import FINDINGS, found_in, judge_cine
from vrnet.verdict.rules import level_by_limits

FRAMES, GOOD_MM, RUINED_MM, RUINED_PART = 16, 1.0, 1.5, 0.5
METHODS = "short-axis-cine", "TV-L1"
QUICK = "TV-L1"
"""By which single slices are ruined."""
AS_IS, STACK = "as it is", "stack, moving through its slices"
STACK_SHAPE, STACK_SPACING_MM = (96, 96, 8), (1.8, 1.8, 10.0)
CHANGES = "another heart", "moved", "flipped", "noise", "inverted", "half missing", "dropped frames"
IN_SLICES = tuple(f"in slices: {name}" for name in ("another heart", "moved", "noise", "frozen", "not followed"))
FROZEN_NOISE = 0.02
"""Of a slice that shows one frame for ever, beside the noise of that frame; its range of intensities is 1."""
PAIR, GOOD_DICE, GOOD_VOLUME, MARGIN_VOXELS = "heart of ACDC", 0.75, 0.2, 24
KEY = "seed", "pathology", "method", "change"
MEASURED = "error_mm", "motion_mm", "dice", "volume_error", *(rule.name for rule in FINDINGS)
COLUMNS = *KEY, "slices", *MEASURED, "level", "named"


def changed(change, frames, other, seed):
    """The frames after an intervention: in the middle third of the cycle, from there on, or, frozen, in all."""
    n, out, random = len(frames), frames.copy(), np.random.default_rng(seed)
    late = slice(n // 3, 2 * n // 3)
    match change:
        case "another heart":
            out[late] = other[late]
        case "moved":
            out[n // 3 :] = np.roll(frames[n // 3 :], 20, axis=1)
        case "flipped":
            out[late] = frames[late, :, ::-1]
        case "noise":
            out[late] = random.random(out[late].shape, np.float32)
        case "frozen":
            out[:] = frames[0] + random.normal(0, FROZEN_NOISE, frames.shape).astype(np.float32)
        case "inverted":
            out[late] = frames.max() - frames[late]
    return out[kept(change, n)]


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
                changes = (STACK, *IN_SLICES) if method == QUICK else (STACK,)
                yield from ((seed, pathologies[seed % 10], method, change) for change in changes)
        for k, change in enumerate(CHANGES):
            yield seed, pathologies[(seed + k) % len(pathologies)], METHODS[(seed + k) % len(METHODS)], change


def measure(seed, pathology, method, change):
    """The row of a case."""
    if change in IN_SLICES:
        return measure_slices(seed, pathology, method, change)
    beat = phantom_stack(seed, pathology) if change == STACK else cycle(seed, pathology=pathology, frames=FRAMES)
    cine, labels = as_cine(beat)
    if change == STACK:
        found = tracked_stack(seed, pathology, method)
    else:
        other = cycle(seed + 1000, pathology=pathology, frames=FRAMES).frames.numpy()
        frames = changed(change, cine.frames, other, seed)
        times = None if len(frames) < FRAMES else cine.times_ms
        found = track(Cine(frames, cine.grid, times), method, labels=labels, device="cpu")
    true = beat.fields.numpy()[kept(change, FRAMES)]
    lengths = mean_lengths_mm(labels.array == MYO, beat.spacing, found.fields - true, true)
    return row_of((seed, pathology, method, change), found.evidence, **lengths)


def mean_lengths_mm(wall, spacing, miss, motion):
    """The mean lengths in the wall of what was missed, and of the motion itself."""
    mm = np.reshape(spacing, (-1, *[1] * wall.ndim))
    error, moved = (float(np.linalg.norm(u * mm, axis=1)[:, wall].mean()) for u in (miss, motion))
    return {"error_mm": error, "motion_mm": moved}


def row_of(key, evidence, **measured):
    """The row of a case: what was measured, what each rule found, and the slices that the verdict names."""
    found = [place for rule in found_in(evidence)[:MAX_REASONS] for place in rule.beyond(evidence)]
    named = sorted({place.slice for place in found} - {None})
    told = {"level": judge_cine(evidence).level, "named": " ".join(map(str, named))}
    rules = {rule.name: rule.measure(evidence).value for rule in FINDINGS}
    return dict(zip(KEY, key, strict=True)) | measured | rules | told


def phantom_stack(seed, pathology):
    return cycle(seed, STACK_SHAPE, STACK_SPACING_MM, pathology, frames=FRAMES, through_plane=True)


@lru_cache(maxsize=1)
def tracked_stack(seed, pathology, method):
    """A stack as it is, tracked."""
    cine, labels = as_cine(phantom_stack(seed, pathology))
    return track(cine, method, labels=labels, device="cpu")


def measure_slices(seed, pathology, method, change):
    """The row of a stack that is ruined in one slice or two, of those that strain is measured in."""
    whole, random = tracked_stack(seed, pathology, method), np.random.default_rng(seed)
    slices = sorted(random.choice(sorted(whole.strain.slices), 1 + seed % 2, replace=False).tolist())
    frames, fields = whole.cine.frames.copy(), whole.fields.copy()
    fields[..., slices] = 0
    if not change.endswith("not followed"):
        other = phantom_stack(seed + 1000, pathology).frames.numpy()[..., slices]
        part = Grid.plain((*STACK_SHAPE[:2], len(slices)), STACK_SPACING_MM)
        frames[..., slices] = changed(change.removeprefix("in slices: "), frames[..., slices], other, seed)
        fields[..., slices] = track(Cine(frames[..., slices], part), method).fields
    ruined = replace(whole, cine=replace(whole.cine, frames=frames), fields=fields)
    wall = whole.reference_labels.array[..., slices] == MYO
    parts = (u[..., slices] for u in (fields - whole.fields, whole.fields))
    lengths = mean_lengths_mm(wall, STACK_SPACING_MM, *parts)
    names = " ".join(map(str, slices))
    return row_of((seed, pathology, method, change), ruined.evidence, slices=names, **lengths)


def measure_pair(data, subject, method):
    """The row of a heart of ACDC."""
    images, masks = data.read(subject)
    labels = [mask.array for mask in masks]
    sides = (np.flatnonzero(labels[0].any(others)) for others in ((1, 2), (0, 2)))
    box = tuple(slice(max(int(side[0]) - MARGIN_VOXELS, 0), int(side[-1]) + MARGIN_VOXELS + 1) for side in sides)
    frames, (reference, truth) = np.stack([image.array[box] for image in images]), (map_[box] for map_ in labels)
    grid = Grid.plain(reference.shape, images[0].grid.spacing)
    found = track(Cine(frames, grid), method, labels=Image(reference, grid, "labels"), device="cpu")
    overlap = np.mean([dice(found.labels[1] == part, truth == part) for part in (MYO, LV)])
    volume = (found.labels[1] == LV).sum() / (truth == LV).sum() - 1
    evidence = replace(found.evidence, closure_mm=0.0)
    return row_of((subject, "", method, PAIR), evidence, dice=overlap, volume_error=volume)


def measure_all(rows, cache):
    """Append the rows of all cases, {key: how to measure it}, that the cache lacks."""
    known = {tuple(row[name] for name in KEY) for row in read_measured(cache)}
    for key, measured in rows.items():
        if tuple(map(str, key)) not in known:
            append_row(measured(), cache, COLUMNS)


def cases_of_acdc(root, every):
    """Hearts of the training and validation subjects, by the model."""
    data = ACDC(root)
    subjects = [name for split in ("train", "val") for name in data.subjects(split)][::every]
    model = METHODS[0]
    return {(subject, "", model, PAIR): partial(measure_pair, data, subject, model) for subject in subjects}


def kind(row):
    """Good, ruined, or neither (None); what moves through the slices of a stack, no tracking within them sees."""
    if row["change"] == STACK:
        return "good"
    if row["change"] == PAIR:
        is_good = float(row["dice"]) >= GOOD_DICE and abs(float(row["volume_error"])) <= GOOD_VOLUME
        return "good" if is_good else None
    error, motion = float(row["error_mm"]), float(row["motion_mm"])
    if row["change"] == AS_IS:
        return "good" if error <= GOOD_MM else None
    return "ruined" if error > RUINED_MM or error > RUINED_PART * motion else None


def table(rows):
    """Limits and percentiles, in Markdown; then what the verdict says of each change, and which slices it names."""
    lines = [
        "| finding | look | failed | good: 50, 97, 100 % | ruined: 3, 50 % | ruined beyond look |",
        "| --- " * 6 + "|",
    ]
    groups = {name: [row for row in rows if kind(row) == name] for name in ("good", "ruined")}
    for rule in FINDINGS:
        good, ruined = (values_of(rule, groups[name]) for name in ("good", "ruined"))
        cells = [np.percentile(good, [50, 97, 100]), np.percentile(ruined, [3, 50])]
        told = (", ".join(f"{x:.2f}" for x in cell) for cell in cells)
        look, failed = (f"{limit:g}" if np.isfinite(limit) else "–" for limit in rule.limits)
        lines.append(
            f"| {rule.name} | {look} | {failed} | {' | '.join(told)} | {(ruined > rule.limits[0]).mean():.0%} |"
        )
    lines += ["", "| | good | look | failed |", "| --- | --- | --- | --- |"]
    for change in (AS_IS, STACK, PAIR, *CHANGES, *IN_SLICES):
        of = [level_of(row) for row in rows if row["change"] == change and kind(row)]
        lines.append(f"| {change} | {' | '.join(str(of.count(level)) for level in ('good', 'look', 'failed'))} |")
    return "\n".join([*lines, "", *table_of_names(rows)])


def table_of_names(rows):
    """Of the stacks of each change, in Markdown: the slices that were ruined, those of them that the verdict named when
    it was measured, and others that it named."""
    lines = ["| | stacks | slices ruined | named right | named wrong |", "| --- | --- | --- | --- | --- |"]
    for change in (STACK, *IN_SLICES):
        of = [row for row in rows if row["change"] == change and kind(row) and all(row[rule.name] for rule in FINDINGS)]
        pairs = [(set(row["slices"].split()), set(row["named"].split())) for row in of]
        counts = (
            sum(len(part) for part in parts) for parts in zip(*((a, a & b, b - a) for a, b in pairs), strict=True)
        )
        lines.append(f"| {change} | {len(of)} | {' | '.join(map(str, counts)) or '0 | 0 | 0'} |")
    return lines


def values_of(rule, rows):
    """What a rule measures, of the rows that it measures something of."""
    values = np.array([measured(rule, row) for row in rows])
    return values[np.isfinite(values)]


def measured(rule, row):
    """What a rule measured; NaN where it was not there yet when the row was measured."""
    return float(row[rule.name] or "nan")


def level_of(row):
    """The level by the limits as they are now; the rows may have been measured with others."""
    levels = {level_by_limits(measured(rule, row), *rule.limits) for rule in FINDINGS}
    return next(level for level in ("failed", "look", "good") if level in levels)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    of_measure = commands.add_parser("measure", help="track the cines of some seeds")
    of_measure.add_argument("--seeds", type=int, nargs=2, default=(0, 10), metavar=("FIRST", "END"))
    of_acdc = commands.add_parser("acdc", help="track hearts of ACDC")
    of_acdc.add_argument("data", type=Path, help="its folder")
    of_acdc.add_argument("--every", type=int, default=5, help="how many subjects there are to one that is tracked")
    for command in (of_measure, of_acdc):
        command.add_argument("--cache", type=Path, required=True, help="CSV file that rows are added to")
    of_table = commands.add_parser("table", help="print the table of measured rows")
    of_table.add_argument("caches", type=Path, nargs="+")
    given = parser.parse_args()
    if given.command == "table":
        print(table([row for cache in given.caches for row in read_measured(cache)]))
        return
    torch.set_num_threads(1)
    if given.command == "acdc":
        measure_all(cases_of_acdc(given.data, given.every), given.cache)
    else:
        measure_all({case: partial(measure, *case) for case in cases(given.seeds)}, given.cache)


if __name__ == "__main__":
    main()
