"""Every public operation of a queue, small: what stands before it, and what it is asked to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any, NamedTuple

from delayq import DelayQueue, Encrypted, NewMessage
from delayq.broker.batches import BATCH
from delayq.broker.calls import Calls
from delayq.broker.keys import Keys
from delayq.broker.requests import Failure, Receipt
from delayq.queue.inspecting.message_info import MessageInfo
from delayq.queue.sweeps.rekeying import rekey
from tests.crash.cuts import Cutter, cut_client

OPTIONS: dict[str, Any] = {"events": True, "dedupe_window": "1h", "deadline": 20, "nack_delay": 0}
CALLS = Calls(Keys.of("delayq", "crash"))
LATER = datetime(2100, 1, 1, tzinfo=UTC)


def nothing(queue: DelayQueue[Any]) -> None:
    """Nothing stands before it: not even the queue is known."""


class Operation(NamedTuple):
    """An operation; `act` is handed what `prepare` returns, and its result holds no times."""

    name: str
    prepare: Callable[[DelayQueue[Any]], Any]
    act: Callable[[DelayQueue[Any], Any], Any]


def one_due(queue: DelayQueue[Any]) -> None:
    queue.send_delay_msg("A", 0, 1, id="a", headers={"trace": "1"}, name="one")


def two_due(queue: DelayQueue[Any]) -> None:
    one_due(queue)
    queue.send_delay_msg("B", 0, 1, id="b")


def two_ranked(queue: DelayQueue[Any]) -> None:
    queue.send_many([NewMessage("A", id="a", priority=1), NewMessage("B", id="b"), NewMessage("C", id="c", priority=2)])
    (message,) = queue.lease(n=1)
    message.release()


def one_ranked_held(queue: DelayQueue[Any]) -> Any:
    two_ranked(queue)
    (message,) = queue.lease(n=1)
    return message


def one_held(queue: DelayQueue[Any]) -> Any:
    two_due(queue)
    (message,) = queue.lease(n=1)
    return message


def one_followed(queue: DelayQueue[Any]) -> Any:
    message = one_held(queue)
    queue.send_delay_msg("A2", 60, id="a", replace="after", headers={"x": "y"}, name="two")
    return message


def one_of_each_to_rekey(queue: DelayQueue[Any]) -> None:
    """One that runs and is followed, one that waits, one that is dead, and a schedule."""
    queue.send_delay_msg("D", 0, 0, id="d")
    (message,) = queue.lease(n=1)
    message.reject("no such user")
    scheduled(queue)
    one_followed(queue)


def one_held_for_the_last_time(queue: DelayQueue[Any]) -> Any:
    queue.send_delay_msg("A", 0, 0, id="a")
    (message,) = queue.lease(n=1)
    return message


def one_spent(queue: DelayQueue[Any]) -> None:
    """One whose retries are spent, not yet collected."""
    message = one_held_for_the_last_time(queue)
    calls = queue.context.calls
    queue.executor.call(calls.nack([Failure(*Receipt(message.id, message.token), 0, "boom")]))


def two_dead(queue: DelayQueue[Any]) -> None:
    two_due(queue)
    for message in queue.lease(n=2):
        assert message.reject("no such user")


def run_begun(queue: DelayQueue[Any]) -> None:
    queue.send_many(["A", "B"], run="nightly")


def scheduled(queue: DelayQueue[Any]) -> None:
    queue.schedules.add("s", every="1d", payload="S")


def one_occurring(queue: DelayQueue[Any]) -> None:
    """One that occurred at midnight, and that nobody has fired."""
    scheduled(queue)
    client, key = queue.executor.client, CALLS.keys.schedules
    client.zincrby(key, -86_400_000, "s")


def told(message: MessageInfo | None) -> Any:
    return message and (
        message.id,
        message.state,
        message.payload,
        message.attempts,
        message.retries_left,
        message.reason,
    )


def page(queue: DelayQueue[Any], state: str) -> list[Any]:
    return [told(message) for message in queue.list(state).messages]


def lease_one(queue: DelayQueue[Any], _: Any) -> Any:
    with queue.lease() as message:
        return message.id, message.attempt, message.retries_left


def fail_one(queue: DelayQueue[Any], _: Any) -> None:
    with suppress(ZeroDivisionError), queue.lease():
        raise ZeroDivisionError


def many(queue: DelayQueue[Any], _: Any) -> Any:
    sent = queue.send_many([{"n": n} for n in range(BATCH + 3)], delay=60, run="nightly")
    return len(sent), [one.status for one in sent].count("new")


def rekeyed(queue: DelayQueue[Any]) -> Any:
    """Encrypt what stands in the clear; the same bytes in every run, so that runs can be compared."""
    codec = Encrypted({"k": bytes(16)}, allow_plain=True).for_queue(queue.name)
    codec.seal = codec.seal_stable
    return queue._perform(rekey(queue.context, codec), writes=True)


OPERATIONS = [
    Operation("open", nothing, lambda queue, _: queue.open()),
    Operation(
        "send", nothing, lambda queue, _: queue.send_delay_msg("A", 60, 2, id="a", headers={"x": "y"}, name="n").status
    ),
    Operation("send at a time", nothing, lambda queue, _: queue.send_schedule_msg("A", LATER, id="a").status),
    Operation("follow", one_held, lambda queue, _: queue.send_delay_msg("A2", 60, id="a", replace="after").status),
    Operation("ack of what is followed", one_followed, lambda _, message: message.ack()),
    Operation("reject of what is followed", one_followed, lambda _, message: message.reject("no")),
    Operation("cancel of what follows", one_followed, lambda queue, _: queue.cancel("a")),
    Operation("replace", two_due, lambda queue, _: queue.send_delay_msg("A2", 60, id="a", replace=True).status),
    Operation("send an id that is spent", one_spent, lambda queue, _: queue.send_delay_msg("A2", id="a").status),
    Operation("send many", nothing, many),
    Operation("cancel", two_due, lambda queue, _: queue.cancel("a")),
    Operation("kill", two_due, lambda queue, _: queue.kill("a")),
    Operation("edit", two_due, lambda queue, _: queue.edit("a", payload="A2", headers={"h": "2"}, priority=1)),
    Operation("forget", two_dead, lambda queue, _: queue.forget("a")),
    Operation("rekey", one_of_each_to_rekey, lambda queue, _: rekeyed(queue)),
    Operation("reschedule", two_due, lambda queue, _: queue.reschedule("a", 60)),
    Operation("lease", two_due, lambda queue, _: [(one.id, one.attempt, one.payload) for one in queue.lease(n=2)]),
    Operation("lease by rank", two_ranked, lambda queue, _: [one.id for one in queue.lease(n=3)]),
    Operation("cancel what is ranked", two_ranked, lambda queue, _: queue.cancel("a")),
    Operation("release of what was ranked", one_ranked_held, lambda _, message: message.release()),
    Operation("lease and ack", two_due, lease_one),
    Operation("lease and fail", two_due, fail_one),
    Operation("ack", one_held, lambda queue, message: message.ack()),
    Operation("nack", one_held, lambda queue, message: message.nack(error="boom")),
    Operation("nack for the last time", one_held_for_the_last_time, lambda queue, message: message.nack(error="boom")),
    Operation("extend", one_held, lambda queue, message: message.extend(60)),
    Operation("release", one_held, lambda queue, message: message.release()),
    Operation("reject", one_held, lambda queue, message: message.reject("no such user")),
    Operation("list the dead", two_dead, lambda queue, _: [told(message) for message in queue.dead.list().messages]),
    Operation("redrive one", two_dead, lambda queue, _: queue.dead.redrive("a")),
    Operation("redrive all", two_dead, lambda queue, _: queue.dead.redrive(all=True)),
    Operation("purge one of the dead", two_dead, lambda queue, _: queue.dead.purge("a")),
    Operation("purge all the dead", two_dead, lambda queue, _: queue.dead.purge(all=True)),
    Operation("purge", one_held, lambda queue, _: queue.purge()),
    Operation("add a schedule", nothing, lambda queue, _: queue.schedules.add("s", every="1d")),
    Operation("change a schedule", scheduled, lambda queue, _: queue.schedules.add("s", every="2d")),
    Operation("pause a schedule", scheduled, lambda queue, _: queue.schedules.pause("s")),
    Operation("remove a schedule", scheduled, lambda queue, _: queue.schedules.remove("s")),
    Operation("run a schedule now", scheduled, lambda queue, _: queue.schedules.run_now("s").status),
    Operation("counts", one_held, lambda queue, _: queue.counts()),
    Operation("get", one_held, lambda queue, _: told(queue.get("a"))),
    Operation("list", two_due, lambda queue, _: page(queue, "pending")),
    Operation("stats", one_held, lambda queue, _: queue.stats().counts),
    Operation("events", one_held, lambda queue, _: [(event.kind, event.id) for event in queue.events()]),
    Operation("runs", run_begun, lambda queue, _: [(run.run, run.state, run.new) for run in queue.runs()]),
    Operation("end a run", run_begun, lambda queue, _: queue.end_run("nightly", refusals=[("c", "bad")]).refused),
    Operation("refusals", run_begun, lambda queue, _: queue.refusals("nightly")),
]


def burst(queue: DelayQueue[Any], _: Any) -> Any:
    """Consume what is due; the first delivery of one message fails."""
    started = []

    @queue.callback
    def work(message: Any) -> bool:
        started.append((message.id, message.attempt))
        return message.id == "b" or message.attempt == 2

    queue.run(burst=True)
    return sorted(started)


def occurrences(queue: DelayQueue[Any], _: Any) -> Any:
    """Consume what schedules have fired."""
    started = []
    queue.callback(lambda message: started.append((message.headers["schedule"], message.attempt)))
    queue.run(burst=True)
    return started


BURST = Operation("burst", two_due, burst)
OCCURRENCE = Operation("occurrence", one_occurring, occurrences)
BY_NAME = {operation.name: operation for operation in [*OPERATIONS, BURST, OCCURRENCE]}


@contextmanager
def begun(url: str, operation: Operation, cutter: Cutter) -> Iterator[tuple[DelayQueue[Any], Any]]:
    """Open a queue in an empty Redis, with what the operation needs standing in it.

    The server has forgotten the scripts, all but the one by which the queue is looked at: to load them are more
    commands at which to be cut off.
    """
    client = cut_client(url, cutter)
    try:
        client.flushall()
        with DelayQueue("crash", redis=client, **OPTIONS) as queue:
            prepared = operation.prepare(queue)
            client.script_flush()
            queue.counts()
            yield queue, prepared
    finally:
        client.connection_pool.disconnect()
