"""The rules or the final scan find defects planted in the scripts of the engines."""

from __future__ import annotations

import random
import re
import threading
from contextlib import contextmanager
from itertools import chain, repeat

import pytest

from delayq.broker.transport.executor import open_executor
from delayq.options import read_settings
from delayq.testing.torture.callback_engine import consumer_options
from delayq.testing.torture.engine_registry import ENGINES
from delayq.testing.torture.history import FaultsEndedRecord, Recorder, SettingsRecord, now
from delayq.testing.torture.process_task import ProcessTask, record_stalls
from delayq.testing.torture.rules.checker import check, report_lines
from delayq.testing.torture.workload import actions
from delayq.testing.torture.workqueue import workqueue_worker
from tests.support.lua_files import in_place, source_of
from tests.support.waiting import wait_until

LEASE = 1.0
MESSAGES = 400
"""Enough that at least one item takes longer than its lease."""


@pytest.fixture
def play(redis_url, tmp_path):
    """`play(engine)` sends and processes messages in threads of this process, and returns the result of the check."""

    def play(name, messages):
        task = ProcessTask(
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
            conductor.write(
                SettingsRecord(at=now(), queue="planted", lease=1000, tick=250, max_nack_delay=500, engine=name)
            )
            producer = Recorder(tmp_path / "producer.jsonl", "producer")
            with producer, engine.open(task, task.options(), producer) as queue:
                for action in actions(task):
                    if action.what in engine.supported_actions and action.life == 0:
                        assert engine.attempt(engine.perform, queue, action, [])
            options = task.poll_options() | {"deadline": 5}
            with Recorder(task.history, task.process) as recorder, direct(options) as executor:
                conductor.write(FaultsEndedRecord(at=now()))
                with record_stalls(recorder, LEASE, task.process):
                    WORK[name](engine, task, recorder)
                conductor.write(engine.scan(task, executor, own=True))
                engine.remove(task, executor)
        return check([tmp_path])

    return play


@contextmanager
def direct(options):
    executor = open_executor(options, read_settings(options))
    yield executor
    executor.close()


def consume(engine, task, recorder):
    with engine.open(task, consumer_options(task), recorder) as queue:
        engine.attach(queue, task, recorder)
        queue.run(burst=True)
        assert engine.attempt(engine.inspect, queue, random.Random(1))


def work(engine, task, recorder):
    stopped = threading.Event()

    def drained():
        assert engine.attempt(engine.inspect, queue, random.Random(1))
        return engine.poll(queue).living == 0

    with engine.open(task, task.options(), recorder) as queue:
        worker = workqueue_worker.WorkQueueWorker(task, recorder, queue.queue, queue.db, stopped)
        working = threading.Thread(target=worker.run)
        working.start()
        wait_until(drained, timeout=40, every=0.05)
        stopped.set()
        working.join()


WORK = {"streams": consume, "workqueue": work}


@pytest.mark.long
@pytest.mark.parametrize("engine", ["streams", "workqueue"])
def test_check_passes_without_a_defect_and_leaves_no_keys(play, engine, redis_client, monkeypatch):
    # The first deliveries are dropped where allowed; later ones are completed. So some items are delivered twice.
    drawn = chain(repeat(0.0, 300), repeat(1.0))
    monkeypatch.setattr(workqueue_worker, "fraction_of", lambda _: next(drawn))
    result = play(engine, 300)
    assert result.right, list(report_lines(result))
    assert result.messages == 270 + 30
    assert result.deliveries > result.messages
    assert redis_client.keys() == []


DEFECTS = {
    "an ack that leaves its entry": (
        "streams/ack.lua",
        "redis.call('XDEL', stream, unpack(done))",
        "",
        "leftovers: {} is settled, but still in the stream",
    ),
    "an ack that leaves its id": (
        "streams/ack.lua",
        "redis.call('SREM', ids, unpack(unique_ids))",
        "",
        "leftovers: {} is among the unique ids, but not a message",
    ),
    "a nack that charges twice": (
        "streams/nack.lua",
        "delay, lease, delivery, free)",
        "delay, lease, delivery + 1, free)",
        "bounded deliveries: dead after 2 attempts, of which 1 had started",
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
        "fencing: two acks of one life took effect",
    ),
    "a claim without a lease": (
        "workqueue/claim.lua",
        "'PX', lease)",
        "'PX', 1)",
        "leases: delivered while another lease was valid",
    ),
}


@pytest.mark.long
@pytest.mark.parametrize(("file", "right", "wrong", "text"), DEFECTS.values(), ids=DEFECTS)
def test_planted_defect_is_found(play, file, right, wrong, text):
    expect_violation(play, file, right, wrong, text)


@pytest.mark.long
def test_clean_that_restores_nothing_is_found(play, monkeypatch):
    monkeypatch.setattr(workqueue_worker, "fraction_of", lambda _: 0.0)  # drops every item that may be dropped
    right, wrong = "redis.call('LPUSH', queue, unpack(restored))", "redis.call('LLEN', queue)"
    expect_violation(play, "workqueue/restore.lua", right, wrong, "leftovers: {} is an item in neither list")


def expect_violation(play, file, right, wrong, text):
    """Check that a run with the changed script breaks the expected rule."""
    source = source_of(file)
    assert right in source
    with in_place(file, source.replace(right, wrong)):
        result = play(file.partition("/")[0], MESSAGES)
    found = [f"{one.rule}: {one.text}" for one in result.violations]
    pattern = re.escape(text).replace(re.escape("{}"), ".*")
    assert any(re.match(pattern, one) for one in found), (result.broken, found)
