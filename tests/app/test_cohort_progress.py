"""Where nothing can be written over, a line says from time to time that the run lives."""

import time

from vrnet.app import console as cohort_progress
from vrnet.app import console as log_lines
from vrnet.cohort.run import Tally


def test_lines_come_while_nothing_ends(monkeypatch, capsys):
    """One subject may take minutes: nobody calls in the meantime."""
    monkeypatch.setattr(log_lines, "FIRST_LINE_SECONDS", 0.02)
    monkeypatch.setattr(log_lines, "LINE_SECONDS", 0.02)
    with cohort_progress.cohort_lines() as show:
        time.sleep(0.2)
        show(Tally(3))
        time.sleep(0.2)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "starting"
    assert lines[-1].startswith("0 done, 0 failed, 3 left")


def test_a_log_has_a_line_soon_and_then_few(monkeypatch, capsys):
    """The first says that the run lives; a night's run must not fill a log."""
    monkeypatch.setattr(log_lines, "FIRST_LINE_SECONDS", 0.02)
    assert log_lines.LINE_SECONDS == 60
    with cohort_progress.cohort_lines() as show:
        show(Tally(3))
        time.sleep(0.2)
    assert len(capsys.readouterr().err.splitlines()) == 1
