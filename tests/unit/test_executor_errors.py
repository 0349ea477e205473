"""What Redis answers instead of doing it: tried again, or told in the words of delayq."""

import pytest

from delayq.errors import QueueFullError, ServerError, UnavailableError
from delayq.values import Failure, Outgoing, Receipt

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
    return calls.ready_to_unack(1, lease=30_000, holder="me")


def short(text):
    return text.split()[0]


@pytest.mark.parametrize("flushed_at", [1, 2])
def test_scripts_the_server_has_forgotten_are_taught_again(open_executor, redis_url, redis_client, calls, flushed_at):
    executor = open_executor(redis_url)
    for n in range(3):
        if n == flushed_at:
            redis_client.script_flush()
        assert executor.call(sending(calls, f"m{n}")) == "1"


def test_forgotten_scripts_in_the_middle_of_a_round_trip_are_taught_again(
    open_executor, redis_url, redis_client, calls
):
    executor = open_executor(redis_url)
    redis_client.script_flush()
    executor.call(calls.pending_to_ready())  # one of them it knows
    first, promoted, second, counted, missing = executor.run(
        [sending(calls, "a"), calls.pending_to_ready(), sending(calls, "b"), calls.counts(), calls.get("c")]
    )
    assert (first, second, missing) == ("1", "1", None)
    assert promoted.moved in (0, 1, 2)
    assert counted.messages == 2  # taught in the same breath as the sends, and after them
    assert redis_client.hlen(calls.keys.messages) == 2


def test_each_script_is_taught_once_however_often_it_is_called(open_executor, redis_url, redis_client, calls):
    executor = open_executor(redis_url)
    redis_client.script_flush()
    redis_client.config_resetstat()
    assert executor.run([sending(calls, f"m{n}") for n in range(20)]) == ["1"] * 20
    assert redis_client.info("commandstats")["cmdstat_script|load"]["calls"] == 1


@pytest.mark.faults
def test_scripts_that_may_not_be_taught_are_refused_at_once(open_executor, start_redis, calls):
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
def test_a_passing_state_of_the_server_is_waited_out(open_executor, proxy, calls, error, name):
    executor = open_executor(proxy.url)
    request = {"send": sending(calls, "a"), "claim": claiming(calls), "read": calls.counts()}[name]
    proxy.answer(3, error)
    answer = executor.call(request)
    assert proxy._answering == 0
    if name == "send":
        assert answer == "1"
        assert executor.call(calls.counts()).messages == 1


@pytest.mark.parametrize("error", PASSING, ids=short)
def test_a_passing_state_that_does_not_pass_is_told_at_the_deadline(open_executor, proxy, calls, error):
    executor = open_executor(proxy.url, deadline="100ms")
    proxy.answer(10**6, error)
    with pytest.raises(UnavailableError, match="send was not carried out: Redis is not ready") as caught:
        executor.call(sending(calls, "a"))
    assert error.split(" ", 1)[1][:30] in str(caught.value)


@pytest.mark.parametrize("error", LASTING, ids=short)
def test_any_other_refusal_is_told_at_once(open_executor, proxy, calls, error):
    executor = open_executor(proxy.url)
    proxy.answer(1, error)
    with pytest.raises(ServerError, match=r"^send: ") as caught:
        executor.call(sending(calls, "a"))
    assert error.split(" ", 1)[1][:20] in str(caught.value)
    assert executor.call(sending(calls, "a")) == "1"


@pytest.mark.parametrize("error", OOM, ids=["plain", "script", "old"])
def test_a_send_waits_for_room_in_a_full_redis(open_executor, proxy, calls, error):
    executor = open_executor(proxy.url)
    proxy.answer(3, error)
    assert executor.call(sending(calls, "a")) == "1"


@pytest.mark.parametrize("error", OOM, ids=["plain", "script", "old"])
def test_a_send_into_a_full_redis_ends_at_the_deadline_with_nothing_stored(open_executor, proxy, calls, error):
    executor = open_executor(proxy.url, deadline="100ms")
    proxy.answer(10**6, error)
    with pytest.raises(QueueFullError, match="nothing was stored"):
        executor.call(sending(calls, "a"))


@pytest.mark.parametrize("error", OOM, ids=["plain", "script", "old"])
@pytest.mark.parametrize("name", ["claim", "ack", "nack"])
def test_a_full_redis_does_not_hold_back_claims_and_settlements(open_executor, proxy, calls, error, name):
    requests = {
        "claim": claiming(calls),
        "ack": calls.ack([Receipt("a", 1)]),
        "nack": calls.nack([Failure("a", 1, 50, "boom")]),
    }
    executor = open_executor(proxy.url)
    proxy.answer(1, error)
    with pytest.raises(QueueFullError):
        executor.call(requests[name])


def test_a_queue_at_its_max_length_says_how_full_it_is(open_executor, redis_url, calls, redis_client):
    executor = open_executor(redis_url)
    assert executor.call(sending(calls, "a", "b", max_length=3)) == "11"
    with pytest.raises(QueueFullError) as caught:
        executor.call(sending(calls, "c", "d", max_length=3))
    assert str(caught.value) == "the queue holds 2 of at most 3 messages"
    assert redis_client.hlen(calls.keys.messages) == 2


@pytest.mark.usefixtures("taught")
def test_one_refused_call_leaves_the_others_of_its_round_trip_alone(open_executor, redis_url, calls, redis_client):
    executor = open_executor(redis_url)
    redis_client.set(calls.keys.garbage, "not a set")
    sent, refused, woken = executor.run([sending(calls, "a"), calls.collect_garbage(**LIMITS), calls.await_wake(0.01)])
    assert (sent, woken) == ("1", True)
    assert isinstance(refused, ServerError)
    assert "WRONGTYPE" in str(refused)


def test_a_command_is_refused_by_its_name(open_executor, redis_url, calls, redis_client):
    executor = open_executor(redis_url)
    redis_client.set(calls.keys.wake, "not a list")
    with pytest.raises(ServerError, match=r"^BLPOP: WRONGTYPE"):
        executor.call(calls.await_wake(0.01))


def test_an_error_shows_nothing_of_the_payload(open_executor, redis_url, calls, redis_client):
    executor = open_executor(redis_url)
    redis_client.set(calls.keys.meta, "not a hash")
    with pytest.raises(ServerError) as caught:
        executor.call(sending(calls, "a", payload=b"canary-5ca1ab1e"))
    assert "canary" not in str(caught.value)
    assert "canary" not in repr(caught.value.__cause__)


def test_a_long_error_is_cut(open_executor, proxy, calls):
    proxy.answer(1, "ERR " + "x" * 10_000)
    with pytest.raises(ServerError) as caught:
        open_executor(proxy.url).call(sending(calls, "a"))
    assert len(str(caught.value)) < 250


@pytest.mark.faults
def test_a_server_busy_with_a_script_is_waited_for(open_executor, start_redis, calls):
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
