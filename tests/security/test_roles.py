"""Each role may do exactly what the table of the handbook says; a refused operation changes nothing."""

from __future__ import annotations

import ast
import inspect
import io
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple
from zlib import crc32

import pytest
import redis

import delayq
from delayq import DelayQueue, Encrypted, NewMessage, Schedule, ServerError, State
from delayq.broker.scripts import names, script
from delayq.broker.shared_calls import preload
from delayq.broker.transport.executor import Executor, open_executor
from delayq.cli.admin.acl import ROLES, Role, rules
from delayq.options import read_settings
from delayq.testing.redis_server import free_port
from delayq.worker.parts import presence
from tests.lua.tables import TABLES
from tests.support.faces import Asyncio, Blocking
from tests.support.redis_server import RedisServer, empty
from tests.support.scripts import observe, observe_replies, plant
from tests.support.stored import all_but_slots
from tests.support.waiting import wait_until

SCRIPTS = {
    Role.PRODUCER: {"send", "send_one", "debounce", "collect", "cancel", "reschedule", "withdraw"}
    | {"begin_run", "end_run", "keep_plan", "outcomes", "await_ends"}
    | {"move_out", "move_in", "schedules_out", "schedules_in", "moved", "repartition"}
    | {"schedule_put", "schedule_remove", "schedules_page", "schedules_find"},
    Role.CONSUMER: {
        *(
            "pending_to_ready",
            "ready_to_unack",
            "pending_to_unack",
            "turn",
            *("stage", "commit_staged"),
            "unack_to_retry",
            "collect_garbage",
            "wake",
        ),
        *("ack", "ack_some", "join", "complete", "nack", "extend", "release", "reject", "withdraw", "report", "close"),
        "declare",
        *(
            "counts",
            "get",
            "page",
            "limits_page",
            "presence",
            "keep_presence",
            "workers_page",
            "history",
            "forecast",
            "sample_names",
        ),
        *("fire", "schedules_due", "schedule_put", "schedule_remove", "schedules_page", "schedules_find"),
    },
    Role.INSPECTOR: {
        *("counts", "get", "page", "limits_page", "snapshot", "outcomes", "schedules_page", "schedules_find"),
        *("workers_page", "history", "forecast", "sample_names"),
    },
    Role.ADMIN: set(names()),
}
"""The scripts that each role may run."""
PLAIN = {
    Role.PRODUCER: {"hsetnx", "wait", "xread"},
    Role.CONSUMER: {"hsetnx", "exists", "blpop", "hgetall"},
    Role.INSPECTOR: {"exists", "hgetall", "memory|usage", "xinfo|stream", "xrange", "xrevrange", "xread"},
}
"""Commands of each role besides scripts and the commands that all roles need."""
READ_PARTS = {
    Role.PRODUCER: {"ends"},
    Role.CONSUMER: set(),
    Role.INSPECTOR: {"events", "runs", "refusals", "archives", "plans"},
}
"""Parts that each role uses besides those of its scripts."""
ALL_NEED = {
    *("ping", "select", "client|setname", "command", "cluster|slots", "asking"),
    *("evalsha", "info", "time"),
}
BY_HAND = {(Role.PRODUCER, "extend"), (Role.CONSUMER, "recount"), (Role.PRODUCER, "fire")}
BY_HAND |= {(Role.PRODUCER, "report"), (Role.CONSUMER, "await_ends")}
BY_HAND |= {(Role.PRODUCER, name) for name in ("ack", "ack_some", "join", "complete", "nack")}
"""Scripts that the rights of a role cover although no method of delayq calls them for that role."""

RAW = {"NEVER_DECODE": True}

roles = pytest.mark.parametrize("role", ROLES)
MANY = 20
"""Of the cases of a script with so many, each role has every other one."""


def url_of(server: RedisServer, user: str) -> str:
    return server.url.replace("unix://", f"unix://{user}:secret@")


def grant(admin: redis.Redis, user: str, *granted: Role, queue: str | None = None) -> None:
    admin.acl_deluser(user)
    admin.execute_command("ACL", "SETUSER", user, "on", ">secret", *rules(granted, queue=queue))


@pytest.fixture(scope="module")
def guarded() -> Iterator[RedisServer]:
    """A server with a user of each role, named for it, and with the scripts loaded."""
    with RedisServer() as server:
        with server.client() as admin:
            for role in ROLES:
                grant(admin, role, role)
            with DelayQueue("reminders", redis=admin) as queue:
                queue.preload()
        yield server


@pytest.fixture
def admin(guarded) -> Iterator[redis.Redis]:
    """A client that may do everything, on the emptied server."""
    with guarded.client() as client:
        empty(client)
        yield client


# The rules


def commands_of(name: str) -> set[str]:
    called = re.findall(r"redis\.p?call\('(MEMORY', 'USAGE|\w+)'", script(name).text.decode())
    return {found.replace("', '", "|").lower() for found in called}


