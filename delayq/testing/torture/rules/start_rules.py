"""The rules about starts: none over the limit of a name, and none but the trials of a breaker that has tripped.

What counts as a start is the claim, as for the server. All that is uncertain counts in favour of the queue.

Limits: a place is taken from the claim until the message is settled or its lease is over, so a killed or frozen worker
holds its places for no longer. What waits starts once its limit allows it. A claim without a reply takes no place, a
settlement that was sent may have been executed at once, and what is returned unstarted gives its start back.

Breakers: after one has tripped, a claim may take the first message when its pause is over, the second a pause after
that, and the third another pause later; from then on, or once a trial has succeeded, all may start. A claim without a
reply may have taken a trial, and a success without a reply may have let all start again.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import NamedTuple

from delayq.testing.torture.history import FaultRecord, LimitRecord
from delayq.testing.torture.rules.history_rules import Finding
from delayq.testing.torture.rules.lease_rules import certain_deadline
from delayq.testing.torture.rules.timelines import OPEN_END, History, Step, Timeline
from delayq.testing.torture.workload import key_of, priority_of

CLOCK_STEP = 1
"""The server's times are whole milliseconds: two that seem so far apart may be one more."""
ENDING = ("ack", "nack", "release", "reject")
CALL_DEADLINE = 5_000_000
"""Microseconds after which a call without a reply is executed no more: the deadline of the processes of a run."""
TRIALS = 2
"""The messages that start one by one if nobody reports how the first one has ended."""
Spans = list[tuple[int, int]]


class _Place(NamedTuple):
    """A place that a claim has taken."""

    claim: Step
    free_at: int
    """When it may be given back at the earliest (µs, as in the history)."""
    deadline: int
    """Until when its lease certainly lasts (server time, ms)."""


def starts_over_limits(history: History) -> Iterator[Finding]:
    """No more of a name run at a time, or start in a time, than its limit allows, and none while it is held back."""
    yield from _start_while_closed(history)
    limits = history.settings.limits if history.settings else {}
    by_name: dict[str, list[Step]] = defaultdict(list)
    for step in history.steps() if limits else ():
        if step.op == "claim" and step.name in limits and not _may_be_unlimited(history, step):
            by_name[step.name].append(step)
    for name, claims in by_name.items():
        if limits[name].running:
            yield from _too_many_run(history, limits[name], sorted(claims, key=lambda claim: claim.token))
        if limits[name].interval:
            yield from _too_many_start(history, limits[name], claims)
        elif limits[name].running:
            yield from _waits_for_free_places(history, limits[name], claims)


def _start_while_closed(history: History) -> Iterator[Finding]:
    """Nothing of a name starts from the reply to a callback's request until its time is over."""
    if not history.closings or (history.settings and not history.settings.closes_names):
        return
    by_name: dict[str, list[Step]] = defaultdict(list)
    for step in history.steps():
        if step.op == "claim" and step.name:
            by_name[step.name].append(step)
    for closing in history.closings:
        until = closing.began + (closing.lasts - CLOCK_STEP) * 1000
        if closing.outcome == "ok" and closing.status != "0" and not _may_be_forgotten(history, closing, until):
            for claim in by_name[closing.name]:
                if closing.ended < claim.began and claim.ended < until:
                    yield claim.id, f"{claim.name} starts while it is closed for {closing.lasts} ms", (closing, claim)


def _may_be_forgotten(history: History, closing: Step, until: int) -> bool:
    return any(
        (fault.lost and fault.lost <= closing.ended and closing.began < fault.until)
        or (fault.shift and fault.at < until and closing.began < fault.until)
        for fault in history.faults
    )


def lose_limits(history: History) -> list[FaultRecord]:
    """Return the faults by which the server may have lost the limits themselves, which are set before the settings."""
    set_at = history.settings.at if history.settings else 0
    return [fault for fault in history.faults if fault.lost and fault.lost <= set_at]


def _may_be_unlimited(history: History, claim: Step) -> bool:
    return any(claim.ended >= fault.at for fault in lose_limits(history))


def _may_be_lost(claim: Step, fault: FaultRecord) -> bool:
    """Return whether the server may have forgotten a claim."""
    return bool(fault.lost) and fault.lost <= claim.ended and claim.began < fault.until


def _too_many_run(history: History, limit: LimitRecord, claims: list[Step]) -> Iterator[Finding]:
    taken: dict[str, _Place] = {}
    for claim in claims:
        taken = {id: one for id, one in taken.items() if id != claim.id and _certainly_taken(history, one, claim)}
        taken[claim.id] = _place(history.timeline(claim.id), claim)
        if len(taken) > limit.running:
            text = f"{len(taken)} of {claim.name} run at a time, of {limit.running} at most"
            yield claim.id, text, tuple(place.claim for place in taken.values())


