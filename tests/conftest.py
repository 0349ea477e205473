"""A Redis for every test: one server for each pytest process, emptied before each test."""

from __future__ import annotations

import gc
import logging
import os
import signal
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import pytest
import redis
import redis.utils

from delayq.testing.redis_server import find_program
from tests.support import processes, tables
from tests.support.imports import without  # noqa: F401 - a fixture
from tests.support.redis_server import RedisServer, empty

# Read before `no_settings_from_outside` hides it.
OUTSIDE_URL = os.environ.get("DELAYQ_URL")

COLOURS = ("NO_COLOR", "FORCE_COLOR", "CLICOLOR", "CLICOLOR_FORCE")

# Failures of the model's helpers show what was compared; tests of other folders import them, too.
pytest.register_assert_rewrite(
    *(f"tests.model.{name}" for name in ("laws", "machine", "model", "player", "scan", "traps", "world")),
)

# redis-py reads its own version from a file at every new connection, and a test makes several.
redis.utils.get_lib_version = cache(redis.utils.get_lib_version)

StartRedis = Callable[..., RedisServer]


def pytest_configure() -> None:
    """Mind Ctrl-C again where this process was started in the background, which has it ignored here and in children."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_report_header() -> str:
    """Say which Redis the tests use."""
    if program := find_program():
        return f"redis: throwaway servers of {program}"
    if OUTSIDE_URL:
        return "redis: DELAYQ_URL, for want of a redis-server; tests that kill or freeze servers are skipped"
    return "redis: none; put a redis-server on PATH or set DELAYQ_URL"


@pytest.fixture(scope="session", autouse=True)
def no_settings_from_outside() -> Iterator[None]:
    """Hide the developer's own DELAYQ_… variables and taste in colours from the tests and what they start."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("DELAYQ_") or name in COLOURS]:
            patch.delenv(name)
        yield


@pytest.fixture(autouse=True)
def log_of_pytest() -> Iterator[None]:
    """Give the log back to pytest after a test in which something has sent all of it to stderr, or disabled it.

    A command does, and `fileConfig`, as in the `env.py` of Alembic, disables each logger that there is.
    """
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.disable(logging.NOTSET)
    for logger in [*root.manager.loggerDict.values()]:
        if isinstance(logger, logging.Logger):
            logger.disabled = False


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[object]:
    """Look for no garbage while tests are collected, and never in what they are: a million objects that stay."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


LONG_LIMIT = 400
"""Seconds for a long test: it takes many on its own, and beside others several times as long."""


@pytest.hookimpl(tryfirst=True)  # before pytest's own hook, which reads the markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave most of what runs on the embedded server to the long tests, and begin with what may take longest.

    The quick tests run on Redis with both faces, and on the embedded server a third with threads and an eighth with
    asyncio. Begun last, a test that takes long would keep one process busy and the others waiting.
    """
    for item in items:
        words = {*item.name.rstrip("]").replace("[", "-").split("-")}
        share = 1 if "memory" not in words else 8 if "asyncio" in words else 3 if "blocking" in words else 1
        if zlib.crc32(item.nodeid.encode()) % share:
            item.add_marker("long")
        if item.get_closest_marker("long") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(LONG_LIMIT))

    def limit(item: pytest.Item) -> float:
        marker = item.get_closest_marker("timeout")
        return marker.args[0] if marker else 0.0

    items.sort(key=limit, reverse=True)


