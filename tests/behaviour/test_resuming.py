"""Resumable callbacks: an attempt goes on from what the one before has reported, however that one has ended."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter

import pytest

from delayq import (
    AsyncDelayQueue,
    DelayQueue,
    Encrypted,
    PayloadError,
    Reject,
    Snooze,
    UndecodableError,
    current_message,
)
from delayq.streams import StreamQueue
from tests.behaviour.places import everywhere
from tests.support.processes import Process
from tests.support.waiting import wait_until

ROWS, EVERY = 1_000, 10
WORKER = """
import sys, time
from delayq import DelayQueue

url, path = sys.argv[1:]
queue = DelayQueue("imports", url=url, lease="1s")

@queue.callback
def handle(message):
    with open(path, "a", buffering=1) as file:
        for row in range(message.progress or 0, message.payload):
            print(message.attempt, row, file=file)
            time.sleep(0.001)
            if row % 10 == 9:
                message.report(row + 1)

queue.run()
"""
"""Handles the rows of a message, notes each, and reports every ten of them."""


def fails(message):
    raise OSError("cut off")


def snoozes(message):
    raise Snooze(0)


ENDINGS = {
    "nack": fails,
    "false": lambda message: False,
    "nack by hand": lambda message: message.nack(delay=0),
    "snooze": snoozes,
    "release": lambda message: message.release(),
    "release with a delay": lambda message: message.release(delay="1ms"),
}


@everywhere
@pytest.mark.parametrize("end", ENDINGS.values(), ids=ENDINGS)
def test_next_attempt_goes_on_from_the_last_report(open_queue, redis_client, end):
    queue, seen = open_queue(nack_delay=0, tick=0.05), []

    @queue.callback
    def work(message):
        seen.append(message.progress)
        if len(seen) < 4:
            if len(seen) != 2:  # the second attempt reports nothing, and loses nothing
                assert message.report({"rows": len(seen)})
                assert message.progress == {"rows": len(seen)}
            return end(message)
        return None

    queue.send_delay_msg(1, id="m", name="n", retries=5)
    queue.start_consume()
    wait_until(lambda: queue.counts().living == 0)
    assert seen == [None, {"rows": 1}, {"rows": 1}, {"rows": 3}]
    assert redis_client.exists("delayq:{reminders}:attributes") == 0


@everywhere
def test_stale_attempt_overwrites_nothing(open_queue):
    queue = open_queue()
    queue.send_delay_msg(1, id="m", retries=3)
    stale = queue.lease("100ms", n=1).messages[0]
    assert stale.progress is None
    assert stale.report(1)
    held = queue.lease("30s", n=1, block=5).messages[0]
    assert held.progress == 1
    assert held.report(2)
    assert not stale.report(3)
    assert (stale.progress, held.progress, queue.get("m").progress) == (1, 2, 2)
    assert not stale.release(delay=0)
    assert held.release()
    assert queue.lease("30s", n=1, block=5).messages[0].progress == 2


@everywhere
def test_a_stop_keeps_what_was_reported(open_queue, gate):
    queue = open_queue(grace="10ms")

    @queue.callback
    def work(message):
        message.report("half")
        gate.wait(30)

    queue.send_delay_msg(1, id="m", retries=0)
    queue.start_consume()
    wait_until(lambda: queue.get("m").progress)
    queue.stop_consume()
    assert (queue.get("m").progress, queue.get("m").snoozes, queue.get("m").attempts) == ("half", 1, 0)


def test_a_process_that_does_not_know_the_name_keeps_it(open_queue):
    sender, other = open_queue(), open_queue(tick=0.05)
    sender.send_delay_msg(1, id="m", name="known", retries=3)
    with sender.lease(n=1) as (message,):
        message.report(7)
        message.release()
    other.task(name="another")(lambda: None)
    other.start_consume()
    wait_until(lambda: sender.get("m") and sender.get("m").unhandled)
    assert sender.get("m").progress == 7


def test_task_goes_on_where_it_was(redis_url):
    done = []
    with DelayQueue("reminders", url=redis_url, nack_delay=0, tick=0.05) as queue:

        @queue.task(retries=9)
        def count(to: int) -> None:
            message = current_message()
            for row in range(message.progress or 0, to):
                done.append(row)
                message.report(row + 1)
                if row % 4 == 3:
                    raise OSError("again")

        count.send(10)
        queue.start_consume()
        wait_until(lambda: queue.counts().living == 0)
    assert done == list(range(10))


def test_task_with_asyncio_goes_on_where_it_was(redis_url):
    done = []

    async def main():
        async with AsyncDelayQueue("reminders", url=redis_url, nack_delay=0, tick=0.05) as queue:

            @queue.task(retries=9, retention="1h")
            async def count(to: int) -> None:
                message = current_message()
                for row in range(message.progress or 0, to):
                    done.append(row)
                    await message.report(row + 1)
                    if row % 4 == 3:
                        raise OSError("again")

            sent = await count.send(10)
            await queue.start_consume()
            await queue.result(sent.id, timeout="20s")

    asyncio.run(main())
    assert done == list(range(10))


@everywhere
def test_death_shows_it_and_a_redrive_begins_anew(open_queue):
    queue, seen = open_queue(), []

    @queue.callback
    def work(message):
        seen.append(message.progress)
        message.report(len(seen))
        if len(seen) == 1:
            raise Reject("bad row")

    queue.send_delay_msg(1, id="m")
    queue.run(burst=True)
    assert queue.get("m").progress == 1
    queue.dead.redrive("m")
    queue.run(burst=True)
    assert seen == [None, None]


def test_replaced_message_begins_anew(open_queue):
    queue = open_queue()
    queue.send_delay_msg(1, id="m", name="n")
    with queue.lease(n=1) as (message,):
        message.report(1)
        message.release(delay="1h")
    assert queue.get("m").progress == 1
    queue.send_delay_msg(2, id="m", replace=True)
    assert (queue.get("m").payload, queue.get("m").name, queue.get("m").progress) == (2, "n", None)
    with queue.lease(n=1) as (message,):
        assert message.progress is None


def test_report_that_cannot_be_stored_changes_nothing(open_queue):
    queue = open_queue()
    queue.send_delay_msg(1, id="m")
    with queue.lease(n=1) as (message,):
        message.report(0)
        for bad in (object(), {1, 2}, "x" * 5000):
            with pytest.raises(PayloadError, match="progress"):
                message.report(bad)
        assert message.progress == queue.get("m").progress == 0


def test_what_cannot_be_read_is_no_beginning(open_queue):
    keys = {"old": b"k" * 32}, {"new": b"n" * 32}
    old, new = (open_queue(codec=Encrypted(one, allow_plain=True)) for one in keys)
    old.send_delay_msg(1, id="m")
    with old.lease(n=1) as (message,):
        message.report(1)
        message.release(delay="1h")
    new.send_delay_msg(1, id="n")
    with new.lease(n=1) as (other,):
        other.delivery.attributes = message.delivery.attributes
        with pytest.raises(UndecodableError, match="the progress cannot be decoded"):
            _ = other.progress


def test_reading_it_takes_no_command_and_stores_nothing(open_queue, redis_client):
    queue = open_queue()
    queue.send_delay_msg(1)
    with queue.lease(n=1) as (message,):
        before = redis_client.info("stats")["total_commands_processed"]
        assert message.progress is None
        assert redis_client.info("stats")["total_commands_processed"] == before + 1  # the one that asks
    assert redis_client.hget("delayq:{reminders}:meta", "schema") == b"3"


def test_streams_have_none():
    with StreamQueue("s", url="memory://") as queue:
        queue.send_many([1])
        with queue.lease(n=1) as (message,):
            assert message.progress is None


@pytest.mark.faults
def test_two_killed_workers_repeat_the_rows_since_their_last_report(redis_url, tmp_path):
    path = tmp_path / "rows"
    path.touch()
    command = [sys.executable, "-c", WORKER, redis_url, str(path)]

    def rows():
        return [tuple(map(int, line.split())) for line in path.read_text().splitlines()]

    with DelayQueue("imports", url=redis_url) as queue:
        queue.send_delay_msg(ROWS, id="m")
        for attempt, least in enumerate((ROWS // 5, ROWS // 2), 1):
            worker = Process(command)
            wait_until(lambda least=least: len(rows()) >= least, 30)
            worker.kill()
            worker.wait()
            assert (rows()[-1][0], queue.get("m").state) == (attempt, "active")
        worker = Process(command)
        wait_until(lambda: queue.get("m") is None, 30)
        worker.end()

    seen = rows()
    assert {row for _, row in seen} == set(range(ROWS))
    firsts = [next(row for attempt, row in seen if attempt == one) for one in (2, 3)]
    lasts = [max(row for attempt, row in seen if attempt == one) for one in (1, 2)]
    for first, last in zip(firsts, lasts, strict=True):
        assert last + 1 - EVERY <= first <= last + 1
    assert max(Counter(row for _, row in seen).values()) <= 3
    assert len(seen) <= ROWS + 2 * EVERY
