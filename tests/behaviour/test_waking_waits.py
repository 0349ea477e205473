"""A program that waits for a result is woken by every end of the message, without looking from time to time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest

from delayq import Discard, MessageFailedError, NoResultError, Reject, Retry, Snooze
from delayq.queue.results import result_waits
from tests.behaviour.places import everywhere
from tests.support.waiting import wait_until

ID = "p:a"
KEPT = {"id": ID, "retention": "1h", "retries": 0}
GONE = "cancelled or purged"


@pytest.fixture(autouse=True)
def never_renews(monkeypatch):
    """Those who wait look again after an hour, so that only an end that is announced wakes them."""
    monkeypatch.setattr("delayq.queue.results.result_waits.RENEW_EVERY", 3600.0)


@pytest.fixture
def wait_for(monkeypatch):
    """`wait_for(queue)` waits for the result in a thread, and returns once ends are read."""
    reads, read = threading.Event(), result_waits.next_ends

    def next_ends(*args: Any, **options: Any) -> Any:
        reads.set()
        return read(*args, **options)

    monkeypatch.setattr("delayq.queue.results.result_waits.next_ends", next_ends)
    with ThreadPoolExecutor(4) as pool:

        def wait_for(queue: Any, timeout: Any = "1m") -> Future[Any]:
            result = pool.submit(queue.result, ID, timeout=timeout)
            wait_until(lambda: reads.is_set() or result.done())
            assert not result.done()
            return result

        yield wait_for


def outcome(result: Future[Any]) -> Any:
    """Return what a wait has returned, or why it failed."""
    try:
        return result.result(30)
    except MessageFailedError as error:
        return error.reason
    except NoResultError as error:
        return str(error)


def raises(error: Exception) -> Callable[[Any], None]:
    def end(_: Any) -> None:
        raise error

    return end


class Way(NamedTuple):
    """How a callback ends, and what becomes of its message."""

    end: Callable[[Any], Any]
    outcome: Any
    options: Mapping[str, Any] = MappingProxyType({})
    """Of the queue."""


BY_CALLBACK = {
    "returns": Way(lambda _: 7, 7),
    "returns False": Way(lambda _: False, "retries spent"),
    "raises": Way(raises(ValueError("boom")), "retries spent"),
    "Retry": Way(raises(Retry("later")), "retries spent"),
    "Reject": Way(raises(Reject("no such user")), "no such user"),
    "Discard": Way(raises(Discard("sent already")), "sent already"),
    "one snooze too many": Way(raises(Snooze(0)), "retries spent", {"max_snoozes": 1}),
    "acks by hand": Way(lambda message: message.ack(result=8), 8),
    "nacks by hand": Way(lambda message: message.nack(), "retries spent"),
    "rejects by hand": Way(lambda message: message.reject("by hand"), "by hand"),
}


@everywhere
@pytest.mark.parametrize("way", BY_CALLBACK)
def test_however_its_callback_ends(open_queue, wait_for, busy, gate, way):
    end, expected, options = BY_CALLBACK[way]
    queue = open_queue(**options)

    @queue.callback
    def work(message):
        busy(message)
        return end(message)

    queue.send_delay_msg(1, **KEPT)
    queue.start_consume()
    wait_until(lambda: busy.seen)
    result = wait_for(queue)
    gate.set()
    assert outcome(result) == expected


@everywhere
@pytest.mark.parametrize("end", [ValueError("cut short"), Retry("later"), Snooze("1h"), Reject("no")], ids=repr)
def test_however_it_ends_after_it_was_asked_to_stop(open_queue, wait_for, busy, gate, end):
    queue = open_queue()

    @queue.callback
    def work(message):
        busy(message)
        raise end

    queue.send_delay_msg(1, **KEPT)
    queue.start_consume()
    wait_until(lambda: busy.seen)
    result = wait_for(queue)
    assert queue.cancel(ID, running=True) == "stopping"
    gate.set()
    assert outcome(result) == GONE


@everywhere
def test_timeout_of_the_callback(open_queue, wait_for, busy):
    queue = open_queue(callback=busy)
    queue.send_delay_msg(1, timeout="3s", **KEPT)
    queue.start_consume()
    assert outcome(wait_for(queue)) == "retries spent"


def consume(queue: Any) -> None:
    queue.callback(lambda message: message.payload)
    queue.start_consume()


def cancel(queue: Any) -> None:
    assert queue.cancel(ID) == "cancelled"


def stop_and_consume(queue: Any) -> None:
    assert queue.cancel(ID, running=True) == "stopping"
    consume(queue)


class Case(NamedTuple):
    """What ends a message that no callback has."""

    act: Callable[[Any], Any]
    outcome: Any
    send: Mapping[str, Any] = MappingProxyType({})
    lease: str = ""


FROM_OUTSIDE = {
    "cancelled": Case(cancel, GONE, {"delay": "1h"}),
    "purged": Case(lambda queue: queue.purge(), GONE, {"delay": "1h"}),
    "expired": Case(consume, "missed", {"expires": "1ms"}),
    "expired and dropped": Case(consume, "missed", {"expires": "1ms", "missed": "drop"}),
    "lease ran out": Case(consume, "retries spent", lease="100ms"),
    "lease ran out after it was asked to stop": Case(stop_and_consume, GONE, lease="100ms"),
}


@everywhere
@pytest.mark.parametrize("case", FROM_OUTSIDE)
def test_whatever_else_ends_it(open_queue, wait_for, case):
    act, expected, send, lease = FROM_OUTSIDE[case]
    queue = open_queue()
    queue.send_delay_msg(1, **KEPT | send)
    if lease:
        queue.lease(lease, n=1)
    result = wait_for(queue)
    act(queue)
    assert outcome(result) == expected


# Another message with the same id


def running(queue: Any, **options: Any) -> Any:
    """Send a message, and return it under a lease."""
    queue.send_delay_msg("first", **KEPT | options)
    return queue.lease("1m", n=1).messages[0]


ENDS = {"ack": lambda message: message.ack(result="done"), "reject": lambda message: message.reject("refused")}


@everywhere
def test_the_follower_of_one_without_retention_is_waited_for(queue, wait_for):
    first = running(queue, retention=0)
    queue.send_delay_msg("second", replace="after", **KEPT)
    result = wait_for(queue)
    assert first.ack()
    consume(queue)
    assert outcome(result) == "second"


@pytest.mark.parametrize("way", ENDS)
@everywhere
def test_who_was_woken_by_the_end_of_one_is_woken_by_that_of_its_follower(queue, wait_for, way):
    first = running(queue)
    queue.send_delay_msg("second", replace="after", **KEPT)
    result = wait_for(queue)
    assert ENDS[way](first)
    consume(queue)
    assert outcome(result) == "second"


@pytest.mark.parametrize(("way", "expected"), [("ack", "done"), ("reject", "refused")])
def test_the_one_that_was_waited_for_counts_if_its_follower_has_no_retention(queue, wait_for, way, expected):
    first = running(queue)
    queue.send_delay_msg("second", "1h", replace="after", **KEPT | {"retention": 0})
    result = wait_for(queue)
    assert ENDS[way](first)
    assert outcome(result) == expected
    with pytest.raises(NoResultError, match="it was sent without retention"):
        queue.result(ID)


def test_cancel_of_the_follower_wakes_who_waits_for_it(queue, wait_for):
    running(queue, retention=0)
    queue.send_delay_msg("second", replace="after", **KEPT)
    result = wait_for(queue)
    assert queue.cancel(ID) == "successor"
    assert outcome(result) == f"no result of message {ID}: one without retention has taken its place"


def test_result_of_an_earlier_message_is_not_that_of_a_cancelled_one(queue, wait_for):
    assert running(queue).ack(result="old")
    queue.send_delay_msg("second", "1h", **KEPT)
    result = wait_for(queue)
    cancel(queue)
    assert outcome(result) == GONE
    assert queue.result(ID, timeout=0) == "old"


def test_death_of_an_earlier_message_is_not_that_of_a_later_one(queue, wait_for):
    assert running(queue).reject("old")
    queue.send_delay_msg("second", "1h", **KEPT)
    result = wait_for(queue)
    cancel(queue)
    assert outcome(result) == GONE


# Without an announcement


def test_replaced_by_one_without_retention_is_noticed_at_the_latest_in_the_end(queue, wait_for, redis_client):
    queue.send_delay_msg("first", "1h", **KEPT)
    result = wait_for(queue, "2s")
    redis_client.hdel("delayq:{reminders}:attributes", ID)  # as by a version that does not keep what is not given
    assert outcome(result) == f"no result of message {ID}: one without retention has taken its place"


def test_end_that_redis_has_lost_is_noticed_at_the_latest_in_the_end(queue, wait_for, redis_client):
    queue.send_delay_msg("first", "1h", **KEPT)
    result = wait_for(queue, "2s")
    redis_client.delete("delayq:{reminders}:waited")
    queue.reschedule(ID, 0)
    consume(queue)
    assert outcome(result) == "first"
