"""Good, look at it, or failed: what a tracked cine is worth.

Every frame is judged as a registered pair is; the cine by whether its chains close, whether its motion runs evenly from
frame to frame, whether the wall keeps its volume, as muscle does, whether the cavity holds blood, and whether its
strain is one that hearts have. The last four are judged of the whole and of each slice, by limits of their own: what is
wrong in one slice is lost among the others. What is found in the whole and in half of the slices is no
slice's own, and is said of the whole alone. docs/verdict.md says how the limits were measured."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Real
from numpy import ndarray

from vrnet.cardiac.cine import CineResult
from vrnet.cardiac.strain import Strain
from vrnet.cardiac.volumes import CavityMuscle, SliceCurves
from vrnet.devices import side_by_side
from vrnet.errors import as_options, numbered, percent
from vrnet.registration.pair import PairResult
from vrnet.verdict import advice
from vrnet.verdict.advice import MAX_ADVICE, MAX_REASONS, Advice, Run, advice_after
from vrnet.verdict.evidence import Evidence, as_blocks, block_sides, evidence_of, range_of_moving
from vrnet.verdict.placement import MATCHED, NOISE, RADIUS, Windows, intensity_range, squared_correlation
from vrnet.verdict.rules import UNKNOWN, Level, Verdict, judge_evidence, level_by_limits
from vrnet.vocabulary import LEVELS

LEAST_FRAMES = 15  # of fewer frames, hearts move unevenly from one to the next
MOVING_PART = 0.05  # of the largest motion of any slice, which may be that of one that shows something else for a while


class Extreme(NamedTuple):
    """The most that something does over a cycle, and where that is; frames and slices are counted as in the array."""

    value: float = -inf  # where nothing is measured
    frame: int | None = None
    slice: int | None = None  # of what is of one slice
    wall_level: str = ""  # one of LEVELS, of what is measured by level of the wall


NOTHING = Extreme()
Extremes = Mapping[str, Extreme]
"""The most that a heart, or one slice of it, does over a cycle, by the names that rules have for it, as parts of what
it is in the reference. Shortening and thickening are of the mean Green strain over the wall, lengthening and
area_change of any sixth of the wall at a level, wall_change of its volume, or of its area in a slice."""


@dataclass(frozen=True)
class CineEvidence:
    """Measures of a tracked cine."""

    frames: tuple[tuple[int, Evidence], ...]  # (number, evidence as of a pair) of every frame but the reference
    closure_mm: float  # the larger of both chains': see `vrnet.cardiac.cine.CLOSURE`
    whole: Extremes = field(default_factory=dict)  # of all slices together
    slices: tuple[Extremes, ...] = ()  # of each slice of a stack; none of one slice, nor of volumes


def cine_evidence(result: CineResult) -> CineEvidence:
    """The grounds of the verdict on a tracked cine."""
    fixed, grid, n, axis = result.cine.image(result.frame), result.cine.grid, len(result.cine), result.stack_axis
    unmatched = np.full((0 if axis is None else grid.shape[axis], n), np.nan)

    def judge(k: int) -> Evidence:
        moving, warped = result.cine.image(k), result.warped(k)
        if axis is not None:
            unmatched[:, k] = unmatched_by_slice(fixed.array, moving.array, warped.array, grid.spacing, axis)
        pair = PairResult(fixed=fixed, moving=moving, transform=transforms[k], warped=warped)
        return evidence_of(pair, by_slice=False)

    transforms, others = result.transforms, [k for k in range(n) if k != result.frame]
    frames = [*zip(others, side_by_side(lambda i: judge(others[i]), range(len(others))), strict=True)]
    motion = result.fields, result.labelled.astype(float)
    curves, walls = result.curves_of(result.carried), result.kept.area_mm2  # of the motion, before walls were kept
    if curves is not None:
        curves = replace(curves, wall_mm2=np.stack([walls.get(k, np.full(n, np.nan)) for k in curves.slices]))
    changed = change(sum(walls.values(), np.zeros(n)), result.frame) if walls else None
    whole = extremes_of_whole(changed, result.strain, result.muscle_in_cavity)
    for key, ventricle in (("estimates", "LV"), ("estimates of the RV", "RV")):
        told = result.ejection_fractions_percent.items()
        alone = [found.get(ventricle, np.nan) for name, found in told if "alone" in name]
        if alone and np.isfinite(alone).all():
            whole[key] = Extreme(float(np.ptp(alone)) / 100, smallest_cavity(result))
    return CineEvidence(
        tuple(frames),
        max(result.closure_mm.values()),
        {"unevenness": unevenness(*motion), **whole},
        () if axis is None else extremes_of_slices(*motion, axis, curves, result.frame, unmatched),
    )


def smallest_cavity(result: CineResult) -> int | None:
    """The frame at which the LV is smallest; None if some frame shows none, or if that is the reference."""
    if result.volumes is None or not result.volumes.lv_ml.all():
        return None
    smallest = int(result.volumes.lv_ml.argmin())
    return None if smallest == result.frame else smallest


def extremes_of_whole(
    wall_change: Float[ndarray, " t"] | None, strain: Strain | None, muscle: CavityMuscle | None
) -> dict[str, Extreme]:
    """Those of all slices together that labels tell."""
    found: dict[str, Extreme] = {}
    if wall_change is not None:
        found["wall_change"] = largest(wall_change)
    if muscle is not None:
        found["muscle_in_cavity"] = largest(muscle.whole)
    if strain is not None:
        found["shortening"] = largest(-strain.curve("green_circumferential") / 100)
        found["thickening"] = largest(strain.curve("green_radial") / 100)
        middle, area = strain.sixths / 100
        for name, sixths in (("lengthening", middle), ("area_change", np.abs(area))):
            level, sixth, frame = map(int, np.unravel_index(int(np.nanargmax(sixths)), sixths.shape))
            found[name] = Extreme(float(sixths[level, sixth, frame]), frame, wall_level=LEVELS[level])
    return found


def extremes_of_slices(
    fields: Float[ndarray, "t d *s"], weight: Float[ndarray, "*s"], axis: int, curves: SliceCurves | None,
    reference: int, unmatched: Float[ndarray, "z t"],
) -> tuple[Extremes, ...]:  # fmt: skip
    """Those of each slice across an axis that has weight: likeness of all, the rest where the wall is a ring."""
    motions, weights = np.moveaxis(fields, 2 + axis, 0), np.moveaxis(weight, axis, 0)
    found = {k: {"unmatched": largest(unmatched[k], k)} for k in range(len(weights)) if weights[k].any()}
    if curves is None:
        return tuple(found.values())
    rows = {k: row for row, k in enumerate(curves.slices) if not np.isnan(curves.green_radial_percent[row, reference])}
    whole = mean_lengths(fields, weight).max()
    parts = {
        "wall_change": change(curves.wall_mm2, reference),
        "muscle_in_cavity": curves.muscle_in_cavity_percent / 100,
        "shortening": -curves.green_circumferential_percent / 100,
        "thickening": curves.green_radial_percent / 100,
    }
    for k, row in rows.items():
        uneven = unevenness(motions[k], weights[k], whole)._replace(slice=k)
        found[k] |= {"unevenness": uneven, **{name: largest(part[row], k) for name, part in parts.items()}}

    # 1 − m_k / M: m_k is the largest motion of slice k over the frames, M the median of those that move; the frame is
    # that where they have moved farthest
    lengths = {k: mean_lengths(motions[k], weights[k]) for k in rows}
    most = max((length.max() for length in lengths.values()), default=0.0)
    if most > 0:
        moving = np.stack([length for length in lengths.values() if length.max() >= MOVING_PART * most])
        typical, frame = float(np.median(moving.max(1))), int(np.median(moving, 0).argmax())
        for k, length in lengths.items():
            found[k]["stillness"] = Extreme(1 - float(length.max()) / typical, frame, k)
    return tuple(found.values())


def change(size: Float[ndarray, "*k t"], reference: int) -> Float[ndarray, "*k t"]:
    """By which part sizes change from the reference, either way; NaN where there is nothing in it."""
    with np.errstate(invalid="ignore", divide="ignore"):
        parts = np.abs(size / size[..., [reference]] - 1)
    return np.where(size[..., [reference]] > 0, parts, np.nan)


def largest(curve: Float[ndarray, " t"], of_slice: int | None = None) -> Extreme:
    """The largest value of a curve, and its frame; NaN was not measured."""
    if np.isnan(curve).all():
        return NOTHING
    t = int(np.nanargmax(curve))
    return Extreme(float(curve[t]), t, of_slice)


def unevenness(fields: Float[ndarray, "t d *s"], weight: Float[ndarray, "*s"], least: float = 0.0) -> Extreme:
    """The largest |u_(t-1) − 2 u_t + u_(t+1)| round the cycle over the largest |u_t|: means under a weight.

    Of a motion a sin(2πt/n) it is 4 sin²(π/n), which is small where frames are many. A motion that is smaller than
    `least`, in voxels, is compared with that: of a slice that hardly moves, as the apex, the motion of all."""
    n = len(fields)
    if n < LEAST_FRAMES:
        return Extreme(0.0)
    bends = mean_lengths((fields[k - 1] - 2 * fields[k] + fields[(k + 1) % n] for k in range(n)), weight)
    whole = max(mean_lengths(fields, weight).max(), least)
    return Extreme(float(bends.max() / whole) if whole else 0.0, int(bends.argmax()))


def mean_lengths(fields: Iterable[Float[ndarray, "d *s"]], weight: Float[ndarray, "*s"]) -> Float[ndarray, " t"]:
    """The mean length of the motion of every frame under a weight."""
    return np.array([(np.linalg.norm(u, axis=0) * weight).sum() / weight.sum() for u in fields])


def unmatched_by_slice(
    fixed: Real[ndarray, "*s"], moving: Real[ndarray, "*s"], warped: Real[ndarray, "*s"],
    spacing: tuple[float, ...], across: int,
) -> Float[ndarray, " z"]:  # fmt: skip
    """`Evidence.unmatched` within every slice across an axis of s; a slice that shows nothing has 0."""
    sides = tuple(1 if axis == across else side for axis, side in enumerate(block_sides(fixed.shape, spacing)))
    I0, I1, I1w = (as_blocks(image[None], sides) for image in (fixed, moving, warped))
    F, W = intensity_range(I0).scale(I0), range_of_moving(I1.flatten(), I1w.flatten()).scale(I1w)
    radius = tuple(0 if axis == across else RADIUS[F.dim() - 3] for axis in range(F.dim() - 2))
    a, after = Windows.of(F, radius), Windows.of(W, radius)
    structure = a.variance.sqrt() * (a.variance > NOISE)
    within = [2 + axis for axis in range(F.dim() - 2) if axis != across]
    unlike = structure * (squared_correlation(a, after) < MATCHED)
    found, whole = (each.double().sum(within).flatten() for each in (unlike, structure))
    return np.asarray(torch.where(whole > 0, found / whole.clamp(min=1e-12), 0.0).numpy())


Limits = tuple[float, float]  # beyond which a measure is worth a look, and failed
OF_WHOLE = {"size": "volume", "motion": "all that it moves"}  # what muscle keeps, and what a jump is a part of
OF_SLICE = {"size": "area", "motion": "the largest motion there, or of the whole heart's where that is larger"}


@dataclass(frozen=True)
class CineRule:
    """A measure, of which more is worse, with its limits and what to say beyond them."""

    name: str
    measured: Callable[[CineEvidence], list[Extreme]]  # of a rule about slices, in every slice in which it is measured
    limits: Limits
    words: str
    """In which {value} and {mm} stand for the largest value, {up_to} says that others are smaller, {frames} are those
    of all that is beyond the limit, {level} is that of the wall; {size} and {motion} are as in OF_WHOLE."""
    to_try: tuple[Advice, ...]
    is_of_slices: bool = False
    of_whole: tuple["CineRule", ...] = ()  # which tell what half of the slices, or more, have in common with the whole

    def measure(self, evidence: CineEvidence) -> Extreme:
        return max(self.measured(evidence), key=lambda found: found.value, default=NOTHING)

    def beyond(self, evidence: CineEvidence) -> list[Extreme]:
        """All that is worth a look."""
        return [found for found in self.measured(evidence) if found.value > self.limits[0]]

    def level(self, evidence: CineEvidence) -> Level:
        return level_by_limits(self.measure(evidence).value, *self.limits)

    def reason(self, evidence: CineEvidence) -> str:
        """What is said of it, with slices and frames as people count them."""
        found, most = self.beyond(evidence), self.measure(evidence)
        said = self.words.format(
            value=percent(most.value), mm=f"{most.value:.1f}", up_to="up to " if len(found) > 1 else "",
            frames=numbered("frame", {each.frame for each in found if each.frame is not None}),
            level=most.wall_level, **(OF_SLICE if self.is_of_slices else OF_WHOLE),
        )  # fmt: skip
        if not self.is_of_slices:
            return said
        slices = numbered("slice", [each.slice for each in found if each.slice is not None])
        return f"{slices.capitalize()}: {said[0].lower()}{said[1:]}"


def frames_at(*levels: Level) -> Callable[[CineEvidence], list[Extreme]]:
    """The part of the frames whose verdict, as a pair, is one of these; once for each of them."""

    def found(evidence: CineEvidence) -> list[Extreme]:
        frames = [k for k, each in evidence.frames if judge_evidence(each).level in levels]
        return [Extreme(len(frames) / len(evidence.frames), k) for k in frames] or [Extreme(0.0)]

    return found


def in_slices(
    name: str, measure: str, limits: Limits, words: str, to_try: tuple[Advice, ...], *of_whole: CineRule
) -> CineRule:
    """A rule about one of the extremes in the slice that does most, told of all beyond a limit."""

    def found(evidence: CineEvidence) -> list[Extreme]:
        return [place for each in evidence.slices if (place := each.get(measure, NOTHING)) != NOTHING]

    return CineRule(f"{name}, in a slice", found, limits, words, (advice.WITHOUT_SLICE, *to_try), True, of_whole)


def whole_and_slices(
    name: str, measure: str, whole: Limits, of_slice: Limits, words: str, to_try: tuple[Advice, ...]
) -> tuple[CineRule, CineRule]:
    """Two rules about one of the extremes: of the whole, and of the slice that does most."""
    rule = CineRule(name, lambda e: [e.whole.get(measure, NOTHING)], whole, words, to_try)
    return rule, in_slices(name, measure, of_slice, words, to_try, rule)


FRAMES = advice.CHECK_FRAMES, advice.other_tracker
LABELS = advice.REFERENCE_LABELS, advice.other_tracker, advice.stiffer
BEYOND = "(Green, the mean over the wall), which is beyond what is plausible of a heart."
FAILED_FRAMES = CineRule(
    "failed frames", frames_at("failed"), (0.0, 0.15), "The reference was not found in {frames}.", FRAMES
)
DOUBTFUL_FRAMES = CineRule(
    "doubtful frames", frames_at("look", "failed"), (0.1, inf),
    "The registration of {frames} with the reference is doubtful.", FRAMES,
)  # fmt: skip
FINDINGS = (
    FAILED_FRAMES,
    DOUBTFUL_FRAMES,
    in_slices("unmatched", "unmatched", (0.37, inf),
              "In {frames}, {up_to}{value} of what the reference shows here has no counterpart: "
              "the slice may show noise there, or something else.",
              (advice.CHECK_FRAMES,), FAILED_FRAMES, DOUBTFUL_FRAMES),
    in_slices("stillness", "stillness", (0.8, inf),
              "Over the cycle the heart moves {up_to}{value} less than in the other slices, as {frames} shows best: "
              "one frame may be shown again and again, or the motion was not found.", (advice.other_tracker,)),
    CineRule("closure", lambda e: [Extreme(e.closure_mm)], (1.0, 3.0),
             "Once round the cycle, points end {mm} mm from where they began.",
             (advice.WHOLE_CYCLE, advice.other_tracker)),
    *whole_and_slices("uneven motion", "unevenness", (0.4, 1.0), (0.55, inf),
                      "The motion jumps at {frames}: by {up_to}{value} of {motion}.",
                      (advice.WHOLE_CYCLE, advice.CHECK_FRAMES)),
    *whole_and_slices("volume of the wall", "wall_change", (0.3, 0.6), (0.75, inf),
                      "In {frames} the wall has changed its {size} by {up_to}{value}, which muscle does not.",
                      (advice.REFERENCE_LABELS, advice.other_tracker)),
    *whole_and_slices("muscle in the cavity", "muscle_in_cavity", (0.22, inf), (0.43, inf),
                      "In {frames}, {up_to}{value} more of the tracked cavity looks like muscle than in the reference: "
                      "the heart may move further than was found, and eject more.",
                      (advice.other_tracker, advice.REFERENCE_LABELS)),
    *whole_and_slices("shortening", "shortening", (0.35, inf), (0.4, inf),
                      f"In {{frames}} circumferential strain falls as far as -{{value}} {BEYOND}", LABELS),
    *whole_and_slices("thickening", "thickening", (1.0, inf), (1.75, inf),
                      f"In {{frames}} radial strain rises as far as {{value}} {BEYOND}", LABELS),
    CineRule("lengthening", lambda e: [e.whole.get("lengthening", NOTHING)], (0.35, inf),
             "In {frames} a sixth of the {level} wall has lengthened by {value} around the cavity: muscle is hardly "
             "stretched beyond end-diastole.", (advice.FROM_DIASTOLE, advice.other_tracker, advice.stiffer)),
    CineRule("estimates", lambda e: [e.whole.get("estimates", NOTHING)], (0.1, inf),
             "The ejection fraction by the motion alone and that by the network alone differ by {value}: look at the "
             "outlines of {frames}.", (advice.REFERENCE_LABELS, advice.other_tracker)),
    CineRule("estimates of the RV", lambda e: [e.whole.get("estimates of the RV", NOTHING)], (0.4, inf),
             "The ejection fraction of the RV by the motion alone and that by the network alone differ by {value}: "
             "look at its outlines in {frames}.", (advice.REFERENCE_LABELS,)),
    CineRule("area of a part", lambda e: [e.whole.get("area_change", NOTHING)], (1.0, inf),
             "In {frames} a sixth of the {level} wall has changed its area by {value}: muscle keeps its volume, and "
             "little moves through a slice.", (advice.outer_slices, advice.other_tracker, advice.stiffer)),
)  # fmt: skip


def found_in(evidence: CineEvidence) -> list[CineRule]:
    """The rules that are not good of it, those that failed first, and that no rule of the whole tells."""
    found = []
    for rule in FINDINGS:
        is_of_whole = any(other.level(evidence) != "good" for other in rule.of_whole)
        is_told = is_of_whole and len(rule.beyond(evidence)) >= len(rule.measured(evidence)) / 2
        if rule.level(evidence) != "good" and not is_told:
            found.append(rule)
    return sorted(found, key=lambda rule: rule.level(evidence) != "failed")


def verdict_as_json(result: CineResult) -> dict[str, Any]:
    """The verdict as summary.json holds it, with what to try as options of the command, and where it is worst."""
    verdict, worst = result.verdict, where_to_look(result.evidence)
    told = replace(verdict, try_=tuple(as_options(advice) for advice in verdict.try_)).as_json()
    parts = {"wall": result.kept.area_mm2, "cavity": result.muscle_in_cavity, "strain": result.strain}
    place = None if worst is None else {"slice": worst.slice, "frame": worst.frame}
    return told | {"worst": place, "not_checked": [name for name, found in parts.items() if not found]}


def judge_cine(evidence: CineEvidence, run: Run = UNKNOWN) -> Verdict:
    """The worst level that any finding has, with the worst findings first, and what to try after such a run."""
    found = found_in(evidence)
    if not found:
        return Verdict("good")
    reasons = [rule.reason(evidence) for rule in found][:MAX_REASONS]
    to_try = advice_after(run, (each for rule in found for each in rule.to_try))
    return Verdict(found[0].level(evidence), tuple(reasons), to_try[:MAX_ADVICE])


def where_to_look(evidence: CineEvidence) -> Extreme | None:
    """The slice and the frame of the first finding that names a slice; else the frame of the first that has one."""
    places = [place for rule in found_in(evidence) if (place := rule.measure(evidence)).frame is not None]
    return next((place for place in places if place.slice is not None), places[0] if places else None)