def granted(role: Role, sign: str) -> list[str]:
    found = rules([role], prefix="PREFIX", queue="QUEUE")
    return [rule.removeprefix(sign) for rule in found if rule.startswith(sign)]


@pytest.mark.parametrize("role", [Role.PRODUCER, Role.CONSUMER, Role.INSPECTOR])
def test_role_has_only_the_commands_and_parts_of_its_scripts(role):
    commands = set().union(*map(commands_of, SCRIPTS[role])) | PLAIN[role] | ALL_NEED
    parts = {part for name in SCRIPTS[role] for part in script(name).parts} | READ_PARTS[role]
    assert sorted(granted(role, "+")) == sorted(commands)
    assert sorted(granted(role, "~")) == sorted(f"PREFIX:{{QUEUE}}:{part}" for part in parts)


REGISTRY = {
    Role.PRODUCER: {"sadd"},
    Role.CONSUMER: {"sadd", "sscan"},
    Role.INSPECTOR: {"sscan"},
    Role.ADMIN: {"sadd", "sscan", "srem"},
    Role.NOTIFIER: set(),
    Role.RELAY: {"sadd"},
}
"""What each role may do with the registry of queues, which all queues of a prefix share."""
LISTING = (
    *("SADD {0} mine", "SSCAN {0} 0", "SREM {0} other", "SMEMBERS {0}", "SPOP {0}", "DEL {0}", "UNLINK {0}"),
    *("UNLINK {1} {0}", "SMOVE {0} {1} other", "RENAME {0} {1}", "EXPIRE {0} 1", "PEXPIRE {0} 1", "SET {0} x"),
    *("HSET {0} a b", "ZADD {0} 1 a", "RPUSH {0} a", "XADD {0} * a b", "LTRIM {0} 1 0"),
    *("SINTERSTORE {0} {1}", "COPY {1} {0}"),
)
"""What somebody may try on the registry."""


@pytest.mark.parametrize("queue", ["mine", None])
@pytest.mark.parametrize("role", Role)
def test_no_user_of_a_queue_takes_another_off_the_registry(role, queue, guarded, admin):
    words = rules([role], queue=queue, stream="tasks" if role is Role.RELAY else None)
    admin.execute_command("ACL", "SETUSER", "tenant", "on", ">secret", *words)
    done = set()
    with redis.Redis.from_url(url_of(guarded, "tenant")) as client:
        for line in LISTING:
            admin.sadd("delayq:queues", "other")
            for exists in (True, False):
                if not exists:
                    admin.delete("delayq:queues")
                try:
                    client.execute_command(*line.format("delayq:queues", "delayq:{mine}:garbage").split())
                    done.add(line.partition(" ")[0].lower())
                except redis.exceptions.NoPermissionError:
                    assert admin.smembers("delayq:queues") == ({b"other"} if exists else set())
            admin.delete("delayq:queues")
    assert done == REGISTRY[role] - ({"srem"} if queue else set())


@pytest.mark.parametrize("role", [Role.PRODUCER, Role.CONSUMER, Role.INSPECTOR, Role.NOTIFIER])
def test_no_user_of_a_queue_takes_another_off_the_registry_without_selectors(role, guarded, admin):
    """As on Redis 6.2: all commands of a role reach the registry, but none that changes a set except adding."""
    words = rules([role], queue="mine", selectors=False)
    assert not [word for word in words if "selector" in word or "(" in word]
    admin.execute_command("ACL", "SETUSER", "tenant", "reset", "on", ">secret", *words)
    admin.sadd("delayq:queues", "other")
    admin.sadd("delayq:{mine}:garbage", "id")
    with redis.Redis.from_url(url_of(guarded, "tenant")) as client:
        for line in LISTING:
            try:
                client.execute_command(*line.format("delayq:queues", "delayq:{mine}:garbage").split())
            except redis.exceptions.ResponseError:  # refused, or for another type
                continue
            assert line.split()[0].lower() in REGISTRY[role]
        assert admin.sismember("delayq:queues", "other")
        if role in (Role.PRODUCER, Role.CONSUMER):
            assert client.srem("delayq:{mine}:garbage", "id") == 1
            assert client.pexpire("delayq:{mine}:done", 1000) == 0  # it may, but there is none


def test_admin_of_one_queue_removes_it_though_its_name_stays_in_the_registry(guarded, admin, cli):
    grant(admin, "one", Role.ADMIN, queue="mine")
    with DelayQueue("mine", url=url_of(guarded, "one")) as queue:
        queue.preload()
        queue.open()
        assert queue.remove() is True
        assert queue.remove() is False
    assert admin.smembers("delayq:queues") == {b"mine"}
    assert not [key for key in admin.keys("*") if b"{mine}" in key]
    listed = cli(guarded.url, "queues", "--json")
    assert listed.out == '{"queues":[]}\n'


