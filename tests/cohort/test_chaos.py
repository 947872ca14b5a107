"""Workers, scheduler and the command itself are killed at random moments, and the disk is full for a while: nothing is
lost.

All of it through `python -m vrnet cohort`, by processes that register small images."""

import json
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

from tests.disks import full_disk
from tests.phantoms import phantom
from vrnet import Grid, Image, write_image

ROOT = Path(__file__).parents[2]
SUBJECTS, PAIRS, KILLS = 400, 3, 20
"""Subjects share a few pairs of images, so that a serial run of those tells what all should be."""
METHOD = "--method", "TV-L1", "--set", "levels=1", "--set", "warps=60", "--set", "tolerance=0"
"""Which takes about 0.2 s."""
PATIENCE_SECONDS = 900
DISK_KILOBYTES = 40 * 1024


def write_list(folder, count):
    """A list of so many subjects in a folder, of small hearts."""
    for seed in range(PAIRS):
        patient = phantom(seed, (24, 24), 10.0)
        for part in ("fixed", "moving"):
            image = Image(getattr(patient, part)[0, 0].numpy(), Grid.plain((24, 24), (10.0, 10.0)))
            write_image(image, folder / f"{part}{seed}.nii.gz")
    lines = [f"s{k:05d},fixed{k % PAIRS}.nii.gz,moving{k % PAIRS}.nii.gz" for k in range(count)]
    path = folder / f"pairs{count}.csv"
    path.write_text("\n".join(["subject,fixed,moving", *lines]))
    return path


def start(*words):
    """A process that runs Python, with what it says in our output."""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "OMP_NUM_THREADS": "1"}
    return subprocess.Popen([sys.executable, *map(str, words)], env=environment, cwd=ROOT)


def start_cohort(pairs, out, *where):
    """The command, with what it says in our output."""
    return start("-m", "vrnet", "cohort", pairs, "--out", out, *METHOD, "--retry", *where)


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
    """Kill one of the workers at a random moment, some as they begin and most as they work; whether there was one."""
    time.sleep(dice.uniform(0.5, 4.0))
    if not (found := workers_of(process)):
        return False
    with suppress(psutil.Error):
        dice.choice(found).kill()
    return True


def wait_for_results(out, client, more_than=0):
    """Until workers have begun: a run whose workers never begin is told so, and ends."""
    while len(seen(out)) <= more_than:
        assert client.poll() is None, "it ended before it began"
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


def images(out):
    """{subject: the images that came out}, as they are on the disk."""
    found = {}
    for path in sorted((out / "subjects").glob("*/*.nii.gz")):
        found.setdefault(path.parent.name, []).append((path.name, path.read_bytes()))
    return found


@pytest.mark.release
def test_whatever_is_killed_every_subject_is_done_once_and_as_a_serial_run_does_it(tmp_path):
    dice, kills, out = random.Random(0), 0, tmp_path / "out"
    pairs = write_list(tmp_path, SUBJECTS)
    out.mkdir()
    with full_disk(out, DISK_KILOBYTES) as is_small:
        client = start_cohort(pairs, out, "--jobs", 3)
        wait_for_results(out, client)
        while kills < KILLS / 2:
            kills += kill_one(client, dice)
            assert client.poll() is None, "the run goes on without its workers"
        first = seen(out)
        client.send_signal(signal.SIGKILL)  # and the scheduler, which is in it
        client.wait()
        cluster = Cluster()
        where = "--scheduler", cluster.address
        try:
            client = start_cohort(pairs, out, *where)
            if is_small:
                wait_for_results(out, client, more_than=len(first))
                fill_for_a_while(out)
                # 2 since not even failures could be recorded; 0 where no subject ended meanwhile, on a slow machine
                assert client.wait(timeout=PATIENCE_SECONDS) in (0, 2)
                client = start_cohort(pairs, out, *where)
            while kills < KILLS:
                kills += cluster.kill_one(dice)
                if kills == KILLS * 3 // 4:
                    cluster.restart()
                    kills += 1
            statuses = [cluster.wait_for(client)]
            while statuses[-1] != 0 and len(statuses) < 6:
                statuses.append(cluster.wait_for(start_cohort(pairs, out, *where)))
        finally:
            stop(client)
            cluster.stop()
        assert statuses[-1] == 0, statuses
        check_whole(tmp_path, out, first)


def check_whole(tmp_path, out, first):
    """All is done, once, as a serial run does it, and nothing is left behind."""
    assert len(first) > 0
    assert first.items() <= seen(out).items(), "what was done was done again"
    assert start_cohort(write_list(tmp_path, PAIRS), tmp_path / "serial").wait(timeout=PATIENCE_SECONDS) == 0
    expected, found = [*images(tmp_path / "serial").values()], images(out)
    assert found == {f"s{k:05d}": expected[k % PAIRS] for k in range(SUBJECTS)}
    assert [path.name for path in (out / ".working").iterdir()] == []
    assert [path.name for path in (out / "failures").iterdir()] == []
    assert json.loads((out / "summary.json").read_text())["done"] == SUBJECTS
