"""A drain delivers due messages, and moves the clock from one due time to the next."""

from __future__ import annotations

import asyncio
import threading
from contextlib import ExitStack
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta

import pytest
from freezegun import freeze_time

from delayq import (
    AsyncDelayQueue,
    ConfigurationError,
    DelayQueue,
    Discard,
    NoCallbackError,
    Reject,
    Retry,
    Snooze,
    StoppedByCallbackError,
    StopWorker,
    UnavailableError,
)
from delayq.testing import crash, drain, restart, unreachable
from delayq.values.times import monotonic

DAY = timedelta(days=1)
NEW_YEAR = datetime(2027, 1, 1, 9, tzinfo=UTC)


@pytest.fixture
def clock(delayq_clock):
    """The clock, at nine on New Year's day."""
    delayq_clock.move_to(NEW_YEAR)
    return delayq_clock


def outcomes(delivered):
    return [(one.payload, one.outcome, one.at - NEW_YEAR) for one in delivered]


def test_tasks_are_called_with_their_arguments(clock, delayq_queue):
    seen = []
    remind = delayq_queue.task(name="remind", delay="1d")(lambda user: seen.append(user))
    remind.send(5)

    (delivered,) = drain(delayq_queue)

    assert clock.now - NEW_YEAR == DAY
    assert (seen, delivered.name, delivered.payload, delivered.outcome) == ([5], "remind", {"user": 5}, "acked")


def test_groups_are_delivered_at_their_size_their_pause_and_their_age(clock, delayq_queue):
    task = delayq_queue.task(name="digest", debounce="1h", at_most="3h", collect=2)(lambda users: None)
    for user in range(3):
        task.options(id="digest").send(user)
    delayq_queue.callback(lambda message: None)
    for minutes in range(0, 240, 50):
        clock.move_to(NEW_YEAR + timedelta(minutes=minutes))
        delayq_queue.send_delay_msg(minutes, id="old", debounce="1h", at_most="3h", collect=9)

    delivered = drain(delayq_queue)

    digests = [(one.payload, one.at - NEW_YEAR) for one in delivered if one.name == "digest"]
    assert [[one["users"] for one in payload] for payload, _ in digests] == [[0, 1], [2]]
    assert [one.payload for one in delivered if one.id == "old"] == [[0, 50, 100, 150, 200]]
    assert delayq_queue.counts().living == 0


def test_messages_are_delivered_in_order_at_their_due_times(clock, delayq_queue):
    seen = []
    delayq_queue.callback(lambda message: seen.append((message.payload, clock.now - NEW_YEAR, message.lateness)))
    for days in (30, 0, 2, 1):
        delayq_queue.send_delay_msg(days, days * DAY)

    delivered = drain(delayq_queue)

    assert seen == [(days, days * DAY, 0.0) for days in (0, 1, 2, 30)]
    assert outcomes(delivered) == [(days, "acked", days * DAY) for days in (0, 1, 2, 30)]
    assert delayq_queue.counts().living == 0


def test_drain_until_a_time_leaves_the_clock_there(clock, delayq_queue):
    delayq_queue.callback(lambda message: None)
    for days in (1, 2, 3):
        delayq_queue.send_delay_msg(days, days * DAY)

    assert outcomes(drain(delayq_queue, until="1d")) == [(1, "acked", DAY)]  # includes messages due at the end
    assert outcomes(drain(delayq_queue, until=NEW_YEAR + 2.5 * DAY)) == [(2, "acked", 2 * DAY)]
    assert clock.now == NEW_YEAR + 2.5 * DAY
    assert drain(delayq_queue, until=0) == []
    assert delayq_queue.counts().pending == 1


