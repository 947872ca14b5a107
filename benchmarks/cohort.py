"""What the engine of cohorts costs by itself: subjects whose work takes no time, planned, done and planned again.

    python benchmarks/cohort.py FOLDER [--count 100000] [--jobs 1]

FOLDER is made, and holds the results afterwards: open its index.html to see the page of so many subjects. For each part
its time by the clock and by this process's computing is printed, and the most memory so far.
"""

import argparse
import random
import resource
import time
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from vrnet.app.cohort import write_tables
from vrnet.cohort.dask_executor import local_cluster
from vrnet.cohort.engine import Here, run_tasks
from vrnet.cohort.plan import make_plan
from vrnet.cohort.records import CohortFolder
from vrnet.cohort.table import read_table
from vrnet.cohort.task import Task
from vrnet.provenance import __version__

RECIPE = {"method": "nothing", "report": False, "bids": False, "vrnet": __version__}
PAIRED = "ncc", "mae", "dice", "hausdorff_mm", "surface_mm"


@dataclass(frozen=True)
class Nothing:
    """Writes one small file, and makes up a row as wide as that of a registration."""

    def __call__(self, subject, folder):
        (folder / "result.txt").write_text(subject.name)
        made_up = random.Random(subject.name)
        level = made_up.choices(("good", "look", "failed"), (90, 8, 2))[0]
        measures = {f"{name}_{when}": made_up.gauss(0.8, 0.05) for name in PAIRED for when in ("before", "after")}
        return {"verdict": level, "reason": "", **measures, "device": "cpu"}


def write_list(folder, count):
    """A list of so many subjects, all of the same two files."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("fixed", "moving"):
        if not (folder / name).exists():
            (folder / name).write_text(name)
    lines = (f"s{k:06d},fixed,moving,{'abc'[k % 3]}\n" for k in range(count))
    (folder / "pairs.csv").write_text("subject,fixed,moving,group\n" + "".join(lines))
    return folder / "pairs.csv"


@contextmanager
def measured(part):
    clock, computing = time.perf_counter(), time.process_time()
    yield
    clock, computing = time.perf_counter() - clock, time.process_time() - computing
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{part:<12} {clock:8.2f} s by the clock {computing:8.2f} s of computing {megabytes:6.0f} MB", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--jobs", type=int, default=1)
    given = parser.parse_args()
    folder, pairs = CohortFolder(given.folder.absolute() / "out"), write_list(given.folder, given.count)
    with measured("list"):
        table = read_table(pairs)
        table.check_files()
    folder.make()
    for _ in range(2):  # the second time all is done
        with measured("plan"):
            subjects = make_plan(folder, table.subjects, RECIPE).to_do(retry=True)
        with nullcontext(Here()) if given.jobs == 1 else local_cluster(given.jobs) as executor, measured("run"):
            run_tasks(Task(folder, Nothing(), RECIPE), subjects, executor)
    with measured("tables"):
        write_tables(folder, table, RECIPE)


if __name__ == "__main__":
    main()
