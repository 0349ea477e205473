"""`delayq migrate --from celery` and `--from rq`: what moves, what stays, and what an interruption leaves.

The entries are written as Celery 5.7 with kombu 5.7 and rq 3.0 write them.
"""

from __future__ import annotations

import base64
import json
import pickle
import zlib
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
import redis

from delayq import DelayQueue
from delayq.errors import ConfigurationError
from delayq.migrate import LeasedError, migrate_from
from delayq.migrate.migration import WhyLeft

NOW = datetime.now(UTC).replace(microsecond=0)
SOON = NOW + timedelta(hours=1)
NONE = {"callbacks": None, "errbacks": None, "chain": None, "chord": None}


@pytest.fixture
def client(redis_url):
    with redis.Redis.from_url(redis_url) as made:
        yield made


@pytest.fixture
def queue(redis_url):
    with DelayQueue("moved", url=redis_url) as made:
        yield made


def celery_message(
    *args: Any,
    id: str = "",
    embedded: Any = None,
    priority: int = 0,
    content: str = "application/json",
    kwargs: Any = None,
    routing_key: str = "celery",
    body: str = "",
    **headers: Any,
) -> str:
    """Return a task as kombu stores it."""
    id = id or str(uuid4())
    text = json.dumps([args, kwargs or {}, {**NONE, **(embedded or {})}]).encode()
    return json.dumps(
        {
            "body": body or base64.b64encode(text).decode(),
            "content-encoding": "utf-8",
            "content-type": content,
            "headers": {"lang": "py", "task": "tasks.add", "id": id, "eta": None, "expires": None, "retries": 0}
            | {"timelimit": [None, None], **headers},
            "properties": {
                "correlation_id": id,
                "delivery_mode": 2,
                "delivery_info": {"exchange": "", "routing_key": routing_key},
                "priority": priority,
                "body_encoding": "base64",
                "delivery_tag": str(uuid4()),
            },
        }
    )


def taken(client: redis.Redis, message: str, routing_key: str = "celery") -> str:
    """Put a task where a worker of Celery keeps what it has taken."""
    tag = json.loads(message)["properties"]["delivery_tag"]
    client.hset("unacked", tag, json.dumps([json.loads(message), "", routing_key]))
    client.zadd("unacked_index", {tag: NOW.timestamp()})
    return tag


def job(client: redis.Redis, id: str, data: bytes, **fields: Any) -> str:
    """Store a job as rq does."""
    client.hset(f"rq:job:{id}", mapping={"data": data, "origin": "mails", "status": "queued", "timeout": 180} | fields)
    return id


def call(name: str, *args: Any, instance: Any = None, **kwargs: Any) -> bytes:
    """Return the data of a job."""
    return zlib.compress(json.dumps([name, instance, args, kwargs]).encode())


def move(library: str, name: str, redis_url: str, **options: Any) -> Any:
    parameters = {"tasks.add": ["one", "two"]}
    return migrate_from(library, name, "moved", url=redis_url, **{"parameters": parameters, **options})


def arrived(queue: DelayQueue[Any]) -> dict[str, Any]:
    found = [*queue.list("pending").messages, *queue.list("ready").messages]
    return {one.id: (one.name, one.payload) for one in found}


# Celery


def test_tasks_of_celery_move_with_their_ids_times_and_arguments(client, queue, redis_url):
    ids = [str(uuid4()) for _ in range(3)]
    client.lpush("celery", celery_message(1, kwargs={"two": 2}, id=ids[0]), celery_message(3, 4, id=ids[1]))
    urgent = {"eta": SOON.isoformat(), "expires": (SOON + timedelta(hours=1)).isoformat(), "timelimit": [60, None]}
    client.lpush("celery\x06\x163", celery_message(kwargs={"one": 5}, id=ids[2], priority=3, **urgent))
    result = move("celery", "celery", redis_url)
    assert (result.complete, result.moved) == (True, {"priority 0": 2, "priority 3": 1})
    add = "tasks.add"
    expected = {ids[0]: (add, {"one": 1, "two": 2}), ids[1]: (add, {"one": 3, "two": 4}), ids[2]: (add, {"one": 5})}
    assert arrived(queue) == expected
    later = queue.get(ids[2])
    assert (later.due, later.expires, later.priority, later.timeout) == (SOON, SOON + timedelta(hours=1), -3, 60)
    assert client.keys("celery*") == []


def test_tasks_held_for_their_eta_move_once_workers_are_stopped(client, queue, redis_url):
    id = str(uuid4())
    taken(client, celery_message(1, id=id, eta=SOON.isoformat()))
    other = taken(client, celery_message(2, routing_key="other"), "other")
    with pytest.raises(LeasedError, match="have taken 1 tasks of celery"):
        move("celery", "celery", redis_url)
    assert arrived(queue) == {}
    result = move("celery", "celery", redis_url, take_leased=True)
    assert (result.complete, result.moved) == (True, {"unacked": 1})
    assert queue.get(id).due == SOON
    assert [*client.hgetall("unacked")] == client.zrange("unacked_index", 0, -1) == [other.encode()]


