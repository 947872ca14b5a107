"""External tools behind `(I0, I1, spacing) -> u`: FFD by elastix, diffeomorphic demons by SimpleITK, SyN by ANTs. Each
gets the pair in [0, 1] on a plain grid in mm, and gives displacements in mm, fixed to moving. Parameters were tuned on
validation subjects by benchmarks/tune.py: in 2D on ACDC, in 3D on hippocampi and phantoms."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from numpy import ndarray

from vrnet.errors import BadInput, check_range
from vrnet.images.grid import Grid
from vrnet.images.image import to_sitk
from vrnet.methods.method import CPU, Method
from vrnet.methods.parameters import PerDimension, changes, value_in
from vrnet.provenance import how_to_install
from vrnet.variational.cascade import Initializer, Spacing
from vrnet.variational.linearize import Field, Images, Masks

MaskArrays = Sequence[ndarray]  # 1 inside and 0 outside, of fixed and of moving; none where all counts
Iterations = tuple[int, ...]


@runtime_checkable
class ExternalTool(Method, Protocol):
    """An external tool: `find` gives the displacements of one pair on a plain grid, in mm, fixed to moving."""

    devices: tuple[str, ...] = ("cpu",)
    package: str

    def find(self, fixed: ndarray, moving: ndarray, spacing: tuple[float, ...], masks: MaskArrays) -> ndarray: ...

    def __str__(self) -> str:
        return type(self).__name__ + changes(self, type(self)())

    def build(self, d: int, device: torch.device = CPU) -> Initializer:
        """Each pair in turn, millimetres to voxels; BadInput where the tool is absent."""
        if not is_installed(self.package):
            raise BadInput(f"this method needs {self.package}, which is not installed: {how_to_install('baselines')}")

        def register(I0: Images, I1: Images, spacing: Spacing = None, masks: Masks | None = None) -> Field:
            h = spacing or (1.0,) * (I0.dim() - 2)
            images = I0, I1, *((masks.fixed, masks.moving) if masks else ())
            arrays = [image[:, 0].cpu().numpy() for image in images]
            u = torch.zeros(len(I0), len(h), *I0.shape[2:])
            for k, (fixed, moving, *inside) in enumerate(zip(*arrays, strict=True)):
                if not inside or np.logical_and(*inside).any():  # tools refuse a slice with nothing to compare
                    mm = self.find(fixed, moving, h, inside).astype(np.float32)
                    u[k] = torch.from_numpy(mm / np.reshape(h, (-1, *[1] * len(h))).astype(np.float32))
            return u.to(I0.device)

        return register


@dataclass(frozen=True)
class Demons(ExternalTool):
    """Diffeomorphic demons, after histogram matching."""

    package = "SimpleITK"
    summary = "outside tool: diffeomorphic demons (SimpleITK)"
    masks = "not of the tool: each image, outside its mask, is given as the other"
    sigma: float | PerDimension[float] = PerDimension(2.0, 1.0)  # noqa: RUF009
    """Standard deviation of the smoothing of the field, in voxels."""
    step: float = 2.0
    """The longest update, in voxels."""
    iterations: Iterations | PerDimension[Iterations] = PerDimension((100, 100, 50), (100, 50, 20))  # noqa: RUF009
    """The number of iterations at each level, coarsest first."""

    def __post_init__(self) -> None:
        check_range({"step": self.step}, above=True)
        check_schedule(self.sigma, self.iterations)

    def find(self, fixed: ndarray, moving: ndarray, spacing: tuple[float, ...], masks: MaskArrays) -> ndarray:
        import SimpleITK as sitk

        if masks:  # which the tool does not take: each image, outside its own, is given as the other
            w0, w1, I0, I1 = (torch.from_numpy(array)[None, None] for array in (*masks, fixed, moving))
            fixed, moving = (image[0, 0].numpy() for image in Masks(w0, w1).fill(I0, I1))
        images = [to_sitk(image, Grid.plain(image.shape, spacing)) for image in (fixed, moving)]
        images[1] = sitk.HistogramMatching(images[1], images[0], 256, 15, True)
        field: Any = None
        sigma, schedule = value_in(self.sigma, fixed.ndim), value_in(self.iterations, fixed.ndim)
        for level, iterations in enumerate(schedule):
            coarse, factor = images, 2 ** (len(schedule) - 1 - level)
            if factor > 1:  # smoothed and sampled every so many voxels, along axes that have enough of them
                smooth = [sitk.DiscreteGaussian(image, (factor / 2) ** 2, useImageSpacing=False) for image in images]
                coarse = [sitk.Shrink(I, [factor if n >= 16 * factor else 1 for n in I.GetSize()]) for I in smooth]
            demons = sitk.DiffeomorphicDemonsRegistrationFilter()
            demons.SetNumberOfIterations(iterations)
            demons.SetStandardDeviations(sigma)
            demons.SetSmoothDisplacementField(True)
            demons.SetMaximumUpdateStepLength(self.step)
            field = demons.Execute(*coarse, sitk.Resample(field, coarse[0])) if field else demons.Execute(*coarse)
        return sitk.GetArrayFromImage(sitk.Resample(field, images[0])).T


@dataclass(frozen=True)
class SyN(ExternalTool):
    """Symmetric normalisation: mean squares in 2D, cross-correlation in 3D."""

    package = "antspyx"
    summary = "outside tool: symmetric normalisation (ANTs)"
    masks = "those of ANTs"
    flow_sigma: float | PerDimension[float] = PerDimension(5.0, 3.0)  # noqa: RUF009
    """Smoothing of the update field, in voxels."""
    total_sigma: float = 0.0
    """Smoothing of the whole field, in voxels."""
    iterations: Iterations | PerDimension[Iterations] = PerDimension((100, 100, 50), (50, 20, 0))  # noqa: RUF009
    """The number of iterations at each level, coarsest first."""
    radius: int = 2
    """Radius of the windows of the cross-correlation, in voxels; used in 3D only."""

    def __post_init__(self) -> None:
        check_range({"radius": self.radius}, above=True)
        check_schedule(self.flow_sigma, self.iterations)

    def find(self, fixed: ndarray, moving: ndarray, spacing: tuple[float, ...], masks: MaskArrays) -> ndarray:
        import ants

        images = [ants.from_numpy(I.astype(np.float32), spacing=spacing) for I in (fixed, moving, *masks)]
        metric = {"syn_metric": "meansquares"} if fixed.ndim == 2 else {"syn_metric": "CC", "syn_sampling": self.radius}
        where = dict(zip(("mask", "moving_mask"), images[2:], strict=False))
        with TemporaryDirectory() as folder:
            found = ants.registration(
                *images[:2], type_of_transform="SyNOnly", initial_transform="Identity",
                flow_sigma=value_in(self.flow_sigma, fixed.ndim), total_sigma=self.total_sigma,
                reg_iterations=value_in(self.iterations, fixed.ndim), outprefix=str(Path(folder) / "syn"),
                **metric, **where,
            )  # fmt: skip
            return np.moveaxis(ants.image_read(found["fwdtransforms"][0]).numpy(), -1, 0)


@dataclass(frozen=True)
class FFD(ExternalTool):
    """Free-form deformation: cubic B-splines, mean squared differences and bending energy, by elastix."""

    package = "itk-elastix"
    summary = "outside tool: free-form deformation by B-splines, with bending energy (elastix)"
    masks = "those of elastix"
    spacing: float = 8.0
    """Distance between control points at the finest level, in mm."""
    bending: float = 0.1
    """Weight of the bending energy."""
    levels: int = 3
    samples: int = 2048
    """Voxels drawn at random at each iteration."""
    iterations: int = 200
    """The number of iterations at each level."""
    step: float = 0.9
    """Length of the longest first update, about, in mm."""

    def __post_init__(self) -> None:
        check_range({"bending": self.bending})
        positive = "spacing", "levels", "samples", "iterations", "step"
        check_range({name: getattr(self, name) for name in positive}, above=True)

    def find(self, fixed: ndarray, moving: ndarray, spacing: tuple[float, ...], masks: MaskArrays) -> ndarray:
        import itk

        def to_itk(array: ndarray, kind: type) -> Any:
            image = itk.image_from_array(np.ascontiguousarray(array.T, dtype=kind))
            image.SetSpacing(spacing)
            return image

        images = [to_itk(image, np.float32) for image in (fixed, moving)]
        where = {f"{role}_mask": to_itk(mask, np.uint8) for role, mask in zip(("fixed", "moving"), masks, strict=False)}
        parameters = itk.ParameterObject.New()
        names = parameters.GetDefaultParameterMap("bspline", self.levels, self.spacing)
        names["Metric"] = ["AdvancedMeanSquares", "TransformBendingEnergyPenalty"]
        changed = {
            "Registration": "MultiMetricMultiResolutionRegistration", "Metric0Weight": 1, "Metric1Weight": self.bending,
            "MaximumNumberOfIterations": self.iterations, "MaximumStepLength": self.step, "RandomSeed": 1,
            "ImageSampler": "RandomCoordinate", "NumberOfSpatialSamples": self.samples,
            "NewSamplesEveryIteration": "true",
            "NumberOfSamplesForExactGradient": 4096,  # for the step sizes: more take far longer, to the same end
            "RequiredRatioOfValidSamples": 0.001 if where else 0.25,  # samples outside a mask are not valid
            "AutomaticTransformInitialization": "false", "ResultImagePixelType": "float",
        }  # fmt: skip
        for name, value in changed.items():
            names[name] = [str(value)]
        parameters.AddParameterMap(names)
        try:
            how = {"parameter_object": parameters, "log_to_console": False, **where}
            _, found = itk.elastix_registration_method(*images, **how)
        except RuntimeError as error:
            if not where:
                raise
            raise BadInput("elastix finds too few voxels inside both masks: give larger ones, or no FFD") from error
        with TemporaryDirectory() as folder:  # or it leaves the field in the working directory
            field = itk.transformix_deformation_field(images[1], found, output_directory=folder)
        return itk.array_from_image(field).T


def check_schedule(sigma: float | PerDimension[float], iterations: Iterations | PerDimension[Iterations]) -> None:
    """BadInput unless there is a level with iterations, and smoothing is not negative, in 2D and in 3D."""
    for d in (2, 3):
        counts = value_in(iterations, d)
        check_range({"the smoothing": value_in(sigma, d)})
        if not counts or min(counts) < 0:
            raise BadInput(f"iterations is {counts}: give one number per level, zero or more")


def is_installed(package: str) -> bool:
    """Whether the package is installed; it is not loaded."""
    try:
        return bool(version(package))
    except PackageNotFoundError:
        return False
