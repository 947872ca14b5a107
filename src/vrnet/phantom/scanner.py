"""What stands between tissue and image: the coil, a blur, noise."""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from vrnet.fields import smooth
from vrnet.phantom.anatomy import RandomSource, norm

BLUR_VOXELS = 0.45
"""Standard deviation of the blur."""


@dataclass(frozen=True)
class Scanner:
    """The coil's sensitivity exp(g·x), a slight blur, Rician noise."""

    random: RandomSource
    gradient: tuple[float, float]  # g along x and y, per mm
    noise: float  # standard deviation, where blood has a signal of about 1

    @classmethod
    def draw(cls, random: RandomSource) -> "Scanner":
        """A scanner whose coil lies on the chest: what is anterior is brighter."""
        gradient = (random.uniform(-0.002, 0.002), random.uniform(-0.004, -0.0005))
        return cls(random, gradient, noise=random.uniform(0.012, 0.035))

    def image(self, signal: Float[Tensor, "*s"], x: Float[Tensor, "3 *s"]) -> Float[Tensor, "*s"]:
        """The signal on the grid x as an image, with new noise at each call."""
        coil = (self.gradient[0] * x[0] + self.gradient[1] * x[1]).exp()
        seen = smooth((signal * coil)[None, None], BLUR_VOXELS)[0, 0]
        real, imaginary = self.noise * self.random.normal(2, *seen.shape)
        return norm(seen + real, imaginary)
