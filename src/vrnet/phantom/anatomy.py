"""The chest of a made-up patient at end-diastole, as functions of a point p = (x, y, z), and the motion of its heart.
In mm from the middle of the grid: x across the picture, y down it (anterior to posterior), z along the axis of the left
ventricle from base to apex. A surface is a signed distance, negative inside."""

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from functools import reduce
from math import cos, sin
from typing import Any, TypeVar

import torch
from jaxtyping import Float, UInt8
from torch import Tensor
from torch.nn import functional

from vrnet.errors import BadInput
from vrnet.fields.calculus import smooth

BACKGROUND, RV, MYO, LV = 0, 1, 2, 3
EDGE_MM = 1.5  # over which one tissue gives way to the next
TEXTURE_STEP_MM = 3.0  # between the nodes of the texture
TEXTURE_NODES = 40  # along each axis


T = TypeVar("T")


def drawn(*ranges: tuple[float, float]) -> Any:
    """A field, a number or several, that is drawn from here to there."""
    return field(metadata={"ranges": ranges})


class RandomSource:
    """The numbers that a patient is made of, drawn in a fixed order: one seed is one patient."""

    def __init__(self, seed: int) -> None:
        if not 0 <= seed < 2**63:
            raise BadInput(f"there is no patient {seed}: a seed is a whole number from 0 to 2^63 - 1")
        self.generator = torch.Generator().manual_seed(seed)

    def uniform(self, low: float, high: float) -> float:
        return low + (high - low) * torch.rand((), generator=self.generator).item()

    def draw(self, kind: type[T], **known: Any) -> T:
        """A dataclass of these values, the others drawn from their ranges, in their order."""
        for part in fields(kind):  # type: ignore[arg-type]
            if part.name not in known and "ranges" in part.metadata:
                values = tuple(self.uniform(*each) for each in part.metadata["ranges"])
                known[part.name] = values if len(values) > 1 else values[0]
        return kind(**known)

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self.generator)


def norm(*components: Tensor) -> Tensor:
    """√(Σ x²), by multiply-adds: torch.hypot is slower, and takes two components only."""
    return reduce(lambda total, x: torch.addcmul(total, x, x), components[1:], components[0].square()).sqrt()


def ellipse(x: Tensor, y: Tensor, radii: tuple[float, float]) -> Tensor:
    """Distance to the ellipse about the origin with these half axes."""
    return (norm(x / radii[0], y / radii[1]) - 1) * min(radii)


def paint(canvas: Tensor, value: Tensor | float, distance: Tensor) -> Tensor:
    """The canvas with a value where the distance is negative, across a soft edge."""
    return canvas + (value - canvas) * (0.5 - distance / EDGE_MM).clamp(0, 1)


