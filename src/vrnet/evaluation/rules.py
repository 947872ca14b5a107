"""The rules of the verdict: each a measure of the evidence, its limits, and the sentence that is said beyond them.

Findings decide the level. Causes explain it, and count only where something was found: a method that does not mind the
contrast may register such images well. docs/verdict.md says how the limits were measured."""

from math import exp, inf

from vrnet.evaluation import advice
from vrnet.evaluation.evidence import Evidence
from vrnet.evaluation.levels import MANY_FOLDS_PERCENT
from vrnet.evaluation.rule import Rule
from vrnet.evaluation.structure_rules import STRUCTURE_FINDINGS
from vrnet.wording import percent

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
