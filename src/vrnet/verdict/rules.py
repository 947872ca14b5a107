"""Good, look at it, or failed: what the evidence of a registration comes to, in words, with what to try.

A rule is a measure of the evidence with two limits. Findings decide the level. Causes explain it, and count only where
something was found: a method that accepts another contrast may register such images well. The limits were chosen on
what benchmarks/verdict.py measures: docs/verdict.md has the distributions."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf
from typing import Any, Literal

import torch
from numpy import ndarray
from torch import Tensor

from vrnet.errors import BadInput, type_name
from vrnet.evaluation.pair import structure_evidence
from vrnet.fields.calculus import warp
from vrnet.images import image as arrays
from vrnet.images.grid import Affine
from vrnet.images.image import checked_numbers, mask_tensor
from vrnet.images.io import ImageLike
from vrnet.images.transforms import Transform
from vrnet.registration.arrays import Registration
from vrnet.registration.masks import PairMasks
from vrnet.registration.pair import ImagePair, PairResult
from vrnet.verdict import advice
from vrnet.verdict.advice import MAX_ADVICE, MAX_REASONS, Advice, Run, advice_after
from vrnet.verdict.evidence import MAX_LAG, MAX_OFFSET, MAX_RANGE_RATIO, Evidence, evidence_of

Level = Literal["good", "look", "failed"]
WORDS = {"good": "good", "look": "look at it", "failed": "failed"}  # for people; files have the level itself
UNKNOWN = Run()


def level_by_limits(value: float, look: float, failed: float) -> Level:
    return "failed" if value > failed else "look" if value > look else "good"


@dataclass(frozen=True)
class Rule:
    """A measure, of which more is worse, with its limits and what to say beyond them."""

    name: str
    measure: Callable[[Evidence], float]
    look: float  # above it, a person should look at the result
    failed: float  # above it, the registration failed; infinite if this alone never says so
    words: str  # the reason, with numbers of the evidence e
    to_try: tuple[Advice, ...]
    is_named_first: bool = False  # whether it is named before others of its level, however many there are
    is_cause: bool = False  # whether it explains others, too: what to try is then about it

    def level(self, evidence: Evidence) -> Level:
        return level_by_limits(self.measure(evidence), self.look, self.failed)

    def reason(self, evidence: Evidence) -> str:
        return self.words.format(e=evidence).replace("%", " %")  # as the house writes it


# What decides the level: structures, where the labels of both images are given; the images; the field.

MAX_WORSE = 0.01  # by how much the mean Dice may fall
MAX_APART = 0.7  # 1 − Dice beyond which structures hardly overlap
MAX_PLACEMENT_GAIN, LEAST_COARSE = 0.15, 0.5  # by Fisher's z, if moving lay otherwise; and the correlation then
MANY_FOLDS_PERCENT = 15.0  # a field that folds at more of the voxels is a failure; tables mark it
MAX_OPPOSITE_CORRELATION = 0.2  # beyond it, what is bright in one image is dark in the other
LEAST_VOXELS = 800.0  # of small masks about good registrations, those of 400 voxels give failed to some, of 800 to none


# fmt: off
OF_STRUCTURES = (
    Rule("structures worse", lambda e: e.dice_before - e.dice_after, MAX_WORSE, 0.05,
         "The structures overlap less than before: mean Dice {e.dice_before:.3f}, then {e.dice_after:.3f}.",
         (advice.smoother, advice.LABELS)),
    Rule("structures as before",
         # the part of the missing Dice that was not found; none where there was little to find, or where it fell
         lambda e: -inf if e.dice_before >= 0.9 or e.dice_before - e.dice_after > MAX_WORSE
         else 1 - (e.dice_after - e.dice_before) / (1 - e.dice_before),
         0.9, inf,
         "The structures overlap hardly more than before: mean Dice {e.dice_before:.3f}, then {e.dice_after:.3f}.",
         (advice.freer, advice.LABELS)),
    Rule("structures, one worse", lambda e: e.fall.before - e.fall.after if e.fall else -inf, 0.05, inf,
         "A structure overlaps less than before: {e.fall.name}, Dice {e.fall.before:.3f}, then {e.fall.after:.3f}.",
         (advice.smoother, advice.LABELS)),
    Rule("structures apart", lambda e: 1 - e.dice_after, MAX_APART, 0.8,
         "The structures hardly overlap: mean Dice {e.dice_after:.3f}.", (advice.SAME_PATIENT, advice.LABELS)),
    Rule("structures farther apart",
         lambda e: e.distance_after / max(e.distance_before, 1e-6) - 1 if 1 - e.dice_after > MAX_APART else -inf,
         0.0, 0.02,
         "The structures hardly overlap, and lie farther apart than before: mean surface distance "
         "{e.distance_before:.1f} mm, then {e.distance_after:.1f} mm.", (advice.SAME_PATIENT, advice.LABELS)),
)
OF_IMAGES = (  # few voxels do not tell how alike the images are
    Rule("glare", lambda e: e.glare, 2.5, inf,
         "A part of one image is far brighter than the rest of it ({e.glare:.1f} times as far as in the other), "
         "as an artefact may be.", (advice.artefact,), is_cause=True),
    Rule("lies mirrored", lambda e: e.placement_gain if e.coarse_mirrored > max(e.coarse_turned, LEAST_COARSE) else 0.0,
         MAX_PLACEMENT_GAIN, 0.5,
         "The images would be more alike if one of them were mirrored: correlation of the coarse images "
         "{e.coarse_found:.2f} as they were registered, {e.coarse_mirrored:.2f} so.",
         (advice.WAY_ROUND, advice.SAME_PATIENT), is_cause=True),
    Rule("lies turned", lambda e: e.placement_gain if e.coarse_turned > max(e.coarse_mirrored, LEAST_COARSE) else 0.0,
         MAX_PLACEMENT_GAIN, 0.65,
         "The images would be more alike if the whole of one of them were turned or moved: correlation of the coarse "
         "images {e.coarse_found:.2f} as they were registered, {e.coarse_turned:.2f} so.",
         (advice.affine, advice.WAY_ROUND, advice.SAME_PATIENT), is_cause=True),
    # before, at most that of an image with itself moved by a third of a voxel: any interpolation loses what is more
    Rule("less alike, locally", lambda e: min(e.local_before, 0.87) - e.local_after, 0.01, 0.05,
         "The images are less alike after than before: local correlation (squared) {e.local_before:.2f}, "
         "then {e.local_after:.2f}.", (advice.smoother,)),
    Rule("less alike, by mutual information",
         lambda e: min(e.information_before, 0.65) - e.information_after, 0.01, 0.05,
         "The images tell less of each other after than before: mutual information {e.information_before:.2f}, "
         "then {e.information_after:.2f}.", (advice.smoother,)),
    Rule("structure unmatched", lambda e: e.unmatched, 0.37, 0.50,
         "{e.unmatched:.0%} of what fixed shows has no counterpart in the result.",
         (advice.SAME_PATIENT, advice.rigid, advice.other_contrast)),
    Rule("blank places", lambda e: e.blank, 0.10, 0.30,
         "The result is blank at {e.blank:.0%} of what fixed shows.", (advice.masks, advice.headers)),
    Rule("little information", lambda e: -e.information_after, -0.20, -0.05,
         "The result tells little of fixed: mutual information {e.information_after:.2f}.",
         (advice.SAME_PATIENT, advice.other_contrast)),
    Rule("hardly changed",  # less than a fifth of the missing local correlation was found
         lambda e: e.shift_gain if e.local_after - e.local_before < 0.2 * max(1 - e.local_before, 1e-6) else 0.0,
         0.01, inf,
         "The result is hardly more alike than the images were, though moving its parts by a few voxels would help: "
         "local correlation (squared) is {e.local_after:.2f}, and would be {e.local_after_shifts:.2f}.",
         (advice.freer,)),
    Rule("slice lags", lambda e: max(e.lags, default=0.0), MAX_LAG, inf,
         "{e.lagging} matched less well than the slices beside: moving parts of the result by a few voxels would help "
         "there.", (advice.LOOK_AT_SLICES,)),
)
OF_FIELD = (
    Rule("stretch", lambda e: e.stretch, 0.70, 1.3,
         "The field stretches and squeezes more than is plausible: by a factor of {e.typical_stretch:.1f} at a typical "
         "place.", (advice.smoother, advice.SAME_PATIENT)),
    Rule("large motion", lambda e: e.motion, 0.22, inf,
         "The motion is larger than is plausible: up to {e.motion:.0%} of the image's longest side, beyond what an "
         "affine map would move.", (advice.affine, advice.smoother)),
    Rule("motion beyond the border", lambda e: e.outside, 0.25, inf,
         "The motion carries {e.outside:.0%} of fixed beyond the border of moving.", (advice.affine,)),
    Rule("folds", lambda e: e.folds_percent, 1.0, MANY_FOLDS_PERCENT,
         "The field folds at {e.folds_percent:.1f}% of the voxels: it has no inverse there.",
         (advice.no_folds, advice.smoother), is_named_first=True),
    Rule("few voxels", lambda e: -e.voxels, -LEAST_VOXELS, inf,
         "The images were compared at only {e.compared}: too few to tell how good the registration is.",
         (advice.MORE_VOXELS,), is_cause=True),
    Rule("little overlap", lambda e: 1 - e.coverage, 0.5, 0.9,
         "Moving covers {e.coverage:.0%} of fixed: elsewhere nothing was registered.", (advice.headers,)),
)
FINDINGS = (*OF_STRUCTURES, *OF_IMAGES, *OF_FIELD)

# What may be behind it, the likeliest first: what to try is then about the first of them.

INTENSITY_RANGES = Rule(  # no cause where the method does not compare intensities
    "intensity ranges", lambda e: max(e.range_ratio / MAX_RANGE_RATIO, e.offset / MAX_OFFSET), 1.0, inf,
    "The intensities lie far apart: {e.ranges_apart}.",
    (advice.OTHER_BRIGHTNESS, advice.match),
)
CAUSES = (
    Rule("opposite contrast", lambda e: -e.correlation_before, MAX_OPPOSITE_CORRELATION, inf,
         "The contrast is opposite: bright in one image is dark in the other (correlation about "
         "{e.correlation_before:.1f}).", (advice.other_contrast, advice.SAME_PATIENT)),
    Rule("unrelated images", lambda e: -e.information_before, -0.02, inf,
         "The images hardly tell anything of each other as they lie: mutual information {e.information_before:.3f}.",
         (advice.SAME_PATIENT, advice.other_contrast)),
    INTENSITY_RANGES,
)
# fmt: on


@dataclass(frozen=True)
class Verdict:
    """What a registration is worth."""

    level: Level
    reasons: tuple[str, ...] = ()  # what is wrong, and how far, in sentences
    try_: tuple[str, ...] = ()  # what may help, the likeliest first, with arguments of `register_images` in backticks

    def __str__(self) -> str:
        """In lines: the level in words, the reasons, what to try."""
        return "\n".join([WORDS[self.level], *self.reasons, *(f"Try: {words}." for words in self.try_)])

    def as_json(self) -> dict[str, Any]:
        """What metrics.json holds."""
        return {"level": self.level, "reasons": list(self.reasons), "try": list(self.try_)}


def judge_evidence(evidence: Evidence, run: Run = UNKNOWN) -> Verdict:
    """The worst level that any finding has, with the causes, the worst findings, and what to try after such a run.
    Labels given as images are a reason to look, however well they fit; too few voxels say nothing of the images."""
    findings = FINDINGS if evidence.voxels >= LEAST_VOXELS else (*OF_STRUCTURES, *OF_FIELD)
    found = [rule for rule in findings if rule.level(evidence) != "good"]
    if not found and not run.label_maps:
        return Verdict("good")
    found.sort(key=lambda rule: (rule.level(evidence) != "failed", not rule.is_named_first))
    explaining = [rule for rule in found if rule.is_cause]
    causes = []
    if found and evidence.voxels >= LEAST_VOXELS:
        likely = [rule for rule in CAUSES if rule is not INTENSITY_RANGES or not run.compares_structure]
        causes = [rule for rule in likely if rule.level(evidence) != "good"]
    named = [*explaining, *causes, *(rule for rule in found if not rule.is_cause)][:MAX_REASONS]
    reasons = [rule.reason(evidence) for rule in named]
    blamed = [*explaining[:1], *causes[:1]] or named
    to_try = [each for rule in blamed for each in rule.to_try]
    if roles := run.label_maps:
        looks = "Both images look like labels"
        if len(roles) == 1:  # who gives two may mean them
            looks = f"{roles[0].capitalize()} looks like labels, not like an image"
            drawn_on = "the image that the labels were drawn on: it looks like the labels themselves"
            to_try.insert(0, f"give as {roles[0]} {drawn_on}")
        reasons.insert(0, f"{looks}: labels do not show how tissue moves between outlines.")
    level = found[0].level(evidence) if found else "look"
    run = replace(run, is_affine=max(evidence.stretch, evidence.motion) < 1e-3)  # but for what rounding adds
    return Verdict(level, tuple(reasons[:MAX_REASONS]), advice_after(run, to_try)[:MAX_ADVICE])


def judge(
    fixed: ndarray | Tensor, moving: ndarray | Tensor, field: ndarray | Tensor, *,
    spacing: tuple[float, ...] | None = None,
    fixed_mask: ndarray | Tensor | None = None, moving_mask: ndarray | Tensor | None = None,
) -> Verdict:  # fmt: skip
    """What a field in voxels (d, *s), as `register` finds it, is worth for two images (*s) on one grid.

    Whoever found it, and whatever was minimised: the images are compared by local correlation and mutual information.
    `spacing` is the distance between voxels along each axis; without it voxels are cubes. With masks, nonzero inside,
    images are compared only where both are inside."""
    images = arrays.as_tensors(fixed, moving)
    arrays.check_spacing(spacing, images[0].dim())
    I0, I1 = (image.detach().cpu() for image in images)
    if not isinstance(field, (ndarray, Tensor)):
        raise BadInput(f"the field is {type_name(field)}: give an array or a tensor, as that of register")
    if tuple(field.shape) != (expected := (I0.dim(), *I0.shape)):
        raise BadInput(f"the field is {tuple(field.shape)}: give one of shape {expected}, an axis first, in voxels")
    u = arrays.as_tensor(field).detach().cpu().float()
    if not u.isfinite().all():
        raise BadInput("the field contains NaN or infinite values: give one that was found")
    inside = PairMasks(mask_tensor("fixed", fixed_mask, I0), mask_tensor("moving", moving_mask, I0))
    warped = warp(I1[None, None], u[None])[0, 0]
    result = Registration(u, warped, torch.zeros(0), I0, I1, inside, spacing).in_space
    return judge_evidence(evidence_of(result), Run(has_masks=result.compared is not None))


def judge_images(
    fixed: ImageLike, moving: ImageLike, transform: Transform,
    fixed_labels: ImageLike | None = None, moving_labels: ImageLike | None = None, *,
    fixed_mask: ImageLike | None = None, moving_mask: ImageLike | None = None, affine: Affine | None = None,
) -> Verdict:  # fmt: skip
    """What a transform, from fixed to moving, is worth for two images in the world.

    With the labels of both, the structures count too. Images are compared inside the masks, if there are any. Motion
    and folds are those beyond the `affine` start that the transform holds: that of `PairResult.affine`."""
    for name, given, kind in (("transform", transform, Transform), ("affine", affine, Affine)):
        if not isinstance(given, kind) and not (given is None and kind is Affine):
            raise BadInput(f"{name} is {type_name(given)}: give a vrnet {kind.__name__}, as that of register_images")
    pair = ImagePair.read(fixed, moving, fixed_labels, moving_labels, fixed_mask, moving_mask)
    checked_numbers(pair.fixed.array, "fixed")
    checked_numbers(pair.moving.array, "moving")
    if affine is not None:
        affine.checked(len(pair.fixed.grid.shape))
    warped = transform.apply(pair.moving, pair.fixed.grid)
    return judge_pair(PairResult(**vars(pair), transform=transform, warped=warped, affine=affine))


def judge_pair(result: PairResult) -> Verdict:
    """What a registered pair is worth, by all that was measured of it."""
    structures = structure_evidence(result.measures, result.measures.get("label_names"))
    return judge_evidence(evidence_of(result, structures), run_of(result))


def run_of(result: PairResult) -> Run:
    """How a registration was run, as far as that is known of a transform from a file."""
    run = Run(
        affine="none" if result.affine is None else result.affine.kind,
        is_matched=result.options.match_intensities,
        is_brightness_kept=result.options.brightness == "keep",
        has_masks=result.compared is not None,
        label_maps=tuple(role for role in ("fixed", "moving") if arrays.segment_count(getattr(result, role))),
    )
    if result.is_from_file:
        return run
    dimension = len(result.grid.shape) - (result.slice_axis is not None)
    return replace(
        run, method=result.method, dimension=dimension, compares_structure=result.compares_structure,
        is_repaired=result.options.folds == "repair",
    )  # fmt: skip
