"""What the messages of a run are: their fates, which the payload tells to the callback, and what producers do to them.

All of it is drawn from names and numbers, so that a round is the same whenever it is repeated, but for the timing.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from itertools import accumulate
from typing import Literal, NamedTuple
from zlib import crc32

from delayq.outcomes import Discard, Reject, Retry

Said = Literal["acked", "failed", "rejected", "discarded"]

SPREAD, FAR = 2.0, 5.0
"""Seconds ahead for which most messages are sent, and a few."""
BACKOFF, LONGEST_BACKOFF = 0.05, 0.5
"""Seconds before the second attempt, and at most."""
_PADDING = b"." * 400


class Fate(NamedTuple):
    """What becomes of a message when it is processed."""

    share: int
    """Of 10,000."""
    retries: int = 5
    fails: int = 0
    """Attempts that fail before one is acknowledged."""
    how: str = "raise"
    """How an attempt fails: `raise`, `false`, `retry`, or by hand, `nack` and `release`; `drop`: it is not settled."""
    says: str = "return"
    """How an attempt succeeds: `return`, `reject`, `discard`, or by hand, `ack`; `extend` renews its lease first.

    `twice`: it is settled once more.
    """
    takes: tuple[float, float] = (0.0, 0.0)
    """Seconds, from and to."""
    leases: float = 0.0
    """How many leases it takes beyond that."""


FATES: dict[str, Fate] = {
    "good": Fate(8300),
    "slow": Fate(794, takes=(0.005, 0.03)),
    "flaky": Fate(300, fails=1),
    "worse": Fate(100, fails=2),
    "later": Fate(100, fails=1, how="retry"),
    "false": Fate(100, fails=1, how="false"),
    "doomed": Fate(100, retries=1, fails=1000),
    "wrong": Fate(50, says="reject"),
    "stale": Fate(60, says="discard"),
    "hand": Fate(50, says="ack"),
    "nacks": Fate(20, fails=1, how="nack"),
    "gives": Fate(6, fails=1000, how="release"),
    "renews": Fate(12, says="extend"),
    "long": Fate(8, leases=1.3),
}


def payload_of(id: str, life: int, fates: Mapping[str, Fate] = FATES) -> bytes:
    """Return the payload of a life of an id: its fate, and bytes of a length of its own."""
    drawn = crc32(f"{id}/{life}".encode())
    up_to = accumulate(fate.share for fate in fates.values())
    name = next(name for name, most in zip(fates, up_to, strict=False) if drawn % 10_000 < most)
    return f"{name} {life} {id} ".encode() + _PADDING[: drawn // 10_000 % len(_PADDING)]


def fate_of(payload: bytes, fates: Mapping[str, Fate] = FATES) -> Fate:
    """Return the fate that a payload tells."""
    return fates[payload.partition(b" ")[0].decode()]


class Act(NamedTuple):
    """What a callback does with one attempt."""

    takes: float
    """Seconds."""
    said: Said
    """How its end is put down."""
    by_hand: str = ""
    """The method of the message that is called: `ack`, `nack`, `release` or `extend`."""
    says: str = "return"

    def end(self) -> bool:
        """Say it as a callback does: return, or raise."""
        if self.says == "retry":
            raise Retry("again", delay=BACKOFF)
        if self.says == "reject":
            raise Reject("wrong")
        if self.says == "discard":
            raise Discard("stale")
        if self.says == "raise":
            raise RuntimeError("as its fate will have it")
        return self.says != "false"


def decide(payload: bytes, attempt: int, number: int, lease: float) -> Act:
    """Return what is to be done with an attempt, of which `number` is another each time.

    A release is not charged, so a coin is flipped over it.
    """
    fate = fate_of(payload)
    drawn = crc32(b"%d" % number)
    takes = fate.takes[0] + (fate.takes[1] - fate.takes[0]) * (drawn % 100 / 100) + fate.leases * lease
    if fate.how == "release":
        return Act(takes, "failed", "release") if drawn % 2 else Act(takes, "acked")
    if attempt <= fate.fails:
        return Act(takes, "failed", "nack") if fate.how == "nack" else Act(takes, "failed", says=fate.how)
    if fate.says in ("ack", "extend"):
        return Act(takes, "acked", fate.says)
    said: dict[str, Said] = {"reject": "rejected", "discard": "discarded"}
    return Act(takes, said.get(fate.says, "acked"), says=fate.says)


class Deed(NamedTuple):
    """What a producer does, so many seconds after it began."""

    at: float
    what: Literal["send", "replace", "cancel", "reschedule"]
    ids: list[str]
    life: int = 0
    ahead: tuple[float, ...] = ()
    """Seconds from then to the due time of each."""


def deeds(seed: str, number: int, *, producers: int, messages: int, seconds: float, batch: int) -> Iterator[Deed]:
    """Yield what one of the producers does, in no order: its share of the messages, and what comes after to some.

    A few ids are sent by every producer, for a message may be sent twice.
    """
    chance = random.Random(f"{seed}/{number}")  # noqa: S311 - to be repeated, not to be secret
    mine = [f"p{number}-{n}" for n in range(messages * (number - 1) // producers, messages * number // producers)]
    for first in range(0, len(mine), batch):
        ids = mine[first : first + batch]
        at = 0.9 * seconds * first / len(mine)
        shared = [f"all-{first}"] if len(ids) == batch and first // batch % 5 == 0 else []
        yield Deed(at, "send", [*ids[len(shared) :], *shared], ahead=tuple(_ahead(chance) for _ in ids))
        for id in ids[len(shared) :]:
            yield from _afterwards(chance, id, at)


def _ahead(chance: random.Random) -> float:
    return chance.choices((0.0, chance.uniform(0, SPREAD), chance.uniform(SPREAD, FAR)), (30, 68, 2))[0]


def _afterwards(chance: random.Random, id: str, at: float) -> Iterator[Deed]:
    """Yield what is done to one id after it was sent: to about one in ten."""
    drawn = chance.random()
    soon, late = at + chance.uniform(0, SPREAD + 1), at + SPREAD + chance.uniform(0.5, 3)
    if drawn < 0.02:  # noqa: PLR2004 - shares, as they are told
        yield Deed(soon, "cancel", [id])
    elif drawn < 0.04:  # noqa: PLR2004
        yield Deed(soon, "reschedule", [id], ahead=(_ahead(chance),))
    elif drawn < 0.06:  # noqa: PLR2004
        yield Deed(soon, "replace", [id], 1, (_ahead(chance),))
    elif drawn < 0.09:  # noqa: PLR2004
        yield Deed(late, "send", [id], 1, (_ahead(chance),))
        if drawn < 0.07:  # noqa: PLR2004
            yield Deed(late + SPREAD + 1, "send", [id], 2, (_ahead(chance),))
