"""Tells systemd how a worker gets on: `Type=notify` and its watchdog, over the datagram socket of NOTIFY_SOCKET.

READY=1 is said once the worker consumes, STOPPING=1 once it drains, and WATCHDOG=1 for as long as the loops of its
consumers go on, as /livez says. STATUS= says the same in words, for `systemctl status`.
"""

from __future__ import annotations

import math
import os
import socket
import threading
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Protocol

from delayq.queue.consuming.consumer import AnyConsuming, dead_loop, run_of, why_unready
from delayq.safe_log import SafeLog
from delayq.values.times import monotonic
from delayq.worker.drivers.own_threads import start_needed

log = SafeLog("delayq.worker")

CHECK_EVERY = 0.25
"""Seconds after which a worker looks whether it has become ready, or drains."""
SENDS_WITHIN = 1.0
"""Seconds that systemd may take to read what was said before."""
BEATS = 4
"""Times that WATCHDOG=1 is said in the time that the watchdog allows."""
PATIENCE = 0.5
"""The part of that time for which a loop may stand still. So systemd acts at most one and a half of it after a hang."""


class Watcher(Protocol):
    """What watches the consumers of this process."""

    consumers: Callable[[], Sequence[AnyConsuming | None]]
    """Returns the consumers, None for each that has not started."""


class ServiceManager:
    """The service manager that has started this process; says to it only what has changed, and that loops go on."""

    def __init__(self, address: str, watchdog: float = math.inf) -> None:
        """Talk to a socket: a path, or after an @ the name of an abstract one; `watchdog` is in seconds."""
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self.watchdog = watchdog
        self.patience = watchdog * PATIENCE
        """Seconds that a loop may stand still."""
        self.every = min(CHECK_EVERY, watchdog / BEATS)
        """Seconds after which to call `update` again."""
        self._saying = threading.Lock()
        self._ready = self._stopping = self._dead = self._failed = False
        self._status = ""
        self._next_beat = 0.0

    def update(self, *, ready: bool, stopping: bool, dead: str) -> None:
        """Say what has changed, and unless a loop is `dead`, that all go on; two threads say nothing at a time."""
        with self._saying:  # so that the process does not end before another thread has said what is new
            self._update(ready=ready, stopping=stopping, dead=dead)

    def _update(self, *, ready: bool, stopping: bool, dead: str) -> None:
        lines = []
        if ready and not self._ready:
            lines.append("READY=1")
        if stopping and not self._stopping:
            lines.append("STOPPING=1")
        self._ready, self._stopping = self._ready or ready, self._stopping or stopping
        if not dead and self.watchdog < math.inf and monotonic() >= self._next_beat:
            self._next_beat = monotonic() + self.watchdog / BEATS - self.every / 2
            lines.append("WATCHDOG=1")
        told, self._dead = self._dead, bool(dead)
        status = dead or ("draining" if self._stopping else "consuming" if self._ready else "starting")
        if status != self._status and not (dead and told):  # which tells for how long
            self._status = status
            lines.append(f"STATUS={status}")
        if lines:
            self._send("\n".join(lines))

    def _send(self, text: str) -> None:
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
                channel.settimeout(SENDS_WITHIN)
                channel.sendto(text.encode(), self._address)
        except OSError as error:
            if not self._failed:
                log.warning("cannot reach the service manager at NOTIFY_SOCKET: %s", error)
            self._failed = True

    @contextmanager
    def watching(self) -> Iterator[LoopWatch]:
        """Watch the consumers of this process during the block, and say how they get on."""
        with watching(self.every, self.patience, self._report) as watch:
            yield watch
        ran = not any(one is None or run_of(one).driver.stopped for one in watch.consumers())
        self.update(ready=ran, stopping=True, dead="")  # even if all was too quick for a look

    def _report(self, unready: str, dead: str) -> None:
        # A burst may be over before a look: the end of `watching` says that it was ready, which comes first.
        self.update(ready=not unready, stopping=self._ready and unready == "draining", dead=dead)


def find_service_manager(environment: MutableMapping[str, str] = os.environ) -> ServiceManager | None:
    """Return the service manager of this process, None without one.

    The variables are removed, so that no program that a callback starts speaks for this process.
    """
    address = environment.pop("NOTIFY_SOCKET", "")
    pid, micros = environment.pop("WATCHDOG_PID", ""), environment.pop("WATCHDOG_USEC", "")
    if not address:
        return None
    if not address.startswith(("/", "@")):
        log.warning("NOTIFY_SOCKET is neither a path nor an abstract socket: nothing is said to the service manager")
        return None
    watched = micros.isdecimal() and int(micros) > 0 and pid in {"", str(os.getpid())}
    return ServiceManager(address, int(micros) / 1_000_000 if watched else math.inf)


class LoopWatch:
    """Looks at the consumers of this process, in a thread of its own."""

    def __init__(self, patience: float, report: Callable[[str, str], object]) -> None:
        """Pass on why the process is unready and dead, '' each if it is not."""
        self.consumers: Callable[[], Sequence[AnyConsuming | None]] = tuple
        self._patience, self._report = patience, report
        self._ended = threading.Event()

    def run(self, every: float) -> None:
        """Report every so many seconds until the end."""
        while not self._ended.wait(every):
            try:
                consumers = self.consumers()
                self._report(why_unready(consumers), dead_loop(consumers, self._patience))
            except Exception:
                log.exception("the watchdog failed, and goes on")

    def end(self) -> None:
        """Report no more."""
        self._ended.set()


@contextmanager
def beating(beat: Callable[[], object], watchdog: float) -> Iterator[LoopWatch]:
    """Watch the consumers of a process under a parent during the block: call `beat` while their loops go on.

    The parent takes a process for dead that has not beaten for `PATIENCE` of the `watchdog` seconds.
    """
    with watching(watchdog / BEATS / 2, watchdog * PATIENCE, lambda _, dead: None if dead else beat()) as watch:
        yield watch


@contextmanager
def watching(every: float, patience: float, report: Callable[[str, str], object]) -> Iterator[LoopWatch]:
    """Watch the consumers of this process during the block."""
    watch = LoopWatch(patience, report)
    thread = start_needed(partial(watch.run, every), "delayq-watchdog")
    try:
        yield watch
    finally:
        watch.end()
        thread.join(SENDS_WITHIN)
