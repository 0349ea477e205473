"""Each call in flight has its own slot and the next sequence number of that slot."""

import asyncio
import os
import re
import sys
import threading
import time
from collections import deque
from contextlib import closing

import pytest
from redis.exceptions import BusyLoadingError, NoScriptError
from redis.exceptions import TimeoutError as RedisTimeout

from delayq import AsyncDelayQueue, OutcomeUnknown
from delayq.broker.message.ids import CallSlots
from delayq.broker.requests import Outgoing
from delayq.broker.transport.cluster import ClusterProtocol, SlotMap
from delayq.broker.transport.executor import AsyncExecutor
from delayq.broker.transport.operation import Wait
from delayq.broker.transport.protocol import RedisProtocol
from tests.support.executors import Blocking
from tests.support.processes import run

SOME_SLOTS = 5
"""More slots than calls that are in flight at a time: those of one task, and of opening and closing."""


def message(id):
    return Outgoing(id, 0, 3, b"1", b"")


def stored(client, calls):
    """The remembered calls as slot → sequence."""
    return {
        slot.decode(): int(reply.split()[0]) for slot, reply in client.hgetall(calls.keys.meta).items() if b"." in slot
    }


def test_slot_is_reused_with_the_next_sequence_number():
    slots = CallSlots()
    slot, first = slots.take()
    slots.give_back([(slot, first)])
    assert slots.take() == (slot, first + 1)


def test_calls_in_flight_have_different_slots():
    slots = CallSlots()
    taken = [slots.take() for _ in range(5)]
    assert len({slot for slot, _ in taken}) == 5
    assert {sequence for _, sequence in taken} == {1}


def test_two_clients_have_different_names():
    assert CallSlots().take()[0] != CallSlots().take()[0]


def interruptible(names):
    """Yield names; two threads that get here at once raise a `ValueError`, as a generator does."""
    for name in names:
        time.sleep(0)
        yield name