@dataclass(frozen=True)
class Heart:
    """The ventricles in mm in their own frame (a, b, z), a from the LV axis to the RV, b across. The LV is a tube down
    to its belly, then half an ellipsoid that closes at the apex; the RV is an egg it dents."""

    axis: tuple[float, float]  # where the LV axis meets the picture
    septum: float  # angle of a in the picture, in radians
    endo: float  # radius of the LV cavity
    wall: float  # thickness of the myocardium
    oval: float = drawn((-0.05, 0.05))  # the cavity is longer along a by this share, shorter along b
    asymmetry: float = drawn((-0.1, 0.2))  # the septum is thicker, the free wall thinner, by this share
    base: float = drawn((-40.0, -36.0))  # level z of the valves
    belly: float = drawn((-17.0, -9.0))  # level z from which the ventricles narrow
    length: float = drawn((43.0, 48.0))  # from the belly to the apex of the LV cavity
    rv_width: float = drawn((21.0, 29.0))  # from the septum to the free wall of the RV
    rv_height: float = 0.0  # half the RV across

    @classmethod
    def draw(cls, random: RandomSource) -> "Heart":
        """A heart between hypertrophied (small cavity, thick wall) and dilated (large cavity, thin wall)."""
        dilation, size, septum = random.uniform(0.0, 1.0), random.uniform(0.92, 1.06), random.uniform(2.65, 3.75)
        endo = size * (20 + 11 * dilation)
        wall = size * (12.5 - 5 * dilation + random.uniform(-1.0, 1.0))
        axis = -16 * cos(septum) + random.uniform(-4.0, 4.0), -10 * sin(septum) + random.uniform(-4.0, 4.0)
        heart = random.draw(cls, axis=axis, septum=septum, endo=endo, wall=wall)
        return replace(heart, rv_height=(endo + wall) * random.uniform(0.9, 1.15))

    def to_heart(self, p: Float[Tensor, "3 *s"]) -> Float[Tensor, "3 *s"]:
        """A point (x, y, z) of the picture in the frame (a, b, z) of the heart."""
        x, y, c, s = p[0] - self.axis[0], p[1] - self.axis[1], cos(self.septum), sin(self.septum)
        return torch.stack([c * x + s * y, c * y - s * x, p[2]])

    def to_picture(self, p: Float[Tensor, "3 *s"]) -> Float[Tensor, "3 *s"]:
        """A point (a, b, z) of the heart in the frame (x, y, z) of the picture."""
        a, b, c, s = p[0], p[1], cos(self.septum), sin(self.septum)
        return torch.stack([c * a - s * b + self.axis[0], s * a + c * b + self.axis[1], p[2]])

    def radii(self, cosine: Float[Tensor, "*s"]) -> tuple[Tensor, Tensor]:
        """Radii (ρ, R) of endo- and epicardium at the belly, in the direction with this cosine to a."""
        endo = self.endo * (1 + self.oval * (2 * cosine.square() - 1))
        return endo, endo + self.wall * (1 + self.asymmetry * cosine)

    def depth(self, z: Float[Tensor, "*s"], length: float) -> Float[Tensor, "*s"]:
        """How far z is on the way from the belly (0) to an apex (1)."""
        return (z - self.belly).clamp(min=0) / length

    def narrowing(self, z: Float[Tensor, "*s"], length: float) -> Float[Tensor, "*s"]:
        """Area of the cut at level z, as a share of that at the belly; 0 past the apex."""
        return (1 - self.depth(z, length).square()).clamp(min=0)

    def left_ventricle(self, p: Float[Tensor, "3 *s"]) -> tuple[Tensor, Tensor]:
        """Distances to the endocardium and to the epicardium of the LV."""
        a, b, z = p
        r = norm(a, b)
        endo, epi = self.radii(a / r.clamp(min=1e-6))
        outside = norm(r / epi, self.depth(z, self.length + self.wall)) - 1
        return (norm(r / endo, self.depth(z, self.length)) - 1) * endo, outside * epi

    def right_ventricle(self, p: Float[Tensor, "3 *s"]) -> Float[Tensor, "*s"]:
        """Distance to the RV cavity, as if the LV did not dent it."""
        a, b, z = p
        epi = self.endo + self.wall
        half = 0.6 * epi + 0.5 * self.rv_width
        along = (a - epi - self.rv_width + half) / half
        across = b / (self.rv_height * (1 - 0.15 * along.clamp(-1, 1)))
        return (norm(along, across, self.depth(z, 0.85 * self.length)) - 1) * min(half, self.rv_height)

    def outline(self, p: Float[Tensor, "3 *s"]) -> Float[Tensor, "*s"]:
        """Distance to both ventricles and the 3 mm wall of the RV, the groove between them filled by up to 4 mm."""
        epi, rv = self.left_ventricle(p)[1], self.right_ventricle(p) - 3
        return (epi + rv - ((epi - rv).square() + 8**2).sqrt()) / 2

    def labels(self, p: Float[Tensor, "3 *s"]) -> UInt8[Tensor, "*s"]:
        """RV, Myo and LV below the valves; trabeculae and papillary muscles count as cavity."""
        (endo, epi), rv = self.left_ventricle(p), self.right_ventricle(p)
        label = torch.where(rv < 0, RV, BACKGROUND)
        label = torch.where(epi < 0, MYO, label)
        label = torch.where(endo < 0, LV, label)
        return torch.where(p[2] > self.base, label, BACKGROUND).to(torch.uint8)


