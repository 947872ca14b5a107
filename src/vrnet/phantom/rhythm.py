"""When a heart does what: shares of its whole motion, from 0 (end-diastole) to 1 (end-systole), over a cycle.

c(t) = S(t/T_s) − (1 − a) S((t − T_s)/T_E) − a S((t − T + T_A)/T_A): systole, early filling and, after a rest
(diastasis), the atrial kick. S is the step 6x⁵ − 15x⁴ + 10x³ from 0 to 1, T the length of the cycle.
"""

from dataclasses import dataclass

from vrnet.errors import BadInput

HEART_RATES = (40.0, 160.0)
"""The slowest and the fastest, in beats per minute."""


@dataclass(frozen=True)
class Rhythm:
    """A cycle and its phases, in ms."""

    cycle: float
    systole: float
    early_filling: float
    atrial_kick: float
    kick_share: float = 0.25  # a, of the filling

    @classmethod
    def at(cls, heart_rate: float) -> "Rhythm":
        """The rhythm at a number of beats per minute. Systole shortens by 1.7 ms per beat (Weissler et al., Circulation
        1968); whatever else the cycle loses, diastasis loses first."""
        low, high = HEART_RATES
        if not low <= heart_rate <= high:
            raise BadInput(
                f"a heart rate of {heart_rate:g} is none: give `heart_rate` from {low:g} to {high:g} per minute"
            )
        cycle, systole = 60_000 / heart_rate, 452 - 1.7 * heart_rate
        diastole = cycle - systole
        return cls(cycle, systole, min(220.0, 0.55 * diastole), min(140.0, 0.3 * diastole))

    def contraction(self, t: float) -> float:
        """c(t), the share of the contraction at t ms."""
        early = step((t - self.systole) / self.early_filling)
        kick = step((t - self.cycle + self.atrial_kick) / self.atrial_kick)
        return step(t / self.systole) - (1 - self.kick_share) * early - self.kick_share * kick

    def torsion(self, t: float) -> float:
        """The share of the twist at t ms: the heart is untwisted before it is filled."""
        return step(t / self.systole) - step((t - self.systole) / (0.7 * self.early_filling))


def step(x: float) -> float:
    """6x⁵ − 15x⁴ + 10x³ from 0 at x = 0 to 1 at x = 1, level on both sides; twice differentiable."""
    x = min(max(x, 0.0), 1.0)
    return x**3 * (10 + x * (6 * x - 15))
