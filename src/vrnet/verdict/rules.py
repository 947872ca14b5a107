"""Good, look at it, or failed: what the evidence of a registration comes to, in words, with what to try."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from math import exp, inf
from typing import Any, Literal

from numpy import ndarray
from torch import Tensor

from vrnet.errors import BadInput, percent, type_name
from vrnet.evaluation.pair import WorstStructure, dice_overlap, overlap, structure_evidence
from vrnet.fields.calculus import warp
from vrnet.images.grid import Affine, Grid, check_same_grid
from vrnet.images.image import (
    Image,
    as_labels,
    as_tensors,
    check_spacing,
    checked_numbers,
    field_tensor,
    label_maps,
    mask_tensor,
)
from vrnet.images.io import ImageLike, given_image
from vrnet.images.transforms import Transform
from vrnet.registration.masks import ImageMasks
from vrnet.registration.pair import PairResult, in_own_range
from vrnet.verdict import advice
from vrnet.verdict.advice import Run, drawn_on, labels_as_images
from vrnet.verdict.evidence import Evidence, evidence_of

# The levels of a verdict, what people are told of each, in the terminal, in pictures and on every page, and the limit
# that tables mark: here, since tables are loaded without PyTorch.

Level = Literal["good", "look", "failed"]
WORDS = {"good": "good", "look": "look at it", "failed": "failed"}
"""Files and programs have the level itself, as metrics.json has it."""
MANY_FOLDS_PERCENT = 15.0
"""A field that folds at more of the voxels is a failure; tables mark it."""


# What a rule of the verdict is: a measure of the evidence, its limits, what is said beyond them, and what to try.


@dataclass(frozen=True)
class Rule:
    """A measure, of which more is worse, with its limits and what to say beyond them."""

    name: str
    measure: Callable[[Evidence], float]
    look: float
    """Above it, a person should look at the result."""
    failed: float
    """Above it, the registration failed; infinite if this alone never says so."""
    reason: Callable[[Evidence], str]
    to_try: tuple[advice.Advice, ...]
    is_named_first: bool = False
    """Whether it is named before others of its level, so that it is told however many there are."""
    is_cause: bool = False
    """Whether it explains others, too: what to try is then about it."""
    compares_images: bool = False
    """Whether it says how alike the images are, which few voxels do not tell."""
    concerns: Callable[[advice.Run], bool] = lambda run: True
    """Says of which runs it can be a cause."""

    def level(self, evidence: Evidence) -> Level:
        value = self.measure(evidence)
        return "failed" if value > self.failed else "look" if value > self.look else "good"


# The rules of the verdict about structures, where the labels of both images are given.

MAX_FALL = 0.05
"""By how much the Dice of one structure may fall while that of the others rises."""
MAX_WORSE = 0.01
"""By how much the mean Dice may fall."""
LEAST_PART, HIGH_DICE = 0.1, 0.9
"""The part of the missing Dice that a registration should find, unless the mean Dice was this high before: then there
is little to find."""
MAX_APART = 0.7
"""1 − Dice beyond which structures hardly overlap."""


def farther(evidence: Evidence) -> float:
    """By which part the surfaces of the structures are farther from each other than before."""
    before, after = evidence.distance_before, evidence.distance_after
    return -inf if before is None or after is None else after / max(before, 1e-6) - 1


def missed(evidence: Evidence) -> float:
    """The part of the missing Dice that was not found; none where there was little to find, or where it fell."""
    before, after = evidence.dice_before, evidence.dice_after
    if before is None or after is None or before >= HIGH_DICE or before - after > MAX_WORSE:
        return -inf
    return 1 - (after - before) / (1 - before)


def fall_text(fall: WorstStructure) -> str:
    """Which structure it is, and how far it fell."""
    return f"{fall.name}, Dice {fall.before:.3f}, then {fall.after:.3f}"


STRUCTURE_FINDINGS = (
    Rule(
        "structures worse",
        lambda e: -inf if e.dice_before is None or e.dice_after is None else e.dice_before - e.dice_after,
        MAX_WORSE,
        0.05,
        lambda e: f"The structures overlap less than before: mean Dice {e.dice_before:.3f}, then {e.dice_after:.3f}.",
        (advice.smoother, advice.labels),
    ),
    Rule(
        "structures as before",
        missed,
        1 - LEAST_PART,
        inf,
        lambda e: (
            f"The structures overlap hardly more than before: mean Dice {e.dice_before:.3f}, then {e.dice_after:.3f}."
        ),
        (advice.freer, advice.labels),
    ),
    Rule(
        "structures, one worse",
        lambda e: -inf if e.fall is None else e.fall.before - e.fall.after,
        MAX_FALL,
        inf,
        lambda e: "" if e.fall is None else f"A structure overlaps less than before: {fall_text(e.fall)}.",
        (advice.smoother, advice.labels),
    ),
    Rule(
        "structures apart",
        lambda e: -inf if e.dice_after is None else 1 - e.dice_after,
        MAX_APART,
        0.8,
        lambda e: f"The structures hardly overlap: mean Dice {e.dice_after:.3f}.",
        (advice.same_patient, advice.labels),
    ),
    Rule(
        "structures farther apart",
        lambda e: farther(e) if e.dice_after is not None and 1 - e.dice_after > MAX_APART else -inf,
        0.0,
        0.02,
        lambda e: (
            "The structures hardly overlap, and lie farther apart than before: mean surface distance "
            f"{e.distance_before:.1f} mm, then {e.distance_after:.1f} mm."
        ),
        (advice.same_patient, advice.labels),
    ),
)
"""What decides the level, beside what the images and the field show."""


# The rules of the verdict: each a measure of the evidence, its limits, and the sentence that is said beyond them.
#
# Findings decide the level. Causes explain it, and count only where something was found: a method that does not mind the
# contrast may register such images well. docs/verdict.md says how the limits were measured.

LEAST_GAIN = 0.2
"""The part of the missing local correlation that a registration should find where small shifts would find some."""
MAX_RANGE_RATIO, MAX_OFFSET = 2.0, 0.5
MOST_ALIKE, MOST_INFORMATION = 0.87, 0.65
"""The local correlation and the information that count as before: those of an image with itself moved by a third of a
voxel. One scan given twice has more, which any interpolation loses."""
MAX_PLACEMENT_GAIN, LEAST_COARSE = 0.15, 0.5
"""How much more alike the coarse images may be, by Fisher's z, if the whole of moving lay otherwise; and how alike they
have to be then, so that it counts."""

LEAST_VOXELS = 800.0
"""Of small masks about good registrations, those of 400 voxels give failed to some, those of 800 to none."""


def placement_words(evidence: Evidence, best: float) -> str:
    """How alike the coarse images are, and would be."""
    return f"correlation of the coarse images {evidence.coarse_found:.2f} as they were registered, {best:.2f} so"


def range_words(evidence: Evidence) -> str:
    """What is beyond its limit: the ratio of the ranges, the distance of their middles, or both."""
    found = evidence.range_ratio
    times = f"one range is {found:,.1f} times the other" if found < inf else "one is constant"
    ratio = [times] * (found > MAX_RANGE_RATIO)
    middles = [f"their middles are {evidence.offset:.1f} ranges apart"] * (evidence.offset > MAX_OFFSET)
    return ", ".join(ratio + middles)


FINDINGS = (
    *STRUCTURE_FINDINGS,
    Rule(
        "glare",
        lambda e: e.glare,
        2.5,
        inf,
        lambda e: (
            f"A part of one image is far brighter than the rest of it ({e.glare:.1f} times as far as in the other), "
            "as an artefact may be."
        ),
        (advice.artefact,),
        is_cause=True,
        compares_images=True,
    ),
    Rule(
        "lies mirrored",
        lambda e: e.placement_gain if e.coarse_mirrored > max(e.coarse_turned, LEAST_COARSE) else 0.0,
        MAX_PLACEMENT_GAIN,
        0.5,
        lambda e: (
            f"The images would be more alike if one of them were mirrored: {placement_words(e, e.coarse_mirrored)}."
        ),
        (advice.way_round, advice.same_patient),
        is_cause=True,
        compares_images=True,
    ),
    Rule(
        "lies turned",
        lambda e: e.placement_gain if e.coarse_turned > max(e.coarse_mirrored, LEAST_COARSE) else 0.0,
        MAX_PLACEMENT_GAIN,
        0.65,
        lambda e: (
            "The images would be more alike if the whole of one of them were turned or moved: "
            f"{placement_words(e, e.coarse_turned)}."
        ),
        (advice.affine, advice.way_round, advice.same_patient),
        is_cause=True,
        compares_images=True,
    ),
    Rule(
        "less alike, locally",
        lambda e: min(e.local_before, MOST_ALIKE) - e.local_after,
        0.01,
        0.05,
        lambda e: (
            "The images are less alike after than before: local correlation (squared) "
            f"{e.local_before:.2f}, then {e.local_after:.2f}."
        ),
        (advice.smoother,),
        compares_images=True,
    ),
    Rule(
        "less alike, by mutual information",
        lambda e: min(e.information_before, MOST_INFORMATION) - e.information_after,
        0.01,
        0.05,
        lambda e: (
            "The images tell less of each other after than before: mutual information "
            f"{e.information_before:.2f}, then {e.information_after:.2f}."
        ),
        (advice.smoother,),
        compares_images=True,
    ),
    Rule(
        "structure unmatched",
        lambda e: e.unmatched,
        0.37,
        0.50,
        lambda e: f"{percent(e.unmatched)} of what fixed shows has no counterpart in the result.",
        (advice.same_patient, advice.rigid, advice.other_contrast),
        compares_images=True,
    ),
    Rule(
        "blank places",
        lambda e: e.blank,
        0.10,
        0.30,
        lambda e: f"The result is blank at {percent(e.blank)} of what fixed shows.",
        (advice.masks, advice.headers),
        compares_images=True,
    ),
    Rule(
        "little information",
        lambda e: -e.information_after,
        -0.20,
        -0.05,
        lambda e: f"The result tells little of fixed: mutual information {e.information_after:.2f}.",
        (advice.same_patient, advice.other_contrast),
        compares_images=True,
    ),
    Rule(
        "hardly changed",
        lambda e: e.shift_gain if e.gain < LEAST_GAIN else 0.0,
        0.01,
        inf,
        lambda e: (
            "The result is hardly more alike than the images were, though moving its parts by a few voxels "
            f"would help: local correlation (squared) is {e.local_after:.2f}, and would be "
            f"{e.local_after + e.shift_gain:.2f}."
        ),
        (advice.freer,),
        compares_images=True,
    ),
    Rule(
        "stretch",
        lambda e: e.stretch,
        0.70,
        1.3,
        lambda e: (
            f"The field stretches and squeezes more than is plausible: by a factor of {exp(e.stretch):.1f} "
            "at a typical place."
        ),
        (advice.smoother, advice.same_patient),
    ),
    Rule(
        "large motion",
        lambda e: e.motion,
        0.22,
        inf,
        lambda e: (
            f"The motion is larger than is plausible: up to {percent(e.motion)} of the image's longest side, beyond "
            "what an affine map would move."
        ),
        (advice.affine, advice.smoother),
    ),
    Rule(
        "motion beyond the border",
        lambda e: e.outside,
        0.25,
        inf,
        lambda e: f"The motion carries {percent(e.outside)} of fixed beyond the border of moving.",
        (advice.affine,),
    ),
    Rule(
        "folds",
        lambda e: e.folds_percent,
        1.0,
        MANY_FOLDS_PERCENT,
        lambda e: f"The field folds at {e.folds_percent:.1f} % of the voxels: it has no inverse there.",
        (advice.no_folds, advice.smoother),
        is_named_first=True,
    ),
    Rule(
        "few voxels",
        lambda e: -e.voxels,
        -LEAST_VOXELS,
        inf,
        lambda e: f"The images were compared at only {e.compared}: too few to tell how good the registration is.",
        (advice.more_voxels,),
        is_cause=True,
    ),
    Rule(
        "little overlap",
        lambda e: 1 - e.coverage,
        0.5,
        0.9,
        lambda e: f"Moving covers {percent(e.coverage)} of fixed: elsewhere nothing was registered.",
        (advice.headers,),
    ),
)
"""What decides the level."""

CAUSES = (
    Rule(
        "opposite contrast",
        lambda e: -e.correlation_before,
        0.2,
        inf,
        lambda e: (
            "The contrast is opposite: bright in one image is dark in the other (correlation about "
            f"{e.correlation_before:.1f})."
        ),
        (advice.other_contrast, advice.same_patient),
    ),
    Rule(
        "unrelated images",
        lambda e: -e.information_before,
        -0.02,
        inf,
        lambda e: (
            f"The images hardly tell anything of each other as they lie: mutual information {e.information_before:.3f}."
        ),
        (advice.same_patient, advice.other_contrast),
    ),
    Rule(
        "intensity ranges",
        lambda e: max(e.range_ratio / MAX_RANGE_RATIO, e.offset / MAX_OFFSET),
        1.0,
        inf,
        lambda e: f"The intensities lie far apart: {range_words(e)}.",
        (advice.other_brightness, advice.match),
        concerns=lambda run: not advice.compares_structure(run),
    ),
)
"""What may be behind it, the likeliest first: what to try is then about the first of them."""


MAX_REASONS, MAX_ADVICE = 5, 3
"""Reasons that are given, causes and the worst findings first; things to try, the likeliest to help first."""

UNKNOWN = Run()


@dataclass(frozen=True)
class Verdict:
    """What a registration is worth."""

    level: Level
    reasons: tuple[str, ...] = ()
    """What is wrong, and how far, in sentences."""
    try_: tuple[str, ...] = ()
    """What may help, the likeliest first; arguments of `register_images` are named between backticks."""

    def __str__(self) -> str:
        """In lines: the level in words, the reasons, what to try."""
        return "\n".join([WORDS[self.level], *self.reasons, *(f"Try: {words}." for words in self.try_)])

    def as_json(self) -> dict[str, Any]:
        """What metrics.json holds."""
        return {"level": self.level, "reasons": list(self.reasons), "try": list(self.try_)}


def judge_evidence(evidence: Evidence, run: Run = UNKNOWN) -> Verdict:
    """The worst level that any finding has, with the causes, the worst findings, and what to try after such a run.

    Labels given as images are a reason to look, however well they fit. Where too few voxels are compared, what they
    show of the images says nothing."""
    has_enough = evidence.voxels >= LEAST_VOXELS
    telling = [rule for rule in FINDINGS if has_enough or not rule.compares_images]
    found = [rule for rule in telling if rule.level(evidence) != "good"]
    if not found and not run.label_maps:
        return Verdict("good")
    found.sort(key=lambda rule: (rule.level(evidence) != "failed", not rule.is_named_first))
    explaining = [rule for rule in found if rule.is_cause]
    causes = [rule for rule in CAUSES if found and has_enough and rule.concerns(run) and rule.level(evidence) != "good"]
    rules = [*explaining, *causes, *(rule for rule in found if not rule.is_cause)][:MAX_REASONS]
    blamed = [*explaining[:1], *causes[:1]] or rules
    known, to_try = replace(run, is_affine=evidence.is_affine), [drawn_on, *(a for rule in blamed for a in rule.to_try)]
    advice = unique(words for each in to_try if (words := each(known)) is not None)
    reasons = (*labels_as_images(run), *(rule.reason(evidence) for rule in rules))
    return Verdict(found[0].level(evidence) if found else "look", reasons[:MAX_REASONS], advice[:MAX_ADVICE])


def judge(
    fixed: ndarray | Tensor,
    moving: ndarray | Tensor,
    field: ndarray | Tensor,
    *,
    spacing: tuple[float, ...] | None = None,
    fixed_mask: ndarray | Tensor | None = None,
    moving_mask: ndarray | Tensor | None = None,
) -> Verdict:
    """What a field in voxels (d, *s), as `register` finds it, is worth for two images (*s) on one grid.

    Whoever found it, and whatever was minimised: the images are compared by local correlation and mutual information.
    `spacing` is the distance between voxels along each axis; without it voxels are cubes. With masks, nonzero inside,
    images are compared only where both are inside."""
    images = as_tensors(fixed, moving)
    check_spacing(spacing, images[0].dim())
    u = field_tensor(field, tuple(images[0].shape)).detach().cpu()
    I0, I1 = (image.detach().cpu() for image in images)
    I1w, grid = warp(I1[None, None], u[None])[0, 0], Grid.plain(tuple(I0.shape), spacing or (1.0,) * I0.dim())
    masks = (mask_on(grid, role, given, I0) for role, given in (("fixed", fixed_mask), ("moving", moving_mask)))
    result = PairResult(
        fixed=Image(I0.numpy(), grid, "fixed"),
        moving=Image(I1.numpy(), grid, "moving"),
        masks=ImageMasks(*masks),
        transform=Transform.from_voxels(u.numpy(), grid),
        warped=Image(I1w.numpy(), grid, "warped"),
    )
    return judge_evidence(evidence_of(result), Run(has_masks=result.compared is not None))


def judge_pair(result: PairResult) -> Verdict:
    """What a registered pair is worth, by all that was measured of it."""
    measures = result.measures
    evidence = evidence_of(result, *structure_evidence(measures, measures.get("label_names")))
    return judge_evidence(evidence, run_of(result))


def run_of(result: PairResult) -> Run:
    """How a registration was run, so that nothing is advised that was done; of a transform from a file it is known
    whether there are masks, and what is recorded beside it."""
    run = Run(
        has_start=result.affine is not None,
        has_affine=result.affine is not None and result.affine.kind == "affine",
        is_matched=result.options.match_intensities,
        is_brightness_kept=result.options.brightness == "keep",
        has_masks=result.compared is not None,
        label_maps=label_maps(result.fixed, result.moving),
    )
    if result.is_from_file:
        return run
    dimension = len(result.grid.shape) - (result.slice_axis is not None)
    return replace(run, method=result.method, dimension=dimension, is_repaired=result.options.folds == "repair")


def mask_on(grid: Grid, name: str, given: object, image: Tensor) -> Image | None:
    """The mask of an array, as an image on a grid; None where all is inside; BadInput if that makes no sense."""
    inside = mask_tensor(name, given, image)
    return None if inside is None else Image(inside.numpy(), grid, f"the mask of {name}")


def judge_images(
    fixed: ImageLike,
    moving: ImageLike,
    transform: Transform,
    fixed_labels: ImageLike | None = None,
    moving_labels: ImageLike | None = None,
    *,
    fixed_mask: ImageLike | None = None,
    moving_mask: ImageLike | None = None,
    affine: Affine | None = None,
) -> Verdict:
    """What a transform, from fixed to moving, is worth for two images in the world.

    With the labels of both, the structures count too. Images are compared inside the masks, if there are any. Motion
    and folds are those beyond the `affine` start that the transform holds: that of `ImageRegistration.affine`."""
    check_type("transform", transform, Transform, "as that of register_images")
    I0, labels0, mask0 = given_images("fixed", fixed, fixed_labels, fixed_mask)
    I1, labels1, mask1 = given_images("moving", moving, moving_labels, moving_mask)
    if affine is not None:
        check_type("affine", affine, Affine, "as that of register_images")
        affine.checked(len(I0.grid.shape))
    warped = in_own_range(I1, lambda image: transform.apply(image, I0.grid))
    result = PairResult(
        fixed=I0,
        moving=I1,
        fixed_labels=labels0,
        moving_labels=labels1,
        masks=ImageMasks(mask0, mask1),
        transform=transform,
        warped=Image(warped, I0.grid, "warped"),
        affine=affine,
    )
    if labels0 is None or result.placed_labels is None or result.warped_labels is None:
        return judge_evidence(evidence_of(result), run_of(result))
    maps = labels0.array, result.placed_labels.array, result.warped_labels.array
    measures = dice_overlap(*maps)
    if 1 - measures["dice"]["after"]["mean"] > MAX_APART:
        measures = overlap(*maps, spacing=I0.grid.spacing, across=I0.grid.across)
    return judge_evidence(evidence_of(result, *structure_evidence(measures)), run_of(result))


def given_images(name: str, image: object, labels: object, mask: object) -> tuple[Image, Image | None, Image | None]:
    """An image, its labels and its mask, as they were given; BadInput unless they fit, and show something."""
    shown = given_image(name, image)
    checked_numbers(shown.array, name)
    others = {f"{name}_labels": labels, f"{name}_mask": mask}
    found = {other: None if given is None else given_image(other, given) for other, given in others.items()}
    for other, one in found.items():
        if one is not None:
            check_same_grid(other, one.grid, name, shown.grid)
    if (inside := found[f"{name}_mask"]) is not None and not inside.array.any():
        raise BadInput(f"{name}_mask is empty: give a mask that is not 0 inside")
    drawn = found[f"{name}_labels"]
    return shown, None if drawn is None else as_labels(drawn), inside


def check_type(name: str, given: object, kind: type, example: str) -> None:
    """BadInput unless what is given is of a kind."""
    if not isinstance(given, kind):
        raise BadInput(f"{name} is {type_name(given)}: give a vrnet {kind.__name__}, {example}")


def unique(words: Iterable[str]) -> tuple[str, ...]:
    """Each once, in order."""
    return tuple(dict.fromkeys(words))
