"""Who looks at the dashboard, which queues each may see, and at which addresses others may reach it."""

from __future__ import annotations

import ipaddress
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from delayq.broker.keys import check_pattern
from delayq.errors import ConfigurationError, did_you_mean, short_repr
from delayq.values.checks import check_bool

MIN_TOKEN = 16
"""Characters of a token: with fewer, somebody could guess it."""
MAX_NAME = 100


@dataclass(frozen=True, slots=True)
class Viewer:
    """Somebody who may look at the dashboard.

    Raises `ConfigurationError` for a name that is no line of at most 100 characters, a token of fewer than 16
    characters, or a wrong pattern. Its `repr` omits the token.
    """

    name: str
    """Who it is, in the log of every action."""
    queues: Sequence[str] = ("*",)
    """Patterns of the queues that the viewer sees, as in `delayq metrics --queues`; others do not exist for it."""
    write: bool = True
    """Whether the viewer may act, where the dashboard may."""
    token: str | None = field(default=None, repr=False)
    """What the viewer logs in with; None for one that a proxy or the program names."""

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.isprintable() or not 0 < len(self.name) <= MAX_NAME:
            raise ConfigurationError(f"the name of a viewer must be a line of text, not {short_repr(self.name)}")
        if isinstance(self.queues, str) or not self.queues:
            raise ConfigurationError(f"queues of a viewer must be a list of patterns, not {short_repr(self.queues)}")
        for pattern in self.queues:
            check_pattern(pattern)
        check_bool(self.write, "write")
        if self.token is not None:
            check_token(self.token)

    def sees(self, queue: str) -> bool:
        """Return whether a queue exists for this viewer."""
        return any(fnmatchcase(queue, pattern) for pattern in self.queues)


def check_token(token: str) -> str:
    """Return a valid token; raise `ConfigurationError`, without the token, for any other."""
    if not isinstance(token, str) or len(token) < MIN_TOKEN or not (token.isascii() and token.isprintable()):
        raise ConfigurationError(f"the token must have at least {MIN_TOKEN} printable ASCII characters")
    return token


def read_viewers(text: str) -> list[Viewer]:
    """Read viewers from TOML, a table for each; raise `ConfigurationError` if it is wrong."""
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"the file of viewers is no TOML: {error}") from error
    if not tables:
        raise ConfigurationError("the file of viewers names nobody")
    return [_viewer(name, table) for name, table in tables.items()]


def _viewer(name: str, table: Any) -> Viewer:
    if not isinstance(table, Mapping):
        raise ConfigurationError(f"the file of viewers must have a table for {name!r:.60}, as in [ada]")
    known = ["queues", "write", "token"]
    for key in table:
        if key not in known:
            raise ConfigurationError(f"viewer {name!r:.60} has no option {key!r:.60}{did_you_mean(key, known)}")
    return Viewer(name, **table)


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
