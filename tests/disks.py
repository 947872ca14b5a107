"""Places where a file does not fit: a disk that is full, and a limit on the size of files."""

import ctypes
import os
import resource
import subprocess
from contextlib import contextmanager

KILOBYTE = 1024


@contextmanager
def full_disk(folder, free_kilobytes):
    """Meanwhile the folder is a disk of its own with this much room; where that may not be done, it is as it was."""
    command = ["mount", "-t", "tmpfs", "-o", f"size={free_kilobytes}k", "tmpfs", str(folder)]
    is_mounted = os.geteuid() == 0 and subprocess.run(command, capture_output=True).returncode == 0
    try:
        yield is_mounted
    finally:
        if is_mounted:
            ctypes.CDLL(None, use_errno=True).umount2(str(folder).encode(), 2)  # also while a file is open


@contextmanager
def file_size_limit(kilobytes):
    """Meanwhile no file can be longer, as by `ulimit -f`."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(kilobytes * KILOBYTE), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
