"""Logging of a worker: on stderr, for people or as JSON. Nothing else in delayq configures it."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime

from delayq.cli.failure import redact
from delayq.cli.output import console, to_json
from delayq.cli.text import clean, iso

LEVELS = ("debug", "info", "warning", "error")

_STANDARD = {*vars(logging.LogRecord("", 0, "", 0, "", (), None)), "message", "asctime", "taskName"}


def configure_logging(level: str, *, as_json: bool) -> None:
    """Send the log of the whole process to stderr: as JSON, in colours on a terminal, else as plain lines."""
    handler: logging.Handler = logging.StreamHandler(sys.stderr)
    if as_json:
        handler.setFormatter(_JsonLines())
    elif sys.stderr.isatty():
        from rich.logging import RichHandler

        handler = RichHandler(console=console(stderr=True), show_path=False, highlighter=None, log_time_format="[%X]")
        handler.setFormatter(_CleanLines("%(name)s: %(message)s"))
    else:
        handler.setFormatter(_CleanLines("%(asctime)s %(levelname)-7s %(process)d %(name)s: %(message)s"))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())


class _CleanLines(logging.Formatter):
    """Lines without terminal escapes: errors quote what callbacks and messages say."""

    def format(self, record: logging.LogRecord) -> str:
        return redact(clean(super().format(record), lines=True))


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