def test_moved_clock_makes_messages_late(clock, delayq_queue, monkeypatch):
    monkeypatch.setattr("delayq.testing.drain_worker.monotonic", lambda: monotonic() + 1e9 / 3)  # after a long uptime
    delayq_queue.callback(lambda message: message.lateness == 3600 or pytest.fail("not an hour late"))
    delayq_queue.send_delay_msg("late", "1h")
    clock.advance("2h")
    assert outcomes(drain(delayq_queue)) == [("late", "acked", timedelta(hours=2))]


def test_messages_sent_by_a_callback_are_delivered_in_order(clock, delayq_queue):
    @delayq_queue.callback
    def count_down(message):
        if message.payload:
            delayq_queue.send_delay_msg(message.payload - 1, "1h")

    delayq_queue.send_delay_msg(3)
    assert [one.payload for one in drain(delayq_queue)] == [3, 2, 1, 0]
    assert clock.now == NEW_YEAR + timedelta(hours=3)


def test_failures_count_as_in_a_consumer(clock, delayq_queues):
    queue = delayq_queues(nack_delay="1m")

    @queue.callback
    def fail(message):
        if message.payload == "raise":
            raise OSError("no route")
        if message.payload == "retry":
            raise Retry("busy", delay="1h")
        if message.payload == "reject":
            raise Reject("no such user")
        if message.payload == "discard":
            raise Discard("too late")
        if message.payload == "by hand":
            message.ack()
        return message.payload != "false"

    for payload in ("false", "raise", "retry", "reject", "discard", "by hand"):
        queue.send_delay_msg(payload, retries=1, headers={"of": "a test"})
    delivered = drain(queue)

    first = [(one.payload, one.outcome, one.error) for one in delivered if one.attempt == 1]
    assert first == [
        ("false", "nacked", "the callback returned False"),
        ("raise", "nacked", "OSError: no route"),
        ("retry", "nacked", "busy"),
        ("reject", "rejected", "no such user"),
        ("discard", "discarded", "too late"),
        ("by hand", "settled", ""),
    ]
    assert [one for one in outcomes(delivered) if one[1] == "dead"] == [
        ("false", "dead", timedelta(minutes=1)),
        ("raise", "dead", timedelta(minutes=1)),
        ("retry", "dead", timedelta(hours=1)),
    ]
    assert {one.headers["of"] for one in delivered} == {"a test"}
    reasons = {message.payload: message.reason for message in queue.dead.list().messages}
    assert reasons == {"reject": "no such user", **dict.fromkeys(["false", "raise", "retry"], "retries spent")}


def test_message_settled_by_hand_has_outcome_settled(clock, delayq_queue):
    delayq_queue.callback(lambda message: message.reject("no") and None)
    delayq_queue.send_delay_msg("x")
    assert [one.outcome for one in drain(delayq_queue)] == ["settled"]


def test_retries_are_on_time_when_scripts_are_not_loaded(clock, delayq_queues):
    queue = delayq_queues("mails", nack_delay=0, callback=lambda message: False)
    queue.send_delay_msg("x", retries=2)
    restart(queue)
    milliseconds = [one.at - NEW_YEAR for one in drain(queue)]
    assert milliseconds == [timedelta(milliseconds=50 * n) for n in range(3)]


def test_first_error_is_raised_on_request(clock, delayq_queue):
    @delayq_queue.callback
    def fail(message):
        if message.payload == "bad":
            raise OSError("no route")

    for payload in ("good", "bad", "later"):
        delayq_queue.send_delay_msg(payload, retries=1)
    with pytest.raises(OSError, match="no route"):
        drain(delayq_queue, raising=True)
    counts = delayq_queue.counts()
    assert (counts.backoff, counts.ready, counts.active) == (1, 1, 0)  # the failure counts, and no message stays leased


def test_paused_queue_delivers_from_the_end_of_its_pause_on(clock, delayq_queue):
    delayq_queue.callback(lambda message: None)
    for days in (1, 9):
        delayq_queue.send_delay_msg(days, days * DAY)
    delayq_queue.pause("2d", reason="deploy")

    assert outcomes(drain(delayq_queue)) == [(1, "acked", 2 * DAY), (9, "acked", 9 * DAY)]


