"""Does it matter which contrast the images have? Dice of hippocampi whose moving image was given another one.

    python benchmarks/contrasts.py --hippocampus HIPPOCAMPUS [--split val] [--pairs 20] [--methods NAME ...]

Each pair is registered as it is, with moving inverted, scaled by 5 with an offset, and remapped by random curves, drawn
anew for each pair by a seeded generator: `monotone` curves rise everywhere, at very different rates; `non-monotone`
ones are smooth and have an extremum inside the range, so that tissues may become one. Folds are repaired, as in use.
"""

import argparse
from pathlib import Path

import numpy as np
import torch

import vrnet
from volume_pairs import hippocampi
from vrnet.evaluation.metrics import by_label, dice
from vrnet.fields import warp_labels

METHODS = "Gaussian-LNCC", "Gaussian-MIND", "Gaussian-NMI", "Gaussian-Remap"
POINTS = np.linspace(0, 1, 65)


def smooth_curve(rng):
    """A line and three cosines of random weights, at POINTS."""
    return POINTS * rng.normal() + sum(rng.normal() / k * np.cos(np.pi * k * POINTS) for k in (1, 2, 3))


def monotone(image, rng):
    curve = smooth_curve(rng)
    return apply(np.cumsum(np.exp(2 * (curve - curve.mean()) / curve.std())), image)


def non_monotone(image, rng):
    while True:
        curve = smooth_curve(rng)
        slopes = np.sign(np.diff(curve))
        if slopes.min() < 0 < slopes.max():
            return apply(curve, image)


def apply(curve, image):
    """The curve, from 0 to 1, of intensities from 0 to 1."""
    return np.interp(image, POINTS, (curve - curve.min()) / np.ptp(curve)).astype(image.dtype)


CONTRASTS = {
    "same": lambda image, rng: image,
    "inverted": lambda image, rng: 1 - image,
    "scaled": lambda image, rng: 5 * image + 2,
    "monotone": monotone,
    "non-monotone": non_monotone,
}


def measure(method, pair, contrast, seed):
    """The mean Dice of a pair over its labels."""
    moving = CONTRASTS[contrast](pair.moving, np.random.default_rng(seed))
    found = vrnet.register(pair.fixed, moving, method, spacing=pair.spacing)
    labels = torch.from_numpy(pair.moving_labels)[None, None]
    warped = warp_labels(labels, torch.from_numpy(found.field)[None])[0, 0].numpy()
    return np.nanmean(list(by_label(dice, pair.fixed_labels, warped, pair.labels).values()))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hippocampus", type=Path, required=True)
    parser.add_argument("--split", default="val")
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--methods", nargs="+", default=METHODS)
    parser.add_argument("--contrasts", nargs="+", default=list(CONTRASTS), choices=list(CONTRASTS))
    given = parser.parse_args()
    pairs = [load() for _, _, load in hippocampi(given.hippocampus, given.split, given.pairs)]
    print("| method |", " | ".join(given.contrasts), "|\n|", " | ".join(["---"] * (1 + len(given.contrasts))), "|")
    for method in given.methods:
        print(f"| {method} |", end="", flush=True)
        for contrast in given.contrasts:
            scores = [measure(method, pair, contrast, seed) for seed, pair in enumerate(pairs)]
            print(f" {np.mean(scores):.4f} |", end="", flush=True)
        print()


if __name__ == "__main__":
    main()
