"""A Redis for every test: one server for each pytest process, emptied before each test."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import pytest
import redis

from delayq.throwaway import find_program
from tests.support.redis_server import RedisServer, empty

# Read before `no_settings_from_outside` hides it.
OUTSIDE_URL = os.environ.get("DELAYQ_URL")

COLOURS = ("NO_COLOR", "FORCE_COLOR", "CLICOLOR", "CLICOLOR_FORCE")

# Failures of the model's helpers show what was compared; tests of other folders import them, too.
pytest.register_assert_rewrite(
    *(f"tests.model.{name}" for name in ("laws", "machine", "model", "player", "scan", "traps", "world")),
)

StartRedis = Callable[..., RedisServer]


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
    """Give the log back to pytest after a test in which a command has sent all of it to stderr."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what may take longest: begun last, it would keep one process busy and the others waiting."""

    def limit(item: pytest.Item) -> float:
        marker = item.get_closest_marker("timeout")
        return marker.args[0] if marker else 0.0

    items.sort(key=limit, reverse=True)


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    """The server shared by the tests of this process: not to be stopped or configured (see `start_redis`)."""
    _need_program()
    with RedisServer() as server:
        yield server


@pytest.fixture
def start_redis() -> Iterator[StartRedis]:
    """`start_redis(*config, tcp=False)` starts a server for this test alone, to be treated at will."""
    _need_program()
    with ExitStack() as servers:
        yield lambda *config, tcp=False: servers.enter_context(RedisServer(*config, tcp=tcp))


@pytest.fixture
def redis_url(session_redis_url: str) -> str:
    """The address of an empty Redis."""
    with redis.Redis.from_url(session_redis_url) as client:
        if find_program():
            empty(client)
        else:
            client.flushdb()
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
