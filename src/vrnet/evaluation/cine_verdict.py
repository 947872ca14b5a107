"""Good, look at it, or failed: what a tracked cine is worth.

Every frame is judged as a registered pair is; the cine by whether its chains close, whether its motion runs evenly from
frame to frame, whether the wall keeps its volume, as muscle does, whether the cavity holds blood, and whether its
strain is one that hearts have. The last four are judged of the whole and of each slice, by limits of their own: what is
wrong in one slice is lost among the others. What is found in the whole and in half of the slices is no
slice's own, and is said of the whole alone. docs/verdict.md says how the limits were measured."""

from collections.abc import Callable, Mapping, Sequence
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
OF_WHOLE = {"size": "volume", "motion": "all that it moves"}
OF_SLICE = {"size": "area", "motion": "the largest motion there, or of the whole heart's where that is larger"}
"""What muscle keeps, and what a jump is a part of."""


@dataclass(frozen=True)
class CineRule:
    """A measure, of which more is worse, with its limits and what to say beyond them."""

    name: str
    measure: Callable[[CineEvidence], Extreme]
    limits: Limits
    reason: Callable[[CineEvidence], str]
    to_try: tuple[advice.Advice, ...]
    is_told: Callable[[CineEvidence], bool] = lambda e: True
    """Whether what is found is not told by another rule."""
    beyond: Callable[[CineEvidence], list[Extreme]] = lambda e: []
    """What is beyond its limits in slices, of a rule about these."""

    def level(self, evidence: CineEvidence) -> Level:
        return self.level_of(self.measure(evidence).value)

    def level_of(self, value: float) -> Level:
        """The level of a cine of which this was measured."""
        look, failed = self.limits
        return "failed" if value > failed else "look" if value > look else "good"


def part_of_frames(evidence: CineEvidence, levels: Sequence[Level]) -> Extreme:
    """The part of the frames whose verdict, as a pair, is one of these, and the first of them."""
    found = frames_of(evidence, levels)
    return Extreme(len(found) / max(len(evidence.frames), 1), min(found, default=None))


def frames_of(evidence: CineEvidence, levels: Sequence[Level]) -> list[int]:
    """The frames whose verdict, as a pair, is one of these."""
    return [k for k, each in evidence.frames if judge_evidence(each).level in levels]


def whole_and_slices(
    name: str, measure: str, whole: Limits, of_slice: Limits, words: str, to_try: tuple[advice.Advice, ...]
) -> tuple[CineRule, CineRule]:
    """Two rules about one of HeartExtremes: of the whole, and of the slice that does most.

    `words` are those of `said_of`."""

    def in_whole(e: CineEvidence) -> Extreme:
        return getattr(e.whole, measure)

    rule = CineRule(name, in_whole, whole, lambda e: said_of([in_whole(e)], words, OF_WHOLE), to_try)
    return rule, in_a_slice(name, measure, of_slice, words, to_try, rule)


def in_a_slice(
    name: str,
    measure: str,
    limits: Limits,
    words: str,
    to_try: tuple[advice.Advice, ...],
    *of_whole: CineRule,
) -> CineRule:
    """A rule about one of HeartExtremes in the slice that does most, told of all beyond a limit; what is beyond a limit
    of the whole too, and in half of the slices, is told by the rules of the whole."""

    def beyond(e: CineEvidence) -> list[Extreme]:
        return [found for found in in_slices(e, measure) if found.value > limits[0]]

    def is_of_slices(e: CineEvidence) -> bool:
        is_of_whole = any(rule.level(e) != "good" for rule in of_whole)
        return not is_of_whole or len(beyond(e)) < len(in_slices(e, measure)) / 2

    def said_of_slices(e: CineEvidence) -> str:
        said, slices = said_of(beyond(e), words, OF_SLICE), [each.slice for each in beyond(e) if each.slice is not None]
        return f"{numbered('slice', slices).capitalize()}: {said[0].lower()}{said[1:]}"

    def worst(e: CineEvidence) -> Extreme:
        return max(in_slices(e, measure), key=lambda found: found.value, default=NOTHING)

    advised = advice.without_slice, *to_try
    return CineRule(f"{name}, in a slice", worst, limits, said_of_slices, advised, is_of_slices, beyond)


def in_slices(evidence: CineEvidence, measure: str) -> list[Extreme]:
    """One of HeartExtremes in every slice in which it is measured."""
    found = [getattr(each, measure) for each in evidence.slices]
    return [each for each in found if each != NOTHING]


def said_of(found: Sequence[Extreme], words: str, terms: Mapping[str, str]) -> str:
    """Words in which {value} stands for the largest value, {up_to} says that others are smaller, {frames} are those of
    all; and the terms for theirs."""
    most = percent(max(each.value for each in found))
    return words.format(value=most, up_to="up to " if len(found) > 1 else "", frames=frames_text(*found), **terms)


def frames_text(*found: Extreme) -> str:
    """The frames of what was found, as people count them."""
    return numbered("frame", {each.frame for each in found if each.frame is not None})


def of_sixths(measure: str) -> Callable[[CineEvidence], Extreme]:
    """A measure of the sixths of the wall; of a cine without strain, nothing is found."""
    return lambda e: NOTHING if e.sixths is None else getattr(e.sixths, measure)


