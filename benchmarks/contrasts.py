"""Does it matter which contrast the images have? Dice and verdict of pairs whose moving image was given another one.

    python benchmarks/contrasts.py --hippocampus HIPPOCAMPUS [--split val] [--pairs 20] [--methods NAME ...]

Each pair is registered as it is, with moving inverted, scaled by 5 with an offset, and remapped by random curves, drawn
anew for each pair by a seeded generator. `monotone` curves rise everywhere, at very different rates; `non-monotone`
ones are smooth and have an extremum inside the range, so that tissues may become one. `rising knots` and `any knots`
are lines between random values, the first sorted: rates differ less. Folds are repaired, as in use.

rows.csv in the folder of --out gets one row per method, contrast and pair as soon as it is measured; what is there is
not measured again. table.md is made from it.
"""

import argparse
from itertools import product
from pathlib import Path

import numpy as np

import vrnet
from rows import append_row, read_measured
from volumes import hippocampi, mean_dice
from vrnet.files import write_bytes

METHODS = "Gaussian-LNCC", "Gaussian-MIND", "Gaussian-NMI", "Gaussian-Remap"
POINTS = np.linspace(0, 1, 65)


def smooth_curve(rng):
    """A line and three cosines of random weights, at POINTS."""
    return POINTS * rng.normal() + sum(rng.normal() / k * np.cos(np.pi * k * POINTS) for k in (1, 2, 3))


def rising_curve(rng):
    curve = smooth_curve(rng)
    return np.cumsum(np.exp(2 * (curve - curve.mean()) / curve.std()))


def with_an_extremum(draw):
    """What draws curves until one both rises and falls."""

    def draw_one(rng):
        while True:
            curve = draw(rng)
            slopes = np.sign(np.diff(curve))
            if slopes.min() < 0 < slopes.max():
                return curve

    return draw_one


def remapped(draw):
    """What maps intensities from 0 to 1 by the lines between the values of a curve, at even steps, in [0, 1]."""

    def remap(image, rng):
        curve = draw(rng)
        points = np.linspace(0, 1, len(curve))
        return np.interp(image, points, (curve - curve.min()) / np.ptp(curve)).astype(image.dtype)

    return remap


CONTRASTS = {
    "same": lambda image, rng: image,
    "inverted": lambda image, rng: 1 - image,
    "scaled": lambda image, rng: 5 * image + 2,
    "monotone": remapped(rising_curve),
    "non-monotone": remapped(with_an_extremum(smooth_curve)),
    "rising knots": remapped(lambda rng: np.sort(rng.random(8))),
    "any knots": remapped(with_an_extremum(lambda rng: rng.random(5))),
}
KEY = "data", "method", "contrast", "pair"
COLUMNS = *KEY, "dice_before", "dice", "verdict"


def measure(method, pair, contrast, seed):
    """Dice before and after, and the verdict, of a pair whose moving image has another contrast."""
    moving = CONTRASTS[contrast](pair.moving, np.random.default_rng(seed))
    found = vrnet.register(pair.fixed, moving, method, spacing=pair.spacing)
    dice = {"dice_before": mean_dice(pair, np.zeros_like(found.field)), "dice": mean_dice(pair, found.field)}
    return dice | {"verdict": found.verdict.level}


def measure_all(pairs, methods, contrasts, path):
    """Add the row of every method, contrast and pair that the file does not have."""
    known = {tuple(row[key] for key in KEY) for row in read_measured(path)}
    for seed, (data, name, load) in enumerate(pairs):
        for method, contrast in product(methods, contrasts):
            key = data, method, contrast, name
            if key not in known:
                row = dict(zip(KEY, key, strict=True)) | measure(method, load(), contrast, seed)
                append_row(row, path, COLUMNS)
                print(*row.values(), flush=True)


def table(rows):
    """A Markdown table per data set: mean Dice of each method and contrast; then what the verdicts say of the harmed.

    A pair is harmed if its Dice is lower than before registration, and unnoticed if the verdict is good all the same.
    """
    lines = []
    for data in dict.fromkeys(row["data"] for row in rows):
        part = [row for row in rows if row["data"] == data]
        contrasts = list(dict.fromkeys(row["contrast"] for row in part))
        before = np.mean([float(row["dice_before"]) for row in part])
        lines += [f"**{data}**, Dice before registration: {before:.3f}", ""]
        lines += [
            f"| method | {' | '.join(contrasts)} | harmed | unnoticed |",
            f"| ---{' | ---' * (len(contrasts) + 2)} |",
        ]
        for method in dict.fromkeys(row["method"] for row in part):
            found = [row for row in part if row["method"] == method]
            dice = {name: [float(row["dice"]) for row in found if row["contrast"] == name] for name in contrasts}
            means = " | ".join(f"{np.mean(values):.3f}" if values else "–" for values in dice.values())
            harmed = [row for row in found if float(row["dice"]) < float(row["dice_before"])]
            unnoticed = sum(row["verdict"] == "good" for row in harmed)
            lines.append(f"| {method} | {means} | {len(harmed)} of {len(found)} | {unnoticed} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hippocampus", type=Path, required=True, help="the root of the data set")
    parser.add_argument("--split", default="val")
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--methods", nargs="+", default=METHODS)
    parser.add_argument("--contrasts", nargs="+", default=list(CONTRASTS), choices=list(CONTRASTS))
    parser.add_argument("--out", type=Path, default=Path("results/contrasts"))
    given = parser.parse_args()
    pairs = hippocampi(given.hippocampus, given.split, given.pairs)
    measure_all(pairs, given.methods, given.contrasts, given.out / "rows.csv")
    found = table(read_measured(given.out / "rows.csv"))
    write_bytes(f"{found}\n".encode(), given.out / "table.md")
    print(f"\n{found}")


if __name__ == "__main__":
    main()
