"""The log of the package: a message that cannot be logged is printed, and the caller goes on."""

from __future__ import annotations

import logging
import threading
import traceback
from contextlib import suppress
from typing import Any

_FOR_MAIN_THREAD = (KeyboardInterrupt, SystemExit)
"""What a signal handler raises while its thread logs, to end the program."""


class SafeLog:
    """A logger whose methods never raise, called like those of the standard one.

    A filter or handler of the program may raise anything, and so may an argument whose text is read.
    """

    __slots__ = ("_logger",)

    def __init__(self, name: str) -> None:
        """Log as the standard logger of this name."""
        self._logger = logging.getLogger(name)

    def isEnabledFor(self, level: int) -> bool:  # noqa: N802 - the name of the standard one
        """Return whether anybody reads what is logged at a level."""
        return self._logger.isEnabledFor(level)

    def debug(self, text: str, *args: object, **fields: Any) -> None:
        """Log at level DEBUG."""
        self._write(logging.DEBUG, text, args, fields)

    def info(self, text: str, *args: object, **fields: Any) -> None:
        """Log at level INFO."""
        self._write(logging.INFO, text, args, fields)

    def warning(self, text: str, *args: object, **fields: Any) -> None:
        """Log at level WARNING."""
        self._write(logging.WARNING, text, args, fields)

    def error(self, text: str, *args: object, **fields: Any) -> None:
        """Log at level ERROR."""
        self._write(logging.ERROR, text, args, fields)

    def exception(self, text: str, *args: object, **fields: Any) -> None:
        """Log the exception that is being handled, at level ERROR."""
        self._write(logging.ERROR, text, args, {"exc_info": True, **fields})

    def log(self, level: int, text: str, *args: object, **fields: Any) -> None:
        """Log at any level."""
        self._write(level, text, args, fields)

    def _write(self, level: int, text: str, args: tuple[object, ...], fields: dict[str, Any]) -> None:
        try:
            if not self._logger.isEnabledFor(level):
                return
            if extra := fields.get("extra"):
                fields["extra"] = {name: _printable(value) for name, value in extra.items()}
            self._logger.log(level, text, *map(_printable, args), stacklevel=3, **fields)
        except BaseException as broken:
            if isinstance(broken, _FOR_MAIN_THREAD) and threading.current_thread() is threading.main_thread():
                raise
            with suppress(BaseException):
                broken.add_note(f"while this was logged: {_message(text, args)}")
                if isinstance(logged := fields.get("exc_info"), BaseException):
                    broken.__context__ = logged
                traceback.print_exception(broken)


def _printable(value: object) -> object:
    r"""Return a text of which bytes that are no UTF-8, such as those of a foreign id, are written as `\xff`."""
    if type(value) is not str or value.isascii():
        return value
    try:
        return value.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    except UnicodeEncodeError:
        return value.encode("utf-8", "backslashreplace").decode()


def _message(text: str, args: tuple[object, ...]) -> str:
    try:
        return text % args
    except BaseException:  # noqa: BLE001 - the text of an argument may be what fails
        return text
