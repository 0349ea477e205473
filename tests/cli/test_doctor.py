"""`delayq doctor`: one line per finding, and an exit code that reports problems."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta

import pytest

from delayq import DelayQueue, NewMessage

KEY = "delayq:{{{}}}:{}"


@pytest.fixture(scope="module")
def safe_server(request):
    """A server without problems."""
    from tests.support.redis_server import RedisServer

    with RedisServer("--appendonly", "yes", "--appendfsync", "no") as server:
        yield server


@pytest.fixture
def redis_url(safe_server):
    with safe_server.client() as client:
        client.flushall()
    return safe_server.url


@pytest.fixture
def client(safe_server, redis_url):
    with safe_server.client() as client:
        yield client


@pytest.fixture
def other(redis_url):
    with DelayQueue("others", url=redis_url) as made:
        yield made


def lose_place(queue, client, id: str = "m") -> None:
    queue.send_delay_msg("hello", 60, id=id)
    client.zrem(KEY.format(queue.name, "pending"), id)


def keys(client):
    return {key: client.dump(key) for key in client.scan_iter()}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current folder, whose modules can be imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


APP = """
from delayq import {kind}

queue = {kind}("reminders", url={url!r}, owner="billing")


@queue.every("1h")
{prefix}def {function}(message):
    pass
