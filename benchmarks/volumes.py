"""Methods of vrnet beside other registration tools, on the same pairs of volumes: Dice, folds, seconds and memory.

    pip install --constraint constraints.txt --editable '.[baselines,peers]'
    python benchmarks/volumes.py --hippocampus HIPPOCAMPUS --brains BRAINS --threads 2
    python benchmarks/volumes.py --check                  # does every tool find a known shift?

HIPPOCAMPUS is the root of that data set; BRAINS holds a_t1, a_seg, b_t1, b_seg (.nii.gz): two affinely aligned,
skull-stripped T1 brains and their labels. Every tool gets the same two volumes in [0, 1] on one grid and has a process
of its own for each pair; its field, in voxels of fixed, is judged here by the same code. Dice is the mean over labels
(of brains: those that both have), then over pairs; folds are strict; seconds are those of the registration alone (of
SyN with the writing of its fields): on the clock, and of all cores together, which other work on the machine hardly
changes. Memory is the peak of the whole process, Python and libraries included.

rows.csv in the folder of --out gets one row per tool and pair as soon as it is measured. What is there is not measured
again: remove its lines to do so. table.md and table.json are made from it.
"""

import argparse
import os
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from scipy.ndimage import gaussian_filter

from registration_tools import PEERS
from rows import append_row, read_measured
from vrnet import BadInput, parse, read_image
from vrnet.data.prepared import Source
from vrnet.evaluation.metrics import by_label, dice, folding_strict_percent
from vrnet.fields.calculus import warp_labels
from vrnet.files import write_bytes, write_json
from vrnet.images.image import rescale_images_jointly

OURS = "Gaussian-LNCC", "TV-L1", "default"
KEY = "data", "pair", "threads", "tool"
MEASURES = "dice_before", "dice", "folding_strict_percent", "seconds", "cpu_seconds", "peak_gib"
COLUMNS = *KEY, "settings", "version", *MEASURES
MAX_SHIFT_ERROR = 0.5
"""In voxels. A wrong sign, axis or unit is wrong by 1 at least."""


# Pairs of volumes, prepared alike for all tools.

SHIFT = 2.0, -1.0, 3.0
"""The motion of `shifted_pair`, in voxels."""


@dataclass(frozen=True, eq=False)
class LabelledPair:
    """Two volumes in [0, 1] on one grid, and what they show."""

    data: str
    name: str
    fixed: np.ndarray
    moving: np.ndarray
    spacing: tuple[float, ...]
    fixed_labels: np.ndarray
    moving_labels: np.ndarray
    labels: tuple[int, ...]
    """Those that Dice is the mean over."""


def hippocampi(root, split, count):
    """(data, name, how to load it) of each pair of a split."""
    pairs = Source("hippocampus", root).split(split, "evaluation", lambda name: lambda done: None, print)
    labels, data = tuple(pairs.structures.values()), f"hippocampus ({split})"

    def load(k):
        sample = pairs.samples[k]
        parts = sample.fixed, sample.moving, sample.fixed_labels, sample.moving_labels
        fixed, moving, *maps = (part[0, 0].numpy() for part in parts)
        return LabelledPair(data, sample.name, fixed, moving, sample.spacing, *maps, labels)

    return [(data, name, lambda k=k: load(k)) for k, name in enumerate(pairs.names[:count])]


def brains(folder):
    """(data, name, how to load it) of the one pair of brains."""

    def load():
        names = "a_t1", "b_t1", "a_seg", "b_seg"
        found = {name: next(folder.glob(f"{name}.*"), None) for name in names}
        if missing := [name for name in names if found[name] is None]:
            raise BadInput(f"there is no {folder / missing[0]}.nii.gz: give the folder of {', '.join(names)}")
        images = [read_image(path) for path in found.values()]
        if any(image.grid != images[0].grid for image in images):
            raise BadInput(f"the images of {folder} have several grids: resample them to one")
        fixed, moving = (image.array for image in rescale_images_jointly(*images[:2]))
        maps = [image.array for image in images[2:]]
        shared = tuple(label for label in np.intersect1d(*maps).tolist() if label)
        return LabelledPair("brains", "a to b", fixed, moving, images[0].grid.spacing, *maps, shared)

    return [("brains", "a to b", load)]


