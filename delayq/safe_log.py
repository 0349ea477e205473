"""The log of the package: a message that cannot be logged is printed, and whoever logs it goes on."""

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
            self._logger.log(level, text, *args, stacklevel=3, **fields)
        except BaseException as broken:
            if isinstance(broken, _FOR_MAIN_THREAD) and threading.current_thread() is threading.main_thread():
                raise
            with suppress(BaseException):
                broken.add_note(f"while this was logged: {_message(text, args)}")
                if isinstance(logged := fields.get("exc_info"), BaseException):
                    broken.__context__ = logged
                traceback.print_exception(broken)


def _message(text: str, args: tuple[object, ...]) -> str:
    try:
        return text % args
    except BaseException:  # noqa: BLE001 - the text of an argument may be what fails
        return text
