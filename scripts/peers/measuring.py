"""Times the same work for every peer.

An adapter runs in the environment of its peer:

    python rq_peer.py WORK N URL

    send       N messages one by one                       {"seconds": 0.5}
    bulk       N messages, as the peer sends many at once  {"seconds": 0.5}
    consume    N messages through an empty handler         {"seconds": 0.5}, from the first one's call to the last one's
    late       N messages due 100 a second                 {"late": [0.8, …]}, milliseconds
    schedule   N messages due in an hour, left in Redis    {}
    producers  N messages of eight threads or tasks        {"seconds": 0.5}
    trickle    N messages, 200 a second, due soon after    {}
    flow       the same, handled meanwhile                 {"cpu": 0.1, "commands": 9000}, seconds of the server
    slow       N messages whose handler takes 10 ms        the same
    idle       nothing, for N seconds                      the same

The reply is the last line of standard output, in JSON; everything the peer prints goes to standard error. The process
ends after the last message, without stopping the worker.
"""

from __future__ import annotations

import json
import logging
import math
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from handling import (
    TEXT,
    Peer,
    arrivals,
    delay_to,
    expect,
    give_up,
    handled,
    handled_async,
    on_loop,
    text_of,
    wait_until_handled,
)
from ordinary_day import flow, idle, producers, slow, trickle

__all__ = ["Peer", "delay_to", "handled", "handled_async", "main", "on_loop", "text_of"]
"""What adapters need."""

PER_SECOND = 100
LEAD = 5.0
"""Seconds from sending the first delayed message until it is due; by then a worker must be running."""
HOUR = 3600.0


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
    "producers": producers,
    "trickle": trickle,
}
"""Kinds of work without a worker: each returns its reply."""


def _consume(peer: Peer, n: int, _: str) -> Callable[[], dict[str, Any]]:
    peer.send_bulk([TEXT] * n)
    expect(n)
    return lambda: {"seconds": arrivals[-1][0] - arrivals[0][0]}


def _late(peer: Peer, n: int, _: str) -> Callable[[], dict[str, Any]]:
    first = time.time() + LEAD
    peer.send([TEXT])  # shows when the worker is running
    peer.send_later([first + i / PER_SECOND for i in range(n)])
    expect(n + 1)
    return lambda: _lateness(n)


def _lateness(n: int) -> dict[str, Any]:
    came = {text: at for at, text in reversed(arrivals)}
    ready = came.pop(TEXT, math.inf)
    dues = {float(text): at for text, at in came.items()}
    if len(dues) != n:
        give_up(f"{len(dues)} of {n} delayed messages were delivered, some of them twice")
    if ready > min(dues):
        give_up(f"its worker was not running within {LEAD:g} s")
    return {"late": [1000 * (at - due) for due, at in dues.items()]}


WORKED: dict[str, Callable[[Peer, int, str], Callable[[], dict[str, Any]]]] = {
    "consume": _consume,
    "late": _late,
    "flow": flow,
    "slow": slow,
    "idle": idle,
}
"""Kinds of work with a worker: each sends what the worker handles first; then what it returns gets the reply."""


def main(kind: type[Peer]) -> None:
    """Do the work named on the command line, and end the process."""
    logging.basicConfig(level=logging.WARNING)
    work, n, url = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # for everything the peer prints

    def reply(found: dict[str, Any]) -> None:
        print(json.dumps(found), file=out, flush=True)
        os._exit(0)  # some workers cannot be stopped from another thread

    def wait(judge: Callable[[], dict[str, Any]]) -> None:
        wait_until_handled()
        reply(judge())

    peer = kind(url)
    if work in SENT:
        reply(SENT[work](peer, n))
    threading.Thread(target=wait, args=(WORKED[work](peer, n, url),), daemon=True).start()
    peer.work()
    threading.Event().wait()  # it works on threads of its own
