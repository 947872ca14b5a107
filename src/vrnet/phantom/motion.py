"""How a heart beats: φ = id + u, from end-diastole to end-systole, in closed form.

φ changes one coordinate at a time, increasing in it while the others are held: so it cannot fold, and is undone by a
search along a line."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from vrnet.errors import BadInput
from vrnet.phantom.anatomy import Heart, RandomSource, norm

Contractility = Callable[[Tensor, Tensor], Tensor]
"""How well the wall contracts, from 0 to 1, in the direction (2, *s) from the LV axis and at the level z (*s) in mm."""


@dataclass(frozen=True)
class Motion:
    """φ, from end-diastole to end-systole, in the frame (a, b, z) of a heart; mm and radians."""

    heart: Heart
    ejection: float  # ε, the share of the LV cavity that empties
    rv_ejection: float  # share of its width that the RV loses
    twist: tuple[float, float]  # angle at z = 0, and its change from base to apex
    shift: tuple[float, float]  # of the LV along a and b
    descent: float  # of the valves towards the apex
    inner: float = 1.0  # blood from here on, as a share of the radius of the cavity, moves as the wall does
    contractility: Contractility | None = None  # the same everywhere if None

    @classmethod
    def draw(cls, heart: Heart, random: RandomSource) -> "Motion":
        """A motion for a heart: small, thick ones empty more of themselves than dilated ones."""
        return cls(
            heart=heart,
            ejection=min(0.25 + 0.5 * heart.wall / heart.endo + random.uniform(-0.02, 0.14), 0.7),
            rv_ejection=random.uniform(0.24, 0.38),
            twist=(random.uniform(-0.03, 0.06), random.uniform(0.1, 0.25)),
            shift=(random.uniform(-1.5, 1.5), random.uniform(-1.5, 1.5)),
            descent=random.uniform(8.0, 12.0),
        )

    def part_way(self, contraction: float, torsion: float) -> "Motion":
        """The motion of a heart that has contracted and turned by these shares of the whole."""
        return replace(
            self,
            ejection=contraction * self.ejection,
            rv_ejection=contraction * self.rv_ejection,
            descent=contraction * self.descent,
            twist=(torsion * self.twist[0], torsion * self.twist[1]),
            shift=(contraction * self.shift[0], contraction * self.shift[1]),
        )

    def forward(self, p: Float[Tensor, "3 *s"]) -> Float[Tensor, "3 *s"]:
        """φ(p): shift, contract, turn, descend."""
        p = p + self.lv_shift(p)
        direction, r, contract = self.contraction(p)
        p = self.turn(torch.cat([direction * contract(r), p[2:]]), 1)
        return torch.cat([p[:2], self.descent_along(p)(p[2])[None]])

    def inverse(self, y: Float[Tensor, "3 *s"]) -> Float[Tensor, "3 *s"]:
        """φ⁻¹(y): the steps undone, the last one first."""
        p = self.turn(torch.cat([y[:2], solve(self.descent_along(y), y[2])[None]]), -1)
        direction, r, contract = self.contraction(p)
        shifted = p = torch.cat([direction * solve(contract, r), p[2:]])
        for _ in range(6):  # the shift varies by less than a tenth of a mm per mm: each turn gains a digit
            p = shifted - self.lv_shift(p)
        return p

    def lv_shift(self, p: Float[Tensor, "3 *s"]) -> Float[Tensor, "3 *s"]:
        """The displacement that carries the LV aside, gone outside it."""
        weight = self.lv_weight(norm(p[0], p[1]), p[2])
        return torch.stack([self.shift[0] * weight, self.shift[1] * weight, torch.zeros_like(weight)])

    def contraction(self, p: Float[Tensor, "3 *s"]) -> tuple[Tensor, Tensor, Callable[[Tensor], Tensor]]:
        """Direction from the LV axis to p, the distance r, and the map r ↦ r' along that direction.

        r'² = r² + (1/λ - 1) min(r², R²) - ε/λ min(r²/i², ρ²), ρ, R the radii of endo- and epicardium at the level of p,
        λ the shortening along the axis and i the inner share: the cavity loses a share ε of its volume, the wall
        nothing. Beyond the wall, towards the RV, r' falls short by a share of the way from the wall."""
        heart, z, r = self.heart, p[2], norm(p[0], p[1])
        direction = p[:2] / r.clamp(min=1e-6)
        endo, epi = heart.radii(direction[0])
        rho2 = self.inner**2 * endo.square() * heart.narrowing(z, heart.length)
        R2 = epi.square() * heart.narrowing(z, heart.length + heart.wall)
        stretch = 1 / self.shortening(z)
        ejection = self.ejection / self.inner**2 * (self.contractility(direction, z) if self.contractility else 1.0)
        squeeze = self.rv_ejection * (direction[0] - 1).exp() * heart.narrowing(z, heart.length)

        def contract(r: Tensor) -> Tensor:
            weight, r2 = self.heart_weight(torch.cat([direction * r, z[None]])), r.square()
            change = (stretch - 1) * smooth_minimum(r2, R2) - ejection * stretch * smooth_minimum(r2, rho2)
            past = (r - R2.sqrt()).clamp(min=0)
            return (r2 + weight * change).sqrt() - weight * squeeze * past.square() / (past + 4)

        return direction, r, contract

    def turn(self, p: Float[Tensor, "3 *s"], sense: int) -> Float[Tensor, "3 *s"]:
        """Turn p about the LV axis, one way at the base and the other at the apex; sense -1 turns it back."""
        a, b, z = p
        slope = self.twist[1] / (self.heart.belly + self.heart.length - self.heart.base)
        angle = sense * (self.twist[0] + slope * z) * self.lv_weight(norm(a, b), z)
        c, s = angle.cos(), angle.sin()
        return torch.stack([c * a - s * b, s * a + c * b, z])

    def descent_along(self, p: Float[Tensor, "3 *s"]) -> Callable[[Tensor], Tensor]:
        """z ↦ z + D(z) along the lines through p parallel to the LV axis."""
        return lambda z: z + self.descent_profile(z) * self.heart_weight(torch.stack([p[0], p[1], z]))

    def descent_profile(self, z: Tensor) -> Tensor:
        """D(z): the descent of the valves, dying out towards the apex."""
        return self.descent * (-0.5 * ((z - self.heart.base).clamp(min=0) / 40).square()).exp()

    def shortening(self, z: Tensor) -> Tensor:
        """λ = 1 + D'(z): what becomes of a unit of length along the axis."""
        return 1 - self.descent_profile(z) * (z - self.heart.base).clamp(min=0) / 40**2

    def heart_weight(self, p: Float[Tensor, "3 *s"]) -> Float[Tensor, "*s"]:
        """1 within the ventricles, gone 2 cm outside them."""
        return (-(self.heart.outline(p).clamp(min=0) / 11).square()).exp() * self.valve_weight(p[2])

    def lv_weight(self, r: Tensor, z: Tensor) -> Tensor:
        """1 within the LV, gone outside it; depends on the distance from its axis, not on the direction."""
        wall = self.heart.wall
        e = norm(r / (self.heart.endo + wall), self.heart.depth(z, self.heart.length + wall))
        return (-(e / 1.25).square().pow(3)).exp() * self.valve_weight(z)

    def valve_weight(self, z: Tensor) -> Tensor:
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


