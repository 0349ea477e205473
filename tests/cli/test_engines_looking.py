"""`delayq list` and `show` of streams and work queues; every command with every engine."""

from __future__ import annotations

import base64
import json
import re
from datetime import datetime

import click
import pytest

from delayq import NewMessage, State
from delayq.cli import main
from delayq.cli.support.engines import ENGINES, GROUP
from delayq.streams import StreamQueue
from delayq.workqueue import Item, ItemState, WorkQueue
from tests.support.waiting import wait_until

STREAMS = ("--engine", "streams")
WORK = ("--engine", "workqueue")
STATES = {name: tuple(map(str, engine.capabilities.states)) for name, engine in ENGINES.items()}
EVIL = "evil \x1b[31mred\x1b[0m\x1b]0;title\x07\u202egnp!"


def test_states_match_those_of_the_engines():
    assert STATES["delay"] == tuple(State)
    assert STATES["workqueue"] == (ItemState.QUEUED, ItemState.PROCESSING)
    assert StreamQueue("tasks", url="memory://").group == GROUP


@pytest.fixture
def tasks(redis_url):
    """A message of a stream in each state: r, a, b, d."""
    with StreamQueue("tasks", url=redis_url) as made:
        made.send_many([NewMessage({"of": id}, id=id, headers={"trace": id}) for id in ("a", "b", "d")])
        held = {message.id: message for message in made.lease(n=3)}
        held["b"].nack(delay="1h", error="ConnectionError: refused")
        held["d"].reject("no such user")
        made.send({"of": "r"}, id="r")
        yield made


@pytest.fixture
def jobs(redis_client):
    """Items of a work queue: q queued, p leased, x whose lease has run out."""
    made = WorkQueue("jobs")
    for id in "xpq":
        made.add_item(redis_client, Item.from_json_data({"of": id}, id=id))
    for seconds in (0.05, 60):
        made.lease(redis_client, seconds)
    wait_until(lambda: not redis_client.exists("jobs:lease:x"))
    return made


# list


@pytest.mark.parametrize(
    ("state", "titles", "words"),
    [
        ("ready", "id entry retries payload", ["r", "3", '{"of":"r"}']),
        ("active", "id entry lease ends attempts consumer payload", ["a", "1", '{"of":"a"}']),
        ("backoff", "id entry next try attempts retries error", ["b", "in", "1h", "2", "ConnectionError:", "refused"]),
        ("dead", "id died attempts reason error", ["d", "1", "no", "such", "user"]),
    ],
)
def test_lists_each_state_of_a_stream(cli, tasks, state, titles, words):
    ended = cli("list", "tasks", *STREAMS, "--state", state)
    assert (ended.code, ended.err) == (0, "")
    head, row = ended.out.splitlines()
    assert head.split() == titles.split()
    assert set(words) <= set(row.split())
    (found,) = cli("list", "tasks", *STREAMS, "--json", "--state", state).json["messages"]
    assert (found["id"], found["state"]) == (words[0], state)
    assert found["payload"] == {"of": words[0]}
    assert found["entry"] == tasks.list(state).messages[0].entry


def test_lists_all_living_messages_of_an_engine_by_default(cli, tasks, jobs):
    head, *rows = (line.split() for line in cli("list", "tasks", *STREAMS).out.splitlines())
    assert head == ["id", "state", "entry", "payload"]
    assert [row[:2] for row in rows] == [["r", "ready"], ["a", "active"], ["b", "backoff"]]
    rows = [line.split() for line in cli("list", "jobs", *WORK).out.splitlines()]
    assert [row[:2] for row in rows] == [["id", "state"], ["q", "queued"], ["x", "processing"], ["p", "processing"]]


def test_lists_each_state_of_a_work_queue(cli, jobs):
    assert cli("list", "jobs", *WORK, "--state", "queued").out == 'id  payload\nq   {"of":"q"}\n'
    head, expired, held = cli("list", "jobs", *WORK, "--state", "processing").out.splitlines()
    assert head.split() == ["id", "lease", "ends", "consumer", "payload"]
    assert expired.split() == ["x", "expired", '{"of":"x"}']
    assert held.split()[:2] == ["p", "in"]
    assert jobs._session in held
    (first, second) = cli("list", "jobs", *WORK, "--state", "processing", "--json").json["messages"]
    assert set(first) == {"id", "state", "payload", "encoding", "truncated", "size", "deadline", "consumer"}
    assert (first["id"], first["consumer"], first["deadline"]) == ("x", None, None)
    assert (second["consumer"], second["deadline"][-1]) == (jobs._session, "Z")


