"""Group commit, with a fake producer and a fake store that the tests control."""

import asyncio
import os
import threading
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from delayq.broker.batches import BATCH, BATCH_BYTES
from delayq.broker.requests import Outgoing
from delayq.errors import OutcomeUnknown, ServerError
from delayq.queue.sending import group_commit
from delayq.queue.sending.group_commit import AsyncGroupCommit, GroupCommit, RoundTrips
from delayq.queue.sending.producer import SendStatus, Sent
from tests.support.waiting import wait_until


class Producer:
    """Makes operations that are just the messages."""

    is_limited = False

    def send(self, messages, *, replace=False):
        return messages, replace

    def send_by(self, executor, messages):
        return executor.perform(self.send(messages))


class Store:
    """Runs each operation when the test lets it through."""

    def __init__(self):
        self.begun = []
        self.gates = []
        self.threads = []
        self.held = True

    def perform(self, operation):
        messages, replace = operation
        gate, reply = threading.Event(), []
        if not self.held:
            gate.set()
        self.threads.append(threading.current_thread())
        self.gates.append((gate, reply))
        self.begun.append([message.id for message in messages])
        assert gate.wait(30)
        if reply:
            raise reply[0]
        status = SendStatus.REPLACED if replace else SendStatus.NEW
        return [Sent(message.id, status) for message in messages]

    def let_through(self, at, error=None):
        gate, reply = self.gates[at]
        if error:
            reply.append(error)
        gate.set()


class Senders:
    """Threads that send a message each."""

    def __init__(self, group):
        self.group = group
        self.results = {}
        self.threads = []

    def start(self, *ids, payload=b"p", replace=False):
        for id in ids:
            thread = threading.Thread(target=self._send, args=(Outgoing(id, 0, 3, payload, b""), replace))
            self.threads.append(thread)
            thread.start()

    def _send(self, outgoing, replace):
        try:
            self.results[outgoing.id] = self.group.send(outgoing, replace=replace)
        except BaseException as error:  # noqa: BLE001 - Ctrl-C too
            self.results[outgoing.id] = error

    def join(self):
        for thread in self.threads:
            thread.join(30)
        return self.results


@pytest.fixture
def patient(monkeypatch):
    monkeypatch.setattr(group_commit, "MAX_WAIT", 30.0)


@pytest.fixture
def store():
    return Store()


@pytest.fixture
def group(store):
    return GroupCommit(Producer(), store)


