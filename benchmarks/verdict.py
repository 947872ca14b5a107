"""Good and deliberately ruined registrations of real pairs, and what the verdict says of them.

    python benchmarks/verdict.py --root DATA --splits train val --cache calibration [--every 4]    # to choose limits on
    python benchmarks/verdict.py --root DATA --splits test --cache test [--every 2]                # once, to report
    python benchmarks/verdict.py --root DATA --splits test --slices ROWS.csv    # single slices of stacks

DATA holds acdc/ and hippocampus/. Slices and stacks of hearts are registered by short-axis, TV-L1 and Gaussian-LNCC,
hippocampi by TV-L1, Gaussian-LNCC and Demons, as they are and after an intervention on the moving image or on λ. Folds
are repaired, as they are by default; brightness is kept, or scaled images would not be ruined. Labels decide what is
good and what is ruined; the verdict does not see them:

    good     no intervention, Dice improved, and at least 0.75 (hearts) or 0.65 (hippocampi)
    ruined   an intervention, and Dice not improved by 0.02, or 0.1 below that of the same pair without it

Whatever is neither is left out. --every n takes each n-th of the subjects, counted from the first. Evidence is kept in
the cache, one row per registration: rows that are there are not computed again, so that limits can be chosen without
registering. A cache is of one --every.
"""

import argparse
from collections.abc import Iterator
from dataclasses import MISSING, asdict, dataclass, fields, replace
from itertools import product
from math import inf
from pathlib import Path

import numpy as np
import torch
from scipy.ndimage import affine_transform
from scipy.spatial.transform import Rotation
from torch import Tensor
from torch.nn import functional

from rows import append_row, read_measured
from volumes import brains as load_brains
from vrnet import register
from vrnet.data.dataset import ACDC, Hippocampus
from vrnet.evaluation.metrics import by_label, dice, nan_mean
from vrnet.fields.calculus import warp
from vrnet.verdict.evidence import MAX_LAG, Evidence, slice_lags
from vrnet.verdict.evidence import evidence_of as evidence_of_pair
from vrnet.verdict.rules import FINDINGS, judge_evidence

# Ways to ruin a pair: what is done to the moving image, and to its labels, before it is registered.

CHANGES = ("inverted", "scaled", "wrong patient", "shifted", "flipped", "noise", "half blank", "turned", "tilted")
FLIPS_AND_TILTS = tuple(f"{name} {axis}" for name in ("flipped", "tilted") for axis in range(3))
"""Of volumes: along, or about, each axis."""
TILTS = 25.0, 30.0, 35.0
"""Degrees, chosen by the seed; every second one to the other side."""
MISPLACED = "tilted and moved"
EULER_DEGREES, MOVED = (20.0, 11.5, -17.0), (0.16, -0.08, 0.09)
"""What that does, the shift as parts of the sides of the image: 27 degrees, and 35 mm of a brain."""


