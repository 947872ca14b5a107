"""Workers of a Dask cluster that can do nothing: they lack vrnet, have another version, or do not see the files.

Such a worker ends every batch at once, and so would be given all of them. It is stopped after two in turn. If all are
so from the beginning, the run ends and says what is wrong."""

from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

from vrnet.errors import BadInput

if TYPE_CHECKING:
    from distributed import Client

MAX_STRIKES = 2
"""Batches in turn that a worker may fail to do. Fewer than the attempts at a subject, so that one bad machine makes no
subject a failure."""
MIN_BATCHES_LOST = 3
"""Before a cluster is taken for one that can do nothing."""


class WorkerWatch:
    """What the workers of a cluster were able to do so far."""

    def __init__(self, client: "Client", place: str) -> None:
        self.client, self.place = client, place
        self.strikes: Counter[str] = Counter()
        """By the address of a worker: batches that it could not do since the last that it could."""
        self.stopped: dict[str, str] = {}
        """Why workers get no more work, by address."""
        self.lost = self.lost_nowhere = 0
        """Batches that no worker was able to do; and those of them of which nobody knows where."""
        self.has_worked = False

    def succeed(self, worker: str) -> None:
        """A worker did a batch."""
        self.has_worked = True
        self.strikes.pop(worker, None)

    def strike(self, workers: Iterable[str], reason: str) -> None:
        """Workers could not do a batch. BadInput if there is none that can, as far as can be known."""
        workers = tuple(workers)
        self.lost += 1
        self.lost_nowhere += not workers
        for worker in workers:
            self.strikes[worker] += 1
            if self.strikes[worker] >= MAX_STRIKES:
                self.stop(worker, reason)
        here = self.addresses()
        if here is None:
            return
        all_struck = bool(here) and here <= self.strikes.keys()
        is_hopeless = self.lost >= MIN_BATCHES_LOST and (all_struck or self.lost_nowhere >= MIN_BATCHES_LOST)
        is_empty = bool(self.stopped) and not here - self.stopped.keys()
        if self.has_worked and is_empty:
            raise BadInput(f"all workers of {self.place} had to be stopped: {reason}: what is done stays done")
        if not self.has_worked and (is_hopeless or is_empty):
            raise BadInput(f"no worker of {self.place} can do anything: {reason}")

    def stop(self, worker: str, reason: str) -> None:
        """Have a worker end, and remember why."""
        if worker not in self.stopped:
            self.stopped[worker] = reason
            with suppress(Exception):  # it may have ended by itself
                self.client.retire_workers([worker])

    def addresses(self) -> set[str] | None:
        """The workers that there are; None while the scheduler is away, and nobody knows."""
        with suppress(Exception):
            found = set(self.client.scheduler_info(n_workers=-1)["workers"])
            return found if self.client.status == "running" else None
        return None
