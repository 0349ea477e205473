"""The contents of all structures of a queue as one value: planted before a script runs, observed after it.

Times in a `World` are milliseconds from `NOW`, tokens are written as their distance from `T`, the token that the first
claim at `NOW` draws: `World(pending={"a": 500}, deliveries={"b": "leased -5 1 T-9 T-9 w"})`. An entry of the event log
is written as its kind, its time and its columns: `"acked 0; ids a b; tokens T-9 T-8"`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields, replace
from itertools import accumulate
from typing import Any, NamedTuple

import pytest
import redis

from delayq.broker.calls import Calls
from delayq.broker.keys import Keys
from delayq.broker.requests import ScriptCall
from delayq.broker.transport.executor import Executor
from delayq.broker.transport.protocol import PendingRequest, read_reply
from delayq.errors import DelayqError
from tests.support.redis_server import server_version

NOW = 1_700_000_000_000
"""The time of every call, in milliseconds since 1970."""
T = NOW * 1000
"""The token of the first claim at `NOW`, if none was drawn before."""
KEYS = Keys.of("delayq", "tables")
PARTS = tuple(part.name for part in fields(Keys))
NUMBERING = "0-*" if server_version() >= (7,) else "*"
"""How a server numbers the entries of a log: without gaps, or by their time."""
without_gaps = pytest.mark.skipif(NUMBERING == "*", reason="entries are numbered without gaps from Redis 7 on")
GONE_ENTRY = "gone"
"""An entry of the log that was deleted, before others."""
LOG = {"events": f"{NUMBERING} 100000"}
"""What `meta` holds while the event log is on."""
SETTINGS = ("events", "dedupe", "paused", "limited")
"""Fields of `meta` that are texts."""


class _Anywhere(str):
    """A position in the stream of ends: by the server's own time."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and other.endswith("-0")

    __hash__ = str.__hash__


ANYWHERE = _Anywhere()


def at(offset: int) -> Calls:
    """Return the calls as of a time, in milliseconds from `NOW`."""
    return Calls(KEYS, clock=lambda: NOW + offset)


calls = at(0)


class Dead(NamedTuple):
    """A message in the dead letter; `due` and `died` in milliseconds from `NOW`."""

    attempts: int
    retries: int
    due: int
    died: int
    reason: str
    error: str
    headers: str
    payload: str
    attributes: str = ""


class After(NamedTuple):
    """What waits to follow a running message; `due` in milliseconds from `NOW`."""

    due: int
    retries: int
    headers: str
    payload: str
    attributes: str = ""


class Kept(NamedTuple):
    """What is kept of a completed message; `due` and `completed` in milliseconds from `NOW`."""

    ending: str
    attempts: int
    due: int
    completed: int
    token: str
    result: str
    note: str = ""
    attributes: str = ""


