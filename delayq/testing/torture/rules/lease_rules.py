"""The rule about leases: one at a time for a message, kept by its consumer, and nothing starts after its end."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise

from delayq.testing.torture.history import FaultRecord
from delayq.testing.torture.rules.timelines import OPEN_END, History, Step, Timeline

Findings = Iterator[tuple[str, tuple[Step, ...]]]


def leases(history: History, timeline: Timeline) -> Findings:
    """Tokens rise, each is issued once, at any instant there is one valid lease, and a consumer keeps those it has."""
    yield from _ended_undisturbed(history, timeline)
    yield from _started_after_its_end(history, timeline)
    for before, after in pairwise(timeline.claims()):
        if before.token == after.token:
            yield f"token {after.token} was issued twice", (before, after)
        elif after.ended < before.began and not (history.rolled_back and history.set_back):
            yield f"token {before.token} was issued after the higher {after.token}", (after, before)
        elif not history.rolled_back and not _lease_over(history, timeline, before, after):
            yield "delivered while another lease was valid", (before, after)


def _lease_over(history: History, timeline: Timeline, before: Step, after: Step) -> bool:
    if after.server + sum(abs(fault.shift) for fault in history.faults) >= certain_deadline(timeline, before):
        return True
    settled = [step for step in timeline.settlements(before) if step.op != "extend"]
    if possibly_between(settled, before, after):
        return True
    return timeline.new_life_between(before, after) or possibly_between(
        timeline.of("ack", "cancel", "dead_purge"), before, after
    )


def possibly_between(steps: list[Step], before: Step, after: Step) -> bool:
    """Return whether one of these steps may have happened between two deliveries."""
    return any(step.possible and step.began < after.ended and step.ended > before.began for step in steps)


def certain_deadline(timeline: Timeline, claim: Step) -> int:
    """Return until when a lease certainly lasted, unless its holder gave it up (ms)."""
    deadline = claim.deadline
    for extend in timeline.of("extend"):
        if extend.token == claim.token and extend.certain and claim.ended < OPEN_END:
            passed = (extend.began - claim.ended) // 1000
            deadline = max(deadline, claim.server + passed + extend.lease)
    return deadline


def disturbance(history: History, process: str, since: int, until: int) -> FaultRecord | None:
    """Return a fault that may have broken the leases of a process in a time."""
    breaking = (fault for fault in history.faults if fault.breaks_leases and fault.process in ("", process))
    return next((fault for fault in breaking if fault.at < until and fault.until > since), None)


def _ended_undisturbed(history: History, timeline: Timeline) -> Findings:
    """What a consumer holds, started or not, is not delivered again while nothing disturbs that consumer."""
    if history.rolled_back or history.purges:
        return
    over = timeline.of("ack", "cancel", "dead_purge")
    for before, after in pairwise(timeline.claims()):
        ends = [*over, *(step for step in timeline.settlements(before) if step.op != "extend")]
        if timeline.new_life_between(before, after) or possibly_between(ends, before, after):
            continue
        if before.token != after.token and disturbance(history, before.process, before.began, after.ended) is None:
            yield "delivered again, though nothing disturbed the consumer that held it", (before, after)


def _started_after_its_end(history: History, timeline: Timeline) -> Findings:
    """Once its lease has ended nothing starts, and a callback under way is told so.

    A process may be frozen between the look at the lease and the callback: each of its threads may start one message.
    """
    if history.rolled_back:
        return
    claims = {claim.token: claim for claim in timeline.of("claim")}
    for start in timeline.of("start"):
        claim = claims.get(start.token)
        if claim is None or history.shifted_between(claim.began, start.ended):
            continue
        if not start.lost and start.server > _latest_deadline(timeline, claim):
            yield "its callback was not told that its lease had ended", (claim, start)
        if start.lost and not history.may_start_late(start):
            yield "started after its lease had ended", (claim, start)


def _latest_deadline(timeline: Timeline, claim: Step) -> float:
    """Return until when a lease can have lasted (server time, ms); an extension without a reply may come late."""
    latest = float(claim.deadline)
    for extend in timeline.of("extend"):
        if extend.token == claim.token and extend.possible:
            if extend.ended >= OPEN_END:
                return math.inf
            latest = max(latest, claim.server + (extend.ended - claim.began) / 1000 + extend.lease + 1)
    return latest
