"""The calls that read how messages have ended, and wait for ends."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from delayq.broker.calls import Calls
from delayq.broker.replies import integers, pairs
from delayq.broker.requests import RedisCommand, ScriptCall


class EndReply(NamedTuple):
    """How a message has ended, as stored."""

    alive: str
    """`kept` if it lives, and it or what waits to follow it has retention; `alive` without; '' if it has ended."""
    record: bytes
    """The record of the last one that was completed, '' for none; its first line if `alive` is `kept`."""
    death: bytes
    """The last one that died, without its payload; '' for none."""

    def since(self, before: EndReply) -> EndReply:
        """Return this reply without the record and the death that an earlier reply, of a message alive, has."""
        is_old = self.record.partition(b"\n")[0] == before.record
        return EndReply(self.alive, b"" if is_old else self.record, b"" if self.death == before.death else self.death)


def outcomes_call(calls: Calls, ids: Iterable[str]) -> ScriptCall[list[EndReply]]:
    """Read how messages have ended; fewer than asked for if they are large."""
    return calls.script("outcomes", [*ids], _read_ends)


def await_ends_call(calls: Calls, ids: Iterable[str], *, duration: int) -> ScriptCall[str]:
    """Note that this process waits for the ends of messages, for so long (ms); returns a position before them."""
    return calls.script("await_ends", [calls.now, duration, *ids], _read_position)


def next_ends(calls: Calls, after: str, *, limit: int, timeout: float) -> RedisCommand[list[tuple[str, list[str]]]]:
    """Wait up to `timeout` seconds for ends after a position: positions, each with its ids (none: all may have)."""
    block = max(1, int(timeout * 1000))
    stream = ("STREAMS", calls.keys.ends, after)
    return RedisCommand(("XREAD", "COUNT", limit, "BLOCK", block, *stream), _read_entries)


def _read_ends(reply: list[bytes]) -> list[EndReply]:
    """Parse the reply of `outcomes`."""
    return [EndReply(alive.decode(), *rest) for alive, *rest in zip(*(reply[at::3] for at in range(3)), strict=True)]


def _read_position(reply: bytes) -> str:
    return f"{integers(reply)[1] - 1}-0"


def _read_entries(reply: Any) -> list[tuple[str, list[str]]]:
    if not reply:
        return []
    ((_, entries),) = reply.items() if isinstance(reply, dict) else reply
    return [(position.decode(), pairs(fields).get(b"ids", b"").decode().split()) for position, fields in entries]
