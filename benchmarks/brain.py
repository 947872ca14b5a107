"""A method on a pair of whole brains, beside SimpleITK's fast symmetric forces demons in the same run.

    python benchmarks/brain.py --pair FOLDER [--method TV-L1] [--out brain.json]

FOLDER holds a_t1, a_seg, b_t1, b_seg (.nii.gz): two affinely aligned, skull-stripped T1 brains and their labels. Each
tool runs in a process of its own, which reports its peak memory. Dice: mean over the labels that both brains have.
Demons: levels 4-2-1 with 60, 40 and 20 iterations, standard deviation 1.2, after histogram matching.
"""

import argparse
import json
import resource
import subprocess
import sys
from pathlib import Path
from time import perf_counter

import numpy as np
import SimpleITK as sitk

from vrnet import Transform, names, read_image, register_images
from vrnet.evaluation.metrics import folding_strict_percent

DEMONS = "SimpleITK demons"
DEMONS_LEVELS = ((4, 60), (2, 40), (1, 20))
"""(factor by which images are shrunk, iterations), coarsest first."""
DEMONS_SIGMA = 1.2


def read_pair(folder):
    """Fixed, moving, labels of fixed and labels of moving."""
    return [read_image(next(folder.glob(f"{name}.*"))) for name in ("a_t1", "b_t1", "a_seg", "b_seg")]


def run_demons(folder):
    """The transform that SimpleITK's fast symmetric forces demons find."""
    fixed, moving = (sitk.ReadImage(str(next(folder.glob(f"{n}.*"))), sitk.sitkFloat32) for n in ("a_t1", "b_t1"))
    moving, field = sitk.HistogramMatching(moving, fixed, 256, 15, True), None
    for factor, iterations in DEMONS_LEVELS:
        pair = [downsample(image, factor) for image in (fixed, moving)]
        filter = sitk.FastSymmetricForcesDemonsRegistrationFilter()
        filter.SetNumberOfIterations(iterations)
        filter.SetStandardDeviations(DEMONS_SIGMA)
        field = filter.Execute(*pair, sitk.Resample(field, pair[0])) if field else filter.Execute(*pair)
    return sitk.DisplacementFieldTransform(sitk.Cast(field, sitk.sitkVectorFloat64))


def downsample(image, factor):
    """The image with every axis shrunk by a factor, smoothed first."""
    if factor == 1:
        return image
    return sitk.Shrink(sitk.DiscreteGaussian(image, (factor / 2) ** 2), [factor] * 3)


def mean_dice(a, b):
    """Mean Dice over the labels that both maps have."""
    shared = np.intersect1d(a, b)
    counts = [np.bincount(x.ravel(), minlength=int(shared.max()) + 1) for x in (a, b, a[a == b])]
    return float(np.mean([2 * counts[2][k] / (counts[0][k] + counts[1][k]) for k in shared if k]))


def measure(folder, tool):
    """Run one tool: its scores, seconds and peak memory."""
    fixed, moving, fixed_labels, moving_labels = read_pair(folder)
    start = perf_counter()
    if tool == DEMONS:
        from vrnet.images.transform import sample_transform

        found = run_demons(folder)
        seconds = perf_counter() - start
        transform = sample_transform(found, fixed.grid)
    else:
        transform = register_images(fixed, moving, tool).transform
        seconds = perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return {"tool": tool, "seconds": seconds, "peak_gib": peak, **scores(transform, fixed_labels, moving_labels)}


def scores(transform: Transform, fixed_labels, moving_labels):
    """Dice before and after, and strict folding."""
    import torch

    warped = transform.apply_labels(moving_labels, fixed_labels.grid)
    return {
        "dice_before": mean_dice(fixed_labels.array, moving_labels.array),
        "dice_after": mean_dice(fixed_labels.array, warped.array),
        "folding_strict_percent": folding_strict_percent(torch.from_numpy(transform.in_voxels())[None]),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pair", type=Path, required=True)
    parser.add_argument("--method", default="default", choices=[*names(), DEMONS])
    parser.add_argument("--alone", action="store_true", help="measure this method only, and print JSON")
    parser.add_argument("--out", type=Path, default=Path("brain.json"))
    options = parser.parse_args()
    if options.alone:
        print(json.dumps(measure(options.pair, options.method)))
        return
    results = []
    for tool in (options.method, DEMONS):
        command = [sys.executable, __file__, "--pair", options.pair, "--method", tool, "--alone"]
        results.append(json.loads(subprocess.run(command, check=True, capture_output=True).stdout))
        print("{tool:18} {seconds:6.1f} s  Dice {dice_before:.3f} -> {dice_after:.3f}  folded (strict) "
              "{folding_strict_percent:.2f} %  peak {peak_gib:.2f} GiB".format(**results[-1]), flush=True)  # fmt: skip
    options.out.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
