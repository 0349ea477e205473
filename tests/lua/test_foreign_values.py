"""What another program has stored stops no script, and costs the message that it belongs to alone.

Each case of the tables is run with each stored value made foreign in turn: one that delayq never writes, in one place.
A script answers all the same, or refuses before its first write; and every other message is in one place then.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

import pytest

from delayq.queue.repairing.repair import FIELDS
from tests.lua.tables import TABLES
from tests.lua.test_contract import TYPES
from tests.support.scripts import KEYS, Case, plant

STRANGER = b"\xff no id\n"
"""An id that no producer of delayq makes: no UTF-8, with a space and a line break."""
TEXTS = (b"", b"x", b"-1", b"1.5", b"inf", b"nan", b"9" * 400, b"\xff 0\n1")
SCORES = (b"-inf", b"inf", b"-5", b"1.5", b"1e300")
ALL_OF_A_PART = {"meta"}
"""Parts whose fields are no ids: each field is a kind of its own."""
PART = {getattr(KEYS, part): part for part in TYPES}
READ = {"hash": ("HGETALL",), "zset": ("ZRANGE", 0, -1, "WITHSCORES"), "list": ("LRANGE", 0, -1), "set": ("SMEMBERS",)}
PLACED = ("messages", "deliveries", "pending", "ready", "ranked", "throttled", "unack", "retry", "garbage")
AT_A_TIME = 100
Worlds = dict[str, Any]


class Foreign(NamedTuple):
    """A value that is made foreign: its part, its id (or field), what kind of value, and the command that does it."""

    part: str
    id: bytes
    how: object
    command: tuple[Any, ...]


@dataclass
class Recorder:
    """Takes the commands that plant a world, in place of a client."""

    commands: list[tuple[Any, ...]] = field(default_factory=list)

    @property
    def client(self) -> Recorder:
        return self

    def pipeline(self, transaction: bool) -> Recorder:
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def execute(self) -> None:
        pass

    def hset(self, key: str, mapping: dict[str, Any]) -> None:
        self.commands.append(("HSET", key, *(cell for pair in mapping.items() for cell in pair)))

    def zadd(self, key: str, scores: dict[str, Any]) -> None:
        self.commands.append(("ZADD", key, *(cell for id, at in scores.items() for cell in (at, id))))

    def rpush(self, key: str, *ids: str) -> None:
        self.commands.append(("RPUSH", key, *ids))

    def sadd(self, key: str, *ids: str) -> None:
        self.commands.append(("SADD", key, *ids))

    def execute_command(self, *words: Any) -> None:
        self.commands.append(words)


def as_bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


def some(cells: Sequence[Any]) -> Sequence[Any]:
    """Return the first and the last of many."""
    return cells if len(cells) <= 4 else [*cells[:3], cells[-1]]


def spoiled_values(case: Case, commands: list[tuple[Any, ...]]) -> Iterator[Foreign]:
    """Yield one foreign value after the other in the place of what is stored."""
    parts = set(case.call.script.parts) - {"events", "ends"}
    for name, key, *cells in commands:
        part = PART[key]
        if part in parts and name == "HSET":
            for id, value in some([*zip(map(as_bytes, cells[::2]), map(as_bytes, cells[1::2]), strict=True)]):
                spoiled = (value[: len(value) // 2], value + b" \xff", re.sub(rb"\d+", b"9" * 30, value))
                for how, text in enumerate((*TEXTS, *spoiled)):
                    yield Foreign(part, id, how, ("HSET", key, id, text))
        elif part in parts and name == "ZADD":
            for id in some(cells[1::2]):
                yield from (Foreign(part, as_bytes(id), score, ("ZADD", key, score, id)) for score in SCORES)


def added_values(case: Case) -> Iterator[Foreign]:
    """Yield one foreign value after the other beside what is stored."""
    parts = set(case.call.script.parts) - {"events", "ends"}
    asked = [id for id in map(as_bytes, case.call.args) if re.fullmatch(rb"[a-z]", id)]
    if "meta" in parts:
        named = [name for name in sorted(FIELDS) if b"'%s'" % name in case.call.script.text]
        for name in named:
            for how, text in enumerate(TEXTS):
                yield Foreign("meta", name, how, ("HSETNX", KEYS.meta, name, text))
    for part in parts - ALL_OF_A_PART:
        key, kind = getattr(KEYS, part), TYPES[part]
        for id in {STRANGER, *asked}:
            if kind == "zset":
                yield from (Foreign(part, id, at, ("ZADD", key, "NX", at, id)) for at in (b"-inf", b"0", b"inf"))
            elif kind == "list" and part != "wake":
                yield Foreign(part, id, "", ("LPUSH", key, id))
            elif kind == "set":
                yield Foreign(part, id, "", ("SADD", key, id))
            elif kind == "hash":
                yield from (Foreign(part, id, how, ("HSETNX", key, id, text)) for how, text in enumerate(TEXTS))


def reads(parts: Sequence[str]) -> list[tuple[Any, ...]]:
    commands = [(READ[TYPES[part]], getattr(KEYS, part)) for part in parts]
    return [(name, key, *rest) for (name, *rest), key in commands]


ALL = reads([part for part, kind in TYPES.items() if kind in READ])
FEW = reads(PLACED)


def held(read: tuple[Any, ...], reply: Any) -> Any:
    return dict(reply) if read[0] == "ZRANGE" else reply


def run(client: Any, case: Case, tried: Sequence[Foreign], before: list[Any], after: list[Any]) -> Iterator[tuple]:
    """Run a case with each of these; yields what is read before it, what it answers, and what is read after it."""
    recorder, call = Recorder(), case.call
    plant(recorder, case.before)  # type: ignore[arg-type]
    slot = ("slot", 1) if call.script.executes_once else ()
    evaluated = ("EVALSHA", call.script.sha, len(call.keys), *call.keys, *slot, *call.args)
    for first in range(0, len(tried), AT_A_TIME):
        with client.pipeline(transaction=False) as pipe:
            for one in tried[first : first + AT_A_TIME]:
                for command in (("FLUSHDB",), *recorder.commands, one.command, *before, evaluated, *after):
                    pipe.execute_command(*command)
            replies = iter(pipe.execute(raise_on_error=False))
        for one in tried[first : first + AT_A_TIME]:
            for _ in range(2 + len(recorder.commands)):
                next(replies)
            was = {PART[read[1]]: held(read, next(replies)) for read in before}
            yield one, was, next(replies), {PART[read[1]]: held(read, next(replies)) for read in after}


def places(world: Worlds, id: bytes) -> list[str]:
    """Return where a message is: in a zset or the set, or in a list if its record names that."""
    found = [part for part in ("pending", "ranked", "throttled", "unack", "garbage") if id in world[part]]
    state = world["deliveries"].get(id, b"").partition(b" ")[0].decode("latin-1")
    return [*found, *(part for part in ("ready", "retry") if id in world[part] and state == part)]


def stranded(one: Foreign, was: Worlds, is_now: Worlds) -> list[bytes]:
    """Return the other messages that were in one place, and are in none or two."""
    return [
        id
        for id in is_now["messages"]
        if id != one.id and id in was["messages"] and len(places(was, id)) == 1 != len(places(is_now, id))
    ]


def loses(one: Foreign, was: Worlds, is_now: Worlds) -> bool:
    """Return whether a message is nowhere any more because its own record is foreign: it has its payload still."""
    lists_it = [any(one.id in world[part] for part in PLACED[2:]) for world in (was, is_now)]
    return one.part == "deliveries" and one.id in is_now["messages"] and lists_it == [True, False]


def fails(client: Any, case: Case, one: Foreign) -> str:
    """Return what is wrong with a refusal; '' if it is one of the script's own, before its first write."""
    ((_, was, reply, is_now),) = run(client, case, [one], ALL, ALL)
    refused = was == is_now and str(reply).startswith("QUEUEFULL")
    return "" if refused else f"{'refused' if was == is_now else 'half done'}: {reply}"


