"""What can be registered, as far as shapes go."""

from numbers import Integral

from vrnet.errors import BadInput


def check_axes(shape: tuple[int, ...], slice_axis: int | None) -> None:
    """BadInput unless every axis along which motion is sought has at least two voxels."""
    if slice_axis is not None and not (isinstance(slice_axis, Integral) and len(shape) == 3 and 0 <= slice_axis < 3):
        raise BadInput(f"slice_axis is {slice_axis} for images of {shape}: give 0, 1 or 2; only volumes have slices")
    if min(n for axis, n in enumerate(shape) if axis != slice_axis) < 2:
        raise BadInput(f"the images are {shape}: every axis but the one across slices needs at least 2 voxels")
