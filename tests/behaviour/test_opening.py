"""Opening: where a queue is found, what is checked at the start, and how queues are separated."""

from __future__ import annotations

import logging
import time

import pytest

from delayq import ConfigurationError, UnavailableError, UnsafeServerError
from tests.support.faces import Blocking
from tests.support.waiting import wait_until


def roundtrip(queue):
    seen = []
    queue.callback(lambda message: seen.append(message.payload))
    queue.send_delay_msg("hello")
    queue.run(burst=True)
    return seen == ["hello"]


# Addresses


def test_the_url_may_come_from_the_environment(open_queue, url, monkeypatch):
    monkeypatch.setenv("DELAYQ_URL", url)
    open_queue(url=None).send_delay_msg("hello", id="m")

    assert open_queue(url=url).get("m").payload == "hello"


def test_a_url_may_name_a_port(open_queue, start_redis):
    assert roundtrip(open_queue(url=start_redis(tcp=True).url))


@pytest.mark.parametrize("url", ["http://localhost", "localhost:6379", "redis://localhost:port", ""])
def test_invalid_url_is_refused(face, url, monkeypatch):
    monkeypatch.setenv("DELAYQ_URL", "nowhere")

    with pytest.raises(ConfigurationError, match="url"):
        face.open("reminders", url=url)


@pytest.mark.parametrize("protocol", [2, 3])
def test_passed_client_is_used_and_left_open(face, url, protocol):
    client = face.client(url, protocol=protocol)
    queue = face.open("reminders", redis=client)

    assert roundtrip(queue)
    queue.close()

    assert face.do(client.ping)
    face.do(client.close if isinstance(face, Blocking) else client.aclose)


def test_a_client_that_decodes_is_refused_with_the_reason(face, url):
    client = face.client(url, decode_responses=True)

    with pytest.raises(ConfigurationError, match="decode_responses=True"):
        face.open("reminders", redis=client)


def test_client_beside_a_url_is_refused(face, url):
    client = face.client(url)

    with pytest.raises(ConfigurationError, match="give url or redis, but not both"):
        face.open("reminders", url=url, redis=client)

    face.do(client.close if isinstance(face, Blocking) else client.aclose)


def test_object_that_is_not_a_redis_client_is_refused(face):
    with pytest.raises(ConfigurationError, match="redis must be a redis"):
        face.open("reminders", redis=object())


def test_an_unknown_option_is_refused_with_a_suggestion(face):
    with pytest.raises(ConfigurationError, match="did you mean 'concurrency'"):
        face.open("reminders", concurency=4)


def test_unreachable_server_raises_unavailable_error_at_the_deadline(open_queue):
    queue = open_queue(url="unix:///tmp/there-is-none.sock", deadline="200ms")
    began = time.monotonic()

    with pytest.raises(UnavailableError, match="cannot be reached"):
        queue.send_delay_msg("hello")

    assert 0.1 < time.monotonic() - began < 10


def test_closing_a_queue_closes_its_connections(open_queue, redis_client):
    before = len(redis_client.client_list())
    queue = open_queue(callback=lambda message: None)
    queue.start_consume()
    wait_until(lambda: len(redis_client.client_list()) > before)

    queue.close()

    wait_until(lambda: len(redis_client.client_list()) == before)


# Checks


@pytest.fixture
def safe(start_redis):
    return start_redis("--appendonly", "yes").url


def test_safe_server_passes_the_strict_check(open_queue, safe):
    assert roundtrip(open_queue(url=safe, strict=True))


def test_a_server_without_an_append_only_file_is_refused_if_strict(open_queue):
    with pytest.raises(UnsafeServerError, match="append-only"):
        open_queue(strict=True).send_delay_msg("hello")

    assert open_queue().counts().living == 0


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl"])
def test_an_evicting_server_is_refused_if_strict(open_queue, start_redis, policy):
    url = start_redis("--appendonly", "yes", "--maxmemory-policy", policy).url

    with pytest.raises(UnsafeServerError, match=policy):
        open_queue(url=url, strict=True).send_delay_msg("hello")


def test_strict_check_covers_every_operation_that_changes_a_queue(open_queue):
    queue = open_queue(strict=True, callback=lambda message: None)
    operations = [
        lambda: queue.send_delay_msg("hello"),
        lambda: queue.send_many(["hello"]),
        lambda: queue.cancel("m"),
        lambda: queue.reschedule("m", 5),
        lambda: queue.dead.redrive("m:1"),
        lambda: queue.dead.purge("m:1"),
        queue.purge,
        queue.lease,
        queue.start_consume,
    ]

    for operation in operations:
        with pytest.raises(UnsafeServerError):
            operation()


