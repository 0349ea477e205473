"""The archive contains each event once, even if its driver is killed repeatedly during sends."""

import os
import signal
import subprocess
import sys
import threading
from collections import Counter

import pyarrow.dataset as ds
import pytest

from delayq import DelayQueue, NewMessage
from delayq.broker.keys import Keys
from delayq.spark import archive
from delayq.spark.datasource.compat import LIMITS_BATCHES
from delayq.spark.pipelines.archiving.archive import _ParquetBatchWriter
from delayq.spark.pipelines.archiving.archive_files import divide
from tests.spark.conftest import COVERAGE, JAVA_OPTIONS
from tests.support.processes import Process
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.faults, pytest.mark.timeout(400)]

KEYS = Keys.of("delayq", "letters")
PATIENCE = 300
"""Seconds that a driver may take on a busy machine, which starts a JVM in a minute."""

DRIVER = """
import os, signal, sys

from delayq.spark import archive, session
from delayq.spark.pipelines.archiving.archive import _ParquetBatchWriter
from importlib import import_module

run = import_module("delayq.spark.pipelines.archiving.archive_run")
url, folder, java, die = sys.argv[1:]
write, note = _ParquetBatchWriter.__call__, run.ArchiveRun._save_position


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


def half_trimmed(target, last):
    first = run.read_bounds(target).first
    if last - first > 20:
        run.connect(target).call(run.calls_of(target).trim_events(first + 10))
        killed()
    return 0


if die == "after a write":
    _ParquetBatchWriter.__call__ = written
if die == "before a trim":
    run.ArchiveRun._save_position = done
if die == "in a trim":
    run._trim = half_trimmed
spark = session("archive", master="local[2]", **{"spark.driver.extraJavaOptions": java})
print(archive(spark, "letters", folder, url=url, max_entries=40, trim=True, keep=10).last)
"""


class Producer:
    """Sends messages on request, and a few continuously until the end of the block."""

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
    """Return a function that starts a driver, which archives into `tmp_path / "events"`."""
    environ = {name: value for name, value in os.environ.items() if name != COVERAGE}
    started, log = [], tmp_path / "log"

    def start(die="no"):
        command = [sys.executable, "-c", DRIVER, redis_url, str(tmp_path / "events"), JAVA_OPTIONS, die]
        with log.open("ab") as file:
            started.append(Process(command, env=environ, stdout=subprocess.PIPE, stderr=file, start_new_session=True))
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
    """Count each id and each (offset, index) with a plain Parquet reader, in the files that count."""
    files, _ = divide(map(str, folder.rglob("*.parquet")))
    table = ds.dataset([file.path for file in files], format="parquet").to_table(["id", "log_offset", "entry_index"])
    places = zip(table["log_offset"].to_pylist(), table["entry_index"].to_pylist(), strict=True)
    return Counter(table["id"].to_pylist()), Counter(places)


def test_repeated_batch_is_archived_once(spark, redis_url, tmp_path, monkeypatch):
    folder, failures, write = tmp_path / "events", [], _ParquetBatchWriter.__call__
    failing = 1 if LIMITS_BATCHES else 0  # without limits there is one batch

    def written(self, batch, number):
        write(self, batch, number)
        if number == failing and not failures:
            failures.append(number)
            raise OSError("cut off after the write")

    monkeypatch.setattr(_ParquetBatchWriter, "__call__", written)
    with DelayQueue("letters", url=redis_url, events=True) as queue:
        sent = [queue.send_delay_msg(1, "1h", id=f"m{number}").id for number in range(5)]
    with pytest.raises(Exception, match="cut off after the write"):
        archive(spark, "letters", str(folder), url=redis_url, max_entries=3)
    assert failures == [failing]
    archive(spark, "letters", str(folder), url=redis_url, max_entries=3)
    ids, places = archived(folder)
    assert ids == Counter(sent)
    assert set(places.values()) == {1}


@pytest.mark.torture
@pytest.mark.timeout(1800)
def test_killed_driver_archives_each_event_once(driver, redis_url, redis_client, tmp_path):
    folder = tmp_path / "events"

    def parts():
        return set(folder.glob("_recent/part=*"))

    with Producer(redis_url) as producer:
        producer.send(120)
        one = driver()
        # Files of a batch are there, and not yet in their place.
        wait_until(lambda: one.poll() is not None or list(folder.glob("_recent/part=*/_temporary/*")), PATIENCE)
        kill(one)
        for where in ("after a write", "before a trim", "in a trim"):
            producer.send(120)
            one = driver(where)
            one.wait(PATIENCE)
            assert one.returncode == -signal.SIGKILL, (where, (tmp_path / "log").read_text())
            ids, _ = archived(folder)
            assert max(ids.values()) == 1
        assert redis_client.xrange(KEYS.events, count=1)[0][0] != b"0-1"  # some of it was trimmed
        producer.send(120)
        one, before = driver(), parts()
        wait_until(lambda: one.poll() is not None or len(parts() - before) > 2, PATIENCE)
        assert one.poll() is None, (tmp_path / "log").read_text()
        kill(one)
    last = driver()
    out, _ = last.communicate(timeout=PATIENCE)
    assert last.returncode == 0, (tmp_path / "log").read_text()
    ids, places = archived(folder)
    assert ids == Counter(producer.sent)
    assert set(places.values()) == {1}
    offsets = {offset for offset, _ in places}
    assert offsets == set(range(1, int(out) + 1))
    assert redis_client.xlen(KEYS.events) == 10  # what trimming keeps
