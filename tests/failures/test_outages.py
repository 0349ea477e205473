"""Outages: a running consumer bears whatever a later try may mend, says so, and can be stopped meanwhile."""

from __future__ import annotations

import asyncio
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from subprocess import Popen

import pytest
import redis

from delayq import AsyncDelayQueue, CannotConnectError, ConfigurationError, DelayQueue
from tests.failures.programs import assert_soon, program
from tests.failures.test_server import FOREVER
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_until

pytestmark = pytest.mark.faults

THREADS = """
import logging, sys, time
from delayq import DelayQueue

logging.basicConfig(stream=sys.stdout, format="%(message)s")
queue = DelayQueue("reminders", url=sys.argv[1])

@queue.callback
def work(message):
    print("started", message.payload, flush=True)
    if message.payload == "slow":
        sys.stdin.readline()
        time.sleep(3)  # longer than a stop tries to reach Redis when nothing runs
        print("ended", flush=True)

queue.run(on_health_change=lambda error: print("unhealthy" if error else "healthy", flush=True))
print("left", flush=True)
"""
ASYNCIO = """
import asyncio, logging, sys
from delayq import AsyncDelayQueue

logging.basicConfig(stream=sys.stdout, format="%(message)s")

async def main():
    queue = AsyncDelayQueue("reminders", url=sys.argv[1])

    @queue.callback
    async def work(message):
        print("started", message.payload, flush=True)
        if message.payload == "slow":
            await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
            await asyncio.sleep(3)
            print("ended", flush=True)

    await queue.run(on_health_change=lambda error: print("unhealthy" if error else "healthy", flush=True))
    print("left", flush=True)

asyncio.run(main())
"""
PROGRAMS = pytest.mark.parametrize("script", [THREADS, ASYNCIO], ids=["threads", "asyncio"])
GRACE = 30
"""The default, which a stop must not wait for."""


def read_until(process, text: str) -> str:
    """Return the first line of its output that contains a text."""
    return next(line for line in process.stdout if text in line)


def assert_stops_without_redis(start_redis, script, payload: str, finish: Callable[[Popen[str]], object]) -> None:
    """Stop a program that has started this message once Redis is gone; it must `finish` and end soon."""

    def stopping(_: int) -> float:
        server = start_redis()
        with DelayQueue("reminders", url=server.url) as queue, program(script, server.url) as process:
            queue.send_delay_msg(payload)
            read_until(process, f"started {payload}")
            server.kill()
            read_until(process, "Redis does not answer")
            process.send_signal(signal.SIGTERM)
            began = time.monotonic()
            finish(process)
            assert process.wait(60) == 0
            return time.monotonic() - began

    assert_soon(stopping, GRACE / 2)


@pytest.mark.long
@PROGRAMS
def test_idle_consumer_stops_at_once_although_redis_is_gone(start_redis, script):
    assert_stops_without_redis(start_redis, script, "quick", lambda process: read_until(process, "left"))


@pytest.mark.long
@PROGRAMS
def test_stop_waits_for_a_running_callback_but_not_for_redis(start_redis, script):
    def finish(process: Popen[str]) -> None:
        process.stdin.write("\n")
        process.stdin.flush()
        rest = process.stdout.read()
        assert "ended\n" in rest
        assert "1 settlements unsent" in rest

    assert_stops_without_redis(start_redis, script, "slow", finish)


Break = Callable[[RedisServer, redis.Redis], Callable[[], object]]
"""Makes a server refuse its consumers; returns what mends it."""
KILL = ("CLIENT", "KILL", "TYPE", "NORMAL", "SKIPME", "YES")
USER = ("ACL", "SETUSER", "worker", "on", "~*", "&*", "+@all", "resetpass", ">right")


def make_user(admin: redis.Redis) -> None:
    admin.execute_command(*USER)


def change_password(_: RedisServer, admin: redis.Redis) -> Callable[[], object]:
    admin.execute_command(*USER[:-1], ">other")
    admin.execute_command(*KILL)
    return lambda: make_user(admin)


def delete_user(_: RedisServer, admin: redis.Redis) -> Callable[[], object]:
    admin.execute_command("ACL", "DELUSER", "worker")  # closes its connections
    return lambda: make_user(admin)


def restart_without_the_user(server: RedisServer, admin: redis.Redis) -> Callable[[], object]:
    server.kill()
    server.start()
    return lambda: make_user(admin)


