"""Exit codes, and the errors that end a command with one line on stderr."""

from __future__ import annotations

import errno
import re
from enum import IntEnum

import click

from delayq import errors
from delayq.errors import did_you_mean
from delayq.values.text import clean


class Exit(IntEnum):
    """The exit codes of every command; 130 is what shells use for Ctrl-C."""

    OK = 0
    FAILURE = 1
    USAGE = 2
    NOT_FOUND = 3
    UNHEALTHY = 4
    UNREACHABLE = 69
    INTERRUPTED = 130


class CommandError(click.ClickException):
    """An error that ends the command with one line on stderr and an exit code."""

    def __init__(self, message: str, code: Exit = Exit.FAILURE) -> None:
        super().__init__(message)
        self.code = code


class NotFoundError(CommandError):
    """An object does not exist; the closest existing name is suggested."""

    def __init__(self, what: str, name: str, among: list[str]) -> None:
        super().__init__(f"no {what} named {name!r}{did_you_mean(name, among)}", Exit.NOT_FOUND)


def interrupted(error: KeyboardInterrupt) -> CommandError:
    """Return the end of a command by Ctrl-C, with the notes of what it has done."""
    return CommandError("; ".join(("interrupted", *getattr(error, "__notes__", ()))), Exit.INTERRUPTED)


_CODES: dict[type[errors.DelayqError], Exit] = {
    errors.UnavailableError: Exit.UNREACHABLE,
    errors.OutcomeUnknown: Exit.UNREACHABLE,
    errors.CannotConnectError: Exit.UNREACHABLE,
    errors.ConfigurationError: Exit.USAGE,
    errors.PayloadError: Exit.USAGE,
    errors.NoCallbackError: Exit.USAGE,
    errors.StoppedByCallbackError: Exit.USAGE,
    errors.UnknownScheduleError: Exit.NOT_FOUND,
    errors.UnknownOccurrenceError: Exit.NOT_FOUND,
    errors.NoResultError: Exit.NOT_FOUND,
    errors.UnsafeServerError: Exit.UNHEALTHY,
}


def to_command_error(error: Exception) -> CommandError:
    """Return the failure for an exception that a command raised."""
    if isinstance(error, errors.DelayqError):
        codes = [code for kind, code in _CODES.items() if isinstance(error, kind)]
        return CommandError(str(error), *codes[:1])
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return CommandError(f"cannot write all of the output: {error.strerror}; what was done stays")
    return CommandError(f"internal error, {type(error).__name__}: {error} (delayq --traceback shows where)")


def redact(text: str) -> str:
    """Return a text with user and password removed from its URLs."""
    return re.sub(r"(?<=://)[^\s]*@", "***@", text)  # up to the last @: a password may have one


def print_error(text: str) -> None:
    """Print the line on stderr that ends a command, or tells what has failed in one of several queues."""
    click.echo(f"delayq: {redact(clean(text))}", err=True)