def test_lease_option_sets_the_deadlines_shown(cli, tasks):
    def minutes(*options):
        found = cli("show", "tasks", "a", *STREAMS, *options, "--json").json
        return (datetime.fromisoformat(found["deadline"]) - datetime.fromisoformat(found["due"])).total_seconds() / 60

    assert 0.49 < minutes() < 5  # times are rounded to milliseconds
    assert 59.9 < minutes("--lease", "1h") < 65
    assert "in 1h" in cli("list", "tasks", *STREAMS, "--state", "active", "--lease", "61m").out


@pytest.mark.parametrize(("engine", "name"), [("streams", "tasks"), ("workqueue", "jobs")])
def test_ten_thousand_messages_are_listed_in_pages(cli, redis_client, redis_url, engine, name):
    if engine == "streams":
        with StreamQueue(name, url=redis_url) as queue:
            queue.send_many([NewMessage(n, id=f"m{n}") for n in range(10_000)])
    else:
        redis_client.mset({f"jobs:item:m{n}": b"%d" % n for n in range(10_000)})
        redis_client.lpush("jobs:queue", *(f"m{n}" for n in range(10_000)))
    first = cli("list", name, "--engine", engine, "--limit", "3")
    assert [line.split()[0] for line in first.out.splitlines()[1:]] == ["m0", "m1", "m2"]
    cursor = first.err.splitlines()[-1].partition("--cursor ")[2].partition(",")[0]
    page = cli("list", name, "--engine", engine, "--limit", "3", "--cursor", cursor, "--json").json
    assert [one["id"] for one in page["messages"]] == ["m3", "m4", "m5"]
    everything = cli("list", name, "--engine", engine, "--all", "--json").out.splitlines()
    assert [one["payload"] for line in everything for one in json.loads(line)["messages"]] == list(range(10_000))
    assert json.loads(everything[-1])["cursor"] is None


@pytest.mark.parametrize(("engine", "name"), [("streams", "tasks"), ("workqueue", "jobs")])
def test_control_characters_are_not_printed(cli, redis_client, engine, name):
    if engine == "streams":
        redis_client.xadd(name, {"id": EVIL, "payload": EVIL, "headers": json.dumps({EVIL: EVIL})})
        redis_client.xadd(name, {"id": "bytes", "payload": b"\xff\x00"})
        id = redis_client.xrange(name)[0][0].decode()
    else:
        WorkQueue(name).add_item(redis_client, Item(EVIL, id=EVIL))
        WorkQueue(name).add_item(redis_client, Item(b"\xff\x00", id="bytes"))
        redis_client.set(f"{name}:item:".encode() + b"\xfe", EVIL)
        redis_client.lpush(f"{name}:queue", b"\xfe")
        id = EVIL
    for ended in (
        cli("list", name, "--engine", engine),
        cli("list", name, "--engine", engine, "--json"),
        cli("show", name, id, "--engine", engine),
        cli("show", name, id, "--engine", engine, "--json"),
        cli("show", name, EVIL + "x", "--engine", "workqueue"),
    ):
        assert not {"\x1b", "\x07", "\u202e"} & set(ended.out + ended.err)
        assert len(ended.err.splitlines()) <= 1
    assert "2 bytes: ff 00" in cli("list", name, "--engine", engine).out
    shown = cli("show", name, "bytes", "--engine", engine, "--json").json
    assert (shown["encoding"], base64.b64decode(shown["payload"])) == ("base64", b"\xff\x00")


@pytest.mark.parametrize(("engine", "name"), [("streams", "tasks"), ("workqueue", "jobs")])
def test_narrow_terminal_cuts_payloads(cli, tasks, jobs, engine, name):
    for state in STATES[engine]:
        out = cli("list", name, "--engine", engine, "--state", state, env={"COLUMNS": "40"}).out
        assert out
        assert max(map(len, out.splitlines())) <= 40


# show


