"""`vrnet register` stopped at many moments, each in a process of its own; run by test_interruption.py as a script.

Processes are forked from one that has imported everything, which makes a run take milliseconds. They are stopped by
SIGINT, SIGTERM and SIGKILL in turn, half of them before one of their operations on files, and half after a time."""

import json
import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

import nibabel  # noqa: F401
import SimpleITK  # noqa: F401
import torch

import vrnet.app.pair  # noqa: F401
from vrnet.app import main as cli
from vrnet.files import RECORD, own_files, sha256

OPERATIONS = (
    "open",
    "os.rename",
    "os.link",
    "os.symlink",
    "os.remove",
    "os.mkdir",
    "os.rmdir",
    "os.chmod",
    "os.listdir",
)
DONE = 0, 3
"""All files are written; what one warp finds may be a failure to the verdict."""
SIGNALS = (signal.SIGKILL, signal.SIGINT, signal.SIGKILL, signal.SIGTERM)
SETS = {
    "identity": {"warped.nii.gz", "transform.nii.gz", "metrics.json"},
    "Gaussian-L2": {"warped.nii.gz", "transform.nii.gz", "metrics.json", "warped_labels.nii.gz"},
}
"""What each of two methods writes: the second is given labels."""


def words(folder, method):
    """The command that writes the set of a method."""
    files = [str(folder / f"{name}.nii.gz") for name in ("fixed", "moving")]
    labels = ["--moving-labels", str(folder / "labels.nii.gz")] if method != "identity" else []
    warps = ["--set", "warps=1", "--set", "levels=1"] if method != "identity" else []
    return ["vrnet", "register", *files, "--out", str(folder / "out"), "--method", method, *labels, *warps]


def start(folder, method, stop_before=None, number=signal.SIGKILL):
    """Begin a run in a process of its own; it stops itself before one of its operations on files, counted from 0."""
    pid = os.fork()
    if pid:
        return pid
    count = 0

    def audit(event, arguments):
        nonlocal count
        if event in OPERATIONS and str(folder / "out") in str(arguments):
            count += 1
            if stop_before is not None and count == stop_before + 1:
                os.kill(os.getpid(), number)

    sys.addaudithook(audit)
    sys.argv = words(folder, method)
    status = 0
    try:
        with (folder / "log").open("w") as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
        cli.main()
    except BaseException as error:
        status = getattr(error, "code", 1)
    (folder / "count").write_text(str(count))
    os._exit(status or 0)


def finish(pid, seconds=None, number=signal.SIGKILL):
    """Wait for a process, or stop it after a time; its status."""
    if seconds is not None:
        time.sleep(seconds)
        with suppress(ProcessLookupError):
            os.kill(pid, number)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def snapshot(out):
    """{name: SHA-256} of what can be opened by its name, as a user would find it; hidden files are not looked at."""
    return {path.name: sha256(path) for path in out.iterdir() if not path.name.startswith(".") and path.is_file()}


def judge(folder, before, method):
    """Whether the folder holds all of the old set or all of the new; what is wrong, if it does not."""
    now, foreign = snapshot(folder / "out"), {"mine.txt": before["mine.txt"]}
    if now == before:
        return "old"
    (folder / "out" / RECORD).stat()
    metrics = json.loads((folder / "out" / "metrics.json").read_text())
    recorded = json.loads((folder / "out" / RECORD).read_text())["files"]
    is_new = set(recorded) == SETS[method] and metrics["method"].startswith(method)
    return "new" if now == recorded | foreign and is_new else f"neither: {sorted(now)}"


def run_whole(folder, method):
    """Let a run end; its seconds, and how many operations on files it made."""
    begin = time.monotonic()
    assert finish(start(folder, method)) in DONE, (folder / "log").read_text()
    return time.monotonic() - begin, int((folder / "count").read_text())


def main(folder, moments):
    torch.set_num_threads(1)
    out, methods = folder / "out", sorted(SETS)
    out.mkdir()
    (out / "mine.txt").write_text("mine")
    run_whole(folder, methods[-1])
    whole = {method: run_whole(folder, method) for method in methods}  # each replaces the other's set, as below
    found = []
    for k in range(moments):
        before, number, share = snapshot(out), SIGNALS[k // 2 % 4], (k // 2 + 0.5) / (moments // 2)
        method = next(name for name in methods if SETS[name] | {"mine.txt"} != set(before))
        seconds, operations = whole[method]
        if k % 2:
            finish(start(folder, method), share * seconds, number)
        else:
            finish(start(folder, method, int(share * operations), number))
        found.append(judge(folder, before, method))
    run_whole(folder, methods[0])
    left = sorted(path.name for path in out.iterdir())
    print(json.dumps({"found": found, "left": left, "owned": sorted(own_files(out))}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
