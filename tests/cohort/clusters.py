"""A cluster of Dask that is none: it runs what is handed out at once, here, as a given worker would."""

import pickle

from vrnet.cohort.dask import BatchQueue, WorkerWatch


class FakeFuture:
    """What became of a batch: an answer, or an error."""

    def __init__(self, key, answer):
        self.key, self.answer, self.status = key, answer, "finished"

    def add_done_callback(self, call):
        call(self)

    def result(self, timeout):
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class FakeClient:
    """Workers by their addresses; `answer(task, batch)` is what comes of a batch. `preferred` has the workers that were
    to do each."""

    status = "running"

    def __init__(self, answer=None, workers=("a",)):
        self.answer, self.workers = answer, list(workers)
        self.handed_out, self.retired, self.preferred = [], [], []

    def submit(self, run, packed, pure, workers=None, allow_other_workers=False):
        assert allow_other_workers or not workers, "what one worker alone may do waits for ever once that is gone"
        _, task, batch = pickle.loads(packed)
        self.preferred.append(workers)
        self.handed_out.append([one.name for one in batch])
        return FakeFuture(str(len(self.handed_out)), self.answer(task, batch))

    def scheduler_info(self, n_workers):
        return {"workers": {address: {"nthreads": 1} for address in self.workers if address not in self.retired}}

    def retire_workers(self, addresses):
        self.retired += addresses


def run_all(client, task, subjects, threads=1, watch=None):
    """The outcomes of all subjects."""
    queue, outcomes = BatchQueue(client, task, iter(subjects), watch or WorkerWatch(client, "the cluster")), []
    queue.fill(threads)
    while queue.batches or queue.alone:
        outcomes += queue.next_outcomes()
        queue.fill(threads)
    return outcomes
