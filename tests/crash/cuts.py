"""A client cut off at one command: before it reaches Redis, or when it was carried out and its reply is lost."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import Any

import redis

GREETING = (b"HELLO", b"CLIENT", b"SELECT", b"AUTH")
"""What a connection says by itself."""


class Cut(StrEnum):
    """On which side of the command."""

    BEFORE = "before"
    AFTER = "after"


class GoneError(BaseException):
    """The process has ended: nothing of it runs any more, no `except Exception` and no settlement."""


class Cutter:
    """Counts the commands of a client while it is armed, and cuts it off at one of them."""

    def __init__(self) -> None:
        self.count = self.at = 0
        self.cut = Cut.BEFORE
        self.armed = self.is_gone = False
        self.ends: Callable[[], None] | None = None
        self.watch: Callable[[], None] | None = None
        """Called after each command, in place of a cut."""

    def arm(self, at: int, cut: Cut, *, ends: Callable[[], None] | None = None) -> None:
        """Cut at the command of this number, from 1; `ends` ends the process, without it a connection is lost."""
        self.count, self.at, self.cut, self.ends, self.armed = 0, at, cut, ends, True

    def fall(self) -> None:
        if self.ends:
            self.is_gone = True
            self.ends()
        raise redis.exceptions.ConnectionError(f"cut {self.cut} command {self.at}")


def gone() -> None:
    raise GoneError


def killed() -> None:
    """End this process for good, as the system would."""
    os.kill(os.getpid(), signal.SIGKILL)


def _commands(packed: bytes) -> Iterator[bytes]:
    """Yield the commands that are sent in one piece."""
    start = at = 0
    while start < len(packed):
        at = packed.index(b"\r\n", start) + 2
        for _ in range(int(packed[start + 1 : at])):
            end = packed.index(b"\r\n", at)
            at = end + 2 + int(packed[at + 1 : end]) + 2
        yield packed[start:at]
        start = at


class _Cutting(redis.UnixDomainSocketConnection):
    def __init__(self, *, cutter: Cutter, **options: Any) -> None:
        super().__init__(**options)
        self._cutter = cutter
        self._answers: list[Any] = []

    def send_packed_command(self, command: Any, check_health: bool = True) -> None:
        cutter, items = self._cutter, list(_commands(command if isinstance(command, bytes) else b"".join(command)))
        if cutter.is_gone:
            raise GoneError
        if not cutter.armed or items[0].split(b"\r\n", 3)[2] in GREETING:
            super().send_packed_command(items, check_health=check_health)
            return
        if cutter.watch:
            for item in items:
                cutter.count += 1
                super().send_packed_command([item])
                self._answers.append(self._answer())
                cutter.watch()
            return
        for number, item in enumerate(items):
            cutter.count += 1
            if cutter.count == cutter.at:
                passed = [*items[:number], *([item] if cutter.cut is Cut.AFTER else [])]
                if passed:
                    super().send_packed_command(passed)
                    for _ in passed:
                        self._answer()  # so that they have been carried out
                self.disconnect()
                cutter.fall()
        super().send_packed_command(items, check_health=check_health)

    def read_response(self, *args: Any, **options: Any) -> Any:
        if not self._answers:
            return super().read_response(*args, **options)
        reply = self._answers.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return reply

    def _answer(self) -> Any:
        try:
            return super().read_response()
        except redis.exceptions.ResponseError as error:
            return error


def cut_client(url: str, cutter: Cutter) -> redis.Redis:
    """Return a client whose connections the cutter cuts; the server listens on a unix socket."""
    pool = redis.ConnectionPool.from_url(url)
    assert pool.connection_class is redis.UnixDomainSocketConnection
    pool.connection_class = _Cutting
    pool.connection_kwargs["cutter"] = cutter
    return redis.Redis(connection_pool=pool)
