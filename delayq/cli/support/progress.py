"""What long commands show and heed: a spinner or a bar on a terminal, and signals that ask for a stop."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from delayq.cli.support.exit_codes import Exit
from delayq.cli.support.output import console
from delayq.queue.consuming.stop_signals import STOP_SIGNALS, handle_signals
from delayq.values.text import clean
from delayq.worker.drivers.own_threads import OwnThreads

POLL_INTERVAL = 0.5
"""Seconds between two calls of the status function."""


Advance = Callable[..., None]
"""Called with what is done, the total (None if unknown), and a text to show instead of "done/total"."""


@contextmanager
def spinner(text: str, status: Callable[[], str] | None = None) -> Iterator[None]:
    """Show `text` during the block, followed by what `status` returns; a thread calls it repeatedly.

    If `status` raises, the display stops updating and the block continues.
    """
    printer = console(stderr=True)
    if not printer.is_terminal:
        yield
        return
    ended = threading.Event()
    with printer.status(clean(text)) as display:

        def update() -> None:
            while status is not None and not ended.wait(POLL_INTERVAL):
                try:
                    display.update(clean(f"{text} {status()}"))
                except Exception:  # noqa: BLE001 - the work goes on, and reports its own errors
                    return

        thread = OwnThreads().start(update, "delayq-progress")
        try:
            yield
        finally:
            ended.set()
            if thread is not None:
                thread.join()


@contextmanager
def progress_bars() -> Iterator[Callable[[str], Advance]]:
    """Yield a function that adds a bar with a title; the bars disappear at the end of the block."""
    printer = console(stderr=True)
    if not printer.is_terminal:
        yield lambda _title: lambda _done, _total, _text="": None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    text_columns = [TextColumn(f"{{task.{name}}}", markup=False) for name in ("description", "fields[text]")]
    columns = [text_columns[0], BarColumn(), text_columns[1], TimeRemainingColumn(elapsed_when_finished=True)]
    with Progress(*columns, console=printer, transient=True) as progress:

        def add_bar(title: str) -> Advance:
            task = progress.add_task(clean(title), total=None, text="")

            def advance(done: int, total: int | None, text: str = "") -> None:
                shown = text or (f"{done:,}/{total:,}" if total else f"{done:,}")
                progress.update(task, completed=done, total=total, text=shown)

            return advance

        yield add_bar


class StopRequest:
    """Whether a stop was requested, and by which signal."""

    def __init__(self) -> None:
        self.event = threading.Event()
        self.number = 0

    def __call__(self, number: int, _: FrameType | None) -> None:
        """Handle a signal."""
        if self.event.is_set():
            raise KeyboardInterrupt
        self.number = number
        self.event.set()

    def exit_code(self, *, right: bool) -> int:
        """Return the exit code of a command: what shells use for the signal, else whether its result is right."""
        return 128 + self.number if self.number else Exit.OK if right else Exit.FAILURE


@contextmanager
def catch_stop_signals() -> Iterator[StopRequest]:
    """Yield the stop request that SIGINT, SIGTERM or SIGHUP sets during the block."""
    request = StopRequest()
    with handle_signals(request, (*STOP_SIGNALS, signal.SIGHUP)):
        yield request