def test_shows_a_message_of_a_stream_by_id_and_by_entry(cli, tasks):
    for state in STATES["streams"]:
        (message,) = tasks.list(state).messages
        # Stream and dead letter number their entries separately: an entry in both means that of the stream.
        names = (message.id,) if state == "dead" else (message.id, message.entry)
        for shown in (cli("show", "tasks", name, *STREAMS) for name in names):
            assert shown.code == 0
            assert re.search(rf"^state +{state}$", shown.out, re.MULTILINE)
            assert re.search(rf"^entry +{message.entry}$", shown.out, re.MULTILINE)
    assert "header trace  b" in cli("show", "tasks", "b", *STREAMS).out


def test_shows_an_item_of_a_work_queue(cli, jobs, redis_client):
    assert cli("show", "jobs", "q", *WORK).out.startswith("id       q\nstate    queued\npayload  json, 10 bytes\n\n{\n")
    expired = cli("show", "jobs", "x", *WORK).out
    assert "state       processing\nlease ends  expired: a clean requeues it\n" in expired
    held = cli("show", "jobs", "p", *WORK).out
    assert f"consumer    {jobs._session}\n" in held
    redis_client.set("jobs:item:lost", "1")
    assert cli("show", "jobs", "lost", *WORK, "--json").json["state"] == "orphaned"
    redis_client.set("jobs:item:any text, ü", "1")
    assert cli("show", "jobs", "any text, ü", *WORK).code == 0


def test_missing_message_or_queue_exits_3(cli, tasks, jobs):
    line = cli("show", "tasks", "unknown", *STREAMS).line
    assert line.startswith(
        "no message 'unknown' in tasks: it was never sent, or is done; delayq worker --log-messages "
    )
    assert cli("show", "tasks", "1-1", *STREAMS).code == 3
    ended = cli("show", "jobs", "unknown", *WORK)
    assert (ended.code, ended.line) == (
        3,
        "no item 'unknown' in jobs: it was never added, or is completed, which leaves no trace",
    )
    for command in (("list", "nothing"), ("show", "nothing", "7"), ("stats", "nothing")):
        ended = cli(*command, *STREAMS)
        assert (ended.code, ended.line) == (3, "no stream named 'nothing'")
    ended = cli("list", "nothing", *WORK)
    assert (ended.code, ended.out, ended.err) == (0, "", "no items in nothing\n")


def test_show_reports_how_far_it_searched_a_long_stream(cli, tasks, monkeypatch):
    monkeypatch.setattr("delayq.streams.inspector.MAX_SEARCHED", 2)
    ended = cli("show", "tasks", "unknown", *STREAMS)
    assert ended.code == 3
    assert ended.line == "no message 'unknown' in tasks: searched only its first 2 entries; give the entry instead"


# Usage errors


@pytest.mark.parametrize("engine", ENGINES)
def test_state_of_another_engine_is_a_usage_error(cli, engine):
    for state in {state for states in STATES.values() for state in states} - set(STATES[engine]):
        ended = cli("list", "tasks", "--engine", engine, "--state", state)
        assert ended.code == 2
        assert ended.line.startswith(f"the {engine} engine has no state {state!r}: use one of {STATES[engine][0]}, ")


@pytest.mark.parametrize("option", [("--group", "others"), ("--lease", "1m")])
@pytest.mark.parametrize("engine", ["delay", "workqueue"])
@pytest.mark.parametrize("command", [("list", "tasks"), ("show", "tasks", "7"), ("stats", "tasks")])
def test_stream_options_are_refused_for_other_engines(cli, command, engine, option):
    if command[0] == "stats" and option[0] == "--lease":
        return
    ended = cli(*command, "--engine", engine, *option)
    assert ended.code == 2
    assert ended.line.startswith(f"{option[0]} needs --engine streams.")


def test_stream_option_in_the_environment_is_ignored_by_other_engines(cli, jobs):
    assert cli("stats", "jobs", *WORK, env={"DELAYQ_STATS_GROUP": "others"}).code == 0


@pytest.mark.parametrize(
    "arguments",
    [("--cursor", "x"), ("--cursor", "1\x1b[31m"), ("--limit", "0"), ("--limit", "1001"), ("--group", "a b")],
    ids=str,
)
def test_invalid_option_prints_one_line(cli, tasks, arguments):
    assert cli("list", "tasks", *STREAMS, *arguments).code == 2
    if arguments[0] != "--group":
        assert cli("list", "jobs", *WORK, *arguments).code == 2


