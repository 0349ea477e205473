"""Keys in order: random sends, claims, settlements and changes, and what must hold of each key after every step.

The model knows of each key which message has its place, and what waits for it: so it knows what a claim may take, and
what it must take. It finds mistakes that are planted in the scripts.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from delayq.broker.message.attributes import Attributes
from delayq.broker.requests import Failure, Outgoing, Receipt, Rejection, Release
from delayq.broker.transport.executor import Executor
from delayq.queue.control.limit_calls import IN_ORDER, limit_call
from delayq.queue.repairing.repair import recount_call, repair_call
from delayq.values.rates import Pace
from tests.model.running import connected
from tests.support.lua_files import in_place, source_of
from tests.support.scripts import KEYS, NOW, at

LEASE, BACKOFF = 1000, 300
"""Milliseconds."""
NAMES, ACCOUNTS = ("", "", "mail", "push"), range(7, 12)
"""The gates of the last two accounts come before that of `push`, those of the others after it."""
PLACES = {"mail": 2, "push": 1}
STEPS = 400
ROUNDS = 12


@dataclass(slots=True)
class Known:
    """A message that lives."""

    id: str
    key: str
    name: str
    due: int
    retries: int
    token: int = 0
    """That of its lease; 0 while it has none."""
    back: int = 0
    """When its lease or its backoff ends."""
    has_place: bool = False
    rank: int = 0
    """Its due time, or an earlier one for which it may still have an entry in ready."""


@dataclass(slots=True)
class KeyedWorld:
    """A queue with a template and a limit of a name, played at random, and what is known of it."""

    executor: Executor
    draw: random.Random
    in_order: bool = True
    time: int = 0
    sent: int = 0
    living: dict[str, Known] = field(default_factory=dict)

    def call(self, name: str, *args: Any, **options: Any) -> Any:
        return self.executor.call(getattr(at(self.time), name)(*args, **options))

    def begin(self) -> None:
        self.executor.client.flushall()
        reason = IN_ORDER if self.in_order else ""
        self.executor.call(limit_call(at(0), "account:*", places=1, reason=reason))
        for name, places in PLACES.items():
            self.executor.call(limit_call(at(0), name, places=places))

    def play(self, steps: int) -> None:
        ways = (self.send, self.send, self.claim, self.claim, self.settle, self.settle, self.change, self.go_on)
        for _ in range(steps):
            self.draw.choice(ways)()
            self.check_places()
        self.drain()

    def send(self) -> None:
        self.sent += 1
        id = f"{self.draw.randrange(100):02}-{self.sent}"
        key = f"account:{self.draw.choice(ACCOUNTS)}"
        due = self.time + self.draw.choice((0, 0, 1, 200))
        one = Known(id, key, self.draw.choice(NAMES), due, self.draw.randrange(3))
        one.rank = due
        attributes = Attributes(name=one.name, key=key).encode()
        outgoing = Outgoing(id, f"@{NOW + due}", one.retries, id.encode(), b"", attributes)
        assert self.call("send", [outgoing], max_length=None, replace=False) == "1"
        self.living[id] = one

    def claim(self) -> None:
        self.call("pending_to_ready")
        expired = self.call("unack_to_retry")
        assert expired is not None
        self._expire()
        wanted = self.draw.choice((1, 3, 100))
        reply = self.call("ready_to_unack", wanted, lease=LEASE, consumer_id="me")
        told_more = 0 <= reply.next_gate <= NOW + self.time
        self._take(reply.messages, full=len(reply.messages) < wanted and not told_more)

    def _expire(self) -> None:
        for one in list(self.living.values()):
            if one.token and one.back <= self.time:
                one.token, one.has_place = 0, one.has_place and self.in_order
                if one.retries == 0:
                    del self.living[one.id]
                one.retries -= 1

    def _take(self, messages: list[Any], *, full: bool) -> None:
        for message in messages:
            one = self.living[message.id]
            holders = [other.id for other in self._of(one.key) if other.has_place and other is not one]
            assert not holders, f"{one.id} is claimed while {holders} have their key {one.key}"
            assert one.due <= self.time
            overtaken = [other.id for other in self._of(one.key) if other.due < one.rank and other.back <= self.time]
            assert one.has_place or not overtaken, f"{one.id} overtakes {overtaken} of its key {one.key}"
            one.token, one.back, one.has_place = message.token, self.time + LEASE, True
        if full:
            self._check_that_all_start()

    def _check_that_all_start(self) -> None:
        """After a claim that wanted more, nothing waits that may start: its key and its name are free."""
        for id in self.places():
            self.living[id].has_place = True  # also one that waits for its name
        running = Counter(one.name for one in self.living.values() if one.token)
        for key in {one.key for one in self.living.values()}:
            holder = next((one for one in self._of(key) if one.has_place), None)
            due = [one for one in self._of(key) if one.due <= self.time and one.back <= self.time]
            if holder is not None:
                due = [holder] if holder in due and not holder.token else []
            if not due:
                continue
            first = min(due, key=lambda one: one.due)
            if first.name and running[first.name] >= PLACES[first.name]:
                continue
            raise AssertionError(f"{first.id} of {key} waits, though nothing holds it back")

    def settle(self) -> None:
        leased = [one for one in self.living.values() if one.token]
        if not leased:
            return
        one = self.draw.choice(leased)
        if one.back <= self.time:
            return
        receipt, ways = Receipt(one.id, one.token), ("ack", "nack", "release", "later", "reject")
        way = self.draw.choice(ways)
        if way == "ack":
            assert self.call("ack", [receipt]) == "1"
        elif way == "reject":
            assert self.call("reject", [Rejection(*receipt, "wrong", "")]) == "1"
        elif way == "nack":
            status = self.call("nack", [Failure(*receipt, BACKOFF, "busy")])
            assert status == ("2" if one.retries == 0 else "1")
            one.retries -= 1
            self._returned(one, BACKOFF)
        else:
            delay = BACKOFF if way == "later" else 0
            assert self.call("release", [Release(*receipt, delay)]) == "1"
            self._returned(one, delay)
        if way in ("ack", "reject") or one.retries < 0:
            del self.living[one.id]

    def _returned(self, one: Known, delay: int) -> None:
        one.token, one.back, one.has_place = 0, self.time + delay if delay else 0, self.in_order

    def change(self) -> None:
        waiting = [one for one in self.living.values() if not one.token]
        if not waiting:
            return
        one = self.draw.choice(waiting)
        way = self.draw.choice(("cancel", "kill", "reschedule"))
        if way == "reschedule":
            is_in_ready = one.id.encode() in self.executor.client.lrange(KEYS.ready, 0, -1)
            one.due, one.back = self.time + self.draw.choice((0, 200)), 0
            one.rank = min(one.rank, one.due) if is_in_ready else one.due
            assert self.call("reschedule", [(one.id, f"@{NOW + one.due}")]) == "1"
            return
        assert self.call(way, [one.id]) == "1"
        del self.living[one.id]

    def go_on(self) -> None:
        self.time += self.draw.choice((1, 100, BACKOFF, LEASE + 1))

    def places(self) -> dict[str, bool]:
        stored = self.executor.client.zrange(KEYS.running, 0, -1)
        return {member.decode().strip(): True for member in stored if member.startswith(b" ")}

    def check_places(self) -> None:
        """Each key has one place at most, and whoever is known to have it has it."""
        placed, by_key = self.places(), dict[str, str]()
        for id in placed:
            one = self.living.get(id)
            assert one is not None, f"{id} has ended, and has a place"
            assert one.key not in by_key, f"{id} and {by_key[one.key]} have places of {one.key}"
            by_key[one.key] = id
            one.has_place = True
        assert self.executor.call(recount_call(at(self.time), fix=False))[4] == 0, "nobody looks at a line again"
        missing = [one.id for one in self.living.values() if one.has_place and one.id not in placed]
        assert not missing, f"{missing} have lost the places of their keys"

    def drain(self) -> None:
        """Claim and ack until nothing is left; then nothing is stored of any key."""
        for _ in range(20 * len(self.living) + 20):
            if not self.living:
                break
            self.time += BACKOFF
            self.claim()
            for one in [one for one in self.living.values() if one.token and one.back > self.time]:
                assert self.call("ack", [Receipt(one.id, one.token)]) == "1"
                del self.living[one.id]
        assert not self.living, f"{list(self.living)} never start"
        self.claim()
        self.claim()
        ids = self.executor.client.hkeys(KEYS.messages) or [b"none"]
        assert set(self.executor.call(repair_call(at(self.time), ids, fix=False, search=True, retries=3))) <= {"0"}
        left = [part for part in ("running", "key_lines", "throttled", "gates") if self._exists(part)]
        assert not left, f"{left} are left"
        self.executor.call(limit_call(at(self.time), "account:*", pace=Pace(), places=0))
        assert self.executor.client.hkeys(KEYS.limits) == [b"name:mail", b"name:push"]

    def _exists(self, part: str) -> bool:
        return bool(self.executor.client.exists(getattr(KEYS, part)))

    def _of(self, key: str) -> list[Known]:
        return [one for one in self.living.values() if one.key == key]


@pytest.fixture
def executor(redis_url: str) -> Iterator[Executor]:
    with connected(redis_url) as opened:
        yield opened


def play(executor: Executor, rounds: int, *, in_order: bool = True) -> None:
    for number in range(rounds):
        world = KeyedWorld(executor, random.Random(number), in_order)
        world.begin()
        world.play(STEPS)


def test_keys_in_order_do_what_the_model_says(executor):
    play(executor, ROUNDS)


MUTANTS = {
    "a failed message gives its place back": ("nack.lua", "again, true)", "again)"),
    "a released message gives its place back": ("release.lua", "released, true)", "released)"),
    "an expired message gives its place back": ("unack_to_retry.lua", "again, true)", "again)"),
    "a message in order is placed as any other": ("lib/key.lua", "reason == kept_place and 1", "false and 1"),
    "a spent message keeps its place": ("nack.lua", "  free_places(running, gates, wake, spent, false)\n", ""),
    "a killed message keeps its place": ("kill.lua", "if placed then", "if false then"),
    "a cancelled message keeps its place": ("cancel.lua", "if placed then", "if false then"),
    "a freed place opens no line": ("lib/places.lua", "number - number % 2)", "number)"),
    "a message does not know its own place": ("lib/keys.lua", "== key.number then", "== 0 then"),
    "places are not counted": ("lib/keys.lua", "redis.call('ZCOUNT', running, number, number + 1)", "0"),
    "places that are kept are not counted": ("lib/keys.lua", "number, number + 1)}", "number, number)}"),
    "one that waits for its name has no place": ("lib/keys.lua", "    if key then start_under(key, id) end\n", ""),
    "a line is in no order": ("lib/key.lua", "number, order, id)\nend", "number, order % 7, id)\nend"),
    "a stale entry counts": ("lib/line_sources.lua", "score % span == tonumber(orders[n]) and ", ""),
    "stale entries stay": ("lib/line_sources.lua", "in ipairs(source.gone) do", "in ipairs({}) do"),
    "what is taken of a line stays": ("lib/line_sources.lua", "if source.entries then", "if false then"),
    "one that joins a line which is emptied is forgotten": ("lib/lines.lua", "source.limit.joined or", "false or"),
    "a line with more is closed for good": ("lib/lines.lua", "waiting > source.scanned +", "waiting < 0 *"),
}


@pytest.mark.parametrize(("file", "text", "instead"), MUTANTS.values(), ids=MUTANTS.keys())
def test_mistake_is_found(file, text, instead, redis_url):
    source = source_of(file)
    assert source.count(text) == 1, "the script has changed: change this mutant with it"
    with (
        in_place(file, source.replace(text, instead)),
        connected(redis_url) as executor,
        pytest.raises(AssertionError),
    ):
        play(executor, 5 * ROUNDS)