def test_limited_name_is_delivered_at_its_rate(clock, delayq_queue):
    delayq_queue.callback(lambda message: None)
    delayq_queue.limits.set("mail", rate_limit="1/m", burst=1)
    for n in range(3):
        delayq_queue.send_delay_msg(n, name="mail")

    assert outcomes(drain(delayq_queue)) == [(n, "acked", n * timedelta(minutes=1)) for n in range(3)]


def test_nothing_of_a_queue_paused_without_an_end_is_drained(clock, delayq_queue):
    delayq_queue.callback(lambda message: None)
    delayq_queue.send_delay_msg("a", "1h")
    delayq_queue.pause()
    assert drain(delayq_queue, until="2d") == []

    delayq_queue.resume()
    assert outcomes(drain(delayq_queue)) == [("a", "acked", 2 * DAY)]


@pytest.mark.long
def test_a_small_priority_starves_not_among_large_ones_without_end(clock, delayq_queue):
    seen = []

    @delayq_queue.callback
    def work(message):
        seen.append(message.priority)
        clock.move_to(clock.now + timedelta(minutes=1))
        if -100 in seen[:-1]:
            raise StopWorker
        delayq_queue.send_delay_msg("next", priority=100)

    delayq_queue.send_delay_msg("next", priority=100)
    delayq_queue.send_delay_msg("small", priority=-100)
    with pytest.raises(StoppedByCallbackError):
        drain(delayq_queue)

    # Two hundred steps lie between them, and each delivery takes one.
    assert 199 <= seen.index(-100) <= 201


def test_snoozed_message_comes_again_at_its_time(clock, delayq_queue):
    @delayq_queue.callback
    def later(message):
        if clock.now < NEW_YEAR + timedelta(minutes=10):
            raise Snooze("10m")

    delayq_queue.send_delay_msg("x")
    drained = drain(delayq_queue, until="1h")
    assert [(one.outcome, one.attempt) for one in drained] == [("snoozed", 1), ("acked", 1)]


def test_stop_by_a_callback_returns_the_message_and_ends_the_drain(clock, delayq_queue):
    @delayq_queue.callback
    def stop(message):
        raise StopWorker("no password")

    delayq_queue.send_delay_msg("x", id="m")
    with pytest.raises(StoppedByCallbackError, match=r"^no password$"):
        drain(delayq_queue)
    assert (delayq_queue.get("m").state, delayq_queue.get("m").attempts) == ("ready", 0)


def test_outcomes_are_not_raised(clock, delayq_queue):
    @delayq_queue.callback
    def reject(message):
        raise Reject("no")

    delayq_queue.send_delay_msg("x")
    assert [one.outcome for one in drain(delayq_queue, raising=True)] == ["rejected"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, lambda: pytest.fail.Exception("as a test fails")])
def test_pytest_outcomes_are_raised(clock, delayq_queue, error):
    @delayq_queue.callback
    def give_up(message):
        raise error()

    delayq_queue.send_delay_msg("x")
    with pytest.raises((KeyboardInterrupt, pytest.fail.Exception)):
        drain(delayq_queue)


def test_crash_leaves_the_message_leased_until_the_lease_expires(clock, delayq_queues):
    queue = delayq_queues(lease="10m")

    @queue.callback
    def work(message):
        if message.payload == "bomb" and message.attempt == 1:
            crash()

    queue.send_delay_msg("bomb", retries=1)
    queue.send_delay_msg("next")
    assert outcomes(drain(queue)) == [
        ("bomb", "crashed", timedelta()),
        ("next", "acked", timedelta()),
        ("bomb", "acked", timedelta(minutes=10)),
    ]


