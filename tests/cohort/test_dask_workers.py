"""A worker that can do nothing is stopped; if all are so, the run is, and says what is wrong."""

import pytest

from tests.cohort.clusters import FakeClient
from vrnet import BadInput
from vrnet.cohort.dask import WorkerWatch


def test_one_bad_worker_is_stopped_and_the_others_go_on():
    client = FakeClient(workers=("bad", "good"))
    watch = WorkerWatch(client, "the cluster")
    watch.succeed("good")
    for _ in range(2):
        watch.strike(["bad"], "no files here")
    assert (client.retired, watch.stopped) == (["bad"], {"bad": "no files here"})
    watch.strike(["good"], "one file is gone")
    watch.succeed("good")
    watch.strike(["good"], "another file is gone")
    assert client.retired == ["bad"], "a worker that does some is no bad one"


def test_a_cluster_that_never_did_anything_is_given_up_and_the_cause_is_told():
    watch = WorkerWatch(FakeClient(workers=("a", "b", "c")), "the cluster")
    watch.strike(["a"], "No module named 'vrnet'")
    watch.strike(["b"], "No module named 'vrnet'")
    with pytest.raises(BadInput, match="no worker of the cluster can do anything: No module named 'vrnet'"):
        watch.strike(["c"], "No module named 'vrnet'")


def test_a_scheduler_that_fails_all_batches_is_given_up_though_no_worker_is_to_blame():
    watch = WorkerWatch(FakeClient(workers=("a", "b")), "the cluster")
    for _ in range(2):
        watch.strike([], "cannot be unpacked")
    with pytest.raises(BadInput, match="cannot be unpacked"):
        watch.strike([], "cannot be unpacked")


@pytest.mark.parametrize("away", [{"status": "connecting"}, {"scheduler_info": lambda n_workers: {}}])
def test_nobody_is_judged_while_the_scheduler_is_away(away):
    client = FakeClient(workers=("a",))
    watch = WorkerWatch(client, "the cluster")
    watch.succeed("a")
    vars(client).update(away)
    for _ in range(4):
        watch.strike(["a"], "unmounted")
    for name in away:
        del vars(client)[name]
    with pytest.raises(BadInput, match="had to be stopped"):
        watch.strike(["a"], "unmounted")


def test_a_run_ends_when_the_last_worker_had_to_be_stopped():
    watch = WorkerWatch(FakeClient(workers=("a",)), "the cluster")
    watch.succeed("a")
    watch.strike(["a"], "unmounted")
    with pytest.raises(BadInput, match="had to be stopped: unmounted: what is done stays done"):
        watch.strike(["a"], "unmounted")
