"""Where a round runs: on a server of its own or on the user's, behind a proxy if the network is to fail."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from delayq.broker.transport.clients import find_client
from delayq.errors import ConfigurationError
from delayq.options import read_settings
from delayq.testing.redis_server import RedisServer, find_program
from delayq.testing.torture.disturbing.libc_shim import NoShimError, Shim, build
from delayq.testing.torture.disturbing.tcp_proxy import Proxy
from delayq.testing.torture.round_plan import EXCLUSIVE, FAULT_KINDS, Aof

_NETWORK = ("cut", "replies", "refuse")


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Which faults a run can cause, and with what."""

    url: str | None
    """The user's Redis; None for servers of our own."""
    shim: Shim | None
    allowed: tuple[str, ...]
    """The possible kinds of faults."""
    missing: tuple[str, ...]
    """Why the others are not possible, a sentence each."""


@dataclass(frozen=True, slots=True)
class Environment:
    """The Redis of a round, and what its faults use: None if this round has no fault that needs it."""

    direct: str
    url: str
    """As the processes reach it, possibly through the proxy."""
    aof: Aof
    server: Any
    """A `RedisServer` of our own."""
    proxy: Any
    """A `Proxy`."""
    shim: Any
    """The `Shim` of the server."""


def detect_capabilities(url: str | None, folder: Path) -> Capabilities:
    """Find out which faults are possible; the shim is built in `folder`."""
    shim, missing, left_out = None, "", list[str]()
    if url is not None:
        scheme = urlsplit(url).scheme
        if scheme == "memory":
            raise ConfigurationError("memory:// exists in one process only; torture runs several: use a real Redis")
        missing, left_out = "server faults are left out: this Redis was not started by us", list(EXCLUSIVE)
        find_client({"url": url}, read_settings({}), awaits=False)  # refuses a malformed URL
        if scheme != "redis":
            missing = f"the proxy does not support {scheme}://: left out: {', '.join(_NETWORK)}"
            left_out += _NETWORK
    elif find_program() is None:
        raise ConfigurationError("no redis-server on PATH: install it, or give --url of a running Redis")
    else:
        try:
            shim = build(folder)
        except NoShimError as error:
            left_out = [kind for kind, about in FAULT_KINDS.items() if about.shim]
            missing = f"{error}; left out: {', '.join(left_out)}"
    allowed = tuple(kind for kind in FAULT_KINDS if kind not in left_out)
    return Capabilities(url, shim, allowed, (missing,) if missing else ())


@contextmanager
def open_environment(capabilities: Capabilities, kinds: Collection[str], aof: Aof) -> Iterator[Environment]:
    """Yield the Redis for a round with these kinds of faults; remove at the end what we started."""
    shim, server = capabilities.shim, None
    with ExitStack() as stack:
        if capabilities.url is None:
            config = ("--appendonly", "yes", "--appendfsync", aof) if aof != "no" else ()
            server = stack.enter_context(RedisServer(*config, env=shim.env if shim else None))
        direct = capabilities.url or (server.url if server else "")
        proxy = stack.enter_context(Proxy(direct)) if any(kind in _NETWORK for kind in kinds) else None
        yield Environment(direct, proxy.url if proxy else direct, aof, server, proxy, shim)
