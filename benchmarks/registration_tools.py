"""One registration tool on one pair of volumes; benchmarks/volumes.py starts this in a process of its own.

    python benchmarks/registration_tools.py TOOL PAIR.npz RESULT.npz [--threads 2] [--quick]

TOOL is one of PEERS, or a method of vrnet. PAIR holds `fixed` and `moving`, both in [0, 1] on one grid, and `spacing`
(mm). RESULT holds `field`, (3, *s) in voxels: the point at x in fixed is at x + field(x) in moving; `seconds` and
`cpu_seconds` (of all cores together) of the registration alone; `peak_bytes` of the process; `version` and `settings`.
Since memory is measured, a tool imports what it needs itself, before the clock starts, and nothing else is imported
here.
"""

import argparse
import resource
import sys
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, process_time
from typing import ClassVar, NamedTuple

import numpy as np


class Pair(NamedTuple):
    """Two volumes on one grid, and the edges of its voxels in mm."""

    fixed: np.ndarray
    moving: np.ndarray
    spacing: tuple[float, ...]


@dataclass(frozen=True)
class Greedy:
    """greedy, with every default but metric and iterations; its field is not rounded (-wp 0)."""

    package: ClassVar = "picsl-greedy"
    module: ClassVar = "picsl_greedy"
    iterations: tuple[int, ...] = (100, 50, 20)

    @property
    def settings(self):
        return f"NCC 2x2x2, {schedule(self.iterations)}"

    def find(self, pair, threads):
        from picsl_greedy import Greedy3D

        fixed, moving = itk_images(pair)
        greedy, words = Greedy3D(), f"-d 3 -m NCC 2x2x2 -i fixed moving -o warp -wp 0 -threads {threads}"
        greedy.execute(f"{words} -n {schedule(self.iterations)}", fixed=fixed, moving=moving, warp=None)
        return in_voxels(greedy["warp"])


@dataclass(frozen=True)
class ConvexAdam:
    """ConvexAdam on MIND features, with its defaults, on the CPU (where it computes in float32)."""

    package: ClassVar = "convexAdam"
    module: ClassVar = "convexAdam.convex_adam_MIND"
    iterations: tuple[int, ...] = (80,)

    @property
    def settings(self):
        return f"MIND, {schedule(self.iterations)} of Adam"

    def find(self, pair, threads):
        import torch
        from convexAdam.convex_adam_MIND import convex_adam_pt

        torch.set_num_threads(threads)
        options = {"selected_niter": self.iterations[0], "dtype": torch.float32, "device": torch.device("cpu")}
        return np.moveaxis(convex_adam_pt(pair.fixed, pair.moving, **options), -1, 0)


@dataclass(frozen=True)
class SyN:
    """Symmetric normalisation by ANTs without its affine stages; its time includes writing its two fields."""

    package: ClassVar = "antspyx"
    module: ClassVar = "ants"
    metric: str
    iterations: tuple[int, ...]
    sampling: int
    """Radius of the windows of CC, in voxels. Mean squares has no use for it."""

    @property
    def settings(self):
        radius = f" radius {self.sampling}" if self.metric == "CC" else ""
        return f"{self.metric}{radius}, {schedule(self.iterations)}"

    def find(self, pair, threads):
        import ants

        images = [ants.from_numpy(image, spacing=pair.spacing) for image in (pair.fixed, pair.moving)]
        with TemporaryDirectory() as folder:
            found = ants.registration(
                *images,
                type_of_transform="SyNOnly",
                initial_transform="Identity",
                syn_metric=self.metric,
                syn_sampling=self.sampling,
                reg_iterations=self.iterations,
                outprefix=str(Path(folder) / "syn"),
            )
            field = ants.image_read(found["fwdtransforms"][0]).numpy()
        return np.moveaxis(field / pair.spacing, -1, 0)


