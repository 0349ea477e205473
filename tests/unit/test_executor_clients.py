"""The Redis clients that executors create or receive."""

import asyncio
from contextlib import suppress

import pytest
import redis
import redis.asyncio

from delayq import AsyncDelayQueue, ConfigurationError, DelayqError, DelayQueue, UnavailableError
from delayq.broker.requests import Outgoing, RedisCommand
from delayq.broker.transport import clients
from delayq.broker.transport.clients import sends_plainly
from delayq.broker.transport.connections import _send_async
from delayq.broker.transport.executor import AsyncExecutor, Executor
from tests.support.executors import Asyncio, Blocking
from tests.support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("loaded_scripts")

SECRET = "canary-5ca1ab1e"


def sending(calls, *ids, payload=b"1"):
    return calls.send([Outgoing(id, 0, 3, payload, b"") for id in ids], replace=False, max_length=None)


@pytest.mark.parametrize("face", [DelayQueue, AsyncDelayQueue])
@pytest.mark.parametrize(
    "url",
    [
        "http://localhost",
        "localhost:6379",
        "redis:localhost",
        "redis//localhost",
        "REDIS://localhost",
        "sentinel://localhost",
        "://",
        " ",
        f"{SECRET}@localhost",
        f"user:{SECRET}@localhost:6379",
        f"redis://:{SECRET}/x@localhost:6379/0",
        f"redis://:{SECRET}#x@localhost:6379/0",
        f"redis://user:{SECRET}?x@localhost",
        f"redis://user:{SECRET}@localhost:port",
        f"redis://user:{SECRET}@localhost:99999",
        f"redis://user:{SECRET}@[::1",
        f"redis://user:{SECRET}@localhost?nonsense=1",
        f"redis://user:{SECRET}@localhost?socket_timeout=soon",
        f"redis://user:{SECRET}@localhost?decode_responses=True",
        f"unix://user:{SECRET}@/tmp/redis.sock?db=first",
        "redis+sentinel://",
        "redis+sentinel://?master=one",
        "redis+cluster://",
        "redis+unix:///tmp/redis.sock",
        f"redis+sentinel://:{SECRET}@a:1,b:2/0",
        f"redis+sentinel://:{SECRET}@a:1,b:2/0?master=",
        f"redis+sentinel://:{SECRET}@a:1,,b:2/0?master=one",
        f"redis+sentinel://:{SECRET}@a:1,b:2x/0?master=one",
        f"redis+sentinel://:{SECRET}@a:1,b:2/0?master=one&nonsense=1",
        f"redis+sentinel://:{SECRET}@a:1,b:2/0?master=one&decode_responses=True",
        f"redis+cluster://:{SECRET}@a:1,b:99999/",
        f"redis+cluster://:{SECRET}@a:1,b:2/1",
        f"redis+cluster://:{SECRET}@a:1,b:2/?db=2",
        f"redis+cluster://:{SECRET}@a:1,[::1/",
        f"redis+cluster://:{SECRET}@a:1/?socket_timeout=soon",
        f"redis+cluster://:{SECRET}@a:1/?decode_responses=True",
        f"redis+cluster://:{SECRET}/x@a:1/",
        f"redis+cluster://:{SECRET}#x@a:1/",
        5,
        b"redis://localhost",
        ["redis://localhost"],
    ],
    ids=lambda url: str(url).replace(SECRET, "…"),
)
def test_a_malformed_url_is_refused_without_showing_any_of_it(face, url):
    with pytest.raises(ConfigurationError) as caught:
        face("reminders", url=url)
    error = caught.value
    while error is not None:
        assert SECRET not in str(error)
        error = None if error.__suppress_context__ else error.__cause__ or error.__context__