lengthening, area_change = of_sixths("lengthening"), of_sixths("area_change")

FAILED_FRAMES = CineRule(
    "failed frames",
    lambda e: part_of_frames(e, ("failed",)),
    (0.0, 0.15),
    lambda e: f"The reference was not found in {numbered('frame', frames_of(e, ('failed',)))}.",
    (advice.check_frames, advice.other_tracker),
)
DOUBTFUL_FRAMES = CineRule(
    "doubtful frames",
    lambda e: part_of_frames(e, ("look", "failed")),
    (0.1, inf),
    lambda e: (
        f"The registration of {numbered('frame', frames_of(e, ('look', 'failed')))} with the reference is doubtful."
    ),
    (advice.check_frames, advice.other_tracker),
)

FINDINGS = (
    FAILED_FRAMES,
    DOUBTFUL_FRAMES,
    in_a_slice(
        "unmatched",
        "unmatched",
        (0.37, inf),
        "In {frames}, {up_to}{value} of what the reference shows here has no counterpart: "
        "the slice may show noise there, or something else.",
        (advice.check_frames,),
        FAILED_FRAMES,
        DOUBTFUL_FRAMES,
    ),
    in_a_slice(
        "stillness",
        "stillness",
        (0.8, inf),
        "Over the cycle the heart moves {up_to}{value} less than in the other slices, as {frames} shows best: "
        "one frame may be shown again and again, or the motion was not found.",
        (advice.other_tracker,),
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
        "The motion jumps at {frames}: by {up_to}{value} of {motion}.",
        (advice.whole_cycle, advice.check_frames),
    ),
    *whole_and_slices(
        "volume of the wall",
        "wall_change",
        (0.3, 0.6),
        (0.75, inf),
        "In {frames} the wall has changed its {size} by {up_to}{value}, which muscle does not.",
        (advice.reference_labels, advice.other_tracker),
    ),
    *whole_and_slices(
        "muscle in the cavity",
        "muscle_in_cavity",
        (0.22, inf),
        (0.43, inf),
        "In {frames}, {up_to}{value} more of the tracked cavity looks like muscle than in the reference: "
        "the heart may move further than was found, and eject more.",
        (advice.other_tracker, advice.reference_labels),
    ),
    *whole_and_slices(
        "shortening",
        "shortening",
        (0.35, inf),
        (0.4, inf),
        f"In {{frames}} circumferential strain falls as far as -{{value}} {BEYOND}",
        (advice.reference_labels, advice.other_tracker, advice.stiffer),
    ),
    *whole_and_slices(
        "thickening",
        "thickening",
        (1.0, inf),
        (1.75, inf),
        f"In {{frames}} radial strain rises as far as {{value}} {BEYOND}",
        (advice.reference_labels, advice.other_tracker, advice.stiffer),
    ),
    CineRule(
        "lengthening",
        lengthening,
        (0.35, inf),
        lambda e: (
            f"In {frames_text(lengthening(e))} a sixth of the {lengthening(e).wall_level} wall has lengthened by "
            f"{percent(lengthening(e).value)} around the cavity: muscle is hardly stretched beyond end-diastole."
        ),
        (advice.from_diastole, advice.other_tracker, advice.stiffer),
    ),
    CineRule(
        "area of a part",
        area_change,
        (1.0, inf),
        lambda e: (
            f"In {frames_text(area_change(e))} a sixth of the {area_change(e).wall_level} wall has changed its area by "
            f"{percent(area_change(e).value)}: muscle keeps its volume, and little moves through a slice."
        ),
        (advice.outer_slices, advice.other_tracker, advice.stiffer),
    ),
)
"""What decides the level."""


def found_in(evidence: CineEvidence) -> list[CineRule]:
    """The rules that are not good of it, those that failed first, and that no other rule tells."""
    found = [rule for rule in FINDINGS if rule.level(evidence) != "good" and rule.is_told(evidence)]
    return sorted(found, key=lambda rule: rule.level(evidence) != "failed")


def judge_cine(evidence: CineEvidence, run: Run = UNKNOWN) -> Verdict:
    """The worst level that any finding has, with the worst findings first, and what to try after such a run."""
    found = found_in(evidence)
    if not found:
        return Verdict("good")
    reasons = [rule.reason(evidence) for rule in found][:MAX_REASONS]
    to_try = unique(words for rule in found for each in rule.to_try if (words := each(run)) is not None)
    return Verdict(found[0].level(evidence), tuple(reasons), to_try[:MAX_ADVICE])


def named_slices(evidence: CineEvidence) -> list[int]:
    """The slices that the verdict names."""
    found = [each for rule in found_in(evidence)[:MAX_REASONS] for each in rule.beyond(evidence)]
    return sorted({each.slice for each in found if each.slice is not None})


def where_to_look(evidence: CineEvidence) -> Extreme | None:
    """The slice and the frame of the first finding that names a slice; else the frame of the first that has one."""
    places = [place for rule in found_in(evidence) if (place := rule.measure(evidence)).frame is not None]
    return next((place for place in places if place.slice is not None), places[0] if places else None)