def _place(timeline: Timeline, claim: Step) -> _Place:
    # The first ack of a life counts, under whichever of its tokens.
    ends = [step for step in timeline.of(*ENDING) if step.possible and (step.op == "ack" or step.token == claim.token)]
    free_at = min((step.began for step in ends if step.ended > claim.began), default=OPEN_END)
    return _Place(claim, free_at, certain_deadline(timeline, claim))


def _certainly_taken(history: History, place: _Place, claim: Step) -> bool:
    """Return whether a place is certainly taken when a later claim is executed."""
    if place.free_at < claim.ended or place.deadline <= claim.server:
        return False
    for fault in history.faults:
        if fault.shift and fault.until > place.claim.began and fault.at < claim.ended:
            return False  # leases may have ended by a clock that was set back since
        if _may_be_lost(place.claim, fault) and claim.ended >= fault.at:
            return False
    return not any(purge.ended > place.claim.began and purge.began < claim.ended for purge in history.purges)


def _too_many_start(history: History, limit: LimitRecord, claims: list[Step]) -> Iterator[Finding]:
    """Count starts from one fault to the next: one that sets the clock, or after which a state before it counts."""
    breaks = sorted((fault for fault in history.faults if fault.shift or fault.lost), key=lambda fault: fault.at)
    for number in range(len(breaks) + 1):
        ends_at = breaks[number].at if number < len(breaks) else OPEN_END
        counted = [
            claim
            for claim in claims
            if claim.ended < ends_at
            and not _may_be_given_back(history.timeline(claim.id), claim)
            and not any(_may_be_lost(claim, one) or (one.shift and claim.began < one.until) for one in breaks[:number])
        ]
        since = breaks[number - 1].at if number else 0
        yield from _over_pace(limit, counted, since)


def _may_be_given_back(timeline: Timeline, claim: Step) -> bool:
    """Return whether a worker returned a message without having started it: then another may start in its place."""
    started = any(step.token == claim.token for step in timeline.of("start"))
    return not started and any(step.op == "release" and step.possible for step in timeline.settlements(claim))


def _over_pace(limit: LimitRecord, claims: Iterable[Step], since: int) -> Iterator[Finding]:
    """Yield what starts too soon: of any starts in a row, no more than the burst and what the pace allows meanwhile.

    A claim was executed between its beginning and the server's time in its reply, which is later if its reply was lost.
    """
    earliest = {claim.token: claim.server - math.ceil((claim.ended - claim.began) / 1000) for claim in claims}
    ordered = sorted(claims, key=lambda claim: earliest[claim.token])
    latest, lowest, first = -math.inf, math.inf, 0
    for number, claim in enumerate(ordered):
        latest = max(latest, claim.server + CLOCK_STEP)
        before = number - earliest[claim.token] * 1000 / limit.interval
        if before < lowest:
            lowest, first = before, number
        surplus = number + 1 - latest * 1000 / limit.interval - lowest - limit.burst
        if surplus > 0 and claim.ended >= since:
            lasting = latest - earliest[ordered[first].token]
            count = number + 1 - first
            text = f"{count} of {claim.name} start within {lasting:.0f} ms"
            yield claim.id, text, tuple(ordered[first : number + 1])
            lowest = math.inf  # the next finding is one of its own


def _waits_for_free_places(history: History, limit: LimitRecord, claims: list[Step]) -> Iterator[Finding]:
    """Yield what waited for half a lease although a place was certainly free and its consumers went on."""
    lease = (history.settings.lease if history.settings else 0) * 1000
    held = [(claim.began, _free_at_last(history.timeline(claim.id), claim, lease)) for claim in claims]
    blocked = [(fault.at, fault.until + lease) for fault in history.faults]
    blocked += [(one.began, min(one.ended, one.began + CALL_DEADLINE) + lease) for one in history.unknown_claims]
    for claim, since in _waited(history, [claim for claim in claims if not key_of(claim.id)]):
        for free_from, free_until in _free_times(limit.running, held, blocked, since, claim.began):
            if 2 * (free_until - free_from) > lease and _goes_on(history, claim, free_from, free_until):
                text = f"waited {(free_until - free_from) / 1000:.0f} ms though a place of {claim.name} was free"
                yield claim.id, text, (*history.timeline(claim.id).of("send"), claim)
                break