@pytest.mark.parametrize("attempt", range(5))
def test_concurrent_threads_never_share_a_slot(attempt):
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    slots, taken, ready = CallSlots(), [], threading.Barrier(8)
    slots._names = interruptible(slots._names)

    def take():
        ready.wait()
        taken.extend([slots.take()[0] for _ in range(200)])

    try:
        threads = [threading.Thread(target=take) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert len(taken) == len(set(taken)) == 1600


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_forked_process_gets_its_own_name_and_slots():
    program = """
import os
from delayq.broker.message.ids import CallSlots
from delayq.broker.transport.cluster import ClusterProtocol, SlotMap
from delayq.broker.transport.operation import Wait
from delayq.broker.transport.protocol import RedisProtocol
protocol = RedisProtocol(deadline=1)
mine = protocol.call_slots.take()
protocol.call_slots.give_back([mine])
read, write = os.pipe()
if not os.fork():
    slot, sequence = protocol.call_slots.take()
    os.write(write, f"{slot} {sequence}".encode())
    os._exit(0)
os.close(write)
slot, sequence = os.read(read, 100).decode().split()
assert sequence == "1"
assert slot.split(".")[0] != mine[0].split(".")[0]
assert protocol.call_slots.take() == (mine[0], 2)
"""
    run([sys.executable, "-c", program], check=True, timeout=30)


@pytest.mark.parametrize("routed", [False, True], ids=["server", "cluster"])
def test_interrupted_calls_leave_no_slot_taken(calls, routed):
    slot_map = SlotMap([("localhost", 1)])
    protocol = ClusterProtocol(slot_map, deadline=1) if routed else RedisProtocol(deadline=1)
    for n in range(10_000):
        steps = protocol.run([calls.send([message(f"m{n}")], replace=False, max_length=None)], None)
        exchange = next(steps)
        deque(exchange.data, maxlen=0)
        steps.close()
    ((name, sequence),) = protocol.call_slots._free
    assert (name, sequence) == (f"{protocol.call_slots.client_name}.1", 10_000)


@pytest.mark.parametrize(("requests", "pieces"), [(list, 1), (iter, 3)])
def test_a_list_of_calls_is_sent_in_one_piece(calls, requests, pieces):
    three = [calls.ack([]), calls.pending_to_ready(), calls.ready_to_unack(1, lease=1000, consumer_id="me")]
    steps = RedisProtocol(deadline=1).run(requests(three), None)
    exchange = next(steps)
    data = list(exchange.data)
    assert len(data) == pieces
    assert b"".join(data).count(b"EVALSHA") == len(exchange.sent) == 3
    steps.close()


@pytest.mark.parametrize(
    "first",
    [RedisTimeout("lost"), [BusyLoadingError("loading")], [NoScriptError("none")]],
    ids=["lost", "error", "script"],
)
def test_a_call_that_is_not_answered_at_once_is_repeated_with_its_slot_and_number(calls, first):
    protocol = RedisProtocol(deadline=5)
    steps = protocol.run([calls.send([message("m")], replace=False, max_length=None)], None)
    tried = b"".join(next(steps).data)
    step = steps.send(first)
    if isinstance(step, Wait):
        again = steps.send(None)
    else:
        assert b"SCRIPT" in b"".join(step.data)
        again = steps.send([b"digest"])
    assert b"".join(again.data) == tried
    assert protocol.call_slots._free == []
    with pytest.raises(StopIteration) as end:
        steps.send([b"1 1000000"])
    assert end.value.value == ["1"]
    assert protocol.call_slots._free == [(f"{protocol.call_slots.client_name}.1", 1)]


def test_a_call_that_is_answered_at_once_is_sent_once(calls):
    protocol = RedisProtocol(deadline=5)
    steps = protocol.run([calls.send([message("m")], replace=False, max_length=None)], None)
    next(steps)
    with pytest.raises(StopIteration) as end:
        steps.send([b"1 1000000"])
    assert end.value.value == ["1"]
    assert protocol.call_slots._free == [(f"{protocol.call_slots.client_name}.1", 1)]


def tap(core, *taps):
    """Call functions before the first exchanges, which may reply in place of Redis; returns the bytes of all."""
    exchange, tries, left = core.exchange, [], [*taps]

    def tapped(step):
        tries.append(b"".join(step.data))
        replies = left.pop(0)() if left else None
        if replies is None:
            return exchange(step._replace(data=[tries[-1]]))
        return asyncio.sleep(0, replies) if isinstance(core, AsyncExecutor) else replies

    core.exchange = tapped
    return tries


@pytest.mark.usefixtures("no_pauses", "loaded_scripts")
@pytest.mark.parametrize(
    "first",
    [RedisTimeout("lost"), [BusyLoadingError("loading")], [NoScriptError("none")]],
    ids=["lost", "error", "script"],
)
def test_an_executor_repeats_a_first_try_with_its_slot_and_number(open_executor, redis_url, calls, first):
    executor = open_executor(redis_url)
    slots = executor.core.protocol.call_slots
    tries = tap(executor.core, lambda: first)
    assert executor.call(calls.send([message("m")], replace=False, max_length=None)) == "1"
    assert tries[-1] == tries[0]
    assert [b"SCRIPT" in one for one in tries] == [False, *[True] * (len(tries) - 2), False]
    assert slots._free == [(f"{slots.client_name}.1", 1)]


def test_the_deadline_of_a_repeated_call_counts_from_its_first_try(open_executor, redis_url, calls, monkeypatch):
    executor, now = open_executor(redis_url, deadline="5s"), 1000.0

    def pass_by():
        nonlocal now
        now += 5.1
        return RedisTimeout("lost")

    monkeypatch.setattr("delayq.broker.transport.protocol.monotonic", lambda: now)
    tries = tap(executor.core, pass_by)
    with pytest.raises(OutcomeUnknown):
        executor.call(calls.send([message("m")], replace=False, max_length=None))
    assert len(tries) == 1


def interrupt():
    raise KeyboardInterrupt


@pytest.mark.usefixtures("no_pauses", "loaded_scripts")
@pytest.mark.parametrize("before", [[], [lambda: RedisTimeout("lost")]], ids=["first", "second"])
def test_an_executor_interrupted_during_a_try_leaves_no_slot_taken(redis_url, calls, before):
    with closing(Blocking({"url": redis_url})) as executor:
        slots = executor.core.protocol.call_slots
        tap(executor.core, *before, interrupt)
        with pytest.raises(KeyboardInterrupt):
            executor.call(calls.send([message("m")], replace=False, max_length=None))
        assert slots._free == [(f"{slots.client_name}.1", 1)]
        assert executor.call(calls.send([message("m")], replace=False, max_length=None)) == "1"
        assert slots._free == [(f"{slots.client_name}.1", 2)]


@pytest.mark.usefixtures("loaded_scripts")
def test_a_fork_during_a_call_does_not_get_the_slot_of_the_call(open_executor, redis_url, calls):
    executor = open_executor(redis_url)
    of_client, slots = executor.core.protocol, executor.core.protocol.call_slots

    def fork():
        of_client._call_slots = CallSlots()

    tap(executor.core, fork)
    assert executor.call(calls.send([message("m")], replace=False, max_length=None)) == "1"
    assert (slots._free, of_client.call_slots._free) == ([(f"{slots.client_name}.1", 1)], [])


def test_calls_of_cancelled_tasks_leave_no_slot_taken(redis_url, redis_client):
    async def main():
        async with AsyncDelayQueue("reminders", url=redis_url) as queue:
            for n in range(300):
                task = asyncio.create_task(queue.send_delay_msg(n, id=f"m{n}", replace=True))
                for _ in range(n % 12):  # so far it gets: to the connection, to the reply, to the end
                    await asyncio.sleep(0)
                task.cancel()
                await asyncio.wait([task])
            await queue.send_delay_msg("after")
        assert len(queue.executor.protocol.call_slots._free) <= SOME_SLOTS

    asyncio.run(main())
    assert redis_client.hlen("delayq:{reminders}:replies") <= SOME_SLOTS


def test_sequential_calls_share_a_slot(open_executor, redis_url, redis_client, calls):
    executor = open_executor(redis_url)
    for n in range(5):
        executor.call(calls.send([message(f"m{n}")], replace=False, max_length=None))
    assert list(stored(redis_client, calls).values()) == [5]


def test_calls_of_one_round_trip_have_different_slots(open_executor, redis_url, redis_client, calls):
    executor = open_executor(redis_url)
    sends = [calls.send([message(f"m{n}")], replace=False, max_length=None) for n in range(5)]
    assert executor.run(sends) == ["1"] * 5
    assert executor.run(sends) == ["0"] * 5
    assert list(stored(redis_client, calls).values()) == [2] * 5


def test_concurrent_calls_have_different_slots(open_executor, redis_url, redis_client, calls):
    executor = open_executor(redis_url)
    batches = [[calls.send([message(f"m{n}")], replace=False, max_length=None)] for n in range(200)]
    assert executor.run_together(*batches[:20]) == [["1"]] * 20
    for batch in batches[20:]:
        executor.run(batch)
    sequences = stored(redis_client, calls).values()
    assert len(sequences) <= 20
    assert sum(sequences) == 200
    assert redis_client.hlen(calls.keys.messages) == 200


def test_read_only_calls_use_no_slot(open_executor, redis_url, redis_client, calls):
    executor = open_executor(redis_url)
    executor.run([calls.counts(), calls.get("a"), calls.page("pending", limit=5, cursor="", score="", preview=5)])
    assert stored(redis_client, calls) == {}


def test_consumer_id_is_constant_and_its_slots_have_a_random_prefix(open_executor, redis_url, redis_client, calls):
    executor = open_executor(redis_url)
    name = executor.core.consumer_id
    executor.call(calls.purge())
    assert executor.core.consumer_id == name
    executor.call(calls.purge())
    (slot,) = stored(redis_client, calls)
    assert re.fullmatch(r"[0-9a-f]{12}\.[0-9]+", slot)  # names that people read may repeat, as in containers
