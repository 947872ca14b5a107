"""One registration tool on one pair of volumes; benchmarks/volumes.py starts this in a process of its own.

    python benchmarks/registration_tools.py TOOL PAIR.npz RESULT.npz [--threads 2]

TOOL is one of PEERS, or a method of vrnet. PAIR holds `fixed` and `moving`, both in [0, 1] on one grid, and `spacing`
(mm). RESULT holds `field`, (3, *s) in voxels: the point at x in fixed is at x + field(x) in moving; `seconds` and
`cpu_seconds` (of all cores together) of the registration alone; `peak_bytes` of the process; `version` and `settings`.
Since memory is measured, a tool imports what it needs itself, before the clock starts, and nothing else is imported
here.
"""

import argparse
import resource
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, process_time
from typing import NamedTuple

import numpy as np


class Pair(NamedTuple):
    """Two volumes on one grid, and the edges of its voxels in mm."""

    fixed: np.ndarray
    moving: np.ndarray
    spacing: tuple[float, ...]


@dataclass(frozen=True)
class Tool:
    """A registration tool as it is called: its settings, and what finds the field of a pair with so many threads."""

    package: str
    module: str
    settings: str
    find: Callable[[Pair, int], np.ndarray]


def greedy(pair, threads):
    """greedy, with every default but metric and iterations; its field is not rounded (-wp 0)."""
    from picsl_greedy import Greedy3D

    fixed, moving = itk_images(pair)
    tool, words = Greedy3D(), f"-d 3 -m NCC 2x2x2 -i fixed moving -o warp -wp 0 -threads {threads}"
    tool.execute(f"{words} -n 100x50x20", fixed=fixed, moving=moving, warp=None)
    return in_voxels(tool["warp"])


def convex_adam(pair, threads):
    """ConvexAdam on MIND features, with its defaults, on the CPU (where it computes in float32)."""
    import torch
    from convexAdam.convex_adam_MIND import convex_adam_pt

    torch.set_num_threads(threads)
    options = {"selected_niter": 80, "dtype": torch.float32, "device": torch.device("cpu")}
    return np.moveaxis(convex_adam_pt(pair.fixed, pair.moving, **options), -1, 0)


def syn(pair, threads, metric, iterations):
    """Symmetric normalisation by ANTs without its affine stages; its time includes writing its two fields."""
    import ants

    images = [ants.from_numpy(image, spacing=pair.spacing) for image in (pair.fixed, pair.moving)]
    with TemporaryDirectory() as folder:
        found = ants.registration(
            *images,
            type_of_transform="SyNOnly",
            initial_transform="Identity",
            syn_metric=metric,
            syn_sampling=2 if metric == "CC" else 0,  # the radius of its windows, in voxels
            reg_iterations=iterations,
            outprefix=str(Path(folder) / "syn"),
        )
        field = ants.image_read(found["fwdtransforms"][0]).numpy()
    return np.moveaxis(field / pair.spacing, -1, 0)


def demons(pair, threads, kind, iterations, sigma, step):
    """Demons by SimpleITK, coarse to fine, after histogram matching: sigma smooths the field, and step is the longest
    update, both in voxels."""
    import SimpleITK as sitk

    fixed, moving = itk_images(pair)
    moving, field = sitk.HistogramMatching(moving, fixed, 256, 15, True), None
    for level, count in enumerate(iterations):
        coarse = [shrink(image, 2 ** (len(iterations) - 1 - level)) for image in (fixed, moving)]
        tool = getattr(sitk, f"{kind}DemonsRegistrationFilter")()
        tool.SetNumberOfIterations(count)
        tool.SetStandardDeviations(sigma)
        tool.SetMaximumUpdateStepLength(step)
        field = tool.Execute(*coarse, sitk.Resample(field, coarse[0])) if field else tool.Execute(*coarse)
    return in_voxels(sitk.Resample(field, fixed))


