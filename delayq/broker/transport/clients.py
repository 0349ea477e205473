"""Makes the clients that executors work with: from a URL, or from a client of redis-py that was passed in."""

from __future__ import annotations

import ipaddress
import logging
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import redis
import redis.asyncio
import redis.asyncio.cluster
import redis.asyncio.connection
import redis.asyncio.retry
import redis.asyncio.sentinel
import redis.cluster
import redis.connection
import redis.retry
import redis.sentinel
from redis.backoff import NoBackoff

from delayq.config import QueueOptions, Settings, find_url
from delayq.conversation import Address
from delayq.errors import ConfigurationError
from delayq.routes import Routes

log = logging.getLogger("delayq.clients")

SENTINEL_TIMEOUT = 1.0
"""Seconds one Sentinel is waited for at most: there are others to be asked."""
LONGEST_BLOCK = 60.0
"""Seconds that a blocking command waits at most, where no time-out of the client's sockets ends it sooner."""
_USUAL_TIMEOUT: float | None = getattr(redis.connection, "DEFAULT_SOCKET_TIMEOUT", None)
"""Of a client that is made from a URL without one: from redis-py 8 on there is one, which its options do not show."""


def longest_block(options: Mapping[str, Any]) -> float:
    """Return how long a blocking command may wait, in seconds, so that it answers within the socket's time-out.

    `options` are those that connections are made with.
    """
    timeout = options.get("socket_timeout", _USUAL_TIMEOUT)
    return LONGEST_BLOCK if timeout is None else min(LONGEST_BLOCK, float(timeout) / 2)


class Kind(NamedTuple):
    """The classes of redis-py for one face."""

    client: Any
    pool: Any
    parse_url: Callable[[str], Any]
    retry: Any
    sentinel: Any
    sentinel_pool: Any
    cluster: Any
    embedded: str


BLOCKING = Kind(
    redis.Redis,
    redis.ConnectionPool,
    redis.connection.parse_url,
    redis.retry.Retry,
    redis.sentinel.Sentinel,
    redis.sentinel.SentinelConnectionPool,
    redis.cluster.RedisCluster,
    "FakeRedis",
)
ASYNCIO = Kind(
    redis.asyncio.Redis,
    redis.asyncio.ConnectionPool,
    redis.asyncio.connection.parse_url,
    redis.asyncio.retry.Retry,
    redis.asyncio.sentinel.Sentinel,
    redis.asyncio.sentinel.SentinelConnectionPool,
    redis.asyncio.cluster.RedisCluster,
    "FakeAsyncRedis",
)


class Cluster:
    """The nodes of a Redis Cluster, each with a pool that is made when the node is first spoken to."""

    def __init__(
        self, kind: Kind, routes: Routes, make_pool: Callable[[Address], Any], connection_kwargs: dict[str, Any]
    ) -> None:
        """Connect as `make_pool` does, with the options `connection_kwargs`."""
        self.kind = kind
        self.routes = routes
        self.connection_kwargs = connection_kwargs
        self._make_pool = make_pool
        self._pools: dict[Address, Any] = {}

    def pool(self, node: Address) -> Any:
        """Return the pool of a node."""
        # Of pools that two threads make at once, both take the same.
        return self._pools.get(node) or self._pools.setdefault(node, self._make_pool(node))

    def __repr__(self) -> str:
        """Show the nodes known."""
        return f"<Cluster {', '.join(f'{host}:{port}' for host, port in self.routes.nodes)}>"


def find_client(kind: Kind, options: QueueOptions, settings: Settings) -> tuple[Any, bool]:
    """Return a client or a `Cluster`, and whether its connections are delayq's own, to be kept and closed by it."""
    client = options.get("redis")
    if client is not None:
        return (_cluster_of(client, kind), True) if isinstance(client, kind.cluster) else (_given(client, kind), False)
    url = find_url(options)
    if url.startswith(EMBEDDED):
        # Nothing to close: there is no socket, and fakeredis cannot end a blocking wait of another thread.
        return _embedded(kind, _embedded_name(url)), False
    return _connected(kind, url, settings), True


def _given(client: Any, kind: Kind) -> Any:
    if isinstance(client, Cluster) and client.kind is kind:
        return client
    if not isinstance(client, kind.client):
        name = f"{kind.client.__module__}.{kind.client.__name__}"
        raise ConfigurationError(f"redis must be a {name}, not {type(client).__name__}")
    pool = client.connection_pool
    if isinstance(pool, kind.sentinel_pool) and not pool.is_master:
        raise ConfigurationError("the client reads from a replica: pass one that Sentinel's master_for has made")
    return _undecoding(client, pool.connection_kwargs)


def _undecoding(client: Any, connection_kwargs: dict[str, Any]) -> Any:
    if connection_kwargs.get("decode_responses"):
        raise ConfigurationError("the client has decode_responses=True, and payloads are bytes: make it without")
    return client


def _cluster_of(client: Any, kind: Kind) -> Cluster:
    """Return the cluster of a client of redis-py: its addresses and options, but connections and retries of our own."""
    manager, options = client.nodes_manager, dict(client.get_connection_kwargs())
    seeds = [(node.host, int(node.port)) for node in manager.startup_nodes.values()]

    def make_pool(node: Address) -> Any:
        if kind is BLOCKING:
            return manager.create_redis_node(*node, **options).connection_pool
        made = redis.asyncio.cluster.ClusterNode(*node, **options)
        limits = {"max_connections": made.max_connections, "connection_class": made.connection_class}
        return kind.pool(**limits, **made.connection_kwargs)

    return _undecoding(Cluster(kind, Routes(seeds, manager.remap_host_port), make_pool, options), options)  # type: ignore[no-any-return]


