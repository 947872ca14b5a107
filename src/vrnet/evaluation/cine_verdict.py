"""Good, look at it, or failed: what a tracked cine is worth.

Every frame is judged as a registered pair is; the cine by whether its chains close, whether its motion runs evenly from
frame to frame, whether the wall keeps its volume, as muscle does, whether the cavity holds blood, and whether its
strain is one that hearts have. The last four are judged of the whole and of each slice, by limits of their own: what is
wrong in one slice is lost among the others. docs/verdict.md says how the limits were measured."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf

from vrnet.evaluation import advice
from vrnet.evaluation.advice import Run
from vrnet.evaluation.cine_evidence import NOTHING, CineEvidence, Extreme
from vrnet.evaluation.levels import Level
from vrnet.evaluation.verdict import UNKNOWN, Verdict, judge_evidence, unique
from vrnet.wording import numbered, percent

MAX_REASONS, MAX_ADVICE = 5, 3
BEYOND = "(Green, the mean over the wall), which is beyond what is plausible of a heart."
Limits = tuple[float, float]
"""Beyond which a measure is worth a look, and failed."""


@dataclass(frozen=True)
class CineRule:
    """A measure, of which more is worse, with its limits and what to say beyond them."""

    name: str
    measure: Callable[[CineEvidence], Extreme]
    limits: Limits
    reason: Callable[[CineEvidence], str]
    to_try: tuple[advice.Advice, ...]

    def level(self, evidence: CineEvidence) -> Level:
        look, failed = self.limits
        value = self.measure(evidence).value
        return "failed" if value > failed else "look" if value > look else "good"


def part_of_frames(evidence: CineEvidence, levels: Sequence[Level]) -> Extreme:
    """The part of the frames whose verdict, as a pair, is one of these."""
    return Extreme(len(frames_of(evidence, levels)) / max(len(evidence.frames), 1))


def frames_of(evidence: CineEvidence, levels: Sequence[Level]) -> list[int]:
    """The frames whose verdict, as a pair, is one of these."""
    return [k for k, each in evidence.frames if judge_evidence(each).level in levels]


def whole_and_slices(
    name: str, measure: str, whole: Limits, of_slice: Limits, words: str, to_try: tuple[advice.Advice, ...]
) -> tuple[CineRule, CineRule]:
    """Two rules about one of HeartExtremes: of the whole, and of the slice that does most, which is named.

    In `words` {} stands for the value, and {size} for what muscle keeps."""

    def of_whole(e: CineEvidence) -> Extreme:
        return getattr(e.whole, measure)

    def of_slices(e: CineEvidence) -> Extreme:
        return getattr(e.slices, measure)

    def said_of_whole(e: CineEvidence) -> str:
        return words.format(percent(of_whole(e).value), size="volume")

    def said_of_slice(e: CineEvidence) -> str:
        found, said = of_slices(e), words.format(percent(of_slices(e).value), size="area")
        return f"{numbered('slice', [found.slice or 0]).capitalize()}: {said[0].lower()}{said[1:]}"

    return (
        CineRule(name, of_whole, whole, said_of_whole, to_try),
        CineRule(f"{name}, in a slice", of_slices, of_slice, said_of_slice, (advice.without_slice, *to_try)),
    )


def of_sixths(measure: str) -> Callable[[CineEvidence], Extreme]:
    """A measure of the sixths of the wall; of a cine without strain, nothing is found."""
    return lambda e: NOTHING if e.sixths is None else getattr(e.sixths, measure)


lengthening, area_change = of_sixths("lengthening"), of_sixths("area_change")

FINDINGS = (
    CineRule(
        "failed frames",
        lambda e: part_of_frames(e, ("failed",)),
        (0.0, 0.15),
        lambda e: f"The reference was not found in {numbered('frame', frames_of(e, ('failed',)))}.",
        (advice.check_frames, advice.other_tracker),
    ),
    CineRule(
        "doubtful frames",
        lambda e: part_of_frames(e, ("look", "failed")),
        (0.1, inf),
        lambda e: (
            f"The registration of {numbered('frame', frames_of(e, ('look', 'failed')))} with the reference is doubtful."
        ),
        (advice.check_frames, advice.other_tracker),
    ),
    CineRule(
        "closure",
        lambda e: Extreme(e.closure_mm),
        (1.0, 3.0),
        lambda e: f"Once round the cycle, points end {e.closure_mm:.1f} mm from where they began.",
        (advice.whole_cycle, advice.other_tracker),
    ),
    *whole_and_slices(
        "uneven motion",
        "unevenness",
        (0.4, 1.0),
        (0.55, inf),
        "The motion jumps: between frames by {} of all that it moves.",
        (advice.whole_cycle, advice.check_frames),
    ),
    *whole_and_slices(
        "volume of the wall",
        "wall_change",
        (0.3, 0.6),
        (0.75, inf),
        "The wall changes its {size} by {}, which muscle does not.",
        (advice.reference_labels, advice.other_tracker),
    ),
    *whole_and_slices(
        "muscle in the cavity",
        "muscle_in_cavity",
        (0.22, inf),
        (0.43, inf),
        "In one frame {} of the tracked cavity look like muscle, beyond those that do in the reference: the heart may "
        "move further than was found, and eject more.",
        (advice.other_tracker, advice.reference_labels),
    ),
    *whole_and_slices(
        "shortening",
        "shortening",
        (0.35, inf),
        (0.4, inf),
        f"Circumferential strain falls to -{{}} {BEYOND}",
        (advice.reference_labels, advice.other_tracker, advice.stiffer),
    ),
    *whole_and_slices(
        "thickening",
        "thickening",
        (1.0, inf),
        (1.75, inf),
        f"Radial strain rises to {{}} {BEYOND}",
        (advice.reference_labels, advice.other_tracker, advice.stiffer),
    ),
    CineRule(
        "lengthening",
        lengthening,
        (0.35, inf),
        lambda e: (
            f"A sixth of the {lengthening(e).level} wall lengthens by {percent(lengthening(e).value)} around the "
            "cavity: muscle is hardly stretched beyond end-diastole."
        ),
        (advice.from_diastole, advice.other_tracker, advice.stiffer),
    ),
    CineRule(
        "area of a part",
        area_change,
        (1.0, inf),
        lambda e: (
            f"A sixth of the {area_change(e).level} wall changes its area by {percent(area_change(e).value)}: muscle "
            "keeps its volume, and little moves through a slice."
        ),
        (advice.outer_slices, advice.other_tracker, advice.stiffer),
    ),
)
"""What decides the level."""


def found_in(evidence: CineEvidence) -> list[CineRule]:
    """The rules that are not good of it, those that failed first."""
    found = [rule for rule in FINDINGS if rule.level(evidence) != "good"]
    return sorted(found, key=lambda rule: rule.level(evidence) != "failed")


def judge_cine(evidence: CineEvidence, run: Run = UNKNOWN) -> Verdict:
    """The worst level that any finding has, with the worst findings first, and what to try after such a run."""
    found = found_in(evidence)
    if not found:
        return Verdict("good")
    reasons = [rule.reason(evidence) for rule in found][:MAX_REASONS]
    to_try = unique(words for rule in found for each in rule.to_try if (words := each(run)) is not None)
    return Verdict(found[0].level(evidence), tuple(reasons), to_try[:MAX_ADVICE])


def where_to_look(evidence: CineEvidence) -> Extreme | None:
    """The slice and the frame of the first finding that names a slice; else the frame of the first that has one."""
    places = [place for rule in found_in(evidence) if (place := rule.measure(evidence)).frame is not None]
    return next((place for place in places if place.slice is not None), places[0] if places else None)