def changed(change: str, moving: Tensor, labels: Tensor, other: tuple[Tensor, Tensor], seed: int):
    """(moving, its labels) after an intervention; `seed` chooses the axis, the angle and the noise."""
    name, _, given = change.partition(" ")
    if given.isdigit():
        return along(name, int(given), moving, labels, seed)
    match change:
        case "inverted":
            return moving.max() - moving, labels
        case "scaled":
            return 5 * moving + 2 * moving.max(), labels
        case "wrong patient":
            return other
        case "shifted":
            axis = seed % 2
            return tuple(shift(part, axis, part.shape[axis] // 3) for part in (moving, labels))
        case "flipped":
            return along(change, seed % 2, moving, labels, seed)
        case "tilted":
            return along(change, 2, moving, labels, seed)
        case "noise":
            return torch.rand(moving.shape, generator=torch.Generator().manual_seed(seed)), labels
        case "half blank":
            middle = int(labels.nonzero()[:, 0].double().mean())
            return torch.cat([torch.zeros_like(moving[:middle]), moving[middle:]]), labels
        case "turned":
            return turn(moving), turn(labels)
    if change == MISPLACED:
        return placed(moving, labels, Rotation.from_euler("xyz", EULER_DEGREES, degrees=True), MOVED)
    return moving, labels


def along(name: str, axis: int, moving: Tensor, labels: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    """(moving, its labels) flipped along an axis, or tilted about it; of a slice, within its plane."""
    if name == "flipped":
        return moving.flip(axis), labels.flip(axis)
    angle = TILTS[seed % len(TILTS)] * (-1) ** (seed // len(TILTS))
    return placed(moving, labels, Rotation.from_rotvec(np.radians(angle) * np.eye(3)[axis]))


def placed(moving: Tensor, labels: Tensor, rotation: Rotation, moved=(0.0, 0.0, 0.0)) -> tuple[Tensor, Tensor]:
    """(moving, its labels) turned about the middle of the image, in voxels, and moved; its least value comes in."""
    d = moving.dim()
    R, centre = rotation.as_matrix()[:d, :d], (np.array(moving.shape) - 1) / 2
    offset = centre - R @ centre + np.array(moved[:d]) * moving.shape
    image = affine_transform(moving.numpy(), R, offset, order=1, cval=float(moving.min()))
    return torch.from_numpy(image), torch.from_numpy(affine_transform(labels.numpy(), R, offset, order=0))


def shift(image: Tensor, axis: int, by: int) -> Tensor:
    """The image moved along an axis; zeros come in."""
    n = image.shape[axis]
    return torch.cat([torch.zeros_like(image.narrow(axis, 0, by)), image.narrow(axis, 0, n - by)], dim=axis)


def turn(image: Tensor) -> Tensor:
    """The middle square of the first two axes turned by 90°, on zeros."""
    side = min(image.shape[:2])
    box = tuple(slice((n - side) // 2, (n - side) // 2 + side) for n in image.shape[:2])
    out = torch.zeros_like(image)
    out[box] = torch.rot90(image[box], 1, (0, 1))
    return out


# Single slices of stacks, whose field is ruined.

SLICE_CHANGES = {"still": 0.0, "exaggerated": 1.6, "too small": 0.4, "exchanged": None}
"""By how much the motion of a slice is multiplied; or it is exchanged with that of another, two slices off or more."""
LEAST_WALL = 80  # voxels of the wall in a slice that is ruined


def ruined_slices(root: Path, splits: list[str]) -> Iterator[dict[str, object]]:
    """Each stack as it was registered, then with each change in slices by chance: the slices named by the verdict."""
    data, rng = ACDC(root / "acdc"), np.random.default_rng(0)
    for name, method in product([name for split in splits for name in data.subjects(split)], HEART_METHODS):
        images, masks = data.read(name)
        fixed, moving = (torch.from_numpy(image.array.astype(np.float32)) for image in images)
        found = register(fixed, moving, method, brightness="keep", spacing=images[0].grid.spacing, slice_axis=2)
        seen = np.flatnonzero((masks[0].array == 2).sum((0, 1)) >= LEAST_WALL)
        for change, factor in {"none": 1.0, **SLICE_CHANGES}.items():
            u, ruined = found.field.clone(), [int(rng.choice(seen))]
            if factor is None:
                ruined.append(int(rng.choice([k for k in seen if abs(k - ruined[0]) > 1])))
                u[..., ruined] = u[..., ruined[::-1]]
            else:
                u[..., ruined] *= factor
            result = replace(found, field=u, warped=warp(moving[None, None], u[None])[0, 0]).in_space
            known = [] if change == "none" else sorted(ruined)
            told = {"ruined": [k + 1 for k in known], "lags": [f"{lag:.4f}" for lag in slice_lags(result)]}
            row = {"subject": name, "method": method, "change": change}
            yield row | {key: " ".join(map(str, values)) for key, values in told.items()}


def slice_table(rows: list[dict[str, str]]) -> Iterator[str]:
    """How often a ruined slice, and an intact one, is named."""
    yield "| change | stacks | a ruined slice named | an intact slice named |\n| --- | --- | --- | --- |"
    for change in dict.fromkeys(row["change"] for row in rows):
        pairs = [
            (
                set(row["ruined"].split()),
                {str(k) for k, lag in enumerate(row["lags"].split(), 1) if float(lag) > MAX_LAG},
            )
            for row in rows
            if row["change"] == change
        ]
        hits, others = (sum(map(bool, each)) for each in zip(*((a & b, b - a) for a, b in pairs), strict=True))
        yield f"| {change} | {len(pairs)} | {'–' if change == 'none' else hits} | {others} |"


# Pairs, and what is made of them.

GOOD = "none"
STRENGTHS = {
    "huge lambda": {"TV-L1": "TV-L1(lam=20)", "Gaussian-LNCC": "Gaussian-LNCC(lam=10)"},
    "tiny lambda": {"TV-L1": "TV-L1(lam=0.001)", "Gaussian-LNCC": "Gaussian-LNCC(lam=0.01)"},
}
"""The name of each method with a λ that is far too large or too small."""
HEART_METHODS, SOLVERS = ("short-axis", "TV-L1", "Gaussian-LNCC"), ("TV-L1", "Gaussian-LNCC")
LEAST_DICE = {"slices": 0.75, "stacks": 0.75, "hippocampi": 0.65, "brains": 0.5}
LEAST_IMPROVEMENT, CLEARLY_WORSE = 0.02, 0.1
EVIDENCE = [field.name for field in fields(Evidence) if field.default is MISSING]
"""Whatever pairs of whole images without labels have."""
COLUMNS = ("data", "subject", "method", "change", "dice_before", "dice_after", *EVIDENCE)


@dataclass(frozen=True)
class Case:
    """A pair to be registered: images and labels (*s)."""

    data: str
    subject: str
    method: str
    change: str
    fixed: Tensor
    fixed_labels: Tensor
    moving: Tensor
    moving_labels: Tensor
    spacing: tuple[float, ...]
    slice_axis: int | None = None

    @property
    def key(self) -> tuple[str, ...]:
        return self.data, self.subject, self.method, self.change


def heart_slices(root: Path, splits: list[str], every: int) -> Iterator[Case]:
    """Three slices of each subject as they are; one slice of every second subject with each change."""
    data = ACDC(root / "acdc")
    subjects = [name for split in splits for name in data.subjects(split)][::every]
    samples = [data.prepare(name, "evaluation") for name in subjects]
    for (i, sample), k in product(enumerate(samples), range(3)):
        following = samples[(i + 1) % len(samples)]
        parts = [part[k, 0] for part in (sample.fixed, sample.fixed_labels, sample.moving, sample.moving_labels)]
        other = following.moving[k, 0], following.moving_labels[k, 0]
        is_changed = i % 2 == 0 and k == i % 3
        for method in HEART_METHODS:
            changes = [GOOD, *(CHANGES if is_changed else ())]
            changes += STRENGTHS if method in SOLVERS and is_changed else ()
            yield from cases("slices", f"{sample.name} {k}", method, changes, parts, other, sample.spacing, i)


def heart_stacks(root: Path, splits: list[str], every: int) -> Iterator[Case]:
    """Whole stacks on their own grids, slice by slice; three changes of each."""
    data = ACDC(root / "acdc")
    for i, name in enumerate([name for split in splits for name in data.subjects(split)][-5:][::every]):
        images, masks = data.read(name)
        fixed, moving = (torch.from_numpy(image.array.astype(np.float32)) for image in images)
        maps = [torch.from_numpy(mask.array.astype(np.int64)) for mask in masks]
        choice = [change for change in CHANGES if change != "wrong patient"]
        changes = [GOOD, *(choice[(3 * i + j) % len(choice)] for j in range(3))]
        parts, spacing = [fixed, maps[0], moving, maps[1]], images[0].grid.spacing
        for method in HEART_METHODS:
            yield from cases("stacks", name, method, changes, parts, (moving, maps[1]), spacing, i, slice_axis=2)


def hippocampi(root: Path, splits: list[str], every: int) -> Iterator[Case]:
    """20 pairs as they are, by the solvers, every fifth by Demons too; every tenth with each change, by the solvers.

    By the default for volumes, every second is flipped along, and tilted about, each axis. Of the test subjects these
    are the first 20: some of the last were seen while limits were chosen."""
    data = Hippocampus(root / "hippocampus")
    names = [name for split in splits for name in data.subjects(split)]
    subjects = (names[:20] if splits == ["test"] else names[-20:])[::every]
    changes = [each for each in (*CHANGES, *STRENGTHS) if each not in ("wrong patient", "flipped", "tilted")]
    for i, name in enumerate(subjects):
        sample = data.prepare(name, "evaluation")
        parts = [part[0, 0] for part in (sample.fixed, sample.fixed_labels, sample.moving, sample.moving_labels)]
        ruined = (*FLIPS_AND_TILTS, *changes) if i % 10 == 0 else ()
        chosen = {method: [GOOD, *ruined] for method in SOLVERS}
        chosen["Gaussian-LNCC"] += FLIPS_AND_TILTS if i % 2 == 0 and not ruined else ()
        chosen |= {"Demons": [GOOD]} if i % 5 == 0 else {}
        for method, each in chosen.items():
            yield from cases("hippocampi", sample.name, method, each, parts, (), sample.spacing, i)


def brains(root: Path, splits: list[str], every: int) -> Iterator[Case]:
    """The one pair, in both directions, on blocks of 2 mm, by the default for volumes; of no split."""
    loaded = load_brains(root / "brain_pair")[0][2]()
    maps = [
        torch.from_numpy(labels[::2, ::2, ::2].astype(np.int64))
        for labels in (loaded.fixed_labels, loaded.moving_labels)
    ]
    images = [
        functional.avg_pool3d(torch.from_numpy(image)[None, None], 2)[0, 0] for image in (loaded.fixed, loaded.moving)
    ]
    spacing = tuple(2 * h for h in loaded.spacing)
    for i, name in enumerate(("a to b", "b to a")):
        parts = [images[i], maps[i], images[1 - i], maps[1 - i]]
        changes = [GOOD, *FLIPS_AND_TILTS, MISPLACED]
        yield from cases("brains", name, "Gaussian-LNCC", changes, parts, (), spacing, i)


def cases(data, subject, method, changes, parts, other, spacing, seed, slice_axis=None) -> Iterator[Case]:
    """The pair with each of the changes."""
    fixed, fixed_labels, moving, labels = parts
    for change in changes:
        pair = changed(change, moving, labels, other, seed)
        yield Case(data, subject, method, change, fixed, fixed_labels, *pair, spacing, slice_axis)


def measure(case: Case) -> dict[str, object]:
    """The row of a case: register it, and gather the evidence."""
    method = STRENGTHS[case.change][case.method] if case.change in STRENGTHS else case.method
    place = {"spacing": case.spacing, "slice_axis": case.slice_axis}
    found = register(case.fixed, case.moving.contiguous(), method, brightness="keep", **place)
    carried = found.warp_labels(case.moving_labels)
    evidence = asdict(evidence_of_pair(found.in_space))
    fixed, maps = case.fixed_labels.numpy(), (case.moving_labels.numpy(), carried.numpy())
    structures = sorted({*np.unique(fixed).tolist(), *np.unique(maps[0]).tolist()} - {0})
    dices = [nan_mean(by_label(dice, fixed, labels, structures).values()) for labels in maps]
    return dict(zip(COLUMNS, [*case.key, *dices, *(evidence[name] for name in EVIDENCE)], strict=True))


def measure_all(found: Iterator[Case], cache: Path) -> list[dict[str, str]]:
    """The rows of all cases; those that the cache lacks are computed and added to it."""
    known, keys = {key_of(row) for row in read_measured(cache)}, set()
    for case in found:
        keys.add(case.key)
        if case.key not in known:
            append_row(measure(case), cache, COLUMNS)
    return [row for row in read_measured(cache) if key_of(row) in keys]


def key_of(row: dict[str, str]) -> tuple[str, ...]:
    """What tells a case from others."""
    return tuple(row[name] for name in COLUMNS[:4])


def outcome(row: dict[str, str], unchanged: dict[tuple[str, ...], float]) -> str:
    """good, ruined, or neither; by labels alone."""
    before, after = float(row["dice_before"]), float(row["dice_after"])
    if row["change"] == GOOD:
        return "good" if after > before and after >= LEAST_DICE[row["data"]] else "neither"
    is_worse = after < unchanged[row["data"], row["subject"], row["method"]] - CLEARLY_WORSE
    return "ruined" if is_worse or after < before + LEAST_IMPROVEMENT else "neither"


def tables(rows: list[dict[str, str]]) -> Iterator[str]:
    """How often each level is given, by outcome, data and change, and by method; how the measures are distributed; and
    where the verdict is wrong."""
    unchanged = {
        (row["data"], row["subject"], row["method"]): float(row["dice_after"]) for row in rows if row["change"] == GOOD
    }
    judged: dict[str, list[tuple[dict[str, str], Evidence]]] = {"good": [], "ruined": [], "neither": []}
    for row in rows:
        evidence = Evidence(**{name: float(row[name]) for name in EVIDENCE})
        judged[outcome(row, unchanged)].append((row, evidence))
    for name in ("good", "ruined"):
        yield f"\n{name}: {len(judged[name])}; of these good, look, failed: {', '.join(counts(judged[name], {}))}\n"
        yield "| data | change | good | look | failed |\n| --- | --- | --- | --- | --- |"
        for data, change in sorted({(row["data"], row["change"]) for row, _ in judged[name]}):
            levels = counts(judged[name], {"data": data, "change": change})
            yield f"| {data} | {change} | {' | '.join(levels)} |"
    yield "\n| method | of good ones: good, look, failed | of ruined ones |\n| --- | --- | --- |"
    for method in dict.fromkeys(row["method"] for row, _ in judged["good"]):
        good, ruined = (", ".join(counts(judged[name], {"method": method})) for name in ("good", "ruined"))
        yield f"| {method} | {good} | {ruined} |"
    yield "\n| finding | look | failed | good: 50, 97, 100 % | ruined: 3, 50 % | ruined beyond look |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for rule in (each for each in FINDINGS if not each.name.startswith(("structures", "few"))):
        of_good, of_ruined = (
            np.array([rule.measure(evidence) for _, evidence in judged[name]]) for name in ("good", "ruined")
        )
        spread = np.percentile(of_good, (50, 97, 100)), np.percentile(of_ruined, (3, 50))
        words = [", ".join(f"{value:.2f}" for value in part) for part in spread]
        failed = "–" if rule.failed == inf else f"{rule.failed:g}"
        beyond = 100 * (of_ruined > rule.look).mean()
        yield f"| {rule.name} | {rule.look:g} | {failed} | {words[0]} | {words[1]} | {beyond:.0f} % |"
    for name in ("good", "ruined"):
        for row, evidence in judged[name]:
            verdict = judge_evidence(evidence)
            if (name == "good") != (verdict.level == "good"):
                yield f"{name}, but {verdict.level}: {' '.join(list(row.values())[:6])} {verdict.reasons}"


def counts(judged: list[tuple[dict[str, str], Evidence]], among: dict[str, str]) -> list[str]:
    """How many of the rows with these cells are good, to look at, and failed."""
    levels = [judge_evidence(evidence).level for row, evidence in judged if among.items() <= row.items()]
    return [str(levels.count(level)) for level in ("good", "look", "failed")]


SOURCES = {"slices": heart_slices, "stacks": heart_stacks, "hippocampi": hippocampi, "brains": brains}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--splits", nargs="+", required=True)
    parser.add_argument("--data", nargs="+", choices=SOURCES, default=list(SOURCES))
    parser.add_argument("--every", type=int, default=1, help="take each n-th subject")
    parser.add_argument("--cache", type=Path, help="a folder: one CSV file per kind of data")
    parser.add_argument("--slices", type=Path, help="a file to write, for single slices alone")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.slices:
        with torch.inference_mode():
            for row in ruined_slices(options.root, options.splits):
                append_row(row, options.slices, tuple(row))
        print(*slice_table(read_measured(options.slices)), sep="\n")
        return
    options.cache.mkdir(parents=True, exist_ok=True)
    rows = []
    with torch.inference_mode():
        for name in options.data:
            found = SOURCES[name](options.root, options.splits, options.every)
            rows += measure_all(found, options.cache / f"{name}.csv")
    print(*tables(rows), sep="\n")


if __name__ == "__main__":
    main()
