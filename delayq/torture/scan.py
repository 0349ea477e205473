"""The final scan: all that Redis holds of a queue at the end of a round, and what of it is in no order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from typing import Any

from delayq.answers import Counted, pairs
from delayq.calls import Calls
from delayq.executor import Executor
from delayq.inspector import read_death
from delayq.keys import Keys
from delayq.torture.history import Final, now
from delayq.values import Command

_HASHES = ("messages", "retries", "deliveries", "headers", "errors", "dead_messages", "dead_ids")
_ZSETS = ("pending", "unack", "dead")
_LISTS = ("ready", "retry", "wake")
_HIDDEN = {"schema", "token", "stale_ready", "stale_retry", "backoffs", "slot_cursor", "events", "dedupe"}
TOLD = 20
"""Things out of order that are told one by one."""


@dataclass(slots=True)
class Held:
    """The structures of a queue, as they were read."""

    counted: Counted
    keys: list[str]
    messages: dict[str, bytes]
    retries: dict[str, bytes]
    deliveries: dict[str, bytes]
    headers: dict[str, bytes]
    errors: dict[str, bytes]
    dead_messages: dict[str, bytes]
    dead_ids: dict[str, bytes]
    pending: dict[str, int]
    unack: dict[str, int]
    dead: dict[str, int]
    ready: list[str]
    retry: list[str]
    wake: list[str]
    garbage: list[str]

    def record(self, id: str) -> list[str]:
        """Return the words of a delivery record: state, due, and so on; of one without, those of a pending message."""
        stored = self.deliveries.get(id)
        return stored.decode().split(" ", 5) if stored else ["pending", str(self.pending.get(id, 0))]

    def offered(self, state: str) -> set[str]:
        """Return the living ids of a list: entries may be left over from an earlier place of their id."""
        entries: list[str] = getattr(self, state)
        return {id for id in entries if id in self.messages and self.record(id)[0] == state}


def read(executor: Executor, keys: Keys, *, own: bool) -> Held:
    """Read all of it while nobody is at work on the queue; on a server of our `own` all of its keys are looked at."""
    named = Command(("KEYS", keys.meta.removesuffix("meta") + "*"), read_texts)
    requests: list[Any] = [Calls(keys).counts(), named if own else Command(("PING",), lambda _: [])]
    requests += [Command(("HGETALL", getattr(keys, part)), read_hash) for part in _HASHES]
    requests += [Command(("ZRANGE", getattr(keys, part), 0, -1, "WITHSCORES"), read_zset) for part in _ZSETS]
    requests += [Command(("LRANGE", getattr(keys, part), 0, -1), read_texts) for part in _LISTS]
    requests += [Command(("SMEMBERS", keys.garbage), read_texts)]
    answers = executor.run(requests)
    for answer in answers:
        if isinstance(answer, Exception):
            raise answer
    return Held(*answers)


def scan(executor: Executor, keys: Keys, *, own: bool) -> Final:
    """Read a queue, and say what it holds and what is left over."""
    held = read(executor, keys, own=own)
    deaths = ((entry.rpartition(":"), read_death(stored)) for entry, stored in held.dead_messages.items())
    return Final(
        at=now(),
        server=held.counted.now,
        living=[(id, held.record(id)[0], int(held.record(id)[1])) for id in held.messages],
        dead=[(id, int(token), d.attempts, d.retries, d.reason) for (id, _, token), d in deaths],
        counters={name: int(value) for name, value in held.counted.meta.items() if name not in _HIDDEN},
        leftovers=cut_short(disorders(held, keys)),
    )


def cut_short(disorder: Iterable[str]) -> list[str]:
    """Return the first texts, and of the others how many there are."""
    texts = list(disorder)
    more = [f"and {len(texts) - TOLD} more"] if len(texts) > TOLD else []
    return [*texts[:TOLD], *more]


def disorders(held: Held, keys: Keys) -> Iterator[str]:
    """Yield what is in no order, a text each."""
    known = {getattr(keys, part.name) for part in fields(keys)}
    yield from (f"unknown key {key}" for key in held.keys if key not in known)
    places = Counter([*held.pending, *held.unack, *held.offered("ready"), *held.offered("retry"), *held.garbage])
    yield from (f"{id} stands in {number} places" for id, number in places.items() if number > 1)
    yield from (f"{id} stands in a place and is no message" for id in places.keys() - held.messages.keys())
    yield from (f"{id} is a message in no place" for id in held.messages.keys() - places.keys())
    yield from (f"{id} has no retries" for id in held.messages.keys() - held.retries.keys())
    for part in ("retries", "deliveries", "headers", "errors"):
        yield from (f"{id} has {part} and is no message" for id in getattr(held, part).keys() - held.messages.keys())
    yield from (f"{entry} is dead without a message" for entry in held.dead.keys() - held.dead_messages.keys())
    yield from (f"{entry} is kept and not dead" for entry in held.dead_messages.keys() - held.dead.keys())
    named = {f"{id}:{token}" for id, tokens in held.dead_ids.items() for token in tokens.decode().split()}
    yield from (f"{entry} is not dead by id and by time alike" for entry in named ^ held.dead.keys())
    yield from _miscounted(held)


def _miscounted(held: Held) -> Iterator[str]:
    counted, meta = held.counted, held.counted.meta
    in_backoff = sum(held.record(id)[0] == "backoff" for id in held.unack)
    for name, kept, found in (
        ("messages", counted.messages, len(held.messages)),
        ("pending", counted.pending, len(held.pending)),
        ("ready", counted.ready, len(held.offered("ready"))),
        ("retry", counted.retry, len(held.offered("retry"))),
        ("active", counted.active, len(held.unack) - in_backoff),
        ("backoff", counted.backoff, in_backoff),
        ("garbage", counted.garbage, len(held.garbage)),
        ("dead", counted.dead, len(held.dead)),
        ("stale_ready", int(meta.get("stale_ready", 0)), len(held.ready) - len(held.offered("ready"))),
        ("stale_retry", int(meta.get("stale_retry", 0)), len(held.retry) - len(held.offered("retry"))),
    ):
        if kept != found:
            yield f"{name}: counted as {kept}, but there are {found}"
    if len(held.wake) > 1:
        yield f"{len(held.wake)} wake-ups"


def read_hash(answer: Any) -> dict[str, bytes]:
    """Return a hash, answered in a flat list or, by Redis' newer protocol, as a mapping."""
    return {name.decode(): value for name, value in pairs(answer).items()}


def read_zset(answer: list[Any]) -> dict[str, int]:
    """Return a zset, answered in a flat list or, by Redis' newer protocol, in pairs."""
    paired = answer if answer and isinstance(answer[0], list | tuple) else zip(answer[::2], answer[1::2], strict=True)
    return {member.decode(): int(float(score)) for member, score in paired}


def read_texts(answer: Any) -> list[str]:
    """Return a list or a set."""
    return [text.decode() for text in answer]
