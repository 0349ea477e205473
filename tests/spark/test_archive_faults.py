"""An archive whose driver is killed again and again while the queue goes on has each event once."""

import os
import signal
import subprocess
import sys
import threading
from collections import Counter

import pyarrow.dataset as ds
import pytest

from delayq import DelayQueue, NewMessage
from delayq.keys import Keys
from tests.spark.conftest import COVERAGE, JAVA_OPTIONS
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.faults, pytest.mark.timeout(400)]

KEYS = Keys.of("delayq", "letters")

DRIVER = """
import os, signal, sys

from delayq.spark import archive, session
from delayq.spark.archive import _Batches
from importlib import import_module

run = import_module("delayq.spark.archive_run")
url, folder, java, die = sys.argv[1:]
write, note = _Batches.__call__, run.ArchiveRun._note


def killed():
    os.killpg(0, signal.SIGKILL)  # the JVM too


def written(self, batch, number):
    write(self, batch, number)
    if number % 3 == 2:
        killed()


def done(self, name, offset):
    if self.reports:
        killed()
    note(self, name, offset)


def half_trimmed(executor, calls, target, last):
    first = run.log_of(target).first
    if last - first > 20:
        executor.call(calls.trim_events(first + 10))
        killed()
    return 0


if die == "after a write":
    _Batches.__call__ = written
if die == "before a trim":
    run.ArchiveRun._note = done
if die == "in a trim":
    run._trim = half_trimmed
spark = session("archive", master="local[2]", **{"spark.driver.extraJavaOptions": java})
print(archive(spark, "letters", folder, url=url, max_entries=40, trim=True, keep=10).last)
"""


class Producer:
    """Sends messages, some at once when asked, and a few all the time until the end of the block."""

    def __init__(self, url):
        self.sent = []
        self.queue = DelayQueue("letters", url=url, events=True, events_max_len=1_000_000)
        self.lock, self.ended = threading.Lock(), threading.Event()
        self.thread = threading.Thread(target=self.go_on)

    def send(self, entries):
        for _ in range(entries):
            with self.lock:
                ids = [f"m{len(self.sent) + n}" for n in range(1 + len(self.sent) % 4)]
                self.queue.send_many([NewMessage(1, delay="1h", id=id) for id in ids])
                self.sent += ids

    def go_on(self):
        while not self.ended.wait(0.25):
            self.send(1)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()
        self.queue.close()


@pytest.fixture
def driver(redis_url, tmp_path):
    """Return what starts a driver that archives into `tmp_path / "events"`."""
    environ = {name: value for name, value in os.environ.items() if name != COVERAGE}
    started, log = [], tmp_path / "log"

    def start(die="no"):
        command = [sys.executable, "-c", DRIVER, redis_url, str(tmp_path / "events"), JAVA_OPTIONS, die]
        with log.open("ab") as file:
            started.append(
                subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=file, start_new_session=True)
            )
        return started[-1]

    yield start
    for one in started:
        if one.poll() is None:
            kill(one)
        one.communicate()


def kill(driver):
    """Kill a driver and its JVM."""
    os.killpg(driver.pid, signal.SIGKILL)
    driver.wait()


def archived(folder):
    """Return how often a plain reader of Parquet finds each id and each (offset, index)."""
    table = ds.dataset(folder, format="parquet").to_table(["id", "offset", "index"])
    places = zip(table["offset"].to_pylist(), table["index"].to_pylist(), strict=True)
    return Counter(table["id"].to_pylist()), Counter(places)


def test_each_event_is_archived_once_though_the_driver_is_killed_five_times(driver, redis_url, redis_client, tmp_path):
    folder = tmp_path / "events"

    def parts():
        return set(folder.glob("part=*"))

    with Producer(redis_url) as producer:
        # In the middle of writing a batch: files of it are there, and not yet in their place.
        producer.send(120)
        one = driver()
        wait_until(lambda: one.poll() is not None or list(folder.glob("part=*/_temporary/*")), 120)
        kill(one)
        for where in ("after a write", "before a trim", "in a trim"):
            producer.send(120)
            one = driver(where)
            one.wait(120)
            assert one.returncode == -signal.SIGKILL, (where, (tmp_path / "log").read_text())
            ids, _ = archived(folder)
            assert max(ids.values()) == 1
        assert redis_client.xrange(KEYS.events, count=1)[0][0] != b"0-1"  # some of it was trimmed
        # At any moment.
        producer.send(120)
        one, before = driver(), parts()
        wait_until(lambda: one.poll() is not None or len(parts() - before) > 2, 120)
        assert one.poll() is None, (tmp_path / "log").read_text()
        kill(one)
    last = driver()
    out, _ = last.communicate(timeout=120)
    assert last.returncode == 0, (tmp_path / "log").read_text()
    ids, places = archived(folder)
    assert ids == Counter(producer.sent)
    assert set(places.values()) == {1}
    offsets = {offset for offset, _ in places}
    assert offsets == set(range(1, int(out) + 1))
    assert redis_client.xlen(KEYS.events) == 10  # what trimming keeps
