"""The messages of a run: how their callbacks behave, which the payload says, and what producers do with them.

All of it is derived from names and numbers: a round that is repeated has the same workload, with another timing.
"""

from __future__ import annotations

import random
import re
import secrets
from collections.abc import Iterator
from itertools import accumulate, count
from typing import Any, Literal, NamedTuple
from zlib import crc32

from delayq.testing.torture.history import LimitRecord
from delayq.testing.torture.process_task import ProcessTask
from delayq.values.breaker import Breaker
from delayq.values.outcomes import Discard, RateLimited, Reject, Retry, Snooze
from delayq.values.rates import Pace, check_limits

CallbackOutcome = Literal["acked", "failed", "rejected", "discarded"]

DUE_WITHIN, DUE_LATEST = 2.0, 5.0
"""Most messages are due within so many seconds, and a few later."""
BACKOFF, MAX_BACKOFF = 0.05, 0.5
"""Seconds before the second attempt, and before any attempt."""
LONG_DELAY = 3.0
"""Seconds before an attempt that a callback puts off: if its place were kept, others would wait for it."""
MAX_PAYLOAD = 1 << 20
"""Bytes: the default of `max_payload`."""
OUTAGE, OUTAGE_EVERY = 500_000, 2_000_000
"""Microseconds for which a service fails that some callbacks use, and from one such outage to the next."""
_PLANTED = "planted-"
_NUMBERED = re.compile(r"p(\d+)-(\d+)")
_PADDING = b"." * MAX_PAYLOAD


class MessageProfile(NamedTuple):
    """How the deliveries of a message end."""

    share: int
    """Of 10,000 messages."""
    retries: int = 5
    fails: int = 0
    """Attempts that fail before one succeeds."""
    failure: str = "raise"
    """How an attempt fails: `raise`, `false`, `retry`, `delay`, `snooze`, `refuse`, the methods `nack` and `release`.

    `outage`: it raises during an outage alone. `echo`: a `nack`, and again a while later,
    perhaps during the next delivery.
    """
    success: str = "return"
    """How an attempt succeeds: `return`, `reject`, `discard`, the method `ack`; `extend` renews its lease first.

    `echo`: it is acked, and again a while later, perhaps in the next life of the id.
    """
    takes: tuple[float, float] = (0.0, 0.0)
    """Seconds, from and to."""
    leases: float = 0.0
    """How many leases it takes in addition."""
    padding: tuple[int, int] = (0, 400)
    """Bytes of the payload after its head, from and to."""
    expires: float | None = None
    """Seconds after its due time at which it expires, and is dropped."""
    priority: int = 0
    retention: float | None = None
    """Seconds for which its result is kept."""


