"""Log output of `worker` and `relay` on stderr, as text or JSON. Nothing else in delayq configures logging."""

from __future__ import annotations

import logging
import os
import sys
import threading
from datetime import UTC, datetime

import click

from delayq.broker.transport.failures import ANSWERS, RETRYING
from delayq.cli.support.exit_codes import redact
from delayq.cli.support.options import F
from delayq.cli.support.output import to_json
from delayq.values.text import clean, iso
from delayq.worker.drivers.drivers import STOP_LOG

_COLOURS = {"INFO": "blue", "WARNING": "yellow", "ERROR": "red", "CRITICAL": "red"}
_STANDARD = {*vars(logging.LogRecord("", 0, "", 0, "", (), None)), "message", "asctime", "taskName"}


def log_options(function: F) -> F:
    """Add `--log-level` and `--log-json`."""
    function = click.option("--log-json", is_flag=True, help="Log JSON lines.")(function)
    levels = click.Choice(["debug", "info", "warning", "error"])
    level = click.option("--log-level", type=levels, default="info", help="Log from this level up.")
    return level(function)


def configure_logging(level: str, *, as_json: bool) -> None:
    """Log the whole process to stderr: as JSON, as short coloured lines on a terminal, or as plain lines."""
    handler = logging.StreamHandler(sys.stderr)
    if as_json:
        handler.setFormatter(_JsonLines())
    elif sys.stderr.isatty():
        handler.setFormatter(_TerminalLines("%(name)s: %(message)s"))
    else:
        handler.setFormatter(_CleanLines("%(asctime)s %(levelname)-7s %(process)d %(name)s: %(message)s"))
    handler.addFilter(_Once())
    handler.addFilter(_OncePerServer())
    handler.addFilter(lambda record: record.name != STOP_LOG)  # the last line of the command says it
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())


class _Once(logging.Filter):
    """Lets each warning of the start-up check through once: queues on the same server have the same warnings."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: set[str] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        if record.name != "delayq.doctor":
            return True
        text = record.getMessage()
        new = text not in self._seen
        self._seen.add(text)
        return new


class _OncePerServer(logging.Filter):
    """Lets what consumers log about an outage through once for each server: each queue of a worker has a consumer."""

    def __init__(self) -> None:
        super().__init__()
        self._outages: set[tuple[object, ...]] = set()
        """The server and what was said of it, since it last answered."""
        self._lock = threading.Lock()

    def filter(self, record: logging.LogRecord) -> bool:
        if record.name != "delayq.executor" or not isinstance(record.args, tuple):
            return True
        with self._lock:
            if record.msg == RETRYING:
                what, at, _ = record.args
                new = (at, what) not in self._outages
                self._outages.add((at, what))
                return new
            if record.msg == ANSWERS:
                ended = {outage for outage in self._outages if outage[0] == record.args[0]}
                self._outages -= ended
                return bool(ended)
        return True


class _CleanLines(logging.Formatter):
    """Lines without terminal escapes, which errors of callbacks and messages may contain."""

    def format(self, record: logging.LogRecord) -> str:
        return redact(clean(super().format(record), lines=True))


class _TerminalLines(_CleanLines):
    """Lines with the time of day and a coloured level. They are not wrapped, to keep tracebacks readable."""

    def format(self, record: logging.LogRecord) -> str:
        level, clock = f"{record.levelname:<7}", f"{datetime.fromtimestamp(record.created):%H:%M:%S}"  # noqa: DTZ006
        if not os.environ.get("NO_COLOR"):
            level, clock = click.style(level, fg=_COLOURS.get(record.levelname)), click.style(clock, dim=True)
        return f"{clock} {level} {super().format(record)}"


class _JsonLines(logging.Formatter):
    """One JSON document per line: time, level, logger, message, process, the record's extras, exception."""

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
