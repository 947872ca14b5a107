"""The rules of the verdict about structures, where the labels of both images are given."""

from math import inf

from vrnet.evaluation import advice
from vrnet.evaluation.evidence import Evidence
from vrnet.evaluation.pair import Fall
from vrnet.evaluation.rule import Rule

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


def fall_text(fall: Fall) -> str:
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