def test_a_queue_is_seen_again_after_the_registry_was_lost(guarded, admin, cli, monkeypatch):
    """By itself, while a process has it open; its own commands never need the registry."""
    grant(admin, "one", Role.PRODUCER, queue="mine")
    with DelayQueue("mine", url=url_of(guarded, "one")) as queue:
        queue.send_delay_msg(1, "1h")
        admin.delete("delayq:queues")
        assert cli(guarded.url, "stats", "mine").code == 0
        assert cli(guarded.url, "doctor", "mine").code in (0, 4)
        queue.executor.check_at = 0
        queue.send_delay_msg(2, "1h")
        assert "mine" in cli(guarded.url, "queues").out
        admin.delete("delayq:queues")
        admin.set("delayq:queues", "no set")
        queue.executor.check_at = 0
        assert queue.send_delay_msg(3, "1h").new


def test_queues_that_cannot_be_registered_say_so_once(guarded, admin, caplog, monkeypatch):
    monkeypatch.setattr("delayq.queue.control.registered._told", set())
    admin.set("delayq:queues", "no set")
    for name in ("mine", "other"):
        with DelayQueue(name, redis=admin) as queue:
            assert queue.send_delay_msg(1).new
    (told,) = [record.getMessage() for record in caplog.records if "missing in lists" in record.getMessage()]
    assert told.startswith("queue mine is missing in lists of all queues, and workers of patterns do not find it: ")
    assert "WRONGTYPE" in told


def plain_commands() -> set[str]:
    """Return every command that the package sends as such to a delay queue.

    Demo, torture and test kit use their own servers; other engines have their own roles.
    """
    found = set()
    package = Path(delayq.__file__).parent
    for path in package.rglob("*.py"):
        if {"demo", "testing", "streams", "workqueue", "go_queue.py"} & set(path.relative_to(package).parts):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.Call)
                and ast.unparse(node.func) == "RedisCommand"
                and isinstance(node.args[0], ast.Tuple)
            ):
                words = node.args[0].elts
                if words and isinstance(words[0], ast.Constant):
                    found.add(words[0].value.lower())
    return found


@pytest.mark.long
def test_admin_has_every_command_that_delayq_uses():
    used = plain_commands().union(*map(commands_of, names()))
    assert {"blpop", "script", "xtrim", "hset"} <= used
    named = {command.partition("|")[0] for command in used}
    assert named <= {command.partition("|")[0] for command in granted(Role.ADMIN, "+")}


@roles
def test_no_role_has_unneeded_rights(role, guarded, admin):
    with redis.Redis.from_url(url_of(guarded, role)) as client:
        for line in (
            *("KEYS *", "SCAN 0", "FLUSHALL", "FLUSHDB", "CONFIG GET *", "CONFIG SET maxmemory 1", "EVAL 'return 1' 0"),
            *("SCRIPT FLUSH", "SCRIPT KILL", "ACL LIST", "ACL SETUSER x", "SHUTDOWN", "MONITOR"),
            *("CLIENT LIST", "CLIENT KILL x", "SWAPDB 0 1", "PUBLISH a b", "GET foreign", "HGET foreign a", "SAVE"),
            *("HSET delayq:foreign a b", "HGET other:{reminders}:messages a", "DEL delayq:{reminders}:messages"),
        ):
            with pytest.raises(redis.exceptions.NoPermissionError):
                client.execute_command(*shlex.split(line))
        if role is not Role.ADMIN:
            with pytest.raises(redis.exceptions.NoPermissionError):
                client.script_load("return 1")


# Scripts: an allowed script does what its table says, a refused one does nothing


@pytest.fixture(scope="module")
def executors(guarded) -> Iterator[dict[Role, Executor]]:
    made = {role: open_executor({"url": url_of(guarded, role)}, read_settings({})) for role in ROLES}
    yield made
    for executor in made.values():
        executor.close()


@pytest.mark.long
@roles
@pytest.mark.table("name", TABLES)
def test_script_is_executed_or_refused_completely(role, name, admin, executors):
    executor, observer = executors[role], Executor(admin, deadline=1, owned=False)
    cases, turn = TABLES[name], list(ROLES).index(role) % 2
    for case in cases[turn::2] if len(cases) >= MANY else cases:
        admin.delete(*admin.keys("*") or ["none"])
        plant(observer, case.before)
        if name in SCRIPTS[role] or (role, name) in BY_HAND:
            if isinstance(case.reply, type):
                with pytest.raises(case.reply):
                    executor.call(case.call)
            else:
                assert executor.call(case.call) == case.reply, case.name
            assert observe(observer) == case.after, case.name
            continue
        (reply,) = executor.run([case.call])
        if case.before != case.after:
            assert isinstance(reply, ServerError), case.name
        if isinstance(reply, ServerError):
            assert names_missing_right(str(reply), name), str(reply)
            assert not observe_replies(observer)
        assert observe(observer) == case.before, case.name