@pytest.mark.parametrize("face", [DelayQueue, AsyncDelayQueue])
@pytest.mark.parametrize(
    "url",
    [
        "redis://localhost",
        "redis://localhost:6380/5",
        "redis://user:p%40ss%2Fword@host.example:6379/0",
        "redis://host?socket_timeout=1.5&health_check_interval=10",
        "redis://[::1]:6379/0",
        "rediss://host.example:6380/0",
        "unix:///tmp/redis.sock?db=1",
        "redis+sentinel://a,b,c/?master=one",
        "redis+sentinel://user:p%40ss@a:26379,b:26380,c/3?master=one&socket_timeout=2&sentinel_password=x",
        "rediss+sentinel://a,b/0?master=one&ssl_ca_certs=/dev/null",
        "redis+cluster://a",
        "redis+cluster://user:p%40ss@a:7000,[::1]:7001,c/0?health_check_interval=10",
        "rediss+cluster://a:7000,b:7001/?ssl_cert_reqs=none",
        "memory://",
        "memory://reminders",
    ],
)
def test_valid_url_is_not_connected_before_it_is_used(face, url):
    face("reminders", url=url)


SECRET_URLS = pytest.mark.parametrize(
    "url",
    [
        f"redis://user:{SECRET}@127.0.0.1:1/0",
        f"redis+sentinel://user:{SECRET}@127.0.0.1:1,127.0.0.1:2/0?master=one&sentinel_password={SECRET}",
        f"redis+cluster://user:{SECRET}@127.0.0.1:1,127.0.0.1:2/",
    ],
    ids=["single", "sentinel", "cluster"],
)


@SECRET_URLS
@pytest.mark.parametrize("face", [DelayQueue, AsyncDelayQueue])
def test_no_repr_and_no_str_shows_the_password(face, url):
    queue = face("reminders", url=url, deadline="10ms")
    for thing in (queue, queue.executor, queue.executor.client, queue.dead, queue.settings, queue.context):
        assert SECRET not in repr(thing)
        assert SECRET not in str(thing)


@pytest.mark.faults
@SECRET_URLS
@pytest.mark.parametrize("face", [DelayQueue, AsyncDelayQueue])
def test_no_error_of_a_queue_shows_the_password(face, url, caplog):
    queue = face("reminders", url=url, deadline="10ms")
    count = queue.counts if face is DelayQueue else lambda: asyncio.run(queue.counts())
    with pytest.raises(UnavailableError, match="cannot be reached") as caught:
        count()
    assert "<redis" not in str(caught.value)
    error = caught.value
    while error is not None:
        assert SECRET not in f"{error} {error!r}"
        error = error.__cause__ or error.__context__
    assert SECRET not in caplog.text


def test_sentinels_and_master_get_their_own_credentials():
    url = (
        "rediss+sentinel://me:mine@a:1,b/5?master=one&sentinel_username=it&sentinel_password=its&ssl_ca_certs=/dev/null"
    )
    url += "&ssl_check_hostname=false"
    with DelayQueue("reminders", url=url, socket_timeout=3) as queue:
        pool = queue.executor.client.connection_pool
        sentinels = [sentinel.connection_pool.connection_kwargs for sentinel in pool.sentinel_manager.sentinels]
    assert [(one["host"], one["port"]) for one in sentinels] == [("a", 1), ("b", 26379)]
    for one, who, timeout in [
        (pool.connection_kwargs, ("me", "mine"), 3),
        *((one, ("it", "its"), 1) for one in sentinels),
    ]:
        assert (one["username"], one["password"]) == who
        assert (one["socket_timeout"], one["socket_connect_timeout"]) == (timeout, timeout)
        assert (one["ssl_ca_certs"], one["ssl_check_hostname"]) == ("/dev/null", False)
    assert pool.service_name == "one"
    assert pool.connection_kwargs["db"] == 5
    assert issubclass(pool.connection_class, redis.SSLConnection)
    assert {sentinel.connection_pool.connection_class for sentinel in pool.sentinel_manager.sentinels} == {
        redis.SSLConnection
    }


@pytest.mark.parametrize(("scheme", "kind"), [("redis", redis.Connection), ("rediss", redis.SSLConnection)])
def test_all_nodes_of_a_cluster_use_the_same_connection_options(scheme, kind):
    with DelayQueue("reminders", url=f"{scheme}+cluster://me:p%40ss@a:1,b/") as queue:
        cluster = queue.executor.client
        assert cluster.slot_map.nodes == [("a", 1), ("b", 6379)]
        pool = cluster.pool(("found-later", 7))
    assert pool.connection_class is kind
    wanted = {"host": "found-later", "port": 7, "username": "me", "password": "p@ss", "socket_timeout": 5}
    assert wanted.items() <= pool.connection_kwargs.items()