def ours(pair, threads, method):
    """A method of vrnet, by its name."""
    import torch

    from vrnet import register

    torch.set_num_threads(threads)
    return register(pair.fixed, pair.moving, method, spacing=pair.spacing, device="cpu").field


def syn_tool(settings, *given):
    return Tool("antspyx", "ants", settings, partial(syn, metric=given[0], iterations=given[1]))


def demons_tool(settings, **given):
    return Tool("SimpleITK", "SimpleITK", settings, partial(demons, **given))


PEERS = {
    "greedy": Tool("picsl-greedy", "picsl_greedy", "NCC 2x2x2, 100x50x20", greedy),
    "ConvexAdam": Tool("convexAdam", "convexAdam.convex_adam_MIND", "MIND, 80 of Adam", convex_adam),
    "SyN CC": syn_tool("CC radius 2, 100x70x50", "CC", (100, 70, 50)),
    "SyN CC short": syn_tool("CC radius 2, 40x20x10", "CC", (40, 20, 10)),
    "SyN mean squares": syn_tool("meansquares, 100x70x50", "meansquares", (100, 70, 50)),
    "SyN mean squares short": syn_tool("meansquares, 40x20x10", "meansquares", (40, 20, 10)),
    "SimpleITK demons": demons_tool(
        "σ 1.2, step 0.5, 60x40x20", kind="FastSymmetricForces", iterations=(60, 40, 20), sigma=1.2, step=0.5
    ),
    "SimpleITK diffeomorphic demons": demons_tool(
        "σ 1.0, step 2.0, 100x50x20", kind="Diffeomorphic", iterations=(100, 50, 20), sigma=1.0, step=2.0
    ),
}


def itk_images(pair):
    """Both volumes on a grid without rotation, as SimpleITK has them."""
    import SimpleITK as sitk

    images = [sitk.GetImageFromArray(np.ascontiguousarray(image.T)) for image in (pair.fixed, pair.moving)]
    for image in images:
        image.SetSpacing(pair.spacing)
    return images


def in_voxels(field):
    """Displacements in mm that SimpleITK holds, on such a grid, as (3, *s) in voxels."""
    import SimpleITK as sitk

    return sitk.GetArrayFromImage(field).T / np.reshape(field.GetSpacing(), (3, 1, 1, 1))


def shrink(image, factor):
    """Smoothed and sampled every `factor` voxels, along axes that have enough of them."""
    import SimpleITK as sitk

    if factor == 1:
        return image
    smooth = sitk.DiscreteGaussian(image, variance=(factor / 2) ** 2, useImageSpacing=False)
    return sitk.Shrink(smooth, [factor if n >= 16 * factor else 1 for n in image.GetSize()])


def peak_bytes():
    """The most memory that this process has held: VmHWM on Linux, where ru_maxrss begins with that of its parent."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def measure(name, pair, threads):
    """What RESULT holds."""
    tool = PEERS.get(name) or Tool("vrnet", "vrnet", name, partial(ours, method=name))
    import_module(tool.module)
    start, cpu_start = perf_counter(), process_time()
    field = tool.find(pair, threads)
    found = {"seconds": perf_counter() - start, "cpu_seconds": process_time() - cpu_start, "peak_bytes": peak_bytes()}
    found |= {"field": field.astype(np.float32), "settings": tool.settings}
    if name in PEERS:
        return found | {"version": version(tool.package)}
    from vrnet import parse
    from vrnet.provenance import versions

    commit = versions()["commit"] or "installed"
    described = str(parse(name).resolve(3, pair.spacing))  # what a name such as `default` stands for
    return found | {"version": f"{versions()['vrnet']} ({commit[:8]})", "settings": described}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tool")
    parser.add_argument("pair", type=Path)
    parser.add_argument("result", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    with np.load(options.pair) as file:
        pair = Pair(file["fixed"], file["moving"], tuple(file["spacing"].tolist()))
    np.savez(options.result, **measure(options.tool, pair, options.threads))


if __name__ == "__main__":
    main()
