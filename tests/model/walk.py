"""A breadth-first walk over the real scripts: every world that can be reached in so many moves, each one checked.

A world is planted, each of its moves is made there by the script itself, and what is stored then is read back. Each
move is compared with the model and looked at by itself (see `laws`), and each call is made twice: the second answers
the same and changes nothing. Since the walk goes by the number of moves, what it finds is told by a shortest path.

All of it goes to the server in one script that holds the texts of the others as functions: to plant, call, call again
and read back takes a third of the time that the single commands take in a pipeline.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from delayq.broker.keys import META_FIELDS
from delayq.broker.replies import ClaimReply, TurnReply
from delayq.broker.scripts import script
from delayq.broker.transport.executor import Executor
from tests.model import laws
from tests.model.model import Model
from tests.model.moves import (
    CALLED,
    CALLS,
    ELSEWHERE,
    KEYS,
    SCRIPTS,
    Move,
    Play,
    Rules,
    expected,
    heard,
    moves,
    play,
    quiet,
    unheard,
)
from tests.model.scan import Scan, check, reading
from tests.model.world import NOW, State, commands, fresh, memory_of, model_of, pack, unpack

AT_A_TIME = 50
"""Worlds that go to the server in one round trip."""

_DRIVER = Path(__file__).with_name("walk.lua")


class Violation(AssertionError):  # noqa: N818 - what is found, not what goes wrong
    """Something that must not be, and the shortest way to it."""

    def __init__(self, what: str, path: list[Move], state: State) -> None:
        super().__init__("\n".join([what, *(f"  {n}. {told(move)}" for n, move in enumerate(path, 1)), f"in {state}"]))
        self.path = path


def told(move: Move) -> str:
    """Return a move as text; tokens are told by their rank among those known."""
    return " ".join(str(word) for word in move)


@dataclass(slots=True)
class Account:
    """What a walk has seen."""

    levels: list[int] = field(default_factory=list)
    """Worlds seen for the first time after so many moves."""
    calls: int = 0
    changes: int = 0
    """Calls that changed something."""
    complete: int = 0
    """Every world that can be reached in so many moves has been seen."""

    @property
    def states(self) -> int:
        return sum(self.levels)


class Walk:
    """A walk by some rules; `texts` are scripts to be used in place of those of their names."""

    def __init__(self, executor: Executor, rules: Rules, texts: Mapping[str, str] | None = None) -> None:
        self.rules, self.account = rules, Account()
        requests = reading(CALLS)
        self._parse = [request.parse for request in requests]
        reads = [
            ["counts", [str(NOW), *META_FIELDS]],
            *([str(word) for word in request.args] for request in requests[1:]),
        ]
        replies = 1 + reads.index(["HGETALL", KEYS.meta])
        keys = [getattr(KEYS, part) for part in KEYS.__slots__]
        driver = executor.client.register_script(_driver(texts or {}))
        packed_reads = msgspec.msgpack.encode(reads)
        self._make = lambda worlds: driver(keys, [packed_reads, msgspec.msgpack.encode(worlds), replies])
        self._seen: dict[bytes, int] = {}
        self._came: list[tuple[int, Move]] = []
        """Of each world, by number, the one before it and the move between."""

    def run(self, *, least: int = 10**9, depth: int = 10**9) -> Account:
        """Walk until so many worlds have been seen, or to a depth; raises the first `Violation`."""
        account = self.account
        level = [pack(self.rules.begin or fresh(self.rules.clients))]
        self._meet(level[0], 0, ("begin",))
        account.levels.append(1)
        while level and account.states < least and account.complete < depth:
            account.levels.append(0)
            following = []
            for parent, move, state in self._expand(level):
                packed = pack(state)
                if self._meet(packed, parent, move):
                    following.append(packed)
                    account.levels[-1] += 1
                    if account.states >= least:
                        return account
            account.complete += 1
            level = following
        return account

    def _meet(self, packed: bytes, parent: int, move: Move) -> bool:
        """Note a world; returns whether it is a new one."""
        size = len(self._came)
        if self._seen.setdefault(_digest(packed), size) < size:
            return False
        self._came.append((parent, move))
        return True

    def _expand(self, level: Iterable[bytes]) -> Iterator[tuple[int, Move, State]]:
        """Make every move in every world of a level; the server is at work on the next ones meanwhile."""
        with ThreadPoolExecutor(1) as thread:
            coming: tuple[Any, Any] | None = None
            for batch in _batches(level):
                tried = [self._prepare(packed) for packed in batch]
                replies = thread.submit(self._make, [world for one in tried for world in one.worlds])
                if coming:
                    yield from self._judge(*coming)
                coming = tried, replies
            if coming:
                yield from self._judge(*coming)

    def _prepare(self, packed: bytes) -> _Tried:
        state = unpack(packed)
        plays = [(move, play(state, move)) for move in moves(state, self.rules)]
        calls = [made.packed for _, made in plays if made]
        planted = commands(KEYS, state, model_of(state, window=self.rules.window))
        return _Tried(self._seen[_digest(packed)], state, plays, [[*planted, calls]])

    def _judge(self, tried: list[_Tried], coming: Future[list[Any]]) -> Iterator[tuple[int, Move, State]]:
        replies = iter(coming.result())
        for number, state, plays, _ in tried:
            before = self._model(state)
            for move, made in plays:
                try:
                    if made is None:
                        yield number, move, quiet(state, move, self._model(state), self.rules)
                    else:
                        for label, successor in self._outcome(state, before, move, made, next(replies)):
                            yield number, label, successor
                except AssertionError as error:
                    raise Violation(str(error), [*self._path(number), move], state) from error

    def _outcome(
        self, state: State, before: Model, move: Move, made: Play, told: list[Any]
    ) -> Iterator[tuple[Move, State]]:
        """Check what came of a call; returns the worlds it leads to, the reply received or lost."""
        assert len(told) > 1, f"the script fails: {told[0]}"
        raw, dump, replies, is_same = told
        model, memory = self._model(state), memory_of(state)
        reply = made.call.parse(raw) if move[0] != "rerun" else raw.decode()
        should = expected(state, move, model, memory)
        if isinstance(should, ClaimReply):
            reply = reply._replace(left=0)
        if isinstance(should, TurnReply) and reply.claimed:
            reply = reply._replace(claimed=reply.claimed._replace(left=0, next_deadline=-1))
        assert reply == should, f"{move[0]} answers {reply}, not {should}"
        assert is_same, f"{move[0]}, made twice, answers otherwise or changes something again"
        self.account.calls += 1
        lists = state.ready, state.retry
        if dump:
            self.account.changes += 1
            scan = Scan(*(parse(part) for parse, part in zip(self._parse, dump, strict=True)))
            check(scan, model, NOW)
            assert scan.wake or not model.limits.wakes, "nobody is woken for what may start now"
            laws.check(SCRIPTS.get(move[0], move[0]), before, model, memory_of(state))
            lists = "".join(scan.ready), "".join(scan.retry)
        else:
            laws.check_unchanged(before, model)
        rules = self.rules
        if dump or rules.replays or rules.losses:
            yield move, heard(state, move, model, rules, memory=memory, lists=lists)
        if move[0] == "claim" and dump and rules.replays:
            unknowing = memory._replace(receipts=memory_of(state).receipts)
            yield ("reply lost", *move), heard(state, move, model, rules, memory=unknowing, lists=lists)
        elif rules.losses and not state.lost and made.slot == ELSEWHERE:
            remembered = dict(zip(replies[::2], replies[1::2], strict=True)).get(ELSEWHERE.encode())
            if remembered:  # one that moved nothing has nothing to remember, and looks again
                kept = remembered.split(b" ", 2)[2].decode()
                yield ("reply lost", *move), unheard(state, move, model, rules, lists=lists, reply=kept)

    def _model(self, state: State) -> Model:
        return model_of(state, window=self.rules.window)

    def _path(self, number: int) -> list[Move]:
        path: list[Move] = []
        while number:
            number, move = self._came[number]
            path.insert(0, move)
        return path


class _Tried(NamedTuple):
    """A world and the moves that are tried in it."""

    number: int
    state: State
    plays: list[tuple[Move, Play | None]]
    worlds: list[Any]


def _batches(level: Iterable[bytes]) -> Iterator[list[bytes]]:
    rest = iter(level)
    while batch := list(islice(rest, AT_A_TIME)):
        yield batch


def _digest(packed: bytes) -> bytes:
    return hashlib.blake2b(packed, digest_size=12).digest()


def _driver(texts: Mapping[str, str]) -> str:
    """Return the driver with every script in it as a function."""
    numbers = {part: number for number, part in enumerate(KEYS.__slots__, 1)}
    functions = []
    for name in [*CALLED, "counts"]:
        known = script(name)
        keys = ", ".join(f"KEYS[{numbers[part]}]" for part in known.parts)
        text = texts.get(name, known.text.decode())
        functions.append(f"scripts['{name}'] = {{keys = {{{keys}}}, run = function(KEYS, ARGV)\n{text}\nend}}")
    return _DRIVER.read_text().replace("--SCRIPTS--", "\n".join(functions))