CELERY_STAYS = [
    (celery_message(1, content="application/x-python-serialize", body="gASVBA=="), WhyLeft.NOT_JSON),
    (celery_message(1, 2, 3), WhyLeft.POSITIONAL),
    (celery_message(1, task="tasks.unknown"), WhyLeft.POSITIONAL),
    (celery_message(1, embedded={"chain": [{"task": "tasks.add"}]}), WhyLeft.WORKFLOW),
    (celery_message(1, expires=(NOW - timedelta(hours=1)).isoformat()), WhyLeft.EXPIRED),
    (celery_message(1, id="no id"), WhyLeft.BAD_ID),
    (celery_message(1, task="no name"), WhyLeft.POSITIONAL),
    (celery_message(kwargs={"one": 1}, task="no name"), WhyLeft.REFUSED),
    (celery_message(1, compression="application/x-gzip"), WhyLeft.UNREADABLE),
    (celery_message(1, body="no base64!"), WhyLeft.UNREADABLE),
    (celery_message(1, eta="tomorrow"), WhyLeft.UNREADABLE),
    ("no JSON", WhyLeft.UNREADABLE),
    ("[]", WhyLeft.UNREADABLE),
    (json.dumps({"body": "", "headers": {"id": 7}, "properties": {}}), WhyLeft.UNREADABLE),
]


@pytest.mark.parametrize(
    ("message", "why"), CELERY_STAYS, ids=[f"{why} {n}" for n, (_, why) in enumerate(CELERY_STAYS)]
)
def test_what_cannot_move_from_celery_stays_and_is_listed(client, queue, redis_url, message, why):
    good = str(uuid4())
    client.lpush("celery", message, celery_message(kwargs={"one": 1}, id=good))
    result = move("celery", "celery", redis_url)
    assert [one.why for one in result.listed] == [why]
    assert result.complete is (why is WhyLeft.EXPIRED)
    assert client.lrange("celery", 0, -1) == [message.encode()]
    assert [*arrived(queue)] == [good]


def test_global_prefix_of_celery(client, queue, redis_url):
    client.lpush("shop:celery", celery_message(1))
    assert move("celery", "celery", redis_url).found.total() == 0
    assert move("celery", "celery", redis_url, from_prefix="shop:").moved.total() == 1


# rq


def test_jobs_of_rq_and_its_schedulers_move(client, queue, redis_url):
    client.rpush("rq:queue:mails", job(client, "a-1", call("tasks.add", 1, two=2), retries_left=5, timeout=60))
    client.zadd("rq:scheduled:mails", {job(client, "a-2", call("tasks.add", one=3)): SOON.timestamp()})
    scheduler = {job(client, "a-3", call("tasks.add", one=4)): SOON.timestamp()}
    scheduler[job(client, "b-1", call("tasks.add", one=5), origin="others")] = SOON.timestamp()
    client.zadd("rq:scheduler:scheduled_jobs", scheduler)
    result = move("rq", "mails", redis_url)
    assert (result.complete, result.moved) == (True, {"queued": 1, "scheduled": 1, "rq-scheduler": 1})
    add = "tasks.add"
    assert arrived(queue) == {"a-1": (add, {"one": 1, "two": 2}), "a-2": (add, {"one": 3}), "a-3": (add, {"one": 4})}
    first = queue.get("a-1")
    assert (first.retries_left, first.timeout) == (5, 60)
    assert queue.get("a-2").due == queue.get("a-3").due == SOON
    assert sorted(client.keys("rq:*")) == [b"rq:job:b-1", b"rq:scheduler:scheduled_jobs"]


RQ_STAYS = [
    (zlib.compress(pickle.dumps(("tasks.add", None, (1,), {}))), {}, WhyLeft.NOT_JSON),
    (call("tasks.add", 1, 2, 3), {}, WhyLeft.POSITIONAL),
    (call("tasks.add", one=1, instance={"a": 1}), {}, WhyLeft.UNREADABLE),
    (zlib.compress(b"[1]"), {}, WhyLeft.UNREADABLE),
    (call("tasks.add", one=1), {"meta": json.dumps({"interval": 60})}, WhyLeft.PERIODIC),
    (call("tasks.add", one=1), {"meta": pickle.dumps({})}, WhyLeft.NOT_JSON),
    (call("tasks.add", one=1), {"timeout": "soon"}, WhyLeft.UNREADABLE),
    (call("no name", one=1), {}, WhyLeft.REFUSED),
]


