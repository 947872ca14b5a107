"""End-diastole and end-systole of ACDC as a cine of two frames: how much hearts strain and eject.

    python benchmarks/strain.py --root ACDC [--methods short-axis-cine TV-L1] [--out results/strain]

The labels of end-diastole alone are tracked; the ejection fraction is compared with that of the labels of end-systole.
Writes acdc_METHOD.csv with one row per subject, which benchmarks/strain_figure.py draws; subjects that are in it are
not measured again. ACDC: the folder of patientNNN/ and split.csv.

    python benchmarks/strain.py --root ACDC --cycles ACDC_CINE [--split test]

Whole cycles of the middle slices, patientNNN_4d.nii.gz and frames.csv (ED, ES from 0), with the labels of end-diastole
by experts, and by the network: writes cycles.csv, and the Bland-Altman plot of the ejection fractions, ejection.png.
"""

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from vrnet import Cine, track
from vrnet.cardiac.strain import TITLES
from vrnet.cardiac.volumes import slices_first, volumes
from vrnet.cardiac.wall import HeartLabels
from vrnet.data.dataset import ACDC, read_info
from vrnet.evaluation.metrics import by_label, dice
from vrnet.files import read_rows, write_rows
from vrnet.images.io import read_cine
from vrnet.images.resample import place_labels
from vrnet.report.figures import save
from vrnet.vocabulary import HEART, LEVELS


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


ESTIMATES = "measured", "by_motion_alone", "by_the_network_alone"


def measure_cycle(path, given, frames):
    """What `track` finds of a cycle from end-diastole on, by the labels of experts and by the network, beside experts'
    labels of both phases, which are on other grids."""
    cine = read_cine(path)
    diastole, systole = (place_labels(labels, cine.grid) for labels in given)
    truth = volumes(np.stack([diastole.array, systole.array]), cine.grid.spacing)
    found = {}
    for by, labels in (("experts", diastole), ("network", "auto")):
        result = track(cine, labels=labels, frame=frames[0])
        strain, alone = result.strain, result.ejection_fractions_percent
        at_end = {} if result.labels is None else by_label(dice, systole.array, result.labels[frames[1]], (1, 2, 3))
        areas = sum(result.kept.area_mm2.values(), np.zeros(len(cine)))
        wall = np.ones(1) if result.volumes is None else result.volumes.wall_ml
        first = 0 if result.volumes is None else result.frame
        found[by] = {
            "outlines": result.outlines_by or "none", "level": result.seen.level if result.seen else "",
            **{f"dice_{name}": round(at_end.get(str(label), np.nan), 4) for name, label in HEART.items()},
            **{f"ejection_{name}": round(value, 3) for name, value in truth.ejection_fractions_percent.items()},
            **{
                f"ejection_{name}_{estimate}": round(alone.get(estimate.replace("_", " "), {}).get(name, np.nan), 3)
                for estimate in ESTIMATES
                for name in ("LV", "RV")
            },
            "wall_change_percent": round(100 * float(np.abs(wall / wall[first] - 1).max()), 2),
            "wall_growth_in_motion_percent": round(100 * float(areas.max() / max(areas[result.frame], 1) - 1), 2),
            **{name: round(strain.peak(name).percent, 3) if strain else "" for name in TITLES},
            "twist": round(strain.twist["degrees"], 2) if strain and strain.twist else "",
        }  # fmt: skip
    return found


def run_cycles(root, cycles, split, path):
    """A row per patient and reader of the labels of end-diastole."""
    patients, rows = ACDC(root), read_rows(path, "one row per subject") if path.exists() else []
    frames = {
        row["patient"]: (int(row["ed_frame"]), int(row["es_frame"])) for row in read_rows(cycles / "frames.csv", "")
    }
    for name in patients.splits[split]:
        if name not in {row["subject"] for row in rows}:
            group = read_info(patients.root / name)["Group"]
            found = measure_cycle(cycles / f"{name}_4d.nii.gz", patients.read(name)[1], frames[name])
            rows += [{"subject": name, "group": group, "split": split, "labels": by} | row for by, row in found.items()]
            write_rows(rows, path)
            print(split, name, flush=True)
    return rows


def plot_agreement(rows, path):
    """Differences of ejection fractions from experts' over their means, with bias and limits of agreement."""
    figure, axes = plt.subplots(1, 3, figsize=(11, 3.4), sharey=True, layout="constrained")
    titles = {
        "measured": "as told, no labels given",
        "by_motion_alone": "by motion alone",
        "by_the_network_alone": "by the network alone",
    }
    for ax, (estimate, title) in zip(axes, titles.items(), strict=True):
        for name, colour in (("LV", "#d3222b"), ("RV", "#0f7ea3")):
            pairs = np.array([
                [float(row[f"ejection_{name}"]), float(row[f"ejection_{name}_{estimate}"] or "nan")]
                for row in rows if row["labels"] == "network"
            ])  # fmt: skip
            pairs = pairs[np.isfinite(pairs).all(1)]
            gap = pairs[:, 1] - pairs[:, 0]
            bias, reach = gap.mean(), 1.96 * gap.std(ddof=1)
            ax.plot(pairs.mean(1), gap, "o", color=colour, markersize=4, label=f"{name}: {bias:+.1f} ± {reach:.1f}")
            for height, style in ((bias, "-"), (bias - reach, ":"), (bias + reach, ":")):
                ax.axhline(height, color=colour, linestyle=style, linewidth=1)
        ax.set_title(title, fontsize=10)
        ax.set_xlabel("mean of both ejection fractions, %")
        ax.legend(fontsize=8)
    axes[0].set_ylabel("found minus experts', points")
    save(figure, path)


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
    parser.add_argument("--cycles", type=Path, help="the folder of whole cycles, which are measured instead")
    parser.add_argument("--split", default="test", choices=("train", "val", "test"))
    given = parser.parse_args()
    if given.cycles:
        rows = run_cycles(given.root, given.cycles, given.split, given.out / "cycles.csv")
        plot_agreement(rows, given.out / "ejection.png")
        return
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
