"""The rules about one message: each yields its violations as text, with the steps that show them.

An unknown outcome counts in favour of the queue: the call was executed or not, whichever is right.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from delayq.testing.torture.history import FaultRecord
from delayq.testing.torture.rules.lease_rules import Findings, disturbance, leases, possibly_between
from delayq.testing.torture.rules.timelines import History, Step, Timeline

CANCELS_SUCCESSOR = ("1", "4", "5")
"""The statuses of a cancellation after which no successor waits: cancelled, successor, asked to stop."""
RETRIES_SPENT = "retries spent"
"""The reason in the dead letter of a message that has failed at every attempt."""


def conservation(history: History, timeline: Timeline) -> Findings:
    """Every life that began has ended or continues: none is lost, and none continues after its end."""
    if history.final is None:
        return
    begun = timeline.of("send", "redrive")
    ended = timeline.of("ack", "cancel", "reject", "dead_purge", "redrive")
    over = [step for step in ended if step.op != "reject"]
    dead, alive = len(timeline.dead), int(timeline.living is not None)
    certain = sum(step.certain for step in begun) + _certainly_follows(history, timeline)
    possibly_over = sum(step.possible for step in over) + sum(_may_replace(step) for step in begun) + dead
    possibly_over += len(history.purges) + bool(history.final.counters.get("trimmed"))
    if certain > possibly_over + alive:
        text = f"lost: {certain} sent, {possibly_over} settled, cancelled or dead, {alive} in the queue"
        yield text, (*begun, *ended)
    possible = sum(step.may_begin_life for step in begun)
    certainly_over = sum(step.certain for step in over) + sum(step.certain and step.status == "2" for step in begun)
    if certainly_over + dead + alive > possible and not history.rolled_back:
        text = f"in two places: {possible} sent, {certainly_over} over, {dead} dead, {alive} in the queue"
        yield text, (*begun, *ended)


def _may_replace(step: Step) -> bool:
    replaces = step.status == "2" or (step.replaces and not step.certain and not step.waits)
    return step.op == "send" and step.possible and replaces


def _certainly_follows(history: History, timeline: Timeline) -> bool:
    """Return whether a send that waited must have begun a life, since nothing can have replaced or cancelled it."""
    waiting = [step for step in timeline.of("send") if step.waits]
    if not waiting or history.rolled_back or timeline.of("cancel"):
        return False
    last = max(waiting, key=lambda step: step.began)
    others = (step for step in timeline.of("send") if step.replaces and step is not last)
    return not any(step.possible and step.ended > last.began for step in others)


def provenance(_: History, timeline: Timeline) -> Findings:
    """What is delivered was sent, byte for byte."""
    sends = [step for step in timeline.of("send") if step.possible]
    payloads = {step.payload for step in sends}
    for claim in timeline.of("claim"):
        if not any(send.began < claim.ended for send in sends):
            yield "delivered, but never sent", (claim,)
        elif claim.payload and claim.payload not in payloads:
            yield "delivered with another payload than was sent", (*sends, claim)


def never_early(history: History, timeline: Timeline) -> Findings:
    """Nothing starts before it is due, by the server's clock, nor is claimed earlier than its consumer may hold it."""
    by_token = {claim.token: claim for claim in timeline.of("claim")}
    for step in timeline.of("claim", "start"):
        claim = by_token.get(step.token)
        if claim is None or not step.server:
            continue
        requests = _possible_requests(timeline, claim)
        dues = {request.due for request in requests}
        if claim.due and claim.due not in dues and not timeline.of("redrive"):
            yield f"delivered for a due time that nobody requested, {claim.due}", (*requests, claim)
            continue
        due = claim.due or min(dues, default=0)
        if step.server + step.ahead + history.set_back < due:
            what = "delivered" if step.op == "claim" else "started"
            yield f"{what} {due - step.server} ms early", (*requests, step)


def _possible_requests(timeline: Timeline, claim: Step) -> list[Step]:
    """Return the sends and reschedules that may have set the due time of a delivery."""
    requests = [step for step in timeline.of("send", "reschedule") if step.possible and step.began < claim.ended]
    executed = [step for step in requests if step.certain and step.ended < claim.began]
    if not executed:
        return requests
    last = max(executed, key=lambda step: step.began)
    return [step for step in requests if step.ended >= last.began]