@pytest.mark.parametrize("stays", RQ_STAYS, ids=[f"{why} {n}" for n, (_, _, why) in enumerate(RQ_STAYS)])
def test_what_cannot_move_from_rq_stays_and_is_listed(client, queue, redis_url, stays):
    data, fields, why = stays
    client.rpush("rq:queue:mails", job(client, "bad", data, **fields), job(client, "good", call("tasks.add", one=1)))
    result = move("rq", "mails", redis_url)
    assert [(one.id, one.why) for one in result.listed] == [("bad", why)]
    assert (client.lrange("rq:queue:mails", 0, -1), client.hget("rq:job:bad", "data")) == ([b"bad"], data)
    assert [*arrived(queue)] == ["good"]


def test_job_that_others_depend_on_or_that_has_no_data_stays(client, redis_url):
    client.rpush("rq:queue:mails", "gone", job(client, "first", call("tasks.add", one=1)))
    client.sadd("rq:job:first:dependents", "second")
    result = move("rq", "mails", redis_url)
    assert [one.why for one in result.listed] == [WhyLeft.NO_PAYLOAD, WhyLeft.WORKFLOW]


def test_nothing_moves_while_workers_of_rq_run_jobs(client, queue, redis_url):
    client.zadd("rq:wip:mails", {"running:1": NOW.timestamp()})
    client.rpush("rq:queue:mails", job(client, "a", call("tasks.add", one=1)))
    with pytest.raises(LeasedError, match="are running 1 jobs of mails"):
        move("rq", "mails", redis_url)
    assert move("rq", "mails", redis_url, dry_run=True).moved.total() == 1
    assert arrived(queue) == {}


# Both


@pytest.mark.parametrize("library", ["celery", "rq"])
def test_many_entries_move_in_their_order_around_those_that_stay(client, queue, redis_url, library):
    ids = [str(uuid4()) for _ in range(1203)]
    for n, id in enumerate(ids):
        args = (1, 2, 3) if n % 3 == 0 else (1,)
        if library == "celery":
            client.lpush("source", celery_message(*args, id=id))
        else:
            client.rpush("rq:queue:source", job(client, id, call("tasks.add", *args)))
    dry = move(library, "source", redis_url, dry_run=True)
    result = move(library, "source", redis_url)
    assert (dry.moved.total(), dry.left) == (result.moved.total(), result.left) == (802, result.left)
    assert queue.counts().living == 802
    assert [one.id for one in result.listed] == ids[::3]


@pytest.mark.parametrize("library", ["celery", "rq"])
@pytest.mark.parametrize("settled", [False, True], ids=["waiting", "settled"])
def test_interrupted_migration_goes_on_and_doubles_nothing(client, queue, redis_url, library, settled):
    id = str(uuid4())
    fill = {"celery": lambda: client.lpush("source", celery_message(1, id=id))}
    fill["rq"] = lambda: client.rpush("rq:queue:source", job(client, id, call("tasks.add", 1)))
    fill[library]()
    move(library, "source", redis_url)
    seen: list[str] = []
    queue.task(name="tasks.add")(lambda one: seen.append(one))
    if settled:
        queue.run(burst=True)
    fill[library]()  # as if it was sent and not removed
    assert move(library, "source", redis_url).complete
    queue.run(burst=True)
    assert seen == [1]


def test_id_of_another_message_stays(client, queue, redis_url):
    id = str(uuid4())
    queue.send_delay_msg("other", "1h", id=id)
    client.lpush("celery", celery_message(1, id=id))
    assert [one.why for one in move("celery", "celery", redis_url).listed] == [WhyLeft.FOREIGN_ID]
    assert queue.get(id).payload == "other"


WRONG = [("arq", "q", {}), ("celery", "", {}), ("celery", 7, {}), ("rq", "q", {"from_prefix": "x"})]
WRONG += [("rq", "q", {"bad": 1})]


@pytest.mark.parametrize(("library", "name", "options"), WRONG)
def test_wrong_arguments_are_refused(redis_url, library, name, options):
    with pytest.raises(ConfigurationError):
        move(library, name, redis_url, **options)


def test_command(cli, client, redis_url):
    client.lpush("celery", celery_message(1), celery_message(1, 2, 3))
    ended = cli("migrate", "celery", "--from", "celery", "--to", "moved", "--parameters", "tasks.add=one,two")
    assert ended.code == 1
    assert "priority 0" in ended.out
    assert "moved 1 message of celery to moved; left 1: 1 unnamed arguments" in ended.out


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--from", "celery", "--with-garbage"], "--with-garbage is for the Go library"),
        (["--from", "rq", "--take-leased"], "--take-leased is for Go and Celery"),
        (["--parameters", "a=b"], "--parameters is for Celery and rq"),
        (["--from", "rq", "--parameters", "tasks.add"], "parameters are NAME=a,b"),
        (["--from", "rq", "--parameters", "tasks.add=1,2"], "parameters are NAME=a,b"),
        (["--from", "rq"], "no queue of rq named 'nothing'"),
    ],
)
def test_wrong_commands_are_one_line(cli, options, told):
    ended = cli("migrate", "nothing", *options)
    assert ended.code != 0
    assert told in ended.err
    assert "Traceback" not in ended.err