PROFILES: dict[str, MessageProfile] = {
    "good": MessageProfile(7128),
    "urgent": MessageProfile(200, priority=100),
    "idle": MessageProfile(200, priority=-1, fails=1),
    "kept": MessageProfile(160, priority=1, retention=5),
    "again": MessageProfile(20, fails=1, retention=600),
    "skipped": MessageProfile(20, success="discard", retention=600),
    "slow": MessageProfile(694, takes=(0.005, 0.03)),
    "flaky": MessageProfile(300, fails=1),
    "worse": MessageProfile(100, fails=2),
    "later": MessageProfile(90, fails=1, failure="retry"),
    "snoozes": MessageProfile(10, fails=1000, failure="snooze"),
    "refused": MessageProfile(100, fails=1000, failure="refuse"),
    "false": MessageProfile(100, fails=1, failure="false"),
    "doomed": MessageProfile(100, retries=1, fails=1000),
    "wrong": MessageProfile(50, success="reject"),
    "stale": MessageProfile(60, success="discard"),
    "hand": MessageProfile(50, success="ack"),
    "nacks": MessageProfile(20, fails=1, failure="nack"),
    "gives": MessageProfile(6, fails=1000, failure="release"),
    "renews": MessageProfile(12, success="extend"),
    "echoes": MessageProfile(40, success="echo", takes=(0.2, 0.5)),
    "lengthy": MessageProfile(100, fails=1, takes=(0.2, 0.6)),
    "insists": MessageProfile(20, fails=1, failure="echo", takes=(0.6, 1.0)),
    "stumbles": MessageProfile(100, fails=1, failure="delay", takes=(0.005, 0.03)),
    "hasty": MessageProfile(10, expires=0.02),
    "long": MessageProfile(8, leases=1.3),
    "broken": MessageProfile(300, retries=1000, fails=1000, failure="outage", takes=(0.002, 0.02)),
    "big": MessageProfile(2, padding=(MAX_PAYLOAD * 9 // 10, MAX_PAYLOAD - 200)),
}


LIMITS: dict[str, dict[str, Any]] = {
    "slow": {"running": 4},
    "stumbles": {"running": 2},
    "flaky": {"rate_limit": "100/s", "burst": 2},
}
"""Limits of names: what starts of a profile. They hold something back in every run."""
TEMPLATE, APART_BY, TOGETHER = "k:*", 5, 50
"""The template of the keys of a run, which are in order: every so manieth id of so many that follow has the same."""
PAUSED = ("good", "slow")
"""The names that are paused: most messages have the one, and the other is limited."""
BREAKERS: dict[str | None, Breaker] = {"broken": Breaker(share=1, of=2, pause=0.3)}
"""The breakers of names. They trip in every run; that of the queue is a fault."""


def _limit_record(rate_limit: str | None = None, burst: int | None = None, running: int | None = None) -> LimitRecord:
    pace, places = check_limits(rate_limit, burst, running)
    return LimitRecord(running=places or 0, **(pace or Pace())._asdict())


LIMIT_RECORDS = {name: _limit_record(**limit) for name, limit in LIMITS.items()} | {TEMPLATE: _limit_record(running=1)}
"""The same as the history records them."""


def payload_of(id: str, life: int) -> bytes:
    """Return the payload of an id's life (a send after it was settled begins another): its profile, and padding."""
    drawn = crc32(f"{id}/{life}".encode())
    limits = accumulate(profile.share for profile in PROFILES.values())
    name = next(name for name, limit in zip(PROFILES, limits, strict=False) if drawn % 10_000 < limit)
    shortest, longest = PROFILES[name].padding
    length = shortest + drawn // 10_000 % (longest - shortest)
    return f"{name} {life} {id} ".encode() + _PADDING[:length]


def next_life(id: str, profile: str) -> int:
    """Return the first life of an id after its first one that has a profile."""
    return next(life for life in count(1) if profile_name(payload_of(id, life)) == profile)


def profile_name(payload: bytes) -> str:
    """Return the name of a payload's profile, which is the name of its message as well."""
    return payload.partition(b" ")[0].decode()


def profile_of(payload: bytes) -> MessageProfile:
    """Return the profile that a payload names."""
    return PROFILES[profile_name(payload)]


def priority_of(name: str) -> int:
    """Return the priority of the messages of a name."""
    return PROFILES[name].priority if name in PROFILES else 0


def key_of(id: str) -> str:
    """Return the key of an id of a producer, the same in all of its lives; '' for one without."""
    found = _NUMBERED.fullmatch(id)
    if found is None or int(found[2]) % APART_BY or profile_of(payload_of(id, 0)).priority:
        return ""
    return f"k:{found[1]}-{int(found[2]) // TOGETHER}"


def planted_id(part: str) -> str:
    """Return a new id for what is planted in a part of the queue."""
    return f"{_PLANTED}{part}-{secrets.token_hex(4)}"


def is_planted(id: str) -> bool:
    """Return whether an id was planted: nobody has sent it."""
    return id.startswith(_PLANTED)


class CallbackBehavior(NamedTuple):
    """What a callback does with one attempt."""

    takes: float
    """Seconds."""
    outcome: CallbackOutcome
    """How the history records its end."""
    method: str = ""
    """The method of the message that it calls: `ack`, `nack`, `release` or `extend`."""
    ending: str = "return"
    repeats: bool = False
    """Whether it settles the message a second time, a while later."""

    def finish(self) -> bool:
        """End as a callback does: return or raise."""
        outcomes = {
            "retry": Retry("again", delay=BACKOFF),
            "delay": Retry("again", delay=LONG_DELAY),
            "snooze": Snooze(BACKOFF),
            "refuse": RateLimited(BACKOFF, scope="name"),
            "reject": Reject("wrong"),
            "discard": Discard("stale"),
        }
        if self.ending in outcomes:
            raise outcomes[self.ending]
        if self.ending in ("raise", "outage"):
            raise RuntimeError("its profile says so")
        return self.ending != "false"


def behavior_of(payload: bytes, attempt: int, number: int, lease: float) -> CallbackBehavior:
    """Return what to do with an attempt; `number` differs for each.

    A release, a snooze or a refusal is not charged as an attempt, so `number` decides whether to do it once more. It is
    a time (µs), which decides about outages.
    """
    profile = profile_of(payload)
    drawn = crc32(b"%d" % number)
    shortest, longest = profile.takes
    takes = shortest + (longest - shortest) * (drawn % 100 / 100) + profile.leases * lease
    fails = drawn % 2 if profile.failure in ("release", "snooze", "refuse") else attempt <= profile.fails
    if profile.failure == "outage":
        fails = number % OUTAGE_EVERY < OUTAGE
    if fails and profile.failure in ("nack", "release"):
        return CallbackBehavior(takes, "failed", profile.failure)
    if fails and profile.failure == "echo":
        return CallbackBehavior(takes, "failed", "nack", repeats=True)
    if fails:
        return CallbackBehavior(takes, "failed", ending=profile.failure)
    if profile.success == "echo":
        return CallbackBehavior(takes, "acked", "ack", repeats=True)
    if profile.success in ("ack", "extend"):
        return CallbackBehavior(takes, "acked", profile.success)
    outcomes: dict[str, CallbackOutcome] = {"reject": "rejected", "discard": "discarded"}
    return CallbackBehavior(takes, outcomes.get(profile.success, "acked"), ending=profile.success)


class Action(NamedTuple):
    """What a producer does, so many seconds after it started."""

    at: float
    what: Literal["send", "replace", "follow", "cancel", "stop", "reschedule"]
    """`follow`: a send that waits for a running message of its id, and replaces one that waits.

    `stop`: a cancellation that asks for a running message.
    """
    ids: list[str]
    life: int = 0
    ahead: tuple[float, ...] = ()
    """Seconds from then to the due time of each message."""


def actions(task: ProcessTask) -> Iterator[Action]:
    """Yield what a producer does, in no order: it sends its share of the messages, and then changes some of them.

    A few ids are sent by every producer: users may send a message twice.
    """
    number, producers, messages = task.number, task.producers, task.messages
    chance = random.Random(f"{task.seed}/{number}")  # noqa: S311 - reproducible, not secret
    mine = [f"p{number}-{n}" for n in range(messages * (number - 1) // producers, messages * number // producers)]
    for index, first in enumerate(range(0, len(mine), task.batch)):
        ids = mine[first : first + task.batch]
        at = 0.9 * task.seconds * first / len(mine)
        shared = [f"all-{first}"] if len(ids) == task.batch and index % 5 == 0 else []
        ahead = tuple(_ahead(chance) for _ in ids)
        yield Action(at, "send", [*ids[len(shared) :], *shared], ahead=ahead)
        for id, due_after in zip(ids[len(shared) :], ahead, strict=False):
            yield from _later_actions(chance, id, at, due_after)


def _ahead(chance: random.Random) -> float:
    return chance.choices((0.0, chance.uniform(0, DUE_WITHIN), chance.uniform(DUE_WITHIN, DUE_LATEST)), (30, 68, 2))[0]


def _later_actions(chance: random.Random, id: str, at: float, due_after: float) -> Iterator[Action]:
    """Yield what is done to an id after it was sent: to about one in eight."""
    drawn, profile = chance.random(), profile_of(payload_of(id, 0))
    if profile.success == "echo":
        again = at + due_after + chance.uniform(0.4, 0.9)
        yield Action(again, "send", [id], next_life(id, "echoes"), (0.0,))
    elif profile.leases:
        yield Action(at + due_after + 0.3, "follow", [id], 1, (0.0,))
        yield Action(at + due_after + chance.uniform(0.6, 1.2), chance.choice(("cancel", "stop")), [id])
    else:
        yield from _changes(chance, id, at, due_after, drawn)


def _changes(chance: random.Random, id: str, at: float, due_after: float, drawn: float) -> Iterator[Action]:
    profile = profile_of(payload_of(id, 0))
    soon, late = at + chance.uniform(0, DUE_WITHIN + 1), at + DUE_WITHIN + chance.uniform(0.5, 3)
    if drawn < 0.02:  # noqa: PLR2004 - shares of the ids
        yield Action(soon, "cancel", [id])
    elif drawn < 0.04:  # noqa: PLR2004
        yield Action(soon, "reschedule", [id], ahead=(_ahead(chance),))
    elif drawn < 0.06:  # noqa: PLR2004
        yield Action(soon, "replace", [id], 1, (_ahead(chance),))
    elif drawn < 0.09:  # noqa: PLR2004
        yield Action(late, "send", [id], 1, (_ahead(chance),))
        if drawn < 0.07:  # noqa: PLR2004
            yield Action(late + DUE_WITHIN + 1, "send", [id], 2, (_ahead(chance),))
    elif drawn < 0.11 or (drawn < 0.3 and profile.takes[1]):  # noqa: PLR2004
        running = at + due_after + chance.uniform(0, profile.takes[1] + 0.01)  # perhaps
        yield Action(running, "follow", [id], 1, (_ahead(chance),))
    elif drawn < 0.12 or (drawn < 0.4 and profile.takes[1]):  # noqa: PLR2004
        yield Action(at + due_after + chance.uniform(0, profile.takes[1] + 0.01), "stop", [id])