def names_missing_right(text: str, name: str) -> bool:
    """Return whether an error names the call and the missing right in one line, as any version of Redis words it."""
    keys = r"(this user has no permissions to access one of the keys used as arguments|No permissions to access a key)"
    commands = r"this user has no permissions to run the ('\w+( or )?)+' command"
    since_7_2 = r"ACL failure in script: User \w+ has no permissions to run the '\w+' command script: \w+, on @\S+"
    return re.fullmatch(f"{name.removesuffix('_one')}: ({keys}|{commands}|{since_7_2})", text) is not None


# The public operations


class Operation(NamedTuple):
    """One row of the table: the call, which returns a true value if it worked."""

    call: Callable[[Any], Any]
    options: Mapping[str, Any] = MappingProxyType({})


def consumed(queue: Any) -> bool:
    """Consume until the ready message has come."""
    seen: list[Any] = []
    queue.callback(lambda message: seen.append(message.id))
    queue.run(burst=True)
    return seen == ["ready"]


def settled(queue: Any) -> bool:
    """Settle by hand in every way; each brings the message back but the last."""
    for settle in (
        lambda message: message.report(1) and message.release(),
        lambda message: message.extend("1m") and message.release(),
        lambda message: message.nack(delay=0.05),
        lambda message: message.reject("no such user"),
    ):
        with queue.lease(block=5) as message:
            assert message.id == "ready"
            assert settle(message)
    return True


def failed(queue: Any) -> bool:
    """Read how a message has ended."""
    with pytest.raises(delayq.MessageFailedError, match="no such user"):
        queue.result("rejected")
    return True


def in_use(queue: Any) -> bool:
    """Remove the queue once it is empty."""
    with pytest.raises(delayq.QueueInUseError, match="4 messages"):
        queue.remove()
    emptied = queue.purge(), queue.dead.purge(all=True), *map(queue.schedules.remove, ("nightly", "asleep"))
    return all(emptied) and queue.remove() is True


def sent_into(queue: Any) -> bool:
    """Send in a transaction of a client with the same rights."""
    with redis.Redis.from_url(queue._options["url"]) as client, client.pipeline() as pipeline:
        queue.send_into(pipeline, 1, id="new")
        try:
            return bool(pipeline.execute()[0][:1] == b"1")
        except redis.exceptions.NoPermissionError as error:
            raise ServerError(f"send_into: {error}") from error


def started(queue: Any) -> bool:
    """Start in the background, wait for a wake-up, and stop; a consumer without the rights never gets there."""
    seen: list[Any] = []
    queue.callback(lambda message: seen.append(message.id))
    queue.start_consume()
    wait_until(lambda: seen)
    queue.stop_consume()
    return True


def applied(queue: Any) -> bool:
    """Declare a schedule in code and put it into Redis."""
    queue.every("1h", name="declared")(print)
    return bool(queue.schedules.apply().outcomes == {"declared": "new"})


