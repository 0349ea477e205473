"""`limits` of a partitioned queue: that of the whole queue, which `sharing` shares out, and those of keys.

What their methods return is a result, or of an asyncio queue what is awaited.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from delayq._parity import mirrors
from delayq.broker.calls import QUEUE, is_template
from delayq.broker.transport.operation import Operation
from delayq.errors import ConfigurationError
from delayq.queue.control.limit_calls import limits_page_call
from delayq.queue.control.limits import Limit, Limits, limit_of
from delayq.queue.inspecting.why.looked import Looked, Reason, ScopeLimit, Why
from delayq.queue.inspecting.why.queue_reasons import reasons_of_queue
from delayq.queue.inspecting.why.why import look, why
from delayq.queue.partitioned import merging
from delayq.queue.partitioned.partition import Unperformed
from delayq.queue.partitioned.routing import at_each
from delayq.queue.sharing.sharing import share_now, whole_of
from delayq.values.text import clean

_PAGE = 10


def refuse_name(name: object) -> ConfigurationError:
    """Return the error of a limit by name: each partition would have its own."""
    return ConfigurationError(
        f"a limit of the name {clean(str(name))} would count in each partition by itself: limit the keys of such "
        "messages by a template, as in limits.set('account:*', running=2), or the whole queue, as in "
        "limits.set(running=50); see `delayq docs limits`"
    )


def check_names(names: Iterable[str | None]) -> None:
    """Raise `ConfigurationError` for a task with a limit of its own."""
    for name in names:
        if name is not None:
            raise refuse_name(name)


class PartitionedLimits:
    """The limit of the whole queue, and those of keys, whose messages are in one partition each; see `Limits`."""

    def __init__(self, queue: Any) -> None:
        """Store the limit of the whole queue with the queue, not with its partitions."""
        self._queue = queue
        self._whole: Any = Limits(queue.context, Unperformed())

    @mirrors(Limits.list)
    def list(self) -> Any:
        return self._queue._perform(self._list())  # noqa: SLF001 - as all views

    @mirrors(Limits.set)
    def set(self, name: str | None = None, **how: Any) -> Any:
        if name is None:
            return self._queue._perform(self._change(lambda limits: limits.set(None, **how)))  # noqa: SLF001

        def make(one: Any) -> Any:
            if self._is_shared and not (isinstance(name, str) and is_template(name)):
                raise refuse_name(name)
            return Limits.set(one.limits, name, **how)

        return self._queue.perform_all(make, merging.first_of)

    @mirrors(Limits.remove)
    def remove(self, name: str | None = None) -> Any:
        if name is None:
            return self._queue._perform(self._change(lambda limits: limits.remove(None)))  # noqa: SLF001
        return self._queue.perform_all(lambda one: Limits.remove(one.limits, name), any)

    @property
    def _is_shared(self) -> bool:
        return bool(self._queue.layout.partitions > 1)

    def _change(self, change: Any) -> Operation[Any]:
        if not self._is_shared:
            return (yield from change(self._queue.partitions[0].limits))
        result = yield from change(self._whole)
        yield from share_now(self._queue)
        return result

    def _list(self) -> Operation[Any]:
        found: list[list[Limit]] = yield from at_each(self._queue.partitions, lambda one: one.limits.list())
        merged = {limit.name: limit for limit in _merged(found)}
        if self._is_shared:
            shares = merged.pop(None, None)
            whole: Limit | None = next((one for one in (yield from self._whole.list()) if one.name is None), None)
            limit = whole_limit(whole, shares)
            merged |= {None: limit} if limit else {}
        return sorted(merged.values(), key=lambda limit: (limit.name is not None, limit.name or ""))


def _merged(values: Sequence[Sequence[Limit]]) -> Sequence[Limit]:
    found: dict[str | None, Limit] = {}
    for one in (limit for some in values for limit in some):
        known = found.get(one.name, replace(one, throttled=0, active=0))
        found[one.name] = replace(
            one,
            throttled=known.throttled + one.throttled,
            active=known.active + one.active,
            closed_until=_latest(known.closed_until, one.closed_until),
            tripped_until=_latest(known.tripped_until, one.tripped_until),
            spread_until=_latest(known.spread_until, one.spread_until),
        )
    return [*found.values()]


def _latest(*times: datetime | None) -> datetime | None:
    return max((at for at in times if at is not None), default=None)


def whole_limit(whole: Limit | None, shares: Limit | None) -> Limit | None:
    """Return the limit of the whole queue, with what runs in all partitions and until when callbacks closed some."""
    if shares is None:
        return whole
    times = {name: getattr(shares, name) for name in ("closed_until", "tripped_until", "spread_until")}
    if whole is not None:
        return replace(whole, active=shares.active, **times)
    nothing: dict[str, Any] = {"rate_limit": None, "burst": 1, "running": None, "declared": None}
    return replace(shares, **nothing) if any(times.values()) else None


# Why


def why_queue(queue: Any) -> Operation[Why]:
    """Say why the queue gives out nothing, or not everything: by its own limit, not by the shares."""
    found: list[tuple[Looked, Any]] = yield from at_each(queue.partitions, lambda one: look(one.context))
    looked = merging.looked_at([one for one, _ in found])
    if queue.layout.partitions > 1:
        shares = [one.limits[QUEUE] for one, _ in found if QUEUE in one.limits]
        whole = yield from _read_whole(queue)
        merged = _merged([[one.limit] for one in shares])
        limit = whole_limit(whole, merged[0] if merged else None)
        limits = {scope: one for scope, one in looked.limits.items() if scope != QUEUE}
        starts = [one.next_start for one, in_one in zip(shares, found, strict=False) if in_one[0].stats.counts.overdue]
        if limit is not None:
            next_start = min((at for at in starts if at is not None), default=None) if all(starts) else None
            limits[QUEUE] = ScopeLimit(limit, next_start, 0)
        looked.limits = limits
    return Why(None, None, looked.at, tuple(reasons_of_queue(looked)))


def why_message(queue: Any, partition: Any, id: str) -> Operation[Why]:
    """Say why a message waits; where that is the share of its partition, name the limit of the whole queue."""
    found = yield from why(partition.context, id)
    if queue.layout.partitions == 1 or not any(map(_is_share, found.reasons)):
        return found
    whole = yield from _read_whole(queue)
    if whole is None:
        return found
    parts = [f"rate_limit={whole.rate_limit}"] if whole.rate_limit else []
    parts += [f"running={whole.running:,}"] if whole.running else []
    limit = f"the limit of the queue, {' and '.join(parts)}"
    text = f"{limit}, is shared out by what waits, and the share of {partition.name} is used"
    reasons = [replace(one, text=text, until=None) if _is_share(one) else one for one in found.reasons]
    return replace(found, reasons=tuple(dict.fromkeys(reasons)))


def _is_share(reason: Reason) -> bool:
    return reason.name is None and reason.kind in ("rate", "running")


def _read_whole(queue: Any) -> Operation[Limit | None]:
    (page,) = yield [limits_page_call(queue.context.calls, "0", limit=_PAGE)]
    stored = whole_of(page.limits)
    return None if stored is None or not stored.text else limit_of(stored, page.now)
