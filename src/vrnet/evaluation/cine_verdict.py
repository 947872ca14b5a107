"""Good, look at it, or failed: what a tracked cine is worth.

Every frame is judged as a registered pair is; the cine as a whole by whether its chains close, whether its motion runs
evenly from frame to frame, and whether the wall keeps its volume, as muscle does. docs/verdict.md says how the limits
were measured."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from vrnet.evaluation.evidence import Evidence
from vrnet.evaluation.rules import Level, percent
from vrnet.evaluation.verdict import Verdict, judge_evidence, unique

LEAST_FRAMES = 15
"""Of fewer frames, hearts move unevenly from one to the next."""
MAX_NAMED = 8
"""Frames that are named; of more, how many there are."""
MAX_REASONS, MAX_ADVICE = 5, 3


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


@dataclass(frozen=True)
class CineRule:
    """A measure, of which more is worse, with its limits and what to say beyond them."""

    name: str
    measure: Callable[[CineEvidence], float]
    look: float
    failed: float
    reason: Callable[[CineEvidence], str]
    to_try: tuple[str, ...]

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


CHECK_FRAMES = "look at these frames, and leave out those that show something else, or another position"
WHOLE_CYCLE = "check that the cine is one whole beat, in the order of time, and that its patient lay still"
CHECK_LABELS = "check that the labels belong to the reference `frame`"
OTHER_METHOD = "`method=TV-L1`, or `method=Gaussian-LNCC`"

FINDINGS = (
    CineRule(
        "failed frames",
        lambda e: part_of_frames(e, ("failed",)),
        0.0,
        0.15,
        lambda e: f"The reference was not found in {named(frames_of(e, ('failed',)))}.",
        (CHECK_FRAMES, OTHER_METHOD),
    ),
    CineRule(
        "doubtful frames",
        lambda e: part_of_frames(e, ("look", "failed")),
        0.1,
        inf,
        lambda e: f"The registration of {named(frames_of(e, ('look', 'failed')))} with the reference is doubtful.",
        (CHECK_FRAMES, OTHER_METHOD),
    ),
    CineRule(
        "closure",
        lambda e: e.closure_mm,
        1.0,
        3.0,
        lambda e: f"Once round the cycle, points end {e.closure_mm:.1f} mm from where they began.",
        (WHOLE_CYCLE, OTHER_METHOD),
    ),
    CineRule(
        "uneven motion",
        lambda e: e.unevenness,
        0.4,
        1.0,
        lambda e: f"The motion jumps: between frames by {percent(e.unevenness)} of all that it moves.",
        (WHOLE_CYCLE, CHECK_FRAMES),
    ),
    CineRule(
        "volume of the wall",
        lambda e: -inf if e.wall_change is None else e.wall_change,
        0.3,
        0.6,
        lambda e: f"The wall changes its volume by {percent(e.wall_change or 0.0)}, which muscle does not.",
        (CHECK_LABELS, OTHER_METHOD),
    ),
)
"""What decides the level."""


def judge_cine(evidence: CineEvidence) -> Verdict:
    """The worst level that any finding has, with the worst findings first, and what to try."""
    found = [rule for rule in FINDINGS if rule.level(evidence) != "good"]
    if not found:
        return Verdict("good")
    found.sort(key=lambda rule: rule.level(evidence) != "failed")
    reasons = [rule.reason(evidence) for rule in found][:MAX_REASONS]
    advice = unique(words for rule in found for words in rule.to_try)
    return Verdict(found[0].level(evidence), tuple(reasons), advice[:MAX_ADVICE])


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
