"""Each call in flight has its own slot and the next sequence number of that slot."""

import os
import sys
import threading

import pytest

from delayq.broker.requests import Outgoing
from delayq.broker.transport.protocol import RedisProtocol
from tests.support.processes import run


def message(id):
    return Outgoing(id, 0, 3, b"1", b"")


def stored(client, calls):
    """The remembered calls as slot → sequence."""
    return {slot.decode(): int(reply.split()[0]) for slot, reply in client.hgetall(calls.keys.replies).items()}


def test_slot_is_reused_with_the_next_sequence_number():
    slots = RedisProtocol(deadline=1)
    slot, first = slots._take_slot()
    slots._slots.append((slot, first))
    assert slots._take_slot() == (slot, first + 1)


def test_calls_in_flight_have_different_slots():
    slots = RedisProtocol(deadline=1)
    taken = [slots._take_slot() for _ in range(5)]
    assert len({slot for slot, _ in taken}) == 5
    assert {sequence for _, sequence in taken} == {1}


def test_two_clients_have_different_names():
    assert RedisProtocol(deadline=1)._take_slot()[0] != RedisProtocol(deadline=1)._take_slot()[0]


@pytest.mark.parametrize("attempt", range(5))
def test_concurrent_threads_never_share_a_slot(attempt):
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    slots, taken, ready = RedisProtocol(deadline=1), [], threading.Barrier(8)

    def take():
        ready.wait()
        taken.extend([slots._take_slot()[0] for _ in range(200)])

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
from delayq.broker.transport.protocol import RedisProtocol
slots = RedisProtocol(deadline=1)
mine = slots._take_slot()
slots._slots.append(mine)
read, write = os.pipe()
if not os.fork():
    slot, sequence = slots._take_slot()
    os.write(write, f"{slot} {sequence}".encode())
    os._exit(0)
os.close(write)
slot, sequence = os.read(read, 100).decode().split()
assert sequence == "1"
assert slot.split(".")[0] != mine[0].split(".")[0]
assert slots._take_slot() == (mine[0], 2)
"""
    run([sys.executable, "-c", program], check=True, timeout=30)


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


def test_client_name_is_constant_and_prefixes_its_slots(open_executor, redis_url, redis_client, calls):
    executor = open_executor(redis_url)
    name = executor.core.client_name
    executor.call(calls.purge())
    assert executor.core.client_name == name
    assert [slot.split(".")[0] for slot in stored(redis_client, calls)] == [name]