def trial(client: Any, case: Case, tried: Sequence[Foreign]) -> Iterator[str]:
    """Run a case with foreign values; yields what is wrong."""
    client.script_load(case.call.script.text)
    ((_, planted, _, _),) = run(client, case, [Foreign("", b"", "", ("PING",))], FEW, [])
    for one, _, reply, is_now in run(client, case, tried, [], FEW):
        wrong = fails(client, case, one) if isinstance(reply, Exception) else ""
        if not isinstance(reply, Exception) and (left := stranded(one, planted, is_now)):
            wrong = f"stranded: {left}"
        if not isinstance(reply, Exception) and loses(one, planted, is_now):
            wrong = "lost"
        if wrong:
            yield f"{case.name}: {one.part}, {one.command[2:]!r}: {wrong}"[:300]


def chosen(case: Case, known: set[Any] | None) -> list[Foreign]:
    """Return the foreign values to try: with `known`, of each kind the first, and all without it."""
    recorder, found = Recorder(), []
    plant(recorder, case.before)  # type: ignore[arg-type]
    for one in (*spoiled_values(case, recorder.commands), *added_values(case)):
        kind = one.part, one.id if one.part in ALL_OF_A_PART else one.id == STRANGER, one.command[0], one.how
        if known is None or kind not in known:
            found.append(one)
            if known is not None:
                known.add(kind)
    return found


@pytest.mark.faults
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "every", [False, pytest.param(True, marks=pytest.mark.torture)], ids=["one of a kind", "every"]
)
@pytest.mark.parametrize("name", TABLES)
def test_foreign_value_stops_no_script_and_strands_no_other_message(real_executor, name, every):
    known: set[Any] | None = None if every else set()
    wrong = []
    for case in TABLES[name]:
        if not isinstance(case.reply, type):
            wrong += trial(real_executor.client, case, chosen(case, known))
    assert not wrong, "\n".join([f"{len(wrong)} in all", *wrong[:20]])
