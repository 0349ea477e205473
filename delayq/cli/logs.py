"""Logging of a worker: on stderr, for people or as JSON. Nothing else in delayq configures it."""

from __future__ import annotations

import logging
import os
import sys
from datetime import UTC, datetime

import click

from delayq.cli.failure import redact
from delayq.cli.output import to_json
from delayq.cli.text import clean, iso

LEVELS = ("debug", "info", "warning", "error")

_COLOURS = {"INFO": "blue", "WARNING": "yellow", "ERROR": "red", "CRITICAL": "red"}
_STANDARD = {*vars(logging.LogRecord("", 0, "", 0, "", (), None)), "message", "asctime", "taskName"}


def configure_logging(level: str, *, as_json: bool) -> None:
    """Send the log of the whole process to stderr: as JSON, short and coloured on a terminal, else as plain lines."""
    handler = logging.StreamHandler(sys.stderr)
    if as_json:
        handler.setFormatter(_JsonLines())
    elif sys.stderr.isatty():
        handler.setFormatter(_TerminalLines("%(name)s: %(message)s"))
    else:
        handler.setFormatter(_CleanLines("%(asctime)s %(levelname)-7s %(process)d %(name)s: %(message)s"))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())


class _CleanLines(logging.Formatter):
    """Lines without terminal escapes: errors quote what callbacks and messages say."""

    def format(self, record: logging.LogRecord) -> str:
        return redact(clean(super().format(record), lines=True))


class _TerminalLines(_CleanLines):
    """Lines that begin with the time of day and a coloured level. Nothing is wrapped: tracebacks keep their shape."""

    def format(self, record: logging.LogRecord) -> str:
        level, clock = f"{record.levelname:<7}", f"{datetime.fromtimestamp(record.created):%H:%M:%S}"  # noqa: DTZ006
        if not os.environ.get("NO_COLOR"):
            level, clock = click.style(level, fg=_COLOURS.get(record.levelname)), click.style(clock, dim=True)
        return f"{clock} {level} {super().format(record)}"


class _JsonLines(logging.Formatter):
    """A JSON document a line: time, level, logger, message, process, the record's extras, exception."""

    def format(self, record: logging.LogRecord) -> str:
        document = {
            "time": iso(datetime.fromtimestamp(record.created, UTC)),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": redact(record.getMessage()),
            "process": record.process,
            **{name: value for name, value in vars(record).items() if name not in _STANDARD},
        }
        if record.exc_info:
            document["exception"] = redact(self.formatException(record.exc_info))
        return to_json(document)
