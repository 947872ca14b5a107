"""What all fuzzers share: a process that runs seeded cases one after another, and the test that watches it."""

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

from tests.memory import peak_bytes
from vrnet.errors import InputWarning

ROOT = Path(__file__).parents[2]
CANARY = b"The canary sings: nobody may read this. "
SECONDS_PER_CASE = 10
MAX_PEAK_BYTES = 1_000_000_000


def check(worker, kind, count, folder):
    """Every one of that many cases ends as promised: those that are read, and those that are refused."""
    found, said = watch(worker, kind, count, folder)
    assert found["failures"] == {}
    assert found["peak_bytes"] < MAX_PEAK_BYTES
    assert 0 < found["read"] < count, "some damage does no harm, and some does"
    assert said == "" or kind == "pictures", "only libtiff, in C, writes to the terminal"


def watch(worker, kind, count, folder, first=0):
    """The findings of that many seeded cases, in a process of their own."""
    words = [sys.executable, "-m", f"tests.fuzz.{worker}", kind, str(first), str(count), str(folder)]
    places = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    done = subprocess.run(words, cwd=ROOT, env=os.environ | {"PYTHONPATH": places}, capture_output=True, text=True)
    lines = done.stdout.splitlines()
    assert done.returncode == 0, (
        f"case {lines[-1] if lines else '?'} ended with {done.returncode}: {done.stderr[-2000:]}"
    )
    return json.loads(lines[-1]), done.stderr


def run_cases(prepare, run_case):
    """Run the cases that the command line names. The number of each is printed before it, so that a crash names it."""
    kind, first, count, folder = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])
    seeds, failures, read_count, slowest = prepare(kind, folder), {}, 0, (0.0, 0)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    warnings.simplefilter("ignore", InputWarning)  # what is odd and read all the same is told, here to nobody
    for number in range(first, first + count):
        print(number, flush=True)
        began = time.monotonic()
        signal.alarm(SECONDS_PER_CASE)
        wrong, was_read = run_case(kind, number, seeds, folder)
        signal.alarm(0)
        slowest, read_count = max(slowest, (time.monotonic() - began, number)), read_count + was_read
        if wrong:
            failures[number] = wrong
    print(json.dumps({"failures": failures, "read": read_count, "slowest": slowest, "peak_bytes": peak_bytes()}))


def run_command(*words):
    """Exit status of a command of vrnet, and what it said."""
    from vrnet.app import main as cli

    sys.argv = ["vrnet", *map(str, words)]
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            cli.main()
        return 0, said.getvalue()
    except SystemExit as stop:
        return stop.code or 0, said.getvalue()
