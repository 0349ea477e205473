"""URLs of webhooks, and connections: kept alive, by the proxy of the environment, with a deadline for a whole request.

Import it only where httpx is known to be installed.
"""

from __future__ import annotations

import base64
import ipaddress
import re
import socket
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote
from urllib.request import getproxies, proxy_bypass

import httpcore
import httpx

from delayq.delivery.envelope import Template, fields
from delayq.delivery.trouble import os_error, worst_of
from delayq.errors import ConfigurationError
from delayq.values.outcomes import Reject
from delayq.values.times import monotonic
from delayq.worker.delivery.message import Message

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_NOT_PUBLIC = [
    ipaddress.ip_network(network)
    for network in (
        "100.64.0.0/10",  # RFC 6598: shared by carriers; also metadata of Alibaba Cloud
        "168.63.129.16/32",  # metadata of Azure
        "192.0.0.0/24",  # RFC 6890: special; also metadata of Oracle Cloud
        "192.88.99.0/24",  # RFC 7526: relays of 6to4, not used any more
        "2001::/23",  # RFC 2928: protocol assignments; also Teredo, whose tunnels end anywhere
        "2001:db8::/32",  # RFC 3849: documentation
        "3fff::/20",  # RFC 9637: documentation
    )
]
"""What is not public, whatever the Python version knows; newer registries have more than older versions."""
_GLOBAL_UNICAST = ipaddress.ip_network("2000::/3")
"""The only IPv6 addresses that IANA assigns to networks (RFC 4291); what is beyond stands for IPv4 or is special."""
_STANDS_FOR_IPV4 = {
    ipaddress.ip_network("::ffff:0:0/96"): 0,  # RFC 4291: mapped
    ipaddress.ip_network("::ffff:0:0:0/96"): 0,  # RFC 2765: translated
    ipaddress.ip_network("64:ff9b::/96"): 0,  # RFC 6052: translated on the internet; 64:ff9b:1::/48 is within a network
    ipaddress.ip_network("2002::/16"): 80,  # RFC 3056: 6to4
}
"""Networks of addresses that lead to an IPv4 address, and how many bits follow it."""


def is_public(text: str) -> bool:
    """Return whether an IP address is one of the internet."""
    address: Address = ipaddress.ip_address(text.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address):
        for network, after in _STANDS_FOR_IPV4.items():
            if address in network:
                address = ipaddress.IPv4Address(int(address) >> after & 0xFFFFFFFF)
                break
        else:
            if address not in _GLOBAL_UNICAST:
                return False
    return address.is_global and not address.is_multicast and not any(address in network for network in _NOT_PUBLIC)


MAX_IDLE_CONNECTIONS = 100
"""Idle connections to keep open for the next messages."""
IDLE_SECONDS = 5.0
"""Close a connection that was idle for so long: the receiver may close it at any time."""

_PIECE = 1 << 14
"""Bytes of a request to send under one timeout; each is sent under what is left of the deadline."""


class Deadline:
    """The time at which the request of this thread must have ended."""

    def __init__(self) -> None:
        self._local = threading.local()

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """Give all waits in this block `seconds` together."""
        self._local.until = monotonic() + seconds
        try:
            yield
        finally:
            del self._local.until

    def left(self, error: type[Exception]) -> float | None:
        """Return the seconds left, None without a deadline; raises `error` if there are none."""
        until: float | None = getattr(self._local, "until", None)
        if until is None:
            return None
        left = until - monotonic()
        if left <= 0:
            raise error("the time is over")
        return left


class PrivateAddressError(Exception):
    """A host has an address that is not public; no connection was made."""


def open_pool(url: httpx.URL, deadline: Deadline, *, only_public: bool = False) -> httpcore.ConnectionPool:
    """Return the connections to a receiver.

    With `only_public`, connecting to any other address raises `PrivateAddressError`. The addresses that are judged are
    those connected to. No proxy is used then: it would look up the host itself. Raises `ConfigurationError` for trusted
    certificates or a proxy of the environment that cannot be used.
    """
    try:
        ssl_context = httpx.create_ssl_context()
    except (OSError, ValueError) as error:
        text = f"trusted certificates cannot be read ({error}): check SSL_CERT_FILE and SSL_CERT_DIR"
        raise ConfigurationError(text) from error
    options: dict[str, Any] = {
        "ssl_context": ssl_context,
        "max_connections": None,
        "max_keepalive_connections": MAX_IDLE_CONNECTIONS,
        "keepalive_expiry": IDLE_SECONDS,
        "network_backend": _Backend(deadline, only_public=only_public),
    }
    proxies = getproxies()
    proxy = proxies.get(url.scheme) or proxies.get("all")
    if only_public or not proxy or proxy_bypass(url.host):
        return httpcore.ConnectionPool(**options)
    try:
        through = httpx.Proxy(proxy if "://" in proxy else f"http://{proxy}")
        kind = httpcore.SOCKSProxy if through.url.scheme.startswith("socks5") else httpcore.HTTPProxy
        return kind(proxy_url=core_url(through.url), proxy_auth=through.raw_auth, **options)
    except RuntimeError as error:
        raise ConfigurationError("a SOCKS proxy needs another package: pip install 'httpx[socks]'") from error
    except (httpx.InvalidURL, ValueError):  # not shown: it may have a password
        raise ConfigurationError("the proxy of the environment is no valid URL: check HTTPS_PROXY") from None


