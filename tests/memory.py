"""How much memory this process took at most. It is also read by processes that tests start."""

import resource
import sys
from pathlib import Path


def peak_bytes():
    """Linux counts for this program alone in VmHWM; ru_maxrss begins with the peak of the process that started it."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
