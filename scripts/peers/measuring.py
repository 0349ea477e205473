"""Times the same work for every peer.

An adapter runs in the environment of its peer:

    python rq_peer.py WORK N URL

    send       N messages one by one                       {"seconds": 0.5}
    bulk       N messages, as the peer sends many at once  {"seconds": 0.5}
    consume    N messages through an empty handler         {"seconds": 0.5}, from the first one's call to the last one's
    late       N messages due 100 a second                 {"late": [0.8, …]}, milliseconds
    schedule   N messages due in an hour, left in Redis    {}

The reply is the last line of standard output, in JSON; everything the peer prints goes to standard error. The process
ends after the last message, without stopping the worker.
"""

from __future__ import annotations

import asyncio
import functools
import json
import logging
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, NoReturn, Protocol

TEXT = "x" * 62
PER_SECOND = 100
LEAD = 5.0
"""Seconds from sending the first delayed message until it is due; by then a worker must be running."""
TIMEOUT = 60.0
"""Seconds in which a worker must finish."""
HOUR = 3600.0


class Peer(Protocol):
    """The interface of an adapter. It uses no clock except to convert a due time into a delay."""

    def __init__(self, url: str) -> None:
        """Prepare for a Redis at an address like `redis://127.0.0.1:7000/0`."""

    def send(self, texts: list[str]) -> None:
        """Send messages that are due now, one after the other."""

    def send_bulk(self, texts: list[str]) -> None:
        """Send messages that are due now, with the peer's call for many messages."""

    def send_later(self, dues: list[float]) -> None:
        """Send a message with the text `text_of(due)` for each due time (seconds since 1970), one after the other."""

    def work(self) -> None:
        """Call `handled` with each message's text, ten at a time if the peer can; need not return."""


_arrivals: list[tuple[float, str]] = []
_expected = 0
_all_handled = threading.Event()


def handled(text: str) -> None:
    """Record a message; this is the whole handler."""
    _arrivals.append((time.time(), text))  # atomic for all threads
    if len(_arrivals) >= _expected:
        _all_handled.set()


def text_of(due: float) -> str:
    """Return a text, as long as the others, with the due time of its message."""
    return f"{due:<62.6f}"


def delay_to(due: float) -> float:
    """Return the seconds from now until a due time, 0 if it has passed."""
    return max(0.0, due - time.time())


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop  # faster, if it is installed
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


_LOOP = _new_loop()


def on_loop(method: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Make a coroutine function of an adapter callable as a normal function; all share one event loop."""

    @functools.wraps(method)
    def call(*arguments: Any) -> None:
        _LOOP.run_until_complete(method(*arguments))

    return call


def _seconds(send: Callable[[list[str]], None], n: int) -> dict[str, Any]:
    send([TEXT])  # connects and loads scripts
    texts = [TEXT] * n
    began = time.perf_counter()
    send(texts)
    return {"seconds": time.perf_counter() - began}


def _schedule(peer: Peer, n: int) -> dict[str, Any]:
    peer.send_later([time.time() + HOUR] * n)
    return {}


SENT: dict[str, Callable[[Peer, int], dict[str, Any]]] = {
    "send": lambda peer, n: _seconds(peer.send, n),
    "bulk": lambda peer, n: _seconds(peer.send_bulk, n),
    "schedule": _schedule,
}
"""Kinds of work without a worker: each returns its reply."""


def _fill(peer: Peer, n: int) -> int:
    peer.send_bulk([TEXT] * n)
    return n


def _busy(_: int) -> dict[str, Any]:
    return {"seconds": _arrivals[-1][0] - _arrivals[0][0]}


def _announce(peer: Peer, n: int) -> int:
    first = time.time() + LEAD
    peer.send([TEXT])  # shows when the worker is running
    peer.send_later([first + i / PER_SECOND for i in range(n)])
    return n + 1


def _late(n: int) -> dict[str, Any]:
    came = {text: at for at, text in reversed(_arrivals)}
    ready = came.pop(TEXT, math.inf)
    dues = {float(text): at for text, at in came.items()}
    if len(dues) != n:
        give_up(f"{len(dues)} of {n} delayed messages were delivered, some of them twice")
    if ready > min(dues):
        give_up(f"its worker was not running within {LEAD:g} s")
    return {"late": [1000 * (at - due) for due, at in dues.items()]}


WORKED: dict[str, tuple[Callable[[Peer, int], int], Callable[[int], dict[str, Any]]]] = {
    "consume": (_fill, _busy),
    "late": (_announce, _late),
}
"""Kinds of work with a worker: the first sends and returns the number of messages, the second returns the reply."""


def give_up(why: str) -> NoReturn:
    """End the process with a reason, from any thread."""
    os.write(2, f"{why}\n".encode())
    os._exit(1)


def main(kind: type[Peer]) -> None:
    """Do the work named on the command line, and end the process."""
    global _expected  # noqa: PLW0603 - what is handled comes from wherever the peer calls
    logging.basicConfig(level=logging.WARNING)
    work, n, url = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # for everything the peer prints

    def reply(found: dict[str, Any]) -> None:
        print(json.dumps(found), file=out, flush=True)
        os._exit(0)  # some workers cannot be stopped from another thread

    def wait(judge: Callable[[int], dict[str, Any]]) -> None:
        if _all_handled.wait(TIMEOUT):
            reply(judge(n))
        give_up(f"{len(_arrivals)} of {_expected} messages handled in {TIMEOUT:g} s")

    peer = kind(url)
    if work in SENT:
        reply(SENT[work](peer, n))
    prepare, judge = WORKED[work]
    _expected = prepare(peer, n)
    threading.Thread(target=wait, args=(judge,), daemon=True).start()
    peer.work()
    threading.Event().wait()  # it works on threads of its own