@dataclass(frozen=True)
class Chest:
    """A heart and what lies around it, with the signal of each tissue; mm and radians."""

    heart: Heart
    textures: Float[Tensor, "3 n n n"]  # three smooth ones of unit variance, a node every TEXTURE_STEP_MM
    blood: float = drawn((0.8, 1.0))
    muscle: float = drawn((0.2, 0.3))
    fat: float = drawn((0.75, 1.0))
    liver: float = drawn((0.22, 0.4))
    lung: float = drawn((0.03, 0.08))
    tilt: float = drawn((-0.5, 0.3))  # of the body in the picture
    middle: tuple[float, float] = drawn((0.0, 40.0), (32.0, 50.0))  # of the body
    girth: tuple[float, float] = drawn((150.0, 190.0), (118.0, 142.0))  # half axes of the body
    rind: float = drawn((5.0, 16.0))  # thickness of the fat under the skin
    diaphragm: tuple[float, float] = drawn((-45.0, -5.0), (34.0, 44.0))  # its top, and with it the organs
    papillary: tuple[float, float] = drawn((1.7, 2.3), (-2.3, -1.7))  # angles from a of the two papillary muscles

    @classmethod
    def draw(cls, random: RandomSource) -> "Chest":
        """A patient of any build, with a heart between hypertrophied and dilated."""
        noise = smooth(random.normal(1, 3, *[TEXTURE_NODES] * 3), 1.0)[0]
        return random.draw(cls, heart=Heart.draw(random), textures=noise / noise.std())

    def texture(self, p: Float[Tensor, "3 *s"], scale: float) -> Float[Tensor, "3 *s"]:
        """The three textures at p, drawn out by a scale and mirrored where they end."""
        grid = (p / (scale * TEXTURE_STEP_MM * TEXTURE_NODES / 2)).flatten(1).T.reshape(1, 1, 1, -1, 3)
        values = functional.grid_sample(self.textures[None], grid, padding_mode="reflection", align_corners=True)
        return values.view(3, *p.shape[1:])

    def brightness(self, p: Float[Tensor, "3 *s"]) -> Float[Tensor, "*s"]:
        """Signal of the tissue at p, painted from the outside inwards."""
        fine, (first, second, coarse) = self.texture(p, 1.0), self.texture(p, 3.0)
        # The outline of the body is a tilted ellipse. Air, fat under the skin, and muscle with ribs about every 40 mm:
        # fatty marrow in a dark shell.
        x, y, c, s = p[0] - self.middle[0], p[1] - self.middle[1], cos(self.tilt), sin(self.tilt)
        skin = ellipse(c * x + s * y, c * y - s * x, self.girth) + 1.5 * coarse
        along = 3.3 * torch.atan2(y, x) + 0.15 * coarse
        rib = norm(20 * (along - along.round()), skin + self.rind + 9) - 4 - coarse
        canvas = paint(torch.full_like(skin, 0.01), self.fat * (1 + 0.05 * coarse), skin)
        canvas = paint(canvas, self.muscle * (1 + 0.1 * coarse), skin + self.rind)
        canvas = paint(paint(canvas, 0.3 * self.muscle, rib), 0.4 * self.fat, rib + 2.5)
        # Two textures vanish together along curves: these are the vessels.
        vessels = (-8 * (first.square() + second.square())).exp()
        # Lungs; below the diaphragm fat, liver, stomach and spine; the descending aorta.
        x, y, z = p[0] - self.diaphragm[0], p[1] - self.diaphragm[1], p[2]
        below = x.square() / 330 - 0.15 * z - y
        liver = torch.maximum(below + 2, x - 53 + 6 * coarse)
        stomach = ellipse(x - 100, y - 52, (34.0, 28.0)) + 3 * coarse
        spine = ellipse(x - 43, y - 90, (20.0, 17.0))
        aorta = ellipse(x - 65, y - 64, (11.0, 11.0))
        thorax = paint(self.lung + 0.3 * vessels, self.fat * (0.85 + 0.08 * coarse), below - 1.5)
        thorax = paint(thorax, self.liver * (1 + 0.05 * fine[0]) + 0.3 * vessels, liver)
        thorax = paint(paint(thorax, self.muscle, stomach), 0.5 * self.liver + 0.1 * coarse, stomach + 4)
        thorax = paint(thorax, self.muscle * (1.3 + 0.2 * fine[0]), spine)
        thorax = paint(paint(thorax, self.muscle, aorta - 2), self.blood, aorta)
        canvas = paint(canvas, thorax, skin + self.rind + 16)
        return self.ventricles(self.heart.to_heart(p), canvas, fine, coarse)

    def ventricles(self, p: Tensor, canvas: Tensor, fine: Tensor, coarse: Tensor) -> Tensor:
        """Pericardial fat, RV and LV, the atrium's wall above the valves, and papillary muscles 44 mm long."""
        heart = self.heart
        (endo, epi), rv = heart.left_ventricle(p), heart.right_ventricle(p)
        muscle, blood = self.muscle * (1 + 0.2 * fine[0]), self.blood * (1 + 0.06 * fine[0] + 0.06 * coarse)
        atrium = (heart.wall - 2) * torch.sigmoid((heart.base - p[2]) / 1.5)
        trabeculae = 2.5 * (fine[1:] - 0.3).clamp(min=0)
        canvas = paint(canvas, 0.9 * self.fat, heart.outline(p) - 2.5 * (coarse + 0.3).clamp(min=0))
        canvas = paint(paint(canvas, muscle, rv - 3), blood, rv + trabeculae[0])
        canvas = paint(paint(canvas, muscle, epi), blood, endo - atrium + trabeculae[1])
        a, b = p[:2] / heart.narrowing(p[2], heart.length).clamp(min=0.05).sqrt()
        for angle in self.papillary:
            c, s, r = cos(angle), sin(angle), heart.endo
            column = ellipse(c * a + s * b - 0.62 * r, c * b - s * a, (0.22 * r, 0.15 * r))
            canvas = paint(canvas, muscle, column + 0.15 * r * ((p[2] - heart.belly - 8) / 22).square())
        return canvas