LATER, HOUR = datetime(2190, 1, 1, tzinfo=UTC), timedelta(hours=1)
JANUARY = (datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 2, 1, tzinfo=UTC))
OPERATIONS = {
    "send": Operation(lambda q: q.send(1, at=datetime.now(UTC) + timedelta(hours=1)).new),
    "send_delay_msg": Operation(lambda q: q.send_delay_msg(1, "1h", id="new", headers={"a": "b"}).new),
    "send_schedule_msg": Operation(
        lambda q: q.send_schedule_msg(1, delayq.values.times.from_millis(2**41), id="new").new
    ),
    "send_many": Operation(
        lambda q: q.send_many([NewMessage(1, id="pending"), NewMessage(2, id="retry")], replace=True, run="nightly").ids
    ),
    "send_into": Operation(sent_into),
    "cancel": Operation(lambda q: q.cancel("ready") == "cancelled"),
    "kill": Operation(lambda q: q.kill("ready") == "killed"),
    "edit": Operation(lambda q: q.edit("ready", payload=2, priority=1) == "edited"),
    "forget": Operation(lambda q: q.forget("rejected").deaths == 1),
    "rekey": Operation(lambda q: q.rekey().already == 0, {"codec": Encrypted({"k": bytes(16)}, allow_plain=True)}),
    "select to count": Operation(lambda q: q.select("ready").count() == 1),
    "select to cancel or reschedule": Operation(lambda q: q.select("pending").cancel() == {"cancelled": 1}),
    "select to kill": Operation(lambda q: q.select("pending").kill() == {"killed": 1}),
    "reschedule": Operation(lambda q: q.reschedule("ready", "1h") == "rescheduled"),
    "end_run": Operation(lambda q: q.end_run("nightly", refusals=[("x", "no such user")]).refused == 1),
    "forget_run": Operation(lambda q: q.forget_run("nightly")),
    "runs": Operation(lambda q: [info.run for info in q.runs()] == ["nightly"]),
    "refusals": Operation(lambda q: q.refusals("nightly") == []),
    "lease": Operation(settled),
    "run": Operation(consumed),
    "start_consume": Operation(started),
    "start_consume with rate_limit, burst or running": Operation(started, {"rate_limit": "900/s", "running": 3}),
    "result": Operation(failed),
    "get": Operation(lambda q: q.get("pending").id == "pending" and q.get("rejected").reason == "no such user"),
    "why": Operation(lambda q: q.why("rejected").reasons and q.why().reasons and q.why("gone").state is None),
    "counts": Operation(lambda q: q.counts().dead == 1),
    "stats": Operation(lambda q: q.stats().totals["sent"] == 5),
    "list": Operation(lambda q: [len(q.list(state).messages) for state in State] == [1, 1, 1, 1, 0, 0, 0, 1, 0]),
    "search": Operation(
        lambda q: [match.message.id for match in q.search("no such", where="error").matches] == ["rejected"]
    ),
    "forecast": Operation(lambda q: sum(bucket.total for bucket in q.forecast("1d").buckets) == 2),
    "check": Operation(lambda q: q.callback(print) and q.check().checked == 4),
    "events": Operation(lambda q: next(iter(q.events())).kind == "sent" and next(iter(q.events(1, follow=True)))),
    "dead.list": Operation(lambda q: [message.id for message in q.dead.list().messages] == ["rejected"]),
    "dead.groups": Operation(lambda q: [group.count for group in q.dead.groups()] == [1]),
    "dead.redrive": Operation(lambda q: q.dead.redrive("rejected").redriven == 1),
    "dead.purge": Operation(lambda q: q.dead.purge(all=True) == 1),
    "schedules.add": Operation(lambda q: q.schedules.add("hourly", every="1h") == "new"),
    "schedules.add_many": Operation(lambda q: q.schedules.add_many([Schedule("hourly", every="1h")]) != {}),
    "schedules.apply": Operation(applied),
    "schedules.sync": Operation(
        lambda q: q.schedules.sync([Schedule("mine", every="1d")], owner="a", prune=True).outcomes
    ),
    "schedules.list": Operation(lambda q: [info.name for info in q.schedules.list()] == ["asleep", "nightly"]),
    "schedules.get": Operation(lambda q: q.schedules.get("nightly").state == "active"),
    "schedules.next": Operation(lambda q: len(q.schedules.next("nightly", 3)) == 3),
    "schedules.pause": Operation(lambda q: q.schedules.pause("nightly") == 1),
    "schedules.resume": Operation(lambda q: q.schedules.resume("asleep") == 1),
    "schedules.remove": Operation(lambda q: q.schedules.remove("nightly") == 1),
    "schedules.page": Operation(
        lambda q: [info.name for info in q.schedules.page().schedules] == ["asleep", "nightly"]
    ),
    "schedules.set": Operation(lambda q: q.schedules.set(prefix="night", every="2h") == 1),
    "schedules.upcoming": Operation(lambda q: [one.name for one in q.schedules.upcoming(2)] == ["nightly"] * 2),
    "schedules.replan": Operation(lambda q: set(q.schedules.replan().moved) == {"nightly"}),
    "schedules.run_now": Operation(lambda q: q.schedules.run_now("nightly").new),
    "schedules.backfill": Operation(lambda q: q.schedules.backfill("nightly", *JANUARY).sent == 31),
    "schedules.skip": Operation(lambda q: q.schedules.skip("nightly", LATER)[0].outcome == "skipped"),
    "schedules.move": Operation(lambda q: q.schedules.move("nightly", LATER, LATER + HOUR).outcome == "moved"),
    "schedules.restore": Operation(lambda q: q.schedules.restore("asleep", LATER)[0].outcome == "restored"),
    "schedules.orphans": Operation(lambda q: q.schedules.orphans() == []),
    "schedules.history": Operation(lambda q: q.schedules.history("nightly").since is not None),
    "pause": Operation(lambda q: q.pause("1h", reason="deploy").reason == "deploy"),
    "resume": Operation(lambda q: q.resume() is False),
    "workers": Operation(lambda q: q.workers() == []),
    "history": Operation(lambda q: q.history().total.delivered == 0),
    "memory_usage": Operation(lambda q: q.memory_usage().structures["messages"] > 0),
    "limits.list": Operation(lambda q: q.limits.list() == []),
    "limits.set": Operation(lambda q: q.limits.set("mail", rate_limit="5/m") is None),
    "limits.remove": Operation(lambda q: not q.limits.remove("mail")),
    "purge": Operation(lambda q: q.purge() == 4),
    "remove": Operation(in_use),
    "examine": Operation(lambda q: {finding.kind for finding in q.examine(deep=True).findings} <= {"server"}),
    "repair": Operation(lambda q: {finding.kind for finding in q.repair(deep=True).findings} <= {"server"}),
    "open": Operation(lambda q: q.open() is None),
    "open with events, dedupe_window, dead_max, dead_ttl, priority_step, lateness_slo or redact": Operation(
        lambda q: q.open() is None, {"events": False, "dedupe_window": "1h", "lateness_slo": "off", "redact": []}
    ),
    "preload": Operation(lambda q: q.preload() == len(preload())),
}


