"""Beating-heart phantoms: end-diastole I0, end-systole I1, and the exact u with I1(x + u(x)) = I0(x).

The anatomy A is a function of end-diastolic position, the motion φ = id + u a map in closed form. The images are
I0 = A and I1 = A ∘ φ⁻¹ on one grid, then blurred and made noisy; no voxel is ever warped.

φ changes one coordinate at a time, increasing in it while the others are held: so it cannot fold, and is undone by a
search along a line. A 2D phantom is a cut of a 3D one across the long axis, without the motion along it.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from vrnet.errors import BadInput
from vrnet.fields import smooth
from vrnet.images.intensity import rescale_jointly
from vrnet.phantom.anatomy import Chance, Chest, Heart, norm


@dataclass(frozen=True)
class Phantom:
    """fixed = end-diastole (I0), moving = end-systole (I1), on one grid.

    The images share one scaling to [0, 1]; labels are 0 background, 1 RV, 2 Myo, 3 LV. What lies at x in fixed lies at
    x + field(x), in voxels, in moving. The spacing is in mm."""

    fixed: Float[Tensor, "1 1 *s"]
    moving: Float[Tensor, "1 1 *s"]
    fixed_labels: UInt8[Tensor, "1 1 *s"]
    moving_labels: UInt8[Tensor, "1 1 *s"]
    field: Float[Tensor, "1 d *s"]
    spacing: tuple[float, ...]


def phantom(seed: int, shape: tuple[int, ...] = (160, 160), spacing: float = 1.8) -> Phantom:
    """The patient of this seed, on a grid of any shape and spacing in mm; a third axis runs from base to apex."""
    if not 0 <= seed < 2**63:
        raise BadInput(f"there is no patient {seed}: a seed is a whole number from 0 to 2^63 - 1")
    chance, d = Chance(torch.Generator().manual_seed(seed)), len(shape)
    chest = Chest.draw(chance)
    heart, motion = chest.heart, Motion.draw(chest.heart, chance)
    if d == 2:  # tissue would leave the plane
        motion = replace(motion, descent=0.0)
    x = points(shape, spacing, level=heart.belly + chance.uniform(-8.0, 16.0))
    origin = heart.world(motion.inverse(heart.local(x)))
    scanner = Scanner.draw(chance)
    I0, I1 = (scanner.image(chest.brightness(p), x) for p in (x, origin))
    I0, I1 = rescale_jointly(I0, I1)
    return Phantom(
        fixed=I0[None, None],
        moving=I1[None, None],
        fixed_labels=heart.labels(heart.local(x))[None, None],
        moving_labels=heart.labels(heart.local(origin))[None, None],
        field=(heart.world(motion.forward(heart.local(x))) - x)[None, :d] / spacing,
        spacing=(spacing,) * d,
    )


def points(shape: tuple[int, ...], spacing: float, level: float) -> Float[Tensor, "3 *s"]:
    """Position of each voxel in mm from the middle of the grid; a 2D grid lies across the long axis at a level."""
    axes = [(torch.arange(n, dtype=torch.float32) - (n - 1) / 2) * spacing for n in shape]
    p = torch.stack(torch.meshgrid(*axes, indexing="ij"))
    return torch.cat([p, p.new_full((3 - len(shape), *shape), level)])


@dataclass(frozen=True)
class Motion:
    """φ, from end-diastole to end-systole, in the frame (a, b, z) of a heart; mm and radians."""

    heart: Heart
    ejection: float  # ε, the share of the LV cavity that empties
    rv_ejection: float  # share of its width that the RV loses
    twist: tuple[float, float]  # angle at z = 0, and its change from base to apex
    shift: tuple[float, float]  # of the LV along a and b
    descent: float  # of the valves towards the apex

    @classmethod
    def draw(cls, heart: Heart, chance: Chance) -> "Motion":
        """Small, thick hearts empty more of themselves than dilated ones."""
        return cls(
            heart=heart,
            ejection=min(0.25 + 0.5 * heart.wall / heart.endo + chance.uniform(-0.02, 0.14), 0.7),
            rv_ejection=chance.uniform(0.24, 0.38),
            twist=(chance.uniform(-0.03, 0.06), chance.uniform(0.1, 0.25)),
            shift=(chance.uniform(-1.5, 1.5), chance.uniform(-1.5, 1.5)),
            descent=chance.uniform(8.0, 12.0),
        )

    def forward(self, p: Float[Tensor, "3 *s"]) -> Float[Tensor, "3 *s"]:
        """φ(p): shift, contract, turn, descend."""
        p = p + self.shifting(p)
        direction, r, contract = self.contraction(p)
        p = self.turned(torch.cat([direction * contract(r), p[2:]]), 1)
        return torch.cat([p[:2], self.descending(p)(p[2])[None]])

    def inverse(self, y: Float[Tensor, "3 *s"]) -> Float[Tensor, "3 *s"]:
        """φ⁻¹(y): the steps undone, the last one first."""
        p = self.turned(torch.cat([y[:2], solve(self.descending(y), y[2])[None]]), -1)
        direction, r, contract = self.contraction(p)
        shifted = p = torch.cat([direction * solve(contract, r), p[2:]])
        for _ in range(6):  # the shift varies by less than a tenth of a mm per mm: each turn gains a digit
            p = shifted - self.shifting(p)
        return p

    def shifting(self, p: Float[Tensor, "3 *s"]) -> Float[Tensor, "3 *s"]:
        """The displacement that carries the LV aside."""
        core = self.core(norm(p[0], p[1]), p[2])
        return torch.stack([self.shift[0] * core, self.shift[1] * core, torch.zeros_like(core)])

    def contraction(self, p: Float[Tensor, "3 *s"]) -> tuple[Tensor, Tensor, Callable[[Tensor], Tensor]]:
        """Direction from the LV axis to p, the distance r, and the map r ↦ r' along that direction.

        r'² = r² + (1/λ - 1) min(r², R²) - ε/λ min(r², ρ²), ρ, R the radii of endo- and epicardium at the level of p and
        λ the shortening along the axis: the cavity loses a share ε of its volume, the wall nothing. Beyond the
        wall, towards the RV, r' falls short by a share of the way from the wall."""
        heart, z, r = self.heart, p[2], norm(p[0], p[1])
        direction = p[:2] / r.clamp(min=1e-6)
        endo, epi = heart.radii(direction[0])
        rho2 = endo.square() * heart.narrowing(z, heart.length)
        R2 = epi.square() * heart.narrowing(z, heart.length + heart.wall)
        stretch = 1 / self.shortening(z)
        squeeze = self.rv_ejection * (direction[0] - 1).exp() * heart.narrowing(z, heart.length)

        def contract(r: Tensor) -> Tensor:
            near, r2 = self.near(torch.cat([direction * r, z[None]])), r.square()
            change = (stretch - 1) * smooth_minimum(r2, R2) - self.ejection * stretch * smooth_minimum(r2, rho2)
            past = (r - R2.sqrt()).clamp(min=0)
            return (r2 + near * change).sqrt() - near * squeeze * past.square() / (past + 4)

        return direction, r, contract

    def turned(self, p: Float[Tensor, "3 *s"], sense: int) -> Float[Tensor, "3 *s"]:
        """p turned about the LV axis, one way at the base and the other at the apex; sense -1 turns it back."""
        a, b, z = p
        slope = self.twist[1] / (self.heart.belly + self.heart.length - self.heart.base)
        angle = sense * (self.twist[0] + slope * z) * self.core(norm(a, b), z)
        c, s = angle.cos(), angle.sin()
        return torch.stack([c * a - s * b, s * a + c * b, z])

    def descending(self, p: Float[Tensor, "3 *s"]) -> Callable[[Tensor], Tensor]:
        """z ↦ z + D(z) along the lines through p parallel to the LV axis."""
        return lambda z: z + self.profile(z) * self.near(torch.stack([p[0], p[1], z]))

    def profile(self, z: Tensor) -> Tensor:
        """D(z): the descent of the valves, dying out towards the apex."""
        return self.descent * (-0.5 * ((z - self.heart.base).clamp(min=0) / 40).square()).exp()

    def shortening(self, z: Tensor) -> Tensor:
        """λ = 1 + D'(z)."""
        return 1 - self.profile(z) * (z - self.heart.base).clamp(min=0) / 40**2

    def near(self, p: Float[Tensor, "3 *s"]) -> Float[Tensor, "*s"]:
        """1 within the ventricles, gone 2 cm outside them."""
        return (-(self.heart.outline(p).clamp(min=0) / 11).square()).exp() * self.below_valves(p[2])

    def core(self, r: Tensor, z: Tensor) -> Tensor:
        """1 within the LV, gone outside it, and the same all around its axis."""
        wall = self.heart.wall
        e = norm(r / (self.heart.endo + wall), self.heart.depth(z, self.heart.length + wall))
        return (-(e / 1.25).square().pow(3)).exp() * self.below_valves(z)

    def below_valves(self, z: Tensor) -> Tensor:
        """1 below the valves, gone 2 cm above them."""
        return (-0.5 * ((self.heart.base - z).clamp(min=0) / 8).square()).exp()