def bounded_deliveries(history: History, timeline: Timeline) -> Findings:
    """Each attempt is charged once, if it started and only then: at most retries + 1, and none after a life has ended.

    None comes after it was asked to stop either.
    """
    claims = timeline.claims()
    yield from _bounded_by_retries(timeline, claims)
    yield from _charged_if_started(history, timeline, claims)
    yield from _charged_in_retries(timeline, claims)
    for before, after in pairwise(claims):
        if before.attempt and not history.rolled_back and not _charged_once(history, timeline, before, after):
            text = f"attempt {after.attempt} came after attempt {before.attempt}"
            yield text, (before, *_start_reports(timeline, before), *timeline.settlements(before), after)
    yield from _successor_of_cancelled(timeline)
    for end in timeline.of("ack", "cancel"):
        over = end.certain or end.asks_to_stop
        late = (claim for claim in claims if over and claim.began > end.ended)
        again = next((claim for claim in late if not timeline.new_life_between(end, claim)), None)
        if again is not None:
            yield f"delivered after its {end.op}", (end, again)


def _successor_of_cancelled(timeline: Timeline) -> Findings:
    """A cancellation takes the successor that waits as well: it is never delivered."""
    waiting = [step for step in timeline.of("send") if step.waits]
    for sent in waiting:
        alike = [step for step in timeline.of("send", "claim") if step.payload == sent.payload and step is not sent]
        for cancel in timeline.of("cancel"):
            was_there = sent.answered < cancel.began and all(step.began > cancel.ended for step in alike)
            late = next((step for step in alike if step.op == "claim"), None)
            if cancel.outcome == "ok" and cancel.status in CANCELS_SUCCESSOR and was_there and late:
                yield "its successor was delivered after both were cancelled", (sent, cancel, late)


def _bounded_by_retries(timeline: Timeline, claims: list[Step]) -> Findings:
    sends = [step for step in timeline.of("send") if step.possible]
    limit = max((step.retries for step in sends), default=0) + 1
    for claim in claims:
        if claim.attempt > limit:
            text = f"attempt {claim.attempt} of a message with {limit - 1} retries"
            yield text, (*sends, claim)


def _charged_if_started(history: History, timeline: Timeline, claims: list[Step]) -> Findings:
    """Compare the attempts of a dead message with the log of its callbacks, not with its claims."""
    sends = [step for step in timeline.of("send") if step.possible]
    if history.rolled_back or len(sends) > 1 or timeline.of("redrive"):
        return
    started = {step.token for step in timeline.of("start")} | {claim.token for claim in claims if claim.alone}
    for token, attempts, _, reason in timeline.dead:
        if reason == RETRIES_SPENT and attempts > len(started):
            text = f"dead after {attempts} attempts, of which {len(started)} had started (token {token})"
            yield text, (*sends, *claims)


def _charged_in_retries(timeline: Timeline, claims: list[Step]) -> Findings:
    """At each delivery, the attempts charged before it and the retries left are together the retries of a send."""
    sends = [step for step in timeline.of("send") if step.possible]
    for claim in claims:
        sent = {step.retries for step in sends if step.began < claim.ended}
        if claim.retries_left >= 0 and sent and claim.attempt - 1 + claim.retries_left not in sent:
            text = f"attempt {claim.attempt} with {claim.retries_left} retries left, of {max(sent)}"
            yield text, (*sends, *(step for step in claims if step.token <= claim.token))


def _start_reports(timeline: Timeline, claim: Step) -> list[Step]:
    """Return the reports that the callback of a delivery has started."""
    return [step for step in timeline.of("start_report") if step.token == claim.token]


def _charged_once(history: History, timeline: Timeline, before: Step, after: Step) -> bool:
    if timeline.new_life_between(before, after):
        return True
    unseen = history.unknown_claims_between(before, after)
    settled = timeline.settlements(before)
    releases = [step for step in settled if step.op == "release" and step.possible]
    uncharged = any(step.certain for step in releases)
    # A lease that expires is charged if the start of the callback was reported, and may be if it was not.
    ended = [*_start_reports(timeline, before), *(step for step in settled if step.op == "nack")]
    charged = any(step.certain for step in ended) and not releases
    lowest = before.attempt + (1 if charged else 0)  # an unseen claim takes back no more than it has added
    return lowest <= after.attempt <= before.attempt + (0 if uncharged else 1) + unseen


