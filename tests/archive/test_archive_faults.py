"""The archive contains each event once, even if its process is killed repeatedly during sends."""

import random
import shutil
import signal
import subprocess
import sys
import threading
from collections import Counter

import pyarrow.dataset as ds
import pytest
from pyarrow import fs

from delayq import DelayQueue, NewMessage
from delayq.archive import archive
from delayq.archive.archive_files import divide
from delayq.archive.archive_folder import Folder
from delayq.broker.keys import Keys
from tests.support.killed_file_system import KilledAt, KilledError
from tests.support.processes import Process

pytestmark = [pytest.mark.faults, pytest.mark.timeout(400)]

KEYS = Keys.of("delayq", "letters")

PROGRAM = """
import sys
from delayq.archive import archive

url, folder = sys.argv[1:]
tell = lambda result: print(result.last, flush=True)
archive("letters", folder, url=url, max_entries=20, trim=True, keep=10, once=False, every="50ms", on_progress=tell)
"""


class Producer:
    """Sends messages continuously until the end of the block."""

    def __init__(self, url):
        self.sent = []
        self.queue = DelayQueue("letters", url=url, events=True, events_max_len=1_000_000)
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.go_on)

    def go_on(self):
        while not self.ended.wait(0.002):
            ids = [f"m{len(self.sent) + n}" for n in range(1 + len(self.sent) % 4)]
            self.queue.send_many([NewMessage(1, delay="1h", id=id) for id in ids])
            self.sent += ids

    def __enter__(self):
        self.queue.open()
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()
        self.queue.close()


def archived(folder):
    """Count each id and each (offset, index) with a plain Parquet reader, in the files that count."""
    files, _ = divide(map(str, folder.rglob("*.parquet")))
    table = ds.dataset([file.path for file in files], format="parquet").to_table(["id", "log_offset", "entry_index"])
    places = zip(table["log_offset"].to_pylist(), table["entry_index"].to_pylist(), strict=True)
    return Counter(table["id"].to_pylist()), Counter(places)


def test_killed_at_any_step_each_event_is_archived_once(redis_url, tmp_path, monkeypatch):
    with DelayQueue("letters", url=redis_url, events=True) as queue:
        sent = [queue.send_delay_msg(1, "1h", id=f"m{number}").id for number in range(5)]
        step, made = 0, Folder.made
        while True:
            path = str(tmp_path / "events")
            system = fs.PyFileSystem(KilledAt(step))
            with monkeypatch.context() as patched:
                patched.setattr(Folder, "made", lambda path, system=system: Folder(system, made(path).root))
                try:
                    archive("letters", path, url=redis_url, max_entries=3)
                    is_killed = False
                except KilledError:
                    is_killed = True
            if divide(map(str, (tmp_path / "events").rglob("*.parquet")))[0]:
                ids, _ = archived(tmp_path / "events")
                assert max(ids.values()) == 1, step
            archive("letters", path, url=redis_url, max_entries=3)
            ids, places = archived(tmp_path / "events")
            assert ids == Counter(sent), step
            assert set(places.values()) == {1}
            shutil.rmtree(path)
            if not is_killed:
                break
            step += 1
    assert step > 20  # two batches, their copies, and three notes on each


@pytest.mark.long
def test_killed_process_archives_each_event_once(redis_url, redis_client, tmp_path):
    folder, draw = tmp_path / "events", random.Random(7)
    with Producer(redis_url) as producer:
        for _ in range(30):
            process = Process([sys.executable, "-c", PROGRAM, redis_url, str(folder)], stdout=subprocess.PIPE)
            for _ in range(draw.randint(1, 6)):
                process.stdout.readline()
            threading.Event().wait(draw.uniform(0, 0.05))  # somewhere in what follows a batch
            process.send_signal(signal.SIGKILL)
            process.communicate()
    last = archive("letters", str(folder), url=redis_url, trim=True, keep=10).last
    ids, places = archived(folder)
    assert ids == Counter(producer.sent)
    assert set(places.values()) == {1}
    assert {offset for offset, _ in places} == set(range(1, max(offset for offset, _ in places) + 1))
    assert last is None or last == max(offset for offset, _ in places)
    assert redis_client.xlen(KEYS.events) == 10  # what trimming keeps
