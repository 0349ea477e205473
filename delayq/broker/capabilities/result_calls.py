"""The calls of a delay queue about results: messages with retention, and those who wait for them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from delayq.broker.capabilities.script_calls import ScriptCalls
from delayq.broker.replies.replies import integers, pairs, statuses
from delayq.broker.replies.results import Completed, EndReply, read_ends
from delayq.broker.requests import Receipt, RedisCommand, ScriptCall, flat


class ResultCalls(ScriptCalls):
    """One function per script, as `Calls`."""

    __slots__ = ()

    def complete(self, completions: Iterable[Completed]) -> ScriptCall[str]:
        """Settle messages that have retention, and keep their results; statuses as of `ack`."""
        return self._call("complete", [self._now, *flat(completions)], statuses)

    def report(self, receipt: Receipt, progress: str) -> ScriptCall[str]:
        """Store the progress (base64) of a message; status: 1 stored, 0 not leased."""
        return self._call("report", [self._now, *receipt, progress], statuses)

    def outcomes(self, ids: Iterable[str]) -> ScriptCall[list[EndReply]]:
        """Read how messages have ended; fewer than asked for if they are large."""
        return self._call("outcomes", [*ids], read_ends)

    def await_ends(self, ids: Iterable[str], *, duration: int) -> ScriptCall[str]:
        """Note that this process waits for the ends of messages, for so long (ms); returns a position before them."""
        return self._call("await_ends", [self._now, duration, *ids], _read_position)

    def next_ends(self, after: str, *, limit: int, timeout: float) -> RedisCommand[list[tuple[str, list[str]]]]:
        """Wait up to `timeout` seconds for ends after a position: positions, each with its ids (none: all may have)."""
        block = max(1, int(timeout * 1000))
        stream = ("STREAMS", self.keys.ends, after)
        return RedisCommand(("XREAD", "COUNT", limit, "BLOCK", block, *stream), _read_entries)


def _read_position(reply: bytes) -> str:
    return f"{integers(reply)[1] - 1}-0"


def _read_entries(reply: Any) -> list[tuple[str, list[str]]]:
    if not reply:
        return []
    ((_, entries),) = reply.items() if isinstance(reply, dict) else reply
    return [(position.decode(), pairs(fields).get(b"ids", b"").decode().split()) for position, fields in entries]