def fencing(history: History, timeline: Timeline) -> Findings:
    """No settlement under an old token and no ack from an earlier life takes effect; a life is acked once."""
    claims = timeline.claims()
    by_token = {claim.token: claim for claim in claims}
    for step in timeline.of("nack", "extend", "start_report", "release", "reject"):
        newer = [claim for claim in claims if claim.token > step.token and claim.ended < step.began]
        if step.certain and newer and not history.rolled_back:
            yield f"{step.op} took effect under an old token", (newer[0], step)
    acks = [step for step in timeline.of("ack") if step.certain]
    for ack in acks:
        claim = by_token.get(ack.token)
        sends = (send for send in timeline.of("send") if send.certain)
        later = claim and next((send for send in sends if send.began > claim.ended and send.ended < ack.began), None)
        if claim and later and not history.rolled_back:
            yield "an ack from an earlier life took effect", (claim, later, ack)
    for before, after in pairwise(acks):
        if before.ended < after.began and not timeline.new_life_between(before, after):
            yield "two acks of one life took effect", (before, after)


def dead_letter(history: History, timeline: Timeline) -> Findings:
    """A message that died of its failures has had all of its attempts."""
    for token, attempts, retries, reason in timeline.dead:
        if reason == RETRIES_SPENT and attempts != retries + 1 and not history.rolled_back:
            yield f"dead after {attempts} attempts of {retries + 1} (token {token})", tuple(timeline.claims())


def doubt(history: History, timeline: Timeline) -> Findings:
    """A call with an unknown outcome was executed or not: no life begins while another lasts."""
    is_dead = timeline.dead or timeline.of("redrive")
    if is_dead or history.purges or history.rolled_back:  # the first life may have ended in between
        return
    sends = [step for step in timeline.of("send") if step.certain and step.status == "1"]
    ends = timeline.of("ack", "cancel", "redrive", "dead_purge")
    for before, after in pairwise(sends):
        if before.ended < after.began and not possibly_between(ends, before, after):
            yield "sent again while it lived", (before, after)


def liveness(history: History, timeline: Timeline) -> Findings:
    """After the faults, everything that is due is delivered and settled in time."""
    final, settings = history.final, history.settings
    if final is None or settings is None or timeline.living is None:
        return
    state, due = timeline.living
    late = final.server - due
    if late > settings.lease + 2 * settings.tick + settings.max_nack_delay:
        yield f"{state} {late} ms after it was due", tuple(timeline.steps[-3:])


def duplicates(history: History, timeline: Timeline) -> Findings:
    """A message is started again only after a failure, or because a fault broke its lease."""
    for before, after, cause in repeated_starts(history, timeline):
        if cause is None:
            first, last = sorted((before.began, after.began))  # the older lease may be the one that is used later
            between = [step for step in timeline.steps if first <= step.began <= last]
            yield "started again without a failure or a fault", tuple(between)


def repeated_starts(history: History, timeline: Timeline) -> Iterator[tuple[Step, Step, FaultRecord | None]]:
    """Yield the repeated starts without a failure: the one before, the repeated one, and the fault that explains it."""
    starts = sorted(timeline.of("start"), key=lambda step: (step.token, step.began))
    claimed = {claim.token: claim.began for claim in timeline.of("claim")}
    failed = {step.token for step in timeline.of("end") if step.callback_outcome in ("failed", "rejected")}
    failed |= {step.token for step in timeline.of("nack", "release", "reject") if step.possible}
    for before, after in pairwise(starts):
        if before.token == after.token:
            yield before, after, None
            continue
        if before.token in failed or timeline.new_life_between(before, after):
            continue
        since = claimed.get(before.token, before.began)
        yield before, after, disturbance(history, before.process, since, after.began)


_SAFETY = (conservation, provenance, never_early, bounded_deliveries, leases, fencing, dead_letter, doubt)
MESSAGE_RULES = {rule.__name__.replace("_", " "): rule for rule in (*_SAFETY, liveness, duplicates)}
