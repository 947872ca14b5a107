"""The chest of a made-up patient at end-diastole, as functions of a point p = (x, y, z).

Lengths are in mm from the middle of the grid: x runs across the picture, y down it (anterior to posterior), z along the
axis of the left ventricle from base to apex. A surface is a signed distance, negative inside."""

from dataclasses import dataclass
from functools import reduce
from math import cos, sin

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


@dataclass(frozen=True)
class RandomSource:
    """The numbers that a patient is made of, drawn in a fixed order: one seed is one patient."""

    generator: torch.Generator

    @classmethod
    def seeded(cls, seed: int) -> "RandomSource":
        if not 0 <= seed < 2**63:
            raise BadInput(f"there is no patient {seed}: a seed is a whole number from 0 to 2^63 - 1")
        return cls(torch.Generator().manual_seed(seed))

    def uniform(self, low: float, high: float) -> float:
        return low + (high - low) * torch.rand((), generator=self.generator).item()

    def normal(self, *shape: int) -> Tensor:
        """Independent normal numbers of unit variance."""
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
    """The ventricles in their own frame (a, b, z): a from the LV axis to the RV, b across; lengths in mm.

    The LV is a tube down to its belly, then half an ellipsoid that closes at the apex; the RV is an egg it dents."""

    axis: tuple[float, float]  # where the LV axis meets the picture
    septum: float  # angle of a in the picture, in radians
    endo: float  # radius of the LV cavity
    oval: float  # the cavity is longer along a by this share, shorter along b
    wall: float  # thickness of the myocardium
    asymmetry: float  # the septum is thicker, the free wall thinner, by this share
    base: float  # level z of the valves
    belly: float  # level z from which the ventricles narrow
    length: float  # from the belly to the apex of the LV cavity
    rv_width: float  # from the septum to the free wall of the RV
    rv_height: float  # half the RV across

    @classmethod
    def draw(cls, random: RandomSource) -> "Heart":
        """A heart between hypertrophied (small cavity, thick wall) and dilated (large cavity, thin wall)."""
        dilation, size, septum = random.uniform(0.0, 1.0), random.uniform(0.92, 1.06), random.uniform(2.65, 3.75)
        endo = size * (20 + 11 * dilation)
        wall = size * (12.5 - 5 * dilation + random.uniform(-1.0, 1.0))
        return cls(
            axis=(-16 * cos(septum) + random.uniform(-4.0, 4.0), -10 * sin(septum) + random.uniform(-4.0, 4.0)),
            septum=septum,
            endo=endo,
            oval=random.uniform(-0.05, 0.05),
            wall=wall,
            asymmetry=random.uniform(-0.1, 0.2),
            base=random.uniform(-40.0, -36.0),
            belly=random.uniform(-17.0, -9.0),
            length=random.uniform(43.0, 48.0),
            rv_width=random.uniform(21.0, 29.0),
            rv_height=(endo + wall) * random.uniform(0.9, 1.15),
        )

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
        return (
            (norm(r / endo, self.depth(z, self.length)) - 1) * endo,
            (norm(r / epi, self.depth(z, self.length + self.wall)) - 1) * epi,
        )

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
    blood: float
    muscle: float
    fat: float
    liver: float
    lung: float
    tilt: float  # of the body in the picture
    middle: tuple[float, float]  # of the body
    girth: tuple[float, float]  # half axes of the body
    rind: float  # thickness of the fat under the skin
    diaphragm: tuple[float, float]  # its top, and with it the organs
    papillary: tuple[float, float]  # angles from a at which the two papillary muscles stand

    @classmethod
    def draw(cls, random: RandomSource) -> "Chest":
        """A patient of any build, with a heart between hypertrophied and dilated."""
        noise = smooth(random.normal(1, 3, *[TEXTURE_NODES] * 3), 1.0)[0]
        return cls(
            heart=Heart.draw(random),
            textures=noise / noise.std(),
            blood=random.uniform(0.8, 1.0),
            muscle=random.uniform(0.2, 0.3),
            fat=random.uniform(0.75, 1.0),
            liver=random.uniform(0.22, 0.4),
            lung=random.uniform(0.03, 0.08),
            tilt=random.uniform(-0.5, 0.3),
            middle=(random.uniform(0.0, 40.0), random.uniform(32.0, 50.0)),
            girth=(random.uniform(150.0, 190.0), random.uniform(118.0, 142.0)),
            rind=random.uniform(5.0, 16.0),
            diaphragm=(random.uniform(-45.0, -5.0), random.uniform(34.0, 44.0)),
            papillary=(random.uniform(1.7, 2.3), random.uniform(-2.3, -1.7)),
        )

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
        canvas = paint(canvas, self.thorax(p, fine[0], coarse, vessels), skin + self.rind + 16)
        return self.ventricles(self.heart.to_heart(p), canvas, fine, coarse)

    def thorax(self, p: Tensor, fine: Tensor, coarse: Tensor, vessels: Tensor) -> Tensor:
        """Lungs; below the diaphragm fat, liver, stomach and spine; the descending aorta."""
        x, y, z = p[0] - self.diaphragm[0], p[1] - self.diaphragm[1], p[2]
        below = x.square() / 330 - 0.15 * z - y
        liver = torch.maximum(below + 2, x - 53 + 6 * coarse)
        stomach = ellipse(x - 100, y - 52, (34.0, 28.0)) + 3 * coarse
        spine = ellipse(x - 43, y - 90, (20.0, 17.0))
        aorta = ellipse(x - 65, y - 64, (11.0, 11.0))
        canvas = paint(self.lung + 0.3 * vessels, self.fat * (0.85 + 0.08 * coarse), below - 1.5)
        canvas = paint(canvas, self.liver * (1 + 0.05 * fine) + 0.3 * vessels, liver)
        canvas = paint(paint(canvas, self.muscle, stomach), 0.5 * self.liver + 0.1 * coarse, stomach + 4)
        canvas = paint(canvas, self.muscle * (1.3 + 0.2 * fine), spine)
        return paint(paint(canvas, self.muscle, aorta - 2), self.blood, aorta)

    def ventricles(self, p: Tensor, canvas: Tensor, fine: Tensor, coarse: Tensor) -> Tensor:
        """Pericardial fat, then the RV and the LV; above the valves the wall thins into that of the atrium. A papillary
        muscle is a spindle 44 mm long that leans in with the wall."""
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
