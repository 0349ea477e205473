"""Outcomes that charge nothing: snoozes, counted up to a limit, and exceptions that are no failures."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from delayq import NewMessage, Snooze, StopWorker
from delayq.errors import StoppedByCallbackError
from delayq.values.states import State
from tests.support.waiting import wait_until


@pytest.fixture
def seen():
    return Counter()


def test_snoozes_are_counted_and_take_no_attempt(open_queue, seen, redis_client):
    queue = open_queue(tick=0.05)

    @queue.callback
    def work(message):
        seen[message.attempt, message.snoozes, message.name] += 1
        if message.snoozes < 3:
            raise Snooze(0)

    queue.send_delay_msg(1, id="m", retries=0, name="invoice")
    queue.start_consume()
    wait_until(lambda: queue.counts().living == 0)

    assert seen == Counter({(1, number, "invoice"): 1 for number in range(4)})
    assert redis_client.hgetall("delayq:{reminders}:attributes") == {}
    assert queue.stats().totals["released"] == 3


def test_one_snooze_too_many_is_a_failure(open_queue, caplog):
    queue = open_queue(max_snoozes=2, tick=0.05, nack_delay="1d")
    queue.callback(lambda message: Snooze(0))
    queue.send_delay_msg(1, id="m", retries=1)
    queue.start_consume()
    wait_until(lambda: queue.get("m").error)

    found = queue.get("m")
    assert (found.snoozes, found.retries_left, found.state) == (2, 0, State.BACKOFF)
    assert found.error == "snoozed 2 times, as often as max_snoozes allows"
    assert (
        "message m failed at attempt 1 and is tried again in 1d: snoozed 2 times, as often as max_snoozes"
        in caplog.text
    )


def test_a_release_by_hand_counts_if_it_has_a_delay(open_queue):
    queue = open_queue(max_snoozes=1, tick=0.05, nack_delay="1d")
    queue.send_many([NewMessage(delay, id=delay) for delay in ("0.05s", "none")])
    released = []

    @queue.callback
    def work(message):
        if message.payload == "none":
            if "none" in released:
                return
            released.append("none")
            message.release()
        else:
            message.release(delay=message.payload)

    queue.start_consume()
    wait_until(lambda: queue.get("none") is None and queue.get("0.05s").error)

    found = queue.get("0.05s")
    assert (found.snoozes, found.error) == (1, "snoozed 1 times, as often as max_snoozes allows")


def test_what_is_no_failure_never_dies_of_its_retries(open_queue, seen, caplog):
    queue = open_queue(is_failure=lambda error: not isinstance(error, ConnectionError), nack_delay="1h")

    @queue.callback
    def work(message):
        seen[message.id] += 1
        raise ConnectionError("away") if message.id == "away" else ValueError("wrong")

    queue.send_many([NewMessage(1, id=id, retries=0) for id in ("away", "wrong")])
    queue.run(burst=True)

    found = queue.get("away")
    assert (found.state, found.attempts, found.retries_left, found.snoozes) == (State.BACKOFF, 0, 0, 1)
    assert timedelta(minutes=59) < found.deadline - datetime.now(UTC) <= timedelta(hours=1, seconds=1)
    assert queue.get("wrong").state is State.DEAD
    assert "message away met what is no failure at attempt 1, and is tried again in 1h" in caplog.text


def test_a_task_has_its_own_is_failure(open_queue):
    queue = open_queue(nack_delay="1h")

    @queue.task(is_failure=lambda error: isinstance(error, ValueError), retries=0)
    def work(what):
        raise {"wrong": ValueError, "away": ConnectionError}[what](what)

    for what in ("wrong", "away"):
        work.options(id=what).send(what)
    queue.callback(lambda message: 1 / 0)
    queue.send_delay_msg(1, id="plain", retries=0)
    queue.run(burst=True)

    assert {id: queue.get(id).state for id in ("wrong", "away", "plain")} == {
        "wrong": State.DEAD,
        "away": State.BACKOFF,
        "plain": State.DEAD,
    }


def test_what_is_returned_unstarted_or_left_to_others_is_not_counted(open_queue):
    queue = open_queue()
    queue.on("known")(lambda message: StopWorker("not today"))
    queue.send_many([NewMessage(1, id="left", name="unknown"), NewMessage(1, "0.2s", id="stopped", name="known")])

    with pytest.raises(StoppedByCallbackError):
        queue.run()

    assert [queue.get(id).snoozes for id in ("left", "stopped")] == [0, 0]
    assert queue.get("left").state is State.BACKOFF


def test_snoozes_of_a_batch_are_counted_one_by_one(open_queue):
    queue = open_queue(max_snoozes=1, tick=0.05, nack_delay="1d")
    queue.batch_callback(lambda messages: Snooze(0))
    queue.send_many([NewMessage(1, id=id) for id in ("a", "b")])
    queue.start_consume()
    wait_until(lambda: queue.get("a").error and queue.get("b").error)

    assert [queue.get(id).snoozes for id in ("a", "b")] == [1, 1]


def test_a_redrive_counts_from_the_start(open_queue):
    queue = open_queue(max_snoozes=1, tick=0.05)
    queue.callback(lambda message: Snooze(0))
    queue.send_delay_msg(1, id="m", retries=0, name="n")
    queue.start_consume()
    wait_until(lambda: queue.counts().dead == 1)
    queue.stop_consume()
    assert (queue.get("m").snoozes, queue.get("m").reason) == (1, "retries spent")

    queue.dead.redrive("m")

    assert (queue.get("m").snoozes, queue.get("m").name) == (0, "n")
