"""A line says what is done, what failed, what is left, how fast, how long still, and which was slowest."""

from vrnet.cohort import run as tally
from vrnet.cohort.run import Outcome, Tally, duration


def test_the_line_of_a_run_under_way(monkeypatch):
    clock = iter(range(0, 10_000, 10))
    monkeypatch.setattr(tally, "monotonic", lambda: next(clock))
    run = Tally(40)
    for k in range(9):
        run.add(Outcome(f"p{k}", "done", 5.0 + k))
    run.add(Outcome("p9", "failed", 1.0, "no image"))
    line = run.line()
    assert line.startswith("9 done, 1 failed, 30 left, ")
    assert "slowest p8 (13 s)" in line
    assert "per minute" in line
    assert "min left" in line


def test_durations_are_short():
    assert [duration(s) for s in (0.25, 45.0, 600.0, 9e3, 9e5)] == ["0.25 s", "45 s", "10 min", "2.5 h", "10 days"]
