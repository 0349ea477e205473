"""`delayq worker --reload`: a worker that starts anew when a Python file changes, for development."""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from socket import socket, socketpair

from delayq.cli.support.exit_codes import CommandError, Exit
from delayq.queue.consuming.stop_signals import handle_signals
from delayq.safe_log import SafeLog

log = SafeLog("delayq.worker")

LOOK_EVERY = 200
"""Milliseconds after which the worker and the signals are looked at."""


def run_reloading(command: Callable[[int, int], list[str]], folder: Path) -> int:
    """Run a worker until a signal, and again at each change of a Python file below the folder; returns its exit code.

    The arguments of the worker are those of `command` for its number and the file descriptor of its channel. A change
    lets its running callbacks finish, as SIGTERM does. One that has ended by itself stays so until the next change.
    """
    try:
        from watchfiles import PythonFilter, watch
    except ImportError:
        raise CommandError("--reload needs the extra: pip install 'delayq[reload]'", Exit.USAGE) from None

    logging.getLogger("watchfiles").setLevel(logging.WARNING)
    stopping = threading.Event()

    def stop(number: int, _: object) -> None:
        one.signal(number)
        stopping.set()

    one = _Worker(command)
    with handle_signals(stop):
        one.start()
        changes = watch(
            folder, watch_filter=PythonFilter(), rust_timeout=LOOK_EVERY, yield_on_timeout=True, stop_event=stopping
        )
        for changed in changes:
            if changed:
                log.info("%s: the worker starts anew", _told(sorted(path for _, path in changed), folder))
                one.signal(signal.SIGTERM)
                one.wait()
                if not stopping.is_set():
                    one.start()
            else:
                one.look()
        return one.wait()


def _told(paths: Iterable[str], folder: Path) -> str:
    first, *others = (str(Path(path).relative_to(folder.resolve())) for path in paths)
    return f"{first} and {len(others)} more have changed" if others else f"{first} has changed"


class _Worker:
    """The process that consumes; it stops if this one ends, however it does."""

    def __init__(self, command: Callable[[int, int], list[str]]) -> None:
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: socket | None = None
        self._told = False

    def start(self) -> None:
        ours, theirs = socketpair()
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603 - delayq itself
                [sys.executable, "-m", "delayq", *self._command(1, theirs.fileno())],
                pass_fds=[theirs.fileno()],
                process_group=0,  # Ctrl-C reaches it through this process alone
            )
        self._channel, self._told = ours, False

    def signal(self, number: int) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    def wait(self) -> int:
        code = 0 if self._process is None else self._process.wait()
        if self._channel is not None:
            self._channel.close()
        return code

    def look(self) -> None:
        """Tell once that the worker has ended by itself."""
        if self._process is not None and self._process.poll() is not None and not self._told:
            self._told = True
            log.warning("the worker has ended with exit code %d: it starts anew once a file changes", self.wait())
