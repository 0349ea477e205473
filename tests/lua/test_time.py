"""By the server's own clock nothing comes early, not by a fraction of a millisecond; what is to come at once does."""

from __future__ import annotations

import pytest

from delayq.calls import Calls
from delayq.values import Failure, Outgoing, Rejection
from tests.lua.tables import TABLES
from tests.support.scripts import KEYS, LOG, World, plant
from tests.support.waiting import wait_until

clocked = Calls(KEYS)
ROUNDED_UP = {"send", "nack", "reschedule"}
"""Their time is that of what is to come, which is never to be early."""
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
    claimed = executor.call(clocked.ready_to_unack(1, lease=60_000, holder="w"))
    return int(claimed.deliveries[0].token)


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


def test_what_is_to_come_at_once_is_due_at_once(real_executor):
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


def test_a_promotion_takes_nothing_early(real_executor):
    client = real_executor.client
    for _ in range(ROUNDS):
        time = microseconds(client) // 1000 + 2
        client.zadd(KEYS.pending, {"a": time})
        wait_until(lambda: real_executor.call(clocked.pending_to_ready()).moved, timeout=5, every=0)
        assert microseconds(client) >= time * 1000


def test_a_lease_is_never_cut_short(real_executor):
    client = real_executor.client
    for _ in range(ROUNDS):
        hold(real_executor)
        time = microseconds(client) // 1000 + 2
        client.zadd(KEYS.unack, {"a": time})
        wait_until(lambda: real_executor.call(clocked.unack_to_retry()).retried, timeout=5, every=0)
        assert microseconds(client) >= time * 1000


CHANGING = {
    name: next(case for case in cases if case.before != case.after and not isinstance(case.answer, type))
    for name, cases in TABLES.items()
}


def carried_out_and_timed(client, call, *slot):
    """Have a call carried out by the server's clock; returns the answer, and the time (µs) at once afterwards."""
    client.script_load(call.script.text)
    with client.pipeline() as pipe:
        pipe.evalsha(call.script.sha, len(call.keys), *call.keys, *slot, "", *call.args[1:])
        pipe.time()
        answer, (seconds, rest) = pipe.execute()
    return answer, int(seconds) * 1_000_000 + int(rest)


@pytest.mark.parametrize("script", sorted(CHANGING.keys() - ROUNDED_UP))
def test_what_is_noted_is_of_a_time_that_has_come(real_executor, script):
    client, case = real_executor.client, CHANGING[script]
    for _ in range(ROUNDS):
        client.flushdb()
        plant(real_executor, case.before)
        _, after = carried_out_and_timed(client, case.call, "a-slot", 1)
        assert int(client.hget(KEYS.replies, "a-slot").split(b" ")[1]) * 1000 <= after


@pytest.mark.parametrize("script", sorted(ROUNDED_UP))
def test_what_is_logged_is_of_a_time_that_has_come(real_executor, script):
    client, case = real_executor.client, CHANGING[script]
    for _ in range(ROUNDS):
        client.flushdb()
        plant(real_executor, case.before + World(meta=LOG))
        _, after = carried_out_and_timed(client, case.call, "a-slot", 1)
        ((_, entry),) = client.xrange(KEYS.events)
        assert int(entry[b"at"]) * 1000 <= after


@pytest.mark.parametrize(
    "call",
    [
        clocked.counts(),
        clocked.snapshot("", limit=1, cursor=""),
        clocked.schedules_due(ahead=0, offset=0, limit=1, room=1),
        clocked.schedules_page(limit=1),
    ],
    ids=lambda call: call.script.name,
)
def test_what_is_read_is_of_a_time_that_has_come(real_executor, call):
    for _ in range(ROUNDS):
        answer, after = carried_out_and_timed(real_executor.client, call)
        assert answer[0] * 1000 <= after