def smooth_minimum(q: Tensor, limit: Tensor) -> Tensor:
    """(q⁻⁸ + limit⁻⁸)^(-1/8): q while it is below the limit, then the limit."""
    t8 = (q / limit.clamp(min=1e-3)).square().square().square()
    return q / (1 + t8).sqrt().sqrt().sqrt()


def solve(f: Callable[[Tensor], Tensor], y: Tensor) -> Tensor:
    """x with f(x) = y, for an increasing f not far from the identity: six secant steps from x = y, to 1e-4 mm."""
    x, error = y, f(y) - y
    step = -error
    for _ in range(6):
        x = x + step
        before, error = error, f(x) - y
        slope = torch.where(step.abs() < 1e-4, 1.0, (error - before) / step)
        step = -error / slope.clamp(0.1, 4)
    return x + step


@dataclass(frozen=True)
class Scanner:
    """What stands between tissue and image: the coil's sensitivity exp(g·x), a slight blur, Rician noise."""

    chance: Chance
    gradient: tuple[float, float]  # g along x and y, per mm
    noise: float

    @classmethod
    def draw(cls, chance: Chance) -> "Scanner":
        """The coil lies on the chest: what is anterior is brighter."""
        gradient = (chance.uniform(-0.002, 0.002), chance.uniform(-0.004, -0.0005))
        return cls(chance, gradient, noise=chance.uniform(0.012, 0.035))

    def image(self, signal: Float[Tensor, "*s"], x: Float[Tensor, "3 *s"]) -> Float[Tensor, "*s"]:
        """The signal on the grid x as an image, with new noise at each call."""
        coil = (self.gradient[0] * x[0] + self.gradient[1] * x[1]).exp()
        seen = smooth((signal * coil)[None, None], 0.45)[0, 0]
        real, imaginary = self.noise * self.chance.normal(2, *seen.shape)
        return norm(seen + real, imaginary)
