"""`delayq worker --reload`: a worker that starts anew when a Python file changes, for development."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Iterable
from pathlib import Path

from delayq.cli.support.exit_codes import CommandError, Exit
from delayq.cli.worker.supervisor import Child, Command
from delayq.queue.consuming.stop_signals import handle_signals
from delayq.safe_log import SafeLog

log = SafeLog("delayq.worker")

LOOK_EVERY = 200
"""Milliseconds after which the worker and the signals are looked at."""


def run_reloading(command: Command, folder: Path) -> int:
    """Run a worker until a signal, and again at each change of a Python file below the folder; returns its exit code.

    The arguments of the worker are those of `command` for its number and the file descriptor of its channel. A change
    lets its running callbacks finish, as SIGTERM does. One that has ended by itself stays so until the next change.
    """
    try:
        from watchfiles import PythonFilter, watch
    except ImportError:
        raise CommandError("--reload needs the extra: pip install 'delayq[reload]'", Exit.USAGE) from None

    logging.getLogger("watchfiles").setLevel(logging.WARNING)
    stopping, child = threading.Event(), Child(1)

    def stop(number: int, _: object) -> None:
        child.signal(number)
        stopping.set()

    with handle_signals(stop):
        child.start(command)
        told = False
        changes = watch(
            folder, watch_filter=PythonFilter(), rust_timeout=LOOK_EVERY, yield_on_timeout=True, stop_event=stopping
        )
        for changed in changes:
            if changed:
                log.info("%s: the worker starts anew", _told(sorted(path for _, path in changed), folder))
                child.signal(signal.SIGTERM)
                child.wait()
                if not stopping.is_set():
                    child.start(command)
                    told = False
            elif child.has_ended and not told:
                told = True
                text = "the worker has ended with exit code %d: it starts anew once a file changes"
                log.warning(text, child.wait())
        return child.wait()


def _told(paths: Iterable[str], folder: Path) -> str:
    first, *others = (str(Path(path).relative_to(folder.resolve())) for path in paths)
    return f"{first} and {len(others)} more have changed" if others else f"{first} has changed"
