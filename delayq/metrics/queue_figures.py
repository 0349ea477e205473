"""What an exporter reads of queues: a few calls for each, whose cost does not depend on how many messages there are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from delayq.broker.batches import batched
from delayq.broker.calls import Calls
from delayq.broker.history_records import HourCounts
from delayq.broker.keys import Keys
from delayq.errors import DelayqError, ServerError
from delayq.queue.counts import Stats, stats_of
from delayq.queue.lateness_report import SLO_HOURS, lateness_of, slo_report
from delayq.queue.registered import is_in_use, queue_names
from delayq.queue.server_check import server_info

if TYPE_CHECKING:
    from delayq.broker.transport.executor import Executor

READ_TOGETHER = 100
"""Queues that are read in one round trip."""
WITHIN = {"1m": 60_000, "5m": 300_000, "15m": 900_000}
"""The times ahead (ms) in which pending messages are counted that become due: for scaling before a spike."""


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
    """Read the figures of queues, two round trips for each hundred; for one that Redis refuses to read, why.

    Raises `UnavailableError` if Redis does not answer.
    """
    found: dict[str, QueueFigures | ServerError] = {}
    for batch in batched(names, READ_TOGETHER):
        calls = {name: Calls(Keys.of(prefix, name)) for name in batch}
        first = _run(executor, [call for one in calls.values() for call in (one.counts(), one.history(limit=1))])
        counts = {name: (first[2 * n], first[2 * n + 1]) for n, name in enumerate(batch)}
        refused = {name: error for name, two in counts.items() for error in two if isinstance(error, ServerError)}
        asked = {name: _asked_later(calls[name], counts[name][0]) for name in batch if name not in refused}
        asked = {name: requests for name, requests in asked.items() if requests}
        replies = iter(_run(executor, [request for requests in asked.values() for request in requests]))
        for name in batch:
            if name not in refused and not counts[name][0].in_use:
                continue
            later = [next(replies) for _ in asked.get(name, ())]
            error = refused.get(name) or next((one for one in later if isinstance(one, ServerError)), None)
            found[name] = _figures(*counts[name], later) if error is None else error
    return found


def read_server(executor: Executor) -> dict[str, str]:
    """Return the `INFO` of the server, empty if it may not be read; in a cluster that of one node."""
    (found,) = _run(executor, [server_info()])
    return {} if isinstance(found, ServerError) else dict(found)


def _asked_later(calls: Calls, counted: Any) -> list[Any]:
    """Return the requests that need the time of the server, and the hours of an objective if there is one.

    None for a queue that is not in use.
    """
    if not counted.in_use:
        return []
    requests: list[Any] = [calls.count_due(counted.now, counted.now + ahead) for ahead in WITHIN.values()]
    return requests + ([calls.history(limit=SLO_HOURS)] if "lateness_slo" in counted.meta else [])


def _figures(counted: Any, totals: Any, later: list[Any]) -> QueueFigures:
    due = dict(zip(WITHIN, later, strict=False))
    slo = None
    for hours in later[len(WITHIN) :]:
        slo = slo_report(counted.meta["lateness_slo"], lateness_of(hours.hours))
    return QueueFigures(stats_of(counted, slo=slo), totals.total, due)


def _run(executor: Executor, requests: list[Any]) -> list[Any]:
    """Return the replies, with the errors of what Redis refuses; raise any other error."""
    replies = executor.run(requests) if requests else []
    for reply in replies:
        if isinstance(reply, DelayqError) and not isinstance(reply, ServerError):
            raise reply
    return replies
