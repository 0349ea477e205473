"""Changes the number of partitions of a queue while producers and workers run: the work of `delayq partitions --to`.

The epoch of the queue and of all partitions rises when a move begins, and when it ends. In between, everything whose
partition has changed is moved, until nothing is misplaced. It goes on where one was killed before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from delayq.broker.calls import Calls
from delayq.broker.keys import Keys, check_name, registry
from delayq.broker.partition_calls import AT_ONCE, LEASED, MOVES, Kind, PartitionCalls, repartition_call, ways_call
from delayq.broker.replies import pairs
from delayq.broker.requests import RedisCommand
from delayq.broker.shared_calls import identify
from delayq.broker.transport.failures import EpochError
from delayq.broker.transport.operation import Operation, Wait
from delayq.errors import ConfigurationError, PartitionsError
from delayq.queue.control.registered import register
from delayq.queue.inspecting.cold_tier import count_cold
from delayq.queue.placing.layout import StoredLayout, check_partitions, names_of, read_layout
from delayq.queue.placing.partition_finding import PARTS, bring, move, partition_name, raise_epochs, read_places
from delayq.queue.server_check import COLD, NEW_SCHEMA, PARTITIONED, SCHEMA, newer
from delayq.values.text import pluralize

PAUSE = 0.5
"""Seconds until what is leased is tried again."""
SETTINGS = ("events", "dedupe", "dead_max", "dead_ttl", "priority_step", "lateness_slo", "redact", "paused", "limited")
"""The fields of `meta` that new partitions have from the others."""


class MoveProgress(NamedTuple):
    """How far a move is, each time a partition has been gone through."""

    partition: str
    moved: int
    """Messages, reserved ids, results, entries of the dead letter and schedules that have left it this time."""
    leased: int
    """Messages that a consumer holds: they are tried again."""


class Moved(NamedTuple):
    """What a move has done."""

    partitions: int
    epoch: int
    moved: int


class PartitionState(NamedTuple):
    """What is in one partition."""

    name: str
    messages: int
    dead: int
    misplaced: int
    """What is to move from here, of any kind."""
    on_the_way: int
    """Batches that have left it and have not arrived: `delayq partitions QUEUE --to N` brings them."""


class _PartitionMover:
    """One run of a move."""

    def __init__(
        self, prefix: str, name: str, tell: Callable[[MoveProgress], object], clock: Callable[[], int] | None
    ) -> None:
        self.prefix, self.name, self._tell, self._clock = prefix, check_name(name), tell, clock
        self._known: dict[str, PartitionCalls] = {}
        self.epoch, self.moved = 0, 0
        self.base = self.calls_of(name)

    def calls_of(self, partition: str) -> PartitionCalls:
        """Return the calls of a partition, as of the epoch of this move."""
        if partition not in self._known:
            keys = Keys.of(self.prefix, partition)
            self._known[partition] = PartitionCalls(keys, clock=self._clock, epoch=lambda: self.epoch)
        return self._known[partition]

    def read(self) -> Operation[StoredLayout]:
        """Read how many partitions there are; raise `ConfigurationError` for a queue that is not there, or too new."""
        (stage,) = yield [read_layout(self.prefix, self.name)]
        if not stage.schema:
            raise ConfigurationError(f"there is no queue {self.name}")
        unknown = "" if stage.schema == PARTITIONED else newer(self.name, stage.schema.encode())
        if unknown:
            raise ConfigurationError(unknown)
        return stage  # type: ignore[no-any-return]  # as `read_layout` reads it

    def check_cold(self, stage: StoredLayout) -> Operation[None]:
        """Raise `PartitionsError` if messages are cold: a queue with partitions would not bring them back."""
        (cold,) = (yield [count_cold(self.base)]) if stage.schema == COLD else (0,)
        if cold:
            raise PartitionsError(
                f"queue {self.name} has {pluralize(cold, 'cold message')}, and a queue with partitions has no cold tier"
                ": bring them back before"
            )

    def change(self, stage: StoredLayout, epoch: int, **fields: int | str) -> Operation[bool]:
        """Store the next stage, unless another process has."""
        (changed,) = yield [repartition_call(self.base, epoch, stage.epoch, **fields)]
        return bool(changed)

    def stamp(self, names: Iterable[str], epoch: int) -> Operation[None]:
        """Raise the epoch of partitions: from then on who knows an older one is refused there."""
        self.epoch = epoch
        yield from raise_epochs(self.calls_of, list(names), epoch)

    def open(self, names: list[str], model: str) -> Operation[None]:
        """Register partitions, those that are new with the settings and limits of another one."""
        keys = self.calls_of(model).keys
        settings, limits, schema = yield [
            RedisCommand(("HMGET", keys.meta, *SETTINGS), list),
            RedisCommand(("HGETALL", keys.limits), pairs),
            RedisCommand(("HGET", keys.meta, "schema"), lambda reply: reply),
        ]
        schema = schema if schema and schema != PARTITIONED.encode() else b"%d" % NEW_SCHEMA
        set_ones = [(name, value) for name, value in zip(SETTINGS, settings, strict=True) if value is not None]
        for name in names:
            own = self.calls_of(name).keys
            copies = [RedisCommand(("HSETNX", own.meta, *pair), bool) for pair in (("schema", schema), *set_ones)]
            copies += [RedisCommand(("HSETNX", own.limits, *pair), bool) for pair in limits.items()]
            yield [*copies, *identify(own.meta)]
        yield [register(self.prefix, *names, self.name)]

    def go_through(self, names: Iterable[str], to: int) -> Operation[None]:
        """Move what is misplaced in some partitions, until nothing is."""
        names = list(names)
        while True:
            found = 0
            for name in names:
                brought = yield from self.bring([name])
                moved, leased = yield from self._empty(name, to)
                self.moved += moved
                found += moved + leased + brought
                if moved or leased:
                    self._tell(MoveProgress(name, moved, leased))
                if leased:
                    yield Wait(PAUSE)
            if not found:
                return

    def bring(self, names: Iterable[str]) -> Operation[int]:
        """Bring the batches that a killed process has left on their way; returns how many."""
        brought = 0
        for name in names:
            (ways,) = yield [ways_call(self.calls_of(name))]
            for way in ways:
                brought += yield from bring(self.calls_of, way.kind, name, way.target, way.numbers)
        return brought

    def _empty(self, source: str, to: int) -> Operation[tuple[int, int]]:
        """Move what is misplaced in a partition, once; returns how much has moved, and how much is leased."""
        waiting, moved, leased = dict[tuple[Kind, str], list[bytes | str]](), 0, 0
        for part in PARTS:
            position, more = None, True
            while more:
                page = yield from read_places(self.calls_of(source), part, position)
                position, more = page.position, page.position is not None
                for place in page.places:
                    target = partition_name(self.name, to, place.key)
                    if target != source:
                        waiting.setdefault((page.kind, target), []).append(place.name)
                for (kind, target), names in list(waiting.items()):
                    if len(names) >= AT_ONCE or not more:
                        del waiting[kind, target]
                        statuses = yield from move(self.calls_of, kind, source, target, names)
                        moved, leased = moved + statuses.count(MOVES), leased + statuses.count(LEASED)
        return moved, leased


def _no_progress(_: MoveProgress) -> None:
    pass


def change_partitions(
    prefix: str,
    name: str,
    to: int,
    *,
    tell: Callable[[MoveProgress], object] = _no_progress,
    clock: Callable[[], int] | None = None,
) -> Operation[Moved | None]:
    """Spread a queue over another number of partitions, from or to 1 as well; None if there is nothing to do.

    Every message is in exactly one place at each moment, and a kill at any step loses and doubles none: run it again.
    Two at once do no harm. `tell` is called with the progress. Raises `PartitionsError` if a move to another number is
    under way or messages are cold, `ConfigurationError` for a number that is none of 1 to 1,000, and for a queue that
    is not there.
    """
    wanted, mover, began = check_partitions(to, "--to"), _PartitionMover(prefix, name, tell, clock), False
    if wanted is None:
        raise ConfigurationError("--to must be a number of partitions")
    while True:
        try:
            stage = yield from mover.read()
            epoch = stage.next_epoch
            moving = stage.moving_from
            if moving is not None and stage.partitions != wanted:
                raise PartitionsError(
                    f"queue {name} is being moved to {stage.partitions} partitions: let that end, or go on with it, by "
                    f"`delayq partitions {name} --to {stage.partitions}`, before"
                )
            if moving is None and stage.partitions == wanted:
                brought = yield from mover.bring(names_of(name, wanted))  # by clients that were killed
                if wanted > 1:  # what plain clients, open since it had no partitions, have sent
                    mover.epoch = int(stage.epoch)
                    yield from mover.go_through([name], wanted)
                moved = mover.moved + brought
                return Moved(wanted, int(stage.epoch or 1), moved) if began or moved else None
            began = True
            if moving is None:
                yield from mover.check_cold(stage)
                fields: dict[str, int | str] = {"schema": PARTITIONED, "partitions": wanted}
                yield from mover.change(stage, epoch, **fields, partitions_from=stage.partitions)
            elif stage.before is not None:
                yield from _move(mover, stage)
                rest: dict[str, int | str] = {"partitions_left": stage.before, "partitions_from": ""}
                yield from mover.change(stage, epoch, **rest)
            else:
                yield from _finish(mover, stage)
        except EpochError:  # another process has gone on
            began = True


def _move(mover: _PartitionMover, stage: StoredLayout) -> Operation[None]:
    """Move what belongs to another partition now, while clients look in both."""
    old, new = names_of(mover.name, stage.before), names_of(mover.name, stage.partitions)
    yield from mover.stamp(dict.fromkeys((*old, *new)), int(stage.epoch))
    yield from mover.open([name for name in new if name not in old], old[0])
    yield from mover.go_through(dict.fromkeys((*old, *new)), stage.partitions)


def _finish(mover: _PartitionMover, stage: StoredLayout) -> Operation[None]:
    """Move what clients have stored in old partitions last, and give up the partitions that are left."""
    old, new = names_of(mover.name, stage.left), names_of(mover.name, stage.partitions)
    every, epoch = dict.fromkeys((mover.name, *old, *new)), int(stage.epoch)
    yield from mover.stamp(every, epoch)
    yield from mover.go_through(every, stage.partitions)
    dropped = [name for name in old if name not in new and name != mover.name]
    if dropped:  # whose epoch and totals stay: late clients are refused
        yield [RedisCommand(("SREM", registry(mover.prefix), *dropped), int)]
    for name in dropped:
        keys = mover.calls_of(name).keys
        limited = keys.limits, keys.gates, keys.running, keys.key_lines
        yield [RedisCommand(("HDEL", keys.meta, *SETTINGS), int), RedisCommand(("UNLINK", *limited), int)]
    plain: dict[str, int | str] = {"partitions": "", "schema": SCHEMA} if stage.partitions == 1 else {}
    yield from mover.change(stage, epoch, partitions_left="", **plain)


def read_partitions(
    prefix: str, name: str, *, clock: Callable[[], int] | None = None
) -> Operation[tuple[StoredLayout, list[PartitionState]]]:
    """Read how many partitions a queue has, and what is in each, also what is still to move."""
    mover, states = _PartitionMover(prefix, name, _no_progress, clock), []
    stage = yield from mover.read()
    moving = stage.moving_from
    for partition in names_of(name, stage.partitions, moving):
        calls = mover.calls_of(partition)
        counted, ways = yield [calls.counts(), ways_call(calls)]
        misplaced = 0 if moving is None else (yield from _count_misplaced(calls, mover, partition, stage.partitions))
        on_the_way = sum(len(way.numbers) for way in ways)
        states.append(PartitionState(partition, counted.messages, counted.dead, misplaced, on_the_way))
    return stage, states


def _count_misplaced(calls: Calls, mover: _PartitionMover, partition: str, to: int) -> Operation[int]:
    misplaced = 0
    for part in PARTS:
        position, more = None, True
        while more:
            page = yield from read_places(calls, part, position)
            position, more = page.position, page.position is not None
            misplaced += sum(partition_name(mover.name, to, place.key) != partition for place in page.places)
    return misplaced