def test_each_crash_costs_a_retry_until_the_message_is_dead(clock, delayq_queue):
    @delayq_queue.callback
    def work(message):
        try:
            crash()
        except Exception:  # noqa: BLE001 - as in many callbacks
            pytest.fail("a crash cannot be caught")

    delayq_queue.send_delay_msg("bomb", retries=2)
    assert [(one.attempt, one.outcome) for one in drain(delayq_queue)] == [(n, "crashed") for n in (1, 2, 3)]
    assert [message.payload for message in delayq_queue.dead.list().messages] == ["bomb"]


def test_callback_longer_than_its_lease_loses_it(clock, delayq_queues):
    queue = delayq_queues(lease="30s")
    lost = []

    @queue.callback
    def work(message):
        lost.append(message.lease_lost)
        clock.advance("20s")
        lost.append(message.lease_lost)
        message.extend()
        clock.advance("20s")
        lost.append(message.lease_lost)
        clock.advance("11s")
        lost.append(message.lease_lost)

    queue.send_delay_msg("slow")
    assert [one.outcome for one in drain(queue)] == ["acked"]
    assert lost == [False, False, False, True]


def test_batches_are_drained_as_batches(clock, delayq_queue):
    sizes = []

    @delayq_queue.batch_callback(most=3)
    def work(messages):
        sizes.append(len(messages))
        return [message.payload != 4 for message in messages]

    delayq_queue.send_many(range(5), retries=0)
    delivered = drain(delayq_queue)
    assert sizes == [3, 2]
    assert [(one.payload, one.outcome) for one in delivered] == [(n, "dead" if n == 4 else "acked") for n in range(5)]


def test_undecodable_payload_is_shown_as_bytes(clock, delayq_queues):
    delayq_queues(codec="bytes").send_delay_msg(b"\xff", retries=0)
    queue = delayq_queues()
    queue.callback(lambda message: pytest.fail("not to be called"))
    assert [(one.payload, one.outcome) for one in drain(queue)] == [(b"\xff", "rejected")]


def test_endless_drain_fails(clock, delayq_queue):
    delayq_queue.callback(lambda message: delayq_queue.send_delay_msg("again", "1h") and None)
    delayq_queue.send_delay_msg("first")
    with pytest.raises(AssertionError, match="20 messages were delivered and more are due"):
        drain(delayq_queue, most=20)


def test_drain_needs_a_callback(clock, delayq_queue):
    with pytest.raises(NoCallbackError):
        drain(delayq_queue)


def test_drain_needs_a_clock(delayq_queue):
    delayq_queue.callback(lambda message: None)
    with pytest.raises(ConfigurationError, match="use the fixture delayq_clock"):
        drain(delayq_queue)


def test_drain_needs_a_queue(clock):
    with pytest.raises(ConfigurationError, match="queue must be a DelayQueue or an AsyncDelayQueue, not 5"):
        drain(5)
    with pytest.raises(ConfigurationError, match="drain needs one or more queues"):
        drain()


def test_drain_takes_one_kind_of_queue(clock, delayq_queue, delayq_async_queue):
    with pytest.raises(ConfigurationError, match="all DelayQueue or all AsyncDelayQueue"):
        drain(delayq_queue, delayq_async_queue)


def test_unreachable_redis_during_a_drain_raises(clock, delayq_queue):
    with ExitStack() as outage:
        delayq_queue.callback(
            lambda message: outage.enter_context(unreachable(delayq_queue)) and None if message.attempt == 1 else None
        )
        delayq_queue.send_delay_msg("x")
        with pytest.raises(UnavailableError):
            drain(delayq_queue)
    assert [(one.payload, one.attempt) for one in drain(delayq_queue)] == [("x", 2)]  # the ack failed


def test_two_queues_follow_one_clock(clock, delayq_queues):
    mails, bills = delayq_queues("mails"), delayq_queues("bills")
    bills.callback(lambda message: mails.send_delay_msg(f"mail of {message.payload}", "1d") and None)
    mails.callback(lambda message: None)
    bills.send_delay_msg("a bill", "1d")
    drain(bills)
    assert outcomes(drain(mails)) == [("mail of a bill", "acked", 2 * DAY)]


