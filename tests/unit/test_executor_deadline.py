"""A Redis that does not reply: how long calls are retried, and which error they raise."""

import asyncio
import socket
import time

import pytest

from delayq.broker.requests import Outgoing, RedisCommand
from delayq.errors import CannotConnectError, OutcomeUnknown, ServerError, UnavailableError
from tests.support.executors import Asyncio
from tests.support.faulty_proxy import FaultyProxy
from tests.support.waiting import wait_until

pytestmark = pytest.mark.faults


def sending(calls, *ids):
    return calls.send([Outgoing(id, 0, 3, b"1", b"") for id in ids], replace=False, max_length=None)


@pytest.fixture
def unused_address():
    """An address without a server."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"redis://127.0.0.1:{bound.getsockname()[1]}/0"


def test_call_that_was_never_sent_raises_unavailable_error(open_executor, unused_address, calls):
    executor = open_executor(unused_address, deadline="200ms")
    began = time.monotonic()
    with pytest.raises(UnavailableError, match="send was not carried out: Redis cannot be reached") as caught:
        executor.call(sending(calls, "a"))
    assert 0.2 <= time.monotonic() - began < 10
    assert isinstance(caught.value, ConnectionError)


def test_call_sent_without_a_reply_raises_outcome_unknown(open_executor, proxy, calls):
    executor = open_executor(proxy.url, deadline="300ms", socket_timeout="100ms")
    executor.call(sending(calls, "a"))
    proxy.darken()
    began = time.monotonic()
    with pytest.raises(OutcomeUnknown, match="send: Redis stopped answering; it may or may not") as caught:
        executor.call(sending(calls, "b"))
    assert 0.3 <= time.monotonic() - began < 10
    assert isinstance(caught.value, TimeoutError)


def test_read_without_a_reply_raises_unavailable_error(open_executor, proxy, calls):
    executor = open_executor(proxy.url, deadline="200ms", socket_timeout="100ms")
    executor.call(sending(calls, "a"))
    proxy.darken()
    with pytest.raises(UnavailableError, match="counts was not carried out"):
        executor.call(calls.counts())


def test_silent_server_that_was_never_reached_raises_unavailable_error(open_executor, proxy, calls):
    proxy.darken()
    executor = open_executor(proxy.url, deadline="200ms", socket_timeout="100ms")
    with pytest.raises(UnavailableError, match="was not carried out"):
        executor.call(sending(calls, "a"))


def test_each_call_of_a_round_trip_gets_its_own_error(open_executor, unused_address, calls):
    executor = open_executor(unused_address, deadline="100ms")
    errors = executor.run([sending(calls, "a"), calls.counts(), calls.await_wake(0.1)])
    assert [type(error) for error in errors] == [UnavailableError] * 3
    assert [str(error).split()[0] for error in errors] == ["send", "counts", "Redis"]


def test_should_retry_can_end_after_one_attempt(open_executor, unused_address, calls):
    executor = open_executor(unused_address, deadline="1h")
    asked = []
    began = time.monotonic()
    (error,) = executor.run([sending(calls, "a")], should_retry=lambda _: asked.append(1))
    assert isinstance(error, UnavailableError)
    assert len(asked) == 1
    assert time.monotonic() - began < 10


def test_should_retry_overrides_the_deadline_and_silence_is_logged_once(open_executor, unused_address, calls, caplog):
    executor = open_executor(unused_address, deadline="1ms")
    tries = iter(range(4))
    (error,) = executor.run([sending(calls, "a")], should_retry=lambda _: next(tries, None) is not None)
    assert isinstance(error, UnavailableError)
    assert next(tries, "all used") == "all used"
    messages = [record.message[:21] for record in caplog.records if record.name.startswith("delayq")]
    assert messages == ["Redis does not answer"]


def test_restarted_server_is_found_again(open_executor, start_redis, calls):
    server = start_redis(tcp=True)
    executor = open_executor(server.url)
    executor.call(sending(calls, "a"))
    server.kill()
    failed = []

    def should_retry(_):
        if not failed:
            failed.append(True)
            server.start()
        return True

    assert executor.run([sending(calls, "b")], should_retry=should_retry) == ["1"]
    assert failed


def test_frozen_server_executes_a_repeated_call_once(open_executor, start_redis, calls):
    server = start_redis()
    executor = open_executor(server.url, deadline="200ms", socket_timeout="100ms")
    executor.call(sending(calls, "a"))
    server.pause()
    try:
        with pytest.raises(OutcomeUnknown):
            executor.call(sending(calls, "b"))
    finally:
        server.resume()
    assert executor.call(sending(calls, "b")) in ("0", "1")
    with server.client() as client:
        assert client.hlen(calls.keys.messages) == 2


@pytest.mark.parametrize(
    ("userinfo", "says"),
    [
        ("", "HELLO must|NOAUTH|Authentication"),
        (":wrong-5ca1ab1e@", "invalid|WRONGPASS"),
        ("me:wrong-5ca1ab1e@", "invalid|WRONGPASS"),
    ],
)
def test_refused_login_raises_at_once_without_the_password(open_executor, start_redis, calls, userinfo, says):
    server = start_redis(tcp=True)
    with server.client() as client:
        client.config_set("requirepass", "right-5ca1ab1e")
        executor = open_executor(server.url.replace("redis://", f"redis://{userinfo}"))
        began = time.monotonic()
        with pytest.raises(CannotConnectError, match=says) as caught:
            executor.call(sending(calls, "a"))
        assert time.monotonic() - began < 10
        assert isinstance(caught.value, ServerError)
        error = caught.value
        while error is not None:
            assert "5ca1ab1e" not in str(error)
            error = error.__cause__ or error.__context__
        client.config_set("requirepass", "")


@pytest.mark.parametrize("options", ["protocol=2", "db=99", "protocol=3&db=99"])
def test_what_no_later_try_can_mend_raises_at_once(open_executor, start_redis, options):
    server = start_redis(tcp=True)
    with server.client() as client:
        if "db" not in options:
            client.config_set("requirepass", "secret")
        executor = open_executor(f"{server.url.removesuffix('/0')}?{options}")
        began = time.monotonic()
        with pytest.raises(CannotConnectError, match="cannot connect to Redis"):
            executor.call(RedisCommand(("PING",), bool))
        assert time.monotonic() - began < 10
        client.config_set("requirepass", "")


def test_call_whose_reply_is_lost_has_an_unknown_outcome_even_if_the_login_is_refused_then(
    open_executor, start_redis, calls
):
    server = start_redis(tcp=True)
    with FaultyProxy(server.url) as proxy, server.client() as client:
        executor = open_executor(proxy.url)
        executor.call(calls.counts())
        client.config_set("requirepass", "secret")
        proxy.drop_replies(1)
        with pytest.raises(OutcomeUnknown):
            executor.call(sending(calls, "a"))
        client.config_set("requirepass", "")


def test_busy_server_refuses_calls_at_the_deadline_on_every_database(open_executor, start_redis, calls):
    server = start_redis("--busy-reply-threshold", "50", tcp=True)
    executors = [open_executor(f"{server.url.removesuffix('/0')}/{db}", deadline="200ms") for db in (0, 1)]
    with server.client() as client, server.client() as killer:
        killer.ping()
        connection = client.connection_pool.get_connection()
        connection.send_command("EVAL", "while true do end", 0)
        for executor in executors:
            wait_until(lambda executor=executor: is_busy(executor, calls))
        killer.script_kill()
        connection.disconnect()
        client.connection_pool.release(connection)
        for executor in executors:
            assert executor.call(sending(calls, "a")) == "1"


def is_busy(executor, calls):
    """Return whether a call fails because Redis is busy; before that, it is only silent."""
    with pytest.raises((UnavailableError, OutcomeUnknown)) as caught:
        executor.call(calls.counts())
    return "Redis is not ready" in str(caught.value) and "BUSY" in str(caught.value)


def test_cancelled_call_does_not_mix_up_later_replies(redis_url, redis_client, calls):
    executor = Asyncio({"url": redis_url})
    try:

        async def scene():
            core = executor.core
            waiting = asyncio.create_task(core.call(calls.await_wake(5)))
            await asyncio.to_thread(wait_until, lambda: redis_client.info("clients")["blocked_clients"])
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert await core.call(sending(calls, "a")) == "1"
            assert (await core.call(calls.counts())).messages == 1

        executor.runner.run(scene())
    finally:
        executor.close()


def test_slot_of_a_cancelled_call_is_not_reused(redis_url, redis_client, calls, proxy):
    """Its request may still arrive; a later call in the same slot would be taken for its repetition."""
    executor = Asyncio({"url": proxy.url})
    try:

        async def scene():
            core = executor.core
            assert await core.call(sending(calls, "a")) == "1"
            proxy.darken()
            waiting = asyncio.create_task(core.call(sending(calls, "b")))
            await asyncio.sleep(0.05)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            proxy.lighten()
            assert await core.call(sending(calls, "c")) == "1"

        executor.runner.run(scene())
        wait_until(lambda: redis_client.hlen(calls.keys.messages) == 3)
    finally:
        executor.close()
