"""Counts, stats and lateness over the partitions of a queue: numbers add up, times are the first or the last."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from delayq.broker.keys import whole_name
from delayq.errors import ServerError
from delayq.queue.inspecting.counts import Counts, Stats
from delayq.queue.inspecting.lateness_report import LatenessCounts, SloReport, slo_report


def merged_stats(found: Mapping[str, Stats | ServerError]) -> dict[str, Stats | ServerError]:
    """Return the stats of queues, by name, from those of plain queues and of partitions; an error is of the whole."""
    parts: dict[str, list[Stats | ServerError]] = {}
    for name, one in found.items():
        parts.setdefault(whole_name(name), []).append(one)
    merged: dict[str, Stats | ServerError] = {}
    for name, some in parts.items():
        error = next((one for one in some if isinstance(one, ServerError)), None)
        read = [one for one in some if isinstance(one, Stats)]
        merged[name] = error or (read[0] if len(read) == 1 else stats(read))
    return merged


def counters(values: Sequence[Mapping[Any, int]]) -> Mapping[Any, int]:
    """Return the sums by key."""
    total: Counter[Any] = Counter()
    for value in values:
        total.update(value)
    return dict(total)


def counts(values: Sequence[Counts]) -> Counts:
    """Add up how many messages are in each state."""
    numbers = {name: sum(getattr(one, name) for one in values) for name in Counts.__slots__ if name != "paused"}
    return Counts(**numbers, paused=next((one.paused for one in values if one.paused), None))


def stats(values: Sequence[Stats]) -> Stats:
    """Add up counts and totals. A worker serves all partitions, and counts once."""
    return Stats(
        counts=counts([one.counts for one in values]),
        at=max(one.at for one in values),
        next_due=first_time(one.next_due for one in values),
        oldest_due=first_time(one.oldest_due for one in values),
        next_deadline=first_time(one.next_deadline for one in values),
        last_claim=max(filter(None, (one.last_claim for one in values)), default=None),
        held=sum(one.held for one in values),
        workers=max(one.workers for one in values),
        heard=max(one.heard for one in values),
        totals=counters([one.totals for one in values]),
        lateness=lateness([one.lateness for one in values]),
        slo=_slo([one.slo for one in values if one.slo is not None]),
        limited=any(one.limited for one in values),
    )


def lateness(values: Iterable[LatenessCounts]) -> LatenessCounts:
    """Add up how late messages started."""
    return LatenessCounts(tuple(map(sum, zip(*(one.numbers for one in values), strict=True))))


def _slo(values: Sequence[SloReport]) -> SloReport | None:
    """Return how an objective was kept over all partitions."""
    if not values:
        return None
    counted, late = sum(one.counted for one in values), sum(one.late for one in values)
    empty = slo_report(values[0].objective, LatenessCounts())
    if empty is None or not counted:
        return values[0]
    allowed = next(((one.late / (1 - one.budget_left)) / one.counted for one in values if one.late), None)
    left = 1.0 if allowed is None else round(1 - late / (counted * allowed), 9)
    return SloReport(values[0].objective, counted, late, 1 - late / counted, left)


def first_time(times: Iterable[datetime | None]) -> datetime | None:
    """Return the first of some times; None if there is none."""
    return min(filter(None, times), default=None)
