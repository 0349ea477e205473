"""Order by key while workers and Redis are killed: in order, none twice at once, none lost."""

from __future__ import annotations

import random
from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from delayq import DelayQueue, FindingKind, NewMessage
from tests.failures.programs import program
from tests.support.processes import Process
from tests.support.waiting import wait_until

DURABLE = ("--appendonly", "yes", "--appendfsync", "always")
WORKER = """
import logging, os, sys, time, zlib
from delayq import DelayQueue

logging.disable()
url, path, share = sys.argv[1:]
file, me = os.open(path, os.O_WRONLY | os.O_APPEND), os.getpid()

def tell(what, message):
    os.write(file, f"{what} {me} {message.key} {message.payload}\\n".encode())

def callback(message):
    tell("start", message)
    time.sleep(0.003)
    if zlib.crc32(f"{message.id}/{message.attempt}/{message.token}".encode()) % 100 < int(share):
        tell("failed", message)
        raise RuntimeError("it fails at times")
    tell("done", message)

queue = DelayQueue("ledger", url=url, concurrency=8, max_consume_duration=2, tick=0.1, nack_delay=0.05,
                   default_retries=100, deadline=60)
queue.callback(callback)
queue.run()
"""


class Ledger:
    """What the callbacks of all processes have told, in the order in which they did."""

    def __init__(self, path: Path) -> None:
        self.runs: dict[str, tuple[int, str]] = {}
        """By key: the number of the message that runs, and its process."""
        self.done: dict[str, int] = defaultdict(int)
        """By key: how many are done; all of them have lower numbers than the others."""
        self.failed = self.killed = 0
        self.problems: list[str] = []
        for line in path.read_text().splitlines():
            what, pid, *rest = line.split(" ")
            if what == "killed":
                self.killed += sum(run[1] == pid for run in self.runs.values())
                self.runs = {key: run for key, run in self.runs.items() if run[1] != pid}
            else:
                self._add(what, pid, rest[0], int(rest[1]))

    def _add(self, what: str, pid: str, key: str, number: int) -> None:
        if what == "start":
            if key in self.runs:
                self.problems.append(f"{key}: {number} starts while {self.runs[key][0]} runs")
            if number not in (self.done[key], self.done[key] - 1):  # the one that was done last, if nobody knew of it
                self.problems.append(f"{key}: {number} starts after {self.done[key]} are done")
            self.runs[key] = (number, pid)
            return
        self.runs.pop(key, None)
        self.failed += what == "failed"
        if what == "done":
            self.done[key] = max(self.done[key], number + 1)


class Plan(NamedTuple):
    """How many keys, messages of each, workers and kills."""

    keys: int
    per_key: int
    workers: int
    kills: int


@pytest.mark.faults
@pytest.mark.parametrize(
    "plan",
    [
        pytest.param(Plan(40, 10, 3, 3), marks=[pytest.mark.long, pytest.mark.timeout(300)], id="few"),
        pytest.param(Plan(1000, 100, 8, 40), marks=[pytest.mark.torture, pytest.mark.timeout(1800)], id="many"),
    ],
)
def test_messages_of_a_key_stay_in_order_while_workers_and_redis_are_killed(start_redis, tmp_path, plan):
    server, path, chance = start_redis(*DURABLE), tmp_path / "told", random.Random(7)
    path.touch()
    with DelayQueue("ledger", url=server.url, deadline=60) as queue, ExitStack() as stack:

        def start() -> Process:
            return stack.enter_context(program(WORKER, server.url, str(path), "5"))

        queue.limits.set("account:*", in_order=True)
        messages = [NewMessage(n, key=f"account:{key}") for n in range(plan.per_key) for key in range(plan.keys)]
        for first in range(0, len(messages), 1000):
            queue.send_many(messages[first : first + 1000])
        running = [start() for _ in range(plan.workers)]
        for number in range(plan.kills):
            _wait_for_more(queue, path)
            if number % 10 == 9:
                server.kill()
                server.start()
            else:
                _kill(running.pop(chance.randrange(plan.workers)), path)
                running.append(start())
        wait_until(lambda: queue.counts().living == 0, timeout=1500)
        assert queue.counts().dead == 0
        for worker in running:
            worker.terminate()
        assert [
            finding for finding in queue.examine(deep=True).findings if finding.kind is not FindingKind.SERVER
        ] == []
    ledger = Ledger(path)
    assert ledger.problems[:5] == []
    assert ledger.done == {f"account:{key}": plan.per_key for key in range(plan.keys)}
    assert ledger.failed > plan.keys * plan.per_key / 50
    assert ledger.killed > 0 or plan.kills < 10


def _wait_for_more(queue: DelayQueue[Any], path: Path) -> None:
    """Wait until a hundred lines more have been told, or all is done."""
    before = path.stat().st_size
    wait_until(lambda: path.stat().st_size > before + 1500 or not queue.counts().living)


def _kill(worker: Process, path: Path) -> None:
    worker.kill()
    worker.wait()
    with path.open("a") as file:
        file.write(f"killed {worker.pid}\n")
