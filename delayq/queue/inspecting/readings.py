"""Reads many queues at a time: their counts, and what else is asked of each; rates from a few such readings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from delayq.broker.batches import batched
from delayq.broker.calls import Calls
from delayq.broker.replies import CountsReply
from delayq.broker.stored_presence import HOUR, HoursReply, sum_of
from delayq.errors import DelayqError, ServerError
from delayq.queue.inspecting.counts import Stats

if TYPE_CHECKING:
    from delayq.broker.transport.executor import Executor

C = TypeVar("C", bound=Calls)
READ_TOGETHER = 250
"""Queues that are read in one round trip: their replies take a few hundred kilobytes."""
RATES_OVER = timedelta(seconds=10)
"""How far back the beginning of a rate lies, at least once so much is known."""


def read_queues(
    executor: Executor,
    names: Iterable[str],
    calls_of: Callable[[str], C],
    *,
    also: Callable[[C], Sequence[Any]] = lambda _: (),
    later: Callable[[C, CountsReply], Sequence[Any]] = lambda *_: (),
) -> dict[str, list[Any] | ServerError]:
    """Read the counts of queues and the replies to `also` and `later`; for one that Redis refuses to read, why.

    Queues that are not in use are missing. What a queue is asked for `later`, when its counts are known, goes with the
    next round trip. Raises `UnavailableError` if Redis does not answer.
    """
    found: dict[str, list[Any] | ServerError] = {}
    waiting: list[tuple[str, list[Any], Sequence[Any]]] = []
    for batch in chain(batched(names, READ_TOGETHER), [[]]):
        calls = [calls_of(name) for name in batch]
        asked = [[one.counts(), *also(one)] for one in calls]
        replies = iter(run_each(executor, [*chain(*asked), *chain(*(requests for *_, requests in waiting))]))
        known = [[*islice(replies, len(requests))] for requests in asked]
        for name, parts, requests in waiting:
            parts.extend(islice(replies, len(requests)))
            found[name] = next((part for part in parts if isinstance(part, ServerError)), parts)
        waiting = []
        for name, one, parts in zip(batch, calls, known, strict=True):
            if any(isinstance(part, ServerError) for part in parts):
                waiting.append((name, parts, ()))
            elif parts[0].in_use:
                waiting.append((name, parts, later(one, parts[0])))
    return found


def run_each(executor: Executor, requests: list[Any]) -> list[Any]:
    """Return the replies, with the errors of what Redis refuses; raise any other error."""
    replies = executor.run(requests) if requests else []
    for reply in replies:
        if isinstance(reply, DelayqError) and not isinstance(reply, ServerError):
            raise reply
    return replies


class Rates(NamedTuple):
    """What happens to the messages of a queue per second, lately."""

    sent: float
    acked: float
    failed: float


class MeanRates(NamedTuple):
    """What consumers did per second, on average, in the current hour, or if that is young in the last one as well."""

    acked: float
    failed: float


YOUNG = 600_000
"""Milliseconds for which an hour alone says little."""


def mean_rates(recent: HoursReply) -> MeanRates:
    """Return the rates of the hours that were counted last, of which the first is the current one."""
    current = max(1, recent.now % HOUR)
    used = recent.hours[: 1 if current >= YOUNG else 2]
    seconds = (current + HOUR * max(0, len(used) - 1)) / 1000
    counts = sum_of(one for one in used if one is not None)
    return MeanRates(counts.acked / seconds, (counts.nacked + counts.rejected) / seconds)


@dataclass(slots=True)
class Readings:
    """The last reading of a queue, and those before it from which its rates are."""

    stats: Stats | None = None
    earlier: tuple[Stats, ...] = ()
    """What was read before, the oldest first."""

    def update(self, stats: Stats) -> None:
        """Take what was read now."""
        known = (*self.earlier, stats)
        old = [one for one in known if stats.at - one.at >= RATES_OVER]
        self.earlier = known[max(0, len(old) - 1) :]
        self.stats = stats

    @property
    def rates(self) -> Rates | None:
        """The rates since the oldest reading; None if there is one reading only."""
        if self.stats is None or not self.earlier or self.earlier[0].at >= self.stats.at:
            return None
        first, seconds = self.earlier[0], (self.stats.at - self.earlier[0].at).total_seconds()
        now, before = self.stats.totals, first.totals
        sent, acked, failed, expired = (
            max(0, now.get(kind, 0) - before.get(kind, 0)) / seconds for kind in ("sent", "acked", "nacked", "expired")
        )
        return Rates(sent, acked, failed + expired)
