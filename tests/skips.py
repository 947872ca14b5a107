"""Tests that may be skipped, and why. Where CI or VRNET_STRICT_SKIPS is set, any other skip is a failure.

A test that quietly stopped running guards nothing: continuous integration names it instead.
"""

import os
import re
from pathlib import Path

import pytest

DATA = Path(os.environ.get("VRNET_DATA", Path(__file__).parents[2] / "shared" / "data"))
EXPECTED = (
    r"no CUDA device",
    r"needs a CUDA device",
    r"there is a CUDA device",
    r"the superuser may write everywhere",
    r"only the superuser can mount a full disk",
    r"no such axis",
    r"(monai|torchio) is not installed",
)
WITHOUT_DATA = (r"no real images at ", r"no brains at ")


def is_expected(reason):
    """Whether a test may be skipped for that reason on this machine."""
    reasons = EXPECTED if DATA.is_dir() else EXPECTED + WITHOUT_DATA
    return any(re.search(expected, reason) for expected in reasons)


def fail_unexpected_skip(report):
    """The report of a test or of a file; as a failure, if it was skipped for a reason that is not listed above."""
    is_strict = os.environ.get("CI") or os.environ.get("VRNET_STRICT_SKIPS")
    if is_strict and report.skipped and not hasattr(report, "wasxfail"):
        path, line, reason = report.longrepr
        if not is_expected(reason):
            report.outcome = "failed"
            report.longrepr = (
                f"{report.nodeid} was skipped at {path}:{line}, which tests/skips.py does not expect: {reason}"
            )
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    return fail_unexpected_skip((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    return fail_unexpected_skip((yield))
