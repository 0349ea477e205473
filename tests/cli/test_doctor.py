"""`delayq doctor`: a line for each finding, and an exit code that says whether all is well."""

from __future__ import annotations

import json

import pytest

from delayq import DelayQueue

KEY = "delayq:{{{}}}:{}"


@pytest.fixture(scope="module")
def safe_server(request):
    """A server with nothing wrong about it."""
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


def test_all_is_well(cli, queue, other):
    queue.send_delay_msg("hello", 60)
    other.send_delay_msg("hello")
    ended = cli("doctor")
    assert (ended.code, ended.out, ended.err) == (0, "", "found nothing wrong with 2 queues\n")
    assert cli("doctor", "reminders", "--deep").err == "found nothing wrong with 1 queue\n"
    assert cli("doctor", "--deep", "--json").json == {"healthy": True, "findings": []}


def test_no_queue_is_well_too(cli):
    assert cli("doctor").code == 0


def test_tells_what_is_wrong_and_changes_nothing(cli, queue, client):
    lose_place(queue, client)
    before = keys(client)
    for arguments in (["--deep"], ["--deep", "--dry-run"], ["--deep", "--repair", "--dry-run"]):
        ended = cli("doctor", *arguments)
        assert (ended.code, ended.out) == (4, "reminders  payload without place: 1 (m)\n")
    assert keys(client) == before


def test_a_light_look_says_when_a_deep_one_is_needed(cli, queue, client):
    lose_place(queue, client)
    ended = cli("doctor")
    assert (ended.code, ended.out) == (4, "reminders  counts do not add up: 1 messages, 0 places: look deeply\n")


def test_repairs(cli, queue, client):
    lose_place(queue, client)
    client.zadd(KEY.format("reminders", "pending"), {f"ghost-{number}": 5 for number in range(7)})
    ended = cli("doctor", "--repair", "--deep")
    first, second = ended.out.splitlines()
    assert first.startswith("reminders  place without payload: 7 (ghost-")
    assert first.endswith(", …)  mended")
    assert second == "reminders  payload without place: 1 (m)  mended"
    assert ended.code == 0
    assert cli("doctor", "--deep").code == 0
    assert queue.get("m").state == "pending"


def test_looks_at_the_queues_that_are_named(cli, queue, other, client):
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


def test_an_unknown_queue_is_not_found(cli, queue):
    queue.send_delay_msg("hello")
    ended = cli("doctor", "reminder")
    assert (ended.code, ended.line) == (3, "no queue named 'reminder', did you mean 'reminders'?")


def test_what_is_wrong_with_the_server_is_told_once(cli, queue, other, client):
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


def test_a_newer_queue_is_left_alone(cli, queue, client):
    lose_place(queue, client)
    client.hset(KEY.format("reminders", "meta"), "schema", 99)
    before = keys(client)
    ended = cli("doctor", "--repair", "--deep")
    assert (ended.code, ended.out.count("\n")) == (4, 1)
    assert "schema: queue reminders has schema 99, this delayq knows 1: upgrade it" in ended.out
    assert keys(client) == before


def test_an_id_cannot_act_on_the_terminal(cli, queue, client):
    queue.send_delay_msg("hello", 60)
    client.zadd(KEY.format("reminders", "pending"), {b"\x1b[31mred\xff\n": 5})
    ended = cli("doctor", "--deep", "--repair")
    assert ended.out == "reminders  place without payload: 1 (red\\xff )  mended\n"
    client.zadd(KEY.format("reminders", "pending"), {b"\x1b[31mred": 5})
    assert "\x1b" not in cli("doctor", "--deep", "--json").out
    assert json.loads(cli("doctor", "--deep", "--json").out)["findings"][0]["ids"] == ["\x1b[31mred"]
