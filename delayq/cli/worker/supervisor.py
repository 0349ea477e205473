"""Several worker processes under one parent, which starts them, replaces those that die, and forwards signals.

A child is started afresh, not forked, because a fork would copy connections and threads. It is in a process group of
its own, so Ctrl-C reaches it only through the parent. Parent and child share a socket: the child reports on it that it
consumes, and when it closes, each knows that the other has ended, even after a SIGKILL.
"""

from __future__ import annotations

import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from delayq.cli.support.exit_codes import CommandError, Exit
from delayq.queue.consuming.stop_signals import handle_signals
from delayq.safe_log import SafeLog
from delayq.worker.drivers.own_threads import start_needed

if TYPE_CHECKING:
    from delayq.cli.worker.service_manager import ServiceManager

log = SafeLog("delayq.worker")

FIRST_PAUSE, MAX_PAUSE = 0.5, 30.0
"""Seconds before a dead child is replaced: doubled each time, until a child stays healthy."""
HEALTHY_AFTER = 10.0
"""Seconds after which a child counts as healthy; longer if its last pause was longer."""
KILL_AFTER = 10.0
"""Seconds a child may take to end after the second signal, before it is killed."""
CHECK_EVERY = 1.0
"""Seconds after which the parent checks its children even if nothing was reported."""

_OPENED, _STARTED, _FINISHED, _RENEWED, _ERROR = b"o", b"!", b".", b"+", b"\0"
"""What a child reports; the text of an error follows the last of them."""
_ALIVE = b"\xff"
"""Reported again and again, if a service manager watches; in no text, for UTF-8 has no such byte."""
_MAX_ERROR = 2000
"""Bytes of such a text."""

Command = Callable[[int, int], list[str]]
"""Returns the arguments of a child for its number and the file descriptor of its channel."""


class Channel:
    """The child's end of the socket: reports to the parent, and stops the child when the parent has ended."""

    def __init__(self, number: int, descriptor: int) -> None:
        """Take over the inherited socket; processes that callbacks start do not inherit it."""
        self._socket = socket.socket(fileno=descriptor)
        self._socket.set_inheritable(False)
        self.number = number
        start_needed(self._watch, "delayq-parent")

    def report_opened(self) -> None:
        """Report to the parent that this child begins to consume: from now on it may end in the middle of work."""
        self._report(_OPENED)

    def report_started(self) -> None:
        """Report to the parent that this child consumes."""
        self._report(_STARTED)

    def report_finished(self) -> None:
        """Report to the parent that this child has finished its work; one that ends without this is replaced."""
        self._report(_FINISHED)

    def report_renewed(self) -> None:
        """Report to the parent that this child has reached a limit and drains: another replaces it however it ends."""
        self._report(_RENEWED)

    def report_alive(self) -> None:
        """Report to the parent that the loops of this child go on."""
        self._report(_ALIVE)

    def report_error(self, text: str) -> None:
        """Report to the parent an error that stops all children, and which the parent prints."""
        self._report(_ERROR + text.encode("utf-8", "replace")[:_MAX_ERROR])

    def _report(self, what: bytes) -> None:
        with suppress(OSError):  # the parent has ended, which `_watch` notices as well
            self._socket.sendall(what)

    def _watch(self) -> None:
        with suppress(OSError):
            self._socket.recv(1)
        os.kill(os.getpid(), signal.SIGTERM)


