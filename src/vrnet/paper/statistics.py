"""Whether methods differ on the same subjects, and by how much: intervals, equivalence, p-values."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple, TypeVar

import numpy as np
from numpy import ndarray

from vrnet.paper.specs import REPEATED_SUBJECTS

K = TypeVar("K")
DRAWS = 10_000
MARGINS = {"dice": 0.005, "hd": 0.3}
"""By the first word of a measure: methods are equivalent if they differ by less, in Dice or in mm."""


class Estimate(NamedTuple):
    """A mean over subjects, or the mean of a paired difference."""

    mean: float
    low: float  # the 95 % interval begins here, and ends at `high`
    high: float
    inner_low: float  # the 90 % interval begins here, and ends at `inner_high`
    inner_high: float

    def is_within(self, margin: float) -> bool:
        """Whether two one-sided tests at 5 % find less than the margin, on both sides."""
        return -margin < self.inner_low and self.inner_high < margin


Units = tuple[tuple[str, ...], ...]  # the people that each row depends on


def units_of(data: str, subjects: Sequence[str]) -> Units:
    """Patients whose images are the same are one; each hippocampus is registered with the next one."""
    if data == "hippocampus":
        return tuple(zip(subjects, [*subjects[1:], subjects[0]], strict=True))
    same = REPEATED_SUBJECTS.get(data, {})
    return tuple((same.get(subject, subject),) for subject in subjects)


@lru_cache(maxsize=8)
def draw_weights(units: Units) -> ndarray:
    """(draws, rows): people are drawn with replacement, and a row of two counts as the product of how often each was
    drawn, which makes intervals somewhat too wide, never too narrow."""
    people = sorted({person for unit in units for person in unit})
    counts = np.random.default_rng(0).multinomial(len(people), np.full(len(people), 1 / len(people)), size=DRAWS)
    weights = np.ones((DRAWS, len(units)))
    for place in zip(*units, strict=True):
        weights *= counts[:, [people.index(person) for person in place]]
    return weights[weights.sum(1) > 0]


def estimate_mean(x: ndarray, units: Units) -> Estimate:
    """The mean over rows, with intervals of the percentile bootstrap over people; NaN counts as no row."""
    present = ~np.isnan(x)
    weights = draw_weights(tuple(unit for unit, is_there in zip(units, present, strict=True) if is_there))
    means = (weights @ x[present]) / weights.sum(1)
    low, inner_low, inner_high, high = np.quantile(means, (0.025, 0.05, 0.95, 0.975)).tolist()
    return Estimate(float(x[present].mean()), low, high, inner_low, inner_high)


def p_value(x: ndarray, units: Units) -> float:
    """Wilcoxon's two-sided signed-rank test of paired differences, one row per unit; 1 where all are zero. Rounded, so
    that what differs in the last digit of a float is a tie."""
    from scipy.stats import wilcoxon

    first = [units.index(unit) == k for k, unit in enumerate(units)]
    x = np.round(x[first], 9)
    x = x[(x != 0) & ~np.isnan(x)]
    return float(wilcoxon(x).pvalue) if len(x) else 1.0


def holm(p: Mapping[K, float]) -> dict[K, float]:
    """Holm's correction of several p: the k-th smallest of n times n - k + 1, and none below one before it."""
    ranked = sorted(p, key=lambda name: p[name])
    scaled = np.array([p[name] * (len(ranked) - k) for k, name in enumerate(ranked)])
    corrected = dict(zip(ranked, np.maximum.accumulate(scaled).clip(max=1.0).tolist(), strict=True))
    return {name: corrected[name] for name in p}
