"""Connections to a mail server whose waits have one deadline together, however slowly the server replies."""

from __future__ import annotations

import smtplib
import socket
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from delayq.delivery.trouble import worst_of
from delayq.values.times import monotonic

if TYPE_CHECKING:
    Base = smtplib.SMTP
else:
    Base = object


class _Limited(Base):
    """What limits a connection; `smtplib` limits each wait for a byte only."""

    def __init__(self, host: str, port: int, *, until: float, **options: Any) -> None:
        """Connect until this time of the monotonic clock."""
        self.until = until
        try:
            super().__init__(host, port, timeout=self._left(), **options)
        except BaseException:
            self.close()  # `smtplib` leaves the socket open
            raise

    def _left(self) -> float:
        left = self.until - monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        return left

    def send(self, s: Any) -> None:
        """Send within what is left; `sendall` counts its timeout for the whole text."""
        if self.sock is not None:
            self.sock.settimeout(self._left())
        super().send(s)

    def getreply(self) -> tuple[int, bytes]:
        """Read a reply of one or more lines within what is left."""
        sock = self.sock
        left = self._left()
        if sock is None:
            return super().getreply()
        sock.settimeout(left)
        over = threading.Event()
        timer = threading.Timer(left, _shut, [sock, over])
        timer.daemon = True
        with suppress(RuntimeError):  # no room for one more thread: then each wait has this limit, not all together
            timer.start()
        try:
            reply = super().getreply()
        except OSError as error:
            if over.is_set():
                raise TimeoutError("timed out") from error
            raise
        finally:
            timer.cancel()
        if over.is_set():  # half of a reply
            raise TimeoutError("timed out")
        return reply


class LimitedSMTP(_Limited, smtplib.SMTP):
    """A connection that is plain at first."""

    def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:
        return _connected(host, port, timeout)


class LimitedSMTPS(_Limited, smtplib.SMTP_SSL):
    """A connection that is encrypted from the first byte."""

    def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:
        return self.context.wrap_socket(_connected(host, port, timeout), server_hostname=host)


def _connected(host: str, port: int, timeout: float) -> socket.socket:
    """Connect to one of a host's addresses; raises the error that counts if there is none."""
    try:
        return socket.create_connection((host, port), timeout, all_errors=True)
    except ExceptionGroup as group:
        raise worst_of([error for error in group.exceptions if isinstance(error, OSError)]) from None


def _shut(sock: socket.socket, over: threading.Event) -> None:
    over.set()
    with suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
