"""A defect planted in a script of an engine is found by its torture: by the rules or by the final scan."""

from __future__ import annotations

import random
import re
import threading
from contextlib import contextmanager

import pytest

from delayq import script as scripts
from delayq.config import read_settings
from delayq.executor import open_executor
from delayq.torture.callbacks import consumer_options
from delayq.torture.checker import check, tell
from delayq.torture.engines import ENGINES
from delayq.torture.history import Calm, Recorder, Rules, now
from delayq.torture.process import Task, watch
from delayq.torture.workload import deeds
from delayq.torture.workqueue import worker as workqueue_worker
from delayq.torture.workqueue.recorded import RecordedWorkQueue
from tests.support.lua_files import in_place
from tests.support.waiting import wait_until

LEASE = 1.0
MESSAGES = 400
"""So many that one of them, if it is an item, takes longer than its lease."""


@pytest.fixture
def play(redis_url, tmp_path):
    """`play(engine)` has messages sent and worked through by threads of this process, and returns the verdict."""

    def play(name, messages):
        task = Task(
            process="worker-1",
            history=tmp_path / "worker.jsonl",
            url=redis_url,
            direct=redis_url,
            prefix="delayq-torture",
            queue="planted",
            lease=LEASE,
            seed="7",
            engine=name,
            messages=messages,
            seconds=0.1,
            batch=10,
        )
        engine = ENGINES[name]
        with Recorder(tmp_path / "conductor.jsonl", "conductor") as conductor:
            conductor.write(Rules(at=now(), queue="planted", lease=1000, tick=250, longest_delay=500, engine=name))
            with Recorder(tmp_path / "producer.jsonl", "producer") as recorder, engine.sender(task, recorder) as sender:
                for deed in deeds("7", 1, producers=1, messages=messages, seconds=0.1, batch=10):
                    if deed.what in engine.does and deed.life == 0:
                        assert sender.attempt(deed, [])
            options = task.hasty() | {"deadline": 5}
            with Recorder(task.history, task.process) as recorder, opened(options) as direct:
                conductor.write(Calm(at=now()))
                with engine.view(task, direct) as view, watch(recorder, LEASE, task.process):
                    WORK[name](engine, task, recorder, view)
                    conductor.write(view.scan(own=True))
                    view.remove()
        return check([tmp_path])

    return play


@contextmanager
def opened(options):
    executor = open_executor(options, read_settings(options))
    yield executor
    executor.close()


def consume(engine, task, recorder, _):
    with engine.open(consumer_options(task), task) as queue:
        engine.attach(queue, task, recorder)
        queue.run(burst=True)
        with engine.inspector(task, recorder) as inspector:
            inspector.look(random.Random(1))


def work(engine, task, recorder, view):
    gone = threading.Event()
    queue = RecordedWorkQueue(f"{task.prefix}:{task.queue}", recorder)
    with opened(task.options()) as executor:
        flows = workqueue_worker.flows(task, recorder, gone.is_set)
        working = threading.Thread(target=workqueue_worker.work, args=[flows, queue, executor.client, gone.set])
        working.start()
        with engine.inspector(task, recorder) as inspector:
            wait_until(lambda: inspector.look(random.Random(1)) or view.look().living == 0, timeout=40, every=0.05)
        gone.set()
        working.join()


WORK = {"streams": consume, "workqueue": work}


@pytest.mark.parametrize("engine", ["streams", "workqueue"])
def test_without_one_nothing_is_found_and_nothing_left(play, engine, redis_client):
    verdict = play(engine, 300)
    assert verdict.right, list(tell(verdict))
    assert verdict.messages == 270 + 30
    assert verdict.deliveries > verdict.messages
    assert redis_client.keys() == []


DEFECTS = {
    "an ack that leaves its entry": (
        "streams/ack.lua",
        "redis.call('XDEL', stream, unpack(ended))",
        "",
        "leftovers: {} is settled, and left in the stream",
    ),
    "an ack that leaves its id": (
        "streams/ack.lua",
        "redis.call('SREM', ids, unpack(named))",
        "",
        "leftovers: {} is among the unique ids and no message",
    ),
    "a nack that charges twice": (
        "streams/nack.lua",
        "math.max(lease - delay, 0), delivery)",
        "math.max(lease - delay, 0), delivery + 1)",
        "bounded deliveries: attempt 3 came after attempt 1",
    ),
    "a dead letter that keeps nothing": (
        "streams/nack.lua",
        "bury(stream, group, ids, dead, errors, delays, dead_max, entry, body, delivery, 'retries spent', error)",
        "remove(stream, group, errors, delays, entry)",
        "conservation: lost",
    ),
    "a completion that is always the first": (
        "workqueue/complete.lua",
        "return completed",
        "return 1",
        "fencing: two acks of one life counted",
    ),
    "a claim without a lease": (
        "workqueue/claim.lua",
        "'PX', lease)",
        "'PX', 1)",
        "leases: delivered while another lease was valid",
    ),
}


@pytest.mark.parametrize(("file", "right", "wrong", "told"), DEFECTS.values(), ids=DEFECTS)
def test_a_planted_defect_is_found(play, file, right, wrong, told):
    find(play, file, right, wrong, told)


def test_a_clean_that_puts_nothing_back_is_found(play, monkeypatch):
    monkeypatch.setattr(workqueue_worker, "draw", lambda _: 0.0)  # all that may be dropped is
    right, wrong = "redis.call('LPUSH', queue, unpack(restored))", "redis.call('LLEN', queue)"
    find(play, "workqueue/restore.lua", right, wrong, "leftovers: {} is an item in neither list")


def find(play, file, right, wrong, told):
    """Say that a run with another text in a script breaks a rule as told."""
    text = scripts._read(file)
    assert right in text
    with in_place(file, text.replace(right, wrong)):
        verdict = play(file.partition("/")[0], MESSAGES)
    found = [f"{one.rule}: {one.text}" for one in verdict.violations]
    pattern = re.escape(told).replace(re.escape("{}"), ".*")
    assert any(re.match(pattern, text) for text in found), (verdict.broken, found)