@dataclass(frozen=True, kw_only=True)
class World:
    """What a queue holds: one field a key, call slots left out. Payloads and headers are text, a character a byte.

    A record in `deliveries` reads "state due attempts first-token token holder", one in `runs` "state started ended
    epoch new exists replaced running settled refused", where "-" stands for not ended, and one in `schedule_states`
    "revision fired last paused", where it stands for none yet. `throttled` has the number of a limit and a rank,
    `key_lines` the number of a key, a rank and an id, `gates` the time at which a line goes on, None if not known.
    One in `limits` reads "number interval burst places held paused next spread spread_until reason", with `next` in
    microseconds from `NOW`, as in +500, or 0 for none, which may be "next/since/last/spare", with tokens from `T`;
    `held` may be "held/trial_at/trial_pause/trials".
    One in `readers` reads "first last heard lease", one in `staged` "size token due attempt retries payload headers
    attributes; …|ids" with the sizes of the texts, which are in "… texts".
    A counter of `meta` that is 0 counts as absent. In `done`, an end of an id's own is half a millisecond more. `wake`
    is the length of that list. The entries of `events` are numbered 0-1, 0-2, 0-3 …
    """

    pending: dict[str, int] = field(default_factory=dict)
    ready: list[str] = field(default_factory=list)
    ranked: dict[str, int] = field(default_factory=dict)
    unack: dict[str, int] = field(default_factory=dict)
    throttled: dict[str, tuple[int, int]] = field(default_factory=dict)
    running: dict[str, int] = field(default_factory=dict)
    key_lines: set[tuple[int, int, str]] = field(default_factory=set)
    gates: dict[int, int | None] = field(default_factory=dict)
    limits: dict[str, str] = field(default_factory=dict)
    declared: dict[str, str] = field(default_factory=dict)
    retry: list[str] = field(default_factory=list)
    garbage: set[str] = field(default_factory=set)
    retries: dict[str, int] = field(default_factory=dict)
    messages: dict[str, str] = field(default_factory=dict)
    deliveries: dict[str, str] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    attributes: dict[str, str] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    successors: dict[str, After | str] = field(default_factory=dict)
    gathered: dict[str, str] = field(default_factory=dict)
    dead: dict[str, int] = field(default_factory=dict)
    dead_messages: dict[str, Dead] = field(default_factory=dict)
    dead_ids: dict[str, str] = field(default_factory=dict)
    completed: dict[str, int] = field(default_factory=dict)
    results: dict[str, Kept] = field(default_factory=dict)
    waited: dict[str, int] = field(default_factory=dict)
    ends: list[str] = field(default_factory=list)
    events: list[str] = field(default_factory=list)
    done: dict[str, float] = field(default_factory=dict)
    replies: dict[str, str] = field(default_factory=dict)
    runs: dict[str, str] = field(default_factory=dict)
    refusals: dict[str, str] = field(default_factory=dict)
    notifiers: dict[str, str] = field(default_factory=dict)
    readers: dict[str, str] = field(default_factory=dict)
    staged: dict[str, str] = field(default_factory=dict)
    schedules: dict[str, int] = field(default_factory=dict)
    schedule_specs: dict[str, str] = field(default_factory=dict)
    schedule_states: dict[str, str] = field(default_factory=dict)
    schedule_labels: set[str] = field(default_factory=set)
    plans: dict[str, str] = field(default_factory=dict)
    workers: dict[str, str] = field(default_factory=dict)
    beats: dict[str, int] = field(default_factory=dict)
    history: dict[str, str] = field(default_factory=dict)
    moving: dict[str, str] = field(default_factory=dict)
    cold: dict[str, str] = field(default_factory=dict)
    cold_changes: dict[str, str] = field(default_factory=dict)
    meta: dict[str, int | str] = field(default_factory=dict)
    wake: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "meta", {name: value for name, value in self.meta.items() if value != 0})

    def but(self, **changes: Any) -> World:
        """Return this world with other contents in some places."""
        return replace(self, **changes)

    def __add__(self, other: World) -> World:
        """Return the contents of both; lists begin with those of the first."""

        def both(name: str) -> Any:
            mine, theirs = getattr(self, name), getattr(other, name)
            return mine + theirs if isinstance(mine, list | int) else mine | theirs

        return World(**{part.name: both(part.name) for part in fields(World)})


@dataclass(frozen=True)
class Case:
    """Contents, a call, what it answers (or the error it raises), and the contents after it."""

    name: str
    before: World
    call: ScriptCall[Any]
    reply: Any
    after: World


def _plant_lines(pipe: Any, world: World) -> None:
    """Put what limits hold back, and the places and gates of limits, into an empty queue."""
    gates = {number: "+inf" if at is None else NOW + at for number, at in world.gates.items()}
    throttled = {id: _line(*place) for id, place in world.throttled.items()}
    lines = {f"{number:015d} {NOW + rank - EPOCH:013d} {id}": 0 for number, rank, id in world.key_lines}
    for key, scores in (
        (KEYS.throttled, throttled),
        (KEYS.running, world.running),
        (KEYS.key_lines, lines),
        (KEYS.gates, gates),
    ):
        if scores:
            pipe.zadd(key, scores)


