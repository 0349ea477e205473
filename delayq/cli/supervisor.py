"""Several worker processes under one parent, which starts them, replaces those that die, and passes signals on.

A child is a process of its own from the start (nothing is forked that holds connections or threads), in a process
group of its own, so that Ctrl-C reaches it through the parent only. Parent and child share a socket: through it the
child reports that it consumes, and its end tells each that the other is gone, even after a SIGKILL.
"""

from __future__ import annotations

import logging
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from delayq.cli.failure import Exit

log = logging.getLogger("delayq.worker")

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
"""Seconds before a dead child is replaced: doubled each time, until one has lived long enough to count as healthy."""
SETTLED = 10.0
"""Seconds a child must live for that, or its pause if that was longer."""
KILLED_AFTER = 10.0
"""Seconds a child may take to end once it was told to cut off what runs."""
LOOK = 1.0
"""Seconds after which the parent looks after its children though nothing has told it to."""

Command = Callable[[int, int], list[str]]
"""Returns the arguments of a child, by its number and the descriptor of its channel."""


class Channel:
    """The child's end: reports to the parent, and stops the child when the parent is gone."""

    def __init__(self, number: int, descriptor: int) -> None:
        """Take the inherited socket; callbacks that start processes do not pass it on."""
        self._socket = socket.socket(fileno=descriptor)
        self._socket.set_inheritable(False)
        self.number = number
        threading.Thread(target=self._watch, name="delayq-parent", daemon=True).start()

    def report_started(self) -> None:
        """Tell the parent that this child consumes."""
        try:
            self._socket.send(b"!")
        except OSError:
            return  # the parent is gone, which `_watch` sees as well

    def _watch(self) -> None:
        with suppress(OSError):
            self._socket.recv(1)
        os.kill(os.getpid(), signal.SIGTERM)


class _Child:
    """One place among the workers, and the process that holds it."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.process: subprocess.Popen[bytes] | None = None
        self.channel: socket.socket | None = None
        self.started = False
        self.since = 0.0
        self.pause = 0.0
        self.again_at = 0.0
        self.code: int | None = None

    def start(self, command: Command) -> socket.socket:
        ours, theirs = socket.socketpair()
        with theirs:
            self.process = subprocess.Popen(  # noqa: S603 - delayq itself
                [sys.executable, "-m", "delayq", *command(self.number, theirs.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                process_group=0,
            )
        self.channel, self.started, self.since = ours, False, time.monotonic()
        return ours

    def signal(self, number: int) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)


class Supervisor:
    """Runs so many children until they are done, or a signal ends them."""

    def __init__(self, command: Command, processes: int) -> None:
        """Supervise `processes` children, each `python -m delayq` with the arguments that `command` returns."""
        self._command = command
        self._children = [_Child(number + 1) for number in range(processes)]
        self._selector = selectors.DefaultSelector()
        self._signals: list[int] = []
        self._stops = 0
        self._kill_at: float | None = None
        self._proven = False

    def run(self) -> Exit | int:
        """Supervise until all have ended; returns the worst of their exit codes."""
        with self._listening():
            # The others follow once the first consumes: what is wrong with all of them is told once.
            self._start(self._children[0])
            while any(child.code is None for child in self._children):
                self._wait()
                self._forward()
                for child in self._children:
                    self._look_after(child)
        return max(child.code or 0 for child in self._children)

    def _start(self, child: _Child) -> None:
        self._selector.register(child.start(self._command), selectors.EVENT_READ, child)

    def _wait(self) -> None:
        times = [child.again_at for child in self._children if child.process is None and child.again_at]
        soonest = min([time.monotonic() + LOOK, *times, *([self._kill_at] if self._kill_at else [])])
        for key, _ in self._selector.select(max(0.0, soonest - time.monotonic())):
            self._hear(key.fileobj, key.data)  # type: ignore[arg-type]  # only sockets are registered

    def _hear(self, channel: socket.socket, child: _Child | None) -> None:
        """Take in what a child reports; without a child, it was a signal that woke us."""
        try:
            news = channel.recv(64, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        if not news:
            self._selector.unregister(channel)
        elif child is not None:
            child.started = True
            self._prove()

    def _prove(self) -> None:
        """The first child consumes: let the others start."""
        if not self._proven and not self._stops:
            self._proven = True
            for child in self._children[1:]:
                self._start(child)

    def _forward(self) -> None:
        while self._signals:
            number = self._signals.pop(0)
            self._stops += 1
            log.info("%s: stopping %d workers", signal.Signals(number).name, len(self._children))
            for child in self._children:
                child.signal(signal.SIGTERM if self._stops <= 2 else signal.SIGKILL)  # noqa: PLR2004
            if self._stops > 1 and self._kill_at is None:
                self._kill_at = time.monotonic() + KILLED_AFTER
        if self._kill_at is not None and time.monotonic() >= self._kill_at:
            for child in self._children:
                child.signal(signal.SIGKILL)

    def _look_after(self, child: _Child) -> None:
        if child.code is not None:
            return
        if child.process is None:
            if self._stops or self._given_up():
                child.code = 0
            elif child.again_at and time.monotonic() >= child.again_at:
                self._start(child)
            return
        code = child.process.poll()
        if code is None:
            return
        if child.channel is not None and child.channel in self._selector.get_map():
            self._hear(child.channel, child)
        self._bury(child)
        if code == 0 or self._stops or not self._proven:
            child.code = _exit_code(code, child, stopping=self._stops > 0)
            return
        lived = time.monotonic() - child.since
        healthy = lived > max(SETTLED, child.pause)
        child.pause = FIRST_PAUSE if healthy or not child.pause else min(2 * child.pause, LONGEST_PAUSE)
        child.again_at = time.monotonic() + child.pause
        log.error("worker %d %s; starting another in %g s", child.number, _how(code), child.pause)

    def _given_up(self) -> bool:
        return not self._proven and self._children[0].code is not None

    def _bury(self, child: _Child) -> None:
        if child.channel is not None:
            if child.channel in self._selector.get_map():
                self._selector.unregister(child.channel)
            child.channel.close()
        child.process = child.channel = None

    @contextmanager
    def _listening(self) -> Iterator[None]:
        ours, theirs = socket.socketpair()
        with ours, theirs, self._selector:
            theirs.setblocking(False)  # noqa: FBT003 - Python's own signature
            self._selector.register(ours, selectors.EVENT_READ, None)
            wakeup = signal.set_wakeup_fd(theirs.fileno())
            numbers = (signal.SIGINT, signal.SIGTERM)
            before = {number: signal.signal(number, lambda n, _: self._signals.append(n)) for number in numbers}
            try:
                yield
            finally:
                for number, handler in before.items():
                    signal.signal(number, handler)
                signal.set_wakeup_fd(wakeup)


def _exit_code(code: int, child: _Child, *, stopping: bool) -> int:
    if stopping and code == -signal.SIGTERM and not child.started:
        return Exit.OK  # told to stop before it held anything
    return code if code >= 0 else Exit.FAILURE


def _how(code: int) -> str:
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