# How a heart beats: φ = id + u, from end-diastole to end-systole, in closed form. φ changes one coordinate at a time,
# increasing in it while the others are held: so it cannot fold, and is undone by a search along a line.

Contractility = Callable[[Tensor, Tensor], Tensor]  # 0 to 1, in the direction (2, *s) from the LV axis and at z (*s) mm


@dataclass(frozen=True)
class Motion:
    """φ, from end-diastole to end-systole, in the frame (a, b, z) of a heart; mm and radians."""

    heart: Heart
    ejection: float  # ε, the share of the LV cavity that empties
    rv_ejection: float = drawn((0.24, 0.38))  # share of its width that the RV loses
    twist: tuple[float, float] = drawn((-0.03, 0.06), (0.1, 0.25))  # angle at z = 0, and its change from base to apex
    shift: tuple[float, float] = drawn((-1.5, 1.5), (-1.5, 1.5))  # of the LV along a and b
    descent: float = drawn((8.0, 12.0))  # of the valves towards the apex
    inner: float = 1.0  # blood from here on, as a share of the radius of the cavity, moves as the wall does
    contractility: Contractility | None = None  # the same everywhere if None

    @classmethod
    def draw(cls, heart: Heart, random: RandomSource) -> "Motion":
        """A motion for a heart: small, thick ones empty more of themselves than dilated ones."""
        ejection = min(0.25 + 0.5 * heart.wall / heart.endo + random.uniform(-0.02, 0.14), 0.7)
        return random.draw(cls, heart=heart, ejection=ejection)

    def part_way(self, contraction: float, torsion: float) -> "Motion":
        """The motion of a heart that has contracted and turned by these shares of the whole."""
        parts = {name: contraction * getattr(self, name) for name in ("ejection", "rv_ejection", "descent")}
        twist = torsion * self.twist[0], torsion * self.twist[1]
        return replace(self, twist=twist, shift=(contraction * self.shift[0], contraction * self.shift[1]), **parts)

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
        """Direction from the LV axis to p, the distance r, and the map r ↦ r' along that direction:

        r'² = r² + (1/λ - 1) min(r², R²) - ε/λ min(r²/i², ρ²), with the radii ρ, R of endo- and epicardium, the
        shortening λ along the axis and the inner share i: the cavity loses a share ε of its volume, the wall nothing.
        Beyond the wall, towards the RV, r' falls short by a share of the way from the wall."""
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
        """At so many beats per minute: systole shortens by 1.7 ms per beat (Weissler et al., Circulation 1968)."""
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
