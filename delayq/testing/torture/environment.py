"""Where a round takes place: on a server of its own or on the user's, behind a proxy where the network is to break."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from delayq.errors import ConfigurationError
from delayq.throwaway import RedisServer, find_program
from delayq.torture.plan import KINDS, Aof
from delayq.torture.proxy import Proxy
from delayq.torture.shim import NoShimError, Shim, build

_NETWORK = {"replies", "cut"}


@dataclass(frozen=True, slots=True)
class Ground:
    """What a run can do, and with what."""

    url: str | None
    """The user's Redis; None for servers of our own."""
    shim: Shim | None
    allowed: tuple[str, ...]
    """The kinds of faults that can be done."""
    missing: tuple[str, ...]
    """Why others cannot, a sentence each."""


@dataclass(frozen=True, slots=True)
class Place:
    """A server, as the processes of a round see it."""

    direct: str
    url: str
    server: RedisServer | None
    proxy: Proxy | None


def survey(url: str | None, folder: Path) -> Ground:
    """Find out what can be done; the shim is built in `folder`."""
    if url is not None:
        scheme = urlsplit(url).scheme
        if scheme == "memory":
            raise ConfigurationError("memory:// is within one process, and a torture run has many")
        allowed = tuple(kind for kind, about in KINDS.items() if not about.server)
        if scheme == "redis":
            return Ground(url, None, allowed, ("on a Redis that is not ours, nothing is done to the server",))
        network = f"{scheme}:// cannot go through the proxy: no replies are lost and no connections cut"
        return Ground(url, None, tuple(kind for kind in allowed if kind not in _NETWORK), (network,))
    if find_program() is None:
        raise ConfigurationError("there is no redis-server on PATH: give --url, for a Redis that is there")
    try:
        return Ground(None, build(folder), tuple(KINDS), ())
    except NoShimError as error:
        allowed = tuple(kind for kind, about in KINDS.items() if not about.shim)
        without = ", ".join(kind for kind, about in KINDS.items() if about.shim)
        return Ground(None, None, allowed, (f"{error}; left out: {without}",))


@contextmanager
def open_place(ground: Ground, kinds: Collection[str], aof: Aof) -> Iterator[Place]:
    """Yield a place for a round with these kinds of faults; what is ours is gone at the end."""
    with ExitStack() as stack:
        server = None
        if ground.url is None:
            config = ("--appendonly", "yes", "--appendfsync", aof) if aof != "no" else ()
            server = stack.enter_context(RedisServer(*config, env=ground.shim.env if ground.shim else None))
        direct = ground.url or (server.url if server else "")
        proxy = stack.enter_context(Proxy(direct)) if _NETWORK & set(kinds) else None
        yield Place(direct, _through(proxy, direct) if proxy else direct, server, proxy)


def _through(proxy: Proxy, direct: str) -> str:
    """Return the address of a server as it is seen through the proxy: with its credentials and database."""
    parts, ours = urlsplit(direct), urlsplit(proxy.url)
    if parts.scheme != "redis":
        return proxy.url
    credentials, at, _ = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=f"{credentials}{at}{ours.netloc}"))
