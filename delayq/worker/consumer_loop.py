"""The consumer: when to look, how much to claim, when to renew, settle, collect, rest and stop.

One loop turn is one round trip, in this order: settlements, heartbeat, expiry, collection, schedules, promotion, claim.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from typing import Any

from delayq.answers import Claimed, Collected, Expired, Promoted
from delayq.errors import DelayqError
from delayq.flow import Abandon, Event, Recall, Start, Step, Turn, Wait
from delayq.flows.held import Held
from delayq.flows.owed import Owed
from delayq.flows.recurring import Recurring
from delayq.message import Holding, Tools
from delayq.verdict import Completion, Verdict

log = logging.getLogger("delayq.consumer")

COLLECT_EVERY = 60.0
"""Seconds between collections when nothing is known to be spent: they also trim the dead letter by age."""
AFTER_TROUBLE = 1.0
"""Seconds of rest after Redis has refused a call."""
MOST_CLAIMED = 250
"""Messages claimed at a time, but for larger batches: about half of what may be prefetched, so that the server is at
work on one half while the callbacks of the other run."""
DRIFT = 1e-4
"""Seconds by which two clocks may drift apart in a second."""
MOVES_WITHIN = 0.02
"""Seconds within which a clock that runs has moved."""

Plan = list[tuple[Any, Callable[[Any], None]]]
"""The calls of a turn, each with the reader of its answer."""


class Consumption:
    """One consumer's decisions. All times are local and monotonic, in seconds; None is never."""

    def __init__(self, tools: Tools, *, holder: str, batch: int = 1, burst: bool = False) -> None:
        """Consume a queue in the name of `holder`, up to `batch` messages a callback; in a burst, until none is due."""
        self.held = Held(tools.calls, tools.settings, batch)
        self.owed = Owed(tools.calls, tools.settings, self.held.drop)
        self._most_claimed = max(batch, MOST_CLAIMED)
        self._tools = tools
        self._tick = tools.settings.tick / 1000
        self.recurring = Recurring(tools.calls, self._tick)
        self._holder = holder
        self._burst = burst
        self._now = 0.0
        self._asked_at = 0.0
        self._looked_at = 0.0
        self._server_now = 0
        self._ahead = 0.0
        self._due_at: float | None = None
        self._deadline_at: float | None = None
        self._collect_at = 0.0
        self._rest_until = 0.0
        self._stop_at: float | None = None
        self._expecting = True
        self._signalled = False
        self._drained = False
        self._settling = False
        self._unseen = False
        self._trouble = ""
        self._claimed: list[Holding] = []

    def run(self) -> Generator[Step, Event, None]:
        """Consume until asked to stop; in a burst, until nothing is due. A wake-up that comes with it is passed on."""
        yield from self._consume()
        if self._signalled:
            self._take_in((yield Wait(0, listen=False)))
        while self._signalled:
            self._take_in((yield Turn([self._claim(0)[0]])))

    def _consume(self) -> Generator[Step, Event, None]:
        event = yield Wait(0, listen=False)
        while True:
            self._take_in(event)
            if self._stop_at is not None:
                yield from self._stop()
                return
            plan = self._plan()
            self._asked_at = self._now
            event = yield Turn([call for call, _ in plan])
            self._take_in(event)
            self._read(plan, event)
            if self._claimed or self.held.overdue:
                event = yield Start(self._claimed)
                self._take_in(event)
            if self._burst and self._drained and not self._unseen and not self.held:
                return
            event = yield Wait(self._pause(), listen=self.held.room() > 0)

    def _stop(self) -> Generator[Step, Event, None]:
        """Release what has not started, wait for what runs, nack what is cut off; settle everything."""
        event = yield Recall()
        self.owed.add([Completion(event.recalled, Verdict.RELEASE)])
        abandoned = False
        while True:
            self._take_in(event)
            plan = self._housekeeping()
            if plan:
                event = yield Turn([call for call, _ in plan])
                self._take_in(event)
                self._read(plan, event)
            late = self._stop_at is not None and self._now >= self._stop_at
            if not self.held or (late and abandoned):
                break
            if late:
                event = yield Abandon()
                abandoned, self._rest_until = True, 0.0
                running = [holding for holding in self.held.holdings if not holding.settled]
                self.owed.add([Completion(running, Verdict.NACK, "cut off by a stop", 0)])
            else:
                event = yield Wait(self._patience(self._stop_at or 0.0), listen=False)
        if self.owed:
            log.error("stopped with %d settlements unsent; the messages will be delivered again", len(self.owed))

    # What has happened

    def _take_in(self, event: Event) -> None:
        self._now = event.now
        self._signalled |= event.signalled
        self._stop_at = event.stop_at
        if event.completions:
            # What a callback gave back by hand may have come after this turn's look.
            self._unseen = True
            self.held.measure(event.completions)
            self.owed.add(event.completions)

    # What to do next

    def _housekeeping(self) -> Plan:
        if self._now < self._rest_until:
            return []
        return [*self.owed.settle(), *self.held.heartbeat(self._now)]

    def _plan(self) -> Plan:
        """Return the calls of a turn in the order they must run."""
        calls = self._tools.calls
        plan = self._housekeeping()
        self._settling, self._unseen = bool(plan), False
        freed = self.owed.next if plan else 0
        late = self._deadline_at is not None and self._deadline_at <= self._now
        if late:
            plan.append((calls.unack_to_retry(), self._expired))
        if self._collect_at <= self._now:
            plan.append((self._tools.collect(), self._collected))
        recurring = [*self.recurring.plan(self._now)]
        plan += [*recurring, (calls.pending_to_ready(), self._look)]
        due = self._due_at is not None and self._due_at <= self._now
        if self._expecting or self._signalled or due or late or recurring:
            # A full consumer claims nothing, which passes its wake-up on to the next one.
            room = min(self.held.room() + freed, self._most_claimed)
            if room > 0 or self._signalled:
                plan.append(self._claim(max(room, 0)))
        self._signalled = False
        return plan

    def _claim(self, wanted: int) -> tuple[Any, Callable[[Any], None]]:
        """Return a claim; one of nothing passes a wake-up on, with all that may have come with it."""
        self._signalled = False
        calls, settings = self._tools.calls, self._tools.settings
        return calls.ready_to_unack(wanted, lease=settings.lease, holder=self._holder), self._hold

    def _pause(self) -> float:
        """Return how long nothing needs to be done unless something happens."""
        if self._now < self._rest_until:
            return self._rest_until - self._now
        room = self.held.room() > 0
        if self.owed or (room and self._expecting) or (self._burst and (self._settling or self._unseen)):
            return 0.0
        until = [self._now + self._tick, self._collect_at]
        if room and self._due_at is not None:
            until.append(self._due_at)
        if self._deadline_at is not None:
            until.append(self._deadline_at)
        if self.held:
            until.append(self.held.heartbeat_at)
        if self.recurring.at is not None:
            until.append(self.recurring.at)
        return max(0.0, min(until) - self._now)

    def _patience(self, end: float) -> float:
        """Return how long a stop sleeps for the callbacks that run: what else the queue holds is no concern of it."""
        if self._now < self._rest_until:
            end = min(end, self._rest_until)
        elif self.owed:
            return 0.0
        else:
            end = min(end, self.held.heartbeat_at)
        return max(0.0, end - self._now)

    # What Redis answered

    def _read(self, plan: Plan, event: Event) -> None:
        self._claimed = []
        trouble = ""
        for (_, read), answer in zip(plan, event.answers, strict=True):
            if isinstance(answer, DelayqError) and read not in self.recurring.readers:
                trouble = trouble or str(answer)
            else:
                read(answer)
        if trouble:
            self._rest_until = self._now + AFTER_TROUBLE
            if trouble != self._trouble:
                log.error("Redis refused a call, trying again: %s", trouble)
        self._trouble = trouble

    def _look(self, promoted: Promoted) -> None:
        # Promotion comes after settlements, expiry and collection, so it sees what they have left.
        self._compare_clocks(promoted.now)

        def local(at: int) -> float | None:
            return None if at == -1 else self._now - self._ahead + (at - promoted.now) / 1000

        self._due_at, self._deadline_at = local(promoted.next_due), local(promoted.next_deadline)
        self.recurring.occurs(local(promoted.next_schedule))
        self._expecting = promoted.waiting > 0
        if promoted.garbage:
            self._collect_at = self._now
        # A burst waits for what comes back within a tick, such as a message nacked without a delay. It looks once more
        # after it has settled or expired something: where the server had to be taught a script first, this promotion
        # came before that. Where a test has stopped the clock, nothing comes back.
        stopped = promoted.now == self._server_now and self._asked_at - self._looked_at > MOVES_WITHIN
        self._server_now, self._looked_at = promoted.now, self._now
        soon = self._now + self._tick
        self._drained = (
            not self._settling
            and not promoted.waiting
            and not promoted.garbage
            and (self._due_at is None or self._due_at > self._now)
            and (stopped or self._deadline_at is None or self._deadline_at > soon)
            and (self.recurring.at is None or self.recurring.at > self._now)
        )

    def _compare_clocks(self, server_now: int) -> None:
        """Learn how far the server's clock is ahead of what an answer says.

        An answer tells the time in whole milliseconds and takes a while to come, so it is behind by what changes from
        one to the next. The one that was least behind is remembered; clocks may drift apart meanwhile, and where it
        cannot be true, one of them was set.
        """
        passed = self._now - self._looked_at
        ahead = self._ahead + passed * (1 - DRIFT) - (server_now - self._server_now) / 1000
        self._ahead = ahead if 0 < ahead <= 0.001 + self._now - self._asked_at else 0.0

    def _collected(self, collected: Collected) -> None:
        if collected.trimmed:
            text = "trimmed %d entries of the dead letter"
            log.warning(text, collected.trimmed, extra={"trimmed": collected.trimmed})
        self._collect_at = self._now if collected.left else self._now + COLLECT_EVERY

    def _hold(self, claimed: Claimed) -> None:
        self._claimed = self.held.hold(claimed, self._now)
        self._expecting = claimed.left > 0
        self._drained = self._drained and not claimed.left

    def _expired(self, expired: Expired) -> None:
        self._settling |= expired.retried + expired.spent > 0
