"""How far a run is: counts, rate, time left, and the slowest subject."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from time import monotonic

from vrnet.cohort.task import Outcome

RECENT = 200
"""Subjects whose ends say how fast a run is now."""


@dataclass
class Tally:
    """What came of the subjects of a run so far."""

    total: int
    workers: int = 1
    done: int = 0
    failed: int = 0
    elsewhere: int = 0
    """Those that another run is at, when they were last looked at."""
    unable: dict[str, str] = field(default_factory=dict)
    """Why subjects are left that no machine could do which tried, by name; the folder does not remember it."""
    stopped: Mapping[str, str] = field(default_factory=dict)
    """Why workers get no more work, by machine."""
    slowest: tuple[float, str] = (0.0, "")
    """Seconds, and the name."""
    reasons: dict[str, str] = field(default_factory=dict)
    """Why subjects could not be done, by name."""
    ends: deque[float] = field(default_factory=lambda: deque([monotonic()], maxlen=RECENT))
    """When the last subjects ended, after when the run began."""

    def add(self, outcome: Outcome) -> None:
        """Count a subject."""
        if outcome.status == "done":
            self.done += 1
        elif outcome.status == "failed":
            self.failed += 1
            self.reasons[outcome.name] = outcome.reason
        elif outcome.status == "unable":
            self.unable[outcome.name] = outcome.reason
        if outcome.status in ("done", "failed"):
            self.ends.append(monotonic())
            self.slowest = max(self.slowest, (outcome.seconds, outcome.name))

    @property
    def left(self) -> int:
        return self.total - self.done - self.failed

    @property
    def rate(self) -> float:
        """Subjects per second of late; 0 before the first."""
        return (len(self.ends) - 1) / max(monotonic() - self.ends[0], 1e-9)

    @property
    def seconds_left(self) -> float | None:
        """None before the first subject is done."""
        return self.left / self.rate if self.rate else None

    def line(self) -> str:
        """12 done, 1 failed, 27 left, 3.2 per minute, 9 min left, slowest p07 (45 s)."""
        parts = [f"{self.done:,} done", f"{self.failed:,} failed", f"{self.left:,} left"]
        if self.elsewhere:
            parts.append(f"{self.elsewhere:,} by another run")
        if self.unable:
            parts.append(f"{len(self.unable):,} put off")
        if self.rate:
            per = (self.rate, "second") if self.rate >= 1 else (60 * self.rate, "minute")
            parts.append(f"{per[0]:.3g} per {per[1]}")
        if self.left and self.seconds_left is not None:
            parts.append(f"{duration(self.seconds_left)} left")
        if self.slowest[1]:
            parts.append(f"slowest {self.slowest[1]} ({duration(self.slowest[0])})")
        if not self.workers:
            parts.append("no worker yet")
        return ", ".join(parts)


def duration(seconds: float) -> str:
    """45 s, 9 min, 3.5 h, 12 days."""
    for unit, size in (("days", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.2g} {unit}"
    return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"