def plant(executor: Executor, world: World) -> None:
    """Put the contents of a world into an empty queue."""
    with executor.client.pipeline(transaction=False) as pipe:
        for key, times in (
            (KEYS.pending, world.pending),
            (KEYS.ranked, world.ranked),
            (KEYS.unack, world.unack),
            (KEYS.done, world.done),
            (KEYS.completed, world.completed),
            (KEYS.waited, world.waited),
            (KEYS.schedules, world.schedules),
            (KEYS.beats, world.beats),
            (KEYS.schedule_labels, dict.fromkeys(world.schedule_labels, -NOW)),
        ):
            if times:
                pipe.zadd(key, {id: NOW + time for id, time in times.items()})
        for key, ids in ((KEYS.ready, world.ready), (KEYS.retry, world.retry), (KEYS.wake, ["1"] * world.wake)):
            if ids:
                pipe.rpush(key, *ids)
        _plant_lines(pipe, world)
        if world.garbage:
            pipe.sadd(KEYS.garbage, *world.garbage)
        if world.dead:
            pipe.zadd(KEYS.dead, {_entry_out(entry): NOW + time for entry, time in world.dead.items()})
        hashes: dict[str, dict[str, Any]] = {
            KEYS.retries: dict(world.retries),
            KEYS.messages: {id: _bytes(payload) for id, payload in world.messages.items()},
            KEYS.deliveries: {id: _record_out(record) for id, record in world.deliveries.items()},
            KEYS.headers: {id: _bytes(headers) for id, headers in world.headers.items()},
            KEYS.attributes: dict(world.attributes),
            KEYS.errors: dict(world.errors),
            KEYS.successors: {id: _after_out(after) for id, after in world.successors.items()},
            KEYS.gathered: {_entry_field(name): _bytes(entry) for name, entry in world.gathered.items()},
            KEYS.dead_messages: {_entry_out(entry): _dead_out(dead) for entry, dead in world.dead_messages.items()},
            KEYS.dead_ids: {id: " ".join(map(_token_out, tokens.split())) for id, tokens in world.dead_ids.items()},
            KEYS.results: {id: _kept_out(kept) for id, kept in world.results.items()},
            KEYS.limits: {scope: _limit_out(text) for scope, text in world.limits.items()},
            KEYS.declared: dict(world.declared),
            KEYS.replies: dict(world.replies),
            KEYS.runs: {run: _run_out(record) for run, record in world.runs.items()},
            KEYS.refusals: dict(world.refusals),
            KEYS.notifiers: dict(world.notifiers),
            KEYS.readers: {name: _reader_out(text) for name, text in world.readers.items()},
            KEYS.staged: {name: _staged_out(text) for name, text in world.staged.items()},
            KEYS.schedule_specs: {name: _bytes(spec) for name, spec in world.schedule_specs.items()},
            KEYS.schedule_states: {name: _state_out(state) for name, state in world.schedule_states.items()},
            KEYS.plans: {calendar: _bytes(plan) for calendar, plan in world.plans.items()},
            KEYS.workers: dict(world.workers),
            KEYS.history: dict(world.history),
            KEYS.cold: dict(world.cold),
            KEYS.cold_changes: dict(world.cold_changes),
            KEYS.moving: {field: _bytes(text) for field, text in world.moving.items()},
            KEYS.meta: {name: _meta_out(name, value) for name, value in world.meta.items()},
        }
        for key, mapping in hashes.items():
            if mapping:
                pipe.hset(key, mapping=mapping)
        for key, id, entry in _entries(world):
            pipe.execute_command("XADD", key, id, *entry)
        pipe.execute()


def _entry_field(name: str) -> str:
    """Return the field of a gathered payload, `"a 0"`, or `"a 0 -5"` of a series that began 5 ms before `NOW`."""
    id, number, *began = name.split(" ")
    return f"{id}\n{T + 1000 * int(began[0] if began else 0)}\n{number}"


def _entry_name(field: bytes) -> str:
    id, series, number = field.decode().split("\n")
    began = (int(series) - T) // 1000
    return f"{id} {number} {began}" if began else f"{id} {number}"


