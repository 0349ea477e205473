"""Error replies of Redis: retried, or raised as errors of delayq."""

import pytest

from delayq.broker.requests import Failure, Outgoing, Receipt
from delayq.errors import QueueFullError, ServerError, UnavailableError
from tests.support.faulty_proxy import FaultyProxy

pytestmark = pytest.mark.usefixtures("no_pauses")

PASSING = [
    "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
    "LOADING Redis is loading the dataset in memory",
    "READONLY You can't write against a read only replica.",
    "READONLY You can't write against a read only replica. script: 5ca1ab1e, on @user_script:12.",
    "TRYAGAIN Multiple keys request during rehashing of slot",
    "CLUSTERDOWN Hash slot not served",
    "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
    "NOREPLICAS Not enough good replicas to write.",
    "ERR Error running script: -READONLY You can't write against a read only replica.",
]
LASTING = [
    "WRONGTYPE Operation against a key holding the wrong kind of value",
    "NOPERM this user has no permissions to run the 'evalsha' command",
    "ERR value is not an integer or out of range",
    "ERR Error running script (call to f_5ca1ab1e): @user_script:3: boom",
    "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.",
    "CROSSSLOT Keys in request don't hash to the same slot",
    "NOTBUSYATALL nonsense that only begins like one",
]
OOM = [
    "OOM command not allowed when used memory > 'maxmemory'.",
    "OOM command not allowed when used memory > 'maxmemory'. script: 5ca1ab1e, on @user_script:12.",
    "ERR Error running script (call to f_5): @user_script:5: -OOM command not allowed when used memory > 'maxmemory'.",
]


LIMITS = {"limit": 10, "dead_max": 10, "dead_ttl": 1000, "slot_ttl": 1000}


def sending(calls, *ids, payload=b"1", max_length=None):
    return calls.send([Outgoing(id, 0, 3, payload, b"") for id in ids], replace=False, max_length=max_length)


def claiming(calls):
    return calls.ready_to_unack(1, lease=30_000, consumer_id="me")


def short(text):
    return text.split()[0]


@pytest.mark.parametrize("flushed_at", [1, 2])
def test_flushed_scripts_are_loaded_again(open_executor, redis_url, redis_client, calls, flushed_at):
    executor = open_executor(redis_url)
    for n in range(3):
        if n == flushed_at:
            redis_client.script_flush()
        assert executor.call(sending(calls, f"m{n}")) == "1"


def test_scripts_missing_in_part_of_a_round_trip_are_loaded_again(open_executor, redis_url, redis_client, calls):
    executor = open_executor(redis_url)
    redis_client.script_flush()
    executor.call(calls.pending_to_ready())  # one script is loaded
    first, promoted, second, counted, missing = executor.run(
        [sending(calls, "a"), calls.pending_to_ready(), sending(calls, "b"), calls.counts(), calls.get("c")]
    )
    assert (first, second, missing) == ("1", "1", None)
    assert promoted.moved in (0, 1, 2)
    assert counted.messages == 2  # loaded together with the sends, and run after them
    assert redis_client.hlen(calls.keys.messages) == 2


def test_each_missing_script_is_loaded_once_per_round_trip(open_executor, redis_url, redis_client, calls):
    executor = open_executor(redis_url)
    redis_client.script_flush()
    redis_client.config_resetstat()
    assert executor.run([sending(calls, f"m{n}") for n in range(20)]) == ["1"] * 20
    assert redis_client.info("commandstats")["cmdstat_script|load"]["calls"] == 1


class Forgetful(FaultyProxy):
    """Forgets every script: each call by its digest is refused, as by a proxy that spreads commands over servers."""

    refused = 0

    def _up(self, link, data):
        if b"EVALSHA" in data:
            self.refused += data.count(b"EVALSHA")
            link.client.sendall(b"-NOSCRIPT No matching script. Please use EVAL.\r\n" * data.count(b"EVALSHA"))
        else:
            super()._up(link, data)


def test_script_that_is_not_kept_is_sent_as_text(open_executor, redis_url, calls):
    with Forgetful(redis_url) as proxy:
        executor = open_executor(proxy.url)
        assert executor.run([sending(calls, "a"), sending(calls, "b")]) == ["1", "1"]
        assert executor.call(calls.counts()).messages == 2
        assert proxy.refused == 6  # twice each: before and after it was loaded


@pytest.mark.faults
def test_script_that_is_not_kept_and_may_not_be_sent_as_text_ends_at_the_deadline(open_executor, start_redis, calls):
    server = start_redis(tcp=True)
    with server.client() as client:
        client.execute_command("ACL", "SETUSER", "me", "on", ">secret", "~*", "+@all", "-eval")
    with Forgetful(server.url) as proxy:
        executor = open_executor(proxy.url.replace("redis://", "redis://me:secret@"), deadline="200ms")
        with pytest.raises(UnavailableError, match="send was not carried out"):
            executor.call(sending(calls, "a"))
        assert proxy.refused < 1000  # it pauses


@pytest.mark.faults
def test_missing_right_to_load_scripts_raises_at_once(open_executor, start_redis, calls):
    server = start_redis()
    with server.client() as client:
        client.execute_command("ACL", "SETUSER", "me", "on", ">secret", "~*", "+@all", "-script|load")
    executor = open_executor(server.url.replace("unix://", "unix://me:secret@"))
    sent, counted = executor.run([sending(calls, "a"), calls.counts()])
    for error in (sent, counted):
        assert isinstance(error, ServerError)
        assert "permission" in str(error)


