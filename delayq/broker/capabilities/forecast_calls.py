"""The calls of a delay queue about what becomes due, and when."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from delayq.broker.capabilities.script_calls import ScriptCalls
from delayq.broker.requests import RedisCommand, ScriptCall

MAX_PERIODS = 499
"""Periods that one call counts: a thousand ZCOUNTs."""


class ForecastReply(NamedTuple):
    """What becomes due in some periods, and what is redelivered."""

    limit: str
    """The limit of the queue as stored, '' for none."""
    leases: int
    """How many leases were told from backoffs, and so are not in `redelivered`."""
    inspected: int
    """In how many of the periods all leases were."""
    due: list[int]
    """Pending messages that become due, per period."""
    redelivered: list[int]
    """Backoffs that end, per period, and the other leases."""


class NamesReply(NamedTuple):
    """How many messages there are, how many of them were read, and how many of these have each name ('' for none)."""

    total: int
    sampled: int
    names: dict[str, int]


class ForecastCalls(ScriptCalls):
    """One function per script, as `Calls`."""

    __slots__ = ()

    def forecast(self, start: int, ends: Sequence[int]) -> ScriptCall[ForecastReply]:
        """Count what becomes due in up to 499 periods, the first from `start` (ms) on, each before its end."""
        return self._call("forecast", [start, *ends], _read_forecast)

    def sample_names(self, before: int, *, size: int) -> ScriptCall[NamesReply]:
        """Count the names of a sample of the pending messages that are due before a time (ms)."""
        return self._call("sample_names", [before, size], _read_names)

    def count_due(self, after: int, until: int) -> RedisCommand[int]:
        """Count the pending messages that become due after a time (ms), and up to another one."""
        return RedisCommand(("ZCOUNT", self.keys.pending, f"({after}", until), int)


def _read_forecast(reply: list[Any]) -> ForecastReply:
    limit, *others = reply
    return ForecastReply(limit.decode(), *others)


def _read_names(reply: list[Any]) -> NamesReply:
    total, sampled, *cells = reply
    names = {name.decode(): count for name, count in zip(cells[::2], cells[1::2], strict=True)}
    return NamesReply(total, sampled, names)
