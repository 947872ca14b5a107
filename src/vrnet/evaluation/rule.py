"""What a rule of the verdict is: a measure of the evidence, its limits, what is said beyond them, and what to try."""

from collections.abc import Callable
from dataclasses import dataclass

from vrnet.evaluation import advice
from vrnet.evaluation.evidence import Evidence
from vrnet.evaluation.levels import Level


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