_SCHEME = re.compile(r"(?:redis(s)?(?:\+(sentinel|cluster))?|unix)://")


def _connected(kind: Kind, url: str, settings: Settings) -> Any:
    """Return a client of our own. What is wrong with a URL is not quoted: any part of it may be of a password."""
    scheme = _SCHEME.match(url)
    if not scheme:
        raise ConfigurationError(
            "url must begin with redis://, rediss://, unix:// or memory://, or for several servers with"
            " redis+sentinel://, rediss+sentinel://, redis+cluster:// or rediss+cluster://"
        )
    timeout = settings.socket_timeout / 1000
    limits = {"socket_timeout": timeout, "socket_connect_timeout": timeout, "retry": kind.retry(NoBackoff(), 0)}
    if not url.startswith("unix"):
        limits["socket_keepalive"] = True
    if scheme[1]:
        limits["ssl_check_hostname"] = True  # which before redis-py 6 was not the default
    make = {"sentinel": _behind_sentinels, "cluster": _in_cluster}.get(scheme[2], _single)
    try:
        client, pool, told = make(kind, url, limits)
        pool.connection_class(**pool.connection_kwargs)  # refuses options that redis-py does not know
    except ConfigurationError:
        raise
    except (ValueError, TypeError):
        text = "url is malformed: check its ports and options, and percent-encode reserved characters of its password"
        raise ConfigurationError(text) from None
    if not scheme[1]:
        _warn_of_open_password(told)
    return _undecoding(client, pool.connection_kwargs)


_Made = tuple[Any, Any, list[Address]]
"""A client, one of its pools, and the addresses of its URL that are told a password."""


def _single(kind: Kind, url: str, limits: dict[str, Any]) -> _Made:
    client = kind.client.from_url(url, **limits)
    at = client.connection_pool.connection_kwargs
    told = [(at.get("host", "localhost"), at.get("port", 6379))] if at.get("password") else []
    return client, client.connection_pool, told


def _behind_sentinels(kind: Kind, url: str, limits: dict[str, Any]) -> _Made:
    addresses, options = _read(kind, url, port=26379)
    master = options.pop("master", None)
    if not master:
        raise ConfigurationError("the url of Sentinels must say which master is meant: end it with ?master=NAME")
    theirs = {name: options.pop(f"sentinel_{name}", None) for name in ("username", "password")}
    if options.pop("connection_class", None):
        options["ssl"] = True
    options = {**limits, **options}
    timeout = min(SENTINEL_TIMEOUT, limits["socket_timeout"])
    theirs |= {name: value for name, value in options.items() if name in limits or name.startswith("ssl")}
    theirs |= {"socket_timeout": timeout, "socket_connect_timeout": timeout}
    sentinels = kind.sentinel(addresses, sentinel_kwargs=theirs, **options)
    client = sentinels.master_for(master)
    told = addresses if options.get("password") or theirs["password"] else []
    return client, client.connection_pool, told


def _in_cluster(kind: Kind, url: str, limits: dict[str, Any]) -> _Made:
    addresses, options = _read(kind, url, port=6379)
    if options.pop("db", 0):
        raise ConfigurationError("a Redis Cluster has no databases but 0: end the url with /0 or nothing")
    options = {**limits, **options}

    def make_pool(node: Address) -> Any:
        return kind.pool(host=node[0], port=node[1], **options)

    cluster = Cluster(kind, Routes(addresses), make_pool, options)
    return cluster, cluster.pool(addresses[0]), addresses if options.get("password") else []


def _read(kind: Kind, url: str, port: int) -> tuple[list[Address], dict[str, Any]]:
    """Return the addresses and the options of a URL with several hosts; `port` is that of those without."""
    parts = urlsplit(url)
    user, at, hosts = parts.netloc.rpartition("@")
    scheme = parts.scheme.partition("+")[0]
    found = [
        kind.parse_url(parts._replace(scheme=scheme, netloc=f"{user}{at}{host}").geturl()) for host in hosts.split(",")
    ]
    addresses = [(one.pop("host"), one.pop("port", port)) for one in found if "host" in one]
    if len(addresses) < len(found):
        raise ValueError("a host without a name")
    return addresses, found[0]


_warned: set[tuple[Address, ...]] = set()


def _warn_of_open_password(addresses: list[Address]) -> None:
    """Warn once of a password that anyone on the way can read."""
    away = tuple(address for address in addresses if not _is_here(address[0]))
    if away and away not in _warned:
        _warned.add(away)
        where = ", ".join(f"{host}:{port}" for host, port in away)
        log.warning("the password for Redis at %s goes over the network unencrypted: use rediss://", where)


def _is_here(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


EMBEDDED = "memory://"
_MEMORY: dict[str, Any] = {}
"""The embedded servers of this process by name, shared between its queues."""


def _embedded(kind: Kind, name: str) -> Any:
    try:
        import fakeredis
        import lupa  # noqa: F401 - what fakeredis runs the scripts with
    except ImportError as error:
        raise ConfigurationError("memory:// needs the extra: pip install 'delayq[embedded]'") from error
    server = _MEMORY.setdefault(name, fakeredis.FakeServer(version=(7,)))
    return getattr(fakeredis, kind.embedded)(server=server)


def _embedded_name(url: str) -> str:
    return url.removeprefix(EMBEDDED) or "default"


def forget_embedded(url: str) -> None:
    """Let an embedded server go, with all it holds; queues that use it keep theirs until they are closed."""
    _MEMORY.pop(_embedded_name(url), None)
