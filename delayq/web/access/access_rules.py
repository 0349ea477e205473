"""Which addresses the dashboard may listen on."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

from delayq.errors import ConfigurationError
from delayq.web.access.viewers import Viewer

_NAMES = {"localhost", "localhost."}


def is_loopback(host: str) -> bool:
    """Return whether a host or an address is this machine."""
    address = address_of(host)
    return host.lower() in _NAMES or (address is not None and address.is_loopback)


def address_of(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return the address that a host is; None for a name."""
    try:
        return ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        return None


def check_bind(host: str, *, token: str | None, viewers: Sequence[Viewer], proxy_header: str | None) -> None:
    """Raise `ConfigurationError` for an address that others reach, if anybody could look."""
    if not is_loopback(host) and not (token or viewers or proxy_header):
        text = "others could reach the dashboard: give a token in DELAYQ_WEB_TOKEN, --viewers or --proxy-header"
        raise ConfigurationError(f"{text} to listen on {host or 'all addresses'}")
