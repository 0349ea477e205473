"""Makes calls to a queue and its model at once, and compares each answer and all that is stored."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import wraps
from typing import Any, NamedTuple

from hypothesis import note, stateful
from hypothesis.stateful import RuleBasedStateMachine, invariant

from delayq.broker.calls import Calls
from delayq.broker.keys import Keys
from delayq.broker.requests import Receipt, ScriptCall
from delayq.broker.transport.executor import Executor
from tests.model import draws
from tests.model.fold import Fold
from tests.model.model import Model
from tests.model.scan import check, check_log, read
from tests.support.scripts import deliver

serials = itertools.count(1)
RULES: list[str] = []
"""The names of all rules."""


def rule(**strategies: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Mark a rule, and count how often it is followed."""

    def mark(step: Callable[..., None]) -> Callable[..., None]:
        @wraps(step)
        def counted(self: Player, **drawn: Any) -> None:
            self.reached[f"rule: {step.__name__}"] += 1
            step(self, **drawn)

        RULES.append(step.__name__)
        return stateful.rule(**strategies)(counted)

    return mark


class Turn(NamedTuple):
    """A turn that may be made again: its call, and what it has answered."""

    at: int
    sequence: int
    wanted: int
    options: dict[str, Any]
    statuses: str
    claimed: list[Receipt]