def shifted_pair():
    """A textured ball that moves by SHIFT, on voxels that are no cubes: the label is well inside it."""
    shape, spacing = (36, 40, 44), (1.0, 1.25, 1.5)
    x = np.stack(np.meshgrid(*(np.arange(n) - n / 2 for n in shape), indexing="ij"))
    texture = gaussian_filter(np.random.default_rng(0).standard_normal(shape), 2.5)
    inside = gaussian_filter((np.linalg.norm(x, axis=0) < 14).astype(float), 1.0)
    fixed = (inside * (0.5 + 0.25 * texture / texture.std()).clip(0, 1)).astype(np.float32)
    core = (np.linalg.norm(x, axis=0) < 10).astype(np.uint8)
    moving, moved = (np.roll(image, [int(s) for s in SHIFT], (0, 1, 2)) for image in (fixed, core))
    return LabelledPair("shift", "ball", fixed, moving, spacing, core, moved, (1,))


# Tools, each in a process of its own.


class ToolFailed(Exception):
    """A tool ended without a field."""


def run_tool(tool, pair, threads):
    """What benchmarks/registration_tools.py finds for a pair in a process of its own."""
    environment = os.environ | dict.fromkeys(("OMP_NUM_THREADS", "ITK_GLOBAL_DEFAULT_NUMBER_OF_THREADS"), str(threads))
    with TemporaryDirectory() as folder:
        given, found = Path(folder) / "pair.npz", Path(folder) / "result.npz"
        np.savez(given, fixed=pair.fixed, moving=pair.moving, spacing=pair.spacing)
        script = Path(__file__).with_name("registration_tools.py")
        command = [sys.executable, script, tool, given, found, "--threads", str(threads)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, errors="replace")
        if done.returncode:
            last_line = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
            raise ToolFailed(f"{tool} failed: {last_line}")
        with np.load(found) as file:
            return {key: file[key] if key == "field" else file[key].item() for key in file.files}


def mean_dice(pair, field):
    """Mean Dice over the labels of a pair, once those of moving are warped by a field in voxels."""
    moving = torch.from_numpy(pair.moving_labels)[None, None]
    warped = warp_labels(moving, torch.from_numpy(field)[None])[0, 0].numpy()
    return float(np.nanmean(list(by_label(dice, pair.fixed_labels, warped, pair.labels).values())))


def measure(tool, pair, threads):
    """The row of a tool and a pair, without its key."""
    found = run_tool(tool, pair, threads)
    return {
        **{key: found[key] for key in ("settings", "version", "seconds", "cpu_seconds")},
        "dice_before": mean_dice(pair, np.zeros_like(found["field"])),
        "dice": mean_dice(pair, found["field"]),
        "folding_strict_percent": folding_strict_percent(torch.from_numpy(found["field"])[None]),
        "peak_gib": found["peak_bytes"] / 2**30,
    }


def missing(tool):
    """Why a tool cannot be measured here; None if it can."""
    if tool in PEERS:
        try:
            version(PEERS[tool].package)
        except PackageNotFoundError:
            return f"{tool}: {PEERS[tool].package} is not installed on this machine"
    return None


def compare(pairs, tools, threads, path):
    """Measure every tool on every pair that the file does not have, and say what could not be: {tool: why}."""
    failed = {tool: why for tool in tools if (why := missing(tool))}
    todo = [(pair, tool) for pair in pairs for tool in tools if tool not in failed]
    known = {tuple(row[key] for key in KEY) for row in read_measured(path)}
    for number, ((data, name, load), tool) in enumerate(todo, start=1):
        key = data, name, str(threads), tool
        if key in known:
            continue
        print(f"{number}/{len(todo)} {data}, {name}, {tool}:", end=" ", flush=True)
        try:
            row = measure(tool, load(), threads)
        except ToolFailed as error:
            failed[tool] = str(error)
            print(error, flush=True)
            continue
        append_row(dict(zip(KEY, key, strict=True)) | row, path, COLUMNS)
        print("Dice {dice_before:.3f} -> {dice:.3f}, folds {folding_strict_percent:.2f} %, {seconds:.1f} s, "
              "{peak_gib:.2f} GiB".format(**row), flush=True)  # fmt: skip
    return failed