def _entries(world: World) -> list[tuple[str, str, list[str | bytes]]]:
    """Return the entries of both streams: the key, the id and the fields of each."""
    events = [(KEYS.events, f"0-{number}", _event_out(text)) for number, text in enumerate(world.events, 1)]
    return [*events, *((KEYS.ends, "*", ["ids", ids]) for ids in world.ends)]


def observe(executor: Executor, *, without: Iterable[str] = ()) -> World:
    """Return what the queue holds; parts named by `without` are not looked at. A key that is none of it is an error."""
    client = executor.client
    keys = set(client.keys())
    strangers = keys - {getattr(KEYS, part).encode() for part in PARTS}
    assert not strangers, f"keys of no queue: {strangers}"
    parts = [
        part.name for part in fields(World) if part.name not in without and getattr(KEYS, part.name).encode() in keys
    ]
    with client.pipeline(transaction=False) as pipe:
        for part in parts:
            key = getattr(KEYS, part)
            if _READ[part] in _SORTED:
                pipe.zrange(key, 0, -1, withscores=True)
            elif part in ("ready", "retry", "wake"):
                pipe.lrange(key, 0, -1)
            elif part == "garbage":
                pipe.smembers(key)
            elif part in ("events", "ends"):
                pipe.xrange(key)
            else:
                pipe.hgetall(key)
        held = zip(parts, pipe.execute() if parts else (), strict=True)
        seen: dict[str, Any] = {part: _READ[part](contents) for part, contents in held}
    return World(**seen)


def observe_replies(executor: Executor) -> dict[bytes, bytes]:
    """Return the remembered answers as they are stored."""
    return {name: reply for name, reply in executor.client.hgetall(KEYS.meta).items() if b"." in name}


def deliver(executor: Executor, call: ScriptCall[Any], *, slot: str = "a.slot", sequence: int = 1) -> Any:
    """Send a call under a slot and a sequence of the caller's choice, and return its answer as `Calls` reads it."""
    script, keys = call.script, call.keys
    try:
        reply = executor.client.evalsha(script.sha, len(keys), *keys, slot, sequence, *call.args)
    except redis.exceptions.NoScriptError:
        executor.client.script_load(script.text)
        reply = executor.client.evalsha(script.sha, len(keys), *keys, slot, sequence, *call.args)
    sent = PendingRequest(call, b"", (slot, sequence))
    sent.reply = reply
    result = read_reply(sent)
    if isinstance(result, DelayqError):
        raise result
    return result


SPAN, EPOCH = 1 << 40, 1_600_000_000_000
"""How a place in a line is packed."""


def _line(number: int, rank: int) -> int:
    return number * SPAN + NOW + rank - EPOCH


def _lines_in(pairs: list[tuple[bytes, float]]) -> dict[str, tuple[int, int]]:
    places = {member.decode(): divmod(int(score), SPAN) for member, score in pairs}
    return {id: (number, order + EPOCH - NOW) for id, (number, order) in places.items()}


def _key_line_in(entry: bytes) -> tuple[int, int, str]:
    number, order, id = entry.decode().split(" ", 2)
    return int(number), int(order) + EPOCH - NOW, id


def _gates_in(pairs: list[tuple[bytes, float]]) -> dict[int, int | None]:
    times = {int(member): score for member, score in pairs}
    return {number: None if score == float("inf") else _whole(score) - NOW for number, score in times.items()}


def _limit_out(text: str) -> str:
    number, interval, burst, places, held, paused, start, spread, until, *reason = text.split(" ")
    times = (
        paused if paused in "-0" else str(NOW + int(paused)),
        _next_start(start, lambda at: f"{T + int(at)}.00" if at != "0" else "0.00", T),
        f"{float(spread):.3f}",
    )
    first = (number, f"{float(interval):.3f}", burst, places, _held(held, _time_out, NOW))
    return " ".join((*first, *times, _time_out(until), " ".join(reason)))


