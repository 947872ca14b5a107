"""Workers, scheduler and client are killed at random moments, and the disk is full for a while: nothing is lost."""

import os
import random
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.cohort.works import make_task, results, write_list
from tests.disks import full_disk
from vrnet.cohort.engine import Here, run_tasks
from vrnet.cohort.plan import make_plan
from vrnet.cohort.table import read_table

ROOT = Path(__file__).parents[2]
SUBJECTS, SECONDS, KILLS = 400, 0.25, 20
PATIENCE_SECONDS = 300
DISK_KILOBYTES = 24 * 1024


def start(*words):
    """A process that runs Python, with what it says in our output."""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "OMP_NUM_THREADS": "1"}
    return subprocess.Popen([sys.executable, *map(str, words)], env=environment, cwd=ROOT)


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def workers_of(process):
    """The processes that do the work, of a process that has started them."""
    try:
        found = psutil.Process(process.pid).children(recursive=True)
        return [one for one in found if "spawn_main" in " ".join(one.cmdline())]
    except psutil.Error:
        return []


def stop(process):
    """End a process and all that it started."""
    try:
        family = [*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)]
    except psutil.Error:
        family = []
    for one in family:
        with suppress(psutil.Error):
            one.kill()
    process.wait()


class Cluster:
    """A scheduler and its workers, as others would have started them."""

    def __init__(self):
        self.port = free_port()
        self.address = f"tcp://127.0.0.1:{self.port}"
        self.start()

    def start(self):
        place = ("--host", "127.0.0.1", "--port", self.port, "--no-dashboard")
        self.scheduler = start("-m", "distributed.cli.dask_scheduler", *place)
        self.start_workers()

    def start_workers(self):
        self.workers = start(
            "-m", "distributed.cli.dask_worker", self.address, "--nworkers", 3, "--nthreads", 1, "--no-dashboard"
        )

    def renew(self):
        """Who starts workers ends where one is killed as it begins: a queue would start it again."""
        if self.workers.poll() is not None:
            self.start_workers()

    def kill_one(self, dice):
        self.renew()
        return kill_one(self.workers, dice)

    def wait_for(self, client):
        """The status of a client at its end."""
        end = time.monotonic() + PATIENCE_SECONDS
        while client.poll() is None and time.monotonic() < end:
            self.renew()
            time.sleep(0.5)
        return client.poll()

    def restart(self):
        """Kill the scheduler; its workers end without it, and both are started again."""
        self.scheduler.kill()
        self.scheduler.wait()
        stop(self.workers)
        self.start()

    def stop(self):
        stop(self.workers)
        stop(self.scheduler)


def kill_one(process, dice):
    """Kill one of the workers at a random moment; whether there was one."""
    time.sleep(dice.uniform(0.2, 1.5))
    if not (found := workers_of(process)):
        return False
    with suppress(psutil.Error):
        dice.choice(found).kill()
    return True


def wait_for_results(out, more_than=0):
    """Until workers have begun: a run whose workers never begin is told so, and ends."""
    while len(seen(out)) <= more_than:
        time.sleep(0.1)


def fill_for_a_while(out):
    """Leave no room on the disk for some seconds."""
    with suppress(OSError):  # workers write meanwhile: it fills what is left
        (out / "filler").write_bytes(bytes(DISK_KILOBYTES * 1024))
    time.sleep(5)
    (out / "filler").unlink()


def seen(out):
    """{subject: the file that says that it is done}, by its number on the disk."""
    return {path.parent.name: path.stat().st_ino for path in (out / "subjects").glob("*/done.json")}


@pytest.mark.fuzz
def test_whatever_is_killed_every_subject_is_done_once_and_as_a_serial_run_does_it(tmp_path):
    dice, kills, out = random.Random(0), 0, tmp_path / "out"
    pairs = write_list(tmp_path, SUBJECTS)
    out.mkdir()
    with full_disk(out, DISK_KILOBYTES) as is_small:
        client = start("-m", "tests.cohort.chaos", out, pairs, SECONDS, 3)
        wait_for_results(out)
        while kills < KILLS / 2:
            kills += kill_one(client, dice)
            assert client.poll() is None, "the run goes on without its workers"
        first = seen(out)
        client.send_signal(signal.SIGKILL)  # and the scheduler, which is in it
        client.wait()
        cluster = Cluster()
        words = "-m", "tests.cohort.chaos", out, pairs, SECONDS, cluster.address
        try:
            client = start(*words)
            if is_small:
                wait_for_results(out, more_than=len(first))
                fill_for_a_while(out)
                assert client.wait(timeout=300) == 2, "not even failures could be recorded"
                client = start(*words)
            while kills < KILLS:
                kills += cluster.kill_one(dice)
                if kills == KILLS * 3 // 4:
                    cluster.restart()
                    kills += 1
            statuses = [cluster.wait_for(client)]
            while statuses[-1] != 0 and len(statuses) < 6:
                statuses.append(cluster.wait_for(start(*words)))
        finally:
            stop(client)
            cluster.stop()
        assert statuses[-1] == 0, statuses
        check_whole(tmp_path, out, pairs, first)


def check_whole(tmp_path, out, pairs, first):
    """All is done, once, as a serial run does it, and nothing is left behind."""
    subjects = read_table(pairs).subjects
    serial = make_task(tmp_path / "serial")
    run_tasks(serial, subjects, Here())
    assert len(first) > 0
    assert first.items() <= seen(out).items(), "what was done was done again"
    assert results(out) == results(tmp_path / "serial")
    task = make_task(out)
    assert len(make_plan(task.folder, subjects, task.recipe).done) == SUBJECTS
    assert [path.name for path in task.folder.working.iterdir()] == []
    assert [path.name for path in task.folder.failures.iterdir()] == []