def core_url(url: httpx.URL) -> httpcore.URL:
    """Return a URL as httpcore takes it."""
    return httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path)


class _Backend(httpcore.NetworkBackend):
    """Connects to the addresses of a host in turn."""

    def __init__(self, deadline: Deadline, *, only_public: bool) -> None:
        self._deadline = deadline
        self._only_public = only_public
        self._plain = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        del timeout
        errors: dict[OSError, Exception] = {}
        addresses = _addresses(host, port)
        if self._only_public and not all(map(is_public, addresses)):
            raise PrivateAddressError(host)
        for address in addresses:
            left = self._deadline.left(httpcore.ConnectTimeout)
            try:
                stream = self._plain.connect_tcp(address, port, left, local_address, socket_options)
            except httpcore.ConnectError as failed:
                errors[os_error(failed) or OSError(str(failed))] = failed
            else:
                return _Stream(stream, self._deadline)
        raise errors[worst_of([*errors])] if errors else httpcore.ConnectError(f"no address for {host}")


class _Stream(httpcore.NetworkStream):
    """A connection whose waits end with the request that uses it."""

    def __init__(self, stream: httpcore.NetworkStream, deadline: Deadline) -> None:
        self._stream = stream
        self._deadline = deadline

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        del timeout
        return self._stream.read(max_bytes, self._deadline.left(httpcore.ReadTimeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        del timeout
        for at in range(0, len(buffer), _PIECE):
            self._stream.write(buffer[at : at + _PIECE], self._deadline.left(httpcore.WriteTimeout))

    def close(self) -> None:
        self._stream.close()

    def start_tls(self, ssl_context: Any, server_hostname: str | None = None, timeout: float | None = None) -> _Stream:
        del timeout
        left = self._deadline.left(httpcore.ConnectTimeout)
        return _Stream(self._stream.start_tls(ssl_context, server_hostname, left), self._deadline)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


def _addresses(host: str, port: int) -> list[str]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:  # a part of the name is too long
        raise httpcore.ConnectError(str(error)) from error
    return list(dict.fromkeys(str(address[4][0]) for address in found))


_DOTS = re.compile(r"/\.{1,2}(?=[/?#]|$)")


class WebhookUrl:
    """Makes the URL of each message.

    Values are percent-encoded, so they cannot leave their place; only a template that begins with a field takes it as
    it is.
    """

    def __init__(self, url: str) -> None:
        """Check a URL, or parse a template; raises `ConfigurationError` for anything else."""
        self._template = Template(url, "url")
        self._raw = isinstance(url, str) and url.startswith("{") and not url.startswith("{{")
        self._fixed = None if self._template.has_fields else checked_url(self._template.fill({}))
        start, _, rest = self._template.prefix.partition("://")
        self.chooses_host = self._fixed is None and not ("/" in rest or "?" in rest)
        """Whether the payload decides where a request goes."""
        self.is_fixed = self._fixed is not None
        """Whether all messages go to the same URL."""
        own = self._fixed if self._fixed is not None or self.chooses_host else checked_url(f"{start}://{rest}")
        self.host = None if own is None else own.host
        self.sample = own or httpx.URL("https://example.com/")
        """A URL of the operator's host, if there is one."""

    def of(self, message: Message[Any]) -> tuple[httpcore.URL, dict[str, str]]:
        """Return the URL of a message, and its headers; raises `Reject` if the payload makes none."""
        url = self._fixed
        if url is None:
            filled = self._template.fill(fields(message), str if self._raw else lambda value: quote(value, safe=""))
            if not self._raw and _DOTS.search(filled):
                raise Reject("the payload puts '.' or '..' in place of a part of the URL's path")
            try:
                url = checked_url(filled)
            except ConfigurationError:
                raise Reject("the payload makes no http:// or https:// URL with a host") from None  # may be private
        return core_url(url), _headers(url)


def checked_url(url: str) -> httpx.URL:
    """Return a URL; raises `ConfigurationError` if it is not one of HTTP."""
    try:
        read = httpx.URL(url)
    except (httpx.InvalidURL, TypeError, ValueError):
        read = httpx.URL("")
    if read.scheme not in ("http", "https") or not read.host:
        raise ConfigurationError("url must be http:// or https:// with a host")  # not shown: it may be secret
    if read.userinfo and "@" in f"{read.raw_path.decode()}{read.fragment}":
        # A password with a / ends there, and the rest of it would be a path. Without a login, an @ is one of the path.
        raise ConfigurationError("url has a login and a second @: percent-encode reserved characters of both")
    return read


def _headers(url: httpx.URL) -> dict[str, str]:
    headers = {"host": url.netloc.decode()}
    if url.userinfo:
        login = base64.b64encode(f"{url.username}:{url.password}".encode()).decode()
        headers["authorization"] = f"Basic {login}"
    return headers
