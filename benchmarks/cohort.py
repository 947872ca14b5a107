"""What the engine of cohorts costs by itself, and how much faster two jobs are than one.

    python benchmarks/cohort.py FOLDER [--count 100000] [--jobs 1]
    python benchmarks/cohort.py FOLDER --root ACDC [--count 40] [--jobs 2]

The first plans and does subjects whose work takes no time, and plans them again. For each part its time by the clock
and by this process's computing is printed, and the most memory so far. Open FOLDER/out/index.html to see the page of so
many subjects.

The second registers stacks of ACDC by `vrnet cohort`, first with one job and then with several, on a machine that has
nothing else to do. It prints seconds, subjects per core and hour, how many times as fast the jobs are, and whether all
results are equal to the bit. FOLDER is made, and holds the results afterwards.
"""

import argparse
import hashlib
import random
import resource
import shutil
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from vrnet.app.cohort import scan_acdc
from vrnet.app.subject import write_tables
from vrnet.cohort.results import CohortFolder, make_plan
from vrnet.cohort.run import Task, open_executor, run_tasks
from vrnet.cohort.table import find_missing, read_table
from vrnet.errors import counted
from vrnet.files import write_rows
from vrnet.provenance import __version__

RECIPE = {"method": "nothing", "report": False, "bids": False, "label_names": {}, "vrnet": __version__}
RESULTS = "transform.nii.gz", "warped.nii.gz", "warped_labels.nii.gz"
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


def simulate(place, count, jobs):
    """Subjects whose work takes no time, through the real engine."""
    folder, pairs = CohortFolder(place.absolute() / "out"), write_list(place, count)
    with measured("list"):
        table = read_table(pairs)
        find_missing(table.subjects)
    folder.make()
    for _ in range(2):  # the second time all is done
        with measured("plan"):
            subjects = make_plan(folder, table.subjects, RECIPE).to_do(retry=True)
        with open_executor(len(subjects), jobs) as executor, measured("run"):
            run_tasks(Task(folder, Nothing(), RECIPE), subjects, executor)
    with measured("tables"):
        write_tables(folder, table, RECIPE)


def run_cohort(pairs, out, jobs, options):
    """Seconds by the clock of `vrnet cohort`, from its start to its end."""
    shutil.rmtree(out, ignore_errors=True)
    words = "cohort", str(pairs), "--out", str(out), "--jobs", str(jobs), "--device", "cpu", *options
    start = time.perf_counter()
    done = subprocess.run([sys.executable, "-m", "vrnet", *words], check=False, stdout=subprocess.DEVNULL)
    if done.returncode not in (0, 3):
        sys.exit(f"vrnet cohort ended with status {done.returncode}")
    return time.perf_counter() - start


def compare_jobs(root, folder, count, jobs, options):
    """The same cohort of the first patients of ACDC, with one job and with several."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = list(islice(scan_acdc(root.absolute()), count))
    if len(rows) < count:
        sys.exit(f"{root} has {len(rows)} patients only: give --count {len(rows)}")
    pairs = folder / "pairs.csv"
    write_rows([{column: str(cell) for column, cell in row.items()} for row in rows], pairs)
    seconds, found = {}, {}
    for number in (1, jobs):
        out = folder / f"{number} jobs"
        seconds[number] = run_cohort(pairs, out, number, options)
        rate = 3600 * count / seconds[number] / number
        print(f"{counted(number, 'job')}: {seconds[number]:8.1f} s, {rate:6.0f} stacks per core and hour", flush=True)
        files = (path for name in RESULTS for path in (out / "subjects").rglob(name))
        found[number] = {path.relative_to(out): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    print(f"{seconds[1] / seconds[jobs]:.2f} times as fast; {len(found[1])} files, "
          f"{'all equal to the bit' if found[1] == found[jobs] != {} else 'NOT EQUAL'}")  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--root", type=Path, help="ACDC: registers stacks instead")
    parser.add_argument("--count", type=int)
    parser.add_argument("--jobs", type=int)
    given, options = parser.parse_known_args()
    if given.root is None:
        simulate(given.folder, given.count or 100_000, given.jobs or 1)
    else:
        compare_jobs(given.root, given.folder, given.count or 40, given.jobs or 2, options)


if __name__ == "__main__":
    main()
