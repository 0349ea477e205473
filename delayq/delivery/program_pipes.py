"""What a program reads and prints: its input is written, and its output copied up to a limit, until a deadline."""

from __future__ import annotations

import os
import selectors
import subprocess
from contextlib import suppress
from types import TracebackType
from typing import IO, Self

from delayq.values.times import monotonic

MAX_OUTPUT_BYTES = 1 << 16
"""Bytes of each stream to copy to the worker's output; the rest is read and dropped, so that the program goes on."""

_CHUNK = 1 << 15
_POLL = 0.05
"""Seconds between looks whether the program has ended, while something else keeps its output open."""
_OUTPUTS = {"stdout": 1, "stderr": 2}


class ProgramPipes:
    """The pipes of a running program. A process that inherits them cannot keep `wait` beyond the program's end."""

    def __init__(self, process: subprocess.Popen[bytes], data: bytes) -> None:
        """Give the program `data` on its stdin; nothing is written before `wait`."""
        self._process = process
        self._data = memoryview(data)
        self._room = dict.fromkeys(_OUTPUTS.values(), MAX_OUTPUT_BYTES)
        self._selector = selectors.PollSelector()  # it opens no file: the program runs, so nothing may fail any more
        self.dropped = False
        """Whether the program printed more than was copied."""
        assert process.stdin and process.stdout and process.stderr  # noqa: PT018, S101 - all three are pipes
        self._register(process.stdin, selectors.EVENT_WRITE, None)
        self._register(process.stdout, selectors.EVENT_READ, _OUTPUTS["stdout"])
        self._register(process.stderr, selectors.EVENT_READ, _OUTPUTS["stderr"])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Close the pipes, whoever else has them open."""
        for key in list(self._selector.get_map().values()):
            self._close(key.fileobj)  # type: ignore[arg-type]
        self._selector.close()

    def wait(self, until: float) -> int | None:
        """Return the program's exit code, or None if it still runs at this time of the monotonic clock."""
        while self._process.poll() is None:
            left = until - monotonic()
            if left <= 0:
                return None
            if self._selector.get_map():
                self._turn(min(left, _POLL))
            else:
                with suppress(subprocess.TimeoutExpired):
                    self._process.wait(left)
        while self._turn(0):  # what it printed last
            if monotonic() > until:
                break
        return self._process.returncode

    def _turn(self, timeout: float) -> bool:
        """Write and read what is possible now; returns whether anything was read."""
        read = False
        for key, _ in self._selector.select(timeout):
            if key.data is None:
                self._write(key.fileobj)  # type: ignore[arg-type]
            else:
                read = self._copy(key.fileobj, key.data) or read  # type: ignore[arg-type]
        return read

    def _write(self, stdin: IO[bytes]) -> None:
        try:
            self._data = self._data[os.write(stdin.fileno(), self._data[:_CHUNK]) :]
        except BlockingIOError:
            return
        except OSError:  # it does not read its input, which is its own affair
            self._data = self._data[:0]
        if not self._data:
            self._close(stdin)

    def _copy(self, stream: IO[bytes], to: int) -> bool:
        try:
            data = os.read(stream.fileno(), _CHUNK)
        except BlockingIOError:
            return False
        if not data:
            self._close(stream)
            return False
        room = self._room[to]
        self._room[to] -= min(room, len(data))
        self.dropped = self.dropped or len(data) > room
        with suppress(OSError):  # the worker's output is closed
            rest = memoryview(data)[:room]
            while rest:
                rest = rest[os.write(to, rest) :]
        return True

    def _register(self, stream: IO[bytes], events: int, data: int | None) -> None:
        os.set_blocking(stream.fileno(), False)
        self._selector.register(stream, events, data)

    def _close(self, stream: IO[bytes]) -> None:
        self._selector.unregister(stream)
        with suppress(OSError):
            stream.close()