def handbook() -> dict[str, dict[Role, bool]]:
    """Return the table of the handbook: operation, role, whether it is allowed."""
    page = files("delayq").joinpath("docs", "security.md").read_text()
    (head, rows) = re.findall(r"^\| operation (\|.*)\n\|[-|]+\|\n((?:\|.*\n)+)", page, re.MULTILINE)[0]
    columns = [Role(cell.strip()) for cell in head.strip("|\n").split("|")]
    table = {}
    for row in rows.splitlines():
        name, *cells = (cell.strip() for cell in row.strip("|").split("|"))
        assert set(cells) <= {"yes", "no"}
        table[name.replace("`", "")] = {role: cell == "yes" for role, cell in zip(columns, cells, strict=True)}
    return table


ALLOWED = handbook()


def test_table_has_every_public_operation():
    assert set(ALLOWED) == set(OPERATIONS)
    public = {name for name, member in inspect.getmembers(DelayQueue, inspect.isfunction) if not name.startswith("_")}
    elsewhere = {
        "lifespan",
        "consuming",
        "callback",
        "on",
        "task",
        "batch_callback",
        "cron",
        "every",
        "rrule",
        "stop_consume",
        "close",
    }  # send nothing, or only end a running consumer
    assert {name.partition(" ")[0] for name in OPERATIONS if "." not in name} == public - elsewhere
    for part, kind in (("dead", delayq.DeadLetter), ("schedules", delayq.Schedules)):
        methods = {name for name, _ in inspect.getmembers(kind, inspect.isfunction) if not name.startswith("_")}
        assert {name.partition(".")[2] for name in OPERATIONS if name.startswith(f"{part}.")} == methods


@pytest.fixture
def scene(admin) -> None:
    """A queue with a message in each state, its event log on."""
    with DelayQueue("reminders", redis=admin, events=True) as queue:
        queue.send_many([NewMessage(id, id=id) for id in ("active", "rejected", "failed")], run="nightly", retries=1)
        with queue.lease(n=3) as leased:
            held = {message.id: message for message in leased}
            held["rejected"].reject("no such user")
            held["failed"].nack(delay="1h")
            held["active"].delivery.settled = True  # it stays leased
        queue.send_many([NewMessage("later", id="pending", delay="1h"), NewMessage("now", id="ready")])
        queue.schedules.add_many(Schedule(name, every="1d", payload=name) for name in ("nightly", "asleep"))
        queue.schedules.pause("asleep")
        queue.schedules.skip("asleep", LATER)
        keys = queue.context.calls.keys  # as if the clock had been in 2100 when a schedule was fired
        admin.zadd(keys.schedules, {"nightly": 4_102_444_800_000})
        admin.hset(keys.meta, "schedules_at", 4_102_444_800_000)
        with queue.lease() as message:
            message.release()


@pytest.mark.usefixtures("scene")
def test_inspector_exports_and_producer_imports(guarded):
    from delayq.bulk import export_messages, import_messages

    lines = io.BytesIO()
    found = export_messages("reminders", lines, url=url_of(guarded, Role.INSPECTOR))
    assert found == {"pending": 1, "ready": 1, "active": 1, "backoff": 1, "dead": 1}
    with pytest.raises(ServerError, match="dead messages need the role admin"):
        import_messages(io.BytesIO(lines.getvalue()), "copy", url=url_of(guarded, Role.PRODUCER))
    done = import_messages(io.BytesIO(lines.getvalue()), "other", url=url_of(guarded, Role.PRODUCER), dead="skip")
    assert (done.new, done.left_out) == (4, 1)
    with pytest.raises(ServerError):
        export_messages("reminders", io.BytesIO(), url=url_of(guarded, Role.PRODUCER))
    for role in (Role.CONSUMER, Role.INSPECTOR):
        with pytest.raises(ServerError):
            import_messages(io.BytesIO(lines.getvalue()), "copy", url=url_of(guarded, role))


@pytest.fixture(params=["a face", pytest.param("the other face", marks=pytest.mark.long)])
def face(request) -> Iterator[Any]:
    """One face in each test, asyncio in every other; the other one in the long tests."""
    told = sorted((name, str(value)) for name, value in request.node.callspec.params.items() if name != "face")
    turn = crc32(repr(told).encode()) + (request.param != "a face")
    made = (Blocking, Asyncio)[turn % 2]()
    yield made
    made.close()


@pytest.fixture
def open_as(guarded, face) -> Callable[..., Any]:
    """`open_as(role)` opens the queue as a user of that role."""
    return lambda role, **options: face.open("reminders", url=url_of(guarded, role), **options)


