"""Two images in, the deformation between them out: the main job, start to end."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import current_thread, main_thread
from time import perf_counter
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vrnet.data.preprocessing import rescale_jointly
from vrnet.errors import BadInput
from vrnet.fields import determinant, jacobian, warp, warp_labels
from vrnet.methods.names import Method, parse
from vrnet.variational.progress import watching

SMALL = 256 * 256
Array = TypeVar("Array", NDArray[Any], Tensor)


@dataclass(frozen=True, repr=False)
class Registration(Generic[Array]):
    """What was found. Arrays in, arrays out; tensors in, tensors out, on their device."""

    field: Array
    """(d, *s), in voxels: the point at x in fixed is at x + field(x) in moving."""
    warped: Array
    """moving(x + field(x)), in the intensities of moving."""
    energies: Array
    """The energy of no motion, then after each linearisation at full resolution, until it stopped."""
    method: str
    seconds: float

    def __repr__(self) -> str:
        return f"Registration({self.method}, field {tuple(self.field.shape)}, {self.seconds:.2f} s)"

    def warp(self, image: Array) -> Array:
        """image(x + field(x)), linear: any image on the grid of moving, (*s)."""
        return self._on_batch(lambda I, u: warp(I if I.is_floating_point() else I.to(u), u), image)

    def warp_labels(self, labels: Array) -> Array:
        """labels(x + field(x)) at the nearest voxel: a label map on the grid of moving, every value and type kept."""
        return self._on_batch(warp_labels, labels)

    def determinant(self) -> Array:
        """det(I + ∇field): below 1 where fixed is larger than moving, negative where the field folds."""
        return self._on_batch(lambda _, u: determinant(jacobian(u))[:, None], self.warped)

    def _on_batch(self, function: Callable[[Tensor, Tensor], Tensor], image: Array) -> Array:
        """function of an image and the field as batches of one, its result as arrays or tensors again."""
        if tuple(image.shape) != tuple(self.field.shape[1:]):
            raise BadInput(f"the image is {tuple(image.shape)}: give one of moving's shape, {tuple(self.warped.shape)}")
        result = function(tensor(image)[None, None], tensor(self.field)[None])[0, 0]
        return result if isinstance(self.field, Tensor) else result.numpy()


def register(
    fixed: Array,
    moving: Array,
    method: str | Method = "TV-L1",
    progress: Callable[[float], None] | None = None,
) -> Registration[Array]:
    """Find u with moving(x + u(x)) ≈ fixed(x).

    Both are floating-point arrays or tensors of one shape, 2D or 3D. The same change of brightness or contrast in both
    does not matter; a different one does, since the same tissue is expected to be equally bright. Voxels are taken as
    cubes. The work is done in float32. `progress` is called with the part done, from 0 to 1.
    """
    start = perf_counter()
    I0, I1 = checked(fixed, moving)
    chosen = named(method)
    solver = chosen.build().to(I0.device)
    with torch.inference_mode(), few_threads(I0.numel()), watching(solver, tuple(I0.shape[2:]), None, progress):
        descent = solver.descend(*rescale_jointly(I0, I1))
        warped = warp(I1, descent.v)
    found = [part.clone() for part in (descent.v[0], warped[0, 0], descent.energies[:, 0])]  # usable in autograd
    field, image, energies = found if isinstance(fixed, Tensor) else [part.numpy() for part in found]
    return Registration(field, image, energies, method=str(chosen), seconds=perf_counter() - start)


def tensor(array: NDArray[Any] | Tensor) -> Tensor:
    """A tensor of the same values, whatever the layout and byte order of the array."""
    if isinstance(array, Tensor):
        return array
    wide = np.float64 if array.dtype.kind == "f" and array.dtype.itemsize > 8 else array.dtype.newbyteorder("=")
    return torch.from_numpy(array.astype(wide, order="C"))


def named(method: object) -> Method:
    """The method of a name, or the method itself, or BadInput."""
    if not isinstance(method, (str, Method)):
        raise BadInput(f"method is a {type(method).__name__}: give a name such as TV-L1, or vrnet.parse(name)")
    return parse(method) if isinstance(method, str) else method


@contextmanager
def few_threads(voxels: int) -> Iterator[None]:
    """One thread for a small image: a second gains nothing, and waiting for a busy core costs several times more.

    PyTorch counts threads for the whole process, so only the main thread of Python may change it."""
    threads, is_main = torch.get_num_threads(), current_thread() is main_thread()
    if is_main and voxels <= SMALL:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        if is_main:
            torch.set_num_threads(threads)


def checked(fixed: object, moving: object) -> tuple[Tensor, Tensor]:
    """The pair as a batch of one, (1, 1, *s), or BadInput."""
    I0, I1 = check_image("fixed", fixed), check_image("moving", moving)
    if I0.shape != I1.shape:
        raise BadInput(f"fixed is {tuple(I0.shape)} and moving {tuple(I1.shape)}: bring them to one grid first")
    if I0.device != I1.device:
        raise BadInput(f"fixed is on {I0.device} and moving on {I1.device}: move them to one device")
    return I0[None, None], I1[None, None]


def check_image(name: str, given: object) -> Tensor:
    """The image as a tensor of float32 or float64, or BadInput if it cannot be registered."""
    if not isinstance(given, (np.ndarray, Tensor)):
        raise BadInput(f"{name} is a {type(given).__name__}: give a NumPy array or a torch tensor")
    if given.ndim not in (2, 3):
        raise BadInput(f"{name} has {given.ndim} dimensions: give one 2D or 3D image, without batch or channel axes")
    if not (given.is_floating_point() if isinstance(given, Tensor) else np.issubdtype(given.dtype, np.floating)):
        raise BadInput(f"{name} holds {given.dtype}: convert it to floating point first (.astype or .float())")
    image = tensor(given)
    image = image.to(torch.promote_types(image.dtype, torch.float32))
    if min(image.shape) < 2:
        raise BadInput(f"{name} is {tuple(image.shape)}: every axis needs at least 2 voxels")
    if not image.isfinite().all():
        raise BadInput(f"{name} contains NaN or infinite values: replace them first (numpy.nan_to_num)")
    if image.min() == image.max():
        raise BadInput(f"{name} is constant ({image.min().item():g}): there is nothing to register")
    return image
