"""When the next work of a queue is due, as the last replies of Redis say. Times are local and monotonic, in seconds."""

from __future__ import annotations

import math

from delayq.broker.replies import ClaimReply, CollectReply, PromoteReply

DRIFT = 1e-4
"""Seconds per second by which two clocks may drift apart."""
CLOCK_MOVES_WITHIN = 0.02
"""Seconds after which a running clock must have advanced."""


class ClockEstimate:
    """What one consumer knows of the server's clock. Local times are monotonic, in seconds."""

    def __init__(self) -> None:
        """Know nothing yet."""
        self.stopped = False
        """Whether the clock has not moved since the reply before, as where a test has stopped it."""
        self._server_now = 0
        self._read_at = 0.0
        self._ahead = 0.0

    def read(self, server_now: int, *, sent_at: float, now: float) -> None:
        """Read the server's time (ms) in a reply to what was sent at a local time.

        A reply gives the time in whole milliseconds and takes a while to arrive, so it lags by a varying amount. The
        smallest lag seen is kept, less what the clocks may have drifted since. An impossible value means that a clock
        was set; the estimate then starts again.
        """
        passed = now - self._read_at
        ahead = self._ahead + passed * (1 - DRIFT) - (server_now - self._server_now) / 1000
        self._ahead = ahead if 0 < ahead <= 0.001 + now - sent_at else 0.0
        self.stopped = server_now == self._server_now and sent_at - self._read_at > CLOCK_MOVES_WITHIN
        self._server_now, self._read_at = server_now, now

    def local(self, at: int) -> float | None:
        """Return the local time of a server's time (ms); None for -1, which means never."""
        return None if at == -1 else self._read_at - self._ahead + (at - self._server_now) / 1000


_NOTHING = (0, -1, -1, 0, 0)
COLLECT_EVERY = 60.0
"""Seconds between collections when no message is known to be spent: they also trim the dead letter by age. A worker of
many queues leaves more time between them."""
MOST_COLLECTING = 10
"""Workers of a queue that share its collections: with more, each collects as often as with so many."""


