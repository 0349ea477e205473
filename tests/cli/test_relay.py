"""`delayq relay`: moves due messages to a stream, until a signal or the end of a burst."""

import json
import signal

import pytest
import redis

from delayq import DelayQueue


@pytest.fixture
def stream(redis_url):
    with redis.Redis.from_url(redis_url, decode_responses=True) as client:
        yield lambda: [json.loads(fields["payload"]) for _, fields in client.xrange("tasks")]


def test_burst_moves_due_messages_and_prints_their_number(cli, queue, stream):
    queue.send_many([1, 2])
    queue.send_delay_msg("later", "1h")
    done = cli("relay", "reminders", "tasks", "--burst")
    assert (done.code, done.out) == (0, "moved 2 messages of reminders to tasks\n")
    assert stream() == [1, 2]


def test_queue_can_be_relayed_before_its_first_send(cli):
    assert cli("relay", "new", "tasks", "--burst").out == "moved 0 messages of new to tasks\n"


@pytest.mark.parametrize(("queue_name", "stream_name"), [("a b", "tasks"), ("reminders", "a b"), ("reminders", "a{b")])
def test_invalid_name_is_a_usage_error(cli, queue_name, stream_name):
    done = cli("relay", queue_name, stream_name, "--burst")
    assert done.code == 2
    assert "must" in done.line


def test_key_that_is_not_a_stream_prints_one_line(cli, queue, redis_url):
    queue.send_delay_msg("x")
    with redis.Redis.from_url(redis_url) as client:
        client.set("tasks", "text")
    done = cli("relay", "reminders", "tasks", "--burst", "--log-level", "error")
    assert done.code == 1
    assert "WRONGTYPE" in done.line


def test_unreachable_redis_prints_one_line(cli):
    done = cli("--url", "redis://127.0.0.1:1", "--timeout", "200ms", "relay", "reminders", "tasks")
    assert done.code == 69
    assert "cannot be reached" in done.line


@pytest.mark.long
@pytest.mark.timeout(120)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_relay_runs_until_a_signal(start, redis_url, stream, number):
    program = start("relay", "reminders", "tasks")
    program.says("relaying reminders to tasks")
    with DelayQueue("reminders", url=redis_url) as queue:
        queue.send_delay_msg("x", 0.1)
    program.until(lambda: stream() == ["x"], "a message in the stream")
    program.signal(number)
    ended = program.ended()
    assert (ended.code, ended.out) == (0, "moved 1 message of reminders to tasks\n")
    assert "Traceback" not in ended.err
