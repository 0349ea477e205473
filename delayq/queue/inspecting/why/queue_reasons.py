"""Why a queue gives out nothing now, or not everything."""

from __future__ import annotations

from collections.abc import Iterator

from delayq.broker.calls import scope_of
from delayq.queue.inspecting.why.looked import Looked, Reason
from delayq.values.text import clean, pluralize

MAX_NAMES = 5
"""Names that are told of those that hold back messages."""


def reasons_of_queue(looked: Looked) -> Iterator[Reason]:
    """Yield why a queue gives out nothing now, or not everything."""
    counts, stats = looked.stats.counts, looked.stats
    found = [
        *looked.pauses(None),
        *looked.limiting("queue"),
        *(looked.nobody() if counts.living else ()),
        *_names(looked),
    ]
    yield from found
    if counts.overdue and not found:
        yield from looked.busy()
    if stats.next_deadline is not None and stats.next_deadline <= stats.at and not stats.counts.paused:
        text = f"a lease or a wait for a retry ended at {looked.time(stats.next_deadline)}, and no consumer has looked"
        yield Reason("lease expired", text)
    if counts.active:
        yield Reason("held", f"{_are(counts.active)} held by consumers")
    if counts.backoff:
        yield Reason("retry", f"{_are(counts.backoff)} sent back, to be delivered again later")
    if counts.garbage:
        yield Reason("spent", f"{_are(counts.garbage)} without retries: a consumer will move them to the dead letter")
    if counts.pending and stats.next_due is not None:
        text = f"{_are(counts.pending)} not due yet: the next is at {looked.time(stats.next_due)}"
        yield Reason("due", text, stats.next_due)
    if counts.cold:
        yield Reason("cold", f"{_are(counts.cold)} in the cold tier, until shortly before they are due")
    if not counts.living:
        dead = f", and {pluralize(counts.dead, 'message')} in the dead letter" if counts.dead else ""
        yield Reason("empty", f"the queue has no messages{dead}")


def _names(looked: Looked) -> Iterator[Reason]:
    """Yield what holds back messages with a name, the most first."""
    names = [one.limit for one in looked.limits.values() if one.limit.name is not None and one.limit.throttled]
    names.sort(key=lambda limit: (-limit.throttled, limit.name))
    for limit in names[:MAX_NAMES]:
        for reason in (*looked.pauses(limit.name), *looked.limiting(scope_of(limit.name))):
            held = f"{_are(limit.throttled)} held back: "
            yield Reason(reason.kind, held + reason.text, reason.until, reason.name, reason.ids)
    if rest := names[MAX_NAMES:]:
        held = pluralize(sum(limit.throttled for limit in rest), "message")
        such = f"such as {clean(rest[0].name or '')}"
        text = f"limits or pauses of {pluralize(len(rest), 'other name')} hold back {held}, {such}"
        yield Reason("throttled", text)


def _are(number: int) -> str:
    return f"{pluralize(number, 'message')} {'is' if number == 1 else 'are'}"