def _limit_in(data: bytes) -> str:
    number, interval, burst, places, held, paused, start, spread, until, reason = data.decode().split(" ", 9)
    times = (
        paused if paused in "-0" else str(int(paused) - NOW),
        _next_start(start, lambda at: f"{float(at) - T:+.0f}" if float(at) else "0", -T),
        f"{float(spread):g}",
    )
    first = (number, f"{float(interval):g}", burst, places, _held(held, _time_in, -NOW))
    return " ".join((*first, *times, _time_in(until), reason)).strip()


def _next_start(text: str, time: Callable[[str], str], offset: int) -> str:
    """Return when the next start falls, and what may be given back, with other times."""
    start, *claims = text.split("/")
    if not claims:
        return time(start)
    since, last = (int(token) + offset for token in claims[:2])
    return f"{time(start)}/{since}/{last}/{float(claims[2]):g}"


def _held(text: str, time: Callable[[str], str], offset: int) -> str:
    """Return until when a limit is closed, and what becomes of its breaker, with other times."""
    held, *breaker = text.split("/")
    if breaker:
        breaker[0] = str(int(breaker[0]) + offset)
    return "/".join([time(held), *breaker])


def _time_out(offset: str) -> str:
    return "0" if offset == "0" else str(NOW + int(offset))


def _time_in(time: str) -> str:
    return "0" if time == "0" else str(int(time) - NOW)


def _bytes(text: str) -> bytes:
    return text.encode("latin-1")


def _text(data: bytes) -> str:
    return data.decode("latin-1")


def _token_out(text: str) -> str:
    return str(T + int(text[1:])) if text.startswith("T") else text


def _token_in(text: str) -> str:
    return "0" if text == "0" else f"T{int(text) - T:+d}"


def _entry_out(entry: str) -> str:
    id, _, token = entry.rpartition(":")
    return f"{id}:{_token_out(token)}"


def _entry_in(data: bytes) -> str:
    id, _, token = data.decode().rpartition(":")
    return f"{id}:{_token_in(token)}"


def _record_out(record: str) -> str:
    state, due, attempts, first, token, holder = record.split(" ", 5)
    return f"{state} {NOW + int(due)} {attempts} {_token_out(first)} {_token_out(token)} {holder}"


def _record_in(data: bytes) -> str:
    state, due, attempts, first, token, holder = data.decode().split(" ", 5)
    return f"{state} {int(due) - NOW} {int(attempts)} {_token_in(first)} {_token_in(token)} {holder}"


def _dead_out(dead: Dead) -> bytes:
    lengths = f"{len(dead.reason)} {len(dead.error)} {len(dead.headers)}"
    lengths += f" {len(dead.attributes)}" if dead.attributes else ""
    line = f"{dead.attempts} {dead.retries} {NOW + dead.due} {NOW + dead.died} {lengths}\n"
    return _bytes(line + dead.reason + dead.error + dead.headers + dead.attributes + dead.payload)


def _dead_in(data: bytes) -> Dead:
    line, _, rest = _text(data).partition("\n")
    attempts, retries, due, died, *lengths = map(int, line.split(" "))
    reason, error, headers, attributes = accumulate((*lengths, 0)[:4])
    texts = (rest[:reason], rest[reason:error], rest[error:headers], rest[attributes:], rest[headers:attributes])
    return Dead(attempts, retries, due - NOW, died - NOW, *texts)


def _kept_out(kept: Kept) -> bytes:
    numbers = f"{kept.attempts} {NOW + kept.due} {NOW + kept.completed} {_token_out(kept.token)}"
    line = f"{kept.ending} {numbers} {len(kept.attributes)} {len(kept.note)}\n"
    return _bytes(line + kept.attributes + kept.note + kept.result)


def _kept_in(data: bytes) -> Kept:
    line, _, rest = _text(data).partition("\n")
    ending, attempts, due, completed, token, attributes, note = line.split(" ")
    at, then = int(attributes), int(attributes) + int(note)
    times = (int(due) - NOW, int(completed) - NOW, _token_in(token))
    return Kept(ending, int(attempts), *times, rest[then:], rest[at:then], rest[:at])


def _after_out(after: After | str) -> bytes:
    if isinstance(after, str):  # one that cannot be read
        return _bytes(after)
    line = f"{NOW + after.due} {after.retries} {len(after.headers)} {len(after.attributes)}\n"
    return _bytes(line + after.headers + after.attributes + after.payload)


