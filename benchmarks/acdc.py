"""A solver on real hearts: ACDC under the paper's 2D protocol, end-systole registered to end-diastole.

    python benchmarks/acdc.py --root ACDC [--split test] [--method TV-L1] [--out acdc.json]
    python benchmarks/acdc.py --root ACDC --tune                  # λ x θ of TV-L1 on the validation subjects

The protocol: 1.8 mm in-plane, 160x160 about the centre, the slices at 25, 50 and 75 % of those that show at least 10
pixels of LV and of Myo at both phases, intensities scaled by the 1st and 99th percentile of both phases together.
ROOT holds patientNNN/patientNNN_frameFF.nii.gz and ..._gt.nii.gz, Info.cfg, and split.csv (patient, group, split).
"""

import argparse
import csv
import json
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from statistics import mean, pstdev
from time import perf_counter

import numpy as np
import SimpleITK as sitk
import torch

from vrnet import parse
from vrnet.evaluation.metrics import contour_hausdorff, dice, folding_percent
from vrnet.fields import warp_labels, zeros

SPACING, SIZE, QUANTILES, MIN_PIXELS = 1.8, 160, (0.25, 0.5, 0.75), 10
STRUCTURES = {"LV": 3, "Myo": 2, "RV": 1}


@dataclass(frozen=True)
class Subject:
    """Three slices as a batch: fixed = ED, moving = ES, shape (3, 1, 160, 160)."""

    name: str
    fixed: torch.Tensor
    moving: torch.Tensor
    fixed_labels: torch.Tensor
    moving_labels: torch.Tensor


def subjects(root, split):
    """Every subject of a split, prepared."""
    with (root / "split.csv").open() as file:
        return [prepare(root / row["patient"]) for row in csv.DictReader(file) if row["split"] == split]


def prepare(folder):
    """Read, resample, choose slices, scale."""
    phases = dict(line.split(": ") for line in (folder / "Info.cfg").read_text().splitlines() if ": " in line)
    frames = [f"{folder.name}_frame{int(phases[phase]):02d}" for phase in ("ED", "ES")]
    images = [resampled(folder / f"{frame}.nii.gz", sitk.sitkLinear) for frame in frames]
    labels = [resampled(folder / f"{frame}_gt.nii.gz", sitk.sitkNearestNeighbor) for frame in frames]
    low, high = np.percentile(np.stack(images), (1, 99))
    images = [np.clip((image - low) / (high - low), 0, 1).astype(np.float32) for image in images]
    chosen = chosen_slices(labels)
    batches = [
        torch.from_numpy(stack[chosen])[:, None] for stack in (*images, *[mask.astype(np.uint8) for mask in labels])
    ]
    return Subject(folder.name, *batches)


def resampled(path, interpolator):
    """The stack as (slice, x, y), on a grid of 1.8 mm about its centre."""
    image = sitk.ReadImage(str(path), sitk.sitkFloat32)
    size = (SIZE, SIZE, image.GetSize()[2])
    spacing = np.array([SPACING, SPACING, image.GetSpacing()[2]])
    direction = np.reshape(image.GetDirection(), (3, 3))
    centre = image.TransformContinuousIndexToPhysicalPoint([(n - 1) / 2 for n in image.GetSize()])
    origin = centre - direction @ (spacing * (np.array(size) - 1) / 2)
    moved = sitk.Resample(image, size, sitk.Transform(), interpolator, origin, spacing, image.GetDirection(), 0.0)
    return np.ascontiguousarray(sitk.GetArrayFromImage(moved).transpose(0, 2, 1))


def chosen_slices(labels):
    """Indices at the quantiles of the slices that show enough LV and Myo at both phases."""
    enough = [(mask == label).sum((1, 2)) >= MIN_PIXELS for mask in labels for label in (3, 2)]
    valid = np.flatnonzero(np.all(enough, axis=0))
    return [valid[round(q * (len(valid) - 1))] for q in QUANTILES]


def measure(subject, solver):
    """Scores of one subject: the mean over its slices; Avg is the mean of the structures."""
    start = perf_counter()
    with torch.inference_mode():
        fields = [solver(I0[None], I1[None]) for I0, I1 in zip(subject.fixed, subject.moving, strict=True)]
    u, seconds = torch.cat(fields), (perf_counter() - start) / len(fields)
    slices = list(
        zip(subject.fixed_labels[:, 0].numpy(), warp_labels(subject.moving_labels, u)[:, 0].numpy(), strict=True)
    )
    row = {"subject": subject.name}
    for name, label in STRUCTURES.items():
        row[f"dice_{name}"] = np.nanmean([dice(a == label, b == label) for a, b in slices])
        row[f"hd_{name}"] = np.nanmean([contour_hausdorff(a == label, b == label, (SPACING,) * 2) for a, b in slices])
    row["dice_mean"], row["hd_mean"] = (mean(row[f"{kind}_{name}"] for name in STRUCTURES) for kind in ("dice", "hd"))
    return {**row, "folding_percent": folding_percent(u), "seconds": seconds}


def evaluate(cohort, solver):
    """A row a subject, and the mean and standard deviation of each column."""
    rows = [measure(subject, solver) for subject in cohort]
    columns = [key for key in rows[0] if key != "subject"]
    return rows, {key: (mean(row[key] for row in rows), pstdev(row[key] for row in rows)) for key in columns}


def line(name, summary):
    """One line of a table."""
    cells = [
        f"{key} {summary[key][0]:.3f}({summary[key][1]:.3f})" for key in ("dice_mean", "hd_mean", "folding_percent")
    ]
    return f"{name:28} " + "  ".join(cells) + f"  {summary['seconds'][0]:.3f} s a slice"


def tune(root):
    """Each λ and θ on the validation subjects, best last."""
    cohort, results = subjects(root, "val"), []
    for lam, first, last in product((0.05, 0.06, 0.065, 0.075, 0.09), (0.05, 0.1, 0.2), (0.5, 1.0)):
        method = replace(parse("TV-L1"), lam=lam, theta=(first, last))
        summary = evaluate(cohort, method.build())[1]
        results.append(
            (summary["dice_mean"][0] - summary["hd_mean"][0] / 100, line(f"λ {lam} θ {first}-{last}", summary))
        )
        print(results[-1][1], flush=True)
    print("\nby Dice − HD/100 mm:", *(text for _, text in sorted(results)), sep="\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--split", default="test")
    parser.add_argument("--method", default="TV-L1")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tune", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("acdc.json"))
    options = parser.parse_args()
    if not (options.root / "split.csv").is_file():
        parser.error(f"{options.root} has no split.csv: name the ACDC folder with --root")
    torch.set_num_threads(options.threads)
    if options.tune:
        tune(options.root)
        return
    cohort, results = subjects(options.root, options.split), {}
    if not cohort:
        parser.error(f'no subject is in the split "{options.split}" of split.csv')
    for name, solver in {
        "unregistered": lambda I0, I1: zeros(I0),
        options.method: parse(options.method).build(),
    }.items():
        rows, summary = evaluate(cohort, solver)
        print(line(name, summary))
        results[name] = {"split": options.split, "subjects": rows, "summary": summary}
    options.out.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