class Clock:
    """A clock that only the test moves."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


def limit_after(*seconds):
    """Return how many calls may be under way after round trips that took so long, one after another."""
    clock = Clock()
    trips = RoundTrips(clock)
    for took in seconds:
        began = clock.now
        clock.now += took + 50 * group_commit.MESSAGE_TIME
        trips.measure(began, 50)
    return trips.limit


@contextmanager
def in_flight(group, store, *waiting, **options):
    """Start one send, and others that wait for it."""
    senders = Senders(group)
    senders.start("first")
    wait_until(lambda: store.begun)
    for n, id in enumerate(waiting):
        senders.start(id, **options)
        wait_until(lambda n=n: len(group._waiting) >= n + 1)
    yield senders


def test_lone_sender_sends_at_once_in_its_own_thread(group, store):
    store.held = False
    assert group.send(Outgoing("a", 0, 3, b"p", b""), replace=False) == Sent("a", SendStatus.NEW)
    assert store.threads == [threading.current_thread()]


@pytest.mark.usefixtures("patient")
def test_sends_during_a_send_are_grouped_in_order(group, store):
    with in_flight(group, store, "a", "b", "c") as senders:
        assert store.begun == [["first"]]
        store.let_through(0)
        wait_until(lambda: len(store.begun) == 2)
        assert store.begun[1] == ["a", "b", "c"]
        store.let_through(1)
        assert senders.join() == {id: Sent(id, SendStatus.NEW) for id in ("first", "a", "b", "c")}


@pytest.mark.usefixtures("patient")
def test_each_sender_of_a_failed_group_gets_its_own_error(group, store):
    with in_flight(group, store, "a", "b") as senders:
        store.let_through(0)
        wait_until(lambda: len(store.begun) == 2)
        store.let_through(1, OutcomeUnknown("stopped answering"))
        results = senders.join()
    assert results["first"] == Sent("first", SendStatus.NEW)
    assert [(type(results[id]), str(results[id]), results[id].ids) for id in "ab"] == [
        (OutcomeUnknown, "stopped answering", ("a",)),
        (OutcomeUnknown, "stopped answering", ("b",)),
    ]


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("error", [ServerError("refused"), KeyboardInterrupt()])
def test_failed_send_does_not_block_others(group, store, error):
    with in_flight(group, store, "a") as senders:
        store.let_through(0, error)
        wait_until(lambda: len(store.begun) == 2)
        store.let_through(1)
        assert senders.join() == {"first": error, "a": Sent("a", SendStatus.NEW)}


def test_senders_do_not_wait_long_for_a_send_without_a_reply(group, store):
    with in_flight(group, store) as senders:
        senders.start("a", "b")
        wait_until(lambda: len(store.begun) == 3)
        assert sorted(store.begun[1:]) == [["a"], ["b"]]
        store.let_through(1)
        store.let_through(2)
        wait_until(lambda: len(senders.results) == 2)
        store.let_through(0)
        assert senders.join().keys() == {"first", "a", "b"}
    assert len(store.begun) == 3  # none was stored a second time


@pytest.mark.usefixtures("patient")
def test_group_is_no_larger_than_a_batch(group):
    messages = [group_commit._WaitingSend(Outgoing(str(n), 0, 3, b"p", b"")) for n in range(BATCH + 1)]
    group._waiting.extend(messages[1:])
    gathered = messages[:1]
    group._gather(gathered)
    assert gathered == messages[:BATCH]
    assert [*group._waiting] == messages[BATCH:]


@pytest.mark.usefixtures("patient")
def test_group_ends_with_the_message_that_reaches_the_byte_limit(group, store):
    with in_flight(group, store, "a", "b", "c", payload=b"p" * (BATCH_BYTES // 2)) as senders:
        store.let_through(0)
        wait_until(lambda: len(store.begun) == 2)
        store.let_through(1)
        wait_until(lambda: len(store.begun) == 3)
        store.let_through(2)
        senders.join()
    assert store.begun == [["first"], ["a", "b"], ["c"]]


@pytest.mark.parametrize(("replace", "limited"), [(True, False), (False, True)])
def test_replacing_and_limited_sends_are_not_grouped(group, store, replace, limited):
    group._producer.is_limited = limited
    with in_flight(group, store) as senders:
        senders.start("a", replace=replace)
        wait_until(lambda: len(store.begun) == 2)
        assert store.begun[1] == ["a"]
        store.let_through(0)
        store.let_through(1)
        status = SendStatus.REPLACED if replace else SendStatus.NEW
        assert senders.join()["a"] == Sent("a", status)


@pytest.mark.usefixtures("patient")
def test_first_that_waits_stores_the_others(group, store):
    with in_flight(group, store, "a", "b") as senders:
        store.let_through(0)
        wait_until(lambda: len(store.begun) == 2)
        assert store.threads == senders.threads[:2]
        store.let_through(1)
        senders.join()
    assert not group._under_way


@pytest.mark.usefixtures("patient")
def test_main_thread_stores_no_messages_of_others(group, store):
    """Ctrl-C would interrupt it, and the others would wait for ever."""
    store.held = False
    group._under_way += 1
    senders = Senders(group)

    def others():
        wait_until(lambda: group._waiting)
        senders.start("a", "b")
        wait_until(lambda: len(group._waiting) == 3)
        group._end()

    threading.Thread(target=others).start()
    assert group.send(Outgoing("main", 0, 3, b"p", b""), replace=False) == Sent("main", SendStatus.NEW)
    assert senders.join().keys() == {"a", "b"}
    assert threading.main_thread() not in store.threads
    assert not group._under_way


def test_main_thread_stores_its_own_message_if_no_other_waits(group, store):
    store.held = False
    group._under_way += 1
    thread = threading.Thread(target=lambda: (wait_until(lambda: group._waiting), group._end()))
    thread.start()
    assert group.send(Outgoing("main", 0, 3, b"p", b""), replace=False) == Sent("main", SendStatus.NEW)
    thread.join()
    assert store.begun == [["main"]]
    assert not group._under_way


@pytest.mark.parametrize("leads", [False, True])
def test_interrupted_wait_holds_up_nobody(group, store, leads):
    """Ctrl-C ends the wait of one that nobody stores, or that has just been asked to make the next call."""
    store.held = False
    group._under_way += 1
    own = group_commit._WaitingSend(Outgoing("main", 0, 3, b"p", b""))
    group._waiting.append(own)

    class Turn:
        def acquire(self, *, timeout):
            if leads:
                group._end()
            raise KeyboardInterrupt

        def release(self):
            pass

    own.turn = Turn()
    with pytest.raises(KeyboardInterrupt):
        group._wait(own)
    assert not group._waiting
    assert group._under_way == (not leads)
    if not leads:
        group._end()
    assert group.send(Outgoing("a", 0, 3, b"p", b""), replace=False) == Sent("a", SendStatus.NEW)


def test_forked_process_does_not_wait_for_threads_of_its_parent(group, store, monkeypatch):
    store.held = False
    group._under_way += 1  # by a thread that the fork does not have
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert group.send(Outgoing("a", 0, 3, b"p", b""), replace=False) == Sent("a", SendStatus.NEW)
    assert store.threads == [threading.current_thread()]


@pytest.mark.table(("seconds", "calls"), [(0.0001, 1), (0.0009, 1), (0.0011, 2), (0.0023, 4), (0.01, 8), (10.0, 8)])
def test_the_longer_a_round_trip_takes_the_more_calls_may_be_under_way(seconds, calls):
    assert limit_after(*[seconds] * group_commit.FIRST_CALLS) == calls


def test_no_server_is_far_before_some_calls():
    assert limit_after(*[10.0] * (group_commit.FIRST_CALLS - 1)) == 1


def test_busy_server_is_not_taken_for_a_far_one():
    """Nearly all of its calls are slow, for as long as it is busy."""
    busy = [*[0.05] * 99, 0.0004]
    assert limit_after(*busy * 100) == 1
    assert limit_after(*busy, *[0.05] * 40) == 1


def test_way_that_has_become_longer_is_noticed():
    assert limit_after(*[0.0001] * 1000, *[0.01] * 3000) == 8
    assert limit_after(*[0.01] * 3000, 0.0001) == 1


@pytest.mark.usefixtures("patient")
def test_over_a_network_several_calls_are_under_way(group, store):
    group._trips.limit = 3
    senders = Senders(group)
    for n, id in enumerate("abc"):
        senders.start(id)
        wait_until(lambda n=n: len(store.begun) == n + 1)
    senders.start("d", "e", "f")
    wait_until(lambda: len(group._waiting) == 3)
    assert store.begun == [["a"], ["b"], ["c"]]
    store.held = False
    for at in range(3):
        store.let_through(at)
    assert senders.join() == {id: Sent(id, SendStatus.NEW) for id in "abcdef"}
    assert sorted(id for ids in store.begun for id in ids) == list("abcdef")


class AsyncStore:
    """Runs each operation when the test lets it through."""

    def __init__(self):
        self.begun = []
        self.gates = []

    async def __call__(self, operation):
        messages, _ = operation
        gate = asyncio.get_running_loop().create_future()
        self.gates.append(gate)
        self.begun.append([message.id for message in messages])
        await gate
        return [Sent(message.id, SendStatus.NEW) for message in messages]


class Tasks:
    """Tasks that send a message each while the first one is in flight."""

    def __init__(self):
        self.store = AsyncStore()
        self.group = AsyncGroupCommit(Producer(), self.store, SimpleNamespace(check_loop=lambda: None, on_new_loop=[]))
        self.tasks = {}

    async def start(self, *ids, replace=False):
        for id in ids:
            sending = self.group.send(Outgoing(id, 0, 3, b"p", b""), replace=replace)
            self.tasks[id] = asyncio.ensure_future(sending)
        await asyncio.sleep(0)

    async def begun(self, n):
        while len(self.store.begun) < n:  # noqa: ASYNC110 - the condition is met after a step or two
            await asyncio.sleep(0)
        return self.store.begun[n - 1]

    async def results(self):
        found = await asyncio.gather(*self.tasks.values(), return_exceptions=True)
        return dict(zip(self.tasks, found, strict=True))


@pytest.mark.usefixtures("patient")
def test_tasks_that_send_during_a_send_are_grouped():
    async def main():
        tasks = Tasks()
        await tasks.start("first", "a", "b", "c")
        assert tasks.store.begun == [["first"]]
        tasks.store.gates[0].set_result(None)
        assert await tasks.begun(2) == ["a", "b", "c"]
        tasks.store.gates[1].set_result(None)
        assert await tasks.results() == {id: Sent(id, SendStatus.NEW) for id in ("first", "a", "b", "c")}
        assert not tasks.group._tasks
        assert not tasks.group._under_way

    asyncio.run(main())


@pytest.mark.usefixtures("patient")
def test_tasks_have_several_calls_under_way_over_a_network():
    async def main():
        tasks = Tasks()
        tasks.group._trips.limit = 2
        await tasks.start("a")
        await tasks.start("b", "c")
        assert await tasks.begun(2) == ["b", "c"]
        await tasks.start("d", "e")
        assert tasks.store.begun == [["a"], ["b", "c"]]
        tasks.store.gates[1].set_result(None)
        assert await tasks.begun(3) == ["d", "e"]
        tasks.store.gates[0].set_result(None)
        tasks.store.gates[2].set_result(None)
        assert await tasks.results() == {id: Sent(id, SendStatus.NEW) for id in "abcde"}
        assert not tasks.group._under_way

    asyncio.run(main())


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("limit", [1, 8])
def test_tasks_that_are_ready_together_send_together(limit):
    """They do where the last call was shared; a lone task shares none, and then sends at once again."""

    async def main():
        tasks = Tasks()
        tasks.group._trips.limit = limit
        tasks.group._shared = True
        for n, ids in enumerate(["abc", "de", "f", "g"]):
            await tasks.start(*ids)
            assert len(tasks.store.begun) == n + (ids == "g")  # after the turn in which they are ready, or at once
            assert await tasks.begun(n + 1) == [*ids]
            tasks.store.gates[n].set_result(None)
            await asyncio.gather(*tasks.tasks.values())
        assert not tasks.group._under_way

    asyncio.run(main())


@pytest.mark.usefixtures("patient")
def test_cancelled_task_does_not_cancel_others_of_its_group():
    async def main():
        tasks = Tasks()
        await tasks.start("first", "gone", "a", "late")
        tasks.tasks["gone"].cancel()
        tasks.tasks["first"].cancel()
        assert await tasks.begun(2) == ["a", "late"]
        tasks.tasks["late"].cancel()
        tasks.store.gates[1].set_result(None)
        results = await tasks.results()
        assert results.pop("a") == Sent("a", SendStatus.NEW)
        assert all(isinstance(result, asyncio.CancelledError) for result in results.values())

    asyncio.run(main())


@pytest.mark.usefixtures("patient")
def test_each_task_of_a_failed_group_gets_its_own_error():
    async def main():
        tasks = Tasks()
        await tasks.start("first", "a", "b")
        tasks.store.gates[0].set_exception(ServerError("refused"))
        await tasks.begun(2)
        tasks.store.gates[1].set_exception(OutcomeUnknown("stopped answering"))
        results = await tasks.results()
        assert isinstance(results["first"], ServerError)
        assert [results[id].ids for id in "ab"] == [("a",), ("b",)]

    asyncio.run(main())


def test_tasks_do_not_wait_long_for_a_send_without_a_reply(monkeypatch):
    async def main():
        tasks = Tasks()
        await tasks.start("first", "a", "b")
        assert await asyncio.wait_for(tasks.begun(2), 30) == ["a", "b"]
        tasks.store.gates[1].set_result(None)
        await asyncio.wait([tasks.tasks["a"], tasks.tasks["b"]])
        assert not tasks.tasks["first"].done()
        tasks.store.gates[0].set_result(None)
        assert (await tasks.results()).keys() == {"first", "a", "b"}

    monkeypatch.setattr(group_commit, "MAX_WAIT", 0.05)
    asyncio.run(main())


def test_replacing_task_is_not_grouped():
    async def main():
        tasks = Tasks()
        await tasks.start("first")
        await tasks.start("a", replace=True)
        assert tasks.store.begun == [["first"], ["a"]]
        for gate in tasks.store.gates:
            gate.set_result(None)
        assert len(await tasks.results()) == 2

    asyncio.run(main())
