"""Whole stacks of ACDC, every slice of them, at their own resolution: one row per subject, and the means.

    python benchmarks/stacks.py --root ACDC [--methods identity TV-L1 short-axis] [--split test] [--out OUT]

The paper's protocol measures three chosen slices per subject. Here end-systole is registered to end-diastole as
`vrnet register` does it, and Dice is that of the volumes: over all slices, also where the heart ends. `metrics.csv` in
OUT/METHOD has one row per subject, `summary.json` the means. ACDC: the folder of patientNNN/ and split.csv.
"""

import argparse
from pathlib import Path

import numpy as np

from vrnet import read_image, register_images
from vrnet.app.cohort import scan_acdc
from vrnet.data.manifest import SubjectFolder
from vrnet.evaluation.pair import overlap, regularity
from vrnet.evaluation.split import summarise
from vrnet.files import write_json, write_rows
from vrnet.provenance import versions

STRUCTURES = {"3": "LV", "2": "Myo", "1": "RV"}


def measure(row, method: str):
    """Dice and distances of one stack, after its registration; folds of the field as it is saved."""
    parts = ("fixed", "moving", "fixed_labels", "moving_labels")
    fixed, moving, fixed_labels, moving_labels = (read_image(Path(row[part])) for part in parts)
    found = register_images(fixed, moving, method=method)
    warped = found.transform.apply_labels(moving_labels)
    labels = [image.array.astype(np.int64) for image in (fixed_labels, moving_labels, warped)]
    after = {name: values["after"] for name, values in overlap(*labels, fixed.grid.spacing, fixed.grid.across).items()}
    named = {f"dice_{STRUCTURES.get(label, label)}": value for label, value in after["dice"].items()}
    distances = {f"hd_{STRUCTURES.get(label, label)}": value for label, value in after["hausdorff_mm"].items()}
    folds = regularity(found.transform.in_voxels(), fixed.grid)["folding_strict_percent"]
    return {"subject": row["subject"], **named, **distances, "folding_strict_percent": folds}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--methods", nargs="+", default=["identity", "TV-L1", "short-axis"])
    parser.add_argument("--split", default="test")
    parser.add_argument("--out", type=Path, default=Path("results/stacks/whole"))
    given = parser.parse_args()
    names = set(SubjectFolder(given.root).subjects(given.split))
    subjects = [row for row in scan_acdc(given.root) if row["subject"] in names]
    for method in given.methods:
        rows = [measure(row, method) for row in subjects]
        write_rows(rows, given.out / method / "metrics.csv")
        means = summarise(rows)
        summary = {"method": method, "data": "acdc", "split": given.split, "subjects": len(rows), "metrics": means}
        write_json({**summary, "provenance": versions()}, given.out / method / "summary.json")
        said = ", ".join(f"{name} {means[name]['mean']:.3f}" for name in ("dice_mean", "hd_mean"))
        print(f"{method}: {said}", flush=True)


if __name__ == "__main__":
    main()