@pytest.mark.parametrize("command", [("list", "tasks"), ("show", "tasks", "1-1"), ("stats", "tasks")])
def test_key_of_another_type_prints_one_line(cli, redis_client, command):
    redis_client.set("tasks", "text")
    redis_client.set("tasks:queue", "text")
    redis_client.set("tasks:item:1-1", "text")
    for engine in ("streams", "workqueue"):
        ended = cli(*command, "--engine", engine)
        assert ended.code == 1
        assert "WRONGTYPE" in ended.line


# Groups


def test_group_option_selects_the_group_of_a_stream(cli, redis_url, tasks):
    with StreamQueue("tasks", url=redis_url, group="others") as others:
        assert others.lease().messages
        ended = cli("stats", "tasks", *STREAMS, "--group", "others", "--json").json
        assert (ended["group"], ended["group_exists"], ended["active"], ended["backoff"]) == ("others", True, 1, 0)
        assert cli("list", "tasks", *STREAMS, "--state", "active", env={"DELAYQ_LIST_GROUP": "others"}).out
        (held,) = cli("list", "tasks", *STREAMS, "--state", "active", "--group", "others", "--json").json["messages"]
        assert held["consumer"] == others.executor.consumer_id
        assert cli("show", "tasks", held["id"], *STREAMS, "--group", "others", "--json").json["state"] == "active"


def test_reading_reports_a_missing_group_and_does_not_create_it(cli, redis_client):
    redis_client.xadd("tasks", {"payload": "1"})
    before = redis_client.dump("tasks")
    note = "tasks has no group 'workers' yet: it begins with the first message of the stream"
    assert cli("stats", "tasks", *STREAMS).out.splitlines()[-1] == note
    assert cli("stats", "tasks", *STREAMS, "--json").json["group_exists"] is False
    for ended in (
        cli("list", "tasks", *STREAMS),
        cli("list", "tasks", *STREAMS, "--json"),
        cli("show", "tasks", redis_client.xrange("tasks")[0][0].decode(), *STREAMS),
    ):
        assert (ended.code, ended.err) == (0, f"{note}\n")
    assert redis_client.dump("tasks") == before
    assert redis_client.keys() == [b"tasks"]
    redis_client.xgroup_create("tasks", "go", "0")
    assert "has no group 'gone' yet (it has go): " in cli("list", "tasks", *STREAMS, "--group", "gone").err


# Every command, with every engine


def commands(group: click.Group, *path: str):
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        yield from commands(command, *path, name) if isinstance(command, click.Group) else [((*path, name), command)]


VERBS = [
    path
    for path, _ in commands(main)
    if path[0] not in {"demo", "tour", "torture", "docs", "acl", "preload", "migrate"}
]
"""All commands that work on a queue. The others run their own programs, or have their engine tested elsewhere."""
WORDS = {
    "send": ("1",),
    "worker": (),
    "relay": ("others",),
    "show": ("7",),
    "cancel": ("7",),
    "reschedule": ("7", "--delay", "1h"),
    "purge": ("--yes",),
    "dead redrive": ("--all", "--yes"),
    "dead purge": ("--all", "--yes"),
    "spark load": ("table",),
    "archive": ("archive",),
}


@pytest.mark.parametrize("engine", ["streams", "workqueue"])
@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
@pytest.mark.usefixtures("tasks", "jobs")
def test_every_command_works_or_prints_in_one_line_that_it_is_unsupported(cli, redis_client, engine, verb):
    name = "tasks" if engine == "streams" else "jobs"
    queue = ("--queue", name, "--deliver", "log") if verb == ("worker",) else (name,)
    if verb == ("worker",) and engine == "streams":
        return  # test_engines.py tests it
    before = {key: redis_client.dump(key) for key in redis_client.scan_iter() if b":lease:" not in key}
    ended = cli(*verb, *queue, *WORDS.get(" ".join(verb), ()), "--engine", engine)
    assert "Traceback" not in ended.out + ended.err
    if ended.code == 2:
        assert len(ended.err.splitlines()) == 1
        assert "engine has no" in ended.err or "No such option" in ended.err
        assert {key: redis_client.dump(key) for key in before} == before
    else:
        assert verb[0] in {"send", "stats", "list", "show", "dead"}
        assert ended.code in {0, 3}, ended.err