def test_queues_that_feed_each_other_are_drained_together(clock, delayq_queues):
    first, second = delayq_queues("first"), delayq_queues("second")
    first.callback(lambda message: second.send_delay_msg(message.payload + 1, "1h") and None)
    second.callback(lambda message: first.send_delay_msg(message.payload + 1) and None if message.payload < 4 else None)
    first.send_delay_msg(0)
    first.send_delay_msg(10, "90m")

    delivered = drain(first, second, until="1d")

    assert [(one.queue, one.payload, (one.at - NEW_YEAR) / timedelta(hours=1)) for one in delivered] == [
        ("first", 0, 0),
        ("second", 1, 1),
        ("first", 2, 1),
        ("first", 10, 1.5),
        ("second", 3, 2),
        ("first", 4, 2),
        ("second", 11, 2.5),
        ("second", 5, 3),
    ]
    assert clock.now == NEW_YEAR + DAY


def test_crash_in_one_queue_does_not_stop_another(clock, delayq_queues):
    first, second = delayq_queues("first"), delayq_queues("second")
    first.callback(lambda message: crash() if message.attempt == 1 else None)
    second.callback(lambda message: None)
    first.send_delay_msg("x")
    second.send_delay_msg("y")
    assert [(one.queue, one.outcome) for one in drain(second, first)] == [
        ("second", "acked"),
        ("first", "crashed"),
        ("first", "acked"),
    ]


def test_queues_of_the_application_follow_the_clock(clock, delayq_queues):
    with DelayQueue("other", url=delayq_queues.url, prefix=delayq_queues.prefix) as queue:
        queue.send_schedule_msg("x", NEW_YEAR + DAY)
        assert queue.stats().at == NEW_YEAR
        clock.advance("1d")
        with queue.lease() as message:
            assert message.payload == "x"


def test_burst_follows_the_clock(clock, delayq_queue):
    seen = []
    delayq_queue.callback(lambda message: seen.append(message.attempt) or False)
    delayq_queue.send_delay_msg("x", "1d", retries=1)
    delayq_queue.run(burst=True)
    assert seen == []
    clock.advance("1d")
    delayq_queue.run(burst=True)
    assert seen == [1]
    clock.advance("5s")
    delayq_queue.run(burst=True)
    assert seen == [1, 2]


def test_drain_moves_freezegun(delayq_clock, delayq_queue):
    with freeze_time(NEW_YEAR, ignore=["_pytest.timing"]) as frozen:
        assert delayq_clock.now == NEW_YEAR
        seen = []
        delayq_queue.callback(lambda message: seen.append(datetime.now(UTC) - NEW_YEAR))
        delayq_queue.send_delay_msg("x", "1d")
        delayq_queue.send_delay_msg("y", "3d")
        drain(delayq_queue, until="2d")
        assert seen == [DAY]
        assert datetime.now(UTC) == delayq_clock.now == NEW_YEAR + 2 * DAY
        frozen.tick(DAY)
        drain(delayq_queue)
        assert seen == [DAY, 3 * DAY]


def test_freezegun_alone_works_with_the_embedded_redis(delayq_queue, delayq_url):
    with freeze_time(NEW_YEAR, ignore=["_pytest.timing"]):
        delayq_queue.callback(lambda message: None)
        delayq_queue.send_delay_msg("x", "1d")
        if delayq_url == "memory://":
            assert outcomes(drain(delayq_queue)) == [("x", "acked", DAY)]
        else:
            with pytest.raises(ConfigurationError, match="does not move the clock of a real Redis"):
                drain(delayq_queue)


