"""What the partitions of a queue have returned, made one answer: numbers add up, times are the first or the last."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from datetime import datetime
from typing import Any, TypeVar

from delayq.queue.inspecting.counts import Counts, Stats
from delayq.queue.inspecting.forecast import Forecast
from delayq.queue.inspecting.history import HistoryBucket, QueueHistory
from delayq.queue.inspecting.lateness_report import LatenessCounts, SloReport, slo_report
from delayq.queue.inspecting.memory_usage import MemoryUsage
from delayq.queue.inspecting.why.looked import Why
from delayq.queue.inspecting.workers import WorkerInfo
from delayq.queue.repairing.repair_report import Checkup, Finding
from delayq.queue.sweeps.bulk_runs import RunInfo

T = TypeVar("T")


def sums(values: Sequence[Any]) -> Any:
    """Return the sum of numbers."""
    return sum(values)


def any_of(values: Sequence[Any]) -> bool:
    """Return whether any is true."""
    return any(values)


def first_of(values: Sequence[T]) -> T:
    """Return the answer of the first: all have done the same."""
    return values[0]


def one_list(values: Sequence[list[T]]) -> list[T]:
    """Return the entries of all."""
    return [one for some in values for one in some]


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
        next_due=_first(one.next_due for one in values),
        oldest_due=_first(one.oldest_due for one in values),
        next_deadline=_first(one.next_deadline for one in values),
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


def workers(values: Sequence[list[WorkerInfo]]) -> list[WorkerInfo]:
    """Return each worker once, with what it holds of all partitions."""
    found: dict[str, WorkerInfo] = {}
    for one in one_list(values):
        known = found.get(one.id)
        found[one.id] = one if known is None else _together(known, one)
    return sorted(found.values(), key=lambda worker: (worker.started, worker.id))


def _together(one: WorkerInfo, other: WorkerInfo) -> WorkerInfo:
    latest = max(one, other, key=lambda worker: worker.reported)
    running = sorted((*one.running, *other.running), key=lambda message: message.since)
    return replace(latest, held=one.held + other.held, running=tuple(running))


def history(values: Sequence[QueueHistory]) -> QueueHistory:
    """Add up what was done in each hour or day."""
    rows = zip(*(one.buckets for one in values), strict=True)
    return replace(values[0], at=max(one.at for one in values), buckets=tuple(map(_bucket, rows)))


def _bucket(row: Sequence[HistoryBucket]) -> HistoryBucket:
    numbers = {
        field.name: sum(getattr(one, field.name) for one in row)
        for field in fields(HistoryBucket)
        if field.name not in ("start", "end", "busy", "lateness")
    }
    busy = sum((one.busy for one in row[1:]), row[0].busy)
    return replace(row[0], **numbers, busy=busy, lateness=lateness([one.lateness for one in row]))


def forecast(values: Sequence[Forecast]) -> Forecast:
    """Add up what fires in each period. Rates are judged for each partition only, so none is told."""
    rows = zip(*(one.buckets for one in values), strict=True)
    names = ("pending", "retries", "scheduled")
    buckets = tuple(replace(row[0], **{name: sum(getattr(one, name) for one in row) for name in names}) for row in rows)
    numbers = {
        name: sum(getattr(one, name) for one in values)
        for name in ("overdue", "throttled", "retrying", "later", "sampled", "sampled_of")
    }
    unjudged: dict[str, Any] = dict.fromkeys(("rate_limit", "clear_at", "left", "peak", "peak_at", "peak_until"))
    return replace(
        values[0],
        **numbers,
        **unjudged,
        buckets=buckets,
        names=counters([one.names for one in values]),
        scheduled_until=_first(one.scheduled_until for one in values),
        paused=next((one.paused for one in values if one.paused), None),
        left_out={name: why for one in values for name, why in one.left_out.items()},
    )


def memory_usage(values: Sequence[MemoryUsage]) -> MemoryUsage:
    """Add up the bytes of each structure."""
    total = counters([one.structures for one in values])
    largest = sorted(total, key=total.__getitem__, reverse=True)
    unknown = dict.fromkeys(name for one in values for name in one.unknown)
    return MemoryUsage({name: total[name] for name in largest}, tuple(unknown))


def checkup_of(name: str) -> Callable[[Sequence[Checkup]], Checkup]:
    """Return what makes one report of those of the partitions; each finding names its partition."""

    def merge(values: Sequence[Checkup]) -> Checkup:
        found: dict[Any, Finding] = {}
        for one in values:
            for finding in one.findings:
                is_same = (finding.kind, finding.text) in found
                key = (finding.kind, finding.text) if is_same or not finding.ids else (one.queue, finding)
                text = f"{one.queue}: {finding.text}" if finding.ids else finding.text
                found.setdefault(key, replace(finding, text=text))
        return Checkup(name, tuple(found.values()))

    return merge


def why(values: Sequence[Why]) -> Why:
    """Return the reasons of all partitions, each once."""
    reasons = {(one.kind, one.text): one for value in values for one in value.reasons}
    return replace(values[0], reasons=tuple(reasons.values()))


def runs(values: Sequence[list[RunInfo]]) -> list[RunInfo]:
    """Add up the runs of the same name, the latest first."""
    found: dict[str, list[RunInfo]] = {}
    for one in one_list(values):
        found.setdefault(one.run, []).append(one)
    return sorted(map(run, found.values()), key=lambda info: info.started, reverse=True)


def run(values: Sequence[RunInfo]) -> RunInfo:
    """Add up what became of the messages of a run."""
    names = ("new", "exists", "replaced", "running", "settled", "refused")
    numbers = {name: sum(getattr(one, name) for one in values) for name in names}
    ends = [one.ended for one in values]
    return replace(
        values[0],
        **numbers,
        started=min(one.started for one in values),
        ended=None if None in ends else max(filter(None, ends)),
    )


def added_up(kind: type[T], keep: Sequence[str] = ()) -> Callable[[Sequence[T]], T]:
    """Return what adds up records of a class: numbers are added, tuples joined; of those to `keep`, the first counts."""

    def merge(values: Sequence[T]) -> T:
        made: dict[str, Any] = {}
        for field in fields(kind):  # type: ignore[arg-type]
            cells = [getattr(one, field.name) for one in values]
            if field.name in keep or isinstance(cells[0], bool):
                made[field.name] = cells[0]
            elif isinstance(cells[0], tuple):
                made[field.name] = tuple(dict.fromkeys(cell for some in cells for cell in some))
            else:
                made[field.name] = sum(cells)
        return kind(**made)

    return merge


def _first(times: Iterable[datetime | None]) -> datetime | None:
    return min(filter(None, times), default=None)
