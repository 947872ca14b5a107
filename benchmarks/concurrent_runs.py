"""What is gained by training several networks in one process: against one process each, at once and in sequence.

    python benchmarks/concurrent_runs.py [--networks 4] [--steps 300] [--out concurrent_runs.json]

The networks are of one method and seed and differ in α, as those of a table of the paper differ in their method.
Phantoms are the data, made once and read by every process. Each way runs in processes of its own, so that the time to
start them counts for all; the time of training alone is given beside it. A small trial on the CPU:

    python benchmarks/concurrent_runs.py --networks 2 --steps 4 --size 32 --batch 2 --method C-L2-1x1-w2 --device cpu
"""

import argparse
import json
import os
import subprocess
import sys
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Thread
from time import monotonic
from unittest.mock import patch

import numpy as np
import torch

from vrnet.data.prepared import PreparedSplit
from vrnet.data.protocols import Sample
from vrnet.methods.names import parse_trainable
from vrnet.phantom import phantom
from vrnet.provenance import provenance
from vrnet.training.concurrent import fit_concurrently
from vrnet.training.fit import TrainingJob, fit
from vrnet.training.settings import Training

EXTENT_MM = 288.0
"""Of the square that the phantoms lie in."""
POLL_SECONDS = 0.05


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--method", default="C-L2-3x1-w16")
    parser.add_argument("--networks", type=int, default=4)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch", type=int, default=10)
    parser.add_argument("--size", type=int, default=160, help="voxels along each axis")
    parser.add_argument("--subjects", type=int, default=20)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=("cpu", "cuda"))
    parser.add_argument("--out", type=Path, default=Path("concurrent_runs.json"))
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)  # of a process that this one started
    parser.add_argument("--train", type=int, nargs="+", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.work is not None:
        train(given)
        return
    found = compare(given)
    show(found)
    given.out.write_text(json.dumps(found, indent=2) + "\n")


def compare(given):
    """What each way took."""
    every = list(range(given.networks))
    ways = {  # groups of processes, one group after the other; each process trains the networks of these numbers
        "one process": [[every]],
        "processes at once": [[[k] for k in every]],
        "processes in sequence": [[[k]] for k in every],
    }
    found = {"method": given.method, "networks": given.networks, "steps": given.steps, "batch": given.batch}
    found |= {"size": given.size, **provenance(torch.device(given.device)), "ways": {}}
    for name, groups in ways.items():
        with TemporaryDirectory() as work:
            make_phantoms(given, Path(work))
            found["ways"][name] = measure(given, Path(work), groups)
        print(f"{name}: {found['ways'][name]['seconds']:.1f} s", file=sys.stderr, flush=True)
    return found


def make_phantoms(given, work):
    """The pairs of all subjects, the last of which is to validate on."""
    made = [phantom(seed, (given.size,) * 2, EXTENT_MM / given.size) for seed in range(given.subjects + 1)]
    np.save(work / "pairs.npy", np.stack([np.stack([one.fixed.numpy(), one.moving.numpy()]) for one in made]))


def measure(given, work, groups):
    """Seconds from start to end, seconds of training, and the most GPU memory used meanwhile."""
    training = 0.0
    with watch_memory(given.device) as most:
        start = monotonic()
        for group in groups:
            processes = [start_process(given, work, numbers) for numbers in group]
            if any(process.wait() for process in processes):
                sys.exit("a process failed")
            times = [json.loads((work / f"{numbers[0]}.json").read_text()) for numbers in group]
            training += max(end for _, end in times) - min(begin for begin, _ in times)
        seconds = monotonic() - start
    rate = given.networks * given.steps / training
    return {"seconds": seconds, "training_seconds": training, "steps_per_second": rate, "gpu_gib": most[0]}


def start_process(given, work, numbers):
    """A process that trains the networks of these numbers; on the CPU with one thread."""
    threads = {"OMP_NUM_THREADS": "1"} if given.device == "cpu" else {}
    options = ("method", "networks", "steps", "batch", "size", "subjects", "device")
    words = [word for name in options for word in (f"--{name}", str(getattr(given, name)))]
    command = [sys.executable, __file__, *words, "--work", str(work), "--train", *map(str, numbers)]
    return subprocess.Popen(command, env=os.environ | threads)


@contextmanager
def watch_memory(device):
    """The most memory of the GPU that was in use beyond what was at first, in GiB."""
    most, done = [0.0], Event()
    if device == "cpu":
        yield most
        return

    def used():
        free, total = torch.cuda.mem_get_info()
        return (total - free) / 2**30

    def poll(first):
        while not done.wait(POLL_SECONDS):
            most[0] = max(most[0], used() - first)

    thread = Thread(target=poll, args=(used(),))
    thread.start()
    try:
        yield most
    finally:
        done.set()
        thread.join()


def train(given):
    """Train the networks of these numbers, and write when that began and ended."""
    pairs = torch.from_numpy(np.load(given.work / "pairs.npy"))
    spacing = (EXTENT_MM / given.size,) * 2
    samples = tuple(Sample(f"phantom-{k}", fixed, moving, spacing) for k, (fixed, moving) in enumerate(pairs))
    split, val = (
        PreparedSplit("phantom", *part, {}, False) for part in (("train", samples[:-1]), ("val", samples[-1:]))
    )
    jobs = [
        TrainingJob(
            parse_trainable(given.method),
            Training(given.steps, given.batch, alpha=0.05 * (k + 1), validate_every=given.steps),
            given.work / f"run-{k}",
        )
        for k in given.train
    ]
    import_module("lightning.fabric")  # before the clock starts
    begin = monotonic()
    with patch("vrnet.training.fit.Logs"):  # TensorBoard need not be there
        if len(jobs) > 1:
            fit_concurrently(jobs, split, val, device=given.device)
        else:
            fit(jobs[0].method, split, val, jobs[0].settings, jobs[0].folder, device=given.device)
    (given.work / f"{given.train[0]}.json").write_text(json.dumps([begin, monotonic()]))


def show(found):
    """The table."""
    print(f"{found['networks']} x {found['method']}, {found['steps']} steps of batch {found['batch']},", end=" ")
    print(f"{found['size']}x{found['size']}, on {found['device']} (torch {found['torch']})\n")
    print("| way | seconds | of training | steps per second | GPU GiB |\n| --- | ---: | ---: | ---: | ---: |")
    for name, row in found["ways"].items():
        numbers = f"{row['seconds']:.1f} | {row['training_seconds']:.1f} | {row['steps_per_second']:.1f}"
        print(f"| {name} | {numbers} | {row['gpu_gib']:.1f} |")


if __name__ == "__main__":
    main()
