"""The plan of a round: which faults come when, drawn from the seed, so that the same command draws the same again."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from typing import Literal, cast, get_args

import msgspec

from delayq.errors import ConfigurationError, shown

Aof = Literal["always", "everysec", "no"]


class Kind(msgspec.Struct, frozen=True):
    """A kind of fault."""

    text: str
    usual: int
    """How many come by default with 100,000 messages."""
    server: bool = False
    """Whether it befalls the server, which must then be one of our own."""
    shim: bool = False
    """Whether it needs the shim."""


KINDS: dict[str, Kind] = {
    "kill": Kind("a worker is killed (SIGKILL) and replaced", 50),
    "stop": Kind("a worker is frozen (SIGSTOP) for longer than its leases, and goes on", 10),
    "term": Kind("a worker is asked to end (SIGTERM), drains and is replaced", 10),
    "replies": Kind("replies are lost, and their connections with them", 2000),
    "cut": Kind("connections are cut", 500),
    "server-kill": Kind("Redis is killed (SIGKILL) and started again", 10, server=True),
    "power": Kind("the power fails: what had not reached the disk is gone", 5, server=True, shim=True),
    "flush": Kind("Redis forgets its scripts (SCRIPT FLUSH)", 10, server=True),
    "memory": Kind("Redis is full (maxmemory) for a while", 4, server=True),
    "disk": Kind("the disk under Redis is full for a while", 4, server=True, shim=True),
    "clock": Kind("the clock of the server is set, forwards or back", 4, server=True, shim=True),
    "slow-fsync": Kind("the disk under Redis is slow for a while", 4, server=True, shim=True),
}
SHORTEST = 10.0
"""Seconds of a round, at least."""
RATE, UNTROUBLED = 1000, 2500
"""Messages a second that are sent by default, under faults and without: what two cores carry, recording included."""
FEW, MANY = 10, 100
"""Messages sent in one call, under faults and without: many calls are many that something can happen to."""
SERVER_EVERY, WORKER_EVERY = 3.0, 0.8
"""Seconds that a fault of the server, or of a worker, is given at least to be over."""
MOST_REPLIES, MOST_CUT = 4, 8
"""Replies lost, and connections cut, at one time: fewer than would keep a consumer busy for its lease."""
EXCLUSIVE = ("server-kill", "power", "flush", "memory", "disk", "clock", "slow-fsync")
"""Faults of which one is over before the next begins."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """All that a run is drawn from, but for the server it meets."""

    seed: int
    engine: str = "delay"
    """What kind of queue it is."""
    messages: int
    """In all rounds."""
    per_round: int = 50_000
    faults: Mapping[str, int]
    """How many of each kind, in all rounds."""
    aof: tuple[Aof, ...] = ("always",)
    """The policies of the append-only file, round by round in turn."""
    workers: int = 4
    producers: int = 2
    lease: float = 2.0
    """Seconds."""
    seconds: float = 0.0
    """How long the messages of a round are sent; 0 for as long as they and the faults need."""

    @property
    def rounds(self) -> int:
        """How many rounds there are."""
        return -(-self.messages // self.per_round)


class Planned(msgspec.Struct, frozen=True, order=True):
    """A fault that is to come."""

    at: float
    """Seconds from the beginning of the round."""
    kind: str
    target: float = 0.0
    """Which of the workers that are there: 0 is the first, 1 the last."""
    lasts: float = 0.0
    """Seconds."""
    size: int = 0
    """How many replies or connections, or milliseconds of the clock."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A round as it is to be."""

    round: int
    messages: int
    seconds: float
    batch: int
    """Messages sent in one call."""
    aof: Aof
    faults: list[Planned]