def take_rights(_: RedisServer, admin: redis.Redis) -> Callable[[], object]:
    admin.execute_command("ACL", "SETUSER", "worker", "-@all")
    return lambda: make_user(admin)


def be_busy(server: RedisServer, admin: redis.Redis) -> Callable[[], object]:
    connection = admin.connection_pool.get_connection()
    connection.send_packed_command(connection.pack_commands([KILL, ("EVAL", FOREVER, 0)]))

    def mend() -> None:
        with server.client() as killer:  # of database 0: a busy server refuses a SELECT
            killer.script_kill()
        connection.disconnect()
        admin.connection_pool.release(connection)

    return mend


def admit_no_clients(_: RedisServer, admin: redis.Redis) -> Callable[[], object]:
    admin.config_set("maxclients", 1)
    admin.execute_command(*KILL)
    return lambda: admin.config_set("maxclients", 1000)


def become_a_replica(_: RedisServer, admin: redis.Redis) -> Callable[[], object]:
    admin.execute_command("REPLICAOF", "127.0.0.1", "1")
    return lambda: admin.execute_command("REPLICAOF", "NO", "ONE")


def become_a_replica_that_has_lost_its_master(server: RedisServer, admin: redis.Redis) -> Callable[[], object]:
    admin.config_set("replica-serve-stale-data", "no")
    return become_a_replica(server, admin)


def be_another_service(server: RedisServer, admin: redis.Redis) -> Callable[[], object]:
    """What listens at the address speaks another protocol."""
    server.kill()
    ended, listening = threading.Event(), socket.create_server(("127.0.0.1", server.port))
    listening.settimeout(0.1)

    def answer() -> None:
        while not ended.is_set():
            try:
                connection, _ = listening.accept()
            except TimeoutError:
                continue
            with connection:
                connection.recv(100)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    answering = threading.Thread(target=answer)
    answering.start()

    def mend() -> None:
        ended.set()
        answering.join()
        listening.close()
        server.start()
        make_user(admin)

    return mend


STATES = [
    change_password,
    delete_user,
    restart_without_the_user,
    take_rights,
    be_busy,
    admit_no_clients,
    become_a_replica,
    become_a_replica_that_has_lost_its_master,
    be_another_service,
]


@contextmanager
def consuming(server: RedisServer, script: str) -> Iterator[tuple[redis.Redis, object]]:
    """Start a worker as the user "worker" on database 1, where each connection begins with a SELECT."""
    url = server.url.removesuffix("0") + "1"
    with redis.Redis.from_url(url) as admin:
        make_user(admin)
        with program(script, url.replace("redis://", "redis://worker:right@")) as process:
            yield admin, process


@pytest.mark.long
@PROGRAMS
@pytest.mark.parametrize("begin", STATES, ids=lambda begin: begin.__name__)
def test_running_consumer_survives_whatever_a_later_try_may_mend(start_redis, script, begin: Break):
    server = start_redis("--busy-reply-threshold", "50", tcp=True)
    with (
        consuming(server, script) as (admin, process),
        DelayQueue("reminders", redis=admin) as queue,
    ):
        queue.send_delay_msg("before")
        read_until(process, "started before")
        mend = begin(server, admin)
        read_until(process, "unhealthy")
        mend()
        read_until(process, "healthy")
        queue.send_delay_msg("after")
        read_until(process, "started after")
        process.send_signal(signal.SIGTERM)
        assert "left" in process.stdout.read()
        assert process.wait(60) == 0


def test_consumer_tells_whether_it_is_healthy(open_queue, start_redis):
    server, changes, seen = start_redis(tcp=True), [], []

    def note(error):
        changes.append(type(error).__name__)
        raise SystemExit("whatever it raises is logged")

    queue = open_queue(url=server.url, callback=lambda message: seen.append(message.payload))
    consuming = queue.start_consume(on_health_change=note)
    assert consuming.healthy
    server.kill()
    wait_until(lambda: not consuming.healthy)
    assert consuming.running
    server.start()
    queue.send_delay_msg("hello")
    wait_until(lambda: seen == ["hello"])
    wait_until(lambda: consuming.healthy)
    assert len(changes) == 2
    assert changes[1] == "NoneType"
    assert queue.stop_consume()
    assert not consuming.healthy


