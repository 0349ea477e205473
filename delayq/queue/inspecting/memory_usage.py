"""How much memory a queue takes, by the structures that it consists of."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from delayq.broker.context import QueueContext
from delayq.broker.requests import RedisCommand
from delayq.broker.transport.operation import Operation
from delayq.errors import ServerError
from delayq.values.checks import check_int

MAX_SAMPLES = 1000


@dataclass(frozen=True, slots=True)
class MemoryUsage:
    """Bytes that a queue takes on its server, by `MEMORY USAGE`."""

    structures: dict[str, int]
    """The bytes of each structure that exists, the largest first; see "life-of-a-message"."""
    unknown: tuple[str, ...]
    """The structures that this login may not read: they are in no sum."""

    @property
    def total(self) -> int:
        """The bytes of all structures that are known."""
        return sum(self.structures.values())


def memory_usage(context: QueueContext, samples: int) -> Operation[MemoryUsage]:
    """Ask the server; raise `ServerError` if it does not tell, as the embedded one."""
    check_int(samples, "samples", 0, MAX_SAMPLES)
    keys = context.calls.keys
    names = [field.name for field in fields(keys)]
    replies = yield [
        RedisCommand(("MEMORY", "USAGE", getattr(keys, name), "SAMPLES", samples), _size, expects="NOPERM")
        for name in names
    ]
    if all(reply is None for reply in replies):
        raise ServerError("MEMORY: no permissions to ask what a key takes: see delayq acl")
    found = {name: size for name, size in zip(names, replies, strict=True) if size}
    largest = sorted(found, key=found.__getitem__, reverse=True)
    return MemoryUsage(
        {name: found[name] for name in largest},
        tuple(name for name, size in zip(names, replies, strict=True) if size is None),
    )


def _size(reply: Any) -> int | None:
    """Return bytes, 0 for a key that does not exist, None for one that may not be read."""
    return None if isinstance(reply, Exception) else int(reply or 0)
