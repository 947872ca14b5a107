"""Good, look at it, or failed: what a tracked cine is worth.

Every frame is judged as a registered pair is; the cine as a whole by whether its chains close, whether its motion runs
evenly from frame to frame, whether the wall keeps its volume, as muscle does, whether the cavity holds blood, and
whether its strain is one that hearts have. docs/verdict.md says how the limits were measured."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from vrnet.aha import LEVELS
from vrnet.evaluation import advice
from vrnet.evaluation.advice import Run
from vrnet.evaluation.evidence import Evidence
from vrnet.evaluation.levels import Level
from vrnet.evaluation.strain import Strain
from vrnet.evaluation.verdict import UNKNOWN, Verdict, judge_evidence, unique
from vrnet.wording import percent

LEAST_FRAMES = 15
"""Of fewer frames, hearts move unevenly from one to the next."""
MAX_NAMED = 8
"""Frames that are named; of more, how many there are."""
MAX_REASONS, MAX_ADVICE = 5, 3
BEYOND = " (Green, the mean over the wall), which is beyond what is plausible of a heart."


@dataclass(frozen=True)
class WallExtremes:
    """The most that the wall does over a cycle, as parts of what it is in the reference."""

    shortening: float
    """How far the circumferential Green strain of the whole wall falls."""
    thickening: float
    """How far the radial Green strain of the whole wall rises."""
    lengthening: float
    """Of any sixth of the wall at a level: how much longer its middle becomes."""
    lengthening_level: str
    """Where that sixth is: one of LEVELS."""
    area_change: float
    """Of any sixth: how much its area changes, either way."""
    area_level: str

    @classmethod
    def of(cls, strain: Strain) -> "WallExtremes":
        """The extremes of what was measured."""
        shortening, thickening = -strain.curve("green_circumferential").min(), strain.curve("green_radial").max()
        middle, area = strain.sixths / 100
        return cls(float(shortening) / 100, float(thickening) / 100, *largest(middle), *largest(np.abs(area)))


def largest(values: Float[ndarray, "level p t"]) -> tuple[float, str]:
    """The largest value, and its level; NaN is a level that no slice shows."""
    known = np.nan_to_num(values, nan=-inf).reshape(len(LEVELS), -1).max(1)
    return float(known.max()), LEVELS[int(known.argmax())]


@dataclass(frozen=True)
class CineEvidence:
    """Measures of a tracked cine."""

    frames: tuple[tuple[int, Evidence], ...]
    """(number, evidence as of a pair: the reference, and this frame) of every frame but the reference."""
    closure_mm: float
    """The larger of both chains': see `vrnet.app.tracking.CLOSURE`."""
    unevenness: float
    """See `unevenness`."""
    wall_change: float | None
    """The largest change of the volume of the wall, as a part of that in the reference; None without labels of it."""
    extremes: WallExtremes | None = None
    """Of strain; None where none is measured."""
    muscle_in_cavity: float | None = None
    """See `vrnet.evaluation.cavity.muscle_in_cavity`."""


@dataclass(frozen=True)
class CineRule:
    """A measure, of which more is worse, with its limits and what to say beyond them."""

    name: str
    measure: Callable[[CineEvidence], float]
    look: float
    failed: float
    reason: Callable[[CineEvidence], str]
    to_try: tuple[advice.Advice, ...]

    def level(self, evidence: CineEvidence) -> Level:
        value = self.measure(evidence)
        return "failed" if value > self.failed else "look" if value > self.look else "good"


def part_of_frames(evidence: CineEvidence, levels: Sequence[Level]) -> float:
    """The part of the frames whose verdict, as a pair, is one of these."""
    return len(frames_of(evidence, levels)) / max(len(evidence.frames), 1)


def frames_of(evidence: CineEvidence, levels: Sequence[Level]) -> list[int]:
    """The frames whose verdict, as a pair, is one of these."""
    return [k for k, each in evidence.frames if judge_evidence(each).level in levels]


def named(frames: Sequence[int]) -> str:
    """The numbers of frames, as people count them, from 1; of many, how many."""
    if len(frames) > MAX_NAMED:
        return f"{len(frames)} frames"
    return f"frame{'s' if len(frames) > 1 else ''} {', '.join(str(k + 1) for k in frames)}"


def check_frames(run: Run) -> str:
    return "look at these frames, and leave out those that show something else, or another position"


def whole_cycle(run: Run) -> str:
    return "check that the cine is one whole beat, in the order of time, and that its patient lay still"


def check_labels(run: Run) -> str:
    return "check that the labels belong to the reference `frame`"


def from_diastole(run: Run) -> str:
    return "give the labels of end-diastole, and its `frame`: strain is measured from there"


def outer_slices(run: Run) -> str | None:
    """The base and the apex move through their slices, which tracking within them takes for deformation."""
    words = "of a stack, leave the first and the last slices out of the labels: the heart moves through them"
    return words if run.dimension == 2 else None


def stiffer(run: Run) -> str | None:
    """The method that was run with twice its λ, where it has one."""
    name = advice.with_lam(run, 2.0) if run.method else None
    return None if name is None else f'a smoother field: `method="{name}"`'