class Player(RuleBasedStateMachine):
    """A queue and its model, side by side, and what the players of the queue know."""

    def __init__(self, executor: Executor, reached: Counter[str]) -> None:
        super().__init__()
        self._rules_strategy.enabled_rules_strategy = draws.rules_used
        self.executor, self.reached = executor, reached
        self.calls = Calls(Keys.of("model", f"q{next(serials)}"), clock=lambda: self.now)
        self.model = Model()
        self.fold: Fold | None = None
        """What the event log has told, if it is on."""
        self.now = self.latest = draws.START
        self.sent = 0
        self.held: list[Receipt] = []
        self.old: list[Receipt] = []
        self.entries: list[str] = []
        self.sequences: Counter[str] = Counter()
        self.claims: dict[str, list[Receipt]] = {}
        """What the last claim of each consumer brought, while the server remembers it."""
        self.claimed_at: dict[str, int] = {}
        self.turns: dict[str, Turn] = {}
        """The last turn of each consumer that has moved something, while the server remembers it."""
        self.trials: dict[str, tuple[tuple[str, str | None], ...]] = {}
        self.expects_wake = self.is_limited = False
        self.scan = read(executor, self.calls)
        self.is_seen = True

    def teardown(self) -> None:
        keys = self.calls.keys
        self.executor.client.delete(*(getattr(keys, part) for part in keys.__slots__))

    def _go_to(self, now: int) -> None:
        self.now, self.latest = now, max(self.latest, now)

    # After every step.

    @invariant()
    def agrees(self):
        if self.is_seen:
            return
        self.scan = read(self.executor, self.calls, after=self.fold.offset if self.fold else 0)
        check(self.scan, self.model, self.now)
        if self.fold:
            check_log(self.scan, self.fold, self.model, self.now)
        else:
            assert not any(entry.kind for entry in self.scan.events)
        remembered = {slot for slot in self.scan.slots if slot.startswith(("claims.", "turns."))}
        expected = {f"claims.{consumer}" for consumer in self.claims}
        assert remembered == expected | {f"turns.{consumer}" for consumer in self.turns}
        if self.expects_wake:
            assert self.scan.wake, "nobody was woken for the message that has become the next"
        self.entries += [entry for entry in self.scan.dead if entry not in self.entries]
        self.is_seen, self.expects_wake = True, False
        self.model.limits.wakes = False

    # How a call is made, and what it met.

    def _play(self, call: ScriptCall[Any], expected: Any, situations: Sequence[str] = (), reruns: int = 0) -> None:
        """Make a call, perhaps again as after a lost reply, and compare its answer."""
        name = call.script.name.removesuffix("_one")
        if not reruns:
            replies = [self.executor.call(call)]
        else:
            self.sequences[name] += 1
            # The server's clock goes on meanwhile; only a call that moved nothing looks at it again.
            later = self.now if name in {"pending_to_ready", "unack_to_retry"} else self.now + 7
            times = [self.now] + [later] * reruns
            tries = [replace(call, args=[now, *call.args[1:]]) for now in times]
            replies = [deliver(self.executor, one, slot=f"{name}.1", sequence=self.sequences[name]) for one in tries]
            self.reached[f"{name}: run again"] += 1
        note(f"    {name}{tuple(call.args)} → {replies[0]!r}")
        assert replies == [expected] * len(replies)
        for situation, reply in zip(situations, expected if situations else "", strict=True):
            self.reached[f"{name}: {situation} → {reply}"] += 1
        self._expect_wake(name, expected)
        self.is_seen = False

    def _expect_wake(self, name: str, reply: Any) -> None:
        """A call that makes something due sooner than anything before wakes a consumer."""
        counts, model, first = self.scan.counts, self.model, min(self.scan.pending.values(), default=-1)
        self.expects_wake |= model.limits.wakes
        ends = {"ack", "complete", "reject", "kill", "collect_garbage"}
        if name in {"send", "debounce", "reschedule", "redrive"} | ends:
            self.expects_wake |= model.next_due() >= 0 and not 0 <= first <= model.next_due()
        elif name in {"nack", "release"}:
            self.expects_wake |= 0 <= model.next_deadline() < counts.next_deadline
            self.expects_wake |= name == "release" and len(model.ids("ready") + model.ids("ranked")) > counts.ready

    def _reach(self, what: str, name: str, happened: Any) -> None:
        if happened:
            self.reached[f"{name}: {what}"] += 1

    def _due(self, moment: int | str) -> int | str:
        return f"@{self.now + int(moment[1:])}" if isinstance(moment, str) else moment

    def _id(self, one: str) -> str:
        there = (id for id in draws.IDS if self._place(id) == one)
        return one if one in draws.IDS else next(there, next(iter(self.model.messages), draws.IDS[0]))

    def _place(self, id: str) -> str:
        message = self.model.messages.get(id)
        if message:
            return "pending again" if message.state == "pending" and message.promoted else message.state
        return "dead" if id in self.scan.dead_ids else "gone"

    def _use(self, picks: Iterable[tuple[str, int]], *, keep: bool = False) -> tuple[list[Receipt], list[str]]:
        chosen, everything = [], self.old[-30:] + self.held
        standings = {receipt: self._standing(receipt) for receipt in everything}
        late = [receipt for receipt in everything if standings[receipt].startswith("late")]
        outlived = [receipt for receipt in everything if standings[receipt] == "earlier life"]
        pools = {"held": self.held, "old": self.old, "late": late, "outlived": outlived}
        for pool, back in picks:
            receipts = pools[pool] or everything
            chosen.append(receipts[-1 - back % len(receipts)])
        if not keep:
            self.old += dict.fromkeys(receipt for receipt in chosen if receipt in self.held)
            self.held = [receipt for receipt in self.held if receipt not in chosen]
        situations = [
            "named twice" if receipt in chosen[:n] else standings[receipt] for n, receipt in enumerate(chosen)
        ]
        return chosen, situations

    def _standing(self, receipt: Receipt) -> str:
        message = self.model.messages.get(receipt.id)
        if not message:
            return "gone"
        if message.life != self.model.lives[receipt]:
            return "earlier life" if message.first else "earlier life, not delivered again"
        return "held" if self.model.held(receipt) else f"late, {message.state}"

    def _dead(self, picks: Iterable[int]) -> tuple[list[str], list[str]]:
        dead, living = self.model.dead, self.model.messages
        # Those still there come last and are taken first, most of all those whose id lives.
        known = sorted(
            self.entries, key=lambda entry: (entry in dead, entry in dead and dead[entry].message.id in living)
        )
        entries = [known[-1 - pick % len(known)] for pick in picks]
        return entries, [
            "gone" if entry not in dead else "id lives" if dead[entry].message.id in living else "dead"
            for entry in entries
        ]
