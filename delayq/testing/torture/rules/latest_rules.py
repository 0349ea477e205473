"""The rule about `after_outage="latest"`: of the due messages of one id prefix, the latest is delivered, no other.

The consumer asks between the claim of a message and its start which of those that it has claimed are superseded. So a
message must not start if a later one of its prefix had started when it was claimed, or waited and was due all the time;
and it is missed only if there was a later one. That none is lost and none delivered twice say the rules about each
message. All that is uncertain counts in favour of the queue.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from delayq.testing.torture.rules.history_rules import Finding
from delayq.testing.torture.rules.limit_rules import CLOCK_STEP, ENDING
from delayq.testing.torture.rules.timelines import OPEN_END, History, Step, Timeline
from delayq.testing.torture.workload import prefix_of

_REQUESTS = ("send", "reschedule")


class _Delivery(NamedTuple):
    """A message that has started, with its claim."""

    claim: Step
    start: Step


def superseded(history: History) -> Iterator[Finding]:
    """Of the due messages of one prefix no other than the latest starts, and the latest is not missed."""
    by_prefix: dict[str, list[Timeline]] = defaultdict(list)
    for timeline in history.timelines.values():
        if prefix := prefix_of(timeline.id):
            by_prefix[prefix].append(timeline)
    for timelines in by_prefix.values():
        started = [one for timeline in timelines for one in _started(timeline)]
        waiting = [wait for timeline in timelines if (wait := _certain_wait(timeline)) is not None]
        for one in started:
            yield from _start_superseded(history, one, started, waiting)
        requests = [step for timeline in timelines for step in timeline.of(*_REQUESTS) if step.possible]
        for timeline in timelines:
            yield from _miss_the_latest(history, timeline, requests)


def _started(timeline: Timeline) -> Iterator[_Delivery]:
    """Yield the deliveries that have started, up to the first redrive: a redriven message is not superseded."""
    claims = {claim.token: claim for claim in timeline.of("claim")}
    redriven = min((step.began for step in timeline.of("redrive") if step.possible), default=OPEN_END)
    for start in timeline.of("start"):
        if start.token in claims and start.began < redriven:
            yield _Delivery(claims[start.token], start)


class _Wait(NamedTuple):
    """A message that certainly waits from its send until `until` (µs)."""

    send: Step
    until: int


def _certain_wait(timeline: Timeline) -> _Wait | None:
    """Return how long a message waits that was sent once: until something else may have happened to it."""
    steps = [step for step in timeline.steps if step.op not in ("claim", "extend")]
    if not steps or steps[0].op != "send" or not steps[0].certain:
        return None
    return _Wait(steps[0], min((step.began for step in steps[1:]), default=OPEN_END))


def _start_superseded(
    history: History, one: _Delivery, started: list[_Delivery], waiting: list[_Wait]
) -> Iterator[Finding]:
    claim, start = one
    for fault in history.faults:
        # When the consumer asked, what was due may not have been due, or what has started may have been due later.
        over = fault.until + max(-fault.shift, 0) * 1000
        if fault.shift and fault.at < start.began and claim.began < over:
            return
    for other in started:
        is_later = claim.due < other.claim.due <= claim.server and other.start.began < claim.began
        if is_later and not _may_be_forgotten(history, other):
            text = f"started after {other.claim.id}, which was due {other.claim.due - claim.due} ms later"
            yield claim.id, text, (other.claim, other.start, claim, start)
            return
    for send, until in waiting:
        if claim.due < send.due <= claim.server and send.ended < claim.began and start.began < until:
            text = f"started while {send.id} waited, which was due {send.due - claim.due} ms later"
            yield claim.id, text, (send, claim, start)
            return


def _may_be_forgotten(history: History, one: _Delivery) -> bool:
    """Return whether the server may have forgotten that a message was to start, which it has noted before."""
    return any(
        fault.lost and fault.lost <= one.start.began and one.claim.began < fault.until for fault in history.faults
    )


def _miss_the_latest(history: History, timeline: Timeline, requests: list[Step]) -> Iterator[Finding]:
    claims = {claim.token: claim for claim in timeline.of("claim")}
    for step in timeline.of(*ENDING):
        if not step.missed or (claim := claims.get(step.token)) is None:
            continue
        asked_by = claim.server + (step.began - claim.began) // 1000 + CLOCK_STEP
        asked_by += sum(abs(fault.shift) for fault in history.faults)
        if not any(claim.due < one.due <= asked_by and one.began < step.began for one in requests):
            yield timeline.id, "missed, though nothing of its prefix was due later", (claim, step)
