"""What must be true of the history of a message: each rule yields what breaks it, with the steps that show it.

What is in doubt counts for the queue: a call without an answer was carried out or not, whichever is right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

from delayq.torture.breach import Breach, Breaches
from delayq.torture.history import Fault
from delayq.torture.stories import EVER, History, Step, Story, doubtful_between

SPENT = "retries spent"
"""The reason of a message in the dead letter whose retries are spent."""


def conservation(history: History, story: Story) -> Breaches:
    """Every life that began is over or lasts: none is lost, and none goes on after its end."""
    if history.final is None:
        return
    begun = story.of("send", "redrive")
    ended = story.of("ack", "cancel", "reject", "dead_purge", "redrive")
    over = [step for step in ended if step.op != "reject"]
    alive = int(story.living is not None)
    surely = sum(step.did for step in begun)
    perhaps_over = sum(step.may for step in over) + sum(_may_replace(step) for step in begun) + len(story.dead)
    perhaps_over += len(history.purges) + bool(history.final.counters.get("trimmed"))
    if surely > perhaps_over + alive:
        text = f"lost: {surely} sent, {perhaps_over} settled, cancelled or dead, {alive} in the queue"
        yield Breach("conservation", story.id, text, (*begun, *ended))
    perhaps = sum(step.begins for step in begun)
    surely_over = sum(step.did for step in over) + sum(step.did and step.digit == "2" for step in begun)
    in_all = surely_over + len(story.dead) + alive
    if in_all > perhaps and not history.rolled_back:
        text = f"in two places: {perhaps} sent, {surely_over} over, {len(story.dead)} dead, {alive} in the queue"
        yield Breach("conservation", story.id, text, (*begun, *ended))


def _may_replace(step: Step) -> bool:
    return step.op == "send" and step.may and (step.digit == "2" or (step.replaces and not step.did))


def provenance(_: History, story: Story) -> Breaches:
    """What is delivered was sent, byte for byte."""
    sends = [step for step in story.of("send") if step.may]
    payloads = {step.payload for step in sends}
    for claim in story.of("claim"):
        if not any(send.began < claim.ended for send in sends):
            yield Breach("provenance", story.id, "delivered, but never sent", (claim,))
        elif claim.payload and claim.payload not in payloads:
            yield Breach("provenance", story.id, "delivered with a payload it was not sent with", (*sends, claim))


def never_early(history: History, story: Story) -> Breaches:
    """Nothing is delivered or begun before it is due, by the server's clock."""
    by_token = {claim.token: claim for claim in story.of("claim")}
    for step in story.of("claim", "start"):
        claim = by_token.get(step.token)
        if claim is None or not step.server:
            continue
        asked = _asked_for(story, claim)
        dues = {one.due for one in asked}
        if claim.due and claim.due not in dues and not story.of("redrive"):
            text = f"delivered for a due time that nobody asked for, {claim.due}"
            yield Breach("never early", story.id, text, (*asked, claim))
            continue
        due = claim.due or min(dues, default=0)
        if step.server + history.back_step < due:
            what = "delivered" if step.op == "claim" else "begun"
            yield Breach("never early", story.id, f"{what} {due - step.server} ms early", (*asked, step))


def _asked_for(story: Story, claim: Step) -> list[Step]:
    """Return the sends and reschedules whose due time may be that of a delivery."""
    asked = [step for step in story.of("send", "reschedule") if step.may and step.began < claim.ended]
    settled = [step for step in asked if step.did and step.ended < claim.began]
    if not settled:
        return asked
    last = max(settled, key=lambda step: step.began)
    return [step for step in asked if step.ended >= last.began]


def bounded_deliveries(history: History, story: Story) -> Breaches:
    """Each attempt is charged once, there are at most retries + 1, and none once a life is over."""
    claims = story.claims()
    yield from _bounded_by_retries(history, story, claims)
    for before, after in pairwise(claims):
        if before.attempt and not history.rolled_back and not _charged_right(history, story, before, after):
            text = f"attempt {after.attempt} came after attempt {before.attempt}"
            yield Breach("bounded deliveries", story.id, text, (before, *_settling(story, before), after))
    for end in story.of("ack", "cancel"):
        late = (claim for claim in claims if end.did and claim.began > end.ended)
        again = next((claim for claim in late if not story.begun_between(end, claim)), None)
        if again is not None:
            yield Breach("bounded deliveries", story.id, f"delivered after its {end.op}", (end, again))


