"""`--engine`: streams and work queues from the command line, and the commands that they do not support."""

import re
from pathlib import Path

import pytest

import delayq
from delayq.cli.support.engines import ENGINES
from delayq.streams import StreamQueue
from delayq.workqueue import WorkQueue
from tests.support.faulty_proxy import FaultyProxy

pytestmark = pytest.mark.timeout(180)  # a process starts in a second, or in ten on a machine that is busy

STREAMS = ("--engine", "streams")
WORK = ("--engine", "workqueue")
OTHERS = ("streams", "workqueue")
OUT_OF_REACH = {"DELAYQ_URL": "redis://127.0.0.1:1"}

APP = """
from delayq import DelayQueue
from delayq.streams import AsyncStreamQueue, StreamQueue
from delayq.workqueue import WorkQueue

tasks = StreamQueue("tasks", tick=0.2)
later = AsyncStreamQueue("tasks", tick=0.2)
jobs = WorkQueue("jobs")

@tasks.callback
def work(message):
    print("worked on", message.payload["n"], flush=True)

@later.callback
async def work_later(message):
    work(message)
"""


@pytest.fixture
def tasks(redis_url):
    with StreamQueue("tasks", url=redis_url) as made:
        yield made


@pytest.fixture
def jobs(redis_client):
    """What a worker takes from the work queue: id and data."""

    def take() -> tuple[str, bytes] | None:
        item = WorkQueue("jobs").lease(redis_client, 30, block=False)
        return item and (item.id(), item.data())

    return take


def waiting(cli, name, engine):
    """Return how many messages wait to be taken for the first time."""
    return cli("stats", name, "--engine", engine, "--json").json[ENGINES[engine].capabilities.states[0]]


# send


def test_send_adds_a_message_to_a_stream(cli, tasks):
    ended = cli("send", "tasks", '{"user": 42}', *STREAMS, "--id", "7", "--retries", "5", "--header", "trace=1")
    assert (ended.code, ended.out, ended.err) == (0, "7\n", "sent to tasks\n")
    with tasks.lease() as message:
        assert (message.id, message.payload) == ("7", {"user": 42})
        assert (message.retries_left, message.headers) == (5, {"trace": "1"})


def test_send_adds_an_item_to_a_work_queue(cli, jobs):
    ended = cli("send", "jobs", '{"image": 7}', *WORK, "--id", "7")
    assert (ended.code, ended.out, ended.err) == (0, "7\n", "sent to jobs\n")
    assert jobs() == ("7", b'{"image":7}')


@pytest.mark.parametrize("engine", OTHERS)
def test_send_does_not_change_a_message_with_the_same_id(cli, engine):
    first = cli("send", "tasks", "1", "--id", "7", "--engine", engine, "--json")
    again = cli("send", "tasks", "2", "--id", "7", "--engine", engine, "--json")
    assert first.json == {"queue": "tasks", "id": "7", "status": "new"}
    assert again.json == {"queue": "tasks", "id": "7", "status": "exists"}
    shown = cli("send", "tasks", "2", "--id", "7", "--engine", engine)
    assert shown.code == 0
    assert shown.err == "not sent to tasks: a message with this id exists\n"


@pytest.mark.parametrize("engine", OTHERS)
def test_send_reads_one_message_per_line(cli, engine):
    ended = cli("send", "tasks", "-", "--engine", engine, stdin=b"".join(b"%d\n" % n for n in range(1200)))
    assert (ended.code, ended.out) == (0, "sent 1,200 messages to tasks\n")
    assert waiting(cli, "tasks", engine) == 1200


@pytest.mark.parametrize("engine", OTHERS)
def test_lost_reply_does_not_send_twice(cli, redis_url, monkeypatch, engine):
    monkeypatch.setattr("delayq.testing.torture.disturbing.tcp_proxy.SCRIPT", b"EVAL")
    with FaultyProxy(redis_url) as proxy:
        proxy.drop_replies(1)
        ended = cli("--url", proxy.url, "send", "tasks", "1", "--engine", engine, "--json")
    assert ended.json["status"] == "new"
    assert waiting(cli, "tasks", engine) == 1