def _free_at_last(timeline: Timeline, claim: Step, lease: int) -> int:
    """Return when the place of a claim was free at the latest (µs)."""
    settled = [one.ended for one in timeline.settlements(claim) if one.op in ENDING and one.certain]
    settled += [one.ended for one in timeline.of("ack") if one.certain and one.ended > claim.began]
    if settled:
        return min(settled)
    extended = [min(one.ended, one.began + CALL_DEADLINE) for one in timeline.settlements(claim) if one.op == "extend"]
    return max([claim.ended, *extended]) + lease


def _waited(history: History, claims: list[Step]) -> Iterator[tuple[Step, int]]:
    """Yield the first claims of messages that were sent once, with when they were due and stored (µs)."""
    first = {claim.id: claim for claim in reversed(claims)}
    for claim in first.values():
        timeline = history.timeline(claim.id)
        changes = timeline.of("send", "reschedule", "cancel", "redrive")
        if len(changes) == 1 and changes[0].certain and timeline.claims()[0] is claim:
            yield claim, max(changes[0].ended, claim.ended - (claim.server - claim.due) * 1000)


def _free_times(places: int, held: Spans, blocked: Spans, since: int, until: int) -> Iterator[tuple[int, int]]:
    """Yield the times within a time in which fewer places were held than there are, and nothing was uncertain."""
    changes = [(at, by) for begins, ends in held for at, by in ((begins, 1), (ends, -1))]
    changes += [(at, by) for begins, ends in blocked for at, by in ((begins, places), (ends, -places))]
    taken, free_from = 0, since
    for at, by in sorted([*changes, (until, places)]):
        at_most = min(at, until)
        if taken < places <= taken + by and at_most > free_from:
            yield free_from, at_most
        elif taken + by < places <= taken:
            free_from = max(since, at)
        taken += by


def _goes_on(history: History, waiting: Step, since: int, until: int) -> bool:
    """Return whether consumers had time for a message: they claimed what comes after it meanwhile, or none at all.

    What is due later comes after it, unless its priority is higher.
    """
    others = [claim for claim in history.claims() if since <= claim.began < until]
    priority = priority_of(waiting.name)
    return not others or any(claim.due > waiting.due and priority_of(claim.name) <= priority for claim in others)


def starts_of_tripped(history: History) -> Iterator[Finding]:
    """While a breaker has tripped, nothing of its scope is claimed but its trials."""
    trips = [one for one in history.breaks if one.lasts and one.outcome == "ok" and one.status == "1"]
    claims = [step for step in history.steps() if step.op == "claim"] if trips else []
    claims.sort(key=lambda claim: claim.token)
    for name in {trip.name for trip in trips}:
        of_name = [claim for claim in claims if name in ("", claim.name)]
        for trip in trips:
            if trip.name == name:
                yield from _starts_too_soon(history, trip, of_name)


def _starts_too_soon(history: History, trip: Step, claims: list[Step]) -> Iterator[Finding]:
    """Yield the first claim after a breaker has tripped that comes too soon, if there is one."""
    pause = trip.lasts - 2 * CLOCK_STEP  # the ends of a pause and its beginning are rounded
    scope, over = trip.name or "the queue", trip.began + pause * 1000
    later = [claim for claim in claims if claim.began > trip.ended]
    within = next((claim for claim in later if claim.ended < over), None)
    if within is not None and not _may_be_over(history, trip, within):
        yield within.id, f"claimed within {trip.lasts} ms after the breaker of {scope} has tripped", (trip, within)
        return
    # A claim that was under way when it tripped, and whose reply came after the pause, may have taken a trial.
    unseen = sum(claim.began <= trip.ended and claim.ended >= over for claim in claims)
    for number, (before, after) in enumerate(pairwise(later[: TRIALS + 1]), 1):
        if number + unseen + history.unknown_claims_between(trip, after) > TRIALS or _may_be_over(history, trip, after):
            return
        earliest = before.server - math.ceil((before.ended - before.began) / 1000)
        if after.server - earliest < pause:
            text = f"claimed within {trip.lasts} ms after the trial of {scope}, {before.id}"
            yield after.id, text, (trip, before, after)
            return


def _may_be_over(history: History, trip: Step, claim: Step) -> bool:
    """Return whether a breaker may let start what it should hold back, since somebody or a fault has changed it."""
    changes = (one for one in history.breaks if one.name == trip.name and one.lasts < trip.lasts and one.possible)
    if any(one.ended > trip.began and one.began < claim.ended for one in changes):
        return True
    faults = (fault for fault in history.faults if trip.began < fault.until)
    return any((one.lost and one.lost <= claim.ended) or (one.shift and one.at < claim.ended) for one in faults)