@dataclass(frozen=True)
class Demons:
    """Demons by SimpleITK, coarse to fine, after histogram matching."""

    package: ClassVar = "SimpleITK"
    module: ClassVar = "SimpleITK"
    kind: str
    """FastSymmetricForces, Diffeomorphic."""
    iterations: tuple[int, ...]
    sigma: float
    """Smoothing of the field, in voxels."""
    step: float
    """The longest update, in voxels."""

    @property
    def settings(self):
        return f"σ {self.sigma}, step {self.step}, {schedule(self.iterations)}"

    def find(self, pair, threads):
        import SimpleITK as sitk

        fixed, moving = itk_images(pair)
        moving, field = sitk.HistogramMatching(moving, fixed, 256, 15, True), None
        for level, iterations in enumerate(self.iterations):
            coarse = [shrink(image, 2 ** (len(self.iterations) - 1 - level)) for image in (fixed, moving)]
            demons = getattr(sitk, f"{self.kind}DemonsRegistrationFilter")()
            demons.SetNumberOfIterations(iterations)
            demons.SetStandardDeviations(self.sigma)
            demons.SetMaximumUpdateStepLength(self.step)
            field = demons.Execute(*coarse, sitk.Resample(field, coarse[0])) if field else demons.Execute(*coarse)
        return in_voxels(sitk.Resample(field, fixed))


@dataclass(frozen=True)
class Ours:
    """A method of vrnet, by its name."""

    package: ClassVar = "vrnet"
    module: ClassVar = "vrnet"
    settings: str

    def find(self, pair, threads):
        import torch

        from vrnet import register

        torch.set_num_threads(threads)
        return register(pair.fixed, pair.moving, self.settings, spacing=pair.spacing, device="cpu").field


PEERS = {
    "greedy": Greedy(),
    "ConvexAdam": ConvexAdam(),
    "SyN CC": SyN("CC", (100, 70, 50), sampling=2),
    "SyN CC short": SyN("CC", (40, 20, 10), sampling=2),
    "SyN mean squares": SyN("meansquares", (100, 70, 50), sampling=0),
    "SyN mean squares short": SyN("meansquares", (40, 20, 10), sampling=0),
    "SimpleITK demons": Demons("FastSymmetricForces", (60, 40, 20), sigma=1.2, step=0.5),
    "SimpleITK diffeomorphic demons": Demons("Diffeomorphic", (100, 50, 20), sigma=1.0, step=2.0),
}


def schedule(iterations):
    """The number of iterations at each level, coarsest first: 100x50x20."""
    return "x".join(map(str, iterations))


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


def cut_short(tool):
    """The tool with one iteration per level."""
    return replace(tool, iterations=(1,) * len(tool.iterations)) if hasattr(tool, "iterations") else tool


def version_of(tool):
    """The version of a tool's package; of vrnet, with the commit."""
    if tool.package != "vrnet":
        return version(tool.package)
    from vrnet.provenance import versions

    return f"{versions()['vrnet']} ({(versions()['commit'] or 'installed')[:8]})"


def settings_of(tool, spacing):
    """What a tool was asked for; of vrnet, the method that a name such as `default` stands for."""
    if tool.package != "vrnet":
        return tool.settings
    from vrnet import parse

    return str(parse(tool.settings).resolve(3, spacing))


def peak_bytes():
    """The most memory that this process has held: VmHWM on Linux, where ru_maxrss begins with that of its parent."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def measure(tool, pair, threads):
    """What RESULT holds."""
    import_module(tool.module)
    start, cpu_start = perf_counter(), process_time()
    field = tool.find(pair, threads)
    seconds = {"seconds": perf_counter() - start, "cpu_seconds": process_time() - cpu_start}
    measured = {**seconds, "peak_bytes": peak_bytes()}
    described = {"version": version_of(tool), "settings": settings_of(tool, pair.spacing)}
    return {"field": field.astype(np.float32), **measured, **described}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tool")
    parser.add_argument("pair", type=Path)
    parser.add_argument("result", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="one iteration per level, for the peers")
    options = parser.parse_args()
    tool = PEERS.get(options.tool) or Ours(options.tool)
    with np.load(options.pair) as file:
        pair = Pair(file["fixed"], file["moving"], tuple(file["spacing"].tolist()))
    np.savez(options.result, **measure(cut_short(tool) if options.quick else tool, pair, options.threads))


if __name__ == "__main__":
    main()