def test_work_queue_takes_any_bytes(cli, jobs):
    assert cli("send", "jobs", "-", *WORK, "--codec", "bytes", stdin=b"\xff\x00\n").code == 0
    assert jobs()[1] == b"\xff\x00"


def test_engine_is_read_from_the_environment(cli, jobs):
    assert cli("send", "jobs", "1", env={"DELAYQ_SEND_ENGINE": "workqueue"}).code == 0
    assert jobs()[1] == b"1"


@pytest.mark.parametrize(
    ("engine", "name"), [("streams", "eu:tasks.{a}"), ("streams", "a/b@c"), ("workqueue", "thumb nails*:ü")]
)
def test_each_engine_has_its_own_rules_for_queue_names(cli, engine, name):
    assert cli("send", name, "1", "--engine", engine).code == 0
    assert waiting(cli, name, engine) == 1
    assert cli("send", name, "1").code == 2


def test_invalid_stream_name_is_a_usage_error(cli):
    ended = cli("send", "a b", "1", *STREAMS)
    assert ended.code == 2
    assert ended.line.startswith("stream must be 1 to 200 of")


# stats


def test_stats_of_a_stream(cli, tasks):
    tasks.send_many([1, 2, 3, 4])
    first, second, third = tasks.lease(n=3)
    first.nack(delay=60)
    second.reject("wrong")
    assert third.payload == 3
    ended = cli("stats", "tasks", *STREAMS, "--json")
    assert ended.json == {
        "queue": "tasks",
        "group": "workers",
        "group_exists": True,
        "ready": 1,
        "active": 1,
        "backoff": 1,
        "dead": 1,
    }
    shown = cli("stats", "tasks", *STREAMS)
    assert shown.code == 0
    assert shown.out.split() == ["state", "messages", "ready", "1", "active", "1", "backoff", "1", "dead", "1"]


def test_stats_of_a_work_queue(cli, jobs):
    for n in range(3):
        cli("send", "jobs", str(n), *WORK)
    jobs()
    ended = cli("stats", "jobs", *WORK, "--json")
    assert ended.json == {"queue": "jobs", "queued": 2, "processing": 1}
    assert cli("stats", "empty", *WORK, "--json").json == {"queue": "empty", "queued": 0, "processing": 0}


def test_stats_of_a_missing_stream(cli):
    ended = cli("stats", "tasks", *STREAMS)
    assert (ended.code, ended.line) == (3, "no stream named 'tasks'")


def test_stats_creates_no_keys(cli, tasks, redis_client):
    redis_client.xadd("tasks", {"payload": "1"})
    assert cli("stats", "tasks", *STREAMS, "--json").json["ready"] == 1
    cli("stats", "jobs", *WORK)
    assert redis_client.keys() == [b"tasks"]


def test_stats_watch_prints_again_and_again(start, tasks, redis_url):
    tasks.send(1)
    program = start("stats", "tasks", *STREAMS, "--watch", "--every", "100ms", "--json")
    program.until(lambda: '"ready":1' in program.out, "the first stats")
    tasks.send(2)
    program.until(lambda: '"ready":2' in program.out, "the second stats")
    program.signal(2)
    assert program.ends() == 0


# worker


@pytest.mark.long
@pytest.mark.parametrize("target", ["app:tasks", "app:later"])
def test_worker_consumes_a_stream_queue_of_a_module(start, tasks, tmp_path, target):
    (tmp_path / "app.py").write_text(APP)
    tasks.send_many([{"n": 1}, {"n": 2}])
    ended = start("worker", target, "--burst").ended()
    assert ended.code == 0, ended.err
    assert sorted(ended.out.splitlines()) == ["worked on 1", "worked on 2"]
    assert "draining tasks, 1 at a time" in ended.err
    assert tasks.counts().living == 0


@pytest.mark.long
def test_stream_worker_stops_on_a_signal(start, tasks, tmp_path):
    (tmp_path / "app.py").write_text(APP)
    program = start("worker", "app:tasks", "--processes", "2")
    program.says("consuming tasks", times=2)
    tasks.send({"n": 1})
    program.until(lambda: "worked on 1" in program.out, "the work")
    program.signal()
    assert program.ends() == 0


