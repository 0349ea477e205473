"""The rules of the game: what producers, consumers, a keeper and the clock do to a queue, each checked by the model."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import note
from hypothesis.stateful import initialize, precondition

from delayq.broker.message.same_id import Debounce
from delayq.broker.replies import ClaimedMessage, ClaimReply, TurnReply
from delayq.broker.requests import Failure, Outgoing, Receipt, RedisCommand, Rejection, Release, ScriptCall
from delayq.broker.results import Completed
from delayq.broker.scripts import MAX_IDS
from delayq.errors import OutcomeUnknown, QueueFullError
from delayq.queue.control.limit_calls import declare_call, limit_call
from delayq.queue.control.pausing import pause_call, resume_call
from delayq.queue.results.result_waits import await_ends_call
from tests.model.draws import (
    DAY,
    aheads,
    at_mosts,
    consumers,
    dead_picks,
    delays,
    endings,
    errors,
    leases,
    limited,
    limits,
    logs,
    moments,
    outcomes,
    outgoing,
    paces,
    pauses,
    picks,
    places,
    quiets,
    reasons,
    replaces,
    reruns,
    retentions,
    runs,
    scopes,
    several,
    several_picks,
    snoozes,
    spreads,
    steps,
    windows,
)
from tests.model.fold import Fold
from tests.model.limiting import QUEUE
from tests.model.model import FullError
from tests.model.player import Player, Turn, rule
from tests.support.scripts import ANYWHERE, deliver

has_receipts = precondition(lambda self: self.held or self.old)
has_died = precondition(lambda self: self.entries)
LAST_ID = f"{2**64 - 1}-{2**64 - 1}"
"""The id of an entry that none can follow."""


def _comes_before(ids: Sequence[str], these: Iterable[str], those: Iterable[str]) -> bool:
    """Tell whether one of these was claimed before one of those that waited as well."""
    these, those = {*these}, {*those}
    return bool(ids) and bool(those) and ids[0] in these


class QueueMachine(Player):
    """Producers, two consumers that lose replies and memory, a keeper, and a clock that jumps."""

    # Producers.

    @initialize(
        messages=st.lists(outgoing, min_size=1, max_size=6),
        log=logs,
        window=windows,
        step=steps,
        kind=st.tuples(limited, st.booleans()),
    )
    def send_first(self, messages, log, window, step, kind):
        """Switch on what this example is to have, and begin."""
        window_of, most = window or (None, 1)
        max_len = 0 if log == "off" else 100_000
        options = {"events": max_len, "dedupe_window": window_of, "dedupe_max": most, "priority_step": step}
        self.executor.call(self.calls.configure(**options))
        if log == "lost":
            self.executor.client.xadd(self.calls.keys.events, {"not": "ours"}, id=LAST_ID)
        self.fold, self.model.window, self.model.step = Fold() if log == "on" else None, window, step or 0
        self.is_limited, self.model.is_new = kind
        if self.model.is_new:
            self.executor.client.hset(self.calls.keys.meta, "schema", 3)
        self._reach(log, "log", log)
        self._send(messages)

    @rule(message=outgoing, replace=replaces, reruns=reruns)
    def send_one(self, message, replace, reruns):
        self._send([message], replace=replace, reruns=reruns)

    @precondition(lambda self: self.model.ids("leased"))
    @rule(pick=st.sampled_from(range(6)), message=outgoing, reruns=reruns)
    def send_after(self, pick, message, reruns):
        """Something new for an id that runs: it waits, and what waited before it is forgotten."""
        running = self.model.ids("leased")
        self._send([(running[pick % len(running)], *message[1:])], replace="after", reruns=reruns)

    @rule(
        message=outgoing,
        quiet=quiets,
        at_most=at_mosts,
        max_length=st.sampled_from((None, None, None, 3)),
        reruns=reruns,
    )
    def debounce(self, message, quiet, at_most, max_length, reruns):
        """One send of a burst, which may be the first."""
        one, _, budget, headers, attributes = message
        id, attributes = self._id(one), b"" if b"unique" in attributes else attributes
        self.sent += 1
        out = Outgoing(id, 0, budget, b"\x00%d\n%s" % (self.sent, id.encode()), headers, attributes)
        how, place = Debounce(quiet, at_most), self._place(id)
        call = self.calls.debounce(out, how, max_length=max_length)
        try:
            expected = self.model.debounce(self.now, out, how, max_length=max_length)
        except FullError:
            self._refused(call)
            return
        self._play(call, expected, reruns=reruns)
        self._reach(f"{place} → {expected.status}", "debounce", True)
        self._reach("limited", "debounce", expected.due and int(str(expected.due)[1:]) < self.now + quiet)

    @precondition(lambda self: any(self.held_id(id) for id in self.model.successors))
    @rule(how=st.sampled_from(("ack", "discard", "reject", "spent", "cancel", "nack")), reruns=reruns)
    def end_followed(self, how, reruns):
        """A message ends that another waits for: this one takes its place, once."""
        self._end_followed(next(id for id in self.model.successors if self.held_id(id)), how, reruns)

    def _end_followed(self, id: str, how: str, reruns: int) -> None:
        receipt = Receipt(id, self.model.messages[id].token)
        self.held = [known for known in self.held if known != receipt]
        self.old.append(receipt)
        waiting, sent = self.model.successors[id], self.model.totals["sent"]
        if how in {"ack", "discard"}:
            outcome = "discarded" if how == "discard" else "acked"
            expected = self.model.ack(self.now, [receipt], outcome=outcome)
            self._play(self.calls.ack([receipt], outcome=outcome), expected, ["followed"], reruns)
        elif how == "reject":
            rejections = [Rejection(*receipt, "no such user", "")]
            self._play(self.calls.reject(rejections), self.model.reject(self.now, rejections), ["followed"], reruns)
        elif how == "cancel":
            self._play(self.calls.cancel([id]), self.model.cancel(self.now, [id]), ["followed"], reruns)
            assert id not in self.model.successors
            return
        else:
            failures = [Failure(*receipt, 10, "")]
            expected = self.model.nack(self.now, failures)
            self._play(self.calls.nack(failures), expected, ["followed"], reruns)
            if expected == "1":
                assert self.model.successors[id] == waiting
                return
            options: dict[str, Any] = {"limit": 100, "dead_max": 10_000, "dead_ttl": 30 * DAY, "ids": [id]}
            collected = self.model.collect_garbage(self.now, **options)
            self._play(self.calls.collect_garbage(**options, slot_ttl=30 * DAY), collected)
            self._reach("followed", "collect", collected.collected)
        assert id not in self.model.successors
        assert (self.model.messages[id].payload, self.model.messages[id].due) == (waiting.message.payload, waiting.due)
        assert self.model.totals["sent"] == sent + 1

    def held_id(self, id: str) -> bool:
        return self.model.messages[id].state == "leased"

    @rule(
        messages=st.lists(outgoing, min_size=2, max_size=5),
        replace=replaces,
        max_length=st.sampled_from((None, None, 3)),
        run=runs,
        reruns=reruns,
    )
    def send_many(self, messages, replace, max_length, run, reruns):
        self._send(messages, replace=replace, max_length=max_length, run=run, reruns=reruns)

    def _send(self, messages, *, replace=False, max_length=None, run="", reruns=0):
        out, situations = [], []
        for one, moment, budget, headers, attributes in messages:
            id = self._id(one)
            self.sent += 1
            situations.append("named twice" if any(id == earlier.id for earlier in out) else self._place(id))
            payload = b"\x00%d\n%s" % (self.sent, id.encode())
            out.append(Outgoing(id, self._due(moment), budget, payload, headers, attributes))
        options: dict[str, Any] = {"replace": replace, "max_length": max_length, "run": run}
        call = self.calls.send(out, **options)
        try:
            expected = self.model.send(self.now, out, **options)
        except FullError:
            self._refused(call)
        else:
            self._reach("in a run", "send", run)
            known = [one.id in self.model.done for one in out]
            self._reach("settled before the window", "send", (True, "1") in zip(known, expected, strict=True))
            self._play(call, expected, situations, reruns)

    def _refused(self, call: ScriptCall[str]) -> None:
        self.reached["send: full"] += 1
        try:
            reply = self.executor.call(call)
        except QueueFullError:
            return
        raise AssertionError(f"not refused, but {reply}")

    @rule(which=several, stop=st.booleans(), reruns=reruns)
    def cancel(self, which, stop, reruns):
        ids = [self._id(one) for one in which]
        situations = [self._place(id) for id in ids]
        expected = self.model.cancel(self.now, ids, stop=stop)
        self._play(self.calls.cancel(ids, stop=stop), expected, situations, reruns)

    @rule(which=several, reruns=reruns)
    def kill(self, which, reruns):
        ids = [self._id(one) for one in which]
        situations = [self._place(id) for id in ids]
        self._reach("followed", "kill", {*ids} & {id for id in self.model.successors if not self.held_id(id)})
        self._play(self.calls.kill(ids), self.model.kill(self.now, ids), situations, reruns)

    @precondition(lambda self: self.model.ids("leased"))
    @rule(pick=st.sampled_from(range(6)), reruns=reruns)
    def stop(self, pick, reruns):
        """Whoever holds a message is asked to stop."""
        running = self.model.ids("leased")
        id = running[pick % len(running)]
        self._play(self.calls.cancel([id], stop=True), self.model.cancel(self.now, [id], stop=True), ["held"], reruns)

    @rule(which=several, moment=moments, reruns=reruns)
    def reschedule(self, which, moment, reruns):
        times = [(self._id(one), self._due(moment)) for one in which]
        situations = [self._place(id) for id, _ in times]
        self._play(self.calls.reschedule(times), self.model.reschedule(self.now, times), situations, reruns)

    # Consumers.

    @rule(limit=limits, reruns=reruns)
    def promote(self, limit, reruns):
        promoted = self.model.pending_to_ready(self.now, limit, is_told=self._is_told())
        self._reach("next gate", "promote", promoted.next_gate >= 0)
        self._reach("some moved", "promote", promoted.moved)
        self._reach("ranked", "promote", promoted.moved and len(self.model.ids("ranked")) > len(self.scan.ranked))
        self._reach("limited", "promote", promoted.moved and 0 <= promoted.next_due <= self.now)
        self._play(self.calls.pending_to_ready(limit), promoted, reruns=reruns)

    def _is_told(self) -> bool:
        """Tell whether a promotion looks at more than what is pending."""
        scan = self.scan
        others = (scan.ready, scan.ranked, scan.unack, scan.retry, scan.garbage, scan.throttled)
        return any(others)

    @rule(consumer=consumers, wanted=st.integers(0, 4), lease=leases, is_lost=st.booleans(), reruns=reruns)
    def claim(self, consumer, wanted, lease, is_lost, reruns):
        offered, highest = {state: self.scan.offered(state) for state in ("ready", "retry")}, self.model.token
        deliveries = self.model.ready_to_unack(self.now, wanted, lease, consumer, **offered)
        self.sequences[consumer] += 1
        self.claims[consumer] = [Receipt(one.id, one.token) for one in deliveries]
        self.claimed_at[consumer], trials = self.now, self.model.trials
        self.trials[consumer] = trials
        for _ in range(1 + reruns):
            reply = self._claim(consumer, self.sequences[consumer], wanted, lease)
            told = {"next_gate": self._next_gate(), "trials": trials}
            assert reply._replace(left=0) == ClaimReply(self.now, self.now + lease, 0, deliveries, **told)
        self.expects_wake |= reply.left > 0
        tokens = [highest, *(one.token for one in reply.messages)]
        assert all(earlier < later for earlier, later in itertools.pairwise(tokens))
        assert all(one.due <= self.latest for one in reply.messages)
        if not is_lost:
            self.held += self.claims[consumer]

        ids = [one.id for one in deliveries]
        waits = self.model.limits.lines.keys()
        self._reach("throttled", "claim", waits - self.scan.throttled.keys())
        self._reach("throttled by rank", "claim", (waits - self.scan.throttled.keys()) & self.scan.ranked.keys())
        self._reach("from a line", "claim", self.scan.throttled.keys() & {*ids})
        self._reach("passes a line", "claim", ids and waits & self.scan.throttled.keys())
        self._reach("a trial of a name", "claim", any(name for _, name in trials))
        self._reach("a trial of the queue", "claim", any(name is None for _, name in trials))
        self._reach("queue used up", "claim", 0 in self.model.limits.gates)
        entries = self.scan.ready + self.scan.retry + [*self.scan.ranked]
        self._reach("ranked before ready", "claim", _comes_before(ids, self.scan.ranked, offered["ready"]))
        self._reach("ready before ranked", "claim", _comes_before(ids, offered["ready"], self.scan.ranked))
        self._reach("ranked, several", "claim", len(self.scan.ranked.keys() & {*ids}) > 1)
        self._reach("paused", "claim", wanted and entries and self.model.is_paused(self.now))
        self._reach("several", "claim", len(ids) > 1)
        self._reach("reply lost", "claim", is_lost and ids)
        self._reach("retry before ready", "claim", ids and offered["ready"] and ids[0] in offered["retry"])
        self._reach("ready before retry", "claim", ids and offered["retry"] and ids[0] in offered["ready"])
        self._reach("stale entry skipped", "claim", len(entries) - reply.left > len(ids))
        self._reach("an id listed twice", "claim", any(entries.count(id) > 1 for id in ids))
        self._reach("delivered again", "claim", any(one.attempt > 1 for one in deliveries))
        self._reach("promoted before the clock was set back", "claim", any(one.due > self.now for one in deliveries))
        self._reach("with headers", "claim", any(one.headers for one in deliveries))
        self._reach("with attributes", "claim", any(one.attributes for one in deliveries))

    @rule(consumer=consumers, wanted=st.integers(1, 4), lease=leases, is_lost=st.booleans(), reruns=reruns)
    def claim_due(self, consumer, wanted, lease, is_lost, reruns):
        """A claim without a promotion; one that brings nothing is not remembered."""
        listed = self.scan.ready + self.scan.retry + [*self.scan.ranked]
        sequence = self.sequences[consumer] + 1
        deliveries = self.model.pending_to_unack(self.now, wanted, lease, consumer, listed=listed)
        next_due = self.model.next_due()
        is_paused = self.model.is_paused(self.now) and not listed and 0 <= next_due <= self.now
        next_due = -1 if is_paused else next_due  # what is due is kept back
        is_due = not is_paused and not listed and 0 <= next_due <= self.now
        ranks = is_due and bool(self.model.step or self.model.limits.flag)
        times = {"next_due": next_due, "next_deadline": self.model.next_deadline(), "ranks": ranks}
        self._reach("paused", "claim due", is_paused)
        self._reach("must be ranked first", "claim due", ranks)
        for _ in range(1 + reruns):
            reply = self._claim(consumer, sequence, wanted, lease, due=True)
            assert reply == ClaimReply(self.now, self.now + lease, len(listed), deliveries, **times)
        if not deliveries:
            return
        self.sequences[consumer], self.claimed_at[consumer], self.trials[consumer] = sequence, self.now, ()
        self.claims[consumer] = [Receipt(one.id, one.token) for one in deliveries]
        self.expects_wake |= 0 <= next_due <= self.now
        assert all(one.due <= self.latest for one in reply.messages)
        if not is_lost:
            self.held += self.claims[consumer]
        self._reach("some", "claim due", True)
        self._reach("some left", "claim due", 0 <= next_due <= self.now)
        self._reach("delivered again", "claim due", any(one.attempt > 1 for one in deliveries))
        self._reach("with headers", "claim due", any(one.headers for one in deliveries))
        self._reach("with attributes", "claim due", any(one.attributes for one in deliveries))

    @rule(consumer=consumers, wanted=st.sampled_from((0, 1, 2, 4)), lease=leases)
    def tick(self, consumer, wanted, lease):
        """What a consumer does all the time; when nothing waits, it sleeps until something does."""
        if not self.scan.ready and not self.scan.retry and not self.scan.ranked:
            self.wait_for_the_next(offset=0)
        self.promote(limit=MAX_IDS, reruns=0)
        self.expire(limit=MAX_IDS, reruns=0)
        self.agrees()
        self.claim(consumer=consumer, wanted=wanted, lease=lease, is_lost=False, reruns=0)

    @precondition(lambda self: self.claims)
    @rule(consumer=consumers, wanted=st.integers(1, 4), lease=leases)
    def claim_replayed(self, consumer, wanted, lease):
        """The last claim of a consumer is sent again, perhaps much later."""
        if consumer not in self.claims:
            return
        remembered = self.claims[consumer]
        deliveries = self.model.replay(self.now, remembered, lease)
        reply = self._claim(consumer, self.sequences[consumer], wanted, lease)
        told = {"next_gate": self._next_gate(), "trials": self.trials[consumer]}
        assert reply._replace(left=0) == ClaimReply(self.now, self.now + lease, 0, deliveries, **told)
        receipts = [Receipt(one.id, one.token) for one in deliveries]
        self.held += [receipt for receipt in receipts if receipt not in self.held]
        self._reach("all still held", "replay", receipts and receipts == remembered)
        self._reach("some still held", "replay", receipts and receipts != remembered)
        self._reach("none still held", "replay", remembered and not receipts)

    @precondition(lambda self: self.claims)
    @rule(consumer=consumers, wanted=st.integers(1, 4), lease=leases)
    def claim_overtaken(self, consumer, wanted, lease):
        """The last but one claim of a consumer arrives late."""
        if consumer not in self.claims:
            return
        reply = self._claim(consumer, self.sequences[consumer] - 1, wanted, lease)
        assert reply._replace(left=0) == ClaimReply(self.now, self.now + lease, 0, [], next_gate=self._next_gate())
        self._reach("overtaken", "replay", 1)

    def _next_gate(self) -> int:
        return -1 if self.model.is_paused(self.now) else self.model.limits.next_gate()

    def _claim(self, consumer: str, sequence: int, wanted: int, lease: int, *, due: bool = False) -> ClaimReply:
        claims = self.calls.pending_to_unack if due else self.calls.ready_to_unack
        call = claims(wanted, lease=lease, consumer_id=consumer)
        self.is_seen = False
        reply = deliver(self.executor, call, slot=f"claims.{consumer}", sequence=sequence)
        note(f"    {call.script.name}{tuple(call.args)}, call {sequence} → {reply!r}")
        return reply

    @rule(
        consumer=consumers,
        wanted=st.integers(0, 3),
        ahead=aheads,
        lease=leases,
        picks=st.one_of(st.just([]), several_picks),
        is_lost=st.booleans(),
        reruns=reruns,
    )
    def turn(self, consumer, wanted, *, ahead, lease, picks, is_lost, reruns):
        """Settle and claim in one call; where the queue is not plain, it changes nothing."""
        is_plain = self.model.is_plain() and "events" not in self.scan.counts.meta
        receipts, situations = self._use(picks if self.held or self.old else [], keep=not is_plain)
        wanted = wanted if receipts else max(wanted, 1)  # nobody makes a turn for nothing
        options = {"ahead": ahead, "lease": lease, "consumer_id": consumer, "receipts": receipts}
        self.sequences[f"turns.{consumer}"] += 1
        turn = Turn(self.now, self.sequences[f"turns.{consumer}"], wanted, options, "", [])
        if not is_plain:
            assert [self._turn(consumer, turn) for _ in range(1 + reruns)] == [TurnReply("", None)] * (1 + reruns)
            self._reach("not plain", "turn", True)
            return
        listed, acked = len(self.scan.ready) + len(self.scan.retry), self.model.totals["acked"]
        statuses, deliveries = self.model.turn(
            self.now, wanted, lease, consumer, ahead=ahead, receipts=receipts, listed=listed
        )
        turn = turn._replace(statuses=statuses, claimed=[Receipt(one.id, one.token) for one in deliveries])
        assert self._turn(consumer, turn) == self._answer(turn, deliveries)
        self.expects_wake |= bool(deliveries) and 0 <= self.model.next_due() <= self.now + ahead
        if deliveries or self.model.totals["acked"] > acked:  # else the server remembers nothing
            self.turns[consumer] = turn
        if deliveries:  # what is given back at once, or fails, may be claimed again before it is due
            self.latest = max(self.latest, self.now + ahead)
        if not is_lost:
            self.held += turn.claimed
        for situation, status in zip(situations, statuses, strict=True):
            self.reached[f"turn: {situation} → {status}"] += 1
        self._reach("some settled, some claimed", "turn", deliveries and "1" in statuses)
        self._reach("several", "turn", len(deliveries) > 1)
        self._reach("some left", "turn", self.expects_wake)
        self._reach("ahead", "turn", any(one.due > self.now for one in deliveries))
        self._reach("passes nothing that waits", "turn", wanted and listed)
        self._reach("paused", "turn", wanted and self.model.is_paused(self.now))
        self._reach("delivered again", "turn", any(one.attempt > 1 for one in deliveries))
        self._reach("with headers", "turn", any(one.headers for one in deliveries))
        self._reach("with attributes", "turn", any(one.attributes for one in deliveries))
        if reruns and self.turns.get(consumer) is turn:
            self.turn_again(consumer=consumer, is_overtaken=False)

    @precondition(lambda self: self.turns)
    @rule(consumer=consumers, is_overtaken=st.sampled_from((False, False, True)))
    def turn_again(self, consumer, is_overtaken):
        """The last turn of a consumer is made again, perhaps much later; or the one before it arrives late."""
        turn = self.turns.get(consumer)
        if not turn:
            return
        if is_overtaken:
            late = turn._replace(sequence=turn.sequence - 1)
            with pytest.raises(OutcomeUnknown):
                self._turn(consumer, late)
            self._reach("overtaken", "turn", True)
            return
        deliveries = self.model.replay(self.now, turn.claimed, turn.options["lease"])
        assert self._turn(consumer, turn) == self._answer(turn, deliveries)
        receipts = [Receipt(one.id, one.token) for one in deliveries]
        self.held += [receipt for receipt in receipts if receipt not in self.held]
        self._reach("run again", "turn", True)
        self._reach("all still held", "turn", receipts and receipts == turn.claimed)
        self._reach("some lost", "turn", len(receipts) < len(turn.claimed))

    def _turn(self, consumer: str, turn: Turn) -> TurnReply:
        call = self.calls.turn(turn.wanted, **turn.options)
        self.is_seen = False
        reply = deliver(self.executor, call, slot=f"turns.{consumer}", sequence=turn.sequence)
        note(f"    turn{tuple(call.args)}, call {turn.sequence} → {reply!r}")
        return reply

    def _answer(self, turn: Turn, deliveries: list[ClaimedMessage]) -> TurnReply:
        """Return what the turn must answer, now that the model has made it."""
        if not turn.wanted:
            return TurnReply(turn.statuses, ClaimReply(0, 0, 0, []))
        next_due = -1 if self.model.is_paused(self.now) else self.model.next_due()
        times = {"next_due": next_due, "next_deadline": self.model.next_deadline()}
        left = len(self.scan.ready) + len(self.scan.retry)
        claimed = ClaimReply(self.now, self.now + turn.options["lease"], left, deliveries, **times)
        return TurnReply(turn.statuses, claimed, self.now * 1000)

    @has_receipts
    @rule(picks=several_picks, outcome=outcomes, reruns=reruns)
    def ack(self, picks, outcome, reruns):
        receipts, situations = self._use(picks)
        expected = self.model.ack(self.now, receipts, outcome=outcome)
        self._play(self.calls.ack(receipts, outcome=outcome), expected, situations, reruns)

    @has_receipts
    @rule(picks=several_picks, retention=retentions, ending=endings, reruns=reruns)
    def complete(self, picks, retention, ending, reruns):
        receipts, situations = self._use(picks)
        stored, (outcome, note) = b"retention=" + retention.encode(), ending
        done = [Completed(*one, retention, outcome, stored, note, b"7\n") for one in receipts]
        self._reach("waited for", "complete", any(one.id in self.model.waited for one in receipts))
        self._reach("again", "complete", any(one.id in self.model.completed for one in receipts))
        self._play(self.calls.complete(done), self.model.complete(self.now, done), situations, reruns)

    @has_receipts
    @rule(pick=picks, progress=st.sampled_from(("Nw==", "eA")), reruns=reruns)
    def report(self, pick, progress, reruns):
        (receipt,), situations = self._use([pick], keep=True)
        self._play(self.calls.report(receipt, progress), self.model.report(receipt, progress), situations, reruns)

    @rule(which=several, duration=leases, reruns=reruns)
    def await_ends(self, which, duration, reruns):
        ids = [self._id(one) for one in which]
        self.model.await_ends(self.now, ids, duration=duration)
        if self.model.is_new and not self.model.schema:  # results, for which one waits, come with attributes
            self.model.schema = 2
            self.executor.client.hset(self.calls.keys.meta, "schema", 4)
        self._play(await_ends_call(self.calls, ids, duration=duration), ANYWHERE, reruns=reruns)

    @has_receipts
    @rule(picks=several_picks, delay=delays, error=errors, span=st.sampled_from(["", "5", "6"]), reruns=reruns)
    def nack(self, picks, delay, error, span, reruns):
        receipts, situations = self._use(picks)
        failures = [Failure(*receipt, delay, error, span) for receipt in receipts]
        self._play(self.calls.nack(failures), self.model.nack(self.now, failures), situations, reruns)

    @has_receipts
    @rule(picks=several_picks, lease=leases, reruns=reruns)
    def extend(self, picks, lease, reruns):
        receipts, situations = self._use(picks, keep=True)
        expected = self.model.extend(self.now, receipts, lease=lease)
        self._play(self.calls.extend(receipts, lease=lease), expected, situations, reruns)

    @has_receipts
    @rule(picks=several_picks, delay=delays, attributes=snoozes, unstarted=st.booleans(), reruns=reruns)
    def release(self, picks, delay, attributes, unstarted, reruns):
        if not self.model.step:  # a release keeps a priority and gives none
            attributes = attributes.replace(b" priority=1", b"")
        receipts, situations = self._use(picks)
        releases = [Release(*receipt, delay, attributes, unstarted) for receipt in receipts]
        starts = {scope: one.next_start for scope, one in self.model.limits.of.items()}
        self._reach("with attributes", "release", attributes and any(map(self.model.held, receipts)))
        expected = self.model.release(self.now, releases)
        back = {scope for scope, one in self.model.limits.of.items() if one.next_start < starts[scope]}
        self._reach("a start of a name is given back", "release", back - {QUEUE})
        self._reach("a start of the queue is given back", "release", QUEUE in back)
        self._reach("ranked", "release", len(self.model.ids("ranked")) > len(self.scan.ranked))
        self._play(self.calls.release(releases), expected, situations, reruns)

    @has_receipts
    @rule(pick=picks, reason=reasons, error=errors, reruns=reruns)
    def reject(self, pick, reason, error, reruns):
        receipts, situations = self._use([pick, pick])
        rejections = [Rejection(*receipt, reason, error) for receipt in receipts]
        self._play(self.calls.reject(rejections), self.model.reject(self.now, rejections), situations, reruns)

    @precondition(lambda self: self.held)
    @rule(kept=st.integers(0, 2))
    def crash(self, kept):
        """A consumer starts anew and knows nothing of what it held."""
        self.reached["crash"] += 1
        self.old += self.held[kept:]
        del self.held[kept:]

    # The keeper.

    @rule(limit=limits, reruns=reruns)
    def expire(self, limit, reruns):
        late = [message.state for message in self.model.in_unack() if message.until <= self.now]
        expired = self.model.unack_to_retry(self.now, limit)
        self._reach("retried", "expire", expired.retried)
        self._reach("spent", "expire", expired.spent)
        self._reach("backoff over", "expire", "backoff" in late and expired.retried)
        self._reach("limited", "expire", len(late) > limit)
        self._reach("ranked", "expire", len(self.model.ids("ranked")) > len(self.scan.ranked))
        self._play(self.calls.unack_to_retry(limit), expired, reruns=reruns)

    @rule(
        which=st.one_of(st.just([]), several),
        limit=limits,
        dead_max=st.sampled_from((0, 2, 10_000, 10_000)),
        dead_ttl=st.sampled_from((30, 30 * DAY, 30 * DAY)),
        reruns=reruns,
    )
    def collect_garbage(self, which, limit, dead_max, dead_ttl, reruns):
        ids = [self._id(one) for one in which]
        if not ids:  # which of many are taken is chance, and this test cannot bear it
            limit = max(limit, len(self.scan.garbage))
        options: dict[str, Any] = {"limit": limit, "dead_max": dead_max, "dead_ttl": dead_ttl, "ids": ids}
        results = len(self.model.completed)
        collected = self.model.collect_garbage(self.now, **options)
        for consumer in [one for one, then in self.claimed_at.items() if self.now - then > DAY]:
            del self.claims[consumer], self.claimed_at[consumer]
            self.reached["collect: silent slot pruned"] += 1
        self.turns = {one: turn for one, turn in self.turns.items() if self.now - turn.at <= DAY}
        self._reach("by id" if ids else "any", "collect", collected.collected)
        self._reach("trimmed", "collect", collected.trimmed)
        self._reach("results", "collect", results > len(self.model.completed))
        self._reach("trimming limited", "collect", collected.trimmed == limit and len(self.model.dead) > dead_max)
        self._play(self.calls.collect_garbage(**options, slot_ttl=DAY), collected, reruns=reruns)

    @has_died
    @rule(
        picks=dead_picks,
        retries=st.sampled_from((None, None, 0, 2)),
        pace=st.sampled_from(((0, 0), (0, 0), (0, 1.5), (3, 0.25))),
        edited=st.booleans(),
        reruns=reruns,
    )
    def redrive(self, picks, retries, pace, edited, reruns):
        entries, situations = self._dead(picks)
        payloads = [b"new %d" % n for n in range(len(entries))] if edited else None
        how = {"retries": retries, "first": pace[0], "interval": pace[1], "payloads": payloads}
        expected = self.model.redrive(self.now, entries, **how)
        self._play(self.calls.redrive(entries, **how), expected, situations, reruns)

    @has_died
    @rule(picks=dead_picks, reruns=reruns)
    def dead_purge(self, picks, reruns):
        entries, situations = self._dead(picks)
        self._play(self.calls.dead_purge(entries), self.model.dead_purge(entries), situations, reruns)

    @precondition(lambda self: len(self.model.messages) >= 3 and self.model.ids("leased"))
    @rule(reruns=reruns)
    def purge(self, reruns):
        self._reach("running", "purge", self.model.ids("leased"))
        self._play(self.calls.purge(), self.model.purge(), reruns=reruns)

    @rule(until=pauses, reason=st.sampled_from(("", "deploy")), reruns=reruns)
    def pause(self, until, reason, reruns):
        text = str(self.now + int(until[1:])) if until.startswith("@") else until
        again = "again" if self.model.is_paused(self.now) else "fresh"
        ends = self.model.pause(self.now, text, reason)
        self._reach(again if ends >= 0 else "over already", "pause", True)
        self._play(pause_call(self.calls, text, reason), ends, reruns=reruns)

    @precondition(lambda self: self.model.pause_set)
    @rule(reruns=reruns)
    def resume(self, reruns):
        was_paused = self.model.resume(self.now)
        self._reach("paused" if was_paused else "over by itself", "resume", True)
        self.expects_wake |= was_paused
        if self.fold and not was_paused:  # not logged, and the clock may be set back to before its end
            self.fold.paused_until = 0
        self._play(resume_call(self.calls), was_paused, reruns=reruns)

    # Limits.

    @precondition(lambda self: self.is_limited)
    @rule(name=scopes, pace=paces, places=places, reruns=reruns)
    def limit(self, name, pace, places, reruns):
        waits = self.model.limits.lines
        expected = self.model.limit(self.now, name, pace=pace, places=places)
        self._reach("again" if expected.changed else "fresh", "limit", True)
        self._reach("what waits is judged anew", "limit", waits and 0 in self.model.limits.gates.values())
        self._play(limit_call(self.calls, name, pace=pace, places=places), expected, reruns=reruns)

    @precondition(lambda self: self.is_limited)
    @rule(name=scopes, pace=paces, places=places, reruns=reruns)
    def declare(self, name, pace, places, reruns):
        expected = self.model.declare(self.now, name, pace=pace, places=places)
        self._reach("anew" if expected else "as before", "declare", True)
        self._play(declare_call(self.calls, name, pace=pace, places=places), expected, reruns=reruns)

    @precondition(lambda self: self.is_limited)
    @rule(name=scopes, delay=delays, reruns=reruns)
    def close(self, name, delay, reruns):
        self._play(self.calls.close(name, delay), self.model.close(self.now, name, delay), reruns=reruns)

    @precondition(lambda self: self.is_limited)
    @rule(name=scopes, pause=st.sampled_from((20, 20, 60, 0)), reruns=reruns)
    def trip(self, name, pause, reruns):
        """A breaker trips, or a trial has succeeded."""
        expected = self.model.close(self.now, name, 0, pause=pause)
        self._reach(("trips" if pause else "ends") + ("" if expected == "1" else ", not"), "breaker", True)
        self._play(self.calls.close(name, 0, pause=pause), expected, reruns=reruns)

    @precondition(lambda self: self.is_limited)
    @rule(name=st.sampled_from(("n", "m")), until=pauses, reason=st.sampled_from(("", "deploy")), reruns=reruns)
    def pause_name(self, name, until, reason, reruns):
        paused = str(self.now + int(until[1:])) if until.startswith("@") else until
        expected = self.model.limit(self.now, name, paused=paused, reason=reason)
        self._reach("a name" if expected.paused >= 0 else "a name, over already", "pause", True)
        self._play(limit_call(self.calls, name, paused=paused, reason=reason), expected, reruns=reruns)

    @precondition(lambda self: self.is_limited)
    @rule(name=st.sampled_from(("n", "m")), spread=spreads, reruns=reruns)
    def resume_name(self, name, spread, reruns):
        waits = len(self.model.limits.lines)
        expected = self.model.limit(self.now, name, paused="-", spread=spread)
        self._reach("a name", "resume", expected.changed)
        self._reach("evenly", "resume", spread and waits)
        self._play(limit_call(self.calls, name, paused="-", spread=spread), expected, reruns=reruns)

    @precondition(lambda self: self.scan.wake)
    @rule()
    def wake(self):
        """An idle consumer takes the wake-up."""
        assert self.executor.call(RedisCommand(("LPOP", self.calls.keys.wake), bool))
        self.is_seen = False

    # Time.

    @rule(ms=st.sampled_from((1, 5, 20, 60, 200, 1, 5, 20, 60, 200, -1, -10, -100, -100, 2 * DAY)))
    def wait(self, ms):
        """The server's clock steps, at times backwards."""
        self._reach("back", "clock", ms < 0)
        self._go_to(self.now + ms)

    @rule(offset=st.sampled_from((-1, 0, 0, 1)))
    def wait_for_the_next(self, offset):
        """Right before, at or after the next due time or deadline."""
        times = (self.model.next_due(), self.model.next_deadline(), self.model.limits.next_gate())
        coming = [at for at in times if at > self.now]
        if coming:
            self._go_to(max(min(coming) + offset, self.now))
