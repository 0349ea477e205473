"""The standard streams: what a terminal or a pipe cannot show is escaped, and a reader that is gone stops no work."""

from __future__ import annotations

import codecs
import io
import os
import sys
from typing import Any, TextIO, cast

from delayq.cli.support.exit_codes import CommandError

stdout_is_closed = False
"""Whether the process was started without a standard output."""
ESCAPED = "delayq.escaped"
"""The error handler of streams that are not UTF-8: characters that they lack become escapes that JSON has, too."""


def _escape(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    units = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2)), error.end


codecs.register_error(ESCAPED, _escape)


def prepare_streams() -> None:
    """Make the standard streams take any text; one that is closed takes it, too, and a closed stdin cannot be read."""
    global stdout_is_closed  # noqa: PLW0603 - a stream of the process
    stdout_is_closed = stdout_is_closed or sys.stdout is None
    sys.stdin = sys.stdin or io.TextIOWrapper(io.BufferedReader(_Closed()))
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115, PTH123 - for the rest of the process
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115, PTH123
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and not stream.encoding.lower().startswith("utf"):
            stream.reconfigure(errors=ESCAPED)
    sys.stderr = outlasting(sys.stderr)


class _Closed(io.RawIOBase):
    """What cannot be read."""

    def readable(self) -> bool:
        """Return True, so that reading tells why it fails."""
        return True

    def readinto(self, _: Any) -> int:
        """Raise `CommandError`."""
        raise CommandError("standard input is closed")


def outlasting(stream: TextIO) -> TextIO:
    """Return a stream that takes what is written when its reader is gone, so that work goes on to its end."""
    return stream if isinstance(stream, _Outlasting) else cast("TextIO", _Outlasting(stream))


def forget(stream: TextIO) -> None:
    """Let the rest of the output of a stream go nowhere: that its reader is gone is an error of each flush, else."""
    try:
        number = stream.fileno()
    except (OSError, ValueError):  # it is no file, as in a test
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, number)
    os.close(nowhere)


class _Outlasting:
    """A text stream whose reader may go away."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write a text, or forget it if nobody reads it."""
        try:
            return self._stream.write(text)
        except BrokenPipeError:
            forget(self._stream)
            return len(text)

    def flush(self) -> None:
        """Pass on what was written, or forget it if nobody reads it."""
        try:
            self._stream.flush()
        except BrokenPipeError:
            forget(self._stream)
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