FAILED = pytest.StashKey[bool]()
SHARED = ("emptying", "session_redis_url", "redis_server")
KEPT_SERVERS = 5
"""Shared servers that are up at most, when tests fail."""
TEARDOWN_LIMIT = 60
"""Seconds for the teardown of a test that has used up its time."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[pytest.TestReport]:
    """Note a failure; after a time-out, whose timer is over, set another one for the teardown."""
    report = yield
    if report.failed:
        item.stash[FAILED] = True
        timed_out = call.excinfo and str(call.excinfo.value).startswith("Timeout") and call.when != "teardown"
        if timed_out and callable(signal.getsignal(signal.SIGALRM)):
            signal.setitimer(signal.ITIMER_REAL, TEARDOWN_LIMIT)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """End the processes of a test; after a failure, leave the shared server to whatever still uses it."""
    try:
        return (yield)
    finally:
        processes.end_all()
        if FAILED in item.stash and find_program():
            for name in SHARED:
                for definition in item.session._fixturemanager.getfixturedefs(name, item) or ():
                    definition.finish(item._request)


BETWEEN_ROWS = pytest.StashKey[list[Callable[[], object]]]()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """See `tests.support.tables`."""
    tables.generate(metafunc)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> object | None:
    """Run the rows of a table."""
    return tables.run(pyfuncitem, pyfuncitem.stash.get(BETWEEN_ROWS, []))


@pytest.fixture
def between_rows(request: pytest.FixtureRequest) -> list[Callable[[], object]]:
    """What is called before each row of a table but the first, for fixtures to add to."""
    return request.node.stash.setdefault(BETWEEN_ROWS, [])


@pytest.fixture(scope="session")
def redis_servers() -> Iterator[list[RedisServer]]:
    """The shared server and those before it."""
    servers: list[RedisServer] = []
    yield servers
    for server in servers:
        server.close()


@pytest.fixture(scope="session")
def redis_server(redis_servers: list[RedisServer]) -> RedisServer:
    """The server shared by the tests of this process: not to be stopped or configured (see `start_redis`).

    After a test that failed there is another one: a consumer that still runs would take the messages of later tests.
    """
    _need_program()
    if len(redis_servers) == KEPT_SERVERS:
        redis_servers.pop(0).close()
    redis_servers.append(RedisServer())
    redis_servers[-1].start()
    return redis_servers[-1]


@pytest.fixture
def start_redis() -> Iterator[StartRedis]:
    """`start_redis(*config, tcp=False)` starts a server for this test alone, to be treated at will."""
    _need_program()
    with ExitStack() as servers:
        yield lambda *config, tcp=False: servers.enter_context(RedisServer(*config, tcp=tcp))


@pytest.fixture(scope="session")
def emptying(session_redis_url: str) -> Iterator[redis.Redis]:
    """The client that empties the Redis before each test: to connect would take longer than to empty."""
    with redis.Redis.from_url(session_redis_url) as client:
        yield client


@pytest.fixture
def redis_url(session_redis_url: str, emptying: redis.Redis) -> str:
    """The address of an empty Redis."""
    if find_program():
        empty(emptying)
    else:
        emptying.flushdb()
    return session_redis_url


@pytest.fixture
def redis_client(redis_url: str) -> Iterator[redis.Redis]:
    """A client of that empty Redis; answers in bytes."""
    with redis.Redis.from_url(redis_url) as client:
        yield client


@pytest.fixture(scope="session")
def session_redis_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address that `redis_url` empties: our own server's, else a database of our own at DELAYQ_URL."""
    if find_program() or not OUTSIDE_URL:
        yield request.getfixturevalue("redis_server").url
        return
    url = _database_of_this_process(OUTSIDE_URL)
    with redis.Redis.from_url(url) as client:
        if client.dbsize():
            where = _without_password(url)
            pytest.exit(f"{where} holds keys, and the tests would delete them; empty it first", 1)
        yield url
        client.flushdb()


def _database_of_this_process(url: str) -> str:
    # The processes of pytest-xdist (gw0, gw1, …) share the server and must not empty each other's database.
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    number += redis.Redis.from_url(url).get_connection_kwargs().get("db", 0)
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query)) | {"db": str(number)}
    return urlunsplit(parts._replace(query=urlencode(query)))


def _without_password(url: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def _need_program() -> None:
    if find_program():
        return
    if OUTSIDE_URL:
        pytest.skip("needs a redis-server of its own, and there is none on PATH")
    pytest.fail("needs a redis-server on PATH: see scripts/ensure-redis", pytrace=False)
