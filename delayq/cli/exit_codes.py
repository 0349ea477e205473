"""How a command ends when it does not succeed: an exit code, and one line on stderr."""

from __future__ import annotations

import re
from enum import IntEnum

import click

from delayq.errors import (
    ConfigurationError,
    DelayqError,
    NoCallbackError,
    OutcomeUnknown,
    PayloadError,
    UnavailableError,
    UnknownScheduleError,
    UnsafeServerError,
)


class Exit(IntEnum):
    """The exit codes of every command; Ctrl-C adds 130, as shells count it."""

    OK = 0
    FAILURE = 1
    USAGE = 2
    NOT_FOUND = 3
    UNHEALTHY = 4
    UNREACHABLE = 69
    INTERRUPTED = 130


class Failure(click.ClickException):
    """Ends a command with a line on stderr and an exit code."""

    def __init__(self, message: str, code: Exit = Exit.FAILURE) -> None:
        """Say what went wrong."""
        super().__init__(message)
        self.code = code


class NotFound(Failure):
    """What was asked for is not there."""

    def __init__(self, what: str, name: str, among: list[str]) -> None:
        """Say what was looked for, and what comes closest to it."""
        super().__init__(f"no {what} named {name!r}{did_you_mean(name, among)}", Exit.NOT_FOUND)


_CODES: list[tuple[type[DelayqError], Exit]] = [
    (UnavailableError, Exit.UNREACHABLE),
    (OutcomeUnknown, Exit.UNREACHABLE),
    (ConfigurationError, Exit.USAGE),
    (PayloadError, Exit.USAGE),
    (NoCallbackError, Exit.USAGE),
    (UnknownScheduleError, Exit.NOT_FOUND),
    (UnsafeServerError, Exit.UNHEALTHY),
]


def failure_of(error: Exception) -> Failure:
    """Return how a command ends that an exception got out of."""
    if isinstance(error, DelayqError):
        for kind, code in _CODES:
            if isinstance(error, kind):
                return Failure(str(error), code)
        return Failure(str(error))
    return Failure(f"internal error, {type(error).__name__}: {error} (delayq --traceback shows where)")


def did_you_mean(name: str, among: list[str]) -> str:
    """Return the end of a sentence that names the closest of some names, '' if none is close."""
    import difflib

    close = difflib.get_close_matches(name, among, n=1)
    return f", did you mean {close[0]!r}?" if close else ""


def redact(text: str) -> str:
    """Return a text without the user and password of any URL in it."""
    return re.sub(r"(?<=://)[^\s@]*@", "***@", text)
