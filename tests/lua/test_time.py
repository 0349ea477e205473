"""By the server's own clock nothing is early, not even by a fraction of a millisecond."""

from __future__ import annotations

import pytest

from delayq.broker.calls import Calls
from delayq.broker.requests import Failure, Outgoing, Rejection, Release
from delayq.queue.sweeps.stored_messages import snapshot_call
from delayq.schedules.calls import schedules_due_call, schedules_page_call
from tests.lua.tables import TABLES
from tests.support.scripts import KEYS, LOG, World, plant
from tests.support.waiting import wait_until

clocked = Calls(KEYS)
ROUNDED_UP = {"send", "send_one", "debounce", "collect", "nack", "reschedule"}
"""Their times are in the future and must never be early."""
ROUNDS = 30


def microseconds(client) -> int:
    seconds, rest = client.time()
    return int(seconds) * 1_000_000 + int(rest)


def due(client, key: str) -> int:
    return int(client.zscore(key, "a")) * 1000


def hold(executor) -> int:
    """Lease `a` to us; returns the token."""
    executor.client.delete(KEYS.pending, KEYS.ready)
    executor.client.rpush(KEYS.ready, "a")
    executor.client.hset(KEYS.deliveries, "a", "ready 0 0 0 0 -")
    executor.client.hset(KEYS.messages, "a", "A")
    executor.client.hset(KEYS.retries, "a", 5)
    claimed = executor.call(clocked.ready_to_unack(1, lease=60_000, consumer_id="w"))
    return int(claimed.messages[0].token)


def test_a_send_replies_the_clock_from_which_its_delay_counts(real_executor):
    client = real_executor.client
    for delay in (0, 5) * ROUNDS:
        before = microseconds(client)
        reply = real_executor.call(clocked.send([Outgoing("a", delay, 3, b"A", b"")], max_length=None, replace=True))
        assert before <= reply.at <= microseconds(client)
        now = -(-reply.at // 1000) if delay else reply.at // 1000
        assert due(client, KEYS.pending) == (now + delay) * 1000


def test_a_delay_is_rounded_up(real_executor):
    client = real_executor.client
    for _ in range(ROUNDS):
        before = microseconds(client)
        real_executor.call(clocked.send([Outgoing("a", 7, 3, b"A", b"")], replace=True, max_length=None))
        assert before + 7000 <= due(client, KEYS.pending) < microseconds(client) + 8000

        before = microseconds(client)
        real_executor.call(clocked.reschedule([("a", 9)]))
        assert before + 9000 <= due(client, KEYS.pending) < microseconds(client) + 10_000

        token = hold(real_executor)
        before = microseconds(client)
        real_executor.call(clocked.nack([Failure("a", token, 5, "")]))
        assert before + 5000 <= due(client, KEYS.unack) < microseconds(client) + 6000

        token = hold(real_executor)
        before = microseconds(client)
        real_executor.call(clocked.release([Release("a", token, 5)]))
        assert before + 5000 <= due(client, KEYS.unack) < microseconds(client) + 6000


def test_message_without_a_delay_is_due_at_once(real_executor):
    client = real_executor.client

    def promote(since: int) -> None:
        assert since // 1000 * 1000 <= due(client, KEYS.pending) <= microseconds(client)
        assert real_executor.call(clocked.pending_to_ready()).moved == 1

    for _ in range(ROUNDS):
        client.flushdb()
        before = microseconds(client)
        real_executor.call(clocked.send([Outgoing("a", 0, 3, b"A", b"")], replace=False, max_length=None))
        promote(before)

        before = microseconds(client)
        real_executor.call(clocked.reschedule([("a", 0)]))
        promote(before)

        token = hold(real_executor)
        assert real_executor.call(clocked.reject([Rejection("a", token, "r", "")])) == "1"
        before = microseconds(client)
        assert real_executor.call(clocked.redrive([f"a:{token}"], retries=None)) == "1"
        promote(before)


def test_message_is_not_promoted_early(real_executor):
    client = real_executor.client
    for _ in range(ROUNDS):
        time = microseconds(client) // 1000 + 2
        client.zadd(KEYS.pending, {"a": time})
        wait_until(lambda: real_executor.call(clocked.pending_to_ready()).moved, timeout=5, every=0)
        assert microseconds(client) >= time * 1000


@pytest.mark.parametrize("ahead", [0, 3])
def test_turn_claims_nothing_before_its_time(real_executor, ahead):
    client, call = real_executor.client, clocked.turn(1, ahead=ahead, lease=60_000, consumer_id="w")
    for _ in range(ROUNDS):
        hold(real_executor)
        time = microseconds(client) // 1000 + ahead + 2
        client.zadd(KEYS.pending, {"a": time})
        wait_until(lambda: real_executor.call(call).claimed.messages, timeout=5, every=0)
        assert microseconds(client) >= (time - ahead) * 1000


def test_lease_does_not_expire_early(real_executor):
    client = real_executor.client
    for _ in range(ROUNDS):
        hold(real_executor)
        time = microseconds(client) // 1000 + 2
        client.zadd(KEYS.unack, {"a": time})
        wait_until(lambda: real_executor.call(clocked.unack_to_retry()).retried, timeout=5, every=0)
        assert microseconds(client) >= time * 1000


CHANGING = {
    name: next(case for case in cases if case.before != case.after and not isinstance(case.reply, type))
    for name, cases in TABLES.items()
}


def run_and_timed(client, call, *slot):
    """Run a call by the server's clock; return its reply and the time (µs) right after it."""
    client.script_load(call.script.text)
    with client.pipeline() as pipe:
        pipe.evalsha(call.script.sha, len(call.keys), *call.keys, *slot, "", *call.args[1:])
        pipe.time()
        reply, (seconds, rest) = pipe.execute()
    return reply, int(seconds) * 1_000_000 + int(rest)


@pytest.mark.parametrize("script", sorted(CHANGING.keys() - ROUNDED_UP))
def test_remembered_time_of_a_call_is_not_in_the_future(real_executor, script):
    client, case = real_executor.client, CHANGING[script]
    for _ in range(ROUNDS):
        client.flushdb()
        plant(real_executor, case.before)
        _, after = run_and_timed(client, case.call, "a.slot", 1)
        assert int(client.hget(KEYS.meta, "a.slot").split(b" ")[1]) * 1000 <= after


@pytest.mark.parametrize("script", sorted(ROUNDED_UP))
def test_logged_time_of_a_call_is_not_in_the_future(real_executor, script):
    client, case = real_executor.client, CHANGING[script]
    for _ in range(ROUNDS):
        client.flushdb()
        plant(real_executor, case.before + World(meta=LOG))
        _, after = run_and_timed(client, case.call, "a.slot", 1)
        ((_, entry),) = client.xrange(KEYS.events)
        assert int(entry[b"at"]) * 1000 <= after


@pytest.mark.parametrize(
    "call",
    [
        clocked.counts(),
        snapshot_call(clocked, "", limit=1, cursor=""),
        schedules_due_call(clocked, ahead=0, offset=0, limit=1, byte_limit=1),
        schedules_page_call(clocked, limit=1),
    ],
    ids=lambda call: call.script.name,
)
def test_returned_time_of_a_call_is_not_in_the_future(real_executor, call):
    for _ in range(ROUNDS):
        reply, after = run_and_timed(real_executor.client, call)
        assert reply[0] * 1000 <= after