def summarise(rows):
    """One row per data set, number of threads and tool: means over pairs; of memory, the most."""

    def group(row):
        return row["data"], row["threads"], row["tool"]

    found = []
    for (data, threads, tool), same in groupby(sorted(rows, key=group), key=group):
        part = list(same)
        values = {key: np.array([float(row[key]) for row in part]) for key in MEASURES}
        found.append({
            "data": data, "threads": int(threads), "tool": tool, "pairs": len(part),
            **{key: "; ".join(dict.fromkeys(row[key] for row in part)) for key in ("settings", "version")},
            **{key: value.mean() for key, value in values.items()},
            "dice_std": values["dice"].std(), "peak_gib": values["peak_gib"].max(),
        })  # fmt: skip
    return found


def table(summary, failed):
    """A Markdown table per data set and number of threads, best Dice first; then what could not be measured.

    Tools that lack pairs come last: their means are over other pairs, and do not compare."""
    lines = []
    for (data, threads), same in groupby(summary, key=lambda row: (row["data"], row["threads"])):
        rows = sorted(same, key=lambda row: (-row["pairs"], -row["dice"]))
        lines += [
            f"**{data}**, pairs: {rows[0]['pairs']}, threads: {threads}, "
            f"Dice before registration: {rows[0]['dice_before']:.3f}", "",
            "| tool | settings | pairs | Dice (std) | folded (strict), % | seconds (CPU) | peak memory, GiB "
            "| version |",
            "| --- | --- | --- | --- | --- | --- | --- | --- |",
        ]  # fmt: skip
        lines += [
            "| {tool} | {settings} | {pairs} | {dice:.3f} ({dice_std:.3f}) | {folding_strict_percent:.2f} "
            "| {seconds:.1f} ({cpu_seconds:.1f}) | {peak_gib:.2f} | {version} |".format(**row)
            for row in rows
        ]
        lines.append("")
    return "\n".join(lines + [f"- {why}" for why in failed.values()])


def check(tools, threads):
    """Say how far each tool is from a known shift; return whether all that are installed are near."""
    pair, errors = shifted_pair(), {}
    for tool in tools:
        if why := missing(tool):
            print(why)
            continue
        errors[tool] = shift_error(tool, pair, threads)
        print(f"{tool}: {errors[tool]:.3f} voxels from a shift by {SHIFT}", flush=True)
    return all(error <= MAX_SHIFT_ERROR for error in errors.values())


def shift_error(tool, pair, threads):
    """Median distance, in voxels, between the field that a tool finds and SHIFT, well inside the ball."""
    field = run_tool(tool, pair, threads)["field"]
    distance = np.linalg.norm(field - np.reshape(SHIFT, (3, 1, 1, 1)), axis=0)
    return float(np.median(distance[pair.fixed_labels > 0]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ours", nargs="*", default=OURS, metavar="METHOD", help="methods of vrnet")
    parser.add_argument("--peers", nargs="*", default=list(PEERS), choices=list(PEERS), metavar="TOOL")
    parser.add_argument("--hippocampus", type=Path, help="the root of the data set")
    parser.add_argument("--split", default="test", choices=("val", "test"))
    parser.add_argument("--pairs", type=int, help="how many of the split, the first ones; all if not given")
    parser.add_argument("--brains", type=Path, help="a folder with a_t1, a_seg, b_t1 and b_seg")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--check", action="store_true", help="only see that every tool finds a known shift")
    parser.add_argument("--out", type=Path, default=Path("results/volumes"))
    options = parser.parse_args()
    try:
        for method in options.ours:
            parse(method)
        tools = [*options.ours, *options.peers]
        if options.check:
            sys.exit(not check(tools, options.threads))
        pairs = hippocampi(options.hippocampus, options.split, options.pairs) if options.hippocampus else []
        pairs += brains(options.brains) if options.brains else []
        if not pairs:
            raise BadInput("there is nothing to register: give --hippocampus, --brains or both")
        failed = compare(pairs, tools, options.threads, options.out / "rows.csv")
    except (BadInput, ToolFailed) as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    summary = summarise(read_measured(options.out / "rows.csv"))
    write_json({"tools": summary, "not measured": failed}, options.out / "table.json")
    write_bytes(f"{table(summary, failed)}\n".encode(), options.out / "table.md")
    print(f"\n{table(summary, failed)}")


if __name__ == "__main__":
    main()
