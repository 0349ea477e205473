"""The number of partitions changes: everything is in exactly one place at each moment, whenever the mover is killed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import redis

from delayq import ConfigurationError, DelayqError, DelayQueue, NewMessage
from delayq.broker.context import QueueContext
from delayq.broker.keys import Keys
from delayq.broker.partition_calls import PartitionCalls, move_out_call
from delayq.broker.transport.failures import EpochError
from delayq.broker.transport.operation import Wait
from delayq.errors import PartitionsError
from delayq.queue.placing.layout import Layout, names_of, read_layout
from delayq.queue.placing.partition_finding import find_partitions, partition_name
from delayq.queue.placing.repartitioning import change_partitions, read_partitions
from delayq.queue.repairing.repair import examine
from delayq.queue.repairing.repair_report import FindingKind
from tests.support.partitions import NAME, PREFIX, contents, perform, populate
from tests.support.scripts import deliver


@pytest.fixture
def queue(redis_url: str) -> Iterator[DelayQueue[Any]]:
    with DelayQueue(NAME, url=redis_url) as opened:
        yield opened


def grow(queue: DelayQueue[Any], to: Any, after_write: Callable[[int], object] = int) -> int:
    return perform(queue.executor, change_partitions(PREFIX, NAME, to), after_write)


def misplaced(queue: DelayQueue[Any], partitions: int) -> int:
    _, states = queue.executor.perform(read_partitions(PREFIX, NAME))
    assert [one.name for one in states] == names_of(NAME, partitions)
    return sum(one.misplaced + one.on_the_way for one in states)


def saved(client: redis.Redis) -> dict[bytes, bytes]:
    return {key: client.dump(key) for key in client.scan_iter()}


def restore(client: redis.Redis, keys: dict[bytes, bytes]) -> None:
    client.flushdb()
    with client.pipeline(transaction=False) as pipe:
        for key, value in keys.items():
            pipe.restore(key, 0, value)
        pipe.execute()


def test_a_queue_grows_and_shrinks_with_all_that_it_has(queue, redis_client):
    populate(queue)
    before = contents(redis_client)
    assert all(before[part] for part in before if part != "successors")
    for partitions in (4, 16, 5, 1):
        assert grow(queue, partitions)
        assert contents(redis_client) == before
        assert misplaced(queue, partitions) == 0
        assert queue.executor.perform(change_partitions(PREFIX, NAME, partitions)) is None


def test_an_embedded_queue_grows():
    with DelayQueue(NAME, url="memory://growing") as embedded:
        populate(embedded)
        before = contents(embedded.executor.client)
        for partitions in (4, 1):
            assert grow(embedded, partitions)
            assert contents(embedded.executor.client) == before


class KilledError(Exception):
    """The mover was killed."""


def kill_at(number: int) -> Callable[[int], None]:
    def kill(writes: int) -> None:
        if writes == number:
            raise KilledError

    return kill


@pytest.mark.parametrize(
    ("before", "after", "every"),
    [
        pytest.param(1, 4, 7, id="grows, killed at some writes"),
        *(
            pytest.param(*way, 2, id=f"{way}, killed at every other write", marks=pytest.mark.long)
            for way in ((1, 4), (4, 16), (16, 5), (5, 1))
        ),
    ],
)
def test_a_mover_that_is_killed_anywhere_is_resumed(queue, redis_client, before, after, every):
    populate(queue, each=1)
    if before > 1:
        grow(queue, before)
    expected, planted = contents(redis_client), saved(redis_client)

    def is_all_there(_: int) -> None:
        assert contents(redis_client) == expected

    writes = grow(queue, after, is_all_there)
    assert writes > 20
    for number in range(1, writes, every):
        restore(redis_client, planted)
        with pytest.raises(KilledError):
            grow(queue, after, kill_at(number))
        assert grow(queue, after)
        assert contents(redis_client) == expected
        assert misplaced(queue, after) == 0


def test_a_leased_message_stays_until_it_is_settled(queue, redis_client):
    queue.send("runs", id="leased-1", retries=3)
    queue.send("runs", id="leased-2", retries=3)
    (one, other) = queue.lease(n=2)
    told = []
    operation = change_partitions(PREFIX, NAME, 16, tell=told.append)

    def settle(step: object) -> None:
        if len(told) == 2 and not one.lease_lost:
            one.ack()
            other.nack(delay=3600, error="no such user")

    perform(queue.executor, operation, settle)
    assert told[0].leased == 2
    (message,) = contents(redis_client)["waits"].items()
    assert message[0] == other.id.encode()
    assert message[1][0] == "backoff"
    assert misplaced(queue, 16) == 0


@pytest.mark.parametrize("wanted", [0, -1, 1.5, 10_000, "4", True, None])
def test_a_number_that_is_none_is_refused(queue, wanted):
    queue.send("x")
    with pytest.raises(ConfigurationError, match=r"partitions|--to"):
        grow(queue, wanted)


def test_a_queue_that_is_not_there_is_refused(queue):
    with pytest.raises(ConfigurationError, match="there is no queue reminders"):
        grow(queue, 4)


def test_another_number_is_refused_while_a_move_is_under_way(queue):
    queue.send("x")
    with pytest.raises(KilledError):
        grow(queue, 4, kill_at(3))
    with pytest.raises(PartitionsError, match=r"is being moved to 4 partitions.*--to 4"):
        grow(queue, 5)
    assert grow(queue, 4)


def test_two_movers_at_once_do_no_harm(queue, redis_client):
    populate(queue, each=1)
    expected = contents(redis_client)
    other = change_partitions(PREFIX, NAME, 4)

    def step_of_the_other(_: int) -> None:
        nonlocal replies
        try:
            step = other.send(replies)
            replies = [] if isinstance(step, Wait) else queue.executor.run(list(step))
            if error := next((one for one in replies if isinstance(one, DelayqError)), None):
                step = other.throw(error)
                replies = [] if isinstance(step, Wait) else queue.executor.run(list(step))
        except StopIteration:
            pass

    replies: Any = None
    grow(queue, 4, step_of_the_other)
    assert contents(redis_client) == expected
    perform(queue.executor, change_partitions(PREFIX, NAME, 4))
    assert contents(redis_client) == expected
    assert misplaced(queue, 4) == 0


def test_who_knows_an_older_number_of_partitions_is_refused(queue, redis_client):
    queue.send("x", id="x")
    grow(queue, 4)
    epoch = int(redis_client.hget(Keys.of(PREFIX, NAME).meta, "epoch"))
    own = partition_name(NAME, 4, "x")
    old, new = (PartitionCalls(Keys.of(PREFIX, own), epoch=lambda known=known: known) for known in (epoch - 1, epoch))
    for call in (old.cancel(["x"]), old.get("x"), old.reschedule([("x", 5)])):
        with pytest.raises(EpochError):
            queue.executor.call(call)
    assert queue.executor.call(new.get("x")).payload
    assert queue.executor.call(new.cancel(["x"])) == "1"


def test_a_call_that_was_executed_is_answered_after_the_number_has_changed(queue, redis_client):
    queue.send("x", id="x")
    grow(queue, 4)
    meta = Keys.of(PREFIX, partition_name(NAME, 4, "x")).meta
    calls = PartitionCalls(
        Keys.of(PREFIX, partition_name(NAME, 4, "x")), epoch=lambda: int(redis_client.hget(meta, "epoch"))
    )
    call = calls.cancel(["x"])
    assert deliver(queue.executor, call) == "1"
    redis_client.hincrby(meta, "epoch", 1)
    assert deliver(queue.executor, call) == "1"
    with pytest.raises(redis.ResponseError, match="EPOCH"):
        deliver(queue.executor, call, sequence=2)


def test_an_operation_on_an_id_finds_it_while_it_moves(queue, redis_client):
    ids = [f"m-{n}" for n in range(50)]
    queue.send_many([NewMessage(id, id=id, delay=3600) for id in ids])
    queue.send("runs", id="leased")
    (leased,) = queue.lease(n=1)
    with pytest.raises(KilledError):
        grow(queue, 4, kill_at(30))  # within the move, before it has moved anything
    (stage,) = queue.executor.run([read_layout(PREFIX, NAME)])
    layout = Layout(NAME, 4, int(stage.epoch), stage.before)
    known = {name: PartitionCalls(Keys.of(PREFIX, name), epoch=lambda: layout.epoch) for name in layout.names()}
    places = [(id, id) for id in (*ids, "leased", "unknown")]
    found = queue.executor.perform(find_partitions(known.__getitem__, layout, places))
    for id, own in zip(ids, found, strict=False):
        assert own == partition_name(NAME, 4, id)
        assert queue.executor.call(known[own].cancel([id])) == "1"
    assert found[50] == NAME
    assert queue.executor.call(known[NAME].cancel(["leased"])) == "2"
    leased.ack()
    grow(queue, 4)
    assert not contents(redis_client)["messages"]


def test_a_batch_that_is_stuck_is_told_and_brought(queue, redis_client):
    queue.send("x", id="x")
    calls = queue.context.calls
    long_ago = replace(calls, clock=lambda: queue.executor.call(calls.time()) - 120_000)
    grow(queue, 4)
    own, other = partition_name(NAME, 4, "x"), partition_name(NAME, 4, "y")
    source = replace(long_ago, keys=Keys.of(PREFIX, own), _known={})
    queue.executor.call(move_out_call(source, other, ["x"]))
    calls = replace(calls, keys=Keys.of(PREFIX, own), _known={})
    context = QueueContext(calls, queue.settings, queue.context.decode, own)
    findings = queue.executor.perform(examine(context, own, deep=False, fix=False)).findings
    (text,) = (one.text for one in findings if one.kind is FindingKind.ON_ITS_WAY)
    assert "delayq partitions reminders --to N" in text
    assert queue.executor.perform(change_partitions(PREFIX, NAME, 4)).moved == 1
    assert contents(redis_client)["messages"] == {b"x": b'"x"'}


def test_what_a_plain_client_has_sent_meanwhile_moves_with_the_next_run(queue, redis_url):
    queue.send(1, 60, id="a")  # and so has it open
    grow(queue, 4)
    queue.send(2, 60, id="b")
    with DelayQueue(NAME, url=redis_url, partitions=4, prefix=PREFIX) as spread:
        assert spread.get("b") is None
        grow(queue, 4)
        assert [spread.get(id).payload for id in "ab"] == [1, 2]
    assert queue.counts().living == 0
