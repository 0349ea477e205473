"""Makes the clients of executors: from a URL, or from a redis-py client that was passed in."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any
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

from delayq.broker.transport.cluster import SlotMap
from delayq.broker.transport.protocol import Address
from delayq.broker.transport.server_url import find_url, url_source
from delayq.errors import ConfigurationError
from delayq.options import QueueOptions, Settings
from delayq.safe_log import SafeLog

log = SafeLog("delayq.clients")

SENTINEL_TIMEOUT = 1.0
"""Seconds to wait for one Sentinel at most: there are others to ask."""
MAX_BLOCK = 60.0
"""Seconds that a blocking command waits at most; a shorter socket timeout of the client lowers it."""
REPLY_TIME = 0.75
"""Seconds of the socket timeout that are left for a reply after a wait; half of a shorter timeout."""
_DEFAULT_TIMEOUT: float | None = getattr(redis.connection, "DEFAULT_SOCKET_TIMEOUT", None)
"""The socket timeout of a client made without one. redis-py 8 has a default, which its options do not show."""


def max_block(options: Mapping[str, Any]) -> float:
    """Return the seconds a blocking command may wait, so that it replies within the socket's timeout.

    `options` are the options of the connections.
    """
    timeout = options.get("socket_timeout", _DEFAULT_TIMEOUT)
    return MAX_BLOCK if timeout is None else min(MAX_BLOCK, max(timeout / 2, timeout - REPLY_TIME))


class Cluster:
    """The nodes of a Redis Cluster; each gets a connection pool at first use."""

    def __init__(
        self,
        kind: ModuleType,
        slot_map: SlotMap,
        make_pool: Callable[[Address], Any],
        connection_kwargs: dict[str, Any],
    ) -> None:
        """Connect with `make_pool`, with the options `connection_kwargs`."""
        self.kind = kind
        self.slot_map = slot_map
        self.connection_kwargs = connection_kwargs
        self._make_pool = make_pool
        self._pools: dict[Address, Any] = {}

    def pool(self, node: Address) -> Any:
        """Return the pool of a node."""
        # If two threads make a pool at once, both use the same.
        return self._pools.get(node) or self._pools.setdefault(node, self._make_pool(node))

    def __repr__(self) -> str:
        return f"<Cluster {_joined(self.slot_map.nodes)}>"


def find_client(options: QueueOptions, settings: Settings, *, awaits: bool) -> tuple[Any, bool]:
    """Return a client or a `Cluster`, and whether delayq owns its connections: keeps and closes them."""
    kind: ModuleType = redis.asyncio if awaits else redis  # both have the same names
    client = options.get("redis")
    if client is not None and isinstance(client, kind.cluster.RedisCluster):
        return _cluster_of(client, kind), True
    if client is not None:
        return _check_client(client, kind), False
    url = find_url(options)
    if url.startswith(EMBEDDED):
        # Nothing to close: there is no socket, and fakeredis cannot end a blocking wait of another thread.
        return _embedded(kind, _embedded_name(url)), False
    try:
        return _connected(kind, url, settings), True
    except ConfigurationError as error:
        raise ConfigurationError(f"{error} ({url_source(options)})") from None


def describe_server(client: Any, options: QueueOptions) -> str:
    """Return the address of the server, and where its URL is from: "localhost:6379 (from DELAYQ_URL)"."""
    source = "" if options.get("redis") is not None else f" ({url_source(options)})"
    if isinstance(client, Cluster):
        return _joined(client.slot_map.nodes) + source
    pool = client.connection_pool
    if hasattr(pool, "sentinel_manager"):
        of_sentinels = [sentinel.connection_pool.connection_kwargs for sentinel in pool.sentinel_manager.sentinels]
        return f"the Sentinels {_joined((one['host'], one['port']) for one in of_sentinels)}{source}"
    one = pool.connection_kwargs
    return (one.get("path") or _joined([(one.get("host", "localhost"), one.get("port", 6379))])) + source


def _joined(addresses: Iterable[Address]) -> str:
    return ", ".join(f"{host}:{port}" for host, port in addresses)


def _check_client(client: Any, kind: ModuleType) -> Any:
    if isinstance(client, Cluster) and client.kind is kind:
        return client
    if not isinstance(client, kind.Redis):
        name = f"{kind.Redis.__module__}.{kind.Redis.__name__}"
        raise ConfigurationError(f"redis must be a {name}, not {type(client).__name__}")
    pool = client.connection_pool
    if isinstance(pool, kind.sentinel.SentinelConnectionPool) and not pool.is_master:
        raise ConfigurationError("the client reads from a replica: pass a client made by Sentinel.master_for")
    return _check_bytes(client, pool.connection_kwargs)


def _check_bytes(client: Any, connection_kwargs: dict[str, Any]) -> Any:
    if connection_kwargs.get("decode_responses"):
        raise ConfigurationError(
            "the client has decode_responses=True, and payloads are bytes: create it without decode_responses"
        )
    return client


def _cluster_of(client: Any, kind: ModuleType) -> Cluster:
    """Return a `Cluster` with the addresses and options of a redis-py client, but our own connections and retries."""
    manager, options = client.nodes_manager, dict(client.get_connection_kwargs())
    seeds = [(node.host, int(node.port)) for node in manager.startup_nodes.values()]

    def make_pool(node: Address) -> Any:
        if kind is redis:
            return manager.create_redis_node(*node, **options).connection_pool
        made = redis.asyncio.cluster.ClusterNode(*node, **options)
        limits = {"max_connections": made.max_connections, "connection_class": made.connection_class}
        return kind.ConnectionPool(**limits, **made.connection_kwargs)

    return _check_bytes(Cluster(kind, SlotMap(seeds, manager.remap_host_port), make_pool, options), options)  # type: ignore[no-any-return]


_accepted: set[tuple[ModuleType, str]] = set()
"""The URLs whose options redis-py has taken."""
_SCHEME = re.compile(r"(?:redis(s)?(?:\+(sentinel|cluster))?|unix)://")


def _connected(kind: ModuleType, url: str, settings: Settings) -> Any:
    """Return a new client. Errors never quote the URL: any part of it may be part of a password."""
    scheme = _SCHEME.match(url)
    if not scheme:
        raise ConfigurationError(
            "url must begin with redis://, rediss://, unix:// or memory://, or for several servers with"
            " redis+sentinel://, rediss+sentinel://, redis+cluster:// or rediss+cluster://"
        )
    timeout = settings.socket_timeout / 1000
    limits = {"socket_timeout": timeout, "socket_connect_timeout": timeout, "retry": kind.retry.Retry(NoBackoff(), 0)}
    if not url.startswith("unix"):
        limits["socket_keepalive"] = True
    if scheme[1]:
        limits["ssl_check_hostname"] = True  # not the default before redis-py 6
    make = {"sentinel": _behind_sentinels, "cluster": _in_cluster}.get(scheme[2], _single)
    try:
        _check_whole(url)
        client, pool, addresses = make(kind, url, limits)
        if (kind, url) not in _accepted:  # making a connection takes redis-py 10 ms
            pool.connection_class(**pool.connection_kwargs)  # refuses options that redis-py does not know
            _accepted.add((kind, url))
    except ConfigurationError:
        raise
    except (ValueError, TypeError):
        text = "url is malformed: check its ports and options, and percent-encode reserved characters of its password"
        raise ConfigurationError(text) from None
    if scheme[1]:
        _check_files(pool.connection_kwargs)
    else:
        _warn_of_open_password(addresses)
    return _check_bytes(client, pool.connection_kwargs)


def _check_whole(url: str) -> None:
    """Raise `ConfigurationError` if a URL is cut within a password: its end would count as host, path or options.

    The path of a Unix socket may have an `@`, if there is no user or password before it.
    """
    parts = urlsplit(url)
    path = parts.path if parts.netloc or parts.scheme != "unix" else ""
    if "@" in f"{path}{parts.query}{parts.fragment}":
        advice = "percent-encode reserved characters of its password, such as / as %2F"
        raise ConfigurationError(f"url has an @ after a /, ? or #: {advice}")


def _check_files(connection_kwargs: dict[str, Any]) -> None:
    """Raise `ConfigurationError` if a file for TLS cannot be read."""
    for name in ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile"):
        if path := connection_kwargs.get(name):
            try:
                Path(path).open("rb").close()
            except OSError as error:
                raise ConfigurationError(f"{name} of the url cannot be read: {error.strerror}") from None


_Made = tuple[Any, Any, list[Address]]
"""A client, one of its pools, and the addresses that a password is sent to."""


def _single(kind: ModuleType, url: str, limits: dict[str, Any]) -> _Made:
    client = kind.Redis.from_url(url, **limits)
    at = client.connection_pool.connection_kwargs
    with_password = [(at.get("host", "localhost"), at.get("port", 6379))] if at.get("password") else []
    return client, client.connection_pool, with_password


def _behind_sentinels(kind: ModuleType, url: str, limits: dict[str, Any]) -> _Made:
    addresses, options = _read(kind, url, port=26379)
    master = options.pop("master", None)
    if not master:
        raise ConfigurationError("the url of Sentinels does not name the master: end it with ?master=NAME")
    of_sentinels = {name: options.pop(f"sentinel_{name}", None) for name in ("username", "password")}
    if options.pop("connection_class", None):
        options["ssl"] = True
    options = {**limits, **options}
    timeout = min(SENTINEL_TIMEOUT, limits["socket_timeout"])
    of_sentinels |= {name: value for name, value in options.items() if name in limits or name.startswith("ssl")}
    of_sentinels |= {"socket_timeout": timeout, "socket_connect_timeout": timeout}
    sentinels = kind.sentinel.Sentinel(addresses, sentinel_kwargs=of_sentinels, **options)
    client = sentinels.master_for(master)
    with_password = addresses if options.get("password") or of_sentinels["password"] else []
    return client, client.connection_pool, with_password


def _in_cluster(kind: ModuleType, url: str, limits: dict[str, Any]) -> _Made:
    addresses, options = _read(kind, url, port=6379)
    if options.pop("db", 0):
        raise ConfigurationError("a Redis Cluster has only database 0: remove the database from the url")
    options = {**limits, **options}

    def make_pool(node: Address) -> Any:
        return kind.ConnectionPool(host=node[0], port=node[1], **options)

    cluster = Cluster(kind, SlotMap(addresses), make_pool, options)
    return cluster, cluster.pool(addresses[0]), addresses if options.get("password") else []


def _read(kind: ModuleType, url: str, port: int) -> tuple[list[Address], dict[str, Any]]:
    """Return the addresses and the options of a URL with several hosts; `port` is the default port."""
    parts = urlsplit(url)
    user, at, hosts = parts.netloc.rpartition("@")
    scheme = parts.scheme.partition("+")[0]
    found = [
        kind.connection.parse_url(parts._replace(scheme=scheme, netloc=f"{user}{at}{host}").geturl())
        for host in hosts.split(",")
    ]
    addresses = [(one.pop("host"), one.pop("port", port)) for one in found if "host" in one]
    if len(addresses) < len(found):
        raise ValueError("a host without a name")
    return addresses, found[0]


_warned: set[tuple[Address, ...]] = set()


def _warn_of_open_password(addresses: list[Address]) -> None:
    """Warn once about a password that is sent over the network in clear text."""
    remote = tuple(address for address in addresses if not _is_local(address[0]))
    if remote and remote not in _warned:
        _warned.add(remote)
        text = "the password for Redis at %s goes over the network unencrypted: use rediss://"
        log.warning(text, _joined(remote))


def _is_local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


EMBEDDED = "memory://"
_MEMORY: dict[str, Any] = {}
"""The embedded servers of this process by name, shared between its queues."""


def _embedded(kind: ModuleType, name: str) -> Any:
    try:
        import fakeredis
        import lupa  # noqa: F401 - fakeredis runs the scripts with it
    except ImportError as error:
        raise ConfigurationError("memory:// needs the extra: pip install 'delayq[embedded]'") from error
    server = _MEMORY.setdefault(name, fakeredis.FakeServer(version=(7,)))
    return (fakeredis.FakeRedis if kind is redis else fakeredis.FakeAsyncRedis)(server=server)


def _embedded_name(url: str) -> str:
    return url.removeprefix(EMBEDDED) or "default"


def forget_embedded(url: str) -> None:
    """Drop an embedded server with its data; open queues keep using it until they are closed."""
    _MEMORY.pop(_embedded_name(url), None)


def uses_tls(pool: Any) -> bool:
    """Return whether the connections of a pool are encrypted."""
    return issubclass(pool.connection_class, redis.SSLConnection | redis.asyncio.SSLConnection)


_SEND = redis.asyncio.connection.AbstractConnection.send_packed_command


def sends_plainly(connection: Any) -> bool:
    """Return whether an asyncio connection does no more to send than to write to its socket."""
    return type(connection).send_packed_command is _SEND and not connection.health_check_interval
