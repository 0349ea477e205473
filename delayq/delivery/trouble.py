"""What failed connections and programs are about: this message, this machine for now, or the worker's options."""

from __future__ import annotations

import errno
import socket
import ssl
from collections.abc import Sequence
from contextlib import closing

_SHORTAGES = frozenset(
    {errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM, errno.ENOBUFS, errno.EADDRNOTAVAIL, errno.ENETDOWN}
    | {errno.ENETUNREACH}
)
"""This machine lacks something for now: open files, processes, memory, local ports, a network."""
_NO_LOOK_UP = {
    getattr(socket, name) for name in ("EAI_AGAIN", "EAI_MEMORY", "EAI_SYSTEM", "EAI_FAIL") if hasattr(socket, name)
}
_UNKNOWN_HOST = {getattr(socket, name) for name in ("EAI_NONAME", "EAI_NODATA") if hasattr(socket, name)}


def os_error(error: BaseException) -> OSError | None:
    """Return the error of the operating system that another one is made of, None if there is none."""
    found: BaseException | None = error
    while found is not None and not isinstance(found, OSError):
        found = found.__cause__ or found.__context__
    return found


def is_shortage(error: OSError) -> bool:
    """Return whether this machine cannot do something for now that has nothing to do with a message."""
    if isinstance(error, socket.gaierror):  # without files to open, a look-up fails in any way
        return error.errno in _UNKNOWN_HOST | _NO_LOOK_UP and not _can_open_sockets()
    return error.errno in _SHORTAGES and not isinstance(error, ssl.SSLError)


def worst_of(errors: Sequence[OSError]) -> OSError:
    """Return which of the errors of a host's addresses counts: one is enough that is not this machine's.

    A machine without IPv6 has no network for an IPv6 address; that says nothing if the IPv4 address refuses.
    """
    return next((error for error in errors if not is_shortage(error)), errors[0])


def is_failed_look_up(error: OSError) -> bool:
    """Return whether nobody could tell the addresses of a host, which may exist."""
    return isinstance(error, socket.gaierror) and error.errno in _NO_LOOK_UP


def advice_on_connection(error: OSError) -> str | None:
    """Return what is wrong with the operator's address of a receiver; None if a later try may succeed."""
    if isinstance(error, socket.gaierror) and error.errno in _UNKNOWN_HOST:
        return "no such host: check its name"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}"
    if isinstance(error, ssl.SSLError) and error.reason == "WRONG_VERSION_NUMBER":
        return "it does not speak TLS from the first byte: check the address and the port"
    return None


def _can_open_sockets() -> bool:
    try:
        with closing(socket.socket()):
            return True
    except OSError:
        return False
