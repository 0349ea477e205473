"""Guarantees of every engine: one consumer at a time, one ack, and no message lost with its worker."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path

import pytest

from tests.conformance.engines import ENGINES, LONG, SHORT
from tests.support.faces import Blocking
from tests.support.processes import Process
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[2]
ANY_BYTES = bytes(range(256))


def taken_over(worker):
    """Return the message that a worker takes after the lease of another one has expired."""
    found = []

    def found_one():
        worker.recover()
        found.append(worker.take())
        return found[-1]

    wait_until(found_one)
    return found[-1]


# Sending and delivering


def test_payload_is_delivered_unchanged(worker):
    for payload in (b"", ANY_BYTES, b"x" * 100_000):
        assert worker.send(payload)
        taken = worker.take()
        assert taken.payload == payload
        assert taken.ack()


def test_empty_queue_returns_no_message(worker):
    assert worker.take() is None
    assert worker.counts() == (0, 0)


def test_message_keeps_the_id_of_its_sender(worker):
    assert worker.send(b"", id="order:7/b@c.de")
    assert worker.take().id == "order:7/b@c.de"


def test_generated_ids_are_different(worker):
    worker.send_many([b""] * 20)
    assert len({worker.take().id for _ in range(20)}) == 20


def test_message_is_delivered_to_one_worker(worker, another):
    worker.send(b"")
    assert worker.take()
    assert another.take() is None
    assert worker.take() is None


def test_concurrent_workers_get_each_message_once(hire):
    hire().send_many([b"%d" % n for n in range(60)])
    seen, lock = Counter(), threading.Lock()

    def work(worker):
        while taken := worker.take():
            with lock:
                seen[taken.payload] += 1
            assert taken.ack()

    threads = [threading.Thread(target=work, args=(hire(),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert seen == {b"%d" % n: 1 for n in range(60)}


def test_waiting_worker_gets_a_new_message(worker, another):
    found = []
    waiting = threading.Thread(target=lambda: found.append(another.take(block=20)))
    waiting.start()
    worker.send(b"at last")
    waiting.join(15)
    assert [taken.payload for taken in found] == [b"at last"]


def test_waiting_ends_at_its_timeout(worker):
    assert worker.take(block=0.05) is None


# Uniqueness


def test_id_is_refused_while_its_message_is_ready_or_active(worker):
    assert worker.send(b"first", id="7")
    assert not worker.send(b"second", id="7")
    taken = worker.take()
    assert not worker.send(b"third", id="7")
    assert taken.payload == b"first"
    assert worker.take() is None


def test_id_can_be_sent_again_after_the_ack(worker):
    worker.send(b"first", id="7")
    assert worker.take().ack()
    assert worker.send(b"second", id="7")
    assert worker.take().payload == b"second"


# Acknowledging


def test_acked_message_is_not_delivered_again(worker, another):
    worker.send(b"")
    taken = worker.take()
    assert taken.ack()
    assert not taken.ack()
    another.recover()
    assert another.take() is None
    assert another.counts() == (0, 0)


@pytest.mark.parametrize("late", [True, False], ids=["the late one first", "the second holder first"])
def test_only_one_of_two_workers_can_ack_a_message(worker, another, late):
    worker.send(b"")
    first = worker.take(SHORT)
    second = taken_over(another)
    assert second.id == first.id
    order = (first, second) if late else (second, first)
    assert [taken.ack() for taken in order] == [True, False]
    worker.recover()
    assert worker.take() is None
    assert worker.counts() == (0, 0)


def test_late_ack_is_accepted_if_the_message_is_not_settled(worker, another):
    worker.send(b"", id="7")
    taken = worker.take(SHORT)
    over = time.monotonic() + 2 * SHORT
    wait_until(lambda: another.recover() or time.monotonic() > over)
    assert taken.ack()
    assert another.counts() == (0, 0)
    assert another.take() is None
    assert another.send(b"", id="7")


def test_only_one_of_many_concurrent_acks_succeeds(hire):
    worker = hire()
    worker.send(b"")
    held = [worker.take(SHORT), taken_over(hire())]
    replies = []
    threads = [threading.Thread(target=lambda taken=taken: replies.append(taken.ack())) for taken in held * 3]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(15)
    assert sorted(replies) == [False] * 5 + [True]


# Crashes


def test_message_of_a_dead_worker_is_redelivered_unchanged(hire):
    gone, worker, another = hire(), hire(), hire()
    gone.send(ANY_BYTES, id="7")
    lost = gone.take(SHORT)
    gone.close()
    again = taken_over(worker)
    assert (again.id, again.payload) == (lost.id, ANY_BYTES)
    another.recover()
    assert another.take() is None
    assert again.ack()
    assert worker.counts() == (0, 0)


def test_id_is_refused_while_a_dead_worker_has_its_message(hire):
    gone, worker = hire(), hire()
    gone.send(b"first", id="7")
    gone.take(SHORT)
    gone.close()
    assert not worker.send(b"second", id="7")
    assert taken_over(worker).payload == b"first"


def test_only_expired_leases_are_recovered(worker, another):
    worker.send_many([b"kept", b"lost"])
    kept = worker.take()
    lost = worker.take(SHORT)
    again = taken_over(another)
    assert again.id == lost.id
    another.recover()
    assert another.take() is None
    assert kept.ack()


def test_concurrent_recovery_duplicates_nothing(hire):
    hire().send_many([b"%d" % n for n in range(10)])
    gone = hire()
    for _ in range(10):
        gone.take(SHORT)
    seen, lock = defaultdict(list), threading.Lock()

    def work(worker):
        while len(seen) < 10:
            worker.recover()
            if taken := worker.take():
                with lock:
                    seen[taken.payload].append(time.monotonic())

    threads = [threading.Thread(target=work, args=(hire(),)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert seen.keys() == {b"%d" % n for n in range(10)}
    # On a very slow machine a lease may expire meanwhile: only then may a message be taken again.
    assert all(second - first > LONG / 2 for times in seen.values() for first, second in pairwise(times))


@pytest.mark.long
@pytest.mark.timeout(120)
def test_message_of_a_killed_process_is_redelivered(engine, redis_url):
    command = [sys.executable, "-m", "tests.conformance.child", engine, redis_url]
    with Process(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        held = process.stdout.readline().strip()
        os.kill(process.pid, signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    worker = ENGINES[engine](Blocking(), redis_url)
    again = taken_over(worker)
    assert (again.id, again.payload) == (held, b"of a process that dies")
    assert again.ack()
    worker.close()


# Counting


def test_counts_follow_the_messages(worker):
    worker.send_many([b"a", b"b", b"c"])
    assert worker.counts() == (3, 0)
    first, second = worker.take(), worker.take()
    assert worker.counts() == (1, 2)
    first.ack()
    assert worker.counts() == (1, 1)
    second.ack()
    worker.take().ack()
    assert worker.counts() == (0, 0)