class Child:
    """One of the workers: its current process, and when to start the next."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.process: subprocess.Popen[bytes] | None = None
        self.channel: socket.socket | None = None
        self.opened = False
        self.finished = False
        self.renewed = False
        self.since = self.heard = 0.0
        self.pause = 0.0
        self.again_at = 0.0
        self.code: int | None = None
        self.report = b""

    def start(self, command: Command) -> socket.socket:
        """Start a process, and return this end of its channel."""
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                self.process = subprocess.Popen(  # noqa: S603 - delayq itself
                    [sys.executable, "-m", "delayq", *command(self.number, theirs.fileno())],
                    stdin=subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                    process_group=0,
                )
            except OSError:
                ours.close()
                raise
        self.channel, self.report = ours, b""
        self.since = self.heard = time.monotonic()
        self.opened = self.finished = self.renewed = False
        return ours

    def next_pause(self, *, healthy: bool) -> float:
        """Return how long to wait before the next start: ever longer, unless the last one ran well for a while."""
        return FIRST_PAUSE if healthy or not self.pause else min(2 * self.pause, MAX_PAUSE)

    @property
    def error(self) -> str | None:
        """The error that the child reported."""
        _, marked, text = self.report.partition(_ERROR)
        return text.decode("utf-8", "replace") if marked else None

    @property
    def has_ended(self) -> bool:
        """Whether the process has ended, and not only its work."""
        return self.process is None or self.process.poll() is not None

    def signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        if self.process is not None and not self.has_ended:
            self.process.send_signal(number)

    def wait(self) -> int:
        """Wait for the end of the process, close its channel, and return its exit code."""
        code = 0 if self.process is None else self.process.wait()
        if self.channel is not None:
            self.channel.close()
        return code


class Supervisor:
    """Runs a number of children until they are done or a signal stops them."""

    def __init__(self, command: Command, processes: int, service: ServiceManager | None = None) -> None:
        """Supervise `processes` children, each `python -m delayq` with the arguments that `command` returns.

        The service manager is told once the first of them consumes, and while those that consume go on.
        """
        self._service = service
        self._command = command
        self._children = [Child(number + 1) for number in range(processes)]
        self._selector = selectors.DefaultSelector()
        self._signals: list[int] = []
        self._stops = 0
        self._kill_at: float | None = None
        self._first_consumes = False
        self._error: CommandError | None = None
        """The error that a child reported, which stops the others."""

    def run(self) -> Exit | int:
        """Supervise until all children have ended; return the highest of their exit codes.

        Raises `CommandError` once all have ended if a child reported an error: it is said once.
        """
        with self._listening():
            # The others start once the first consumes, so an error that all of them have is reported once.
            self._start(self._children[0])
            while any(child.code is None for child in self._children):
                self._wait()
                self._forward()
                for child in self._children:
                    self._check(child)
                if self._service is not None:
                    ready, stopping = self._first_consumes, self._stopping
                    self._service.update(ready=ready, stopping=stopping, dead=self._silent(self._service))
        if self._error is not None:
            raise self._error
        return max(child.code or 0 for child in self._children)

    def _start(self, child: Child) -> None:
        try:
            channel = child.start(self._command)
        except OSError as error:  # no room for one more process
            child.pause = child.next_pause(healthy=False)
            child.again_at = time.monotonic() + child.pause
            log.error("worker %d cannot be started, trying again in %g s: %s", child.number, child.pause, error)  # noqa: TRY400
            return
        self._selector.register(channel, selectors.EVENT_READ, child)

    def _wait(self) -> None:
        times = [child.again_at for child in self._children if child.process is None and child.again_at]
        every = CHECK_EVERY if self._service is None else self._service.every
        soonest = min([time.monotonic() + every, *times, *([self._kill_at] if self._kill_at else [])])
        for key, _ in self._selector.select(max(0.0, soonest - time.monotonic())):
            self._read(key.fileobj, key.data)  # type: ignore[arg-type]  # only sockets are registered

    def _read(self, channel: socket.socket, child: Child | None) -> None:
        """Read a child's report; without a child, a signal woke us."""
        try:
            report = channel.recv(2 * _MAX_ERROR, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        if not report:
            self._selector.unregister(channel)
        elif child is not None:
            child.heard = time.monotonic()
            child.report += report.replace(_ALIVE, b"")
            marks = child.report.partition(_ERROR)[0]
            child.opened = _OPENED in marks
            child.finished, child.renewed = _FINISHED in marks, _RENEWED in marks
            if _STARTED in marks and not self._first_consumes and not self._stopping:
                self._first_consumes = True
                for other in self._children[1:]:
                    self._start(other)

    def _silent(self, service: ServiceManager) -> str:
        """Return which children that consume have not reported in time that they go on, '' if all have."""
        running = [child for child in self._children if child.process is not None and child.opened]
        late = [child.number for child in running if time.monotonic() - child.heard > service.patience]
        return f"worker {', '.join(map(str, late))} does not go on" if late else ""

    @property
    def _stopping(self) -> bool:
        return self._stops > 0 or self._error is not None

    def _forward(self) -> None:
        while self._signals:
            number = self._signals.pop(0)
            self._stops += 1
            log.info("%s: stopping %d workers", signal.Signals(number).name, len(self._children))
            for child in self._children:
                child.signal(signal.SIGTERM if self._stops <= 2 else signal.SIGKILL)  # noqa: PLR2004
            if self._stops > 1 and self._kill_at is None:
                self._kill_at = time.monotonic() + KILL_AFTER
        if self._kill_at is not None and time.monotonic() >= self._kill_at:
            for child in self._children:
                child.signal(signal.SIGKILL)

    def _check(self, child: Child) -> None:
        if child.code is not None:
            return
        if child.process is None:
            if self._stopping or (not self._first_consumes and self._children[0].code is not None):
                child.code = 0
            elif child.again_at and time.monotonic() >= child.again_at:
                self._start(child)
            return
        code = child.process.poll()
        if code is None:
            return
        channel, child.process, child.channel = child.channel, None, None
        if channel is not None:
            if channel in self._selector.get_map():
                self._read(channel, child)
            if channel in self._selector.get_map():
                self._selector.unregister(channel)
            channel.close()
        self._on_ended(child, code)

    def _on_ended(self, child: Child, code: int) -> None:
        """Stop all children because of an error that this one reported, or start another in its place."""
        if child.error is not None and self._error is None:
            self._error = CommandError(child.error, Exit(code) if code in list(Exit) else Exit.FAILURE)
            for other in self._children:
                if not self._stops:  # a second signal would cut off its callbacks
                    other.signal(signal.SIGTERM)
        done = child.finished and not child.renewed
        if done or self._stopping or not (self._first_consumes or child.opened):
            child.code = _exit_code(code, child, stopping=self._stopping)
            return
        if child.renewed:
            child.pause, child.again_at = 0.0, time.monotonic()
            return
        healthy = time.monotonic() - child.since > max(HEALTHY_AFTER, child.pause)
        child.pause = child.next_pause(healthy=healthy)
        child.again_at = time.monotonic() + child.pause
        log.error("worker %d %s; starting another in %g s", child.number, _how(code), child.pause)

    @contextmanager
    def _listening(self) -> Iterator[None]:
        ours, theirs = socket.socketpair()
        with ours, theirs, self._selector:
            theirs.setblocking(False)  # noqa: FBT003 - Python's own signature
            self._selector.register(ours, selectors.EVENT_READ, None)
            wakeup = signal.set_wakeup_fd(theirs.fileno())
            try:
                with handle_signals(lambda number, _: self._signals.append(number)):
                    yield
            finally:
                signal.set_wakeup_fd(wakeup)


def _exit_code(code: int, child: Child, *, stopping: bool) -> int:
    if stopping and code == -signal.SIGTERM and (child.finished or not child.opened):
        return Exit.OK  # the signal met it when it had nothing in flight any more, or not yet
    return code if code >= 0 else Exit.FAILURE


def _how(code: int) -> str:
    if code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    return f"ended with exit code {code}" + (" in the middle of work" if code == Exit.OK else "")
