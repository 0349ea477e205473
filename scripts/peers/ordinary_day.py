"""The work of an ordinary day: a steady flow, slow handlers, an idle worker, and producers beside each other."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import handling
from handling import LOOP, TEXT, Peer, delay_to, expect, wait_until_handled
from server_cost import ServerCost

FLOW = 200
"""Messages of the steady flow a second."""
AHEAD = 0.5
"""Seconds that they are sent ahead."""
PRODUCERS = 8
"""Threads or tasks that send at a time."""
SLOW = 0.01
"""Seconds that a slow handler takes."""
SETTLED = 1.5
"""Seconds until a worker has finished its first polls."""
AFTER = 0.5
"""Seconds until the last messages are acknowledged."""


def producers(peer: Peer, n: int) -> dict[str, Any]:
    """Send from eight threads, or eight tasks, at a time."""
    peer.send([TEXT])
    shares = [[TEXT] * (n // PRODUCERS)] * PRODUCERS
    coroutine = getattr(peer.send, "__wrapped__", None)  # of `on_loop`
    began = time.perf_counter()
    if coroutine:
        LOOP.run_until_complete(_gather([coroutine(peer, texts) for texts in shares]))
    else:
        with ThreadPoolExecutor(PRODUCERS) as threads:
            list(threads.map(peer.send, shares))
    return {"seconds": time.perf_counter() - began}


async def _gather(coroutines: list[Coroutine[Any, Any, None]]) -> None:
    await asyncio.gather(*coroutines)


def trickle(peer: Peer, n: int) -> dict[str, Any]:
    """Send one by one at an even rate, each message due soon after."""
    peer.send_later(_paced(n))
    return {}


def _paced(n: int) -> Iterator[float]:
    """Yield each due time when its message is to be sent."""
    began = time.time()
    for i in range(n):
        time.sleep(delay_to(began + i / FLOW))
        yield time.time() + AHEAD


def slow(peer: Peer, n: int, url: str) -> Callable[[], dict[str, Any]]:
    """Fill the queue, and let the handler take its time. Returns what reads the cost at the end."""
    peer.send_bulk([TEXT] * n)
    expect(n)
    handling.handler_takes = SLOW
    before = ServerCost.now(url)

    def judge() -> dict[str, Any]:
        time.sleep(AFTER)
        return ServerCost.now(url).since(before)

    return judge


def flow(peer: Peer, n: int, url: str) -> Callable[[], dict[str, Any]]:
    """Start a worker, then let another process send at an even rate. Returns what does so and reads the cost."""
    peer.send([TEXT])
    expect(1)

    def judge() -> dict[str, Any]:
        time.sleep(SETTLED)
        before = ServerCost.now(url)
        expect(n + 1)
        sender = subprocess.run([sys.executable, sys.argv[0], "trickle", str(n), url], check=False)
        if sender.returncode:
            os._exit(1)  # the reason is what it wrote last
        wait_until_handled()
        time.sleep(AFTER)
        return ServerCost.now(url).since(before)

    return judge


def idle(peer: Peer, n: int, url: str) -> Callable[[], dict[str, Any]]:
    """Start a worker. Returns what waits for N seconds and reads the cost."""
    peer.send([TEXT])
    expect(1)

    def judge() -> dict[str, Any]:
        time.sleep(SETTLED)
        before = ServerCost.now(url)
        time.sleep(n)
        return ServerCost.now(url).since(before)

    return judge