def test_worker_delivers_a_stream_without_code(start, tasks):
    tasks.send({"n": 1}, id="a")
    ended = start("worker", "--queue", "tasks", *STREAMS, "--deliver", "log", "--burst").ended()
    assert ended.code == 0, ended.err
    assert (ended.json["id"], ended.json["payload"]) == ("a", {"n": 1})
    assert tasks.counts().living == 0


@pytest.mark.long
def test_delivering_processes_get_the_engine_and_the_group(start, tasks):
    tasks.send({"n": 1}, id="a")
    words = ("worker", "--queue", "tasks", *STREAMS, "--group", "others", "--deliver", "log", "--burst")
    ended = start(*words, "--processes", "2").ended()
    assert ended.code == 0, ended.err
    assert ended.json["id"] == "a"
    assert list(tasks.groups()) == ["others"]


def test_engine_option_is_refused_for_a_module(cli):
    assert cli("worker", "app:tasks", *STREAMS).line.startswith("--engine needs --deliver.")


def test_worker_refuses_a_work_queue_of_a_module(cli, importing):
    (importing / "app.py").write_text(APP)
    ended = cli("worker", "app:jobs")
    assert ended.code == 2
    assert ended.line.startswith("the workqueue engine has no callback consumer: call lease and complete")


# Dead letter of a stream


@pytest.fixture
def dying(tasks):
    """Puts messages into the dead letter: id to reason."""

    def die(**reasons: str) -> None:
        for id, reason in reasons.items():
            tasks.send({"of": id}, id=id)
            (message,) = tasks.lease()
            message.reject(reason)

    return die


def test_dead_messages_of_a_stream_are_listed(cli, dying):
    dying(a="wrong", b="evil", c="wrong")
    pages = cli("dead", "list", "tasks", *STREAMS, "--limit", "2", "--json").json
    assert [(one["id"], one["reason"], one["payload"]) for one in pages["messages"]] == [
        ("a", "wrong", {"of": "a"}),
        ("b", "evil", {"of": "b"}),
    ]
    rest = cli("dead", "list", "tasks", *STREAMS, "--cursor", pages["cursor"], "--json").json
    assert [one["id"] for one in rest["messages"]] == ["c"]
    shown = cli("dead", "list", "tasks", *STREAMS, "--reason", "evil")
    assert "evil" in shown.out
    assert "wrong" not in shown.out


def test_dead_messages_of_a_stream_are_redriven(cli, tasks, dying):
    dying(a="wrong", b="evil", c="wrong", d="late")
    entry = tasks.dead.list().messages[1].entry
    assert cli("dead", "redrive", "tasks", entry, *STREAMS).out == "redrove 1 message\n"
    assert cli("dead", "redrive", "tasks", "a", *STREAMS, "--retries", "9").code == 0
    assert (
        cli("dead", "redrive", "tasks", "--reason", "wrong", *STREAMS, "--dry-run").out == "would redrive 1 message\n"
    )
    assert cli("dead", "redrive", "tasks", "--reason", "wrong", *STREAMS, "--yes").out == "redrove 1 message\n"
    tasks.send("new", id="d")
    exists = cli("dead", "redrive", "tasks", "d", *STREAMS, "--json")
    assert exists.code == 1
    assert (exists.json["redriven"], exists.json["exists"]) == (0, 1)
    assert cli("dead", "redrive", "tasks", "unknown", *STREAMS).code == 3
    assert cli("dead", "redrive", "tasks", "--all", *STREAMS, "--yes").code == 0
    assert [(one.id, one.retries_left) for one in tasks.lease(n=9)] == [("b", 3), ("a", 9), ("c", 3), ("d", 3)]


def test_dead_messages_of_a_stream_are_purged(cli, tasks, dying):
    dying(a="wrong", b="evil", c="wrong", d="late")
    assert cli("dead", "purge", "tasks", "a", *STREAMS).out == "deleted 1 message\n"
    assert cli("dead", "purge", "tasks", "--reason", "wrong", *STREAMS, "--yes").out == "deleted 1 message\n"
    assert [one.id for one in tasks.dead.list().messages] == ["b", "d"]
    assert cli("dead", "purge", "tasks", "--all", *STREAMS, "--yes").out == "deleted 2 messages\n"
    assert tasks.counts().dead == 0


