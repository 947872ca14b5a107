"""Learned methods side by side on one GPU: trained at once, each on its own stream, then measured on test subjects.

    vrnet prepare --data acdc --root ACDC --out acdc.npz
    python benchmarks/learned.py acdc.npz C-L2-3x1-w32 R-L2-3x2-w32 VoxelMorph-w32 --seeds 0 1 2 --out learned.csv

One network alone leaves most of a large GPU idle: four at once took 40 ms a round on an H200, one alone 19 ms. A row a
subject, with all that it depends on; on screen, the mean over subjects. A model here is that of the last step.
"""

import argparse
import csv
from dataclasses import replace
from itertools import product
from pathlib import Path
from time import perf_counter

import torch

from vrnet.cohorts import Source
from vrnet.evaluation.cohort import measured, summarised
from vrnet.methods.learned import learned
from vrnet.training.fit import launched, own_stream
from vrnet.training.pairs import Pairs
from vrnet.training.settings import PRESETS
from vrnet.training.trainer import Trainer
from vrnet.training.validation import validated

SHOWN = "dice_mean", "hd_mean", "folding_percent", "folding_strict_percent", "end_point_error_mm"


def trained(jobs, train):
    """[(name, settings)] -> [trainer], after their steps; and the seconds that took."""
    fabric = launched("auto", 1, 1, jobs[0][1])
    pairs, found = Pairs.of(train).near(fabric.device), []
    for name, settings in jobs:
        with own_stream(fabric.device):
            stream = torch.cuda.current_stream() if fabric.device.type == "cuda" else None
            found.append((Trainer(fabric, learned(name), pairs, settings), stream))
    start = perf_counter()
    for step in range(jobs[0][1].steps):
        for trainer, stream in found:
            with torch.cuda.stream(stream):
                trainer.step(step)
        if step % 500 == 0:
            print(f"step {step}, {perf_counter() - start:.0f} s", flush=True)
    if fabric.device.type == "cuda":
        torch.cuda.synchronize()
    return [trainer for trainer, _ in found], perf_counter() - start


def rows_of(name, trainer, val, test):
    """What a model scores on each test subject, beside all that it depends on."""
    device, settings = trainer.fabric.device, trainer.settings
    model = trainer.model.eval()
    scores = [measured(sample, model, test.structures, device.type) for sample in test.samples]
    dice = validated(model, val, trainer.loss, device).get("val_dice", float("nan"))
    what = {key: getattr(settings, key) for key in ("alpha", "rate", "steps", "batch", "seed")}
    means = summarised(scores)
    shown = ", ".join(f"{key} {means[key]['mean']:.4f}" for key in SHOWN if key in means)
    print(
        f"{name}, {', '.join(f'{k} {v}' for k, v in what.items())}: validation Dice {dice:.4f}; test {shown}",
        flush=True,
    )
    return [{"method": name, **what, "val_dice": dice, **row} for row in scores]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pack", help="a file that vrnet prepare wrote")
    parser.add_argument("methods", nargs="+")
    parser.add_argument("--preset", default="short", choices=PRESETS)
    parser.add_argument("--alphas", type=float, nargs="+", default=[0.05])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--steps", type=int)
    parser.add_argument("--out", type=Path, default=Path("learned.csv"))
    given = parser.parse_args()
    source, quiet = Source(given.pack), lambda name: lambda done: None
    train, val, test = (
        source.split(split, purpose, quiet, print)
        for split, purpose in (("train", "training"), ("val", "evaluation"), ("test", "evaluation"))
    )
    preset = PRESETS[given.preset]
    preset = replace(preset, steps=given.steps or preset.steps)
    jobs = [
        (name, replace(preset, alpha=alpha, seed=seed))
        for name, alpha, seed in product(given.methods, given.alphas, given.seeds)
    ]
    trainers, seconds = trained(jobs, train)
    print(f"{len(jobs)} models at once: {preset.steps} steps in {seconds:.0f} s")
    rows = [row for (name, _), trainer in zip(jobs, trainers, strict=True) for row in rows_of(name, trainer, val, test)]
    with given.out.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
