"""The rule about breakers: while one has tripped, nothing of its scope starts but one trial after each pause.

What counts as a start is the claim, as for the server. After a breaker has tripped, a claim may take the first message
when its pause is over, the second a pause after that, and the third another pause later; from then on, or once a trial
has succeeded, all may start. All that is uncertain counts in favour of the queue: a claim without a reply may have
taken a trial, and a success without a reply may have let all start again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise

from delayq.testing.torture.rules.history_rules import Finding
from delayq.testing.torture.rules.limit_rules import CLOCK_STEP
from delayq.testing.torture.rules.timelines import History, Step

TRIALS = 2
"""The messages that start one by one if nobody reports how the first one has ended."""


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