def test_id_selects_its_latest_dead_message(cli, tasks, dying):
    dying(a="first")
    dying(a="second")
    assert cli("dead", "purge", "tasks", "a", *STREAMS).code == 0
    assert [one.reason for one in tasks.dead.list().messages] == ["first"]


def test_dead_list_of_a_missing_stream_is_an_error(cli):
    assert cli("dead", "list", "nothing", *STREAMS).line == "no stream named 'nothing'"


# Unsupported commands


UNSUPPORTED = [
    *[
        ("streams", ("send", "tasks", "1", *options), what)
        for options, what in [
            (("--delay", "1h"), "delays"),
            (("--at", "2099-01-01T00:00Z"), "delays"),
            (("--replace",), "replacing"),
        ]
    ],
    *[
        ("workqueue", ("send", "tasks", "1", *options), what)
        for options, what in [
            (("--delay", "1h"), "delays"),
            (("--at", "2099-01-01T00:00Z"), "delays"),
            (("--replace",), "replacing"),
            (("--retries", "0"), "retries"),
            (("--header", "a=b"), "headers"),
        ]
    ],
    ("workqueue", ("worker", "--queue", "tasks", "--deliver", "log"), "callback consumer"),
    ("workqueue", ("dead", "list", "tasks"), "dead letter"),
    ("workqueue", ("dead", "redrive", "tasks", "--all"), "dead letter"),
    ("workqueue", ("dead", "purge", "tasks", "--all"), "dead letter"),
    *[
        (engine, command, what)
        for engine in OTHERS
        for command, what in [
            (("queues",), "registry of queues"),
            (("events", "tasks"), "event log"),
            (("runs", "tasks"), "run ledger"),
            (("relay", "tasks", "others"), "delays"),
            (("forecast", "tasks"), "delays"),
            (("search", "tasks", "ada"), "searching messages"),
            (("why", "tasks"), "reasons for waiting"),
            (("export", "tasks"), "export and import"),
            (("import", "tasks", "-"), "export and import"),
            (("doctor", "tasks"), "repair"),
            (("schedules", "list", "tasks"), "schedules"),
            (("schedules", "add", "tasks", "daily", "--every", "1d"), "schedules"),
            (("remind", "list"), "reminders"),
            (("spark", "load", "table", "tasks"), "bulk load"),
            (("cancel", "tasks", "7"), "cancelling and rescheduling"),
            (("kill", "tasks", "7"), "killing"),
            (("edit", "tasks", "7", "1"), "editing"),
            (("forget", "tasks", "7", "--yes"), "forgetting"),
            (("reschedule", "tasks", "7", "--delay", "1h"), "cancelling and rescheduling"),
            (("pause", "tasks"), "pausing"),
            (("resume", "tasks"), "pausing"),
            (("purge", "tasks", "--yes"), "purging"),
            (("remove", "tasks", "--yes"), "removing queues"),
        ]
    ],
]


@pytest.mark.parametrize(("engine", "command", "what"), UNSUPPORTED, ids=lambda value: str(value)[:40])
def test_unsupported_command_prints_one_line(cli, redis_client, engine, command, what):
    ended = cli(*command, "--engine", engine)
    assert (ended.code, ended.out) == (2, "")
    assert ended.line.startswith(f"the {engine} engine has no {what}")
    assert redis_client.keys() == []


