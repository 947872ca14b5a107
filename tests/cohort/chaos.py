"""One run of a cohort of fake subjects, to be killed; run by test_chaos.py as a script: OUT LIST SECONDS WHERE.

WHERE is a number of processes, or the address of a scheduler. The status is 0 when nothing is left, 2 for BadInput."""

import sys
from pathlib import Path

from tests.cohort.works import Count, make_task
from vrnet import BadInput
from vrnet.cohort.dask_clusters import existing_cluster, local_cluster
from vrnet.cohort.engine import run_tasks
from vrnet.cohort.plan import make_plan
from vrnet.cohort.table import read_table


def main(out, pairs, seconds, where):
    task = make_task(Path(out), Count(seconds=float(seconds)))
    subjects = make_plan(task.folder, read_table(Path(pairs)).subjects, task.recipe).to_do(retry=True)
    print(f"{len(subjects)} to do", flush=True)
    try:
        with local_cluster(int(where)) if where.isdigit() else existing_cluster(where) as executor:
            tally = run_tasks(task, subjects, executor)
    except BadInput as error:
        print(error, flush=True)
        sys.exit(2)
    finally:
        task.folder.tidy()
    print(tally.line(), flush=True)
    sys.exit(0 if tally.failed + tally.left == 0 else 3)


if __name__ == "__main__":
    main(*sys.argv[1:])
