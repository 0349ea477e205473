"""Where what is: which partition an id belongs to, and how many partitions a queue has, as Redis knows it.

The fields of `<prefix>:{reminders}:meta` are `partitions`, `epoch`, which every change of their number raises, and
`partitions_from` while one is under way. A plain queue has none of them.
"""

from __future__ import annotations

from binascii import crc_hqx
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, Self

from delayq.broker.keys import Keys
from delayq.broker.message.attributes import Attributes
from delayq.broker.message.joining import Joining
from delayq.broker.requests import RedisCommand
from delayq.broker.transport.operation import Operation
from delayq.errors import InvalidValueError, PartitionsError, short_repr
from delayq.queue.server_check import PARTITIONED

MAX_PARTITIONS = 1000
STORED: Literal["stored"] = "stored"
"""The option of a client that takes as many partitions as the queue has."""
_FIELDS = ("schema", "partitions", "epoch", "partitions_from", "partitions_left")


def partition_of(key: str, partitions: int) -> int:
    """Return the number of the partition of an id: CRC16 of its UTF-8, as of Redis Cluster, modulo their number."""
    return crc_hqx(key.encode("utf-8", "surrogateescape"), 0) % partitions


def by_partition(keys: Sequence[str], partitions: int) -> dict[int, list[int]]:
    """Return the positions of keys by the number of their partition."""
    if partitions == 1:
        return {0: list(range(len(keys)))}
    rows: dict[int, list[int]] = {}
    for at, key in enumerate(keys):
        rows.setdefault(partition_of(key, partitions), []).append(at)
    return rows


def key_of(id: str, attributes: bytes) -> str:
    """Return what decides on the partition of a message: the group that it joins, its key, else its id."""
    if b"joins=" in attributes or b"key=" in attributes:
        found = Attributes.of(attributes)
        joining = Joining.of(found.joins) if found.joins else None
        return joining.group if joining else found.key or id
    return id


def check_partitions(number: int | Literal["stored"], what: str = "partitions") -> int | None:
    """Return a number of partitions, None for what is stored; raise `ConfigurationError` for anything else."""
    if number == STORED:
        return None
    if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= MAX_PARTITIONS:
        raise InvalidValueError(f"{what} must be a whole number from 1 to {MAX_PARTITIONS}, not {short_repr(number)}")
    return number


class Layout(NamedTuple):
    """The partitions of a queue."""

    name: str
    partitions: int
    epoch: int = 1
    growing_from: int | None = None
    """How many it had, while messages still move; None if none do."""

    def partition_of(self, key: str) -> int:
        """Return the number of the partition for an id, or for what `key_of` returns."""
        return partition_of(key, self.partitions)

    def names(self) -> list[str]:
        """Return the names of all partitions that may have messages."""
        return names_of(self.name, self.partitions, self.growing_from)


def names_of(name: str, *numbers: int | None) -> list[str]:
    """Return the names of the partitions of a queue with so many; one partition is the plain queue."""
    found: dict[str, None] = {}
    for number in numbers:
        if number == 1:
            found[name] = None
        elif number is not None:
            found.update(dict.fromkeys(f"{name}#{at}" for at in range(number)))
    return list(found)


class StoredLayout(NamedTuple):
    """What the `meta` of a queue says of its partitions; '' and None for fields that are missing."""

    schema: str
    number: str
    """How many there are, as it is stored."""
    epoch: str
    before: int | None
    """How many there were, while clients look in both partitions of an id."""
    left: int | None
    """How many there were, while the rest is moved that was stored in the old partitions last."""

    @classmethod
    def read(cls, reply: Any) -> Self:
        """Read the fields."""
        schema, number, epoch, *others = [(field or b"").decode("utf-8", "replace") for field in reply]
        before, left = [int(text) if text.isdecimal() else None for text in others]
        return cls(schema, number, epoch, before, left)

    @property
    def partitions(self) -> int:
        """How many there are; 1 for a plain queue."""
        return int(self.number) if self.number.isdecimal() else 1

    @property
    def moving_from(self) -> int | None:
        """How many there were, while something is still to move; None if nothing is."""
        return self.before or self.left

    @property
    def next_epoch(self) -> int:
        """The epoch after this one; that of a plain queue is 1."""
        return (int(self.epoch) if self.epoch.isdecimal() else 1) + 1

    def names(self, name: str) -> list[str]:
        """Return the names of the partitions of a queue, or its own if it has none."""
        found = self.layout(name)
        return [name] if found is None else found.names()

    def layout(self, name: str) -> Layout | None:
        """Return the layout; None for a plain queue, or one that does not exist."""
        if not self.number.isdecimal():
            return None
        return Layout(name, self.partitions, int(self.epoch or 1), self.before)


def refuse_partitions(name: str, names: Sequence[str], advice: str) -> None:
    """Raise `PartitionsError` if a queue has partitions, for what works on one alone; `advice` says what to do."""
    if [*names] != [name]:
        raise PartitionsError(f"queue {name} has {len(names)} partitions, {names[0]} … {names[-1]}: {advice}")


def read_layout(prefix: str, name: str) -> RedisCommand[StoredLayout]:
    """Read what Redis knows of the partitions of a queue."""
    return RedisCommand(("HMGET", Keys.of(prefix, name).meta, *_FIELDS), StoredLayout.read)


def find_layout(prefix: str, name: str, wanted: int | None) -> Operation[Layout]:
    """Read the layout of a queue, or store that it has so many partitions, if it is new.

    Raises `PartitionsError` if it has another number, or is a plain queue.
    """
    meta = Keys.of(prefix, name).meta
    ask = read_layout(prefix, name)
    stored: StoredLayout
    (stored,) = yield [ask]
    if not stored.number:
        if wanted is None:
            raise PartitionsError(f"queue {name} has no partitions: give their number")
        if wanted == 1 and stored.schema != PARTITIONED:
            return Layout(name, 1, int(stored.epoch or 0))
        _, stored = yield [_claim(meta), ask]
        if stored.schema != PARTITIONED:
            raise PartitionsError(
                f"queue {name} exists without partitions: move it by `delayq partitions {name} --to {wanted}`"
            )
        fields = ("partitions", wanted), ("epoch", 1)
        *_, stored = yield [*[RedisCommand(("HSETNX", meta, *field), bool) for field in fields], ask]
    found = stored.layout(name)
    if found is None:
        raise PartitionsError(f"queue {name}: its field `partitions` in {meta} is no number: {stored.number!r}")
    if wanted not in (None, found.partitions):
        raise PartitionsError(
            f"queue {name} has {found.partitions} partitions, not {wanted}: open it with "
            f"partitions={found.partitions}, or change it by `delayq partitions {name} --to {wanted}`"
        )
    return found


def _claim(meta: str) -> RedisCommand[bool]:
    """Say that a queue has partitions, if it does not exist yet: in one step, so that no plain client makes it."""
    return RedisCommand(("HSETNX", meta, "schema", PARTITIONED), bool)


def raise_epoch(meta: str, epoch: int) -> RedisCommand[Any]:
    """Store the epoch of a partition that has none yet."""
    return RedisCommand(("HSETNX", meta, "epoch", epoch), bool)
