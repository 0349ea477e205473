"""The plan of a round: which faults come when, drawn from the seed, so the same command plans the same again."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from typing import Literal, cast, get_args

import msgspec

from delayq.errors import ConfigurationError, short_repr

Aof = Literal["always", "everysec", "no"]


class FaultKind(msgspec.Struct, frozen=True):
    """A kind of fault."""

    text: str
    usual: int
    """How many there are by default with 100,000 messages; 0 if it comes only when it is named."""
    server: bool = False
    """Whether it hits the server, which must then be one of our own."""
    shim: bool = False
    """Whether it needs the shim."""


FAULT_KINDS: dict[str, FaultKind] = {
    "kill": FaultKind("a worker is killed (SIGKILL) and replaced", 50),
    "stop": FaultKind("a worker is frozen (SIGSTOP) for longer than its leases, and resumed", 10),
    "term": FaultKind("a worker gets SIGTERM, drains and is replaced", 10),
    "replies": FaultKind("replies are lost, and their connections with them", 2000),
    "cut": FaultKind("connections are cut", 500),
    "server-kill": FaultKind("Redis is killed (SIGKILL) and restarted", 10, server=True),
    "power": FaultKind("the power fails: what had not reached the disk is lost", 5, server=True, shim=True),
    "flush": FaultKind("Redis forgets its scripts (SCRIPT FLUSH)", 10, server=True),
    "memory": FaultKind("Redis is full (maxmemory) for a while", 4, server=True),
    "disk": FaultKind("the disk of Redis is full for a while", 4, server=True, shim=True),
    "clock": FaultKind("the server's clock is set forwards or back", 4, server=True, shim=True),
    "slow-fsync": FaultKind("the disk of Redis is slow for a while", 4, server=True, shim=True),
    "exit": FaultKind("a worker's program ends without stopping its consumer, and is replaced", 10),
    "password": FaultKind("Redis refuses all credentials for a while, and ends all connections", 4, server=True),
    "foreign": FaultKind("something else writes into every key of the queue", 4, server=True),
    "flushall": FaultKind("Redis loses everything (FLUSHALL)", 0, server=True),
    "refuse": FaultKind("connections are cut and refused for a while", 4),
    "pause": FaultKind("the queue is paused for a while, and resumed", 10, server=True),
    "pause-name": FaultKind("a name of messages is paused for a while, and resumed", 10, server=True),
    "trip": FaultKind("the breaker of the queue trips, and nobody reports how its trials end", 10, server=True),
}
MIN_SECONDS = 10.0
"""Seconds of a round, at least."""
RATE, RATE_WITHOUT_FAULTS = 1000, 2500
"""Messages sent a second by default: what two cores can process while everything is recorded."""
BATCH, BATCH_WITHOUT_FAULTS = 10, 100
"""Messages sent in one call: more calls are more that faults can hit."""
SERVER_FAULT_SECONDS, WORKER_FAULT_SECONDS = 3.0, 0.8
"""Seconds planned for a fault of the server, and of a worker, to be over."""
MAX_REPLIES, MAX_CUT = 4, 8
"""Replies lost, and connections cut, at one time: more could occupy a consumer for its whole lease."""
WORKER_FAULTS = ("kill", "stop", "term", "exit")
OF_PLAIN_QUEUES = ("pause-name", "trip")
"""Faults of names and breakers, which a queue over partitions does not have in these runs."""
EXCLUSIVE = tuple(kind for kind, about in FAULT_KINDS.items() if about.server)
"""Faults that never overlap with each other."""


class RunSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the plan of a run depends on."""

    seed: int
    messages: int
    """In all rounds."""
    per_round: int = 50_000
    faults: Mapping[str, int]
    """How many of each kind, in all rounds."""
    aof: tuple[Aof, ...] = ("always",)
    """The append-only file's policies, which the rounds take in turn."""
    workers: int = 4
    producers: int = 2
    lease: float = 2.0
    """Seconds."""
    plain: bool = False
    """Whether to use none of the features for which a consumer needs several calls a turn."""
    partitions: int = 1
    """Over how many the queue is spread; with more than one, it is `plain` as well."""
    seconds: float = 0.0
    """How long the messages of a round are sent; 0 for as long as messages and faults need."""

    @property
    def rounds(self) -> int:
        """How many rounds there are."""
        return -(-self.messages // self.per_round)


class PlannedFault(msgspec.Struct, frozen=True, order=True):
    """A fault of the plan."""

    at: float
    """Seconds from the beginning of the round."""
    kind: str
    target: float = 0.0
    """What it hits: 0 is the first, 1 the last of the workers that are running, or of the names."""
    lasts: float = 0.0
    """Seconds."""
    size: int = 0
    """How many replies or connections, or by how many milliseconds the clock is set."""


class RoundPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The plan of a round."""

    round: int
    messages: int
    seconds: float
    batch: int
    """Messages sent in one call."""
    aof: Aof
    faults: list[PlannedFault]


def draw_round(settings: RunSettings, number: int) -> RoundPlan:
    """Draw the plan of a round, counted from 1; the same settings give the same plan."""
    if not 1 <= number <= settings.rounds:
        raise ConfigurationError(f"round must be between 1 and {settings.rounds}, not {number}")
    counts = {kind: _share(settings, number, kind) for kind in FAULT_KINDS}
    messages = min(settings.per_round, settings.messages - (number - 1) * settings.per_round)
    server_faults = sum(counts[kind] for kind in EXCLUSIVE)
    worker_faults = sum(counts[kind] for kind in WORKER_FAULTS)
    sending = messages / (RATE if any(counts.values()) else RATE_WITHOUT_FAULTS)
    needed = max(MIN_SECONDS, sending, server_faults * SERVER_FAULT_SECONDS, worker_faults * WORKER_FAULT_SECONDS)
    seconds = settings.seconds or needed
    chance = random.Random(f"{settings.seed}/{number}")  # noqa: S311 - reproducible, not secret
    drawn = [fault for kind, count in counts.items() for fault in _draw(chance, settings.lease, kind, count, seconds)]
    exclusive = sorted(fault for fault in drawn if fault.kind in EXCLUSIVE)
    faults = [fault for fault in drawn if fault.kind not in EXCLUSIVE]
    slot = 0.9 * seconds / max(1, len(exclusive))
    for index, fault in enumerate(exclusive):
        at = 0.05 * seconds + slot * (index + 0.5 * chance.random())
        faults.append(msgspec.structs.replace(fault, at=round(at, 3)))
    return RoundPlan(
        round=number,
        messages=messages,
        seconds=round(seconds, 3),
        batch=BATCH if faults else BATCH_WITHOUT_FAULTS,
        aof=settings.aof[(number - 1) % len(settings.aof)],
        faults=sorted(faults),
    )


def _share(settings: RunSettings, number: int, kind: str) -> int:
    """Return how many faults of a kind a round gets."""
    count, rounds, index = settings.faults.get(kind, 0), settings.rounds, number - 1
    if kind == "power" and "always" in settings.aof:  # with every write synced, a power cut must not lose anything
        synced = [one for one in range(rounds) if settings.aof[one % len(settings.aof)] == "always"]
        if index not in synced:
            return 0
        rounds, index = len(synced), synced.index(index)
    return count * (index + 1) // rounds - count * index // rounds


def _draw(chance: random.Random, lease: float, kind: str, count: int, seconds: float) -> Iterable[PlannedFault]:
    """Yield the faults of a kind; replies and connections are grouped."""
    while count > 0:
        at, target = round(seconds * chance.uniform(0.05, 0.95), 3), round(chance.random(), 3)
        lasts, size = 0.0, 1
        if kind in ("replies", "cut"):
            size = min(count, chance.randint(1, MAX_REPLIES if kind == "replies" else MAX_CUT))
        elif kind == "stop":
            lasts = lease * chance.uniform(1.1, 1.6)
        elif kind in ("server-kill", "power"):
            lasts = chance.choice((0.0, 0.0, 0.5))
        elif kind in ("memory", "disk", "slow-fsync", "clock", "refuse", "password", "pause", "pause-name", "trip"):
            lasts = chance.uniform(0.5, 1.5)
        milliseconds = chance.choice((-1, 1)) * chance.choice((100, 1000, 5000))
        yield PlannedFault(at, kind, target, round(lasts, 3), milliseconds if kind == "clock" else size)
        count -= size


def read_aof(text: str) -> tuple[Aof, ...]:
    """Read one or more policies of the append-only file."""
    policies = tuple(part.strip() for part in text.split(","))
    for policy in policies:
        if policy not in get_args(Aof):
            raise ConfigurationError(f"aof must be of {', '.join(get_args(Aof))}, not {short_repr(policy)}")
    return cast("tuple[Aof, ...]", policies)


def read_faults(text: str, *, messages: int, allowed: Iterable[str], aof: tuple[Aof, ...]) -> dict[str, int]:
    """Read `all`, `none`, or kinds such as `kill=50,stop`; without a number there are as many as usual.

    A server without an append-only file is not ended.
    """
    ending = ("server-kill", "power", "disk") if "no" in aof else ()
    usual = {kind: max(1, FAULT_KINDS[kind].usual * messages // 100_000) for kind in allowed if kind not in ending}
    if text == "all":
        return {kind: number for kind, number in usual.items() if FAULT_KINDS[kind].usual}
    counts: dict[str, int] = {}
    for part in text.split(",") if text != "none" else ():
        kind, equals, number = part.strip().partition("=")
        if kind not in FAULT_KINDS:
            raise ConfigurationError(f"unknown fault {short_repr(kind)}; use one of {', '.join(FAULT_KINDS)}")
        if kind not in usual:
            raise ConfigurationError(f"fault {kind} is not possible here: {FAULT_KINDS[kind].text}")
        if equals and not number.isdecimal():
            raise ConfigurationError(f"fault {part.strip()}: after = must come a number")
        counts[kind] = int(number) if equals else usual[kind]
    return counts
