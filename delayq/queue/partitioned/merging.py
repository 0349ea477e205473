"""What the partitions of a queue have returned, made one answer: numbers add up, times are the first or the last."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any, TypeVar

from delayq.queue.inspecting.forecast import Forecast
from delayq.queue.inspecting.history import QueueHistory, sum_of_buckets
from delayq.queue.inspecting.memory_usage import MemoryUsage
from delayq.queue.inspecting.why.looked import Looked
from delayq.queue.inspecting.workers import WorkerInfo
from delayq.queue.placing.merged_stats import counters, first_time, stats
from delayq.queue.repairing.repair_report import Checkup, Finding, FindingKind
from delayq.queue.sweeps.bulk_runs import RunInfo

T = TypeVar("T")


def first_of(values: Sequence[T]) -> T:
    """Return the answer of the first: all have done the same."""
    return values[0]


def one_list(values: Sequence[list[T]]) -> list[T]:
    """Return the entries of all."""
    return [one for some in values for one in some]


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
    return replace(values[0], at=max(one.at for one in values), buckets=tuple(map(sum_of_buckets, rows)))


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
        scheduled_until=first_time(one.scheduled_until for one in values),
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
    """Return what makes one report of those of the partitions; a finding with ids names its partition."""

    def merge(values: Sequence[Checkup]) -> Checkup:
        found: dict[tuple[FindingKind, str], Finding] = {}
        for one in values:
            for finding in one.findings:
                text = f"{one.queue}: {finding.text}" if finding.ids else finding.text
                found.setdefault((finding.kind, text), replace(finding, text=text))
        return Checkup(name, tuple(found.values()))

    return merge


def looked_at(found: Sequence[Looked]) -> Looked:
    """Return what was read of a queue, by what was read of its partitions."""
    paused = next((one.meta for one in found if "paused" in one.meta), found[0].meta)
    limits = {scope: limit for one in found for scope, limit in one.limits.items()}
    return Looked(stats([one.stats for one in found]), paused, limits, workers([list(one.workers) for one in found]))


def runs(values: Sequence[list[RunInfo]]) -> list[RunInfo]:
    """Add up the runs of the same name, the latest first."""
    found: dict[str, list[RunInfo]] = {}
    for one in one_list(values):
        found.setdefault(one.run, []).append(one)
    return sorted(map(merged_run, found.values()), key=lambda info: info.started, reverse=True)


def merged_run(values: Sequence[RunInfo]) -> RunInfo:
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


def added_up(kind: type[T]) -> Callable[[Sequence[T]], T]:
    """Return what adds up records of a class: numbers are added, tuples joined; switches are those of the first."""

    def merge(values: Sequence[T]) -> T:
        made: dict[str, Any] = {}
        for field in fields(kind):  # type: ignore[arg-type]
            cells = [getattr(one, field.name) for one in values]
            if isinstance(cells[0], bool):
                made[field.name] = cells[0]
            elif isinstance(cells[0], tuple):
                made[field.name] = tuple(dict.fromkeys(cell for some in cells for cell in some))
            else:
                made[field.name] = sum(cells)
        return kind(**made)

    return merge
