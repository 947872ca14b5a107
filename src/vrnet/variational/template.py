"""u = b ∘ a: from fixed to a template T by a, and on from there to moving by b.

T is the mean of many images, each warped so that all lie alike: what only one of them shows is gone. w says how much T
is to be heeded at a voxel: the more alike the images are there, the more.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from vrnet.errors import BadInput, shape_text
from vrnet.fields.calculus import compose, repeat_border
from vrnet.variational.cascade import Initializer, Spacing, initialize
from vrnet.variational.linearize import Field, Images, Masks

MakeSolver = Callable[[int, torch.device], Initializer]
"""What finds a field in d dimensions, on a device; it takes masks."""
MAX_TIMES_LARGER = 2
"""How many times longer than the template an image may be along an axis; most of a larger one is not compared."""


class ThroughTemplate(nn.Module):
    """A template as an initialiser: two images meet on it. It has no parameters, only T and w."""

    image: Tensor
    weight: Tensor

    def __init__(self, image: Float[Tensor, "1 1 *s"], weight: Float[Tensor, "1 1 *s"], make: MakeSolver) -> None:
        super().__init__()
        self.make = make
        self.register_buffer("image", image)
        self.register_buffer("weight", weight)

    def forward(self, I0: Images, I1: Images, spacing: Spacing = None, masks: Masks | None = None) -> Field:
        (T, w), everywhere = self.on_grid(I0), torch.ones_like(I0)
        w0, w1 = (masks.fixed, masks.moving) if masks else (everywhere, everywhere)
        found = self.solve(torch.cat([I0, T]), torch.cat([T, I1]), spacing, torch.cat([w0, w]), torch.cat([w, w1]))
        a, b = found.chunk(2)
        return compose(b, a)

    def fields_to(self, I: Float[Tensor, "b 1 *s"], spacing: Spacing = None) -> Field:
        """The fields from the template to images: I(x + u(x)) is like T."""
        T, w = self.on_grid(I)
        return self.solve(T, I, spacing, w, torch.ones_like(I))

    def solve(self, I0: Tensor, I1: Tensor, spacing: Spacing, w0: Tensor, w1: Tensor) -> Tensor:
        """The fields of pairs, under the weights of both."""
        return initialize(self.make(I0.dim() - 2, I0.device), I0, I1, spacing, Masks(w0, w1))

    def on_grid(self, like: Float[Tensor, "b 1 *s"]) -> tuple[Float[Tensor, "b 1 *s"], Float[Tensor, "b 1 *s"]]:
        """T and w on the grid of images, about the same centre. Beyond T nothing is known, and nothing counts."""
        shape, own = tuple(like.shape[2:]), tuple(self.image.shape[2:])
        if any(n > MAX_TIMES_LARGER * m for n, m in zip(shape, own, strict=True)):
            told = (
                f"the images have {shape_text(shape)} voxels at the template's spacing, and that has {shape_text(own)}"
            )
            raise BadInput(f"{told}: cut them to what it shows, or register without it")
        T, w = recentre(self.image, shape), recentre(self.weight, shape, beyond=0.0)
        return T.expand_as(like).contiguous(), w.expand_as(like).contiguous()


def recentre(I: Images, shape: tuple[int, ...], beyond: float | None = None) -> Float[Tensor, "b c *t"]:
    """I on a grid of another shape about the same centre: cut, or filled with one value; without one, its border."""
    for axis, n in enumerate(shape, start=2):
        have = I.shape[axis]
        I = I.narrow(axis, max(have - n, 0) // 2, min(have, n))
        before = max(n - have, 0) // 2
        after = max(n - have, 0) - before
        if beyond is None:
            I = repeat_border(I, axis, before, after)
        else:
            I = functional.pad(I, [0, 0] * (I.dim() - 1 - axis) + [before, after], value=beyond)
    return I