@roles
@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.usefixtures("scene")
def test_operation_is_allowed_or_refused_as_documented(open_as, role, name, admin, caplog):
    operation = OPERATIONS[name]
    queue = open_as(role, **operation.options)
    before = all_but_slots(admin)
    try:
        if ALLOWED[name][role]:
            assert operation.call(queue)
        elif name == "run" or name.startswith("start_consume"):
            queue.callback(lambda message: None)
            try:
                queue.start_consume()
                wait_until(lambda: "no permissions" in caplog.text.lower())
                queue.stop_consume()
            except ServerError as error:  # of what it stores before it consumes
                assert "no permissions" in str(error).lower()  # noqa: PT017
        else:
            with pytest.raises(ServerError, match=r"(?i)no permissions to ") as caught:
                operation.call(queue)
            assert len(str(caught.value).splitlines()) == 1
            assert re.match(r"\w+: ", str(caught.value))
        if not ALLOWED[name][role]:
            assert all_but_slots(admin) == before
    finally:
        queue.close()


# Beyond the table


@pytest.mark.parametrize("option", [{"events": True}, {"dedupe_window": "1h"}, {"dead_max": 10}, {"dead_ttl": "1d"}])
@pytest.mark.parametrize("role", ROLES)
def test_option_that_counts_for_all_processes_takes_an_admin(open_as, role, option):
    queue = open_as(role, **option)
    if role is Role.ADMIN:
        queue.open()
    else:
        with pytest.raises(ServerError, match=r"(?i)no permissions to "):
            queue.open()
    queue.close()


def test_roles_can_be_combined(guarded, admin):
    grant(admin, "both", Role.PRODUCER, Role.CONSUMER)
    done = []
    with DelayQueue("reminders", url=url_of(guarded, "both")) as queue:

        @queue.callback
        def follow_up(message):
            done.append(message.payload)
            if message.payload == 1:
                queue.send_delay_msg(2)

        queue.send_delay_msg(1)
        queue.run(burst=True)
    assert done == [1, 2]


def test_producer_wakes_an_idle_consumer(guarded, admin):
    seen = []
    with (
        DelayQueue("reminders", url=url_of(guarded, Role.CONSUMER), callback=seen.append, tick="1h") as consumer,
        DelayQueue("reminders", url=url_of(guarded, Role.PRODUCER)) as producer,
    ):
        consumer.start_consume()
        wait_until(lambda: admin.info("clients")["blocked_clients"] == 1)
        producer.send_delay_msg(1)
        wait_until(lambda: seen)


@pytest.mark.long
@pytest.mark.faults
def test_roles_suffice_on_a_cluster(face):
    # The port of the cluster's bus too: 10,000 above its own it could be that of an outgoing connection.
    with RedisServer("--cluster-enabled", "yes", "--cluster-port", str(free_port()), tcp=True) as server:
        with server.client() as admin:
            admin.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
            wait_until(lambda: b"cluster_state:ok" in admin.execute_command("CLUSTER", "INFO", **RAW))
            for role in ROLES:
                grant(admin, role, role)
        at = {role: f"redis+cluster://{role}:secret@127.0.0.1:{server.port}/0" for role in ROLES}
        queues = {role: face.open("reminders", url=url) for role, url in at.items()}
        assert queues[Role.ADMIN].preload() == len(preload())
        assert queues[Role.PRODUCER].send_delay_msg(1).new
        with queues[Role.CONSUMER].lease() as message:
            assert message.payload == 1
        assert queues[Role.INSPECTOR].stats().totals["acked"] == 1
        for queue in queues.values():
            queue.close()


def test_rights_are_limited_to_the_queue(guarded, admin):
    for role in ROLES:
        grant(admin, "narrow", role, queue="reminders")
        with DelayQueue("reminders2", url=url_of(guarded, "narrow")) as other, pytest.raises(ServerError):
            other.counts() if role is Role.INSPECTOR else other.send_delay_msg(1) if role is not Role.CONSUMER else (
                other.lease()
            )
        assert not [key for key in admin.keys("*") if b"{reminders2}" in key and b"meta" not in key]


def test_producer_cannot_reuse_a_spent_id_before_a_consumer_collects_it(guarded, admin):
    with DelayQueue("reminders", redis=admin) as all_rights:
        all_rights.send_delay_msg(1, id="bill-7", retries=0)
        with all_rights.lease() as message:
            call = all_rights.context.calls.nack(
                [delayq.broker.requests.Failure(*message.delivery.receipt, 50, "boom")]
            )
            assert all_rights.executor.call(call) == "2"  # spent, and not collected
            message.delivery.settled = True
        before = all_but_slots(admin)
        with DelayQueue("reminders", url=url_of(guarded, Role.PRODUCER)) as producer:
            with pytest.raises(ServerError, match=r"(?i)collect_garbage: .*no permissions"):
                producer.send_delay_msg(2, id="bill-7")
            assert all_but_slots(admin) == before
            with DelayQueue("reminders", url=url_of(guarded, Role.CONSUMER), callback=print) as consumer:
                consumer.run(burst=True)
            assert producer.send_delay_msg(2, id="bill-7").new