@pytest.mark.parametrize("host", ["10.1.2.3", "redis.example", "[2001:db8::1]"])
@pytest.mark.parametrize(
    "url",
    [
        "redis://:{secret}@{host}:7/0",
        "redis://{host}:7/0?password={secret}",
        "redis+sentinel://:{secret}@localhost:1,{host}:7/0?master=one",
        "redis+sentinel://localhost:1,{host}:7/0?master=one&sentinel_password={secret}",
        "redis+cluster://:{secret}@{host}:7,127.0.0.1:8/",
    ],
)
def test_unencrypted_password_on_the_network_is_warned_of_once(url, host, caplog, monkeypatch):
    monkeypatch.setattr(clients, "_warned", set())
    for _ in range(2):
        DelayQueue("reminders", url=url.format(secret=SECRET, host=host))
    (warning,) = caplog.messages
    assert f"at {host.strip('[]')}:7 goes over the network unencrypted" in warning
    assert SECRET not in warning


@pytest.mark.parametrize(
    "url",
    [
        "redis://:{secret}@localhost/0",
        "redis://:{secret}@127.0.0.5:7/0",
        "redis://:{secret}@[::1]:7/0",
        "unix://:{secret}@/tmp/redis.sock",
        "rediss://:{secret}@redis.example:7/0",
        "rediss+cluster://:{secret}@redis.example:7/",
        "rediss+sentinel://:{secret}@redis.example:7/0?master=one",
        "redis+cluster://:{secret}@localhost:7/",
        "redis://redis.example:7/0",
        "redis+cluster://redis.example:7/",
    ],
)
def test_local_or_encrypted_password_causes_no_warning(url, caplog, monkeypatch):
    monkeypatch.setattr(clients, "_warned", set())
    DelayQueue("reminders", url=url.format(secret=SECRET))
    assert not caplog.messages


@pytest.mark.parametrize(
    ("face", "client"),
    [
        (DelayQueue, redis.asyncio.Redis()),
        (AsyncDelayQueue, redis.Redis()),
        (DelayQueue, redis.ConnectionPool()),
        (DelayQueue, redis.Redis),
        (DelayQueue, "redis://localhost"),
        (DelayQueue, object()),
        (DelayQueue, 0),
        (DelayQueue, False),
    ],
    ids=lambda one: getattr(one, "__name__", type(one).__name__),
)
def test_client_of_the_wrong_type_is_refused(face, client):
    with pytest.raises(ConfigurationError, match=r"redis must be a redis\..*Redis, not"):
        face("reminders", redis=client)


@pytest.mark.parametrize(
    ("face", "kind"), [(DelayQueue, redis.Redis), (AsyncDelayQueue, redis.asyncio.Redis)], ids=["blocking", "asyncio"]
)
def test_a_client_that_decodes_is_refused_with_the_reason(face, kind):
    with pytest.raises(ConfigurationError, match="decode_responses=True, and payloads are bytes"):
        face("reminders", redis=kind(decode_responses=True))


PROTOCOLS = pytest.mark.parametrize("protocol", [2, 3])


@PROTOCOLS
def test_blocking_client_works_with_both_protocols(redis_url, calls, protocol):
    with redis.Redis.from_url(redis_url, protocol=protocol) as client:
        _exercise(Blocking({"redis": client}), calls)


@PROTOCOLS
def test_asyncio_client_works_with_both_protocols(redis_url, calls, protocol):
    client = redis.asyncio.Redis.from_url(redis_url, protocol=protocol)
    executor = Asyncio({"redis": client})
    try:
        _exercise(executor, calls)
    finally:
        executor.runner.run(client.aclose())
        executor.close()


def test_client_without_hiredis_works(redis_url, calls):
    from redis._parsers import _RESP2Parser

    with redis.Redis.from_url(redis_url, protocol=2) as client:
        client.connection_pool.connection_kwargs["parser_class"] = _RESP2Parser
        _exercise(Blocking({"redis": client}), calls)