"""


@pytest.mark.parametrize("kind", ["DelayQueue", "AsyncDelayQueue"])
def test_doctor_names_the_schedules_that_a_program_no_longer_declares(cli, queue, redis_url, folder, kind):
    with DelayQueue("reminders", url=redis_url, owner="billing") as before:
        for name in ("nightly", "sweep"):
            before.every("1h", name=name)(lambda message: None)
        before.schedules.apply()
    prefix = "async " if kind == "AsyncDelayQueue" else ""
    module = f"app_{kind.lower()}"
    (folder / f"{module}.py").write_text(APP.format(kind=kind, url=redis_url, prefix=prefix, function="sweep"))
    ended = cli("doctor", f"{module}:queue")
    assert (ended.code, ended.out, ended.err) == (4, "reminders  schedule without a function: 1 (nightly)\n", "")
    assert cli("doctor").code == 0
    queue.schedules.remove("nightly")
    assert cli("doctor", f"{module}:queue", "--deep").err == "no problems found in 1 queue\n"
    assert cli("doctor", f"{module}:other").code == 2


def test_doctor_refuses_the_stream_of_a_program(cli, redis_url, folder):
    text = f"from delayq.streams import StreamQueue\nqueue = StreamQueue('s', url={redis_url!r}, callback=print)\n"
    (folder / "app_stream.py").write_text(text)
    ended = cli("doctor", "app_stream:queue")
    assert (ended.code, ended.err) == (
        2,
        "delayq: app_stream:queue is a stream: doctor checks delay queues. See 'delayq doctor --help'.\n",
    )


def test_healthy_queues_have_no_findings(cli, queue, other):
    queue.send_delay_msg("hello", 60)
    other.send_delay_msg("hello")
    ended = cli("doctor")
    assert (ended.code, ended.out, ended.err) == (0, "", "no problems found in 2 queues\n")
    assert cli("doctor", "reminders", "--deep").err == "no problems found in 1 queue\n"
    assert cli("doctor", "--deep", "--json").json == {"healthy": True, "findings": []}


def test_server_without_queues_is_healthy(cli):
    assert cli("doctor").code == 0


def test_reports_problems_and_changes_nothing(cli, queue, client):
    lose_place(queue, client)
    before = keys(client)
    for arguments in (["--deep"], ["--deep", "--dry-run"], ["--deep", "--repair", "--dry-run"]):
        ended = cli("doctor", *arguments)
        assert (ended.code, ended.out) == (4, "reminders  payload without place: 1 (m)\n")
    assert keys(client) == before


def test_light_check_asks_for_a_deep_one(cli, queue, client):
    lose_place(queue, client)
    ended = cli("doctor")
    text = "reminders  counts do not add up: 1 messages, 0 of them in a state: run a deep examination\n"
    assert (ended.code, ended.out) == (4, text)


def test_reports_that_messages_are_due_and_nobody_consumes(cli, queue, other):
    past = datetime.now(UTC) - timedelta(minutes=15)
    queue.send_many(NewMessage(n, at=past) for n in range(3))
    other.send_delay_msg("not due", 60)
    ended = cli("doctor")
    assert ended.code == 4
    assert re.fullmatch(r"reminders  due, and nobody consumes: 3 messages, the first for 15m( \d+s)?\n", ended.out)
    (found,) = cli("doctor", "--repair", "--json").json["findings"]
    assert (found["kind"], found["count"], found["mended"]) == ("due, and nobody consumes", 3, 0)
    with queue.lease(n=2):
        assert cli("doctor").code == 0  # somebody is at work


def test_repair_fixes_findings(cli, queue, client):
    lose_place(queue, client)
    client.zadd(KEY.format("reminders", "pending"), {f"ghost-{number}": 5 for number in range(7)})
    ended = cli("doctor", "--repair", "--deep")
    first, second = ended.out.splitlines()
    assert first.startswith("reminders  place without payload: 7 (ghost-")
    assert first.endswith(", …)  repaired")
    assert second == "reminders  payload without place: 1 (m)  repaired"
    assert ended.code == 0
    assert cli("doctor", "--deep").code == 0
    assert queue.get("m").state == "ready"


def test_checks_only_the_named_queues(cli, queue, other, client):
    lose_place(queue, client)
    other.send_delay_msg("hello")
    assert cli("doctor", "others", "--deep").code == 0
    ended = cli("doctor", "others", "reminders", "reminders", "--deep", "--json")
    (finding,) = ended.json["findings"]
    assert finding == {
        "queue": "reminders",
        "kind": "payload without place",
        "count": 1,
        "mended": 0,
        "text": "",
        "ids": ["m"],
    }
    assert not ended.json["healthy"]


def test_incomplete_event_log_is_told_in_one_line_and_repaired(cli, redis_url, client):
    with DelayQueue("reminders", url=redis_url, events=True) as logged:
        logged.send_delay_msg("hello", 60)
        client.set(KEY.format("reminders", "events"), "a text")
        logged.send_delay_msg("hello", 60)
        line = (
            f"event log incomplete: 1 missing; {KEY.format('reminders', 'events')} is not a stream: --repair deletes it"
        )
        assert cli("doctor").out == f"reminders  {line}\n"
        ended = cli("doctor", "--repair")
        assert (ended.code, ended.out) == (0, f"reminders  {line}  repaired\n")
        assert cli("doctor").code == 0
        logged.send_delay_msg("hello", 60, id="m")
        assert [event.id for event in logged.events()] == ["m"]


def test_unknown_queue_is_not_found(cli, queue):
    queue.send_delay_msg("hello")
    ended = cli("doctor", "reminder")
    assert (ended.code, ended.line) == (3, "no queue named 'reminder', did you mean 'reminders'?")


def test_server_problem_is_reported_once(cli, queue, other, client):
    queue.send_delay_msg("hello", 60)
    other.send_delay_msg("hello", 60)
    client.config_set("maxmemory-policy", "allkeys-lru")
    try:
        ended = cli("doctor", "--repair")
        (line,) = ended.out.splitlines()
        assert line.startswith("server  Redis evicts keys when it is full")
        assert ended.code == 4
        (finding,) = cli("doctor", "--json").json["findings"]
        assert (finding["queue"], finding["kind"]) == (None, "server")
    finally:
        client.config_set("maxmemory-policy", "noeviction")


def test_queue_with_a_newer_schema_is_not_changed(cli, queue, client):
    lose_place(queue, client)
    client.hset(KEY.format("reminders", "meta"), "schema", 99)
    before = keys(client)
    ended = cli("doctor", "--repair", "--deep")
    assert (ended.code, ended.out.count("\n")) == (4, 1)
    assert "schema: queue reminders has schema 99, but this delayq knows only 8: upgrade delayq" in ended.out
    assert keys(client) == before


def test_terminal_escapes_in_ids_are_removed(cli, queue, client):
    queue.send_delay_msg("hello", 60)
    client.zadd(KEY.format("reminders", "pending"), {b"\x1b[31mred\xff\n": 5})
    ended = cli("doctor", "--deep", "--repair")
    assert ended.out == "reminders  place without payload: 1 (red\\xff )  repaired\n"
    client.zadd(KEY.format("reminders", "pending"), {b"\x1b[31mred": 5})
    assert "\x1b" not in cli("doctor", "--deep", "--json").out
    assert json.loads(cli("doctor", "--deep", "--json").out)["findings"][0]["ids"] == ["\x1b[31mred"]