class Outlook:
    """What one consumer knows of its queue: each call is made only if there is a reason for it."""

    def __init__(self, tick: float) -> None:
        """Look at once, then at the latest after each `tick` (seconds): another process may have changed the queue.

        Consumers of a queue in which nothing happens take turns, see `take_turns`.
        """
        self.ready = 1
        """How many messages can be claimed; at first, one that may be there."""
        self._pending_at = math.inf
        self._gate_at = math.inf
        self.deadline_at = math.inf
        self.collect_at = 0.0
        self.collect_every = COLLECT_EVERY
        """Seconds between collections when no message is known to be spent."""
        self.look_at = 0.0
        """When to ask again what is due next."""
        self.looked_at = 0.0
        """When that was asked last."""
        self.empty = False
        """Whether the last look has found nothing at all, so that a cheaper one may do."""
        self.paused = False
        """Whether the queue was paused when last looked at: nothing may start."""
        self.lead = 0.0
        """How long before a message is due it is to be claimed."""
        self.ranks = False
        """Whether there are priorities or limits: what is due is promoted before each claim, in order."""
        self._clock = ClockEstimate()
        self._tick = self._every = tick
        self._turn_at = 0.0
        self._collecting = 1

    @property
    def due_at(self) -> float:
        """When the next message is to be claimed, or may start that a limit holds back."""
        return min(self._pending_at - self.lead, self._gate_at)

    @property
    def is_held_back(self) -> bool:
        """Whether a limit holds back something until a time that is known."""
        return self._gate_at < math.inf

    def read_promoted(self, promoted: PromoteReply, *, sent_at: float, now: float) -> None:
        """Note what a promotion has said."""
        self._clock.read(promoted.now, sent_at=sent_at, now=now)
        self._pending_at = self._local_or_never(promoted.next_due)
        self.deadline_at = self._local_or_never(promoted.next_deadline)
        self._gate_at = self._local_or_never(promoted.next_gate)
        self.ready = promoted.waiting
        self.paused = promoted.paused >= 0
        happens = (promoted.waiting, promoted.next_deadline, promoted.garbage, promoted.next_gate) != (0, -1, 0, -1)
        self._note_look(now, rests=not (happens or self.paused))
        self.ranks = self.ranks or promoted.ranks == 1
        found = promoted[:5] != _NOTHING or promoted.next_schedule != -1 or promoted.next_gate != -1
        self.empty = not found and not self.paused
        if promoted.garbage:
            self.collect_at = now

    def read_claimed(self, claimed: ClaimReply, *, sent_at: float, now: float) -> None:
        """Note what a claim of due messages has said."""
        self._clock.read(claimed.now, sent_at=sent_at, now=now)
        self._pending_at = self._local_or_never(claimed.next_due)
        self.deadline_at = self._local_or_never(claimed.next_deadline)
        self.ranks = self.ranks or claimed.ranks
        self.empty = False
        if claimed.next_deadline != -1:
            self.look_at = min(self.look_at, now + self._tick)

    def read_gate(self, claimed: ClaimReply) -> None:
        """Note what a claim has said about what limits hold back; `read_claimed` or a promotion was read before."""
        self.ready = claimed.left
        self._gate_at = self._local_or_never(claimed.next_gate)

    def read_checked(self, empty: bool, *, now: float) -> None:  # noqa: FBT001 - the reply
        """Note whether the queue is still empty; if not, look again at once."""
        self.empty = empty
        if empty:
            self._note_look(now, rests=True)

    def take_turns(self, every: float, at: float, *, workers: int) -> None:
        """Look so often (seconds) while nothing is leased and nothing waits, at these times, since others look as well.

        Without others, that is once per tick. So many `workers` collect about as often as one alone.
        """
        self._every, self._turn_at = every, at
        before, self._collecting = self._collecting, min(workers, MOST_COLLECTING)
        if self.collect_at > at + every:  # not due
            self.collect_at += self.collect_every * (self._collecting - before)

    def _note_look(self, now: float, *, rests: bool) -> None:
        wait = self._every - (now - self._turn_at) % self._every if rests and self._every > self._tick else self._tick
        self.look_at, self.looked_at = now + wait, now

    def read_collected(self, collected: CollectReply, now: float) -> None:
        """Note what a collection has left."""
        self.collect_at = now if collected.left else now + self.collect_every * self._collecting

    def local(self, at: int) -> float | None:
        """Return the local time of a server's time (ms); None for -1, which means never."""
        return self._clock.local(at)

    def _local_or_never(self, at: int) -> float:
        local = self.local(at)
        return math.inf if local is None else local

    def is_empty(self, now: float) -> bool:
        """Return whether nothing is left to do, nor returns within a tick, as a message nacked without a delay does.

        Where a test has stopped the clock, nothing returns.
        """
        returns = min(self.deadline_at, self._gate_at) <= now + self._tick and not self._clock.stopped
        return not self.ready and self.collect_at > now and self.due_at > now and not returns

    def knows_more(self, now: float) -> bool:
        """Return whether something is known that could be claimed."""
        return not self.paused and (self.ready > 0 or self.due_at <= now)

    def wants_due(self, capacity: int, now: float) -> bool:
        """Return whether to promote what is due: some is, and may be claimed, or may come before what can be."""
        if self.ranks and capacity > 0:
            return self.ready > 0 or self.due_at <= now
        return self.due_at <= now and self.ready < capacity

    def next_at(self, *, claims: bool) -> float:
        """Return when to ask Redis again; with `claims`, also because of what can be claimed."""
        until = min(self.look_at, self.collect_at, self.deadline_at)
        if claims:
            until = 0.0 if self.ready else min(until, self.due_at)
        return until