def _after_in(data: bytes) -> After | str:
    line, end, rest = _text(data).partition("\n")
    if not end:
        return line
    due, retries, headers, attributes = map(int, line.split(" "))
    attributes += headers
    return After(due - NOW, retries, rest[:headers], rest[attributes:], rest[headers:attributes])


def _times(pairs: list[tuple[bytes, float]]) -> dict[str, int]:
    return {member.decode(): _whole(score) - NOW for member, score in pairs}


def _members(pairs: list[tuple[bytes, float]]) -> set[str]:
    assert not any(score for _, score in pairs), "only with equal scores they are in alphabetical order"
    return {member.decode() for member, _ in pairs}


def _whole(score: float) -> int:
    assert score == int(score), f"not a whole number of milliseconds: {score}"
    return int(score)


def _texts(mapping: dict[bytes, bytes]) -> dict[str, str]:
    return {id.decode(): _text(data) for id, data in mapping.items()}


def _meta_out(name: str, value: int | str) -> str:
    return str(NOW + int(value)) if name == "schedules_at" else _token_out(str(value))


def _meta_in(mapping: dict[bytes, bytes]) -> dict[str, int | str]:
    meta = {name: value for name, value in _texts(mapping).items() if "." not in name}  # the others are call slots
    if "schedules_at" in meta:
        meta["schedules_at"] = str(int(meta["schedules_at"]) - NOW)
    token = {"token": _token_in(meta.pop("token"))} if "token" in meta else {}
    return token | {name: value if name in SETTINGS else int(value) for name, value in meta.items()}


def _run_out(record: str) -> str:
    state, started, ended, *numbers = record.split()
    return " ".join((state, str(NOW + int(started)), "0" if ended == "-" else str(NOW + int(ended)), *numbers))


def _run_in(data: bytes) -> str:
    state, started, ended, *numbers = data.decode().split(" ")
    return " ".join((state, str(int(started) - NOW), "-" if ended == "0" else str(int(ended) - NOW), *numbers))


def _state_out(state: str) -> str:
    revision, fired, last, paused = state.split()
    return " ".join((_token_out(revision), fired, "0" if last == "-" else str(NOW + int(last)), paused))


def _state_in(data: bytes) -> str:
    revision, fired, last, paused = data.decode().split(" ")
    return " ".join((_token_in(revision), fired, "-" if last == "0" else str(int(last) - NOW), paused))


def _reader_out(text: str) -> str:
    first, last, heard, *lease = text.split(" ") if " " in text else (text, "", "")
    return " ".join((first, last, str(NOW + int(heard)), *lease)) if heard else text


def _reader_in(data: bytes) -> str:
    first, last, heard, *lease = data.decode().split(" ") if b" " in data else (data.decode(), "", "")
    return " ".join((first, last, str(int(heard) - NOW), *lease)) if heard else first


def _staged_out(text: str) -> bytes:
    if "|" not in text:
        return _bytes(text)
    rows, ids = text.split("|")
    cells = [row.split(" ") for row in rows.split("; ")]
    lines = (" ".join((size, _token_out(token), str(NOW + int(due)), *rest)) for size, token, due, *rest in cells)
    return _bytes("\n".join(lines) + "\n\n" + ids)


def _staged_in(data: bytes) -> str:
    lines, is_table, ids = _text(data).partition("\n\n")
    if not is_table:
        return lines
    cells = [line.split(" ") for line in lines.split("\n")]
    rows = (" ".join((size, _token_in(token), str(int(due) - NOW), *rest)) for size, token, due, *rest in cells)
    return "; ".join(rows) + "|" + ids


def _event_out(text: str) -> list[str | bytes]:
    head, *columns = text.split("; ")
    kind, time = head.split(" ")
    fields: list[str | bytes] = ["kind", kind, "at", str(NOW + int(time))]
    for column in columns:
        name, _, cells = column.partition(" ")
        turn = _CELLS_OUT.get(name)
        fields += [name, " ".join(map(turn, cells.split(" "))) if turn else _bytes(cells)]
    return fields