COMMANDS = {
    "delayq send": ("send", "tasks", "1"),
    "delayq stats": ("stats", "tasks"),
    "delayq worker": ("worker", "--queue", "tasks", "--deliver", "log", "--burst"),
    "delayq dead": ("dead", "list", "tasks"),
    "delayq forecast": ("forecast", "tasks"),
    "delayq list": ("list", "tasks"),
    "delayq search": ("search", "tasks", "ada"),
    "delayq show": ("show", "tasks", "7"),
    "delayq why": ("why", "tasks", "7"),
    "delayq workers": ("workers", "tasks"),
    "delayq history": ("history", "tasks"),
    "delayq metrics": ("metrics", "tasks", "--once"),
    "delayq notify": ("notify", "tasks", "--deliver", "log", "--once"),
    "delayq health": ("health", "tasks"),
    "delayq cancel": ("cancel", "tasks", "7"),
    "delayq kill": ("kill", "tasks", "7"),
    "delayq edit": ("edit", "tasks", "7", "1"),
    "delayq forget": ("forget", "tasks", "7", "--yes"),
    "delayq reschedule": ("reschedule", "tasks", "7", "--delay", "1h"),
    "delayq pause": ("pause", "tasks"),
    "delayq resume": ("resume", "tasks"),
    "delayq limits": ("limits", "list", "tasks"),
    "delayq purge": ("purge", "tasks", "--yes"),
    "delayq remove": ("remove", "tasks", "--yes"),
    "delayq export": ("export", "tasks"),
    "delayq import": ("import", "tasks", "-"),
}


def table() -> dict[tuple[str, str], str]:
    """Return the cells of the table of commands in the handbook, by command and engine."""
    page = (Path(delayq.__file__).parent / "docs" / "engines.md").read_text()
    found = re.search(r"^\| command \| (.*) \|\n\|[-|]+\|\n((?:\|.*\n)+)", page, re.MULTILINE)
    engines = found[1].split(" | ")
    rows = [[cell.strip(" `") for cell in row.strip("|").split(" | ")] for row in found[2].splitlines()]
    return {(name, engine): cell for name, *cells in rows for engine, cell in zip(engines, cells, strict=True)}


def test_handbook_table_lists_these_commands_and_engines():
    assert list(table()) == [(name, engine) for name in COMMANDS for engine in ENGINES]


@pytest.mark.parametrize(("command", "engine"), table())
def test_each_cell_of_the_handbook_table_is_true(cli, start, command, engine):
    """A supported command reaches for Redis, and fails with 69: there is no Redis here."""
    words = ("--timeout", "100ms", *COMMANDS[command], "--engine", engine)
    if command == "delayq worker":  # which would configure the logging of this process
        ended = start(*words, url=OUT_OF_REACH["DELAYQ_URL"]).ended()
    else:
        ended = cli(*words, env=OUT_OF_REACH)
    assert ended.code == {"yes": 69, "no": 2}[table()[command, engine]], ended.err


@pytest.mark.parametrize("engine", ["stream", "go"])
def test_unknown_engine_is_a_usage_error(cli, engine):
    ended = cli("send", "tasks", "1", "--engine", engine)
    assert ended.code == 2
    assert all(name in ended.line for name in ENGINES)


# Errors


@pytest.mark.parametrize("engine", OTHERS)
@pytest.mark.parametrize("command", [("send", "tasks", "1"), ("stats", "tasks")])
def test_unreachable_redis_exits_69(cli, engine, command):
    ended = cli("--timeout", "100ms", *command, "--engine", engine, env=OUT_OF_REACH)
    assert ended.code == 69
    assert "cannot be reached" in ended.line


@pytest.mark.parametrize("engine", OTHERS)
@pytest.mark.parametrize("command", [("send", "tasks", "1"), ("stats", "tasks")])
def test_key_of_another_type_exits_1(cli, redis_client, engine, command):
    redis_client.set("tasks" if engine == "streams" else "tasks:queue", "no list")
    ended = cli(*command, "--engine", engine)
    assert ended.code == 1
    assert "WRONGTYPE" in ended.line


@pytest.mark.parametrize("command", [("send", "jobs", "1"), ("stats", "jobs")])
def test_work_queue_in_a_cluster_needs_a_hash_tag(cli, command):
    ended = cli("--url", "redis+cluster://127.0.0.1:1", *command, *WORK)
    assert ended.code == 2
    assert "needs a hash tag" in ended.line


def test_password_is_not_printed(cli):
    ended = cli("--url", "redis://:secret@127.0.0.1:1", "--timeout", "100ms", "stats", "jobs", *WORK)
    assert ended.code == 69
    assert "secret" not in ended.err
