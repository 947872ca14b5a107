"""Processes are started as many as are asked for, where there is so much to do."""

from contextlib import nullcontext

from vrnet.cohort import dask as dask_clusters
from vrnet.cohort.executors import open_executor
from vrnet.cohort.run import Here


def test_no_more_processes_are_started_than_there_are_subjects(monkeypatch):
    started = []
    monkeypatch.setattr(dask_clusters, "local_cluster", lambda jobs: started.append(jobs) or nullcontext(Here()))
    for subjects in (3, 20, 1, 0):
        with open_executor(subjects, jobs=8):
            pass
    assert started == [3, 8]
