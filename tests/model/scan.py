"""Reads every structure of a queue in one round trip, and tells what must hold of them whatever has happened."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from delayq.broker.calls import Calls
from delayq.broker.event_log import EventEntry, read_events
from delayq.broker.replies import CountsReply, pairs
from delayq.broker.requests import RedisCommand
from delayq.broker.transport.executor import Executor
from delayq.queue.inspecting.event_log import expand
from delayq.testing.torture.final_scan import read_hash, read_texts, read_zset
from tests.model.fold import Death, Fold, Life, first_line
from tests.model.model import Dead, Message, Model, Successor

_HASHES = (
    *("messages", "retries", "deliveries", "headers", "attributes", "errors", "successors"),
    *("dead_messages", "dead_ids", "results", "limits", "declared", "meta", "runs"),
)
_ZSETS = ("pending", "ranked", "throttled", "running", "unack", "dead", "completed", "waited")
LINE, EPOCH = 1 << 40, 1_600_000_000_000
"""The distance of lines, and the time from which due times count in them."""
_LISTS = ("ready", "retry", "wake")
_SETTINGS = ("events", "dedupe", "paused", "limited")
_MARKS = ("token", "stale_ready", "stale_retry", "backoffs", "schema", "priority_step", "unique", "stopping")


@dataclass(slots=True)
class Scan:
    """All that Redis holds of one queue, and the counts it gives."""

    counts: CountsReply
    messages: dict[str, bytes]
    retries: dict[str, bytes]
    deliveries: dict[str, bytes]
    headers: dict[str, bytes]
    attributes: dict[str, bytes]
    errors: dict[str, bytes]
    successors: dict[str, bytes]
    dead_messages: dict[str, bytes]
    dead_ids: dict[str, bytes]
    results: dict[str, bytes]
    limits: dict[str, bytes]
    declared: dict[str, bytes]
    slots: dict[str, bytes]
    """The fields of `meta`, those of call slots among them."""
    runs: dict[str, bytes]
    pending: dict[str, int]
    ranked: dict[str, int]
    throttled: dict[str, int]
    running: dict[str, int]
    unack: dict[str, int]
    dead: dict[str, int]
    completed: dict[str, int]
    waited: dict[str, int]
    done: dict[str, float]
    gates: dict[str, float]
    ready: list[str]
    retry: list[str]
    wake: list[str]
    garbage: set[str]
    ends: list[set[str]]
    """The ids of each entry in the stream of ends."""
    events: list[EventEntry]
    """What has been logged since the last scan."""

    def offered(self, state: str) -> list[str]:
        """The living ids of a list, in the order in which a claim meets them first."""
        prefix = f"{state} ".encode()
        ids = dict.fromkeys(getattr(self, state))
        return [id for id in ids if id in self.messages and self.deliveries.get(id, b"").startswith(prefix)]


def read(executor: Executor, calls: Calls, *, after: int = 0) -> Scan:
    return Scan(*executor.run(reading(calls, after=after)))


def reading(calls: Calls, *, after: int = 0) -> list[Any]:
    """Return what is asked for a scan, in the order of its fields."""
    keys = calls.keys
    requests: list[Any] = [calls.counts()]
    requests += [RedisCommand(("HGETALL", getattr(keys, part)), read_hash) for part in _HASHES]
    requests += [RedisCommand(("ZRANGE", getattr(keys, part), 0, -1, "WITHSCORES"), read_zset) for part in _ZSETS]
    requests += [RedisCommand(("ZRANGE", key, 0, -1, "WITHSCORES"), _read_ends) for key in (keys.done, keys.gates)]
    requests += [RedisCommand(("LRANGE", getattr(keys, part), 0, -1), read_texts) for part in _LISTS]
    requests += [RedisCommand(("SMEMBERS", keys.garbage), lambda reply: set(read_texts(reply)))]
    requests += [RedisCommand(("XRANGE", keys.ends, "-", "+"), _read_announced)]
    requests += [read_events(calls, after + 1, limit=1000)]
    return requests


def _read_ends(reply: list[Any]) -> dict[str, float]:
    """Read scores that may have a half, or be infinite."""
    paired = reply if reply and isinstance(reply[0], list | tuple) else zip(reply[::2], reply[1::2], strict=True)
    return {member.decode(): float(score) for member, score in paired}


def _read_announced(reply: list[Any]) -> list[set[str]]:
    return [set(pairs(cells)[b"ids"].decode().split()) for _, cells in reply]


def check(scan: Scan, model: Model, now: int) -> None:
    """Compare all of it with the model; the place of each id is looked at first, for the plainest failure."""
    each_id_has_one_place(scan)
    messages, dead = model.messages.values(), model.dead
    assert scan.messages == {m.id: m.payload for m in messages}
    default = {m.id: b"3" for m in messages if model.is_new}
    assert default | scan.retries == {m.id: b"%d" % m.left for m in messages}
    assert scan.deliveries == {m.id: record(m) for m in messages if m.promoted}
    assert scan.headers == {m.id: m.headers for m in messages if m.headers}
    assert scan.attributes == {m.id: m.attributes for m in messages if m.attributes}
    assert scan.errors == {m.id: m.error.encode() for m in messages if m.error}
    assert scan.successors == {id: waiting_text(one) for id, one in model.successors.items()}
    assert scan.successors.keys() <= scan.messages.keys(), "a successor without a message before it"
    assert scan.pending == {m.id: m.due for m in messages if m.state == "pending"}
    assert scan.ranked == {id: model.rank(id) for id in model.ids("ranked")}
    assert scan.throttled == {id: number * LINE + rank - EPOCH for id, (number, rank) in model.limits.lines.items()}
    assert scan.throttled.keys() == {*model.ids("throttled")}
    assert scan.running == model.limits.running, "places are taken by what does not run, or the reverse"
    assert scan.running.keys() <= {*model.ids("leased")}
    assert scan.limits == {scope: one.text() for scope, one in model.limits.of.items()}
    assert scan.declared == {scope: said.encode() for scope, said in model.declared.items()}
    assert scan.gates == {str(number): at for number, at in model.limits.gates.items()}
    assert scan.counts.meta.get("limited", "") == model.limits.flag
    assert scan.unack == {m.id: m.until for m in messages if m.state in {"leased", "backoff"}}
    assert scan.garbage == set(model.ids("garbage"))
    assert scan.dead == {entry: death.at for entry, death in dead.items()}
    assert scan.dead_messages == {entry: tombstone(death) for entry, death in dead.items()}
    assert scan.dead_ids == tokens_by_id(dead)
    assert scan.done == model.done
    assert scan.completed == {id: until for id, (until, _) in model.completed.items()}
    assert scan.results == {id: record for id, (_, record) in model.completed.items()}
    assert scan.waited == model.waited
    last = len(scan.ends) - len(model.told)
    assert scan.ends[max(0, last) :] == model.told, "an end was announced, and whoever waits cannot read it"
    model.told.clear()
    assert scan.runs == {run: _record_of_run(model, run) for run in model.runs}
    paused = None if model.pause_set is None else " ".join(map(str, model.pause_set))
    assert scan.counts.meta.get("paused") == paused
    _lists_keep_their_order(scan.ready, model.ready)
    _lists_keep_their_order(scan.retry, model.retry)
    assert len(scan.wake) <= 1
    assert all(m.attempts <= m.retries + 1 for m in (*messages, *(death.message for death in dead.values())))
    _counts_are_exact(scan, model, now)


def each_id_has_one_place(scan: Scan) -> None:
    places = [*scan.pending, *scan.ranked, *scan.throttled, *scan.offered("ready"), *scan.offered("retry")]
    places += [*scan.unack, *scan.garbage]
    assert sorted(places) == sorted(scan.messages), "an id stands in no place, in two, or is no message"


def _lists_keep_their_order(entries: list[str], living: list[str]) -> None:
    # An id with leftover entries may come sooner than its turn, never twice; the others come in theirs.
    alone = [id for id in entries if entries.count(id) == 1 and id in living]
    assert alone == [id for id in living if id in alone]


def _counts_are_exact(scan: Scan, model: Model, now: int) -> None:
    counts, ready = scan.counts, len(model.ready) + len(scan.ranked)
    offered = [*scan.offered("ready")[:1], *scan.ranked]
    dues = [model.messages[id].due for id in model.ids("pending")]
    overdue = sorted(due for due in dues if due <= now)
    ended = [message for message in model.in_unack() if message.until <= now]
    unended = [message for message in model.in_unack() if message.until > now]
    assert counts._replace(meta={}) == CountsReply(
        now=now,
        next_due=min((due for due in dues if due > now), default=-1),
        oldest_due=min([*overdue[:1], *[model.messages[id].due for id in offered]], default=-1),
        next_deadline=model.next_deadline(),
        pending=len(model.ids("pending")) - len(overdue),
        ready=len(overdue) + ready,
        active=len(model.ids("leased")),
        backoff=len(model.ids("backoff")),
        retry=len(model.retry),
        garbage=len(model.ids("garbage")),
        dead=len(model.dead),
        messages=len(model.messages),
        overdue=len(overdue) + ready + len(model.retry) + len(ended),
        successors=len(model.successors),
        completed=len(model.completed),
        throttled=len(model.ids("throttled")),
        workers=0,
        heard=0,
        held=max(len(unended) - len(model.ids("backoff")), 0),
        meta={},
    )
    totals = {name: int(number) for name, number in counts.meta.items() if name not in _SETTINGS}
    marks = {name: totals.pop(name, 0) for name in _MARKS}
    assert bool(totals.pop("events_lost", 0)) == any(not entry.kind for entry in scan.events)
    assert marks == {
        "schema": (4 if model.schema else 3) if model.is_new else model.schema,
        "priority_step": model.step,
        "unique": int(model.own),
        "stopping": model.stops,
        "token": model.token,
        "stale_ready": len(scan.ready) - len(model.ready),
        "stale_retry": len(scan.retry) - len(model.retry),
        "backoffs": counts.backoff,
    }
    assert {name: number for name, number in totals.items() if number} == {**+model.totals}


def check_log(scan: Scan, fold: Fold, model: Model, now: int) -> None:
    """Compare what the event log tells with the model; it does not tell which of the dead were redriven."""
    assert {entry.at for entry in scan.events} <= {now}
    for entry in scan.events:
        fold.take(expand(entry))
    lives = {m.id: Life(m.state, m.due, m.left, m.attempts, m.token) for m in model.messages.values()}
    for id, life in lives.items():
        if model.messages[id].stopping:  # that it has stopped is not told before it is collected
            life.state = "leased"
    for id in lives.keys() & fold.lives.keys():
        if fold.lives[id].state == "released":
            assert lives[id].state in {"ready", "ranked", "throttled", "backoff"}
            lives[id].state = "released"
        elif lives[id].state in {"ranked", "throttled"}:  # which the log does not tell
            assert fold.lives[id].state in {"ready", "retry"}
            lives[id].state = fold.lives[id].state
    assert fold.lives == lives
    assert {entry: fold.dead[entry] for entry in model.dead} == {
        entry: Death(death.at, m.due, m.attempts, first_line(death.reason), first_line(death.error))
        for entry, death in model.dead.items()
        for m in [death.message]
    }


def record(m: Message) -> bytes:
    return f"{m.state} {m.due} {m.attempts} {m.first} {m.token} {m.holder}{' *' if m.stopping else ''}".encode()


def tombstone(death: Dead) -> bytes:
    m, reason, error = death.message, death.reason.encode(), death.error.encode()
    line = f"{m.attempts} {m.retries} {m.due} {death.at} {len(reason)} {len(error)} {len(m.headers)}"
    line += f" {len(m.attributes)}\n" if m.attributes else "\n"
    return line.encode() + reason + error + m.headers + m.attributes + m.payload


def waiting_text(one: Successor) -> bytes:
    m = one.message
    line = f"{one.due} {m.retries} {len(m.headers)} {len(m.attributes)}\n"
    return line.encode() + m.headers + m.attributes + m.payload


def tokens_by_id(dead: dict[str, Dead]) -> dict[str, bytes]:
    tokens: dict[str, list[str]] = {}
    for death in dead.values():
        tokens.setdefault(death.message.id, []).append(str(death.message.token))
    return {id: " ".join(numbers).encode() for id, numbers in tokens.items()}


def _record_of_run(model: Model, run: str) -> bytes:
    counts = " ".join(str(sum(model.runs[run][one] for one in ones)) for ones in ("1", "0", "26", "3", "5"))
    return f"writing {model.begun[run]} 0 -1 {counts} 0".encode()