def test_pool_of_one_connection_can_be_shared_with_the_application(redis_url, calls):
    pool = redis.BlockingConnectionPool.from_url(redis_url, max_connections=1, timeout=5)
    with redis.Redis(connection_pool=pool) as client:
        executor = Blocking({"redis": client})
        client.set("mine", "1")
        _exercise(executor, calls)
        assert client.get("mine") == b"1"
    pool.disconnect()


def _exercise(executor, calls):
    payload = bytes(range(256))
    assert executor.call(sending(calls, "a", payload=payload)) == "1"
    promoted, claimed = executor.run([calls.pending_to_ready(), calls.ready_to_unack(5, lease=1000, consumer_id="me")])
    assert promoted.moved == 1
    (delivery,) = claimed.messages
    assert (delivery.id, delivery.payload, delivery.headers) == ("a", payload, b"")
    assert executor.call(calls.get("a")).payload == payload
    assert executor.call(calls.get("b")) is None
    assert executor.call(calls.counts()).active == 1
    assert executor.call(calls.await_wake(0.01)) in (True, False)
    assert executor.call(calls.purge()) == 1


def test_close_closes_the_connections_that_delayq_opened(redis_url, redis_client, calls):
    before = redis_client.info("clients")["connected_clients"]
    executor = Blocking({"url": redis_url})
    executor.run_together(*([calls.counts()] for _ in range(5)))
    assert redis_client.info("clients")["connected_clients"] > before
    executor.close()
    # The server notices an end a moment later, and that of another test's connection may be among them.
    wait_until(lambda: redis_client.info("clients")["connected_clients"] <= before)


def test_close_closes_the_connections_of_an_asyncio_queue(redis_url, redis_client, calls):
    before = redis_client.info("clients")["connected_clients"]
    executor = Asyncio({"url": redis_url})
    executor.run_together(*([calls.counts()] for _ in range(5)))
    assert redis_client.info("clients")["connected_clients"] > before
    executor.close()
    # The server notices an end a moment later, and that of another test's connection may be among them.
    wait_until(lambda: redis_client.info("clients")["connected_clients"] <= before)


def test_close_leaves_a_passed_client_open(redis_url, calls):
    with redis.Redis.from_url(redis_url) as client:
        executor = Blocking({"redis": client})
        executor.call(calls.counts())
        open_now = client.info("clients")["connected_clients"]
        executor.close()
        assert client.info("clients")["connected_clients"] == open_now


def test_a_closed_executor_can_be_used_again(redis_url, calls):
    executor = Blocking({"url": redis_url})
    executor.call(calls.counts())
    executor.close()
    assert executor.call(calls.counts()).messages == 0
    executor.close()


def test_the_embedded_server_is_shared_by_name_within_the_process():
    with DelayQueue("q", url="memory://clients-a") as one, DelayQueue("q", url="memory://clients-a") as same:
        one.send_delay_msg(1)
        assert same.counts().living == 1
        with DelayQueue("q", url="memory://clients-b") as other:
            assert other.counts().living == 0

    async def scene():
        async with AsyncDelayQueue("q", url="memory://clients-a") as face:
            return (await face.counts()).living

    assert asyncio.run(scene()) == 1


