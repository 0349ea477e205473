"""The traps, each walked into on purpose: what chance alone meets too seldom for a run to say anything about it.

A trap brings about its situation with the rules of the machine, which compare every answer and all that is stored, and
counts only if it came to that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st

from delayq.broker.requests import Failure, Outgoing, Receipt, Rejection, Release, Replace
from delayq.broker.results import Completed
from delayq.broker.scripts import MAX_IDS
from delayq.errors import OutcomeUnknown
from delayq.values.rates import Pace
from tests.model import draws
from tests.model.machine import QueueMachine
from tests.model.player import rule
from tests.support.scripts import deliver

LEASE = 20
NAME = "t"
"""A name that only traps use, so that it has no limit before."""
DONE = ("ack", "complete")
TOUCHES = (*DONE, "nack", "extend", "release", "reject")
DRAWN: dict[str, Any] = {
    "trap": draws.plain.flatmap(lambda alone: st.sampled_from(PLAIN_TRAPS if alone else TRAPS)),
    "touch": st.sampled_from(TOUCHES),
    "at": st.sampled_from((0, 10)),
}


class TrapMachine(QueueMachine):
    """The machine, and one more rule that walks into a trap."""

    @rule(**DRAWN)
    def walk_into(self, trap: Callable[..., bool], touch: str, at: int) -> None:
        """Bring about a situation, then do the dangerous thing."""
        self._walk_into(trap, touch, at)

    @rule(**DRAWN)
    def walk_into_another(self, trap: Callable[..., bool], touch: str, at: int) -> None:
        """The same as a second rule: there are many traps, and each needs several tries."""
        self._walk_into(trap, touch, at)

    def _walk_into(self, trap: Callable[..., bool], touch: str, at: int) -> None:
        if trap(self, touch, at):
            self.reached[f"trap: {told(trap)}"] += 1

    def late_receipt_of_an_earlier_life(self, touch: str, at: int) -> bool:
        """The id is sent again as soon as its message is done, and a receipt of the first life comes late."""
        receipt = self._receipt()
        if not receipt:
            return False
        assert self._touch("ack", receipt) == "1"
        if self._send_anew(receipt.id) != "1":
            return False
        if at:
            self._claim_next()
        return self._touch(touch, receipt) == "0"

    def late_receipt_after_the_lease(self, touch: str, at: int) -> bool:
        """The lease runs out, another consumer claims the message, and the first one is not done with it."""
        receipt = self._receipt()
        if not receipt or not self.model.messages[receipt.id].left:
            return False
        self._let_go(receipt)
        second = self._claimed(receipt.id)
        if not second:
            return False
        assert second.token > receipt.token
        # The first to complete this life wins, even late; all else is for the holder alone.
        assert self._touch(touch, receipt) == ("1" if touch in DONE else "0")
        assert self._touch(touch, second) != ("1" if touch in DONE else "0")
        return True

    def cancelled_as_it_falls_due(self, touch: str, at: int) -> bool:
        """A message is cancelled at the very moment of its promotion, right before or right after."""
        id = self._free()
        if not id or self._send_anew(id, delay=10) != "1":
            return False
        self._go_to(self.model.messages[id].due)
        if at:
            self._then(self.promote, limit=MAX_IDS, reruns=0)
        self._then(self.cancel, which=[id], stop=bool(at), reruns=0)
        self._claim_next()
        return id not in self.model.messages

    def stale_entry_claimed(self, touch: str, at: int) -> bool:
        """A waiting message is rescheduled: its entry stays in the list, and the claims meet it."""
        waiting = self.model.ids("ready") + self.model.ids("retry")
        if not waiting:
            receipt = self._receipt()
            if receipt and self._touch("nack" if touch in DONE else "release", receipt) == "1":
                self._then(self.expire, limit=MAX_IDS, reruns=0)
            waiting = self.model.ids("ready") + self.model.ids("retry")
        if not waiting:
            return False
        self._then(self.reschedule, which=[waiting[0]], moment=at, reruns=0)
        if at:  # nothing early by the entry left behind
            entries = len(self.scan.ready) + len(self.scan.retry)
            self._then(self.claim, consumer="two", wanted=min(entries, 4), lease=LEASE, is_lost=False, reruns=0)
            assert self.model.messages[waiting[0]].state == "pending"
        else:  # and nothing double, where it is in a list twice
            self._claim_next()
        return True

    def claim_sent_again_after_its_lease(self, touch: str, at: int) -> bool:
        """The reply of a claim was lost for so long that its lease has run out and another has the message."""
        receipt = self._receipt()
        consumer = receipt and self._claimer(receipt)
        if not receipt or not consumer:
            return False
        self._let_go(receipt)
        if at:
            self._claim_next(by="two" if consumer == "one" else "one")
        self._then(self.claim_replayed, consumer=consumer, wanted=1, lease=LEASE)
        return self._touch("extend", receipt) == "0"

    def redriven_onto_a_living_id(self, touch: str, at: int) -> bool:
        """The id of a dead message was sent again; only when that one is done may the dead one come back."""
        receipt = None if self.model.dead else self._receipt()
        if receipt:
            self._touch("reject", receipt)
        dead = list(self.model.dead)[-1:]
        id = self.model.dead[dead[0]].message.id if dead else ""
        if not dead or (id not in self.model.messages and self._send_anew(id) != "1"):
            return False
        call = self.calls.redrive(dead, retries=None)
        self._play(call, self.model.redrive(self.now, dead, retries=None), ["id lives"])
        self.agrees()
        return dead[0] in self.model.dead

    def released_and_claimed_again(self, touch: str, at: int) -> bool:
        """A release is not charged, the next claim draws a new token, and the old one holds nothing."""
        receipt = self._receipt()
        if not receipt:
            return False
        attempts, left = self.model.messages[receipt.id].attempts, self.model.messages[receipt.id].left
        assert self._touch("release", receipt) == "1"
        second = self._claimed(receipt.id)
        if not second:
            return False
        message = self.model.messages[receipt.id]
        assert (message.attempts, message.left) == (attempts, left)
        return self._touch("nack" if touch in DONE else touch, receipt) == "0"

    def call_overtaken_by_a_later_one(self, touch: str, at: int) -> bool:
        """A call arrives after the next one of its slot: its caller has given it up, and it does nothing."""
        receipt = self._receipt()
        if not receipt:
            return False
        self.sequences["overtaken"] += 2
        late, sequence = self._call("ack", receipt)[0], self.sequences["overtaken"]
        call, expected = self._call(touch, receipt)
        assert deliver(self.executor, call, slot="overtaken", sequence=sequence) == expected()
        self.is_seen = False
        self.agrees()
        try:
            reply = deliver(self.executor, late, slot="overtaken", sequence=sequence - 1)
        except OutcomeUnknown:
            self.is_seen = False
        else:
            raise AssertionError(f"carried out, though overtaken: {reply}")
        self.agrees()
        self._forget(receipt)
        return True

    def edge_of_the_dedupe_window(self, touch: str, at: int) -> bool:
        """A settled id is refused up to the last millisecond of the window, and taken at its end."""
        if not self.model.window or self.model.window[0] > 1000:
            return False
        receipt = self._receipt()
        if not receipt:
            return False
        assert self._touch("ack", receipt) == "1"
        if receipt.id not in self.model.done or receipt.id in self.model.messages:  # another has followed
            return False
        end = self.model.reserved_until(receipt.id)
        self._go_to(end - 1)
        assert self._send_anew(receipt.id, waits=False) == "5"
        self._go_to(end)
        return self._send_anew(receipt.id) == "1"

    def spent_and_sent_anew(self, touch: str, at: int) -> bool:
        """The id of a message that waits for its collection is sent again: not before it has been collected."""
        receipt = self._receipt()
        if not receipt or not self._spend(receipt):
            return False
        assert self._send_anew(receipt.id, replace=bool(at)) == "4"
        self._collect(receipt.id)
        return self._send_anew(receipt.id) == "1"

    def followed_as_it_ends(self, touch: str, at: int) -> bool:
        """What waits for a message takes its place however that ends, and is cancelled with it."""
        receipt = self._receipt()
        if not receipt or self._send_anew(receipt.id, delay=at, replace="after", waits=False) != "6":
            return False
        self._end_followed(receipt.id, touch if touch in {"ack", "reject", "nack"} else "cancel", reruns=0)
        self.agrees()
        return True

    def followed_when_its_retries_are_spent(self, touch: str, at: int) -> bool:
        """What waits for a message takes its place when that goes to the dead letter, not while it is tried again."""
        receipt = self._receipt()
        if not receipt or self._send_anew(receipt.id, delay=at, replace="after", waits=False) != "6":
            return False
        if not self._spend(receipt):
            return False
        waiting = self.model.successors[receipt.id].message.payload
        self._collect(receipt.id)
        self._reach("followed", "collect", True)
        assert self.model.messages[receipt.id].payload == waiting
        return self._place(receipt.id) == "pending"

    def late_receipt_of_what_is_ranked(self, touch: str, at: int) -> bool:
        """A message with a priority is ranked again, returned or after its lease, and its receipt comes late."""
        id = self._free()
        if not id or self._send_anew(id, attributes=b"priority=1") != "1":
            return False
        receipt = self._claimed(id)
        if not receipt:
            return False
        if at:
            assert self._touch("release", receipt) == "1"
            self._reach("ranked", "release", self._place(id) == "ranked")
        else:
            self._let_go(receipt)
        assert self._place(id) == "ranked"
        assert self._touch(touch, receipt) == ("1" if touch in DONE else "0")
        return True

    def waited_for_as_it_ends(self, touch: str, at: int) -> bool:
        """Whoever waits is told however a message ends, and its result is there until its time is over."""
        receipt = self._receipt()
        if not receipt:
            return False
        self._then(self.await_ends, which=[receipt.id], duration=1000, reruns=0)
        if touch in {"complete", "ack", "reject"}:
            self._touch("reject" if touch == "reject" else "complete", receipt)
        else:
            self._touch("nack", receipt)
            self._then(self.cancel, which=[receipt.id], stop=False, reruns=0)
        if receipt.id in self.model.waited or receipt.id not in self.model.completed:
            return receipt.id not in self.model.waited
        self._go_to(self.model.completed[receipt.id][0] - (at == 0))
        self._then(self.collect_garbage, which=[], limit=MAX_IDS, dead_max=10_000, dead_ttl=30 * draws.DAY, reruns=0)
        assert (receipt.id in self.model.completed) == (at == 0)
        return True

    def steered_while_it_waits_again(self, touch: str, at: int) -> bool:
        """A failed message is cancelled or rescheduled while it waits, and once more when it is pending again."""
        receipt = self._receipt()
        if not receipt or self._touch("nack", receipt) != "1":
            return False
        if touch not in DONE:
            self._then(self.reschedule, which=[receipt.id], moment=at, reruns=0)
        if touch in {*DONE, "nack"}:
            self._then(self.cancel, which=[receipt.id], stop=False, reruns=0)
            return receipt.id not in self.model.messages
        self._then(self.reschedule, which=[receipt.id], moment=10, reruns=0)
        return self._place(receipt.id) == "pending again"

    def killed_while_it_waits(self, touch: str, at: int) -> bool:
        """A failed message is killed: what waits for it takes its place, and whoever waits for its end is told."""
        receipt = self._receipt()
        if not receipt or (at and self._send_anew(receipt.id, replace="after", waits=False) != "6"):
            return False
        self._then(self.await_ends, which=[receipt.id], duration=1000, reruns=0)
        if self._touch("release" if touch == "release" else "nack", receipt) != "1":
            return False
        self._then(self.kill, which=[receipt.id], reruns=0)
        assert f"{receipt.id}:{receipt.token}" in self.model.dead
        assert receipt.id not in self.model.waited
        return (self._place(receipt.id) == "pending") == bool(at)

    def stopped_however_it_ends(self, touch: str, at: int) -> bool:
        """Whoever holds a message is asked to stop: it is cancelled unless it is acknowledged, and charged nothing."""
        receipt = self._receipt()
        if not receipt:
            return False
        before = Counter(self.model.totals)
        self._then(self.cancel, which=[receipt.id], stop=True, reruns=0)
        life = self.model.messages[receipt.id].life
        if at:
            self._let_go(receipt)
        elif touch == "extend":
            assert self._touch("extend", receipt) == "2"
            self._let_go(receipt)
        else:
            self._touch(touch, receipt)
        if receipt.id in self.model.messages and self.model.messages[receipt.id].life == life:
            assert self.model.messages[receipt.id].state == "garbage"
            self._collect(receipt.id)
        is_done = touch in DONE and not at
        assert (self.model.totals["cancelled"] > before["cancelled"]) != is_done
        return receipt.id not in self.model.messages or self.model.messages[receipt.id].life != life

    def settled_and_claimed_in_one_turn(self, touch: str, at: int) -> bool:
        """While nothing else waits, a turn settles what it holds and what it did before, and claims what falls due."""
        for _ in range(3):
            if self.scan.ready or self.scan.retry:
                self._claim_next()
        receipt = self._receipt() if touch in {"nack", "reject"} else None
        if receipt:  # so that something is delivered again
            self._touch("nack", receipt)
            self._then(self.reschedule, which=[receipt.id], moment=at, reruns=0)
        for delay in (0, at, at, 10):
            if id := self._free():
                self._then(self._send, messages=[(id, delay, 1, b"{}", b"name=n")])
        options = {"consumer": "one", "wanted": 2, "ahead": at, "lease": LEASE, "reruns": int(touch in DONE)}
        before = self.model.totals.copy()
        if self.scan.wake:
            self._then(self.wake)
        for picks in ([], [("held", 0), ("old", 0), ("held", 0)]):
            self._then(self.turn, **options, picks=picks, is_lost=touch == "extend")
        return all(self.model.totals[what] > before[what] for what in ("delivered", "acked"))

    def place_given_back_however_it_ends(self, touch: str, at: int) -> bool:
        """One of a name may run, and another waits: it starts as soon as the first ends, however it ends."""
        first, second = self._two_of_a_name()
        if not second or not first:
            return False
        if touch == "extend":
            assert self._touch("extend", first) == "1"
            self._let_go(first)
        else:
            self._touch(touch, first)
        self._then(self.claim, consumer="two", wanted=4, lease=LEASE, is_lost=False, reruns=0)
        return self._place(second) == "leased"

    def steered_while_it_is_throttled(self, touch: str, at: int) -> bool:
        """What a limit holds back is cancelled, rescheduled or replaced, and then nothing of it waits in the line."""
        _, second = self._two_of_a_name()
        if not second:
            return False
        if touch in DONE:
            self._then(self.cancel, which=[second], stop=bool(at), reruns=0)
        elif touch in {"nack", "extend"}:
            self._then(self.reschedule, which=[second], moment=at, reruns=0)
        else:
            assert self._send_anew(second, delay=at, replace=True) == "2"
        self._claim_next()
        return self._place(second) in {"gone", "dead"} if touch in DONE else self._place(second) != "throttled"

    def late_receipt_of_what_is_throttled(self, touch: str, at: int) -> bool:
        """The lease runs out, its name is paused, and the first consumer is not done with it."""
        id = self._free()
        if not self.is_limited or not id:
            return False
        self._then(self.limit, name=NAME, pace=Pace(), places=0, reruns=0)
        if self._send_anew(id, attributes=b"name=t") != "1":
            return False
        receipt = self._claimed(id)
        if not receipt or not self.model.messages[id].left:
            return False
        self._let_go(receipt)
        self._then(self.pause_name, name=NAME, until="0", reason="", reruns=0)
        self._claim_next()
        if self._place(id) != "throttled":
            return False
        assert self._touch(touch, receipt) == ("1" if touch in DONE else "0")
        self._then(self.resume_name, name=NAME, spread=60 if at else None, reruns=0)
        return True

    def start_given_back(self, touch: str, at: int) -> bool:
        """One of a name may start in a time: it goes back before it has started, and starts again within that time."""
        id = self._free()
        if not self.is_limited or not id or NAME in {message.name for message in self.model.messages.values()}:
            return False
        self._then(self.limit, name=NAME, pace=Pace(50_000.0, 1), places=0, reruns=0)
        if self._send_anew(id, attributes=b"name=t") != "1":
            return False
        receipt = self._claimed(id)
        if not receipt:
            return False
        releases, began = [Release(*receipt, 0, b"", True)], self.now
        next_start = self.model.limits.of[f"name:{NAME}"].next_start
        expected = self.model.release(self.now, releases)
        back = self.model.limits.of[f"name:{NAME}"].next_start < next_start
        self._reach("a start of a name is given back", "release", back)
        self._play(self.calls.release(releases), expected, ["held"])
        self.agrees()
        self._forget(receipt)
        again = self._claimed(id)
        self._then(self.limit, name=NAME, pace=Pace(), places=0, reruns=0)
        return back and again is not None and self.now < began + 50

    # How the situations come about.

    def _two_of_a_name(self) -> tuple[Receipt | None, str | None]:
        """Send two of a name of which one may run; return the receipt of one, and the id of the one that waits."""
        if not self.is_limited or NAME in {m.name for m in self.model.messages.values()}:
            return None, None
        self._then(self.limit, name=NAME, pace=Pace(), places=1, reruns=0)
        attributes = b"name=t priority=1" if self.sent % 2 else b"name=t"
        for _ in range(2):
            id = self._free()
            if not id or self._send_anew(id, attributes=attributes) != "1":
                return None, None
        self._claim_next()
        ids = [id for id, message in self.model.messages.items() if message.name == NAME]
        first = [id for id in ids if self._place(id) == "leased"]
        second = [id for id in ids if self._place(id) == "throttled"]
        if not first or not second:
            return None, None
        return Receipt(first[0], self.model.messages[first[0]].token), second[0]

    def _then(self, step, **how) -> None:
        step(**how)
        self.agrees()

    def _receipt(self) -> Receipt | None:
        """A receipt under which a message is held; one is sent and claimed if none is."""
        for _ in range(3):
            valid = [receipt for receipt in self.held if (message := self.model.held(receipt)) and not message.stopping]
            if valid:
                return valid[-1]
            if not (self.scan.ready or self.scan.retry or self.scan.ranked) and (id := self._free()):
                self._send_anew(id)
            self._claim_next()
        return None

    def _spend(self, receipt: Receipt) -> bool:
        """Fail the message until no retry is left; returns whether it came to that."""
        while self.model.messages[receipt.id].state != "garbage":
            assert self._touch("nack", receipt) in "12"
            if self.model.messages[receipt.id].state == "backoff":
                again = self._claimed(receipt.id)
                if not again:
                    return False
                receipt = again
        return True

    def _collect(self, id: str) -> None:
        options = {"limit": 1, "dead_max": 10_000, "dead_ttl": 30 * draws.DAY}
        self._then(self.collect_garbage, which=[id], reruns=0, **options)

    def _free(self) -> str | None:
        return next((id for id in draws.IDS if id not in self.model.messages), None)

    def _claim_next(self, by: str = "one") -> None:
        self._then(self.promote, limit=MAX_IDS, reruns=0)
        self._then(self.expire, limit=MAX_IDS, reruns=0)
        self._then(self.claim, consumer=by, wanted=4, lease=LEASE, is_lost=False, reruns=0)

    def _claimed(self, id: str) -> Receipt | None:
        """Claim until an id is held anew."""
        for _ in range(3):
            self._go_to(max(self.now, self.model.messages[id].until) if self._place(id) == "backoff" else self.now)
            self._claim_next("two")
            message = self.model.messages[id]
            if message.state == "leased":
                return Receipt(id, message.token)
        return None

    def _let_go(self, receipt: Receipt) -> None:
        """Let the lease run out."""
        self._go_to(max(self.now, self.model.messages[receipt.id].until))
        self._then(self.expire, limit=MAX_IDS, reruns=0)

    def _claimer(self, receipt: Receipt) -> str | None:
        return next((consumer for consumer, claim in self.claims.items() if receipt in claim), None)

    def _send_anew(
        self, id: str, *, delay: int = 0, replace: Replace = False, waits: bool = True, attributes: bytes = b""
    ) -> str:
        """Send an id; `waits` for the end of the dedupe window, if it was settled within it."""
        self.sent += 1
        if waits and id in self.model.done:
            self._go_to(max(self.now, self.model.reserved_until(id)))
        out = [Outgoing(id, delay, 1 + self.sent % 2, b"%d" % self.sent, b"", attributes)]
        situation = self._place(id)
        is_known = id in self.model.done
        reply = self.model.send(self.now, out, replace=replace, max_length=None)
        self._reach("settled before the window", "send", is_known and reply == "1")
        self._play(self.calls.send(out, replace=replace, max_length=None), reply, [situation])
        self.agrees()
        return reply

    def _touch(self, touch: str, receipt: Receipt) -> str:
        situation = self._standing(receipt)
        call, expected = self._call(touch, receipt)
        reply = expected()
        self._play(call, reply, [situation])
        self.agrees()
        self._forget(receipt)
        return reply

    def _forget(self, receipt: Receipt) -> None:
        """What is no longer held is an old receipt."""
        if receipt in self.held and not self.model.held(receipt):
            self.held.remove(receipt)
            self.old.append(receipt)

    def _call(self, touch: str, receipt: Receipt):
        """Return a call with a receipt, and what gives its answer."""
        now, model, calls = self.now, self.model, self.calls
        failure, rejection = Failure(*receipt, 0, "boom"), Rejection(*receipt, "no such user", "")
        releases = [Release(*receipt)]
        done = [Completed(*receipt, "60", "returned", b"retention=60", "", b"7")]
        return {
            "complete": (calls.complete(done), lambda: model.complete(now, done)),
            "ack": (calls.ack([receipt]), lambda: model.ack(now, [receipt], outcome="acked")),
            "nack": (calls.nack([failure]), lambda: model.nack(now, [failure])),
            "extend": (calls.extend([receipt], lease=LEASE), lambda: model.extend(now, [receipt], lease=LEASE)),
            "release": (calls.release(releases), lambda: model.release(now, releases)),
            "reject": (calls.reject([rejection]), lambda: model.reject(now, [rejection])),
        }[touch]


def told(trap: Callable[..., bool]) -> str:
    """Return the name of a trap."""
    return trap.__name__.replace("_", " ")


UNLIMITED = (
    TrapMachine.late_receipt_of_an_earlier_life,
    TrapMachine.late_receipt_after_the_lease,
    TrapMachine.cancelled_as_it_falls_due,
    TrapMachine.stale_entry_claimed,
    TrapMachine.claim_sent_again_after_its_lease,
    TrapMachine.redriven_onto_a_living_id,
    TrapMachine.released_and_claimed_again,
    TrapMachine.call_overtaken_by_a_later_one,
    TrapMachine.edge_of_the_dedupe_window,
    TrapMachine.edge_of_the_dedupe_window,  # once more: the window is on in some examples only
    TrapMachine.spent_and_sent_anew,
    TrapMachine.followed_as_it_ends,
    TrapMachine.followed_when_its_retries_are_spent,
    TrapMachine.waited_for_as_it_ends,
    TrapMachine.steered_while_it_waits_again,
    TrapMachine.killed_while_it_waits,
    TrapMachine.stopped_however_it_ends,
)
PLAIN_TRAPS = (*UNLIMITED, *(TrapMachine.settled_and_claimed_in_one_turn,) * 8)
TRAPS = (
    *UNLIMITED,
    TrapMachine.settled_and_claimed_in_one_turn,  # where the queue is plain by chance
    TrapMachine.late_receipt_of_what_is_ranked,
    *(TrapMachine.place_given_back_however_it_ends,) * 3,
    *(TrapMachine.start_given_back,) * 3,
    *(TrapMachine.steered_while_it_is_throttled,) * 4,
    *(TrapMachine.late_receipt_of_what_is_throttled,) * 2,  # in some examples only, too
)