@pytest.mark.parametrize("error", PASSING, ids=short)
@pytest.mark.parametrize("name", ["send", "claim", "read"])
def test_temporary_error_is_retried(open_executor, proxy, calls, error, name):
    executor = open_executor(proxy.url)
    request = {"send": sending(calls, "a"), "claim": claiming(calls), "read": calls.counts()}[name]
    proxy.reply(3, error)
    reply = executor.call(request)
    assert proxy._replies_left == 0
    if name == "send":
        assert reply == "1"
        assert executor.call(calls.counts()).messages == 1


@pytest.mark.parametrize("error", PASSING, ids=short)
def test_temporary_error_is_raised_at_the_deadline(open_executor, proxy, calls, error):
    executor = open_executor(proxy.url, deadline="100ms")
    proxy.reply(10**6, error)
    with pytest.raises(UnavailableError, match="send was not carried out: Redis is not ready") as caught:
        executor.call(sending(calls, "a"))
    assert error.split(" ", 1)[1][:30] in str(caught.value)


@pytest.mark.parametrize("error", LASTING, ids=short)
def test_permanent_error_is_raised_at_once(open_executor, proxy, calls, error):
    executor = open_executor(proxy.url)
    proxy.reply(1, error)
    with pytest.raises(ServerError, match=r"^send: ") as caught:
        executor.call(sending(calls, "a"))
    assert error.split(" ", 1)[1][:20] in str(caught.value)
    assert executor.call(sending(calls, "a")) == "1"


@pytest.mark.parametrize("error", OOM, ids=["plain", "script", "old"])
def test_send_to_a_full_redis_is_retried(open_executor, proxy, calls, error):
    executor = open_executor(proxy.url)
    proxy.reply(3, error)
    assert executor.call(sending(calls, "a")) == "1"


@pytest.mark.parametrize("error", OOM, ids=["plain", "script", "old"])
def test_a_send_into_a_full_redis_ends_at_the_deadline_with_nothing_stored(open_executor, proxy, calls, error):
    executor = open_executor(proxy.url, deadline="100ms")
    proxy.reply(10**6, error)
    with pytest.raises(QueueFullError, match="this call stored nothing"):
        executor.call(sending(calls, "a"))


@pytest.mark.parametrize("error", OOM, ids=["plain", "script", "old"])
@pytest.mark.parametrize("name", ["claim", "ack", "nack"])
def test_full_redis_does_not_delay_claims_and_settlements(open_executor, proxy, calls, error, name):
    requests = {
        "claim": claiming(calls),
        "ack": calls.ack([Receipt("a", 1)]),
        "nack": calls.nack([Failure("a", 1, 50, "boom")]),
    }
    executor = open_executor(proxy.url)
    proxy.reply(1, error)
    with pytest.raises(QueueFullError):
        executor.call(requests[name])


def test_queue_full_error_shows_length_and_limit(open_executor, redis_url, calls, redis_client):
    executor = open_executor(redis_url)
    assert executor.call(sending(calls, "a", "b", max_length=3)) == "11"
    with pytest.raises(QueueFullError) as caught:
        executor.call(sending(calls, "c", "d", max_length=3))
    assert str(caught.value) == "the queue holds 2 of at most 3 messages"
    assert redis_client.hlen(calls.keys.messages) == 2


@pytest.mark.usefixtures("loaded_scripts")
def test_refused_call_does_not_affect_others_of_its_round_trip(open_executor, redis_url, calls, redis_client):
    executor = open_executor(redis_url)
    redis_client.set(calls.keys.garbage, "not a set")
    sent, refused, woken = executor.run([sending(calls, "a"), calls.collect_garbage(**LIMITS), calls.await_wake(0.01)])
    assert (sent, woken) == ("1", True)
    assert isinstance(refused, ServerError)
    assert "WRONGTYPE" in str(refused)


def test_error_of_a_command_starts_with_its_name(open_executor, redis_url, calls, redis_client):
    executor = open_executor(redis_url)
    redis_client.set(calls.keys.wake, "not a list")
    with pytest.raises(ServerError, match=r"^BLPOP: WRONGTYPE"):
        executor.call(calls.await_wake(0.01))


def test_error_does_not_show_the_payload(open_executor, redis_url, calls, redis_client):
    executor = open_executor(redis_url)
    redis_client.set(calls.keys.meta, "not a hash")
    with pytest.raises(ServerError) as caught:
        executor.call(sending(calls, "a", payload=b"canary-5ca1ab1e"))
    assert "canary" not in str(caught.value)
    assert "canary" not in repr(caught.value.__cause__)


def test_long_error_is_truncated(open_executor, proxy, calls):
    proxy.reply(1, "ERR " + "x" * 10_000)
    with pytest.raises(ServerError) as caught:
        open_executor(proxy.url).call(sending(calls, "a"))
    assert len(str(caught.value)) < 250


@pytest.mark.faults
def test_call_waits_while_the_server_is_busy_with_a_script(open_executor, start_redis, calls):
    server = start_redis("--busy-reply-threshold", "10", "--lua-time-limit", "10")
    executor = open_executor(server.url)
    executor.call(sending(calls, "a"))
    with server.client() as client:
        clock = "local function now() local t = redis.call('TIME') return t[1] * 1e6 + t[2] end "
        long = clock + "local start = now() repeat until now() - start > 2e5"
        pool = client.connection_pool
        connection = pool.get_connection()
        connection.send_command("EVAL", long, 0)
        assert executor.call(sending(calls, "b")) == "1"
        connection.read_response()
        pool.release(connection)