def test_embedded_mode_without_its_extra_says_what_to_install(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "fakeredis", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'delayq\[embedded\]'"):
        DelayQueue("q", url="memory://clients-c")


@pytest.mark.parametrize("kind", [Executor, AsyncExecutor])
def test_blocking_wait_is_shorter_than_the_socket_timeout(kind):
    module = redis if kind is Executor else redis.asyncio
    for timeout, seconds in [(5, 4.25), (1, 0.5), (0.2, 0.1), (None, 60.0)]:
        assert kind(module.Redis(socket_timeout=timeout), deadline=1, owned=False).max_block == pytest.approx(seconds)
    client = module.Redis.from_url("redis://localhost")
    usual = client.connection_pool.make_connection().socket_timeout  # its options do not show it
    assert kind(client, deadline=1, owned=False).max_block == (max(usual / 2, usual - 0.75) if usual else 60.0)


@pytest.mark.parametrize("ending", [None, redis.ConnectionError("reset"), OSError("reset")])
def test_cancellation_right_after_a_command_was_sent_is_not_lost(redis_url, monkeypatch, ending):
    """`asyncio.wait_for`, by which redis-py sends, swallows it up to Python 3.11."""
    send = redis.asyncio.connection.AbstractConnection.send_packed_command

    async def swallowing(self, *args, **options):
        await send(self, *args, **options)
        if sent is not None:
            sent.set()
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(3600)
            if ending is not None:
                raise ending

    async def scene():
        nonlocal sent
        async with AsyncDelayQueue("q", url=redis_url) as queue:
            await queue.open()
            sent = asyncio.Event()
            leasing = asyncio.ensure_future(queue.lease(block=600).__aenter__())
            await sent.wait()
            sent = None
            leasing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asyncio.wait_for(leasing, 20)
            assert (await queue.counts()).living == 0

    sent: asyncio.Event | None = None
    monkeypatch.setattr(redis.asyncio.connection.AbstractConnection, "send_packed_command", swallowing)
    asyncio.run(scene())


def test_cancellation_while_connecting_fails_is_not_lost(redis_url, monkeypatch):
    async def failing(self, *args, **options):
        tried.set()
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(3600)
        raise redis.ConnectionError("refused")

    async def scene():
        nonlocal tried
        tried = asyncio.Event()
        async with AsyncDelayQueue("q", url=redis_url) as queue:
            counting = asyncio.ensure_future(queue.counts())
            await tried.wait()
            counting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asyncio.wait_for(counting, 20)

    tried: asyncio.Event
    monkeypatch.setattr(redis.asyncio.connection.AbstractConnection, "connect", failing)
    asyncio.run(scene())


def test_queue_is_checked_before_an_operation_not_after_it(open_executor, redis_url):
    """A check that hangs then keeps no result back, and a cancelled one loses none."""
    executor, order = open_executor(redis_url), []

    def noted(name):
        order.append(name)
        yield [RedisCommand(("PING",), str)]

    def operation():
        yield from noted("operation")
        return "result"

    executor.core.checking, executor.core.check_at = lambda: noted("check"), 0

    assert executor.perform(operation()) == "result"
    assert order == ["check", "operation"]


def test_options_of_a_url_are_checked_once_and_wrong_ones_each_time(monkeypatch):
    made = []
    make = redis.connection.Connection.__init__
    monkeypatch.setattr(
        redis.connection.Connection, "__init__", lambda self, **options: made.append(1) or make(self, **options)
    )
    for number in range(5):
        DelayQueue(f"q{number}", url="redis://127.0.0.1:1/0?health_check_interval=7")
    assert len(made) == 1
    for _ in range(2):
        with pytest.raises(ConfigurationError, match="url is malformed"):
            DelayQueue("q", url="redis://127.0.0.1:1/0?no_such_option=7")


def test_a_cluster_url_of_a_single_server_says_so(start_redis):
    server = start_redis(tcp=True)
    queue = DelayQueue("q", url=f"redis+cluster://127.0.0.1:{server.port}", deadline="1s")
    with pytest.raises(DelayqError, match="is not a cluster: its url begins with redis:// or rediss://"):
        queue.stats()
    queue.close()


@pytest.mark.parametrize("own", [None, "class", "health check"])
def test_asyncio_call_is_written_at_once_unless_the_connection_does_more(redis_url, own):
    class Connection(redis.asyncio.UnixDomainSocketConnection):
        async def send_packed_command(self, *args, **options):
            sent.append(args)
            await super().send_packed_command(*args, **options)

    async def scene():
        interval = 60 if own == "health check" else 0
        kind = Connection if own == "class" else redis.asyncio.UnixDomainSocketConnection
        path = redis_url.removeprefix("unix://").partition("?")[0]
        pool = redis.asyncio.ConnectionPool(connection_class=kind, path=path, health_check_interval=interval)
        connection = await pool.get_connection()
        assert sends_plainly(connection) == (own is None)
        sent.clear()
        await _send_async(connection, [b"PING\r\n"])
        assert await connection.read_response() in (b"PONG", True)
        assert len(sent) == (own == "class")
        await pool.disconnect()

    sent = []
    asyncio.run(scene())
