"""Worker processes are killed: every item is completed once, and no keys are left."""

from __future__ import annotations

import random
import subprocess
import sys
import time

import pytest

from delayq.workqueue import Item, WorkQueue
from tests.support.processes import Process
from tests.workqueue.peer import Peer, finish, stopped


class Crew:
    """Workers that are replaced when they die."""

    def __init__(self, url, workers):
        self.command = [sys.executable, "-m", "tests.workqueue.child", url]
        self.deaths = 0
        self.processes = [self.start() for _ in range(workers)]

    def start(self):
        return Process(self.command, stderr=subprocess.DEVNULL)

    def replace(self):
        for n, process in enumerate(self.processes):
            if process.poll() is not None:
                self.deaths += 1
                self.processes[n] = self.start()

    def end(self):
        for process in self.processes:
            process.kill()
            process.wait()


def add(db, items):
    """Add items as this library and as peers do; half of the peers' adds are cut off."""
    for n in range(items):
        id = str(n)
        if n % 3:
            WorkQueue("jobs").add_item(db, Item(id, id=id))
        elif n % 2:
            stopped(Peer(db).add_item(id, id.encode()), 1)
        else:
            finish(Peer(db).add_item(id, id.encode()))


def work_through(server, *, items, workers, kills):
    """Let workers complete items. Every tenth item kills its first worker; `kills` is the chance of another kill."""
    queue = WorkQueue("jobs")
    with server.client() as db:
        crew = Crew(server.url, workers)
        try:
            add(db, items)
            while db.keys("jobs:item:*"):
                queue.light_clean(db, grace=0.02)
                if random.random() < kills:
                    random.choice(crew.processes).kill()
                crew.replace()
                time.sleep(0.02)
        finally:
            crew.end()
        done = [int(id) for id in db.lrange("done", 0, -1)]
        assert len(done) == len(set(done))
        # A worker killed between completing and listing an item does not list it.
        assert items - crew.deaths - workers <= len(done) <= items
        for lease in db.keys("jobs:lease:*"):
            db.delete(lease)
        assert queue.lease(db, 1, False) is None
        assert queue.light_clean(db, grace=0) == 0
        assert db.keys("jobs:*") == []
        return crew.deaths


@pytest.mark.long
def test_killed_workers_lose_and_duplicate_no_item(start_redis):
    assert work_through(start_redis(), items=41, workers=2, kills=0) >= 4


@pytest.mark.torture
@pytest.mark.timeout(600)
def test_many_killed_workers_lose_and_duplicate_no_item(start_redis):
    assert work_through(start_redis(), items=1000, workers=6, kills=0.01) >= 100