def test_unsafe_server_is_logged_once_as_a_warning_by_default(open_queue, caplog):
    queue = open_queue()

    with caplog.at_level(logging.WARNING, "delayq"):
        queue.send_delay_msg("hello")
        queue.counts()

    (record,) = caplog.records
    assert (record.levelname, record.queue) == ("WARNING", "reminders")
    assert "append-only" in record.getMessage()


@pytest.fixture
def newer(safe, face):
    """The URL of a queue that a later version of delayq has made."""
    client = Blocking().client(safe)
    client.hset("delayq:{reminders}:meta", "schema", 99)
    client.close()
    return safe


@pytest.mark.parametrize("strict", [False, True])
def test_a_newer_schema_is_refused(open_queue, newer, strict):
    with pytest.raises(UnsafeServerError, match="schema 99"):
        open_queue(url=newer, strict=strict).send_delay_msg("hello")


# Separate queues


@pytest.fixture
def checked_always(monkeypatch):
    """An open queue is checked at every call, not every 10 s."""
    monkeypatch.setattr("delayq.queue.base.CHECK_EVERY", 0)


def test_queue_that_redis_has_lost_is_opened_again(open_queue, redis_client, checked_always, caplog):
    queue = open_queue(events=True)
    queue.send_delay_msg("hello")
    redis_client.flushall()

    queue.send_delay_msg("again", id="m")

    assert redis_client.sismember("delayq:queues", "reminders")
    assert [event.id for event in queue.events()] == ["m"]
    assert [record.getMessage() for record in caplog.records if record.name == "delayq.queue"] == [
        "Redis has lost queue reminders with all messages: opening it again"
    ]


def test_applied_schedules_are_stored_again(open_queue, redis_client, checked_always):
    queue = open_queue()
    queue.every("1h", name="hourly")(print)
    queue.schedules.apply()
    redis_client.flushall()

    queue.send_delay_msg("hello")

    assert [schedule.name for schedule in queue.schedules.list()] == ["hourly"]


def test_settings_of_a_queue_that_is_still_there_are_left_alone(open_queue, checked_always):
    queue, other = open_queue(events=True), open_queue(events=False)
    queue.send_delay_msg("hello")
    other.open()

    queue.send_delay_msg("again")
    queue.send_delay_msg("and again")

    assert [event.kind for event in queue.events()] == ["sent"]


def test_reading_does_not_open_a_lost_queue(open_queue, redis_client, checked_always):
    queue = open_queue()
    redis_client.flushall()

    assert queue.counts().living == 0

    assert redis_client.keys("*") == []


def test_check_that_fails_does_not_fail_the_call(open_queue, redis_client, checked_always):
    queue = open_queue()
    queue.send_delay_msg("hello")
    redis_client.acl_setuser("default", enabled=True, nopass=True, keys=["*"], commands=["+@all", "-hget"])
    try:
        assert queue.counts().living == 1
    finally:
        redis_client.acl_setuser("default", enabled=True, nopass=True, keys=["*"], commands=["+@all"])


def test_queues_with_different_names_or_prefixes_are_separate(open_queue):
    queues = [open_queue(name, prefix=prefix) for name in ("a", "b") for prefix in ("delayq", "other")]
    for number, queue in enumerate(queues):
        queue.send_delay_msg(number, id="m")

    assert [queue.get("m").payload for queue in queues] == [0, 1, 2, 3]
    queues[0].cancel("m")
    assert [queue.counts().living for queue in queues] == [0, 1, 1, 1]


def test_every_key_has_the_prefix_and_one_hash_tag(open_queue, redis_client):
    queue = open_queue("reminders", prefix="myapp", callback=lambda message: message.payload)
    queue.send_many([True, False], retries=0, delay=0)
    queue.send_delay_msg("later", 60, headers={"trace": "1"})
    queue.run(burst=True)
    queue.send_delay_msg(True)
    queue.lease("60s")

    keys = {key.decode() for key in redis_client.scan_iter()}

    assert keys - {"myapp:queues"}
    assert {key for key in keys if not key.startswith("myapp:{reminders}:")} == {"myapp:queues"}


@pytest.mark.parametrize("name", ["", "a b", "a:b", "{a}", "a*", "ü", "x" * 129, "a\n", None, 5])
def test_invalid_name_or_prefix_is_refused(face, url, name):
    with pytest.raises(ConfigurationError, match="queue name must be"):
        face.open(name, url=url)
    with pytest.raises(ConfigurationError, match="prefix must be"):
        face.open("reminders", prefix=name, url=url)
