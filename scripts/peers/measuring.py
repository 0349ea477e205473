"""The same work for every peer, timed by the same lines.

An adapter runs it in the environment of its peer:

    python rq_peer.py WORK N URL

    send       N messages one by one                       {"seconds": 0.5}
    bulk       N messages, as the peer sends many at once  {"seconds": 0.5}
    consume    N messages through an empty handler         {"seconds": 0.5}, from the first one's call to the last one's
    late       N messages due 100 a second                 {"late": [0.8, …]}, milliseconds
    schedule   N messages due in an hour, left in Redis    {}

The answer is the last line of standard output, in JSON; all that the peer prints goes to standard error. A worker is
not stopped but left with the process, which ends when the last message was handled.
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
"""Seconds from the sending of the first delayed message until it is due; by then a worker has to be there."""
PATIENCE = 60.0
"""Seconds in which a worker has to be done."""
HOUR = 3600.0


class Peer(Protocol):
    """What an adapter offers. It reads no clock, but to turn a due time into a delay."""

    def __init__(self, url: str) -> None:
        """Prepare for a Redis at an address like `redis://127.0.0.1:7000/0`."""

    def send(self, texts: list[str]) -> None:
        """Send messages to be handled at once, one after the other."""

    def send_bulk(self, texts: list[str]) -> None:
        """Send messages to be handled at once, the way that the peer sends many."""

    def send_later(self, dues: list[float]) -> None:
        """Send for each of these times (seconds since 1970) a message with `text_of` it, one after the other."""

    def work(self) -> None:
        """Have each message's text given to `handled`, ten at a time where the peer can; need not return."""


_arrivals: list[tuple[float, str]] = []
_expected = 0
_all_handled = threading.Event()


def handled(text: str) -> None:
    """Note that a message came; this is the whole of the handler."""
    _arrivals.append((time.time(), text))  # one step for all threads
    if len(_arrivals) >= _expected:
        _all_handled.set()


def text_of(due: float) -> str:
    """Return a text as long as the others that tells when its message is due."""
    return f"{due:<62.6f}"


def delay_to(due: float) -> float:
    """Return the seconds from now until a due time, 0 if it is over."""
    return max(0.0, due - time.time())


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop  # the faster of the two, where it is installed
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


_LOOP = _new_loop()


def on_loop(method: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Let an adapter's coroutine function be called like any other; all of them run on one event loop."""

    @functools.wraps(method)
    def call(*arguments: Any) -> None:
        _LOOP.run_until_complete(method(*arguments))

    return call


def _seconds(send: Callable[[list[str]], None], n: int) -> dict[str, Any]:
    send([TEXT])  # connects, and loads what scripts there are
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
"""Works without a worker: each returns its answer."""


def _fill(peer: Peer, n: int) -> int:
    peer.send_bulk([TEXT] * n)
    return n


def _busy(_: int) -> dict[str, Any]:
    return {"seconds": _arrivals[-1][0] - _arrivals[0][0]}


def _announce(peer: Peer, n: int) -> int:
    first = time.time() + LEAD
    peer.send([TEXT])  # tells when the worker is there
    peer.send_later([first + i / PER_SECOND for i in range(n)])
    return n + 1


def _late(n: int) -> dict[str, Any]:
    came = {text: at for at, text in reversed(_arrivals)}
    ready = came.pop(TEXT, math.inf)
    dues = {float(text): at for text, at in came.items()}
    if len(dues) != n:
        give_up(f"{len(dues)} of {n} delayed messages came, some of them twice")
    if ready > min(dues):
        give_up(f"its worker was not there within {LEAD:g} s")
    return {"late": [1000 * (at - due) for due, at in dues.items()]}


WORKED: dict[str, tuple[Callable[[Peer, int], int], Callable[[int], dict[str, Any]]]] = {
    "consume": (_fill, _busy),
    "late": (_announce, _late),
}
"""Works with a worker: the first sends and returns how many are to be handled, the second returns the answer."""


def give_up(why: str) -> NoReturn:
    """End the process with a reason, from whatever thread."""
    os.write(2, f"{why}\n".encode())
    os._exit(1)


def main(kind: type[Peer]) -> None:
    """Do the work that the command line names with a peer, and end the process."""
    global _expected  # noqa: PLW0603 - what is handled comes from wherever the peer calls
    logging.basicConfig(level=logging.WARNING)
    work, n, url = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever the peer prints

    def answer(found: dict[str, Any]) -> None:
        print(json.dumps(found), file=out, flush=True)
        os._exit(0)  # not all workers can be stopped from another thread

    def wait(judge: Callable[[int], dict[str, Any]]) -> None:
        if _all_handled.wait(PATIENCE):
            answer(judge(n))
        give_up(f"{len(_arrivals)} of {_expected} messages handled in {PATIENCE:g} s")

    peer = kind(url)
    if work in SENT:
        answer(SENT[work](peer, n))
    prepare, judge = WORKED[work]
    _expected = prepare(peer, n)
    threading.Thread(target=wait, args=(judge,), daemon=True).start()
    peer.work()
    threading.Event().wait()  # it works on threads of its own
