"""How results are looked at from Python: `vrnet.views.Viewer`, as the public face connects it.

A registration of arrays is measured and shown as one of images whose grid is the plain one."""

from dataclasses import replace
from functools import singledispatch
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from vrnet.app.pair import (
    ImagePair,
    MeasuredTransform,
    describe_run,
    image_card,
    measure_transform,
    registration_card,
    transform_card,
)
from vrnet.errors import PYTHON, BadInput
from vrnet.files import check_file
from vrnet.images.grid import Grid
from vrnet.images.image import Cine, Image, as_labels, as_tensor
from vrnet.images.io import given_image
from vrnet.images.transforms import Transform
from vrnet.registration.arrays import Registration
from vrnet.registration.images import ImageRegistration
from vrnet.registration.masks import ImageMasks
from vrnet.report.figures import Card, cine_figure, image_figure, overview, transform_figure
from vrnet.report.measures import is_contrast_opposite
from vrnet.report.page import write_report
from vrnet.verdict.rules import WORDS, Verdict
from vrnet.views import Names

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROLES = "fixed", "moving"


def measure(
    result: Registration[Any] | ImageRegistration,
    fixed_labels: Any = None,
    moving_labels: Any = None,
    label_names: Names = None,
) -> MeasuredTransform:
    """A registration with all that is measured of it; with the labels of both images, of their structures too."""
    found, maps = in_space(result), (fixed_labels, moving_labels)
    labels = [given_labels(result, f"{role}_labels", given) for role, given in zip(ROLES, maps, strict=True)]
    pair = pair_of(found, labels[0], labels[1]).with_label_names(label_names)
    measured = measure_transform(pair, found.transform, found, command=PYTHON)
    return replace(measured, on_fixed_grid=replace(measured.on_fixed_grid, unit=unit_of(result)))


@singledispatch
def unit_of(result: object) -> str:
    """What lengths are counted in: of arrays without a spacing nobody knows how long a millimetre is."""
    return "mm"


@unit_of.register
def _(result: Registration) -> str:  # type: ignore[type-arg]
    return "voxels" if result.spacing is None else "mm"


def pair_of(
    found: ImageRegistration, fixed_labels: Image | None = None, moving_labels: Image | None = None
) -> ImagePair:
    """The images that were registered, with their masks and labels."""
    return ImagePair(found.fixed, found.moving, fixed_labels, moving_labels, found.masks.fixed, found.masks.moving)


@singledispatch
def in_space(result: object) -> ImageRegistration:
    """A registration of arrays as one of images; one of images as it is."""
    raise BadInput(f"a {type(result).__name__} is no registration")


@in_space.register
def _(result: ImageRegistration) -> ImageRegistration:
    return result


@in_space.register
def _(result: Registration) -> ImageRegistration:  # type: ignore[type-arg]
    fixed, moving, warped, field, energies = (
        as_array(part) for part in (result.fixed, result.moving, result.warped, result.field, result.energies)
    )
    grid = Grid.plain(tuple(fixed.shape), result.spacing or (1.0,) * fixed.ndim)
    masks = (
        None if mask is None else Image(as_array(mask), grid, f"the mask of {role}")
        for role, mask in zip(ROLES, (result.inside.fixed, result.inside.moving), strict=True)
    )
    return ImageRegistration(
        transform=Transform.from_voxels(field, grid),
        warped=Image(warped, grid, "warped"),
        energies=energies,
        method=result.method,
        weights=result.weights,
        device=as_tensor(result.field).device.type,
        slice_axis=result.slice_axis,
        affine=None,
        seconds=result.seconds,
        repair=result.repair,
        remap=result.remap,
        options=result.options,
        fixed=Image(fixed, grid, "fixed"),
        moving=Image(moving, grid, "moving"),
        masks=ImageMasks(*masks),
        details=result.details,
    )


def as_array(given: Any) -> Any:
    """The values of an array, or of a tensor of any device."""
    return as_tensor(given).detach().cpu().numpy()


@singledispatch
def given_labels(result: object, name: str, given: object) -> Image | None:
    """The label map that was given, as an image; of a registration of images it is an image or a file."""
    return None if given is None else as_labels(given_image(name, given))


@given_labels.register
def _(result: Registration, name: str, given: object) -> Image | None:  # type: ignore[type-arg]
    if given is None:
        return None
    if not isinstance(given, (np.ndarray, Tensor)):
        raise BadInput(f"{name} are a {type(given).__name__}: give an array or a tensor, as the images were given")
    array, grid = np.asarray(as_array(given)), in_space(result).fixed.grid
    if array.shape != grid.shape:
        raise BadInput(f"{name} are {array.shape} and the images {grid.shape}: give label maps on their grid")
    return as_labels(Image(array, grid, name))


def verdict(measured: MeasuredTransform) -> Verdict:
    """What a registration is worth."""
    said = measured.metrics["verdict"]
    return Verdict(said["level"], tuple(said["reasons"]), tuple(said["try"]))


def report(result: Registration[Any] | ImageRegistration, measured: MeasuredTransform, path: Path) -> Path:
    """Write the page of a registration; returns where."""
    check_file(path, (".html",))
    found = in_space(result)
    energies = [float(energy) for energy in found.energies]
    write_report(path, measured.on_fixed_grid, measured.metrics, energies, describe_run(pair_of(found), found))
    return path


def draw_measured(measured: MeasuredTransform) -> "Figure":
    """Images, differences, grid, motion and Jacobian determinant of the main slice."""
    word = WORDS[measured.metrics["verdict"]["level"]]
    title, names = f"{measured.metrics['method']}; verdict: {word}", measured.metrics.get("label_names")
    return overview(measured.on_fixed_grid, title, names, is_contrast_opposite(measured.metrics))


@singledispatch
def draw(shown: object) -> "Figure":
    """A picture of an image, a cine or a transform."""
    raise BadInput(f"a {type(shown).__name__} cannot be shown")


draw.register(Image, image_figure)
draw.register(Cine, cine_figure)
draw.register(Transform, transform_figure)


def card(shown: Any) -> str:
    """HTML for a notebook."""
    return make_card(shown).html()


@singledispatch
def make_card(shown: Registration[Any] | ImageRegistration) -> Card:
    """What a notebook shows of a registration."""
    return registration_card(shown._measured, shown.verdict)


make_card.register(Image, image_card)
make_card.register(Cine, lambda cine: image_card(cine.image(0), f"{cine!r}"))
make_card.register(Transform, transform_card)