def of_wall(measure: Callable[[WallExtremes], float]) -> Callable[[CineEvidence], float]:
    """A measure of the wall's strain; of a cine without it, nothing is found."""
    return lambda e: -inf if e.extremes is None else measure(e.extremes)


shortening, thickening = of_wall(lambda wall: wall.shortening), of_wall(lambda wall: wall.thickening)
lengthening, area_change = of_wall(lambda wall: wall.lengthening), of_wall(lambda wall: wall.area_change)

FINDINGS = (
    CineRule(
        "failed frames",
        lambda e: part_of_frames(e, ("failed",)),
        0.0,
        0.15,
        lambda e: f"The reference was not found in {named(frames_of(e, ('failed',)))}.",
        (check_frames, advice.other_tracker),
    ),
    CineRule(
        "doubtful frames",
        lambda e: part_of_frames(e, ("look", "failed")),
        0.1,
        inf,
        lambda e: f"The registration of {named(frames_of(e, ('look', 'failed')))} with the reference is doubtful.",
        (check_frames, advice.other_tracker),
    ),
    CineRule(
        "closure",
        lambda e: e.closure_mm,
        1.0,
        3.0,
        lambda e: f"Once round the cycle, points end {e.closure_mm:.1f} mm from where they began.",
        (whole_cycle, advice.other_tracker),
    ),
    CineRule(
        "uneven motion",
        lambda e: e.unevenness,
        0.4,
        1.0,
        lambda e: f"The motion jumps: between frames by {percent(e.unevenness)} of all that it moves.",
        (whole_cycle, check_frames),
    ),
    CineRule(
        "volume of the wall",
        lambda e: -inf if e.wall_change is None else e.wall_change,
        0.3,
        0.6,
        lambda e: f"The wall changes its volume by {percent(e.wall_change or 0.0)}, which muscle does not.",
        (check_labels, advice.other_tracker),
    ),
    CineRule(
        "muscle in the cavity",
        lambda e: -inf if e.muscle_in_cavity is None else e.muscle_in_cavity,
        0.22,
        inf,
        lambda e: (
            f"In one frame {percent(e.muscle_in_cavity or 0.0)} of the tracked cavity look like muscle, beyond those "
            "that do in the reference: the heart may move further than was found, and eject more."
        ),
        (advice.tracker_of_hearts, check_labels),
    ),
    CineRule(
        "shortening",
        shortening,
        0.35,
        inf,
        lambda e: f"Circumferential strain falls to -{percent(shortening(e))}{BEYOND}",
        (check_labels, advice.other_tracker, stiffer),
    ),
    CineRule(
        "thickening",
        thickening,
        1.0,
        inf,
        lambda e: f"Radial strain rises to {percent(thickening(e))}{BEYOND}",
        (check_labels, advice.other_tracker, stiffer),
    ),
    CineRule(
        "lengthening",
        lengthening,
        0.35,
        inf,
        lambda e: (
            f"A sixth of the {e.extremes and e.extremes.lengthening_level} wall lengthens by "
            f"{percent(lengthening(e))} around the cavity: muscle is hardly stretched beyond end-diastole."
        ),
        (from_diastole, advice.other_tracker, stiffer),
    ),
    CineRule(
        "area of a part",
        area_change,
        0.7,
        inf,
        lambda e: (
            f"A sixth of the {e.extremes and e.extremes.area_level} wall changes its area by "
            f"{percent(area_change(e))}: muscle keeps its volume, and little moves through a slice."
        ),
        (outer_slices, advice.other_tracker, stiffer),
    ),
)
"""What decides the level."""


def judge_cine(evidence: CineEvidence, run: Run = UNKNOWN) -> Verdict:
    """The worst level that any finding has, with the worst findings first, and what to try after such a run."""
    found = [rule for rule in FINDINGS if rule.level(evidence) != "good"]
    if not found:
        return Verdict("good")
    found.sort(key=lambda rule: rule.level(evidence) != "failed")
    reasons = [rule.reason(evidence) for rule in found][:MAX_REASONS]
    to_try = unique(words for rule in found for each in rule.to_try if (words := each(run)) is not None)
    return Verdict(found[0].level(evidence), tuple(reasons), to_try[:MAX_ADVICE])


def unevenness(fields: Float[ndarray, "t d *s"], weight: Float[ndarray, "*s"]) -> float:
    """The largest |u_(t-1) − 2 u_t + u_(t+1)| round the cycle over the largest |u_t|: means under a weight.

    Of a motion a sin(2πt/n) it is 4 sin²(π/n), which is small where frames are many."""
    if len(fields) < LEAST_FRAMES:
        return 0.0

    def size(u: Float[ndarray, "d *s"]) -> float:
        return float((np.linalg.norm(u, axis=0) * weight).sum() / weight.sum())

    largest = max(size(u) for u in fields)
    n = len(fields)
    bends = (size(fields[k - 1] - 2 * fields[k] + fields[(k + 1) % n]) for k in range(n))
    return max(bends) / largest if largest else 0.0
