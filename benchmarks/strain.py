"""End-diastole and end-systole of ACDC as a cine of two frames: how much hearts strain and eject.

    python benchmarks/strain.py --root ACDC [--methods short-axis-cine TV-L1] [--out results/strain]

The labels of end-diastole alone are tracked; the ejection fraction is compared with that of the labels of end-systole.
Writes acdc_METHOD.csv with one row per subject, which benchmarks/pictures.py draws; subjects that are in it are not
measured again. ACDC: the folder of patientNNN/ and split.csv.
"""

import argparse
from pathlib import Path

import numpy as np

from vrnet import Cine, track
from vrnet.cardiac.strain import TITLES
from vrnet.cardiac.volumes import slices_first, volumes
from vrnet.cardiac.wall import HeartLabels
from vrnet.data.dataset import ACDC, read_info
from vrnet.files import read_rows, write_rows
from vrnet.vocabulary import LEVELS


def measure(cine, diastole, systole, method: str, device: str = "auto"):
    """The strain of a heart at end-systole in percent, and its volumes in ml, given the label maps of both phases."""
    result = track(cine, method, labels=diastole, device=device)
    found, tracked = result.strain, result.volumes
    if found is None:
        raise SystemExit(f"no strain is measured of {cine.name}: {result.no_strain}")
    labelled = volumes(np.stack([diastole.array, systole.array]), cine.grid.spacing)
    regions = {name: found.curve(name)[1] for name in TITLES} | {
        f"{name}_{level}": found.curve(name, level)[1]
        for name in ("green_circumferential", "green_radial")
        for level in LEVELS
    }
    cavities = [slices_first(labels.array[None] == HeartLabels().lv, result.across) for labels in (diastole, systole)]
    at_diastole, at_systole = (cavity.sum((0, 2, 3)) for cavity in cavities)
    return {
        "method": result.method,
        **{key: round(float(value), 3) for key, value in regions.items()}, "slices": len(found.slices),
        "diastole_ml": round(float(labelled.lv_ml[0]), 3), "systole_ml": round(float(labelled.lv_ml[1]), 3),
        "systole_tracked_ml": round(float(tracked.lv_ml[1]), 3),
        "lost_at_base_percent": round(lost_at_base(at_diastole, at_systole, found.slices), 3),
        "ejection_labels": round(ejection(labelled.lv_ml), 3), "ejection_tracked": round(ejection(tracked.lv_ml), 3),
    }  # fmt: skip


def lost_at_base(diastole, systole, base_to_apex):
    """Of the cavity at end-diastole, given its voxels by slice at both phases, in percent: what lies in basal slices
    that have none at end-systole."""
    if base_to_apex[0] > base_to_apex[-1]:
        diastole, systole = diastole[::-1], systole[::-1]
    is_lost = ~np.logical_or.accumulate(systole > 0)
    return float(100 * diastole[is_lost].sum() / diastole.sum())


def ejection(volume):
    """100 (1 − V_ES / V_ED) of the volumes at end-diastole and end-systole."""
    return float(100 * (1 - volume[1] / volume[0]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--methods", nargs="+", default=["short-axis-cine", "TV-L1"])
    parser.add_argument("--out", type=Path, default=Path("results/strain"))
    given = parser.parse_args()
    patients = ACDC(given.root)
    for method in given.methods:
        path = given.out / f"acdc_{method}.csv"
        rows = read_rows(path, "one row per subject") if path.exists() else []
        measured = {row["subject"] for row in rows}
        for split, names in patients.splits.items():
            for name in (name for name in names if name not in measured):
                (diastole, systole), labels = patients.read(name)
                cine = Cine(np.stack([diastole.array, systole.array]), diastole.grid, name=name)
                about = {"subject": name, "group": read_info(patients.root / name)["Group"], "split": split}
                rows.append(about | measure(cine, labels[0], labels[1], method))
                write_rows(rows, path)
                print(method, name, flush=True)


if __name__ == "__main__":
    main()
