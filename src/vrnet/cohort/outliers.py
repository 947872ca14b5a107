"""Which subjects to look at first: those that failed, then by verdict, then those unlike the rest of the cohort.

Unlike the rest: the largest robust z-score, |x − median| / (1.4826 MAD), of any measure. Of one that has a worse side,
only what lies on that side counts: nobody need look at the best result first."""

from collections.abc import Sequence

import numpy as np

from vrnet.files import Row

MAD_TO_STD = 1.4826
"""Of a normal distribution, the standard deviation in units of the median absolute deviation."""
MEAN_TO_STD = 1.2533
"""The same in units of the mean absolute deviation, for a measure that most subjects have alike, such as folds."""
MIN_SUBJECTS, MIN_NAMED = 4, 20
"""With fewer subjects there are no z-scores; with fewer than the second, they rank, but no measure is named."""
MAX_Z = 99.0
OUTLIER_FROM = 3.5
"""A z-score from which the measure is named (Iglewicz and Hoaglin)."""
TOLD_FROM = 2.0
"""A z-score from which the measure is told that ranks a subject, of however few."""
OF_STATUS, OF_VERDICT = {"failed": 300.0}, {"failed": 200.0, "look": 100.0}
"""What failures and verdicts count beside a z-score, which is MAX_Z at most."""

OWN_UNITS = ("mae",)
"""How the measures begin that are in units of the images: those of two scanners, or of two sequences, say nothing of
each other, and nobody knows which lists have both. What they would tell, correlation tells."""
WORSE_BELOW = ("dice", "ncc")
WORSE_ABOVE = ("hausdorff", "surface", "folding", "jacobian", "closure", "frames_repaired", "end_point_error")
"""How the measures begin that are worse the lower, and the higher, they are; others are unusual on either side."""


def add_suspicion(rows: Sequence[Row], measures: Sequence[str]) -> None:
    """Give each row of a result or a failure its suspicion, and the measure that is most unlike the rest's: as
    suspicion_by; where it is far out, among many, as outlier too."""
    measures = [name for name in measures if not name.startswith(OWN_UNITS)]
    most, which = np.zeros(len(rows)), np.full(len(rows), -1)
    for k, name in enumerate(measures):
        z = towards_worse(name, robust_z([row.get(name) for row in rows]))
        which[z > most] = k
        most = np.maximum(most, z)
    for row, score, k in zip(rows, most.tolist(), which.tolist(), strict=True):
        if row["status"] in ("done", "failed"):
            verdict = OF_VERDICT.get(str(row.get("verdict")), 0.0)
            row["suspicion"] = round(score + OF_STATUS.get(row["status"], 0.0) + verdict, 2)
        if score >= TOLD_FROM:
            row["suspicion_by"] = measures[k]
        if score >= OUTLIER_FROM and len(rows) >= MIN_NAMED:
            row["outlier"] = measures[k]


def towards_worse(name: str, z: np.ndarray) -> np.ndarray:
    """How far each value of a measure is out, on its worse side if it has one."""
    if name.startswith(WORSE_BELOW):
        return (-z).clip(min=0)
    return z.clip(min=0) if name.startswith(WORSE_ABOVE) else np.abs(z)


def robust_z(values: Sequence[object]) -> np.ndarray:
    """(x − median) / (1.4826 MAD) of each value; 0 where there is no number, or too few differ."""
    x = np.array([v if isinstance(v, (int, float)) else np.nan for v in values], dtype=float)
    known = x[np.isfinite(x)]
    if len(known) < MIN_SUBJECTS:
        return np.zeros(len(x))
    median = np.median(known)
    away = np.abs(known - median)
    spread = MAD_TO_STD * np.median(away) or MEAN_TO_STD * away.mean()
    if spread <= 0:
        return np.zeros(len(x))
    return np.nan_to_num((x - median) / spread).clip(-MAX_Z, MAX_Z)
