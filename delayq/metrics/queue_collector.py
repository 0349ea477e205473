"""The metrics of queues, read from Redis at each scrape, in a few calls for each, however many messages there are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

from delayq.broker.calls import Calls
from delayq.broker.keys import Keys, check_name, check_pattern, whole_name
from delayq.broker.replies import CountsReply
from delayq.broker.requests import RedisCommand
from delayq.broker.stored_presence import HourCounts, history_call, read_counted, sum_of
from delayq.broker.transport.executor import open_executor
from delayq.broker.transport.operation import together
from delayq.errors import DelayqError, ServerError
from delayq.metrics.families import Collector, Families, Metric
from delayq.options import QueueOptions, read_settings
from delayq.queue.control.registered import queue_names
from delayq.queue.inspecting.cold_tier import read_cold
from delayq.queue.inspecting.counts import Stats, counts_of, stats_of
from delayq.queue.inspecting.lateness_report import SLO_HOURS, SloReport, lateness_of, slo_report
from delayq.queue.inspecting.readings import read_queues, run_each
from delayq.queue.placing.layout import read_layout
from delayq.queue.placing.merged_stats import counters, stats
from delayq.queue.server_check import Memory, find_troubles, server_info
from delayq.values.lateness import LATENESS_BOUNDS, read_slo
from delayq.values.states import State

if TYPE_CHECKING:
    from delayq.broker.transport.executor import Executor


WITHIN = {"1m": 60_000, "5m": 300_000, "15m": 900_000}
"""The times ahead (ms) in which pending messages are counted that become due: for scaling before a spike."""


class QueueFigures(NamedTuple):
    """What was read of one queue."""

    stats: Stats
    counted: HourCounts
    """What consumers have ever counted."""
    due: dict[str, int]
    """Pending messages that become due within each of `WITHIN`, without those that are due."""
    cold_late: int = 0
    """Messages that should be back from the cold tier."""


def read_figures(executor: Executor, prefix: str, names: Iterable[str]) -> dict[str, QueueFigures | ServerError]:
    """Read the figures of queues, a round trip for each batch and one more; for one that Redis refuses to read, why.

    Those that are not in use are missing. Raises `UnavailableError` if Redis does not answer.
    """
    found = read_queues(
        executor,
        names,
        lambda name: Calls(Keys.of(prefix, name)),
        also=lambda calls: [read_counted(calls)],
        later=_asked_later,
    )
    return {name: one if isinstance(one, ServerError) else _figures(*one) for name, one in found.items()}


def read_server(executor: Executor) -> dict[str, str]:
    """Return the `INFO` of the server, empty if it may not be read; in a cluster that of one node."""
    (found,) = run_each(executor, [server_info()])
    return {} if isinstance(found, ServerError) else dict(found)


def _asked_later(calls: Calls, counts: CountsReply) -> list[Any]:
    """Return the requests that need the time of the server, and the hours of an objective if there is one."""
    hours = [history_call(calls, limit=SLO_HOURS)] if counts.meta.get("lateness_slo") else []
    ends = [counts.now + WITHIN[one] for one in _reached(counts)]
    cold = [read_cold(calls)] if counts_of(counts).cold else []
    return [*(RedisCommand(("ZCOUNT", calls.keys.pending, f"({counts.now}", end), int) for end in ends), *cold, *hours]


def _reached(counts: CountsReply) -> list[str]:
    """Return those of `WITHIN` in which anything becomes due."""
    return [within for within, ahead in WITHIN.items() if 0 <= counts.next_due - counts.now <= ahead]


def _figures(counts: CountsReply, counted: HourCounts, *later: Any) -> QueueFigures:
    objective = counts.meta.get("lateness_slo", "")
    slo = slo_report(objective, lateness_of(later[-1].hours)) if objective else None
    reached, stats = _reached(counts), stats_of(counts, slo=slo)
    due = dict.fromkeys(WITHIN, 0) | dict(zip(reached, later, strict=False))
    late = later[len(reached)].late(counts.now) if stats.counts.cold else {}
    return QueueFigures(stats, counted, due, sum(late.values()))


TOTALS = {
    "sent": "Messages that were sent",
    "delivered": "Messages that were claimed; each attempt counts",
    "acked": "Messages that were processed",
    "discarded": "Messages that were discarded, also by expiry",
    "nacked": "Attempts that failed",
    "expired": "Attempts whose lease ended: a worker died, froze or was cut off",
    "released": "Messages that were given back uncharged, or snoozed",
    "dead": "Messages that moved to the dead letter",
    "redriven": "Messages that were sent again from the dead letter",
    "cancelled": "Messages that were cancelled",
    "rescheduled": "Messages that got another due time",
    "missed": "Messages that expired before they started; each is also dead or discarded",
    "throttled": "Messages that a limit held back when they were due",
    "purged": "Messages that a purge deleted",
    "trimmed": "Entries of the dead letter that were deleted since it was full, or they were too old",
    "dead_imported": "Dead messages of another queue that an import put into the dead letter",
    "dead_purged": "Entries of the dead letter that a purge deleted",
    "repaired": "Messages that a repair corrected",
}
"""The totals of a queue that are metrics, `delayq_messages_sent_total` and so on: 0 until it has happened."""


STATES = [str(state.value) for state in State]
DEADLINE = 5.0
"""Seconds in which Redis has to answer: Prometheus ends a scrape after 10 s."""


class QueueCollector(Collector):
    """Reads some queues at each scrape, for a registry of prometheus-client.

    A round trip reads 250 queues. Its cost does not depend on the number of messages. A scrape raises
    `UnavailableError` if Redis does not answer within `deadline`. It needs the rights of an inspector. Thread-safe.
    """

    def __init__(self, *queues: str, pattern: str = "*", **options: Unpack[QueueOptions]) -> None:
        """Read the queues of these names, or all that match `pattern`, as soon as they are used and while they are.

        Takes the options of a queue that say where it is: `url` or `redis`, `prefix`, and `deadline`, by default 5 s.
        Raises `ConfigurationError`; connects at the first scrape.
        """
        options = {"deadline": DEADLINE, **options}
        self._queues = [check_name(name) for name in dict.fromkeys(queues)]
        self._pattern = check_pattern(pattern)
        self._prefix = check_name(options.get("prefix", "delayq"), "prefix")
        self._executor = open_executor(options, read_settings(options))

    def describe(self) -> Iterable[Metric]:
        """Return nothing, so that registering it does not ask Redis."""
        return []

    def collect(self) -> Iterable[Metric]:
        """Read the queues, and return their metrics."""
        families = Families()
        families.add_build()
        _add_server(families, read_server(self._executor))
        figures = read_figures(self._executor, self._prefix, self._names())
        for name, found in [*figures.items(), *_sums(figures)]:
            up = not isinstance(found, ServerError)
            families.gauge("delayq_queue_up", "1 if Redis lets the queue be read, else 0", up, queue=name)
            if isinstance(found, QueueFigures):
                _add_stats(families, found.stats, name)
                _add_due(families, found, name)
                _add_cold(families, found, name)
                _add_counted(families, found.counted, name)
                if found.stats.slo is not None:
                    _add_slo(families, found.stats.slo, name)
        return families

    def _names(self) -> list[str]:
        """Return the names of the queues to read, and of the partitions of those that have some."""
        if not self._queues:
            return self._executor.perform(queue_names(self._prefix, self._pattern))
        layouts = self._executor.perform(together([read_layout(self._prefix, name) for name in self._queues]))
        return [one for name, layout in zip(self._queues, layouts, strict=True) for one in layout.names(name)]

    def unready(self) -> str:
        """Return why a scrape would fail, '' if it would not."""
        try:
            self._executor.call(RedisCommand(("PING",), bool))
        except DelayqError as error:
            return str(error)
        return ""

    def close(self) -> None:
        """Close the connections."""
        self._executor.close()


def _sums(figures: Mapping[str, QueueFigures | ServerError]) -> Iterator[tuple[str, QueueFigures]]:
    """Yield the figures of each queue that has partitions, added up over those that can be read."""
    parts: dict[str, list[QueueFigures]] = {}
    for name, found in figures.items():
        if (whole := whole_name(name)) != name and isinstance(found, QueueFigures):
            parts.setdefault(whole, []).append(found)
    for whole, some in parts.items():
        counted = sum_of(one.counted for one in some)
        yield (
            whole,
            QueueFigures(stats([one.stats for one in some]), counted, dict(counters([one.due for one in some]))),
        )


def _add_server(families: Families, info: dict[str, str]) -> None:
    """Add how full the server is; nothing if it does not tell."""
    if (memory := Memory.of(info)) is None:
        return
    refuses = any(trouble.refuses for trouble in find_troubles(info, {}))
    families.gauge("delayq_redis_memory_used_bytes", "The memory of Redis that counts against its maximum", memory.used)
    families.gauge("delayq_redis_memory_max_bytes", "The maxmemory of Redis, 0 for no limit", memory.most)
    families.gauge("delayq_redis_refuses_writes", "1 if Redis refuses to store messages, else 0", refuses)


def _add_stats(families: Families, stats: Stats, queue: str) -> None:
    counts = stats.counts
    numbers = {state: getattr(counts, state) for state in STATES}
    families.gauges("delayq_messages", "Messages in a state", "state", numbers, queue=queue)
    gauges = {
        "delayq_messages_overdue": ("Messages that are due and wait for a consumer", counts.overdue),
        "delayq_queue_lag_seconds": ("How long the first message that is due has waited", stats.lag.total_seconds()),
        "delayq_queue_paused": ("1 if the queue is paused, else 0", counts.paused is not None),
        "delayq_unconsumed": ("1 if messages are due and nobody consumes, else 0", stats.nobody_consumes),
        "delayq_workers": ("Consumers that tell that they run", stats.workers),
    }
    for metric, (documentation, value) in gauges.items():
        families.gauge(metric, documentation, value, queue=queue)
    for kind, documentation in TOTALS.items():
        families.counter(f"delayq_messages_{kind}_total", documentation, stats.totals.get(kind, 0), queue=queue)
    lost = stats.totals.get("events_lost", 0)
    families.counter("delayq_events_lost_total", "Entries that the event log could not take", lost, queue=queue)


def _add_cold(families: Families, found: QueueFigures, queue: str) -> None:
    if cold := found.stats.counts.cold:
        families.gauge("delayq_cold_messages", "Messages in the cold tier", cold, queue=queue)
        documentation = "Messages that should be back from the cold tier"
        families.gauge("delayq_cold_late_messages", documentation, found.cold_late, queue=queue)


def _add_due(families: Families, found: QueueFigures, queue: str) -> None:
    documentation = "Pending messages that become due within a time from now, without those that are due"
    families.gauges("delayq_messages_due", documentation, "within", found.due, queue=queue)


def _add_counted(families: Families, counted: HourCounts, queue: str) -> None:
    bounds = [bound / 1000 for bound in LATENESS_BOUNDS]
    documentation = "How late messages started, from the due time to the first attempt, as consumers count it"
    families.histogram("delayq_message_lateness_seconds", documentation, bounds, counted.lateness, queue=queue)
    families.counter("delayq_callbacks_total", "Calls of callbacks that have ended", counted.callbacks, queue=queue)
    busy = counted.busy / 1_000_000
    families.counter("delayq_callback_seconds_total", "The time that callbacks took together", busy, queue=queue)


def _add_slo(families: Families, slo: SloReport, queue: str) -> None:
    share, within = read_slo(slo.objective)
    gauges = {
        "delayq_slo_objective_ratio": ("The share of messages that is to start in time", share),
        "delayq_slo_within_seconds": ("How late a message may start to be in time", within / 1000),
        "delayq_slo_error_budget_left_ratio": (
            "The share of the late messages that the objective allows in 30 days and that is left, below 0 if missed",
            slo.budget_left,
        ),
    }
    if slo.kept is not None:
        gauges["delayq_slo_kept_ratio"] = ("The share of messages that started in time in 30 days", slo.kept)
    for metric, (documentation, value) in gauges.items():
        families.gauge(metric, documentation, value, queue=queue)
