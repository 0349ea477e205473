"""What an exporter reads of queues: a few calls for each, whose cost does not depend on how many messages there are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from delayq.broker.batches import batched
from delayq.broker.beats import HourCounts, history_call, read_counted
from delayq.broker.calls import Calls
from delayq.broker.keys import Keys
from delayq.broker.replies import CountsReply
from delayq.broker.requests import RedisCommand
from delayq.errors import DelayqError, ServerError
from delayq.queue.control.registered import is_in_use, queue_names
from delayq.queue.inspecting.counts import Stats, stats_of
from delayq.queue.inspecting.lateness_report import SLO_HOURS, lateness_of, slo_report
from delayq.queue.server_check import server_info

if TYPE_CHECKING:
    from delayq.broker.transport.executor import Executor

READ_TOGETHER = 250
"""Queues that are read in one round trip: their replies take a few hundred kilobytes."""
WITHIN = {"1m": 60_000, "5m": 300_000, "15m": 900_000}
"""The times ahead (ms) in which pending messages are counted that become due: for scaling before a spike."""
_HOURS = "hours"


class QueueFigures(NamedTuple):
    """What was read of one queue."""

    stats: Stats
    counted: HourCounts
    """What consumers have ever counted."""
    due: dict[str, int]
    """Pending messages that become due within each of `WITHIN`, without those that are due."""


def existing_queues(executor: Executor, prefix: str, names: Sequence[str], pattern: str) -> list[str]:
    """Return which of some queues are in use; without names, all that match a pattern."""
    if not names:
        return executor.perform(queue_names(prefix, pattern))
    asked = [is_in_use(prefix, name) for name in names]
    return [name for name, known in zip(names, _run(executor, asked), strict=True) if known is True]


def read_figures(executor: Executor, prefix: str, names: Sequence[str]) -> dict[str, QueueFigures | ServerError]:
    """Read the figures of queues, a round trip for each batch and one more; for one that Redis refuses to read, why.

    What a queue is asked for later goes with the next batch. Raises `UnavailableError` if Redis does not answer.
    """
    found: dict[str, QueueFigures | ServerError] = {}
    known: dict[str, _Known | ServerError] = {}
    for batch in chain(batched(names, READ_TOGETHER), [[]]):
        calls = {name: Calls(Keys.of(prefix, name)) for name in batch}
        later = [one for read in known.values() if isinstance(read, _Known) for one in read.later.values()]
        replies = iter(_run(executor, [*chain(*((one.counts(), read_counted(one)) for one in calls.values())), *later]))
        read_now = {name: (next(replies), next(replies)) for name in batch}
        found |= {name: one if isinstance(one, ServerError) else _figures(one, replies) for name, one in known.items()}
        known = {}
        for name, (counts, counted) in read_now.items():
            error = next((reply for reply in (counts, counted) if isinstance(reply, ServerError)), None)
            if error is not None:
                known[name] = error
            elif counts.in_use:
                known[name] = _Known(counts, counted, _asked_later(calls[name], counts))
    return found


def read_server(executor: Executor) -> dict[str, str]:
    """Return the `INFO` of the server, empty if it may not be read; in a cluster that of one node."""
    (found,) = _run(executor, [server_info()])
    return {} if isinstance(found, ServerError) else dict(found)


class _Known(NamedTuple):
    """What was read of a queue, and what it is asked for later."""

    counts: CountsReply
    counted: HourCounts
    later: dict[str, Any]
    """Requests: one by each of `WITHIN` in which anything becomes due, and perhaps one by `_HOURS`."""


def _asked_later(calls: Calls, counts: CountsReply) -> dict[str, Any]:
    """Return the requests that need the time of the server, and the hours of an objective if there is one."""
    ends = {
        within: counts.now + ahead for within, ahead in WITHIN.items() if 0 <= counts.next_due - counts.now <= ahead
    }
    requests: dict[str, Any] = {
        within: RedisCommand(("ZCOUNT", calls.keys.pending, f"({counts.now}", end), int) for within, end in ends.items()
    }
    return requests | ({_HOURS: history_call(calls, limit=SLO_HOURS)} if "lateness_slo" in counts.meta else {})


def _figures(known: _Known, replies: Iterator[Any]) -> QueueFigures | ServerError:
    later = dict(zip(known.later, replies, strict=False))
    for reply in later.values():
        if isinstance(reply, ServerError):
            return reply
    slo = None
    if _HOURS in later:
        slo = slo_report(known.counts.meta["lateness_slo"], lateness_of(later[_HOURS].hours))
    due = {within: later.get(within, 0) for within in WITHIN}
    return QueueFigures(stats_of(known.counts, slo=slo), known.counted, due)


def _run(executor: Executor, requests: list[Any]) -> list[Any]:
    """Return the replies, with the errors of what Redis refuses; raise any other error."""
    replies = executor.run(requests) if requests else []
    for reply in replies:
        if isinstance(reply, DelayqError) and not isinstance(reply, ServerError):
            raise reply
    return replies
