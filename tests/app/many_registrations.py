"""Registers one small pair many times, as a worker of a cohort does, and prints the memory after each; run by
test_cohort.py as a script: FOLDER COUNT."""

import gc
import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil

from vrnet.app.cohort_works import RegisterSubject
from vrnet.cohort.table import read_table
from vrnet.methods.choice import choose_method
from vrnet.registration.options import RegistrationOptions

IN_MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
"""A disk would take most of the time."""
LOADED = 20
"""Registrations after which all is loaded that ever is."""


def main(folder, count):
    options = RegistrationOptions(device="cpu")
    work = RegisterSubject(choose_method("Gaussian-L2", None, ("levels=1", "warps=2")), options)
    subject, process, sizes = read_table(Path(folder) / "pairs.csv").subjects[0], psutil.Process(), []
    for run in range(int(count)):
        with TemporaryDirectory(dir=IN_MEMORY) as place:
            work(subject, Path(place))
        gc.collect()
        if run == LOADED:
            gc.freeze()  # modules need not be looked through again
        sizes.append(process.memory_info().rss)
    print(json.dumps(sizes))


if __name__ == "__main__":
    main(*sys.argv[1:])
