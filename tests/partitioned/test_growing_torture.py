"""A queue over partitions grows and shrinks while its workers, its Redis and the mover are killed: none is lost."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from delayq import DelayQueue
from delayq.broker.keys import Keys
from delayq.queue.placing.layout import names_of
from delayq.testing.torture.final_scan import scan
from tests.support.processes import Process
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_until

PREFIX, NAME = "delayq", "reminders"
LEASE = 2.0
EXPLAINS = LEASE + 3
"""Seconds after its start in which a kill explains that a message is started again, on a busy machine."""
WORKERS, PRODUCERS = 3, 2
PROGRAM = """
import os, random, sys, time
from delayq import DelayQueue, DelayqError, NewMessage

role, url, folder, number, count = sys.argv[1:]
chance = random.Random(number)
queue = DelayQueue("reminders", url=url, partitions="stored", lease="2s", concurrency=4, dedupe_window="1h")


def work(message):
    out.write(f"{time.time()} {message.id}\\n")
    time.sleep(chance.random() / 50)


def send_all(messages):
    while True:
        try:
            return queue.send_many(messages)
        except DelayqError:  # sent again under the same ids
            time.sleep(0.05)


if role == "worker":
    out = open(f"{folder}/{os.getpid()}", "w", buffering=1)
    queue.callback(work)
    queue.run()
else:
    for first in range(0, int(count), 5):
        ids = [f"{number}-{at}" for at in range(first, first + 5)]
        send_all([NewMessage("x", id=id, delay=chance.random()) for id in ids])
        time.sleep(0.01)
"""


class Scene:
    """The processes of a run, and when what was killed."""

    def __init__(self, server: RedisServer, folder: Path, messages: int, seed: int) -> None:
        self.server, self.folder, self.messages = server, folder, messages
        self.chance = random.Random(seed)
        self.killed: dict[str, list[float]] = defaultdict(list)
        """By process id, or `redis`."""
        self.workers = [self.start("worker", number) for number in range(WORKERS)]
        self.producers = [self.start("producer", number) for number in range(PRODUCERS)]

    def start(self, role: str, number: int) -> Process:
        arguments = [role, self.server.url, str(self.folder), str(number), str(self.messages // PRODUCERS)]
        return Process([sys.executable, "-c", PROGRAM, *arguments], stderr=subprocess.DEVNULL)

    def kill_worker(self) -> None:
        number = self.chance.randrange(WORKERS)
        self.killed[str(self.workers[number].pid)].append(time.time())
        self.workers[number].end()
        self.workers[number] = self.start("worker", number)

    def kill_redis(self) -> None:
        self.killed["redis"].append(time.time())
        self.server.kill()
        self.server.restart()
        self.killed["redis"].append(time.time())

    def move(self, partitions: int, kills: int) -> None:
        """Move to a number of partitions; the mover is killed so often, and so are a worker and Redis beside it."""
        command = [
            sys.executable,
            "-m",
            "delayq",
            "--url",
            self.server.url,
            "partitions",
            NAME,
            "--to",
            f"{partitions}",
        ]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        for _ in range(kills):
            with Process(command, **quiet) as mover:
                time.sleep(0.3 + self.chance.random())  # anywhere in the move
                mover.end()
            self.chance.choice([self.kill_worker, self.kill_worker, self.kill_redis])()

        def moved() -> bool:
            with Process(command, **quiet) as mover:
                return mover.wait(60) == 0

        wait_until(moved, 60, f"the move to {partitions} does not end")

    def starts(self) -> Iterator[tuple[str, str, float]]:
        """Yield the process, the id and the time of each start."""
        for file in self.folder.iterdir():
            for line in file.read_text().splitlines():
                at, _, id = line.partition(" ")
                if id.count("-") == 1:  # else the kill has cut it off
                    yield file.name, id, float(at)

    def explains(self, process: str, at: float) -> bool:
        """Return whether a start is repeated because of a kill."""
        kills = [*self.killed.get(process, ()), *self.killed["redis"]]
        return any(-EXPLAINS <= at - kill <= EXPLAINS for kill in kills)


def torture(folder: Path, messages: int, kills: int, seed: int) -> None:
    with RedisServer("--appendonly", "yes", "--appendfsync", "always") as server:
        with DelayQueue(NAME, url=server.url, partitions=4) as queue:
            queue.open()
        scene = Scene(server, folder, messages, seed)
        for partitions in (16, 5):
            scene.kill_worker()
            scene.move(partitions, kills)
        scene.kill_redis()
        assert [one.wait(200) for one in scene.producers] == [0] * PRODUCERS
        with DelayQueue(NAME, url=server.url, partitions=5) as queue:
            wait_until(lambda: queue.counts().living == 0, 60, "messages are left", every=0.1)
            for worker in scene.workers:
                worker.end()
            assert queue.counts().dead == 0
            check(scene, queue)


def check(scene: Scene, queue: DelayQueue) -> None:
    """Check what has started, and what is left in each partition: by the scan of `delayq torture`."""
    found: dict[str, list[tuple[float, str]]] = defaultdict(list)
    for process, id, at in scene.starts():
        found[id].append((at, process))
    sent = {f"{number}-{at}" for number in range(PRODUCERS) for at in range(scene.messages // PRODUCERS)}
    assert {*found} == sent
    for id, starts in found.items():
        for at, process in sorted(starts)[:-1]:
            assert scene.explains(process, at), (id, starts, scene.killed)
    for name in names_of(NAME, 4, 16):
        record = scan(queue.executor, Keys.of(PREFIX, name), own=True)
        assert not record.living
        assert not [text for text in record.leftovers if "wake-ups" not in text], name


@pytest.mark.long
def test_no_message_is_lost_while_a_queue_grows_under_kills(tmp_path):
    torture(tmp_path, 8_000, kills=3, seed=1)


@pytest.mark.torture
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(5))
def test_no_message_is_lost_again_and_again(tmp_path, seed):
    torture(tmp_path, 20_000, kills=12, seed=seed)
