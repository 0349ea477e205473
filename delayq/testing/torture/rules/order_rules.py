"""The rule about keys in order: the messages of a key run one after another, by due time, and none overtakes another.

A message has its key from its claim until it is done, dead or cancelled, also while it waits for a retry. The claim
counts, as for the server. All that is uncertain counts in favour of the queue: a settlement that was sent may have been
executed at once, a claim without a reply has taken no message, and a message of which nothing more is known may have
died once its lease was over.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from delayq.testing.torture.history import FaultRecord
from delayq.testing.torture.rules.history_rules import Finding
from delayq.testing.torture.rules.lease_rules import certain_deadline
from delayq.testing.torture.rules.start_rules import lose_limits
from delayq.testing.torture.rules.timelines import History, Step, Timeline
from delayq.testing.torture.workload import TEMPLATE, key_of

CHANGES = ("send", "redrive", "cancel", "kill", "reschedule")
"""What may end the life of a message that waits, or change when it is due."""


def starts_out_of_order(history: History) -> Iterator[Finding]:
    """No message of a key is claimed before the one before it has ended, or before one that is due earlier."""
    if history.settings is None or TEMPLATE not in history.settings.limits:
        return
    by_key: dict[str, list[Step]] = defaultdict(list)
    for step in history.claims():
        if key := key_of(step.id):
            by_key[key].append(step)
    for key, claims in by_key.items():
        claims.sort(key=lambda claim: claim.token)
        yield from _before_the_end(history, key, claims)
        yield from _before_the_earlier(history, key, claims)


def _before_the_end(history: History, key: str, claims: list[Step]) -> Iterator[Finding]:
    """Of two claims in a row, the first has ended before the second, or is of the same message."""
    for number, claim in enumerate(claims):
        for later in claims[number + 1 :]:
            if later.id == claim.id:
                break
            if _certainly_lasts(history, claim, later):
                yield later.id, f"claimed while {claim.id} has their key {key}", (claim, later)
                break


def _certainly_lasts(history: History, claim: Step, later: Step) -> bool:
    """Return whether a claimed message has certainly not ended when a later claim is executed."""
    if _is_disturbed(history, claim, later):
        return False
    timeline = history.timeline(claim.id)
    if any(step.began < later.ended and step.ended > claim.began for step in _ends(timeline, claim)):
        return False
    # It is claimed again in this life: until then it has waited for its retry.
    if any(again.token > later.token and not timeline.new_life_between(claim, again) for again in timeline.claims()):
        return True
    return later.server < certain_deadline(timeline, claim)


def _ends(timeline: Timeline, claim: Step) -> Iterator[Step]:
    """Yield what may have ended a message after a claim: the first ack of a life counts, under any of its tokens."""
    for step in timeline.of("ack", "reject", "nack", "release", *CHANGES):
        spends = step.op in ("nack", "release") and (step.status == "2" or step.outcome == "unknown")
        if step.possible and (spends or step.op == "ack" or step.op in CHANGES or step.token == claim.token):
            if step.op in ("nack", "release") and not spends:
                continue
            yield step


def _before_the_earlier(history: History, key: str, claims: list[Step]) -> Iterator[Finding]:
    """What was sent first and is due first is claimed first."""
    first: dict[str, Step] = {}
    for claim in claims:
        first.setdefault(claim.id, claim)
    sends = {id: _only_send(history.timeline(id)) for id in first}
    overtaken = list(first.values())
    for number, claim in enumerate(overtaken):
        sent = sends[claim.id]
        for later in overtaken[number + 1 :]:
            other = sends[later.id]
            if sent is None or other is None or other.due >= sent.due or not _stored_first(other, sent):
                continue
            if not _is_disturbed(history, other, later):
                text = f"claimed before {later.id}, which was sent and is due before it, and has the key {key} as well"
                yield claim.id, text, (other, sent, claim, later)
                return


def _only_send(timeline: Timeline) -> Step | None:
    """Return the send of a message that nobody has changed, if it has certainly been made once."""
    changes = [step for step in timeline.of(*CHANGES) if step.possible]
    return changes[0] if len(changes) == 1 and changes[0].certain and changes[0].op == "send" else None


def _stored_first(send: Step, other: Step) -> bool:
    """Return whether a message was stored before another, or with it."""
    return send.ended <= other.began or (send.process, send.call) == (other.process, other.call)


def _is_disturbed(history: History, since: Step, until: Step) -> bool:
    """Return whether the server may have forgotten something, or have been emptied, or its clock was set meanwhile."""

    def hits(fault: FaultRecord) -> bool:
        loses = bool(fault.lost) and fault.lost <= until.ended and since.began < fault.until
        return loses or bool(fault.shift and fault.at < until.ended and fault.until > since.began)

    purged = any(purge.ended > since.began and purge.began < until.ended for purge in history.purges)
    return purged or any(map(hits, history.faults)) or bool(lose_limits(history))