def _events_in(entries: list[tuple[bytes, dict[bytes, bytes]]]) -> list[str]:
    if NUMBERING != "0-*":
        return [_event_in(held) for _, held in entries]
    texts = {id.decode(): _event_in(held) for id, held in entries}
    numbers = [int(id.removeprefix("0-")) for id in texts]
    assert numbers == sorted(numbers)
    return [texts.get(f"0-{number}", GONE_ENTRY) for number in range(1, max(numbers, default=0) + 1)]


def _event_in(held: dict[bytes, bytes]) -> str:
    columns = {name.decode(): _text(cells) for name, cells in held.items()}
    head = f"{columns.pop('kind')} {int(columns.pop('at')) - NOW}"
    for name, cells in columns.items():
        turn = _CELLS_IN.get(name)
        head += f"; {name} " + (" ".join(map(turn, cells.split(" "))) if turn else cells)
    return head


_CELLS_OUT: dict[str, Any] = {"dues": lambda cell: str(NOW + int(cell)), "tokens": _token_out}
_CELLS_IN: dict[str, Any] = {"dues": lambda cell: str(int(cell) - NOW), "tokens": _token_in}


_READ: dict[str, Any] = {
    "pending": _times,
    "ready": lambda ids: [id.decode() for id in ids],
    "ranked": _times,
    "unack": _times,
    "throttled": _lines_in,
    "running": lambda held: {id.decode(): int(number) for id, number in held},
    "key_lines": lambda held: {_key_line_in(entry) for entry, _ in held},
    "gates": _gates_in,
    "limits": lambda held: {scope.decode(): _limit_in(text) for scope, text in held.items()},
    "declared": _texts,
    "retry": lambda ids: [id.decode() for id in ids],
    "garbage": lambda ids: {id.decode() for id in ids},
    "retries": lambda held: {id.decode(): int(left) for id, left in held.items()},
    "messages": _texts,
    "deliveries": lambda held: {id.decode(): _record_in(record) for id, record in held.items()},
    "headers": _texts,
    "attributes": _texts,
    "errors": lambda held: {id.decode(): error.decode() for id, error in held.items()},
    "successors": lambda held: {id.decode(): _after_in(data) for id, data in held.items()},
    "gathered": lambda held: {_entry_name(field): _text(entry) for field, entry in held.items()},
    "dead": lambda held: {_entry_in(entry): _whole(time) - NOW for entry, time in held},
    "dead_messages": lambda held: {_entry_in(entry): _dead_in(data) for entry, data in held.items()},
    "dead_ids": lambda held: {
        id.decode(): " ".join(map(_token_in, tokens.decode().split(" "))) for id, tokens in held.items()
    },
    "completed": _times,
    "results": lambda held: {id.decode(): _kept_in(data) for id, data in held.items()},
    "waited": _times,
    "ends": lambda entries: [fields[b"ids"].decode() for _, fields in entries],
    "events": _events_in,
    "done": lambda pairs: {member.decode(): score - NOW for member, score in pairs},
    "replies": _texts,
    "runs": lambda held: {run.decode(): _run_in(record) for run, record in held.items()},
    "refusals": _texts,
    "notifiers": _texts,
    "readers": lambda held: {name.decode(): _reader_in(text) for name, text in held.items()},
    "staged": lambda held: {name.decode(): _staged_in(text) for name, text in held.items()},
    "schedules": _times,
    "schedule_specs": _texts,
    "schedule_states": lambda held: {name.decode(): _state_in(state) for name, state in held.items()},
    "schedule_labels": _members,
    "plans": _texts,
    "workers": _texts,
    "beats": _times,
    "history": _texts,
    "moving": _texts,
    "cold": _texts,
    "cold_changes": _texts,
    "meta": _meta_in,
    "wake": len,
}
_SORTED = (_times, _members, _lines_in, _gates_in, _READ["running"], _READ["key_lines"], _READ["dead"], _READ["done"])
"""What reads a sorted set."""
