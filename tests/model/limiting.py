"""Limits in plain Python: how many messages of a queue or a name may start, and what waits for that in lines."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import NamedTuple

QUEUE = "queue"


@dataclass(slots=True)
class Limit:
    """The limit of a scope; times in ms, distances of starts in microseconds."""

    number: int
    interval: float = 0
    burst: int = 1
    places: int = 0
    held: int = 0
    paused: int | None = None
    next_start: float = 0
    spread: float = 0
    spread_until: int = 0
    reason: str = ""
    trial_at: int = 0
    trial_pause: int = 0
    trials: int = 0
    """How many more may start as trials of the breaker, which has tripped if there is a pause between them."""
    since: int = 0
    """First token of the claim from which on starts may be given back, 0 if there is none."""
    last: int = 0
    """First token of the last claim that has started something under a rate."""
    spare: float = 0
    """What those before the last one get back at most (us)."""

    def text(self) -> bytes:
        """Return it as it is stored."""
        paused = "-" if self.paused is None else str(self.paused)
        breaker = f"/{self.trial_at}/{self.trial_pause}/{self.trials}" if self.trial_pause else ""
        numbers = f"{self.number} {self.interval:.3f} {self.burst} {self.places} {self.held}{breaker} {paused}"
        claims = f"/{self.since}/{self.last}/{self.spare:.2f}" if self.last else ""
        return f"{numbers} {self.next_start:.2f}{claims} {self.spread:.3f} {self.spread_until} {self.reason}".encode()

    def is_paused(self, now: int) -> bool:
        return self.paused is not None and (self.paused == 0 or self.paused > now)

    def pace(self, now: int) -> tuple[float, int]:
        """Return the distance of starts, and how many may start at once."""
        is_spread = self.spread > self.interval and self.spread_until > now
        return (self.spread, 1) if is_spread else (self.interval, self.burst)

    def opens_at(self, now: int, used: int) -> float:
        """Return when the next may start (us), if so many run; infinite if something must happen first."""
        if self.paused == 0 or (self.places and used >= self.places):
            return math.inf
        interval, burst = self.pace(now)
        at = max(self.held, self.paused or 0, self.trial_at) * 1000
        return max(at, self.next_start - (burst - 1) * interval) if interval else at

    def bring_near(self, now: int) -> None:
        """Let no start wait for longer than starts can have moved it, as after a step back of the clock."""
        interval, burst = self.pace(now)
        if interval and self.next_start > now * 1000 + burst * interval:
            self.next_start = now * 1000 + burst * interval
            self.keep_starts()
        self.trial_at = min(self.trial_at, now + self.trial_pause)
        if not self.trials and self.trial_at <= now:
            self.trip(0, 0, 0)

    def keep_starts(self) -> None:
        """Let no start be given back that was made until now."""
        self.since, self.last, self.spare = 0, 0, 0

    def note_claim(self, first_token: int, now: int) -> None:
        """Note that a claim starts something."""
        if self.last == first_token:
            return
        ahead = max(self.next_start - now * 1000, 0)
        self.spare = min(self.spare, ahead) if self.since < self.last else ahead
        if not self.last or self.spare < self.pace(now)[0]:
            self.since, self.spare = first_token, 0
        self.last = first_token

    def give_back(self, token: int, now: int) -> bool:
        """Give back the start of a message; return whether it still counted."""
        given = self.pace(now)[0] if self.last and token >= self.since else 0
        if token < self.last:
            given = min(given, self.spare)
            self.spare -= given
        self.next_start -= given
        return given > 0

    def is_over(self, now: int) -> bool:
        if self.trial_pause or self.places or self.pace(now)[0]:
            return False
        return not self.is_paused(now) and self.held <= now

    def trip(self, at: int, pause: int, trials: int) -> None:
        self.trial_at, self.trial_pause, self.trials = at, pause, trials


class Waiting(NamedTuple):
    """A message that may be claimed: its id, its name, and its due time less the head start of its priority."""

    id: str
    name: str | None
    rank: int


@dataclass(slots=True)
class Limits:
    """The limits of a queue, what waits in their lines, and what runs in their places."""

    of: dict[str, Limit] = field(default_factory=dict)
    lines: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Which line a message waits in, and its rank."""
    gates: dict[int, float] = field(default_factory=dict)
    """When the first of a line may start (ms); of the queue, number 0, when its limit is not used up."""
    running: dict[str, int] = field(default_factory=dict)
    flag: str = ""
    """What kinds of limits there are: "running" if one has places, "starts" if there are others."""
    wakes: bool = False
    """Whether a call has let something start since this was last looked at."""

    def line(self, number: int) -> list[str]:
        """Return the ids of a line in their order."""
        return sorted((id for id in self.lines if self.lines[id][0] == number), key=lambda id: (self.lines[id][1], id))

    def next_gate(self) -> int:
        """Return when something that waits may start (ms), -1 if that is not known."""
        first = self.gates.get(0, min(self.gates.values(), default=math.inf)) if self.flag else math.inf
        return -1 if first == math.inf else int(first)

    def first_gate(self) -> float | None:
        return self.gates.get(0, min(self.gates.values(), default=None)) if self.flag else None

    def change(self, scope: str, now: int) -> Limit:
        """Return the limit of a scope to change it, a new one if it has none."""
        taken = {one.number for one in self.of.values()}
        number = 0 if scope == QUEUE else next(number for number in count(1) if number not in taken)
        return self.of.setdefault(scope, Limit(number))

    def put(self, scope: str, now: int) -> None:
        """Judge anew what waits for a limit that was changed."""
        one = self.of[scope]
        one.bring_near(now)
        self.gates.pop(one.number, None)
        waits = one.number > 0 and self.line(one.number)
        if waits:
            self.gates[one.number] = 0
        if one.is_over(now) and not waits:
            del self.of[scope]
        kinds = {"running" if other.places else "starts" for other in self.of.values()}
        self.flag, self.wakes = min(kinds, default=""), True

    def free(self, ids: Iterable[str]) -> None:
        """Give the places of ids back whose leases are over."""
        ids = list(ids)
        if self.flag != "running" or not ids:
            return
        opened = {0, *(self.running.pop(id) for id in ids if id in self.running)} & self.gates.keys()
        self.wakes |= any(self.gates[number] for number in opened)
        self.gates |= dict.fromkeys(opened, 0)

    def give_back(self, name: str | None, token: int, now: int) -> None:
        """Give back the start of a message that no callback has started for."""
        for scope in (QUEUE, f"name:{name}") if self.flag else ():
            one = self.of.get(scope)
            if one and one.give_back(token, now) and self.gates.get(one.number, 0) > now + 1:
                self.gates[one.number], self.wakes = now + 1, True

    def clear(self) -> None:
        """Forget what waits and what runs."""
        self.lines, self.gates, self.running = {}, {}, {}


