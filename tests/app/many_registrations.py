"""Registers one small pair many times, as a worker of a cohort does, and prints the memory after each: what is in use,
and what the system counts. Run by test_cohort.py as a script: FOLDER COUNT."""

import ctypes
import gc
import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil

from vrnet.app.subject import SubjectWork
from vrnet.cohort.table import read_table
from vrnet.methods.names import parse_method
from vrnet.vocabulary import RegistrationOptions

IN_MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
"""A disk would take most of the time."""
LOADED = 20
"""Registrations after which all is loaded that ever is."""

NAMES = (
    "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost",
)  # fmt: skip
"""The fields of mallinfo2(3), in their order."""


class MallocInfo(ctypes.Structure):
    """What the C library says of its memory."""

    _fields_ = [(name, ctypes.c_size_t) for name in NAMES]


def used_bytes():
    """What is in use, to the byte; what the C library keeps for later, and gives back when it likes, is not.

    0 where the C library does not tell, as that of macOS: there only what the system counts is tested."""
    library = ctypes.CDLL(None)
    if not hasattr(library, "mallinfo2"):
        return 0
    library.mallinfo2.restype = MallocInfo
    info = library.mallinfo2()
    return info.uordblks + info.hblkhd


def main(folder, count):
    options = RegistrationOptions(device="cpu")
    work = SubjectWork(parse_method("Gaussian-L2", None, ("levels=1", "warps=2")).pin(), options)
    subject, process, sizes = read_table(Path(folder) / "pairs.csv").subjects[0], psutil.Process(), []
    for run in range(int(count)):
        with TemporaryDirectory(dir=IN_MEMORY) as place:
            work(subject, Path(place))
        gc.collect()
        if run == LOADED:
            gc.freeze()  # modules need not be looked through again
        sizes.append((used_bytes(), process.memory_info().rss))
    print(json.dumps(sizes))


if __name__ == "__main__":
    main(*sys.argv[1:])
