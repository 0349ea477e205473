"""Passes of the cold tier that die of SIGKILL at any moment, beside one another, and with Redis: no message is lost."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest

from delayq import DelayQueue, NewMessage
from delayq.bulk import cold_status, move_cold
from delayq.testing import Clock, drain, ruling
from tests.support.processes import Process

pytestmark = [pytest.mark.long, pytest.mark.faults, pytest.mark.timeout(400)]

MESSAGES, LOAD = 20_000, 5_000
KILLS, REDIS_KILLS, AT_ONCE = 60, 5, 2
"""Passes that are killed, of two at a time; and how often Redis is."""
FIRST, LAST = 10, 50
"""Days from now on which messages are due."""
PASSES = """
import os, random, signal, sys

from delayq.bulk import move_cold
from delayq.bulk.cold import spilling

url, folder = sys.argv[1:]
spilling.FILE_ROWS = 2000  # so that a pass has many steps
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for line in sys.stdin:  # a process each, without the time that a start takes
    pid = os.fork()
    if not pid:
        draw = random.Random(int(line))
        while True:
            move_cold("q", folder, url=url, keep=f"{draw.choice([3, 8, 25, 35, 90])}d", deadline="60s")
    print(pid, flush=True)
"""
CHANGES = """
import json, random, sys
from datetime import datetime, timedelta
from pathlib import Path

from delayq import DelayQueue

url, log, stop, start, count, first, last = sys.argv[1:]
draw, known = random.Random(3), int(count)
start = datetime.fromisoformat(start)
with DelayQueue("q", url=url, codec="bytes", deadline="60s") as queue, open(log, "w") as file:
    while not Path(stop).exists():
        due = start + timedelta(hours=draw.randrange(24 * int(first), 24 * int(last), 4))
        what, id = draw.choice(["send", "cancel", "reschedule", "reschedule"]), f"m{draw.randrange(known)}"
        if what == "send":
            id, known = f"m{known}", known + 1
            queue.send(id.encode(), id=id, at=due)
            outcome = "sent"
        else:
            outcome = queue.cancel(id) if what == "cancel" else queue.reschedule(id, at=due)
        print(json.dumps([what, id, due.isoformat(), outcome]), file=file, flush=True)
"""


class Passes:
    """Processes that make passes for ever, until they are killed."""

    def __init__(self, url, folder, errors):
        command = [sys.executable, "-c", PASSES, url, str(folder)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": errors}
        self._process = Process(command, text=True, bufsize=1, **pipes)
        self._living = []
        self.started = 0

    def start(self):
        self.started += 1
        self._process.stdin.write(f"{self.started}\n")
        self._living.append(int(self._process.stdout.readline()))

    def kill(self, at):
        pid = self._living.pop(at)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            return True
        return False

    def end(self):
        while self._living:
            self.kill(0)
        self._process.communicate()


def apply(wanted, log):
    """Carry out what was answered; returns how often each answer was given."""
    answers = Counter()
    for line in log.read_text().splitlines():
        what, id, due, outcome = json.loads(line)
        answers[what, outcome] += 1
        if what == "cancel":
            assert outcome in (("cancelled", "withdrawn") if id in wanted else ("gone", "withdrawn")), line
            wanted.pop(id, None)
        elif what == "send":
            wanted[id] = datetime.fromisoformat(due)
        elif id in wanted:
            assert outcome in ("rescheduled", "noted"), line
            wanted[id] = datetime.fromisoformat(due)
        else:
            assert outcome in ("gone", "noted"), line
    return answers


def test_each_message_is_delivered_once_over_kills_of_passes_and_redis(start_redis, tmp_path):
    server = start_redis("--appendonly", "yes", "--appendfsync", "always")
    folder, log, stop, errors = (tmp_path / name for name in ("cold", "log", "stop", "errors"))
    chance, begin = random.Random(42), datetime.now(UTC).replace(microsecond=0)
    wanted = {f"m{n}": begin + timedelta(days=FIRST + n * (LAST - FIRST) // MESSAGES) for n in range(MESSAGES)}
    with DelayQueue("q", url=server.url, codec="bytes") as queue:
        ids = list(wanted)
        for first in range(0, MESSAGES, LOAD):
            queue.send_many([NewMessage(id.encode(), id=id, at=wanted[id]) for id in ids[first : first + LOAD]])

    numbers = [str(number) for number in (MESSAGES, FIRST, LAST)]
    with errors.open("w") as told:
        client = Process(
            [sys.executable, "-c", CHANGES, server.url, log, stop, begin.isoformat(), *numbers], stderr=told
        )
        passes, kills = Passes(server.url, folder, told), Counter()
        while kills["pass"] < KILLS:
            while passes.started < kills["pass"] + AT_ONCE:
                passes.start()
            time.sleep(chance.uniform(0.02, 1))  # when it strikes is left to chance
            if kills["redis"] < min(REDIS_KILLS, kills["pass"] // 10):
                server.kill()
                server.start()
                kills["redis"] += 1
            assert passes.kill(chance.randrange(AT_ONCE)), errors.read_text()
            kills["pass"] += 1
        passes.end()
        stop.touch()
        assert client.wait(60) == 0, errors.read_text()
    assert "Traceback" not in errors.read_text(), errors.read_text()
    answers = apply(wanted, log)
    met = {("cancel", "withdrawn"), ("cancel", "cancelled"), ("reschedule", "noted"), ("reschedule", "rescheduled")}
    assert met <= answers.keys(), answers
    assert kills["redis"] == REDIS_KILLS
    assert len(list((folder / "_done").rglob("*.parquet"))) > 20, "too little came back between the kills"

    with server.client() as client:
        client.config_set("appendfsync", "no")  # it is not killed any more
    move_cold("q", folder, url=server.url)
    assert cold_status("q", url=server.url).cold > MESSAGES // 2, "now time passes"
    delivered = []
    clock = Clock()
    with ruling(clock), DelayQueue("q", url=server.url, codec="bytes") as queue:
        queue.callback(lambda message: delivered.append((message.id, message.payload, clock.now)))
        for _ in range(LAST // 5 + 1):
            move_cold("q", folder, url=server.url)  # keeps a week
            drain(queue, until="5d")
        assert not queue.counts().living
    moved = move_cold("q", folder, url=server.url)
    assert (moved.cold, moved.restored, moved.spilled) == (0, 0, 0)
    assert Counter(id for id, *_ in delivered) == Counter(wanted.keys())
    assert {id: at for id, _, at in delivered} == wanted, "each on time"
    assert all(payload == id.encode() for id, payload, _ in delivered)
    assert not list(folder.glob("_moved/*.parquet"))