def test_hook_that_is_no_function_is_refused(open_queue):
    with pytest.raises(ConfigurationError, match="on_health_change must be a function, not 'print'"):
        open_queue(callback=print).start_consume(on_health_change="print")


def test_coroutine_function_as_a_hook_is_refused(open_queue):
    async def note(error):
        """Never called."""

    with pytest.raises(ConfigurationError, match="on_health_change must not be a coroutine function"):
        open_queue(callback=print).start_consume(on_health_change=note)


def test_outage_is_logged_once_and_so_is_its_end_and_a_changed_reason(open_queue, start_redis, caplog):
    server = start_redis(tcp=True)
    queue = open_queue(url=server.url, callback=print)
    consuming = queue.start_consume()
    server.kill()
    wait_until(lambda: not consuming.healthy)
    server._config = (*server._config, "--requirepass", "secret")
    server.start()
    wait_until(lambda: "Cannot connect" in caplog.text)
    with redis.Redis.from_url(server.url, password="secret") as admin:
        admin.config_set("requirepass", "")
    wait_until(lambda: consuming.healthy)
    assert queue.stop_consume()
    logged = [record.message[:21] for record in caplog.records if record.name == "delayq.executor"]
    assert logged == ["Redis does not answer", "Cannot connect to Red", "Redis answers again a"]


def test_wrong_password_at_the_start_is_an_error_at_once(open_queue, start_redis):
    server = start_redis(tcp=True)
    queue = open_queue(url=server.url.replace("redis://", "redis://:wr0ng@"), callback=print)
    with server.client() as admin:
        admin.config_set("requirepass", "right")
        began = time.monotonic()
        with pytest.raises(CannotConnectError, match="cannot connect to Redis at 127"):
            queue.start_consume()
        assert time.monotonic() - began < GRACE / 2
        admin.config_set("requirepass", "")


def test_provider_of_credentials_may_fail_for_a_while(face, open_queue, start_redis, caplog):
    server, seen = start_redis(tcp=True), []

    class Provider(redis.CredentialProvider):
        failing = False

        def get_credentials(self):
            if self.failing:
                raise LookupError("the vault is sealed")
            return "worker", "right"

    provider = Provider()
    client = face.do(lambda: face.client(server.url, credential_provider=provider))
    with server.client() as admin:
        make_user(admin)
        queue = open_queue(url=None, redis=client, callback=lambda message: seen.append(message.payload))
        consuming = queue.start_consume()
        provider.failing = True
        admin.execute_command(*KILL)
        wait_until(lambda: "LookupError: the vault is sealed" in caplog.text)
        assert not consuming.healthy
        provider.failing = False
        wait_until(lambda: consuming.healthy)
        queue.send_delay_msg("hello")
        wait_until(lambda: seen == ["hello"])
        assert queue.stop_consume()
    face.do(lambda: client.aclose() if hasattr(client, "aclose") else client.close())


def test_consumer_with_a_pool_of_one_connection_is_refused_at_once(face, open_queue, redis_url):
    client = face.do(lambda: face.client(redis_url, max_connections=1))
    queue = open_queue(url=None, redis=client, callback=print)
    queue.send_delay_msg("sending needs only one")
    with pytest.raises(ConfigurationError, match="a consumer needs 2 connections: raise max_connections of the pool"):
        queue.start_consume()
    with pytest.raises(ConfigurationError, match="a consumer needs 2 connections"):
        open_queue(url=f"{redis_url}{'&' if '?' in redis_url else '?'}max_connections=1", callback=print).run()
    face.do(lambda: client.aclose() if hasattr(client, "aclose") else client.close())


def test_asyncio_consumer_that_ends_by_an_error_logs_it(redis_url, monkeypatch, caplog):
    def fail(driver, name):
        raise RuntimeError("out of order")

    async def scene():
        async with AsyncDelayQueue("reminders", url=redis_url, callback=print) as queue:
            await queue.send_delay_msg("hello")
            consuming = await queue.start_consume()
            with pytest.raises(RuntimeError, match="out of order"):
                await consuming.wait()
            assert not consuming.healthy

    monkeypatch.setattr("delayq.worker.drivers.async_driver.AsyncDriver._start_runner", fail)
    asyncio.run(scene())
    assert [record.message for record in caplog.records if record.exc_info] == ["the consumer ended"]