def test_ticking_freezegun_clock_works(delayq_clock, delayq_queue):
    with freeze_time(NEW_YEAR, auto_tick_seconds=1, ignore=["_pytest.timing"]):  # on every look at the clock
        delayq_queue.callback(lambda message: None)
        delayq_queue.send_delay_msg("x", "1d")
        (delivered,) = drain(delayq_queue, until="2d")
        assert DAY <= delivered.at - NEW_YEAR < DAY + timedelta(minutes=1)


def test_asyncio_queue_is_drained_with_await(clock, delayq_async_queues):
    async def scenario():
        async with delayq_async_queues(nack_delay="1m") as queue:

            @queue.callback
            async def work(message):
                await asyncio.sleep(0)
                if message.payload == "crash" and message.attempt == 1:
                    crash()
                return message.attempt > 1 or message.payload != "fail"

            await queue.send_many(["good", "fail", "crash"])
            await queue.send_delay_msg("later", "1d")
            return await drain(queue)

    assert outcomes(asyncio.run(scenario())) == [
        ("good", "acked", timedelta()),
        ("fail", "nacked", timedelta()),
        ("crash", "crashed", timedelta()),
        ("crash", "acked", timedelta(seconds=30)),
        ("fail", "acked", timedelta(minutes=1)),
        ("later", "acked", DAY),
    ]


def test_blocking_callback_of_an_asyncio_queue_runs_in_a_thread(clock, delayq_async_queues):
    threads, results = set(), []

    async def scenario():
        loop = asyncio.get_running_loop()
        async with delayq_async_queues(nack_delay="1m") as queue:

            @queue.callback
            def work(message):  # it needs the event loop to go on, and one of its own
                threads.add(threading.current_thread())
                asyncio.run_coroutine_threadsafe(asyncio.sleep(0), loop).result(60)
                results.append(asyncio.run(asyncio.sleep(0, message.payload)))
                if message.payload == "crash" and message.attempt == 1:
                    crash()
                if message.payload == "fail" and message.attempt == 1:
                    raise StopIteration

            await queue.send_many(["fail", "crash"])
            await queue.send_delay_msg("later", "1d")
            return await drain(queue)

    assert outcomes(asyncio.run(scenario())) == [
        ("fail", "nacked", timedelta()),
        ("crash", "crashed", timedelta()),
        ("crash", "acked", timedelta(seconds=30)),
        ("fail", "acked", timedelta(minutes=1)),
        ("later", "acked", DAY),
    ]
    assert results == ["fail", "crash", "crash", "fail", "later"]
    (thread,) = threads
    thread.join(60)
    assert not thread.is_alive()  # it ends with the drain
    assert thread is not threading.main_thread()


def test_callback_that_raises_cancelled_error_has_failed(clock, delayq_async_queues):
    async def scenario():
        async with delayq_async_queues() as queue:

            @queue.callback
            async def give_up(message):
                raise asyncio.CancelledError

            await queue.send_delay_msg("x", retries=1)
            return await drain(queue)

    assert [one.outcome for one in asyncio.run(scenario())] == ["nacked", "dead"]


def test_drain_can_be_cancelled(clock, delayq_async_queues):
    async def scenario():
        async with delayq_async_queues() as queue:
            started = asyncio.Event()

            @queue.callback
            async def wait(message):
                started.set()
                await asyncio.Event().wait()

            await queue.send_delay_msg("x")
            draining = asyncio.create_task(drain(queue))
            await started.wait()
            draining.cancel()
            await asyncio.wait([draining])
            return draining.cancelled(), isinstance(queue, AsyncDelayQueue)

    assert asyncio.run(scenario()) == (True, True)


def test_each_message_starts_from_the_context_variables_of_the_drain(delayq_queue, delayq_clock):
    tenant, seen = ContextVar("tenant", default="none"), []

    @delayq_queue.callback
    def work(message):
        seen.append(tenant.get())
        tenant.set("of another message")

    delayq_queue.send_many(range(2))
    drain(delayq_queue)
    assert [*seen, tenant.get()] == ["none"] * 3
