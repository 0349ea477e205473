"""The audit finds whatever is changed in plan, log, ledger or queue of a real run, and nothing while nothing is.

One archive serves all: each change is made to a message of its own, and one audit must find every one of them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pytest
import redis

from delayq import DelayQueue, Reject, Retry
from delayq.archive import DuckDB, archive, open_archive
from delayq.archive.sql_engine import rows_of
from delayq.audit.audit import audit
from delayq.broker.keys import Keys
from delayq.bulk import load, read_messages
from delayq.bulk.files.schemas import EVENTS, PLAN, SNAPSHOT
from delayq.spark import audit as audit_on_spark
from delayq.testing.redis_server import find_program
from tests.support.event_tables import table_of
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.timeout(400)]  # one run serves all

DAY, HOUR, MINUTE = timedelta(days=1), timedelta(hours=1), timedelta(minutes=1)
KEYS = Keys.of("delayq", "reminders")

Row = dict[str, Any]
Events = list[Row]


class Tamper(NamedTuple):
    """A life of a message, what is changed in it, and the finding that it must lead to."""

    life: str
    """waiting, acked, retried, rejected, spent, redriven, purged."""
    change: Callable[[Any], Any]
    finding: str


# Changes of the log: from the events of one message to others


def drop(*kinds: str, first: bool = False) -> Callable[[Events], Events]:
    def change(events: Events) -> Events:
        gone = [event for event in events if event["kind"] in kinds]
        gone = [next(event for event in gone if event["kind"] == kind) for kind in kinds] if first else gone
        assert gone
        return [event for event in events if event not in gone]

    return change


def double(kind: str, later: int = 0) -> Callable[[Events], Events]:
    def change(events: Events) -> Events:
        copied = of(events, kind)
        at = max(event["event_at"] for event in events) if later else copied["event_at"]
        index = 10_000 if later else copied["entry_index"]
        return [
            *events,
            copied
            | {
                "log_offset": events[-1]["log_offset"] if later else copied["log_offset"],
                "entry_index": index,
                "event_at": at,
            },
        ]

    return change


def edit(kind: str, /, **columns: Any) -> Callable[[Events], Events]:
    def change(events: Events) -> Events:
        edited = of(events, kind)
        new = {name: value(edited[name]) if callable(value) else value for name, value in columns.items()}
        return [event | new if event is edited else event for event in events]

    return change


def swap(events: Events) -> Events:
    """Exchange the places of the delivery and the ack."""
    places = {"delivered": of(events, "acked"), "acked": of(events, "delivered")}
    moved = {
        kind: {name: place[name] for name in ("log_offset", "entry_index", "event_at")}
        for kind, place in places.items()
    }
    return [event | moved.get(event["kind"], {}) for event in events]


def early(events: Events) -> Events:
    """Move the delivery to before its due time, however late it was."""
    delivered = of(events, "delivered")
    return edit("delivered", event_at=lambda _: delivered["due"] - MINUTE)(events)


def of(events: Events, kind: str) -> Row:
    return next(event for event in events if event["kind"] == kind)


def moved(by: timedelta) -> Callable[[datetime], datetime]:
    return lambda time: time + by


IN_LOG = {
    "sent dropped": Tamper("acked", drop("sent"), "event lost"),
    "promoted dropped": Tamper("acked", drop("promoted"), "event lost"),
    "delivered dropped": Tamper("acked", drop("delivered"), "event lost"),
    "acked dropped": Tamper("acked", drop("acked"), "missing"),
    "nacked dropped": Tamper("retried", drop("nacked"), "event lost"),
    "retried dropped": Tamper("retried", drop("retried"), "event lost"),
    "attempt dropped": Tamper("retried", drop("delivered", "nacked", "retried", first=True), "event changed"),
    "rejection dropped": Tamper("rejected", drop("dead"), "dead letter"),
    "death dropped": Tamper("spent", drop("dead"), "dead letter"),
    "redrive dropped": Tamper("redriven", drop("redriven"), "event lost"),
    "purge of a death dropped": Tamper("purged", drop("dead_purged"), "dead letter"),
    "all dropped": Tamper("acked", lambda _: [], "missing"),
    "all but the send dropped": Tamper("acked", drop("promoted", "delivered", "acked"), "missing"),
    "sent doubled": Tamper("acked", double("sent"), "event doubled"),
    "promoted doubled": Tamper("acked", double("promoted"), "event doubled"),
    "delivered doubled": Tamper("acked", double("delivered"), "event doubled"),
    "acked doubled": Tamper("acked", double("acked"), "event doubled"),
    "nacked doubled": Tamper("retried", double("nacked"), "event doubled"),
    "retried doubled": Tamper("retried", double("retried"), "event doubled"),
    "dead doubled": Tamper("rejected", double("dead"), "event doubled"),
    "redriven doubled": Tamper("redriven", double("redriven"), "event doubled"),
    "purge of a death doubled": Tamper("purged", double("dead_purged"), "dead letter"),
    "sent doubled later": Tamper("acked", double("sent", later=1), "sent again"),
    "delivered doubled later": Tamper("acked", double("delivered", later=1), "duplicate"),
    "acked doubled later": Tamper("acked", double("acked", later=1), "duplicate"),
    "nacked doubled later": Tamper("retried", double("nacked", later=1), "event lost"),
    "promoted doubled later": Tamper("acked", double("promoted", later=1), "event lost"),
    "dead doubled later": Tamper("rejected", double("dead", later=1), "event lost"),
    "delivery a day later": Tamper("acked", edit("delivered", event_at=moved(DAY)), "wrong order"),
    "ack a day later": Tamper("acked", edit("acked", event_at=moved(DAY)), "wrong order"),
    "ack a day earlier": Tamper("acked", edit("acked", event_at=moved(-DAY)), "wrong order"),
    "failure an hour earlier": Tamper("retried", edit("nacked", event_at=moved(-HOUR)), "wrong order"),
    "promotion a minute later": Tamper("acked", edit("promoted", event_at=moved(MINUTE)), "wrong order"),
    "delivery before it was due": Tamper("acked", early, "early"),
    "due of the send": Tamper("acked", edit("sent", due=moved(HOUR)), "early"),
    "due of the promotion": Tamper("acked", edit("promoted", due=moved(-HOUR)), "wrong time"),
    "due of the delivery": Tamper("acked", edit("delivered", due=moved(-HOUR)), "wrong time"),
    "due of the death": Tamper("rejected", edit("dead", due=moved(HOUR)), "wrong time"),
    "attempt of a delivery": Tamper("acked", edit("delivered", attempt=2), "event changed"),
    "token of a delivery": Tamper("acked", edit("delivered", token=lambda token: token - 1), "event changed"),
    "token of an ack": Tamper("acked", edit("acked", token=lambda token: token - 5), "event changed"),
    "token of a death": Tamper("rejected", edit("dead", token=lambda token: token + 1), "event changed"),
    "retries of a delivery": Tamper("acked", edit("delivered", retries_left=1), "event changed"),
    "retries of a failure": Tamper("retried", edit("nacked", retries_left=0), "event changed"),
    "a failure that was the last": Tamper("retried", edit("nacked", retries_left=None), "event changed"),
    "delivery as cancel": Tamper("acked", edit("delivered", kind="cancelled"), "event lost"),
    "ack as failure": Tamper("acked", edit("acked", kind="nacked", retries_left=2), "missing"),
    "rejection as spent retries": Tamper("rejected", edit("dead", reason="retries spent"), "event lost"),
    "ack before the delivery": Tamper("acked", swap, "event lost"),
}

# Changes of the queue in Redis


def in_dead_letter(name: str, change: Callable[[redis.Redis, str], object]) -> Callable[[redis.Redis], object]:
    def apply(client: redis.Redis) -> object:
        (entry,) = (
            entry.decode() for entry in client.zrange(KEYS.dead, 0, -1) if entry.startswith(name.encode() + b":")
        )
        return change(client, entry)

    return apply


def deleted(client: redis.Redis, id: str) -> None:
    client.zrem(KEYS.pending, id)
    client.hdel(KEYS.messages, id)
    client.hdel(KEYS.retries, id)


def planted(client: redis.Redis, id: str) -> None:
    client.zadd(KEYS.pending, {id: 4e12})
    client.hset(KEYS.messages, id, "{}")
    client.hset(KEYS.retries, id, 3)


def without_entry(client: redis.Redis, entry: str) -> None:
    client.zrem(KEYS.dead, entry)
    client.hdel(KEYS.dead_messages, entry)
    client.hdel(KEYS.dead_ids, entry.rpartition(":")[0])


def copied_entry(client: redis.Redis, entry: str) -> None:
    copy = entry + "1"
    client.zadd(KEYS.dead, {copy: client.zscore(KEYS.dead, entry)})
    client.hset(KEYS.dead_messages, copy, client.hget(KEYS.dead_messages, entry))


def changed_entry(client: redis.Redis, entry: str) -> None:
    stored = client.hget(KEYS.dead_messages, entry)
    client.hset(KEYS.dead_messages, entry, stored[:-2] + b"7}")


IN_REDIS = {
    "due.later": Tamper("waiting", lambda client: client.zincrby(KEYS.pending, 60_000, "due.later"), "wrong time"),
    "due.earlier": Tamper("waiting", lambda client: client.zincrby(KEYS.pending, -1, "due.earlier"), "wrong time"),
    "payload": Tamper("waiting", lambda client: client.hset(KEYS.messages, "payload", '{"n":0}'), "wrong payload"),
    "retries": Tamper("waiting", lambda client: client.hset(KEYS.retries, "retries", 9), "wrong retries"),
    "deleted": Tamper("waiting", lambda client: deleted(client, "deleted"), "missing"),
    "resurrected": Tamper("acked", lambda client: planted(client, "resurrected"), "resurrected"),
    "planted": Tamper("", lambda client: planted(client, "planted"), "event lost"),
    "death.deleted": Tamper("rejected", in_dead_letter("death.deleted", without_entry), "dead letter"),
    "death.forgotten": Tamper(
        "spent", in_dead_letter("death.forgotten", lambda client, entry: client.zrem(KEYS.dead, entry)), "dead letter"
    ),
    "death.copied": Tamper("rejected", in_dead_letter("death.copied", copied_entry), "dead letter"),
    "death.payload": Tamper("rejected", in_dead_letter("death.payload", changed_entry), "wrong payload"),
}

# Changes of the plan

IN_PLAN = {
    "row removed": Tamper("acked", lambda _: None, "unplanned"),
    "row added": Tamper("", lambda row: row, "missing"),
    "due of the row": Tamper("acked", lambda row: row | {"due": row["due"] + HOUR}, "wrong time"),
    "payload of the row": Tamper("waiting", lambda row: row | {"payload": "{}"}, "wrong payload"),
    "action of the row": Tamper("waiting", lambda row: row | {"action": "cancel"}, "not cancelled"),
}

ALL = IN_LOG | IN_REDIS | IN_PLAN
HONEST = {"honest-" + life: life for life in ("waiting", "acked", "retried", "rejected", "spent", "redriven", "purged")}
LIVES = HONEST | {name.replace(" ", "-"): tamper.life for name, tamper in ALL.items()}


class Story(NamedTuple):
    """A run: plan, events, and snapshots before and after Redis was changed."""

    plan: list[Row]
    events: Events
    honest: list[tuple[Any, ...]]
    changed: list[tuple[Any, ...]]
    runs: list[Any]
    at: datetime


@pytest.fixture(scope="module")
def story(tmp_path_factory) -> Story:
    """Plan, load, deliver and archive the messages; then change what is in Redis."""
    if not find_program():
        pytest.skip("needs redis-server")
    folder = str(tmp_path_factory.mktemp("tampers") / "archive")
    with (
        RedisServer() as server,
        DelayQueue("reminders", url=(url := server.url), events=True, events_max_len=100_000, codec="bytes") as queue,
        redis.Redis.from_url(url) as client,
    ):
        queue.open()
        due = datetime.now(UTC).replace(microsecond=0)
        plan = [
            {
                "id": id,
                "source": id,
                "rule": "r",
                "occurrence": 0,
                "due": due + 10 * DAY if life == "waiting" else due,
                "payload": f'{{"n":{n}}}',
                "revision": 0,
                "action": "new",
                "retries": 0 if life == "spent" else 3,
            }
            for n, (id, life) in enumerate(LIVES.items())
        ]
        sent = [tuple(row.values()) for row in plan if LIVES[row["id"]]]
        loaded = load(table_of(sent, PLAN), queue.name, url=url, run="r1")
        assert loaded.new == len(sent)
        consume(queue)
        at = queue.stats().at + timedelta(milliseconds=1)
        honest = snapshot(url)
        runs = queue.runs()
        for tamper in IN_REDIS.values():
            tamper.change(client)
        changed = snapshot(url)
        archive(queue.name, folder, url=url)
        engine = DuckDB()
        events = rows_of(engine, open_archive(folder).table(engine))
    events.sort(key=lambda event: (event["log_offset"], event["entry_index"]))
    return Story(plan, events, honest, changed, runs, at)


def consume(queue: DelayQueue[bytes]) -> None:
    """Let every message that is due live as its id tells."""
    redriven = set[str]()

    @queue.callback
    def deliver(message):
        life = LIVES[message.id]
        if life == "retried" and message.attempt == 1:
            raise Retry(delay=0)
        if life in ("rejected", "purged") or (life == "redriven" and message.id not in redriven):
            raise Reject("no such address")
        if life == "spent":
            raise Retry(delay=0)

    def waiting() -> int:
        return queue.stats().counts.living - list(LIVES.values()).count("waiting")

    queue.start_consume()
    wait_until(lambda: not waiting(), timeout=60)
    for id, life in LIVES.items():
        if life == "redriven":
            redriven.add(id)
            queue.dead.redrive(id)
        elif life == "purged":
            queue.dead.purge(id)
    wait_until(lambda: not waiting(), timeout=60)
    queue.stop_consume()


def snapshot(url: str) -> list[tuple[Any, ...]]:
    messages = read_messages("reminders", url=url, include_payload=True)
    return [tuple(row.values()) for row in messages.read_all().to_pylist()]


@pytest.fixture(scope="module", params=["duckdb", pytest.param("spark", marks=pytest.mark.spark)])
def judge(request, story: Story):
    """An audit of the story in one of the engines."""

    def on_spark(plan, events, places, runs):
        spark = request.getfixturevalue("spark")
        tables = ((plan, PLAN), (events, EVENTS), (places, SNAPSHOT))
        return audit_on_spark(*(spark.createDataFrame(*one) for one in tables), runs, at=story.at)

    def in_duckdb(plan, events, places, runs):
        engine = DuckDB()
        tables = ((plan, PLAN), (events, EVENTS), (places, SNAPSHOT))
        plan, events, places = (engine.table(table_of(*one)) for one in tables)
        return audit(engine, [plan], events, places, runs, at=story.at)

    def made(plan: list[Row], events: Events, places: list[tuple[Any, ...]], *, runs: list[Any]):
        rows = [[tuple(row.values()) for row in table] for table in (plan, events)]
        return (on_spark if request.param == "spark" else in_duckdb)(*rows, places, runs)

    return made


def test_run_adds_up_while_nothing_is_changed(judge, story):
    plan = [row for row in story.plan if LIVES[row["id"]]]
    result = judge(plan, story.events, story.honest, runs=story.runs)
    assert result.examples == []
    assert result.adds_up
    kinds = {event["kind"] for event in story.events}
    assert kinds >= {"sent", "promoted", "delivered", "acked", "nacked", "retried", "dead", "redriven", "dead_purged"}


@pytest.fixture(scope="module")
def findings(judge, story) -> dict[str, list[str]]:
    """One audit of all changes: the findings of each id."""
    plan = [IN_PLAN.get(row["source"].replace("-", " "), Tamper("", dict, "")).change(row) for row in story.plan]
    plan = [row for row in plan if row and row["id"] != "planted"]
    of_id: dict[str | None, Events] = {}
    for event in story.events:
        of_id.setdefault(event["id"], []).append(event)
    events = [
        changed
        for id, own in of_id.items()
        for changed in IN_LOG.get((id or "").replace("-", " "), Tamper("", list, "")).change(own)
    ]
    runs = [dataclasses.replace(run, new=run.new + 7) for run in story.runs]
    result = judge(plan, events, story.changed, runs=runs)
    found: dict[str, list[str]] = {}
    for one in result.examples:
        found.setdefault(one.id, []).append(one.what)
    return found


@pytest.mark.table("name", ALL)
def test_audit_finds_each_change(findings, name):
    assert ALL[name].finding in findings.get(name.replace(" ", "-"), [])


def test_audit_finds_a_changed_ledger_and_nothing_on_what_was_not_changed(findings):
    assert findings["r1"] == ["run"]
    assert {id: whats for id, whats in findings.items() if id in HONEST} == {}