def draw(settings: Settings, number: int) -> Plan:
    """Draw a round, counted from 1: the same for the same settings."""
    if not 1 <= number <= settings.rounds:
        raise ConfigurationError(f"round must be between 1 and {settings.rounds}, not {number}")
    aof = settings.aof[(number - 1) % len(settings.aof)]
    counts = {kind: _share(settings, number, kind) for kind in KINDS}
    messages = min(settings.per_round, settings.messages - (number - 1) * settings.per_round)
    server = sum(counts[kind] for kind in EXCLUSIVE)
    workers = counts["kill"] + counts["stop"] + counts["term"]
    sending = messages / (RATE if any(counts.values()) else UNTROUBLED)
    needed = max(SHORTEST, sending, server * SERVER_EVERY, workers * WORKER_EVERY)
    seconds = settings.seconds or needed
    chance = random.Random(f"{settings.seed}/{number}")  # noqa: S311 - to be repeated, not to be secret
    faults = [fault for kind, count in counts.items() for fault in _draw(chance, settings, kind, count, seconds)]
    exclusive = sorted(fault for fault in faults if fault.kind in EXCLUSIVE)
    slot = 0.9 * seconds / max(1, len(exclusive))
    others = [fault for fault in faults if fault.kind not in EXCLUSIVE]
    for place, fault in enumerate(exclusive):
        at = 0.05 * seconds + slot * (place + 0.5 * chance.random())
        others.append(msgspec.structs.replace(fault, at=round_to(at)))
    batch = FEW if others else MANY
    return Plan(round=number, messages=messages, seconds=round_to(seconds), batch=batch, aof=aof, faults=sorted(others))


def round_to(seconds: float) -> float:
    """Return a time as a plan shows it."""
    return round(seconds, 3)


def _share(settings: Settings, number: int, kind: str) -> int:
    """Return how many faults of a kind fall to a round."""
    count, rounds, at = settings.faults.get(kind, 0), settings.rounds, number - 1
    if kind == "power" and "always" in settings.aof:  # where each write is synced, a power cut may take nothing at all
        places = [one for one in range(rounds) if settings.aof[one % len(settings.aof)] == "always"]
        if at not in places:
            return 0
        rounds, at = len(places), places.index(at)
    return count * (at + 1) // rounds - count * at // rounds


def _draw(chance: random.Random, settings: Settings, kind: str, count: int, seconds: float) -> Iterable[Planned]:
    """Yield the faults of a kind; replies and connections come several at a time."""
    while count > 0:
        at, target = round_to(seconds * chance.uniform(0.05, 0.95)), round_to(chance.random())
        lasts, size = 0.0, 1
        if kind in ("replies", "cut"):
            size = min(count, chance.randint(1, MOST_REPLIES if kind == "replies" else MOST_CUT))
        elif kind == "stop":
            lasts = settings.lease * chance.uniform(1.1, 1.6)
        elif kind in ("server-kill", "power"):
            lasts = chance.choice((0.0, 0.0, 0.5))
        elif kind in ("memory", "disk", "slow-fsync", "clock"):
            lasts = chance.uniform(0.5, 1.5)
        milliseconds = chance.choice((-1, 1)) * chance.choice((100, 1000, 5000))
        yield Planned(at, kind, target, round_to(lasts), milliseconds if kind == "clock" else size)
        count -= size


def read_aof(text: str) -> tuple[Aof, ...]:
    """Read one policy of the append-only file, or several."""
    found = tuple(part.strip() for part in text.split(","))
    wrong = [policy for policy in found if policy not in get_args(Aof)]
    if wrong:
        raise ConfigurationError(f"aof must be of {', '.join(get_args(Aof))}, not {shown(wrong[0])}")
    return cast("tuple[Aof, ...]", found)


def read_faults(
    text: str, *, messages: int, allowed: Iterable[str], aof: tuple[Aof, ...], lacking: Mapping[str, str] | None = None
) -> dict[str, int]:
    """Read `all`, `none`, or kinds such as `kill=50,stop`: as many as are said, else as many as are usual.

    A server that keeps nothing is not ended. `lacking` says why an engine has nothing for a kind.
    """
    ending = ("server-kill", "power", "disk") if "no" in aof else ()
    usual = {kind: max(1, KINDS[kind].usual * messages // 100_000) for kind in allowed if kind not in ending}
    if text == "all":
        return usual
    found: dict[str, int] = {}
    for part in text.split(",") if text != "none" else ():
        kind, given, number = part.strip().partition("=")
        if kind not in KINDS:
            raise ConfigurationError(f"{shown(kind)} is no kind of fault: {', '.join(KINDS)}")
        if kind not in usual:
            raise ConfigurationError(f"{kind} cannot be done here: {(lacking or {}).get(kind, KINDS[kind].text)}")
        if given and not number.isdecimal():
            raise ConfigurationError(f"{part.strip()}: a number comes after =")
        found[kind] = int(number) if given else usual[kind]
    return found