# When a heart does what: shares of its whole motion, from 0 (end-diastole) to 1 (end-systole), over a cycle.
#
# c(t) = S(t/T_s) − (1 − a) S((t − T_s)/T_E) − a S((t − T + T_A)/T_A): systole, early filling and, after a rest
# (diastasis), the atrial kick. S is the step 6x⁵ − 15x⁴ + 10x³ from 0 to 1, T the length of the cycle.


@dataclass(frozen=True)
class Rhythm:
    """A cycle and its phases, in ms."""

    cycle: float
    systole: float
    early_filling: float
    atrial_kick: float
    kick_share: float = 0.25  # a, of the filling

    @classmethod
    def at(cls, heart_rate: float) -> "Rhythm":
        """The rhythm at a number of beats per minute. Systole shortens by 1.7 ms per beat (Weissler et al., Circulation
        1968); whatever else the cycle loses, diastasis loses first."""
        if not 40 <= heart_rate <= 160:
            raise BadInput(f"a heart rate of {heart_rate:g} is none: give `heart_rate` from 40 to 160 per minute")
        cycle, systole = 60_000 / heart_rate, 452 - 1.7 * heart_rate
        diastole = cycle - systole
        return cls(cycle, systole, min(220.0, 0.55 * diastole), min(140.0, 0.3 * diastole))

    def contraction(self, t: float) -> float:
        """c(t), the share of the contraction at t ms."""
        early = step((t - self.systole) / self.early_filling)
        kick = step((t - self.cycle + self.atrial_kick) / self.atrial_kick)
        return step(t / self.systole) - (1 - self.kick_share) * early - self.kick_share * kick

    def torsion(self, t: float) -> float:
        """The share of the twist at t ms: the heart is untwisted before it is filled."""
        return step(t / self.systole) - step((t - self.systole) / (0.7 * self.early_filling))


def step(x: float) -> float:
    """6x⁵ − 15x⁴ + 10x³ from 0 at x = 0 to 1 at x = 1, level on both sides; twice differentiable."""
    x = min(max(x, 0.0), 1.0)
    return x**3 * (10 + x * (6 * x - 15))
