"""`moved` and `repartition`: batches that have arrived are deleted, and the epoch only rises."""

from __future__ import annotations

import pytest

from delayq.broker.partition_calls import Kind, moved_call, repartition_call, ways_call
from tests.lua.cases.moving import TARGET
from tests.support.scripts import KEYS, T, World, calls, observe, plant


def on_their_way(*numbers: int, kind: str = "messages", target: str = TARGET) -> World:
    fields = {f"{kind} {target} {number}": f"batch {number}" for number in numbers}
    return World(moving=fields | {f"order {kind} {target}": " ".join(map(str, numbers))})


OTHERS = on_their_way(T, kind="deaths") + on_their_way(T, target="reminders#4") + World(moving={"last": str(T)})


@pytest.mark.parametrize(
    ("number", "left"),
    [(T - 1, [T, T + 1]), (T, [T + 1]), (T + 1, []), (T + 2, [])],
    ids=["none", "the first", "both", "later ones"],
)
def test_batches_up_to_a_number_are_deleted(executor, number, left):
    plant(executor, on_their_way(T, T + 1) + OTHERS)
    for _ in range(2):  # also when it is repeated
        assert executor.call(moved_call(calls, Kind.MESSAGES, TARGET, number)) == left
        assert observe(executor) == (on_their_way(*left) + OTHERS if left else OTHERS)


def test_nothing_is_on_its_way(executor):
    plant(executor, OTHERS)
    assert executor.call(moved_call(calls, Kind.SCHEDULES, TARGET, T)) == []
    assert observe(executor) == OTHERS


def test_what_is_on_its_way_is_read_without_its_contents(executor):
    plant(executor, on_their_way(T + 1, T) + OTHERS)
    assert sorted(executor.call(ways_call(calls))) == [
        (Kind.DEATHS, TARGET, [T]),
        (Kind.MESSAGES, TARGET, [T, T + 1]),
        (Kind.MESSAGES, "reminders#4", [T]),
    ]


@pytest.mark.parametrize(
    ("stored", "epoch", "read", "changes"),
    [
        (None, 2, None, True),
        (None, 1, None, True),
        (None, 0, None, False),
        (1, 2, None, True),
        (2, 2, None, False),
        (10, 9, None, False),
        (9, 10, None, True),
        (None, 2, "", True),
        (1, 2, "1", True),
        (1, 1, "1", True),
        (1, 2, "", False),
        (None, 2, "1", False),
        (3, 4, "2", False),
    ],
)
def test_the_epoch_rises_once(executor, stored, epoch, read, changes):
    before = {"partitions": 4, "partitions_from": 2} | ({} if stored is None else {"epoch": stored})
    plant(executor, World(meta=before))
    call = repartition_call(calls, epoch, read, partitions=16, partitions_from="", partitions_left=4)
    assert executor.call(call) is changes
    after = {"partitions": 16, "partitions_left": 4, "epoch": epoch} if changes else before
    assert executor.client.hgetall(KEYS.meta) == {name.encode(): b"%d" % value for name, value in after.items()}


@pytest.mark.parametrize(("schema", "cold", "changes"), [(8, 1, False), (8, 0, True), (7, 1, True), (3, 1, True)])
def test_the_epoch_of_a_queue_rises_only_while_nothing_is_cold(executor, schema, cold, changes):
    before = {"schema": schema, "cold": cold}
    plant(executor, World(meta=before))
    assert executor.call(repartition_call(calls, 1, "", schema=7)) is changes
    assert observe(executor) == World(meta={"schema": 7, "cold": cold, "epoch": 1} if changes else before)
    assert executor.call(repartition_call(calls, 2)), "that of a partition is raised all the same"


def test_the_epoch_alone_is_raised(executor):
    plant(executor, World(meta={"epoch": 1, "schema": 3}))
    assert executor.call(repartition_call(calls, 2))
    assert observe(executor) == World(meta={"epoch": 2, "schema": 3})