@pytest.mark.parametrize("role", [Role.PRODUCER, Role.CONSUMER, Role.INSPECTOR])
def test_missing_script_raises_until_an_admin_loads_it(role, guarded, admin, face):
    calls = {Role.PRODUCER: "send_delay_msg", Role.CONSUMER: "lease", Role.INSPECTOR: "counts"}
    queue = face.open("reminders", url=url_of(guarded, role))
    ask = {"send_delay_msg": lambda: queue.send_delay_msg(1), "lease": lambda: queue.lease(), "counts": queue.counts}
    ask[calls[role]]()
    admin.script_flush()
    before = all_but_slots(admin)
    with pytest.raises(
        ServerError,
        match=r"^\w+: Redis does not have this script, and .*'script(\|load)?'.* preload$",
    ):
        ask[calls[role]]()
    assert all_but_slots(admin) == before
    with DelayQueue("any", url=url_of(guarded, Role.ADMIN)) as loader:
        assert loader.preload() == len(preload())
    ask[calls[role]]()
    assert b"delayq:{any}:meta" not in admin.keys("*")
    queue.close()


@pytest.mark.long
@pytest.mark.faults
def test_consumer_continues_when_scripts_are_loaded_again(guarded, admin, caplog):
    seen = []
    with (
        DelayQueue("reminders", url=url_of(guarded, Role.CONSUMER), callback=seen.append, tick="50ms") as consumer,
        DelayQueue("reminders", url=url_of(guarded, Role.ADMIN)) as loader,
    ):
        loader.send_delay_msg(0, "1h")  # an empty queue is asked without a script
        consumer.start_consume()
        admin.script_flush()
        wait_until(lambda: "Redis does not have this script" in caplog.text)
        loader.preload()
        loader.send_delay_msg(1)
        wait_until(lambda: seen)


@pytest.mark.faults
def test_consumer_with_rights_of_before_it_told_of_itself_consumes_and_says_so_once(
    guarded, admin, caplog, monkeypatch
):
    monkeypatch.setattr(presence, "PRESENCE_EVERY", 0.05)
    seen = []
    older = [rule for rule in rules([Role.CONSUMER]) if not rule.endswith((":workers", ":beats", ":history"))]
    assert len(older) == len(rules([Role.CONSUMER])) - 3
    admin.execute_command("ACL", "SETUSER", "older", "on", ">secret", *older)
    try:
        with (
            DelayQueue("reminders", url=url_of(guarded, "older"), callback=seen.append, tick="50ms") as consumer,
            DelayQueue("reminders", url=url_of(guarded, Role.ADMIN)) as owner,
        ):
            consumer.start_consume()
            wait_until(lambda: "Redis refuses its reports" in caplog.text)
            for number in range(5):
                owner.send_delay_msg(number, "100ms")
                wait_until(lambda number=number: len(seen) == number + 1)
            owner.send_delay_msg(1, retries=0, id="spent")
            wait_until(lambda: owner.stats().totals.get("acked") == 6)
            assert consumer._consuming.healthy
            assert owner.workers() == []
            # rights that are brought up to date count at once
            admin.execute_command("ACL", "SETUSER", "older", *rules([Role.CONSUMER]))
            wait_until(owner.workers)
            consumer.stop_consume()
            assert owner.workers() == []
        assert caplog.text.count("Redis refuses its reports") == 1
        assert "Redis refused a call" not in caplog.text
    finally:
        admin.acl_deluser("older")


@pytest.mark.faults
@pytest.mark.parametrize("role", [Role.PRODUCER, Role.CONSUMER])
def test_user_who_may_not_log_sends_and_consumes(guarded, admin, role):
    """The other one may: each writes what it can."""
    seen = []
    admin.execute_command("ACL", "SETUSER", role, "-xadd")
    try:
        with (
            DelayQueue("reminders", redis=admin, events=True) as owner,
            DelayQueue("reminders", url=url_of(guarded, Role.PRODUCER)) as producer,
            DelayQueue("reminders", url=url_of(guarded, Role.CONSUMER), callback=seen.append) as consumer,
        ):
            owner.open()
            consumer.start_consume()
            producer.send_many(range(20))
            wait_until(lambda: owner.stats().totals.get("acked") == 20)
            assert sorted(message.payload for message in seen) == list(range(20))
            logged = {event.kind for event in owner.events()}
            assert logged == ({"sent"} if role is Role.CONSUMER else {"promoted", "delivered", "acked"})
            (text,) = (finding.text for finding in owner.examine().findings if finding.kind == "event log incomplete")
            assert "unless a Redis user lacks +xadd (see delayq acl)" in text
    finally:
        grant(admin, role, role)


def test_preload_works_with_the_embedded_redis():
    with DelayQueue("reminders", url="memory://preloaded") as queue:
        assert queue.preload() == len(preload())
        assert queue.send_delay_msg(1).new