class Claim:
    """One claim under limits: it chooses what starts, and moves what may not into lines."""

    def __init__(self, limits: Limits, now: int, leased: int, first_token: int) -> None:
        self.limits, self.now, self.first_token = limits, now, first_token
        self.known: dict[str, Limit] = {}
        self.used: dict[int, int] = {0: leased}
        self.chosen: list[str] = []
        self.throttled: list[tuple[Waiting, int]] = []
        """What may not start, and its line."""
        self.trials: list[tuple[str, str | None]] = []
        """What starts as a trial, and of which name; None for the queue."""
        self.lined = {number: True for number in limits.gates if number}
        """The lines with gates, and whether something waits in them at the end."""

    def limit(self, scope: str) -> Limit | None:
        """Return the limit of a scope; one that is over and that nothing waits for is removed."""
        one = self.limits.of.get(scope)
        if one and scope not in self.known:
            one.bring_near(self.now)
            if one.is_over(self.now) and one.number not in self.lined:
                self._remove(scope)
                return None
            running = sum(number == one.number for number in self.limits.running.values())
            self.known[scope], self.used[one.number] = one, self.used.get(one.number, running)
        return one

    def may_start(self, one: Limit) -> bool:
        return one.opens_at(self.now, self.used[one.number]) <= self.now * 1000

    def start(self, one: Limit, id: str) -> None:
        if one.trial_pause:
            one.trip(self.now + one.trial_pause, one.trial_pause, one.trials - 1)
            (scope,) = (scope for scope, other in self.known.items() if other is one)
            self.trials.append((id, scope.partition(":")[2] or None))
        interval, _ = one.pace(self.now)
        if interval:
            one.note_claim(self.first_token, self.now)
            one.next_start = max(one.next_start, self.now * 1000) + interval
        self.used[one.number] += 1
        if one.number and one.places:
            self.limits.running[id] = one.number

    def room(self, one: Limit, wanted: int) -> int:
        """Return how many of a number may start."""
        before, used, room = one.next_start, self.used[one.number], 0
        interval, _ = one.pace(self.now)
        wanted = min(wanted, 1) if one.trial_pause else wanted
        while room < wanted and self.may_start(one):
            one.next_start, room = max(one.next_start, self.now * 1000) + interval, room + 1
            self.used[one.number] += 1
        one.next_start, self.used[one.number] = before, used
        return room

    def take_lines(self, wanted: int) -> None:
        """Take what waits in the lines whose gates are open."""
        scopes = {one.number: scope for scope, one in self.limits.of.items()}
        gates = sorted((at, str(number)) for number, at in self.limits.gates.items() if number and at <= self.now)
        for number in (int(text) for _, text in gates):
            line = self.limits.line(number)
            if len(self.chosen) >= wanted:
                continue
            if not line:
                del self.limits.gates[number], self.lined[number]
                continue
            one = self.limit(scopes[number])
            assert one
            taken = line[: self.room(one, min(wanted - len(self.chosen), len(line)))]
            for id in taken:
                self.start(one, id)
                del self.limits.lines[id]
            self.chosen += taken
            self.lined[number] = len(taken) < len(line)

    def take(self, waiting: list[Waiting], wanted: int) -> None:
        """Take from the head of what waits, which it is taken from."""
        while waiting and wanted > 0:
            message = waiting.pop(0)
            one = self.limit(f"name:{message.name}") if message.name else None
            if one and (self.lined.get(one.number) or not self.may_start(one)):
                self.lined[one.number] = True
                self.throttled.append((message, one.number))
            else:
                if one:
                    self.start(one, message.id)
                self.chosen.append(message.id)
                wanted -= 1

    def end(self) -> None:
        """Count what starts for the queue, and set the gates of what waits."""
        queue = self.known.get(QUEUE)
        for id in self.chosen if queue else ():
            self.start(queue, id)
        for scope, one in [*self.known.items()]:
            closed = self.lined.get(one.number) or (scope == QUEUE and not self.may_start(one))
            if closed:
                at = one.opens_at(self.now, self.used[one.number])
                self.limits.gates[one.number] = at if at == math.inf else math.ceil(at / 1000)
            else:
                self.limits.gates.pop(one.number, None)
                if one.number in self.lined and one.is_over(self.now):
                    self._remove(scope)

    def _remove(self, scope: str) -> None:
        one = self.limits.of.pop(scope)
        self.limits.gates.pop(one.number, None)
        if not self.limits.of:
            self.limits.flag = ""


def choose(
    claim: Claim, wanted: int, delivered: int, retry: Sequence[Waiting], by_rank: Sequence[Waiting]
) -> list[str]:
    """Return what a claim takes: first what waits in lines, then as without limits, but for what may not start."""
    queue = claim.limit(QUEUE)
    if queue:
        wanted = claim.room(queue, wanted)
    claim.take_lines(wanted)
    again, waiting = [*retry], [*by_rank]
    first_turns = (delivered + wanted) // 4 - delivered // 4
    claim.take(again, min(first_turns, wanted - len(claim.chosen)))
    claim.take(waiting, wanted - len(claim.chosen))
    claim.take(again, wanted - len(claim.chosen))
    claim.end()
    return claim.chosen