def _bounded_by_retries(history: History, story: Story, claims: list[Step]) -> Breaches:
    sends = [step for step in story.of("send") if step.may]
    most = max((step.retries for step in sends), default=0) + 1
    if not most:  # sent to be delivered until it is settled
        return
    for claim in claims:
        if claim.attempt > most:
            text = f"attempt {claim.attempt} of a message with {most - 1} retries"
            yield Breach("bounded deliveries", story.id, text, (*sends, claim))
    if len(sends) == 1 and not story.of("release", "redrive") and len(claims) > most and not history.rolled_back:
        text = f"delivered {len(claims)} times with {most - 1} retries"
        yield Breach("bounded deliveries", story.id, text, (*sends, *claims))


def _charged_right(history: History, story: Story, before: Step, after: Step) -> bool:
    if story.begun_between(before, after):
        return True
    unseen = sum(1 for _ in doubtful_between(history, before, after))
    uncharged = any(step.op == "release" and step.may for step in _settling(story, before))
    least = before.attempt + (0 if uncharged or unseen else 1)
    return least <= after.attempt <= before.attempt + 1 + unseen


def _settling(story: Story, claim: Step) -> list[Step]:
    ops = ("ack", "nack", "extend", "release", "reject")
    return [step for step in story.of(*ops) if step.token == claim.token]


def leases(history: History, story: Story) -> Breaches:
    """Tokens rise, each is given out once, and at any instant there is one valid lease."""
    claims = story.claims()
    for before, after in pairwise(claims):
        if before.token == after.token and not _returned(history, story, after):
            yield Breach("leases", story.id, f"token {after.token} was given out twice", (before, after))
        elif after.ended < before.began and not (history.rolled_back and history.back_step):
            text = f"token {before.token} was drawn after the higher {after.token}"
            yield Breach("leases", story.id, text, (after, before))
        elif not history.rolled_back and not any(
            _lease_over(history, story, *pair) for pair in _orders(history, before, after)
        ):
            yield Breach("leases", story.id, "delivered while another lease was valid", (before, after))


def _orders(history: History, before: Step, after: Step) -> Iterator[tuple[Step, Step]]:
    """Yield in which order two deliveries may have been."""
    yield before, after
    if not history.promises.tokens_drawn and after.began < before.ended:
        yield after, before


def _lease_over(history: History, story: Story, before: Step, after: Step) -> bool:
    if after.server + sum(abs(fault.shift) for fault in history.faults) >= _deadline(story, before):
        return True
    given_up = (step for step in _settling(story, before) if step.op != "extend")
    if any(step.may and step.began < after.ended for step in given_up):
        return True
    others = story.of("ack", "cancel", "dead_purge")
    return story.begun_between(before, after) or any(
        step.may and step.began < after.ended and step.ended > before.began for step in others
    )


def _returned(history: History, story: Story, step: Step) -> bool:
    """Tell whether a token may be in use for another time, since the delivery that had it was given back."""
    given_back = (one for one in story.of("release") if one.token == step.token and one.may)
    return history.promises.tokens_return and any(one.began < step.ended for one in given_back)


def _deadline(story: Story, claim: Step) -> int:
    """Return until when a lease surely lasted, if nobody gave it up (ms)."""
    deadline = claim.deadline
    for extend in story.of("extend"):
        if extend.token == claim.token and extend.did and claim.ended < EVER:
            passed = (extend.began - claim.ended) // 1000
            deadline = max(deadline, claim.server + passed + extend.lease)
    return deadline


