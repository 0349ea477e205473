"""Groups while workers and Redis are killed: each payload is in exactly one batch that succeeds, in order."""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter, defaultdict
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from delayq import DelayQueue, FindingKind, NewMessage, OutcomeUnknown
from tests.failures.programs import program
from tests.support.processes import Process
from tests.support.waiting import wait_until

pytestmark = pytest.mark.faults

WORKER = """
import json, os, sys, time
from delayq import DelayQueue

def work(message):
    time.sleep(0.02)
    if message.attempt == 1 and message.payload[0] % 10 == 0:
        raise ValueError("fails at first")
    os.write(1, json.dumps([message.id, message.payload]).encode() + b"\\n")

DelayQueue("groups", url=sys.argv[1], lease="300ms", nack_delay="50ms", concurrency=4, callback=work).run()
"""
GROUPS, EACH, SIZE = 4, 100, 7


class Batches:
    """The batches that workers have handled, as they tell."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def read(self, worker: Process) -> None:
        self.lines += [
            line for line in worker.stdout.read().splitlines() if line.startswith("[") and line.endswith("]]")
        ]

    def check(self) -> None:
        """Assert that the batches of each group are its payloads, in order, none of them in two batches."""
        found = defaultdict(set)
        for line in self.lines:
            id, payload = json.loads(line)
            assert 1 <= len(payload) <= SIZE
            found[id].add(tuple(payload))
        assert len(found) == GROUPS
        for batches in found.values():
            assert [one for batch in sorted(batches) for one in batch] == list(range(EACH))


def send_all(queue: DelayQueue) -> None:
    for at in range(EACH):
        for group in range(GROUPS):
            try:
                queue.send_delay_msg(at, id=f"g{group}", debounce="30ms", at_most="200ms", collect=SIZE)
            except OutcomeUnknown as error:
                raise AssertionError("the test gives the server back in time") from error
        time.sleep(0.01)


def test_payloads_of_killed_workers_are_each_in_one_batch(redis_url):
    batches = Batches()
    with DelayQueue("groups", url=redis_url, default_retries=50) as queue:
        sender = threading.Thread(target=send_all, args=(queue,))
        sender.start()
        for _ in range(4):
            with program(WORKER, redis_url) as worker:
                time.sleep(0.6)
                worker.kill()
                batches.read(worker)
        sender.join()
        with program(WORKER, redis_url) as worker:
            wait_until(lambda: queue.counts().living + queue.counts().successors == 0, 30)
            worker.kill()
            batches.read(worker)
    batches.check()


def test_payloads_outlive_a_killed_server(start_redis):
    server = start_redis("--appendonly", "yes", "--appendfsync", "always")
    batches = Batches()
    with DelayQueue("groups", url=server.url, default_retries=50) as queue, program(WORKER, server.url) as worker:
        sender = threading.Thread(target=send_all, args=(queue,))
        sender.start()
        for _ in range(2):
            time.sleep(0.4)
            server.kill()
            server.start()
        sender.join()
        wait_until(lambda: queue.counts().living + queue.counts().successors == 0, 30)
        worker.kill()
        batches.read(worker)
    batches.check()


TELLING = """
import json, logging, os, sys, time, zlib
from delayq import DelayQueue

logging.disable()
file = os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND)

def work(message):
    started = time.time()
    time.sleep(0.001)
    if zlib.crc32(f"{message.id}/{message.token}".encode()) % 100 < 5:
        raise ValueError("it fails at times")
    os.write(file, json.dumps([message.id, started, message.payload]).encode() + b"\\n")

DelayQueue("groups", url=sys.argv[1], concurrency=8, lease="2s", tick=0.1, nack_delay="50ms", default_retries=100,
           deadline=60, callback=work).run()
"""
DURABLE = ("--appendonly", "yes", "--appendfsync", "always")


class Plan(NamedTuple):
    """How many groups, payloads of each, workers and kills."""

    groups: int
    per_group: int
    workers: int
    kills: int


def send_to_many(queue: DelayQueue, plan: Plan, chance: random.Random) -> None:
    """Send payloads [number, time] to all groups in turn: most at once and many together, some later by themselves."""
    options = {"debounce": "300ms", "at_most": "1500ms", "collect": SIZE}
    for number in range(plan.per_group):
        for first in range(0, plan.groups, 500):
            groups = [f"g{group}" for group in range(first, min(first + 500, plan.groups))]
            later = {group for group in groups if chance.random() < 0.02}
            at = time.time()
            together = [NewMessage([number, at], id=group) for group in groups if group not in later]
            sent = {one.id for one in queue.send_many(together, **options)}
            assert sent == {*groups} - later
            for group in later:
                queue.send([number, time.time()], delay=chance.uniform(0.1, 2), group=group, **options)


@pytest.mark.parametrize(
    "plan",
    [
        pytest.param(Plan(60, 20, 3, 3), marks=[pytest.mark.long, pytest.mark.timeout(300)], id="few"),
        pytest.param(Plan(5000, 20, 6, 30), marks=[pytest.mark.torture, pytest.mark.timeout(1800)], id="many"),
    ],
)
def test_each_payload_of_many_groups_is_in_one_batch_that_was_due(start_redis, tmp_path, plan):
    server, path, chance = start_redis(*DURABLE), tmp_path / "told", random.Random(7)
    path.touch()
    with DelayQueue("groups", url=server.url, deadline=60) as queue, ExitStack() as stack:

        def start() -> Process:
            return stack.enter_context(program(TELLING, server.url, str(path)))

        running = [start() for _ in range(plan.workers)]
        sender = threading.Thread(target=send_to_many, args=(queue, plan, chance))
        sender.start()
        for number in range(plan.kills):
            before = path.stat().st_size
            wait_until(lambda before=before: path.stat().st_size > before + 1000 or not sender.is_alive(), 300)
            if number % 10 == 2:
                server.kill()
                server.start()
            else:
                running.pop(chance.randrange(plan.workers)).kill()
                running.append(start())
        sender.join()
        wait_until(lambda: queue.counts().living + queue.counts().successors == 0, timeout=1500)
        assert queue.counts().dead == 0
        for worker in running:
            worker.terminate()
        left = [one for one in queue.examine(deep=True).findings if one.kind is not FindingKind.SERVER]
        assert not left
    check_batches(path, plan)


def check_batches(path: Path, plan: Plan) -> None:
    """Assert that each payload is in one batch, which was full, or had waited, by the clock, when it began."""
    starts: dict[tuple[str, tuple[int, ...]], tuple[float, list[float]]] = {}
    for line in path.read_text().splitlines():
        id, started, payload = json.loads(line)
        batch = (id, tuple(number for number, _ in payload))
        if batch not in starts or started < starts[batch][0]:
            starts[batch] = started, [sent for _, sent in payload]
    early = [
        batch
        for batch, (started, sent) in starts.items()
        if len(sent) < SIZE and started < min(max(sent) + 0.3, min(sent) + 1.5) - 0.001
    ]
    assert not early
    seen = Counter((id, number) for id, numbers in starts for number in numbers)
    wanted = {(f"g{group}", number) for group in range(plan.groups) for number in range(plan.per_group)}
    assert seen.keys() == wanted
    assert [one for one, times in seen.items() if times > 1] == []
    assert len({len(numbers) for _, numbers in starts}) > 1
