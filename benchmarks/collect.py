"""Put the runs that have folders, OUT/DATA/PROTOCOL/RUN, into rows.csv and configs.jsonl of their data sets.

    python benchmarks/collect.py [OUT, or else results]

The folder of a run holds metrics.csv, and config.json or summary.json; its training, if it has one, is in `run` there.
It may be removed then. Results of release 0.5.0 and before are converted so, too.
"""

import sys
from pathlib import Path

from vrnet.paper.results import collect

if __name__ == "__main__":
    out = Path(*sys.argv[1:] or ["results"])
    print("\n".join(collect(out)) or f"there are no folders of runs in {out}")