def fencing(history: History, story: Story) -> Breaches:
    """No settlement counts under an old token, and no ack from an earlier life; of a life one ack counts."""
    claims = story.claims()
    by_token = {claim.token: claim for claim in claims}
    for step in story.of("nack", "extend", "release", "reject"):
        newer = [claim for claim in claims if claim.token > step.token and claim.ended < step.began]
        if step.did and newer and not history.rolled_back:
            yield Breach("fencing", story.id, f"{step.op} counted under an old token", (newer[0], step))
    acks = [step for step in story.of("ack") if step.did]
    for ack in acks:
        claim = by_token.get(ack.token)
        lives = (send for send in story.of("send") if send.did)
        later = claim and next((send for send in lives if send.began > claim.ended and send.ended < ack.began), None)
        if claim and later and not history.rolled_back:
            yield Breach("fencing", story.id, "an ack from an earlier life counted", (claim, later, ack))
    for before, after in pairwise(acks):
        if before.ended < after.began and not story.begun_between(before, after):
            yield Breach("fencing", story.id, "two acks of one life counted", (before, after))


def dead_letter(history: History, story: Story) -> Breaches:
    """What died of its failures has had all of its attempts."""
    for token, attempts, retries, reason in story.dead:
        if reason == SPENT and attempts != retries + 1 and not history.rolled_back:
            text = f"dead after {attempts} attempts of {retries + 1} (token {token})"
            yield Breach("dead letter", story.id, text, tuple(story.claims()))


def doubt(history: History, story: Story) -> Breaches:
    """A call in doubt was carried out or was not: no life begins while another lasts."""
    if story.dead or history.purges or history.rolled_back:  # it may have ended in between
        return
    sends = [step for step in story.of("send") if step.did and step.digit == "1"]
    for before, after in pairwise(sends):
        ends = story.of("ack", "cancel", "redrive", "dead_purge")
        if before.ended < after.began and not any(
            step.may and step.began < after.ended and step.ended > before.began for step in ends
        ):
            yield Breach("doubt", story.id, "sent anew while it lived", (before, after))


def liveness(history: History, story: Story) -> Breaches:
    """After the faults everything that is due is delivered and settled in time."""
    if history.final is None or history.rules is None or story.living is None:
        return
    state, due = story.living
    if not due and history.calm:  # it has no time, and had all of the calm
        due = history.final.server - (history.final.at - history.calm.at) // 1000
    bound = history.rules.lease + 2 * history.rules.tick + history.rules.longest_delay
    late = history.final.server - due
    if late > bound:
        yield Breach("liveness", story.id, f"{state} {late} ms after it was due", tuple(story.steps[-3:]))


def duplicates(history: History, story: Story) -> Breaches:
    """A message is begun again only after a failure, or because a fault broke its lease."""
    for before, after, why in repeated(history, story):
        if why is None:
            first, last = sorted((before.began, after.began))  # the older lease may be the one that is used later
            between = [step for step in story.steps if first <= step.began <= last]
            yield Breach("duplicates", story.id, "begun again without a failure or a fault", tuple(between))


def repeated(history: History, story: Story) -> Iterator[tuple[Step, Step, Fault | None]]:
    """Yield the starts that no failure asked for: the one before, the one again, and the fault that explains it."""
    starts = sorted(story.of("start"), key=lambda step: (step.token, step.began))
    claimed = {claim.token: claim.began for claim in story.of("claim")}
    failed = {step.token for step in story.of("end") if step.said in ("failed", "rejected")}
    failed |= {step.token for step in story.of("nack", "release", "reject") if step.may}
    for before, after in pairwise(starts):
        if before.token == after.token and not _returned(history, story, after):
            yield before, after, None
            continue
        if before.token in failed or story.begun_between(before, after):
            continue
        since = claimed.get(before.token, before.began)
        breaking = (fault for fault in history.faults if fault.breaks_leases and fault.process in ("", before.process))
        yield before, after, next((one for one in breaking if one.at < after.began and one.until > since), None)


EACH: tuple[Callable[[History, Story], Breaches], ...] = (
    conservation,
    provenance,
    never_early,
    bounded_deliveries,
    leases,
    fencing,
    dead_letter,
    doubt,
    liveness,
    duplicates,
)
"""The rules about one message."""
