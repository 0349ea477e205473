"""A message as its callback sees it, and what a callback can do with it by hand."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime, timedelta

import pytest

from delayq import NewMessage
from tests.behaviour.places import everywhere
from tests.support.faces import Blocking
from tests.support.waiting import wait_until

pytestmark = everywhere


def test_message_has_its_attributes(open_queue):
    seen = []
    queue = open_queue()

    @queue.callback
    def look(message):
        seen.append(
            {
                "queue": message.queue,
                "id": message.id,
                "payload": message.payload,
                "attempt": message.attempt,
                "retries_left": message.retries_left,
                "due": message.due,
                "headers": message.headers,
                "lease_lost": message.lease_lost,
            }
        )

    due = datetime(2001, 9, 9, 1, 46, 40, tzinfo=UTC)
    queue.send_schedule_msg({"user": 42}, due, 5, id="m", headers={"trace": "1"})
    queue.run(burst=True)

    assert seen == [
        {
            "queue": queue.name,
            "id": "m",
            "payload": {"user": 42},
            "attempt": 1,
            "retries_left": 5,
            "due": due,
            "headers": {"trace": "1"},
            "lease_lost": False,
        }
    ]


def test_message_says_when_it_was_sent(open_queue):
    seen = {}
    queue = open_queue(callback=lambda message: seen.update({message.payload: message.sent}))
    before = datetime.now(UTC) - timedelta(milliseconds=1)  # ids count whole milliseconds
    queue.send_schedule_msg("one", at=datetime(2001, 9, 9, tzinfo=UTC))
    queue.send_many(["many", NewMessage("own id", id="m")])
    after = datetime.now(UTC)

    queue.run(burst=True)

    assert before <= seen["one"] <= seen["many"] <= after
    assert seen["own id"] is None


def test_inspection_says_when_a_message_was_sent(open_queue):
    queue = open_queue(callback=lambda message: None)
    before = datetime.now(UTC) - timedelta(milliseconds=1)  # ids count whole milliseconds
    made = queue.send_delay_msg("made", delay="1h").id
    queue.send_delay_msg("own id", delay="1h", id="m")
    after = datetime.now(UTC)

    found = {message.id: message.sent for message in queue.list("pending").messages}
    assert before <= found[made] <= after
    assert found == {made: queue.get(made).sent, "m": None}
    assert queue.get("m").sent is None

    queue.reschedule(made, delay=0)
    with queue.lease(block="30s") as message:
        assert (queue.get(made).sent, queue.list("active").messages[0].sent) == (message.sent, message.sent)
        message.reject("no such user")
    (dead,) = queue.dead.list().messages
    assert (dead.sent, queue.get(made).sent) == (found[made], found[made])


def test_lateness_is_the_time_since_the_message_was_due(open_queue):
    seen = []
    queue = open_queue(callback=lambda message: seen.append((message.lateness, time.time() - message.due.timestamp())))
    queue.send_schedule_msg("late", at=datetime.fromtimestamp(time.time() - 50, UTC))

    queue.run(burst=True)

    ((lateness, measured),) = seen
    assert 50 <= lateness <= measured


def test_each_delivery_has_a_higher_token_than_all_before(open_queue):
    tokens = []
    queue = open_queue(callback=lambda message: tokens.append(message.token) or message.attempt > 2, nack_delay=0)
    queue.send_many([*"abc"])

    queue.run(burst=True)

    assert len(tokens) == 9
    assert tokens == sorted(set(tokens))


def test_repr_of_a_message_hides_its_payload(open_queue):
    shown = []
    queue = open_queue(callback=lambda message: shown.append(repr(message)))
    queue.send_delay_msg("secret", id="m")

    queue.run(burst=True)

    assert "id=m" in shown[0].replace(" m ", " id=m ")
    assert "secret" not in shown[0]


def test_a_callback_can_settle_before_it_returns(open_queue):
    found = []
    queue = open_queue()

    @queue.callback
    def settle(message):
        found.append((message.ack(), queue.get(message.id)))
        return False  # settling by hand takes precedence

    queue.send_delay_msg("hello")
    queue.run(burst=True)

    assert found == [(True, None)]
    assert queue.counts().living == queue.counts().dead == 0


def test_a_callback_that_fails_after_it_has_settled_is_not_called_again(open_queue):
    calls = []
    queue = open_queue()

    @queue.callback
    def settle(message):
        calls.append(message.ack())
        raise ValueError("too late")

    queue.send_delay_msg("hello")
    queue.run(burst=True)

    assert calls == [True]
    assert queue.counts().living == queue.counts().dead == 0


def test_a_callback_can_nack_with_a_delay_and_an_error(open_queue):
    queue = open_queue()
    queue.callback(lambda message: message.nack(delay="1h", error="busy"))
    queue.send_delay_msg("hello", retries=3, id="m")

    queue.run(burst=True)

    message = queue.get("m")
    assert (message.state, message.error, message.retries_left) == ("backoff", "busy", 2)


def test_a_callback_can_reject(open_queue):
    queue = open_queue()
    queue.callback(lambda message: message.reject("no such user"))
    queue.send_delay_msg("hello", id="m")

    queue.run(burst=True)

    assert queue.get("m").reason == "no such user"


def test_a_callback_can_release(open_queue):
    attempts = []
    queue = open_queue()

    @queue.callback
    def give_back(message):
        attempts.append((message.attempt, message.retries_left))
        if len(attempts) < 3:
            message.release()

    queue.send_delay_msg("hello", retries=1)
    queue.run(burst=True)

    assert attempts == [(1, 1), (1, 1), (1, 1)]


def test_only_the_first_settlement_by_hand_counts(open_queue):
    replies = []
    queue = open_queue()

    @queue.callback
    def insist(message):
        replies.extend([message.nack(delay=60), message.reject("no"), message.release(), message.extend()])

    queue.send_delay_msg("hello", id="m")
    queue.run(burst=True)

    assert replies == [True, False, False, False]
    assert queue.get("m").state == "backoff"


def test_a_callback_can_extend_its_lease(open_queue):
    leases = []
    queue = open_queue(lease="30s")

    @queue.callback
    def extend(message):
        before = queue.get(message.id).deadline
        leases.append((message.extend("10m"), (queue.get(message.id).deadline - before).total_seconds()))

    queue.send_delay_msg("hello")
    queue.run(burst=True)

    ((extended, by),) = leases
    assert extended
    assert 500 < by < 600


@pytest.mark.parametrize("face", [Blocking], ids=["blocking"], indirect=True)
def test_callback_sees_that_its_lease_is_lost(open_queue):
    results, redelivered = [], threading.Event()
    queue = open_queue(max_consume_duration="300ms", concurrency=2, nack_delay=0.1)

    @queue.callback
    def overrun(message):
        if message.attempt == 1:
            before = message.lease_lost
            wait_until(lambda: message.lease_lost)
            results.append((before, redelivered.wait(30), message.extend()))
        redelivered.set()

    queue.send_delay_msg("hello")
    queue.run(burst=True)

    assert results == [(False, True, False)]


def test_callback_that_a_stop_cuts_off_sees_at_once_that_its_lease_is_lost(open_queue):
    started, lost = threading.Event(), threading.Event()
    queue = open_queue(lease="1h")

    @queue.callback
    def overrun(message):
        assert not message.lease_lost
        started.set()
        wait_until(lambda: message.lease_lost)
        lost.set()

    queue.send_delay_msg("hello")
    queue.start_consume()
    assert started.wait(30)

    assert queue.stop_consume(grace=0)
    assert lost.wait(30)


@pytest.mark.long
def test_lease_extended_by_hand_is_not_shortened_by_a_heartbeat(open_queue, gate):
    leases = []
    queue = open_queue(lease="2s", concurrency=2)

    @queue.callback
    def work(message):
        if message.payload == "long":
            assert message.extend(600)
        leases.append((message.payload, queue.get(message.id).deadline))
        gate.wait(30)

    long, other = queue.send_many(["long", "other"]).ids
    queue.start_consume()
    wait_until(lambda: len(leases) == 2)
    before = dict(leases)

    wait_until(lambda: queue.get(other).deadline > before["other"] + timedelta(seconds=1))  # several heartbeats later
    assert queue.get(long).deadline == before["long"]


def test_callback_of_a_purged_message_loses_its_lease(open_queue):
    results = []
    queue = open_queue(lease="300ms")

    @queue.callback
    def purge(message):
        queue.purge()
        wait_until(lambda: message.lease_lost)
        results.append(message.ack())

    queue.send_delay_msg("hello")
    queue.run(burst=True)

    assert results == [False]


@pytest.mark.parametrize("headers", [{}, {"trace": "00-4bf9"}, {"": "empty name", "ключ": "значение", "nul": "\0"}])
def test_headers_are_delivered_with_the_message(open_queue, headers):
    seen = []
    queue = open_queue(callback=lambda message: seen.append(message.headers))
    queue.send_delay_msg("hello", headers=headers)
    queue.send_delay_msg("none")

    queue.run(burst=True)

    assert seen == [headers, {}]
