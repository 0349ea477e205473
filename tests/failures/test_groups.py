"""Groups while workers and Redis are killed: each payload is in exactly one batch that succeeds, in order."""

from __future__ import annotations

import json
import threading
import time
from collections import defaultdict

import pytest

from delayq import DelayQueue, OutcomeUnknown
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
