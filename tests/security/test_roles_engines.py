"""The roles of streams, work queues and relays: each may do exactly what the tables of the handbook say."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import shlex
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import redis

import delayq
from delayq import AsyncDelayQueue, ConfigurationError, DelayQueue, NewMessage, ServerError
from delayq.broker.engine import STREAMS as STREAMS_OFFER
from delayq.broker.requests import Failure, Receipt, Rejection, Release
from delayq.broker.scripts import names, script
from delayq.broker.shared_calls import preload
from delayq.broker.transport.executor import Executor
from delayq.cli.admin.acl import ROLES, Role, rules
from delayq.options import read_settings
from delayq.streams import AsyncRelay, Relay, StreamDeadLetter, StreamQueue
from delayq.workqueue import Item, WorkQueue
from tests.lua.tables import TABLES
from tests.security.test_roles import ALL_NEED, url_of
from tests.streams.conftest import AsyncioStreams, BlockingStreams
from tests.support.redis_server import RedisServer, empty
from tests.support.scripts import observe, plant
from tests.support.stored import all_but_slots
from tests.support.waiting import wait_until
from tests.workqueue.conftest import Asyncio as AsyncioWork
from tests.workqueue.conftest import Blocking as BlockingWork

STREAM, JOBS = "tasks", "jobs"
READ_ONLY = {"streams/counts", "streams/find", "streams/get", "streams/page"}
SCRIPTS = {
    ("streams", Role.PRODUCER): {"streams/send"},
    ("streams", Role.CONSUMER): READ_ONLY
    | {f"streams/{name}" for name in ("claim", "ack", "nack", "reject", "release", "extend", "look", "prune")},
    ("streams", Role.INSPECTOR): READ_ONLY,
    ("streams", Role.ADMIN): set(names("streams")) - {"streams/relay"},
    ("workqueue", Role.PRODUCER): {"workqueue/add"},
    ("workqueue", Role.CONSUMER): {
        f"workqueue/{name}" for name in ("claim", "complete", "lease_suspects", "restore", "counts", "view")
    },
    ("workqueue", Role.INSPECTOR): {"workqueue/counts", "workqueue/view"},
    ("workqueue", Role.ADMIN): set(names("workqueue")),
    ("delay", Role.RELAY): {
        *(
            "streams/relay",
            "unack_to_retry",
            "collect_garbage",
            "fire",
            "schedules_due",
            "wake",
            "presence",
            "keep_presence",
        ),
    },
    ("delay", Role.NOTIFIER): {"counts"},
}
"""The scripts that each role may run."""
LOOKS = {"exists", "xinfo|groups", "xrange"}
READS = {"get", "llen", "lrange"}
PLAIN = {
    ("streams", Role.PRODUCER): {"hsetnx", "hget", "xlen", "hincrby", "wait"},
    ("streams", Role.CONSUMER): {"hsetnx", "hget", "xlen", "xreadgroup"} | LOOKS,
    ("streams", Role.INSPECTOR): LOOKS,
    ("streams", Role.ADMIN): {"hsetnx", "hget", "xlen", "hincrby", "wait", "xreadgroup", "xrevrange", "script|load"}
    | LOOKS,
    ("workqueue", Role.PRODUCER): set(),
    ("workqueue", Role.CONSUMER): {"blmove", "mget", "scan"} | READS,
    ("workqueue", Role.INSPECTOR): READS,
    ("workqueue", Role.ADMIN): {"blmove", "mget", "scan", "eval", "script|load"} | READS,
    ("delay", Role.RELAY): {"hsetnx", "blpop", "lpush"},
    ("delay", Role.NOTIFIER): {"exists", "hget", "hset", "xrange", "xrevrange"},
}
"""Commands of each role besides scripts and the commands that all roles need."""
BY_HAND = {("workqueue", Role.CONSUMER, "workqueue/add")}
"""Scripts that a role may also run: a consumer can add items because it can restore them."""
RELAYS_TOO = {
    *("pending_to_ready", "ready_to_unack", "ack", "nack", "reject", "release", "extend"),
    *("schedule_put", "schedule_remove", "recount"),
    *("ack_some", "join", "complete", "report", "await_ends", "withdraw"),
}
"""Scripts of a delay queue that the rights of a relay cover, some in part, though it never runs them."""
REFUSED = "[Nn]o permissions to|can't run this command"
"""Error texts of Redis for a command of a client and for a command within a script."""
CONTAINERS = {"memory", "xinfo", "xgroup"}

READ_PARTS = {("delay", Role.NOTIFIER): {"events", "notifiers"}}
"""Parts that a role uses besides those of its scripts."""

each_role = pytest.mark.parametrize(("engine", "role"), SCRIPTS, ids=str)
roles = pytest.mark.parametrize("role", ROLES)


def queue_of(engine: str, role: Role | None = None) -> dict[str, Any]:
    """Return the arguments of `rules` for a queue."""
    if role is Role.NOTIFIER:
        return {"queue": "reminders"}
    return {
        "streams": {"engine": "streams", "queue": STREAM},
        "workqueue": {"engine": "workqueue", "queue": JOBS},
        "delay": {"queue": "reminders", "stream": STREAM},
    }[engine]


def user_of(engine: str, role: Role) -> str:
    return f"{engine}-{role}"


@pytest.fixture(scope="module")
def guarded() -> Iterator[RedisServer]:
    """A server with a user of each role of each engine, and with their scripts."""
    with RedisServer() as server:
        with server.client() as admin:
            for engine, role in SCRIPTS:
                rule = rules([role], **queue_of(engine, role))
                admin.execute_command("ACL", "SETUSER", user_of(engine, role), "on", ">secret", *rule)
            with StreamQueue(STREAM, redis=admin) as queue:
                assert queue.preload() == len(preload("streams"))
            for command in preload("workqueue"):
                admin.execute_command(*command.args)
        yield server


@pytest.fixture
def admin(guarded) -> Iterator[redis.Redis]:
    """A client that may do everything, on the emptied server that has the scripts."""
    with guarded.client() as client:
        empty(client)
        yield client


# The rules


def commands_of(name: str) -> set[str]:
    found = re.findall(r"redis\.p?call\('(\w+)'(?:, '(\w+)')?", script(name).text.decode())
    return {f"{one}|{two}".lower() if one.lower() in CONTAINERS else one.lower() for one, two in found}


def granted(engine: str, role: Role, sign: str) -> list[str]:
    found = rules([role], **queue_of(engine, role))
    return [rule.removeprefix(sign) for rule in found if rule.startswith(sign)]


@each_role
def test_role_has_only_the_commands_of_its_scripts(engine, role):
    needed = ALL_NEED - {"info", "time"} if engine == "workqueue" else ALL_NEED
    used = set().union(*map(commands_of, SCRIPTS[engine, role])) | PLAIN[engine, role] | needed
    assert sorted(granted(engine, role, "+")) == sorted(used)


@each_role
def test_role_has_only_the_keys_of_its_scripts(engine, role):
    parts = {part for name in SCRIPTS[engine, role] for part in script(name).parts}
    parts |= READ_PARTS.get((engine, role), set())
    if engine == "streams":
        wanted = {STREAM if part == "stream" else f"{{{STREAM}}}.{part}" for part in parts}
    elif engine == "delay":
        streams = {STREAM} if "stream" in parts else set()
        wanted = {*streams, *(f"delayq:{{reminders}}:{part}" for part in parts - {"stream"})}
    else:  # whose headers name the keys of ids apart
        text = " ".join(files("delayq.workqueue").joinpath("lua", f"{name.partition('/')[2]}.lua").read_text()
                        .partition("-- ARGV")[0] for name in SCRIPTS[engine, role])  # fmt: skip
        patterns = {"queue list": "queue", "processing list": "processing", "item string": "item:*"}
        patterns |= {"lease string": "lease:*"}
        wanted = {f"{JOBS}:{pattern}" for told, pattern in patterns.items() if told in text}
    assert sorted(granted(engine, role, "~")) == sorted(wanted)


@pytest.mark.parametrize("engine", ["streams", "workqueue"])
def test_admin_has_every_command_that_the_engine_uses(engine):
    used = set()
    for path in (Path(delayq.__file__).parent / engine).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Tuple) and node.elts and isinstance(node.elts[0], ast.Constant):
                words = [one.value for one in node.elts[:2] if isinstance(one, ast.Constant)]
                if isinstance(words[0], str) and re.fullmatch("[A-Z]{3,}", words[0]):
                    used.add(
                        "|".join(words).lower() if words[0].lower() in CONTAINERS | {"script"} else words[0].lower()
                    )
    embedded = {"blpop"}
    groups = {"group", "idle"}  # words within a command
    assert {"xreadgroup", "xrevrange"} <= used or {"evalsha", "blmove", "scan"} <= used
    assert used - embedded - groups <= set(granted(engine, Role.ADMIN, "+"))


@each_role
def test_no_role_has_unneeded_rights(engine, role, guarded, admin):
    own = {"streams": STREAM, "workqueue": f"{JOBS}:queue", "delay": "delayq:{reminders}:pending"}[engine]
    with redis.Redis.from_url(url_of(guarded, user_of(engine, role))) as client:
        lines = [
            *("KEYS *", "FLUSHALL", "FLUSHDB", "CONFIG GET *", "CONFIG SET maxmemory 1", "SCRIPT FLUSH", "SCRIPT KILL"),
            *("ACL LIST", "ACL SETUSER x", "SHUTDOWN", "MONITOR", "CLIENT LIST", "CLIENT KILL x", "SWAPDB 0 1"),
            *("PUBLISH a b", "GET foreign", "XLEN foreign", "LLEN foreign", "EXISTS foreign", f"RENAME {own} x"),
            *(f"XLEN {STREAM}2", f"XRANGE {{{STREAM}}}.foreign - +", f"LLEN {JOBS}2:queue", f"LLEN {JOBS}:other"),
        ]
        lines += [] if (engine, role) == ("workqueue", Role.ADMIN) else ["EVAL 'return 1' 0"]
        lines += [] if role is Role.ADMIN else ["SCRIPT LOAD 'return 1'"]
        lines += [] if engine == "workqueue" and role in (Role.CONSUMER, Role.ADMIN) else ["SCAN 0"]
        for line in lines:
            with pytest.raises(redis.exceptions.NoPermissionError):
                client.execute_command(*shlex.split(line))


@pytest.mark.parametrize("engine", ["streams", "workqueue"])
def test_inspector_has_no_write_commands(engine, admin):
    for command in granted(engine, Role.INSPECTOR, "+"):
        name = command if admin.info("server")["redis_version"] >= "7" else command.partition("|")[0]
        if name == "client":
            continue  # of which an older server does not tell the commands apart
        told = admin.execute_command("COMMAND", "INFO", name)
        flags = next(iter(told.values()))["flags"] if isinstance(told, dict) else told[0]["flags"]
        assert "write" not in {str(flag) for flag in flags}


# Scripts: each is executed, or refused before it has changed anything


def calls_of_streams(queue: StreamQueue[Any]) -> dict[str, Any]:
    """Return a call of each script on the scene, in the name of who holds the message that is leased."""
    calls = queue._calls
    object.__setattr__(calls, "consumer_id", lambda: queue.list("active").messages[0].consumer)
    entry, dead = queue.get("a").entry, queue.dead.list().messages[0].entry
    token = delayq.streams.calls.EntryToken(entry, 1, True).token
    return {
        "ack": calls.ack([Receipt("a", token)]),
        "claim": calls.ready_to_unack(5, lease=1000, consumer_id="worker"),
        "counts": calls.counts(),
        "dead_purge": calls.dead_purge([dead]),
        "extend": calls.extend([Receipt("a", token)], lease=1000),
        "find": calls.find("a", "stream", limit=10, after=""),
        "get": calls.get(entry, "stream"),
        "look": calls.pending_to_ready(),
        "nack": calls.nack([Failure("a", token, 3_600_000, "boom")]),
        "page": calls.page("ready", limit=10, after="", preview=10),
        "prune": calls.collect(read_settings({})),
        "redrive": calls.redrive([dead], retries=5),
        "reject": calls.reject([Rejection("a", token, "no", "")]),
        "release": calls.release([Release("a", token)]),
        "send": calls.send(
            [queue.producer.outgoing("x", 0, None, None, None), queue.producer.outgoing("x", 0, None, "new", None)],
            max_length=None,
        ),
    }


def test_every_script_of_streams_has_a_call(admin, scene):
    with StreamQueue(STREAM, redis=admin) as queue:
        assert {f"streams/{name}" for name in calls_of_streams(queue)} == SCRIPTS["streams", Role.ADMIN]


@roles
@pytest.mark.parametrize("name", sorted(SCRIPTS["streams", Role.ADMIN]))
def test_script_of_streams_is_executed_or_refused_completely(role, name, guarded, admin, scene):
    with StreamQueue(STREAM, redis=admin) as queue:
        call = calls_of_streams(queue)[name.partition("/")[2]]
    before = all_but_slots(admin)
    with StreamQueue(STREAM, url=url_of(guarded, user_of("streams", role))) as queue:
        (reply,) = queue.executor.run([call])
    if name in SCRIPTS["streams", role] or ("streams", role, name) in BY_HAND:
        assert not isinstance(reply, Exception), reply
        assert role is not Role.INSPECTOR or all_but_slots(admin) == before
    else:
        assert isinstance(reply, ServerError)
        assert re.match(rf"{name}: .*({REFUSED}).*$", str(reply))
        assert all_but_slots(admin) == before


@roles
@pytest.mark.parametrize("name", sorted(SCRIPTS["workqueue", Role.ADMIN]))
def test_script_of_work_queues_is_executed_or_refused_completely(role, name, guarded, admin, scene):
    calls = WorkQueue(JOBS)._calls
    call = {
        "add": calls.add(b"new", b"x", known=False),
        "claim": calls.claim("session", 1000, [b"q"], 8),
        "complete": calls.complete(b"p"),
        "lease_suspects": calls.lease_suspects([b"x"], "cleaner", 1000),
        "restore": calls.restore({b"x": 1}),
        "counts": calls.counts(),
        "view": calls.view([b"q", b"p"], last=-1, max_searched=10),
    }[name.partition("/")[2]]
    command = ("EVALSHA", call.script.sha, len(call.keys), *call.keys, *call.args)
    before = everything(admin)
    with redis.Redis.from_url(url_of(guarded, user_of("workqueue", role))) as client:
        if name in SCRIPTS["workqueue", role] or ("workqueue", role, name) in BY_HAND:
            call.parse(client.execute_command(*command, NEVER_DECODE=True))
            assert role is not Role.INSPECTOR or everything(admin) == before
        else:
            with pytest.raises(redis.exceptions.ResponseError, match=REFUSED):
                client.execute_command(*command)
            assert everything(admin) == before


# The public operations


@pytest.fixture
def scene(admin) -> None:
    """A stream with a message in each state, and a work queue with an item in each."""
    with StreamQueue(STREAM, redis=admin) as queue:
        queue.send_many([NewMessage({"of": id}, id=id) for id in ("a", "b", "d")])
        held = {message.id: message for message in queue.lease(n=3)}
        held["b"].nack(delay="1h")
        held["d"].reject("no such user")
        queue.send({"of": "r"}, id="r")
    jobs = WorkQueue(JOBS)
    for id in "xpq":
        jobs.add_item(admin, Item("data", id=id))
    for _ in "xp":
        jobs.lease(admin, 60)
    admin.delete(f"{JOBS}:lease:x")


def everything(admin: redis.Redis) -> dict[bytes, Any]:
    """Return what is stored; of leases, whose rest changes, only the holders."""
    return {
        key: admin.get(key) if b":lease:" in key else admin.dump(key)
        for key in admin.scan_iter()
        if not key.endswith(b"replies")
    }


def settled(queue: Any) -> bool:
    """Settle by hand in every way."""
    for settle in (
        lambda message: message.extend(20) and message.release(),
        lambda message: message.nack(delay=0.05),
        lambda message: message.reject("no such user"),
    ):
        with queue.lease(block=5) as message:
            assert message.id == "r"
            assert settle(message)
    return True


def consumed(queue: Any) -> bool:
    seen: list[Any] = []
    queue.callback(lambda message: seen.append(message.id))
    queue.run(burst=True)
    return seen == ["r"]


def started(queue: Any) -> bool:
    seen: list[Any] = []
    queue.callback(lambda message: seen.append(message.id))
    queue.start_consume()
    wait_until(lambda: seen)
    return bool(queue.stop_consume())


OF_STREAMS: dict[str, Callable[[Any], Any]] = {
    "send": lambda q: q.send(1, headers={"a": "b"}).new and q.send(2, id="new").new,
    "send_many": lambda q: len(q.send_many([1, NewMessage(2, id="new"), NewMessage(3, id="r")]).new) == 2,
    "lease": settled,
    "run": consumed,
    "start_consume": started,
    "get": lambda q: q.get("r").id == "r" and q.get("d").reason == "no such user" and q.get(q.get("r").entry),
    "list": lambda q: [len(q.list(state).messages) for state in STREAMS_OFFER.states] == [1, 1, 1, 1],
    "counts": lambda q: q.counts().dead == 1,
    "groups": lambda q: list(q.groups()) == ["workers"],
    "dead.list": lambda q: [message.id for message in q.dead.list().messages] == ["d"],
    "dead.groups": lambda q: [group.count for group in q.dead.groups()] == [1],
    "dead.redrive": lambda q: q.dead.redrive(all=True).redriven == 1,
    "dead.purge": lambda q: q.dead.purge("d") == 1,
    "open": lambda q: q.open() is None,
    "preload": lambda q: q.preload() == len(preload("streams")),
}


def pipelined(jobs: Any, name: str) -> bool:
    jobs.pipeline(name, items=[Item("x", id="new")])
    return True


OF_WORK_QUEUES: dict[str, Callable[[Any], Any]] = {
    "add_item": lambda jobs: jobs.add_item(Item("x", id="new")) and not jobs.add_item(Item("x", id="new")),
    "add_unique_item": lambda jobs: jobs.add_unique_item(Item("x")) is None,
    "add_item_to_pipeline": lambda jobs: pipelined(jobs, "add_item_to_pipeline"),
    "add_unique_item_to_pipeline": lambda jobs: pipelined(jobs, "add_unique_item_to_pipeline"),
    "lease": lambda jobs: jobs.lease(60, timeout=1).id() == "q" and jobs.lease(60, timeout=0.01) is None,
    "complete": lambda jobs: jobs.complete(Item("", id="p")) and not jobs.complete(Item("", id="p")),
    "light_clean": lambda jobs: jobs.light_clean(grace=0.001) == 1,
    "deep_clean": lambda jobs: jobs.deep_clean(grace=0.001) == 1,
    "queue_len": lambda jobs: jobs.queue_len() == 1,
    "processing": lambda jobs: jobs.processing() == 2,
    "counts": lambda jobs: jobs.counts() == (1, 2),
    "get_item_data": lambda jobs: jobs.get_item_data("q") == b"data",
    "get": lambda jobs: jobs.get("p").consumer,
    "list": lambda jobs: [len(jobs.list(state).items) for state in ("queued", "processing")] == [1, 2],
}


def handbook(heading: str) -> dict[str, dict[Role, bool]]:
    """Return a table of the handbook: operation, role, whether it is allowed."""
    page = files("delayq").joinpath("docs", "security.md").read_text()
    found = re.search(rf"^\| {heading} (\|.*)\n\|[-|]+\|\n((?:\|.*\n)+)", page, re.MULTILINE)
    assert found
    columns = [Role(cell.strip()) for cell in found[1].strip("|\n").split("|")]
    table = {}
    for row in found[2].splitlines():
        name, *cells = (cell.strip() for cell in row.strip("|").split("|"))
        assert set(cells) <= {"yes", "no"}
        table[name.strip("`")] = {role: cell == "yes" for role, cell in zip(columns, cells, strict=True)}
    return table


STREAMS_MAY, WORK_QUEUES_MAY = handbook("operation of a stream"), handbook("operation of a work queue")


def public(kind: type) -> set[str]:
    return {name for name, _ in inspect.getmembers(kind, inspect.isfunction) if not name.startswith("_")}


def test_tables_have_every_public_operation():
    assert set(STREAMS_MAY) == set(OF_STREAMS)
    no_message = {"callback", "batch_callback", "cron", "every", "rrule", "on", "task", "stop_consume", "close"}
    no_message |= {"lifespan", "consuming"}
    dead = {f"dead.{name}" for name in public(StreamDeadLetter)}
    assert set(OF_STREAMS) == public(StreamQueue) - no_message | dead
    assert set(WORK_QUEUES_MAY) == set(OF_WORK_QUEUES) == public(WorkQueue)


@pytest.fixture(params=[BlockingStreams, AsyncioStreams], ids=["blocking", "asyncio"])
def face(request) -> Iterator[Any]:
    made = request.param()
    yield made
    made.close()


@pytest.fixture
def open_as(guarded, face) -> Callable[[Role], Any]:
    """`open_as(role)` opens the stream as a user of that role."""
    return lambda role: face.open(STREAM, url=url_of(guarded, user_of("streams", role)))


@roles
@pytest.mark.parametrize("name", OF_STREAMS)
@pytest.mark.usefixtures("scene")
def test_operation_of_a_stream_is_allowed_or_refused(open_as, role, name, admin, caplog):
    queue = open_as(role)
    before = all_but_slots(admin)
    try:
        if STREAMS_MAY[name][role]:
            assert OF_STREAMS[name](queue)
            assert role is not Role.INSPECTOR or all_but_slots(admin) == before
            return
        if name in ("run", "start_consume"):
            queue.callback(lambda message: None)
            queue.start_consume()
            wait_until(lambda: "no permissions" in caplog.text.lower())
            queue.stop_consume()
        else:
            with pytest.raises(ServerError, match=REFUSED) as caught:
                OF_STREAMS[name](queue)
            assert len(str(caught.value).splitlines()) == 1
        assert all_but_slots(admin) == before
    finally:
        queue.close()


@roles
@pytest.mark.parametrize("name", OF_WORK_QUEUES)
@pytest.mark.parametrize("kind", [BlockingWork, AsyncioWork], ids=["blocking", "asyncio"])
@pytest.mark.usefixtures("scene")
def test_operation_of_a_work_queue_is_allowed_or_refused(guarded, kind, role, name, admin):
    jobs = kind(url_of(guarded, user_of("workqueue", role)), JOBS)
    before = everything(admin)
    try:
        if WORK_QUEUES_MAY[name][role]:
            assert OF_WORK_QUEUES[name](jobs)
            assert role is not Role.INSPECTOR or everything(admin) == before
            return
        with pytest.raises(redis.exceptions.ResponseError, match=REFUSED) as caught:
            OF_WORK_QUEUES[name](jobs)
        assert len(str(caught.value).splitlines()) == 1
        assert everything(admin) == before
    finally:
        jobs.close()


# Relays


@pytest.mark.parametrize("name", TABLES)
def test_script_is_executed_or_refused_completely_for_a_relay(name, guarded, admin):
    """Scripts of the relay are executed; other scripts are executed or refused, never partly."""
    rule = rules([Role.RELAY], stream=STREAM)
    admin.execute_command("ACL", "SETUSER", "any-relay", "on", ">secret", *rule)
    observer = Executor(admin, deadline=1, owned=False)
    with DelayQueue("reminders", redis=admin) as queue, DelayQueue("any", url=url_of(guarded, "any-relay")) as relay:
        queue.preload()
        for case in TABLES[name]:
            admin.delete(*admin.keys("*") or ["none"])
            plant(observer, case.before)
            (reply,) = relay.executor.run([case.call])
            if isinstance(reply, ServerError) and name not in SCRIPTS["delay", Role.RELAY]:
                assert observe(observer) == case.before, case.name
            else:
                assert isinstance(reply, case.reply) if isinstance(case.reply, type) else reply == case.reply
                assert observe(observer) == case.after, case.name
                assert name in SCRIPTS["delay", Role.RELAY] | RELAYS_TOO or case.before == case.after


@pytest.fixture
def left_behind(admin) -> Iterator[DelayQueue[Any]]:
    """A queue with a message that is due, one whose consumer has died and that has no retries, and a schedule."""
    with DelayQueue("reminders", redis=admin, lease=0.1) as queue:
        queue.preload()
        queue.schedules.add("often", every="1s", payload="fired")
        queue.send_delay_msg("spent", retries=0)
        assert len(queue.lease().messages) == 1
        queue.send_many(["due", NewMessage("later", delay="1h")])
        yield queue


def moved(admin: redis.Redis, queue: DelayQueue[Any]) -> bool:
    payloads = {fields[b"payload"] for _, fields in admin.xrange(STREAM)}
    return payloads == {b'"due"', b'"fired"'} and queue.counts().dead == 1


def test_relay_can_move_fire_and_recover_messages_and_nothing_else(guarded, admin, left_behind):
    url = url_of(guarded, user_of("delay", Role.RELAY))
    with DelayQueue("reminders", url=url) as reminders:
        relay = Relay(reminders, STREAM)
        wait_until(lambda: relay.run(burst=True) >= 0 and moved(admin, left_behind))
        left_behind.schedules.pause("often")
        before = all_but_slots(admin)
        for refused in (
            lambda: reminders.send_delay_msg("x"),
            lambda: reminders.dead.purge(all=True),
            lambda: reminders.purge(),
            lambda: reminders.counts(),
            lambda: reminders.cancel("later"),
        ):
            with pytest.raises(ServerError, match=REFUSED):
                refused()
        assert all_but_slots(admin) == before
    with redis.Redis.from_url(url) as client, pytest.raises(redis.exceptions.NoPermissionError):
        client.xrange(STREAM)


@pytest.mark.long
def test_asyncio_relay_has_sufficient_rights(guarded, admin, left_behind):
    async def run() -> None:
        url = url_of(guarded, user_of("delay", Role.RELAY))
        async with AsyncDelayQueue("reminders", url=url) as reminders:
            relay = AsyncRelay(reminders, STREAM)
            while not moved(admin, left_behind):
                await relay.run(burst=True)
                await asyncio.sleep(0.02)

    asyncio.run(run())


def test_relay_cannot_write_to_another_stream(guarded, admin):
    url = url_of(guarded, user_of("delay", Role.RELAY))
    with DelayQueue("reminders", redis=admin) as queue, DelayQueue("reminders", url=url) as reminders:
        queue.preload()
        queue.send_delay_msg("due")
        before = everything(admin)
        with pytest.raises(ServerError, match=REFUSED):
            Relay(reminders, "others").run(burst=True)
        assert everything(admin) == before


# Rules


@pytest.mark.parametrize("engine", ["streams", "workqueue"])
def test_roles_of_an_engine_can_be_combined(admin, guarded, engine):
    both = rules([Role.PRODUCER, Role.CONSUMER], **queue_of(engine))
    assert set(both) == {word for role in ROLES[:2] for word in rules([role], **queue_of(engine))}


@pytest.mark.parametrize("prefix", ["jobs*", "jobs[a]?", "a\\b", "jöbs", "{eu}jobs"])
def test_special_characters_of_a_prefix_are_escaped(admin, guarded, prefix):
    words = rules([Role.CONSUMER], engine="workqueue", queue=prefix)
    admin.execute_command("ACL", "SETUSER", "odd", "on", ">secret", *words)
    with redis.Redis.from_url(url_of(guarded, "odd")) as client:
        WorkQueue(prefix).add_item(client, Item("x", id="a*[b]"))
        assert WorkQueue(prefix).lease(client, 60, timeout=1).id() == "a*[b]"
        for other in ("jobsX", "jobsa1", "aXb", "jobs"):
            with pytest.raises(redis.exceptions.NoPermissionError):
                WorkQueue(other).queue_len(client)


@pytest.mark.parametrize(
    ("stream", "beside"), [("tasks", "{tasks}.dead"), ("tasks.{eu}", "tasks.{eu}.dead"), ("a:b/c", "{a:b/c}.dead")]
)
def test_rules_use_the_keys_of_the_stream_queue(stream, beside):
    words = rules([Role.ADMIN], engine="streams", queue=stream)
    assert {f"~{stream}", f"~{beside}"} <= set(words)


@pytest.mark.parametrize(
    "wrong",
    [
        {"engine": "streams"},
        {"engine": "workqueue"},
        {"engine": "go", "queue": "q"},
        {"engine": "streams", "queue": "a b"},
        {"engine": "workqueue", "queue": "a b"},
        {"engine": "workqueue", "queue": "a\nb"},
        {"engine": "workqueue", "queue": "a'b"},
        {"queue": "q", "stream": "tasks"},
        {"roles": ["relay"]},
        {"roles": ["notifier"], "engine": "streams", "queue": "tasks"},
        {"roles": ["relay"], "stream": "a b"},
        {"roles": ["relay"], "stream": "tasks", "engine": "streams", "queue": "tasks"},
        {"roles": ["owner"]},
    ],
    ids=str,
)
def test_invalid_arguments_are_refused(cli, wrong):
    given = {"roles": ["producer"]} | wrong
    with pytest.raises(ConfigurationError):
        rules(given.pop("roles"), **given)
    options = [word for name, value in given.items() for word in (f"--{name}", value)]
    ended = cli("unix:///nowhere", "acl", *wrong.get("roles", ["producer"]), *options)
    assert (ended.code, ended.out) == (2, "")
    assert len(ended.err.splitlines()) == 1


def test_redis_accepts_the_printed_command(cli, admin, guarded):
    for words in (
        ["consumer", "--engine", "streams", "--queue", "tasks"],
        ["producer", "--engine", "workqueue", "--queue", "a*"],
        ["relay", "--queue", "reminders", "--stream", "tasks"],
    ):
        ended = cli("unix:///nowhere", "acl", *words, "--user", "printed")
        assert ended.code == 0
        assert admin.execute_command(*ended.out.split())
        given: dict[str, Any] = dict(zip((word[2:] for word in words[1::2]), words[2::2], strict=True))
        with suppress(KeyError):
            assert " ".join(rules(words[:1], **given)) in ended.out


def test_preload_loads_the_scripts_of_every_engine(cli):
    for options, expected in (
        ([], len(preload()) + len(preload("streams")) + len(preload("workqueue"))),
        (["--engine", "streams"], len(preload("streams"))),
        (["--engine", "workqueue"], len(preload("workqueue"))),
    ):
        with RedisServer() as server:
            assert cli(server.url, "preload", *options).out == f"loaded {expected} scripts\n"
            with server.client() as client:
                assert client.info("memory")["number_of_cached_scripts"] == expected
                assert client.dbsize() == 0


@pytest.mark.parametrize("engine", ["streams", "workqueue"])
def test_command_line_works_with_the_rights_of_a_role(cli, guarded, admin, scene, engine):
    name = STREAM if engine == "streams" else JOBS
    at = {role: url_of(guarded, user_of(engine, role)) for role in ROLES}
    assert cli(at[Role.PRODUCER], "send", name, "1", "--engine", engine).code == 0
    for words in (("stats", name), ("list", name), ("show", name, "r" if engine == "streams" else "q")):
        assert cli(at[Role.INSPECTOR], *words, "--engine", engine).code == 0
        refused = cli(at[Role.PRODUCER], *words, "--engine", engine)
        assert refused.code == 1
        assert "no permissions" in refused.err.lower()
        assert len(refused.err.splitlines()) == 1
    assert cli(at[Role.INSPECTOR], "send", name, "1", "--engine", engine).code == 1
