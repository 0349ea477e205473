"""What an error of Redis or of a connection means: whether a later try may succeed, what callers and the log get."""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterable

from redis.exceptions import (
    AuthenticationError,
    BusyLoadingError,
    RedisError,
    ResponseError,
)
from redis.exceptions import TimeoutError as RedisTimeoutError

from delayq.errors import CannotConnectError, DelayqError
from delayq.safe_log import SafeLog
from delayq.values.text import format_duration
from delayq.values.times import monotonic

log = SafeLog("delayq.executor")

# Errors by their texts, or by the classes of redis-py, which takes the first word off the text of such an error.
_TEMPORARY = re.compile(
    r"\b(LOADING|BUSY|TRYAGAIN|CLUSTERDOWN|READONLY|MASTERDOWN|NOREPLICAS|UNBLOCKED)\b|loading the dataset"
    r"|^(ReadOnly|TryAgain|ClusterDown|MasterDown)Error "
)
_OUT_OF_MEMORY = re.compile(r"\bOOM\b|used memory > 'maxmemory'|^OutOfMemoryError ")
_CLIENT = re.compile(r"<redis\..*?> - ")
"""How redis-py shows a client in front of a Sentinel's error: half a line of nested names."""
_TLS_INTERRUPTED = ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError, ssl.SSLWantReadError
_FILE_ERRORS = FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError


class NotConnectedError(Exception):
    """The connection could not be made, so nothing was sent."""


class ProviderError(NotConnectedError):
    """It is not the network that has failed, but a provider of credentials or a hook of the client."""


class EpochError(DelayqError):
    """The number of partitions of a queue has changed, so the call was not carried out.

    Operations over partitions read the layout again and go on: no program sees this.
    """


def connection_error(error: Exception, *, tls: bool) -> Exception:
    """Return the error of a connection that could not be made; `tls` if it is encrypted.

    It is a `CannotConnectError` if another try has the same result until somebody changes something: the server
    refuses the login or an option, or TLS cannot begin. Anything else may pass: a busy or full server, a name that is
    not known yet, a provider of credentials that fails.
    """
    if isinstance(error, BusyLoadingError) or (isinstance(error, ResponseError) and is_passing(error)):
        return error
    text = _CLIENT.sub("", str(error)) or type(error).__name__
    made: Exception = NotConnectedError(text)
    if not isinstance(error, RedisError | OSError):
        made = ProviderError(f"{type(error).__name__}: {text}")
    elif isinstance(error, ResponseError | AuthenticationError):
        made = CannotConnectError(text)
    elif tls and (reason := _tls_error(error)):
        made = CannotConnectError(f"{text} ({reason})")
    made.__cause__ = error
    return made


def _tls_error(error: BaseException | None) -> str:
    """Return why TLS cannot begin; '' if that is not why a connection could not be made."""
    while error is not None:
        if isinstance(error, ssl.SSLError) and not isinstance(error, _TLS_INTERRUPTED):
            return "TLS failed"
        if isinstance(error, _FILE_ERRORS):
            return "a file for TLS cannot be read"
        error = error.__cause__ or error.__context__
    return ""


def is_lost(error: Exception) -> bool:
    """Return whether the reply was lost, so that the outcome is unknown. After a refusal it is known."""
    return not isinstance(error, NotConnectedError | CannotConnectError | BusyLoadingError | ResponseError)


def is_cut(error: Exception) -> bool:
    """Return whether the server, or the network, has closed a connection on which a reply was awaited."""
    return is_lost(error) and not isinstance(error, RedisTimeoutError | TimeoutError)


def is_passing(error: Exception) -> bool:
    """Return whether the server will be ready later, as it says."""
    return _TEMPORARY.search(_described(error)) is not None


def is_out_of_memory(error: Exception) -> bool:
    """Return whether the server has no memory for what was to be stored."""
    return _OUT_OF_MEMORY.search(_described(error)) is not None


def _described(error: Exception) -> str:
    return f"{type(error).__name__} {error}"


RETRYING = "%s%s, retrying: %s"
ANSWERS = "Redis answers again%s"
"""What consumers log at the start and the end of an outage; a worker logs each once for all of its queues."""
LOG_EVERY = 10.0
"""Seconds between two warnings of a process that waits for the server."""


class OutageLog:
    """The warnings about one server."""

    def __init__(self, server: str) -> None:
        """`server` is its address and where that is from; '' to leave it out."""
        self.at = f" at {server}" if server else ""
        self._warned_at = -LOG_EVERY
        self._logged = ""

    def where(self, nodes: Iterable[tuple[str, int] | None]) -> str:
        """Return where requests went, as in " at localhost:6379": in a cluster their nodes, not all it has."""
        known = dict.fromkeys(nodes)
        if not known or None in known:
            return self.at
        return " at " + ", ".join(f"{host}:{port}" for host, port in filter(None, known))

    def retrying(self, error: Exception, end: float | None, *, at: str, first: bool, lost: bool) -> None:
        """Warn that a call is sent again, and `at` which server: at once and every 10 s until its `end`.

        A call without an end warns once, and again when what is wrong changes. A call with an end does not warn of one
        `lost` connection, because Redis also closes idle ones, nor within its last second: its error comes soon.
        """
        now = monotonic()
        what = (
            "Cannot connect to Redis"
            if isinstance(error, CannotConnectError | ProviderError)
            else "Redis does not answer"
        )
        if end is None:
            if first or what != self._logged:
                self._logged = what
                log.warning(RETRYING, what, at, error)
        elif now - self._warned_at >= LOG_EVERY and end - now >= 1 and not (first and lost):
            self._warned_at = now
            log.warning("%s%s, retrying for up to %s: %s", what, at, format_duration(end - now), error)

    def answers(self, at: str) -> None:
        """Warn that a server is back: at the same level as that it was gone."""
        log.warning(ANSWERS, at)
