"""Each call in flight has a slot of its own and a sequence number of that slot."""

import os
import subprocess
import sys
import threading

import pytest

from delayq.slots import Slots
from delayq.values import Outgoing


def message(id):
    return Outgoing(id, 0, 3, b"1", b"")


def stored(client, calls):
    """The remembered calls as slot → sequence."""
    return {slot.decode(): int(reply.split()[0]) for slot, reply in client.hgetall(calls.keys.replies).items()}


def test_a_slot_is_used_again_with_the_next_sequence():
    slots = Slots()
    slot, first = slots.take()
    slots.free.append((slot, first))
    assert slots.take() == (slot, first + 1)


def test_calls_in_flight_have_slots_of_their_own():
    slots = Slots()
    taken = [slots.take() for _ in range(5)]
    assert len({slot for slot, _ in taken}) == 5
    assert {sequence for _, sequence in taken} == {1}


def test_two_processes_have_different_names():
    assert Slots().take()[0] != Slots().take()[0]


@pytest.mark.parametrize("attempt", range(5))
def test_threads_that_begin_together_never_share_a_slot(attempt):
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    slots, taken, ready = Slots(), [], threading.Barrier(8)

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
def test_a_fork_gets_a_name_of_its_own_and_does_not_go_on_with_its_parents_slots():
    program = """
import os
from delayq.slots import Slots
slots = Slots()
mine = slots.take()
slots.free.append(mine)
read, write = os.pipe()
if not os.fork():
    slot, sequence = slots.take()
    os.write(write, f"{slot} {sequence}".encode())
    os._exit(0)
os.close(write)
slot, sequence = os.read(read, 100).decode().split()
assert sequence == "1"
assert slot.split(".")[0] != mine[0].split(".")[0]
assert slots.take() == (mine[0], 2)
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=30)


def test_calls_one_after_another_share_a_slot(open_executor, redis_url, redis_client, calls):
    executor = open_executor(redis_url)
    for n in range(5):
        executor.call(calls.send([message(f"m{n}")], replace=False, max_length=None))
    assert list(stored(redis_client, calls).values()) == [5]


def test_the_calls_of_one_round_trip_have_a_slot_each(open_executor, redis_url, redis_client, calls):
    executor = open_executor(redis_url)
    sends = [calls.send([message(f"m{n}")], replace=False, max_length=None) for n in range(5)]
    assert executor.run(sends) == ["1"] * 5
    assert executor.run(sends) == ["0"] * 5
    assert list(stored(redis_client, calls).values()) == [2] * 5


def test_calls_at_a_time_have_a_slot_each(open_executor, redis_url, redis_client, calls):
    executor = open_executor(redis_url)
    batches = [[calls.send([message(f"m{n}")], replace=False, max_length=None)] for n in range(200)]
    assert executor.run_together(*batches[:20]) == [["1"]] * 20
    for batch in batches[20:]:
        executor.run(batch)
    sequences = stored(redis_client, calls).values()
    assert len(sequences) <= 20
    assert sum(sequences) == 200
    assert redis_client.hlen(calls.keys.messages) == 200


def test_calls_that_only_read_need_no_slot(open_executor, redis_url, redis_client, calls):
    executor = open_executor(redis_url)
    executor.run([calls.counts(), calls.get("a"), calls.page("pending", limit=5, cursor="", score="", preview=5)])
    assert stored(redis_client, calls) == {}


def test_the_name_of_a_client_stays_and_begins_its_slots(open_executor, redis_url, redis_client, calls):
    executor = open_executor(redis_url)
    name = executor.core.client_name
    executor.call(calls.purge())
    assert executor.core.client_name == name
    assert [slot.split(".")[0] for slot in stored(redis_client, calls)] == [name]
